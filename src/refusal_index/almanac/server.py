"""The embedded models behind the OpenAI chat, files and batches API, for any client that speaks it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from refusal_index.almanac import ALMANAC
from refusal_index.almanac.answers import Answer, ask, error_answer, new_identity, refusal, reply_body
from refusal_index.almanac.batch_api import BatchApi
from refusal_index.almanac.batches import Batches, FileStore
from refusal_index.almanac.chat_api import ChatRequest, chunk_bodies
from refusal_index.almanac.models import model_folder, model_names
from refusal_index.almanac.pool import ModelPool
from refusal_index.almanac.request_bodies import read_json
from refusal_index.almanac.request_log import RequestLog, begin_fields, noted
from refusal_index.almanac.sequence import Completion

LOOPBACK = "127.0.0.1"

_CLIENT_GONE = 499
_GRACE_SECONDS = 2.0
_WAITING = 1024  # connections that may wait to be taken


class _ChatApi:
    """The handlers of what is answered at once."""

    def __init__(self, pool: ModelPool) -> None:
        self._pool, self._started = pool, int(time.time())

    async def list_models(self, _request: web.Request) -> web.Response:
        """Answer ``GET /v1/models``."""
        models = [
            {"id": f"{ALMANAC}/{name}", "object": "model", "created": self._started, "owned_by": "refusal-index"}
            for name in self._pool.names
        ]
        return web.json_response({"object": "list", "data": models})

    async def chat(self, request: web.Request) -> web.Response:
        """Answer ``POST /v1/chat/completions``."""
        asked, completions = await ask(self._pool, await read_json(request), noted())
        return _response(asked, completions)


def create_app(
    pool: ModelPool,
    log: RequestLog,
    *,
    any_host: bool = False,
) -> web.Application:
    """Return the server as an application; it closes `pool` and `log` when it is cleaned up.

    - `any_host`: whether to answer requests that name another host than this machine. On loopback these come of a page
      in a browser whose own name was made to point here.
    """
    chat, files = _ChatApi(pool), FileStore()
    batches = Batches(pool, files, log)
    app = web.Application(middlewares=[_logging_to(log), _shape_errors, *([] if any_host else [_own_host_only])])
    app.router.add_get("/v1/models", chat.list_models)
    app.router.add_post("/v1/chat/completions", chat.chat)
    app.router.add_routes(BatchApi(files, batches).routes())

    async def close(_app: web.Application) -> None:
        await batches.close()
        for held in (pool, files, log):
            held.close()

    app.on_cleanup.append(close)
    return app


@asynccontextmanager
async def listening(app: web.Application, host: str = LOOPBACK, port: int = 0) -> AsyncIterator[str]:
    """Serve `app` while the context lasts and yield its base URL; port 0 takes any free one."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=_WAITING).start()
        bound_port = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound_port}/v1"
    finally:
        await runner.cleanup()


async def serve(host: str, port: int, log_path: Path | None, announce: Callable[[str], None]) -> None:
    """Serve the embedded models until SIGINT or SIGTERM; `announce` is told the base URL once requests are taken.

    Raises OSError if the address cannot be listened on or the log cannot be written.
    """
    pool, log = ModelPool(model_names(), model_folder), RequestLog(log_path)
    app = create_app(pool, log, any_host=not is_loopback(host))
    stop = asyncio.Event()
    async with listening(app, host, port) as url:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows, where Ctrl-C cancels this coroutine instead
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        announce(url)
        await stop.wait()


def is_loopback(host: str) -> bool:
    """Whether a name or an address can be reached from this machine alone.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "evil.example")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _logging_to(log: RequestLog) -> Middleware:
    @web.middleware
    async def logging(request: web.Request, handler: Handler) -> web.StreamResponse:
        started, status, fields = time.perf_counter(), _CLIENT_GONE, begin_fields()
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            seconds = round(time.perf_counter() - started, 4)
            log.write(method=request.method, path=request.path, status=status, seconds=seconds, **fields)

    return logging


@web.middleware
async def _own_host_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        named = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        named = ""
    if not is_loopback(named):
        raise web.HTTPForbidden(reason="the Host header names another machine")
    return await handler(request)


def _response(asked: ChatRequest, completions: Sequence[Completion]) -> web.Response:
    if not asked.stream:
        return web.json_response(reply_body(asked, completions))
    chunks = chunk_bodies(asked, completions, **new_identity())
    events = [*map(json.dumps, chunks), "[DONE]"]
    return web.Response(text="".join(f"data: {event}\n\n" for event in events), content_type="text/event-stream")


@web.middleware
async def _shape_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    what = f"{request.method} {request.path}"
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _shaped(refusal(error.status, f"{what}: {error.reason}"))
    except Exception as error:
        return _shaped(error_answer(error, what))


def _shaped(answer: Answer) -> web.Response:
    return web.json_response(answer.body, status=answer.status)
