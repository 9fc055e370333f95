"""The scripted server's files and batches: each request of a batch gets the fault planned for it.

Beside them, each call of the API itself can meet with a fault: those of a pass that is called as one of `CALLS`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.faults.plan import LIST, LOOK, RESULTS, SUBMIT, UPLOAD, called

if TYPE_CHECKING:
    from tests.faults.api import FakeApi

CONCURRENCY = 10
METADATA = "refusal_index"
EXPIRED = b"batch_expired"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeBatch:
    """One batch, and what has come of it."""

    id: str
    asked: dict[str, Any]
    requests: list[tuple[dict[str, Any], int]]
    created: int = field(default_factory=lambda: int(time.time()))
    status: str = "in_progress"
    lines: list[bytes] = field(default_factory=list)
    output: str | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        done = len(self.lines)
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.asked["endpoint"],
            "input_file_id": self.asked["input_file_id"],
            "completion_window": "24h",
            "status": self.status,
            "created_at": self.created,
            "output_file_id": self.output,
            "error_file_id": None,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "metadata": self.asked.get("metadata"),
            "request_counts": {"total": len(self.requests), "completed": done, "failed": 0},
        }


class FakeBatches:
    """Files and batches of the scripted server; nothing of them outlives it.

    Parameters
    ----------
    api
        The server: it answers the requests, and knows what was planned.

    Attributes
    ----------
    made
        Every batch.
    """

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._files: dict[str, bytes] = {}
        self.made: dict[str, FakeBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        """Return where each handler is."""
        return [
            web.post("/v1/files", self._planned(UPLOAD, self._upload)),
            web.delete("/v1/files/{id}", self._delete),
            web.get("/v1/files/{id}/content", self._planned(RESULTS, self._content)),
            web.post("/v1/batches", self._planned(SUBMIT, self._submit)),
            web.get("/v1/batches", self._planned(LIST, self._list)),
            web.get("/v1/batches/{id}", self._planned(LOOK, self._look)),
            web.post("/v1/batches/{id}/cancel", self._cancel),
        ]

    def submitted_twice(self) -> list[str]:
        """Return our keys of batches that were submitted more than once."""
        keys = [(one.asked.get("metadata") or {}).get(METADATA, one.id) for one in self.made.values()]
        return sorted({key for key in keys if keys.count(key) > 1})

    def _planned(self, call: str, handler: Handler) -> Handler:
        async def handled(request: web.Request) -> web.StreamResponse:
            try:
                if request.content_type == "application/json":
                    await request.read()  # read everything that was sent, even if the sender disappears
                return await self._api.called(request, called(call), lambda: handler(request))
            except ConnectionResetError:  # whoever sent it is gone
                return web.Response()

        return handled

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        given = form["file"]
        assert isinstance(given, web.FileField)
        name = self._added(given.file.read())
        return web.json_response(
            {
                "id": name,
                "object": "file",
                "bytes": len(self._files[name]),
                "created_at": int(time.time()),
                "filename": given.filename,
                "purpose": "batch",
                "status": "processed",
            }
        )

    def _added(self, content: bytes) -> str:
        name = f"file-{next(self._numbers)}"
        self._files[name] = content
        return name

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        self._files.pop(name, None)
        return web.json_response({"id": name, "object": "file", "deleted": True})

    async def _content(self, request: web.Request) -> web.StreamResponse:
        content = self._files.get(request.match_info["id"])
        return _not_found("file") if content is None else web.Response(body=content)

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        content = self._files.get(asked["input_file_id"])
        if content is None:
            return _not_found("file")
        lines = [json.loads(line) for line in content.splitlines()]
        batch = FakeBatch(
            f"batch_{next(self._numbers)}", asked, [(line, self._api.arrived(line["body"])) for line in lines]
        )
        self.made[batch.id] = batch
        task = asyncio.create_task(self._process(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.json_response(batch.document())

    async def _list(self, _request: web.Request) -> web.StreamResponse:
        documents = [one.document() for one in reversed(self.made.values())]
        return web.json_response({"object": "list", "data": documents, "has_more": False})

    async def _look(self, request: web.Request) -> web.StreamResponse:
        batch = self.made.get(request.match_info["id"])
        return _not_found("batch") if batch is None else web.json_response(batch.document())

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        batch = self.made.get(request.match_info["id"])
        if batch is None:
            return _not_found("batch")
        batch.status = "cancelled" if batch.status == "in_progress" else batch.status
        return web.json_response(batch.document())

    async def _process(self, batch: FakeBatch) -> None:
        """Process the requests of a batch, several at once, in the order of its file."""
        slots = asyncio.Semaphore(CONCURRENCY)

        async def line(asked: dict[str, Any], sent_before: int) -> None:
            async with slots:
                if batch.status == "in_progress":
                    response = await self._api.respond(None, asked["body"], sent_before)
                    batch.lines += result_line(asked["custom_id"], response)

        await asyncio.gather(*(line(*request) for request in batch.requests))
        batch.output = self._added(b"".join(batch.lines)) if batch.lines else None
        if batch.status == "in_progress":
            batch.status = "expired" if any(EXPIRED in line for line in batch.lines) else "completed"

    def forget(self) -> None:
        """Forget all batches."""
        self.made.clear()


class Expired(web.Response):
    """The result of a request that a batch did not reach in time."""


TOO_LATE = {"code": EXPIRED.decode(), "message": "This request could not be executed in time."}


def result_line(custom_id: str, response: web.StreamResponse) -> list[bytes]:
    """Return the line that tells of a response: none where nothing came, and a torn one of a torn body."""
    assert isinstance(response, web.Response)
    text = response.text
    if isinstance(response, Expired):
        return [json.dumps({"id": "x", "custom_id": custom_id, "response": None, "error": TOO_LATE}).encode() + b"\n"]
    if not text:
        return []
    try:
        body = json.loads(text)
    except ValueError:
        if response.content_type == "application/json":
            return [f'{{"custom_id": "{custom_id}", "response": {{"status_code": 200, "body": {text}\n'.encode()]
        body = text
    line = {
        "id": "x",
        "custom_id": custom_id,
        "response": {"status_code": response.status, "body": body},
        "error": None,
    }
    return [json.dumps(line).encode() + b"\n"]


def _not_found(what: str) -> web.StreamResponse:
    return web.json_response({"error": {"message": f"No such {what}", "code": "not_found"}}, status=404)
