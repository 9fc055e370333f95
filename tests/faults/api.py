"""A scripted OpenAI-compatible server for tests of what happens between the engine and a provider.

It says what a script tells it to and misbehaves on demand, and keeps every request that it answered well: these are the
ones that a provider would be paid for.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.faults.batches import FakeBatches
from tests.faults.plan import plain_verdict

Answer = Callable[[str], str]


@dataclass(frozen=True)
class Exchange:
    """One request as it arrives, and what it would be answered with.

    Attributes
    ----------
    api, request, body
        The server, the request, which is None within a batch, and the JSON in it.
    choices
        Text and finish reason of every choice that is asked for.
    handle
        Does what a call of the API asks for that is no request to a model.
    """

    api: FakeApi
    request: web.Request | None
    body: dict[str, Any]
    choices: list[tuple[str, str]]
    handle: Callable[[], Awaitable[web.StreamResponse]] | None = None

    def answered(self, *choices: tuple[str | None, str]) -> dict[str, Any]:
        """Take the request as paid for, and return the body of its response."""
        self.api.answered.append(self.body)
        return completion(*(choices or self.choices))

    async def respond(self) -> web.StreamResponse:
        """Answer well."""
        return web.json_response(self.answered()) if self.handle is None else await self.handle()


Misdeed = Callable[[Exchange], Awaitable[web.StreamResponse]]
"""What is done with a request in place of answering it."""

Fault = Callable[[str, int], web.StreamResponse | float | Misdeed | None]
"""From the message and how often it was sent before: what to send instead, seconds to hang, a misdeed, or None."""


def question_of(message: str) -> str:
    """Return the question at the end of a message of the default prompt set."""
    return message.rsplit("Question: ", 1)[-1]


def completion(*choices: tuple[str | None, str]) -> dict[str, Any]:
    """Return the body of a response, from the text and the finish reason of each choice."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {"index": index, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
            for index, (text, reason) in enumerate(choices)
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 5 * len(choices), "total_tokens": 100 + 5 * len(choices)},
    }


class FakeApi:
    """The server, in a thread of its own, for the length of a ``with`` block.

    It gives as many choices as a request asks for, up to `max_choices`, and asks the script again for each.
    """

    def __init__(self, answer: Answer, fault: Fault | None = None, *, max_choices: int = 1) -> None:
        self._answer, self._fault, self._max_choices = answer, fault, max_choices
        self.answered: list[dict[str, Any]] = []
        self.received, self.calls = Counter[str](), Counter[str]()
        self.headers: list[dict[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._site: web.TCPSite | None = None
        self._back = asyncio.Event()
        self.is_down = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.url = ""
        self.batches = FakeBatches(self)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def messages(self) -> list[str]:
        """Return the last message of every request that was answered well."""
        return [body["messages"][-1]["content"] for body in self.answered]

    def _serve(self) -> None:
        self._loop.run_until_complete(self._run())
        self._loop.run_until_complete(self._cancel_hanging_tasks())
        self._loop.close()

    async def _cancel_hanging_tasks(self) -> None:
        hanging = asyncio.all_tasks() - {asyncio.current_task()}
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    async def _run(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_routes(self.batches.routes())
        self._runner = runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        self._site = await self._listening(0)
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        self._started.set()
        await self._stop.wait()
        self._back.set()
        await runner.cleanup()

    async def _listening(self, port: int) -> web.TCPSite:
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024, reuse_address=True)
        await site.start()
        return site

    async def go_down(self, seconds: float) -> None:
        """Refuse connections, and come back at the same address after a while."""
        if self.is_down or self._site is None:
            return
        self.is_down = True
        self._back.clear()
        port = self._runner.addresses[0][1]
        await self._site.stop()

        async def back() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._back.wait(), seconds)
            self._site, self.is_down = await self._listening(port), False

        self._coming_back = asyncio.create_task(back())

    def come_back(self) -> None:
        """Come back, if it was down."""
        if self.is_down:
            self._loop.call_soon_threadsafe(self._back.set)
            asyncio.run_coroutine_threadsafe(_wait_for(self._coming_back), self._loop).result(10)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.read())
        except ConnectionResetError:  # the sender has disconnected
            return dropped(request)
        self.headers.append(dict(request.headers))
        if self.is_down:
            return dropped(request)
        return await self.respond(request, body, self.arrived(body))

    def arrived(self, body: dict[str, Any]) -> int:
        """Take note of a request, and return how often it came before."""
        name = json.dumps(body["messages"])
        self.received[name] += 1
        return self.received[name] - 1

    def _answered_to(self, message: str) -> Any:
        """Return the scripted answer; a grader that accepts plain cases is right about all of them."""
        answer = self._answer(message)
        return (plain_verdict(message) or answer) if answer == "A" else answer

    async def respond(self, request: web.Request | None, body: dict[str, Any], sent_before: int) -> web.StreamResponse:
        """Answer a request, or apply the planned fault."""
        message = body["messages"][-1]["content"]
        fault = self._fault(message, sent_before) if self._fault else None
        if isinstance(fault, web.StreamResponse):
            return fault
        if isinstance(fault, float):
            await asyncio.sleep(fault)
        choices = [_choice(self._answered_to(message)) for _ in range(min(body.get("n") or 1, self._max_choices))]
        exchange = Exchange(self, request, body, choices)
        if callable(fault):
            return await fault(exchange)
        return await exchange.respond()

    async def called(
        self, request: web.Request, what: str, handle: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer a call that is not a model request, or apply the planned fault."""
        if self.is_down:
            return dropped(request)
        self.calls[what] += 1
        fault = self._fault(what, self.calls[what] - 1) if self._fault else None
        exchange = Exchange(self, request, {}, [], handle)
        if callable(fault) and not isinstance(fault, web.StreamResponse):
            return await fault(exchange)
        return await exchange.respond()


async def _wait_for(task: asyncio.Task[None]) -> None:
    await task


def dropped(request: web.Request | None) -> web.StreamResponse:
    """Close the connection of a request without a response; within a batch, give no result."""
    if request is not None and request.transport is not None:
        request.transport.abort()
    return web.Response()


def _choice(text: str) -> tuple[str, str]:
    cut = re.fullmatch(r"(.*)\[(length|content_filter)\]", text, re.DOTALL)
    return (cut[1], cut[2]) if cut else (text, "stop")
