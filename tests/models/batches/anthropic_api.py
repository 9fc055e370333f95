"""A local stand-in for Anthropic's message batches, for its official client.

Batches begin in_progress, may be canceling, and end; each of their requests then has succeeded, errored, expired or was
canceled. As with Anthropic, there is no metadata, and before a batch ends its counts show only processing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from tests.faults.world import answer

Json = dict[str, Any]


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@dataclass
class Batch:
    id: str
    requests: list[Json]
    created: datetime
    looks: int  # until it ends
    host: str
    status: str = "in_progress"
    results: list[Json] = field(default_factory=list)

    def document(self) -> Json:
        ended = self.status == "ended"
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if not ended:
            counts["processing"] = len(self.requests)
        for one in self.results if ended else ():
            counts[one["result"]["type"]] += 1
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": self.status,
            "request_counts": counts,
            "created_at": stamp(self.created),
            "expires_at": stamp(self.created + timedelta(days=1)),
            "ended_at": stamp(self.created) if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{self.host}/v1/messages/batches/{self.id}/results" if ended else None,
        }


@dataclass
class AnthropicApi:
    """The server's state and behaviour.

    - `looks`: how many polls a batch takes to end.
    - `outcome`: maps a request's id and its earlier attempts to ``succeeded``, ``errored`` or ``expired``.
    - `answer_lost`: how many of the next batches are created without a response.
    - `refusal`: status and message with which the next batches are refused.
    """

    looks: int = 2
    outcome: Callable[[str, int], str] = lambda _name, _earlier: "succeeded"
    answer_lost: int = 0
    refusal: tuple[int, str] | None = None
    batches: list[Batch] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    listings: int = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        place = "/v1/messages/batches"
        app.router.add_post(place, self.create)
        app.router.add_get(place, self.list)
        app.router.add_get(f"{place}/{{id}}", self.retrieve)
        app.router.add_get(f"{place}/{{id}}/results", self.results)
        app.router.add_post(f"{place}/{{id}}/cancel", self.cancel)
        return app

    async def create(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"].startswith("Bearer ")
        if self.refusal is not None:
            return error(*self.refusal)
        body = await request.json()
        names = [one["custom_id"] for one in body["requests"]]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 64 for name in names)
        batch = Batch(
            f"msgbatch_{len(self.batches):04}", body["requests"], datetime.now(UTC), self.looks, host(request)
        )
        self.batches.append(batch)
        if self.answer_lost:
            self.answer_lost -= 1
            request.transport.close()
        return web.json_response(batch.document())

    async def list(self, request: web.Request) -> web.Response:
        self.listings += 1
        newest = self.batches[::-1]
        after, limit = request.query.get("after_id"), min(int(request.query.get("limit", "20")), 2)
        start = next(place for place, one in enumerate(newest, start=1) if one.id == after) if after else 0
        page = newest[start : start + limit]
        ends = {"first_id": page[0].id, "last_id": page[-1].id} if page else {"first_id": None, "last_id": None}
        more = start + limit < len(newest)
        return web.json_response({"data": [one.document() for one in page], "has_more": more, **ends})

    def find(self, request: web.Request) -> Batch | None:
        return next((batch for batch in self.batches if batch.id == request.match_info["id"]), None)

    async def retrieve(self, request: web.Request) -> web.Response:
        batch = self.find(request)
        if batch is None:
            return error(404, "no such batch")
        batch.looks -= 1
        if batch.looks <= 0 and batch.status != "ended":
            batch.results = [self.result(one, canceled=batch.status == "canceling") for one in batch.requests]
            batch.status = "ended"
        return web.json_response(batch.document())

    def result(self, one: Json, *, canceled: bool) -> Json:
        name = one["custom_id"]
        kind = "canceled" if canceled else self.outcome(name, self.asked.count(name))
        self.asked.append(name)
        result: Json = {"type": kind}
        if kind == "errored":
            inner = {"type": "api_error", "message": "it fails by plan"}
            result["error"] = {"type": "error", "error": inner, "request_id": "req_1"}
        if kind == "succeeded":
            result["message"] = message(one["params"])
        return {"custom_id": name, "result": result}

    async def results(self, request: web.Request) -> web.Response:
        batch = self.find(request)
        lines = [json.dumps(result, ensure_ascii=False) for result in batch.results[::-1]]
        return web.Response(text="\n".join(lines) + "\n", content_type="application/x-jsonl")

    async def cancel(self, request: web.Request) -> web.Response:
        batch = self.find(request)
        batch.status = "canceling"
        return web.json_response(batch.document())


def message(params: Json) -> Json:
    asked = "\n\n".join([params.get("system", ""), *(one["content"] for one in params["messages"])])
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": params["model"],
        "content": [{"type": "text", "text": answer(asked)}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": len(asked) // 4, "output_tokens": 5},
    }


def host(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"


def error(status: int, message: str) -> web.Response:
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return web.json_response(body, status=status)
