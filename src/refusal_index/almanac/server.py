"""The embedded models behind the OpenAI chat API, for any client that speaks it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from refusal_index.almanac.chat_api import (
    ChatRequest,
    chunk_bodies,
    completion_body,
    error_body,
    parse_chat_request,
    usage,
)
from refusal_index.almanac.errors import AlmanacError, ModelNotFoundError, RequestError
from refusal_index.almanac.models import model_folder, model_names
from refusal_index.almanac.runtime import Runtime
from refusal_index.almanac.sequence import Completion


class RequestLog:
    """Appends to the file at `path`; without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def write(self, **fields: Any) -> None:
        """Append a line with the time and `fields`."""
        if self._file:
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._file.write(json.dumps({"time": time, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


PROVIDER = "almanac"
LOOPBACK = "127.0.0.1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_logger = logging.getLogger(__name__)
# What the request that is being answered adds to its line of the log.
_log_fields: ContextVar[dict[str, Any]] = ContextVar("_log_fields")
_CLIENT_GONE = 499
_GRACE_SECONDS = 2.0
_WAITING = 1024  # connections that may wait to be taken

PATIENCE = 60.0
"""Seconds in which the body of a request must come."""


class ModelPool:
    """The models of a server, each loaded when it is first asked for.

    Parameters
    ----------
    names
        What there is.
    folder_of
        Where each is.
    """

    def __init__(self, names: Sequence[str], folder_of: Callable[[str], Path]) -> None:
        self.names = tuple(names)
        self._folder_of = folder_of
        self._runtimes: dict[str, Runtime] = {}

    def runtime(self, model: str) -> Runtime:
        """Return the runtime of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = model.removeprefix(f"{PROVIDER}/")
        if name not in self.names:
            known = ", ".join(f"{PROVIDER}/{each}" for each in self.names)
            raise ModelNotFoundError(f"The model '{model}' does not exist. This server has {known}.")
        if name not in self._runtimes:
            self._runtimes[name] = Runtime(self._folder_of(name))
        return self._runtimes[name]

    def close(self) -> None:
        """End the threads of the models."""
        for runtime in self._runtimes.values():
            runtime.close()


class _Api:
    """The handlers."""

    def __init__(self, pool: ModelPool, log: RequestLog, patience: float) -> None:
        self._pool, self._log, self._started, self._patience = pool, log, int(time.time()), patience

    async def list_models(self, _request: web.Request) -> web.Response:
        """Answer ``GET /v1/models``."""
        models = [
            {"id": f"{PROVIDER}/{name}", "object": "model", "created": self._started, "owned_by": "refusal-index"}
            for name in self._pool.names
        ]
        return web.json_response({"object": "list", "data": models})

    async def chat(self, request: web.Request) -> web.Response:
        """Answer ``POST /v1/chat/completions``."""
        asked = parse_chat_request(_json(await self._body(request)))
        _log_fields.get().update(model=asked.model, n=asked.settings.n, seed=asked.settings.seed)
        runtime = self._pool.runtime(asked.model)
        completions = await runtime.complete(asked.messages, **asdict(asked.settings))
        _log_fields.get().update(usage(completions))
        return _response(asked, completions)

    async def _body(self, request: web.Request) -> bytes:
        """Read what is asked, of a client that sends it in time."""
        try:
            async with asyncio.timeout(self._patience):
                return await request.read()
        except TimeoutError as error:
            message = f"the body did not come within {self._patience:g} s"
            raise web.HTTPRequestTimeout(reason=message) from error

    @web.middleware
    async def log(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Write the request log."""
        started, status, fields = time.perf_counter(), _CLIENT_GONE, dict[str, Any]()
        _log_fields.set(fields)
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            seconds = round(time.perf_counter() - started, 4)
            self._log.write(method=request.method, path=request.path, status=status, seconds=seconds, **fields)

    async def close(self, _app: web.Application) -> None:
        """Free what the server holds."""
        self._pool.close()
        self._log.close()


def create_app(
    pool: ModelPool, log: RequestLog, *, any_host: bool = False, patience: float = PATIENCE
) -> web.Application:
    """Return the server as an application; it closes `pool` and `log` when it is cleaned up.

    - `any_host`: whether to answer requests that name another host than this machine. On loopback these come of a page
      in a browser whose own name was made to point here.
    - `patience`: seconds in which the body of a request must come.
    """
    api = _Api(pool, log, patience)
    app = web.Application(middlewares=[api.log, _shape_errors, *([] if any_host else [_own_host_only])])
    app.router.add_get("/v1/models", api.list_models)
    app.router.add_post("/v1/chat/completions", api.chat)
    app.on_cleanup.append(api.close)
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


@web.middleware
async def _own_host_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        named = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        named = ""
    if not is_loopback(named):
        raise web.HTTPForbidden(reason="the Host header names another machine")
    return await handler(request)


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


def _response(asked: ChatRequest, completions: Sequence[Completion]) -> web.Response:
    identity, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    if not asked.stream:
        return web.json_response(completion_body(asked, completions, identity=identity, created=created))
    chunks = chunk_bodies(asked, completions, identity=identity, created=created)
    events = [*map(json.dumps, chunks), "[DONE]"]
    return web.Response(text="".join(f"data: {event}\n\n" for event in events), content_type="text/event-stream")


@web.middleware
async def _shape_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return _error(400, str(error), param=error.param, code=error.code)
    except ModelNotFoundError as error:
        return _error(404, str(error), param="model", code="model_not_found")
    except web.HTTPException as error:
        return _error(error.status, f"{request.method} {request.path}: {error.reason}")
    except AlmanacError as error:
        return _error(500, str(error))
    except Exception:
        _logger.exception("%s %s failed", request.method, request.path)
        return _error(500, "the server failed to answer; its own output says why")


def _error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> web.Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return web.json_response(error_body(message, kind=kind, param=param, code=code), status=status)
