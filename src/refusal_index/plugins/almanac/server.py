"""An HTTP server for the embedded models, with the chat, files and batches endpoints of the OpenAI API."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware
from openai.types import Batch, FileObject

from refusal_index.plugins.almanac import ALMANAC, RequestError
from refusal_index.plugins.almanac.batches import (
    MAX_FILE_SIZE,
    MAX_KEPT,
    Batches,
    FileStore,
    RequestLog,
    parse_batch_request,
)
from refusal_index.plugins.almanac.chat_api import (
    JsonResponse,
    ModelPool,
    ask,
    chunk_bodies,
    completion_body,
    error_answer,
    refusal,
)
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder

_notes: ContextVar[dict[str, Any]] = ContextVar("_notes")
"""Fields that the handler of a request adds to its line in the request log."""

CLIENT_GONE = 499
MAX_WAITING = 1024  # length of the queue of connections to accept

PATIENCE = 60.0
"""Seconds within which the body of a chat request must arrive; a file may take ten times as long."""

FORM_MARGIN = 1 << 16  # bytes that a form may hold apart from its file


class Api:
    """The request handlers.

    Parameters
    ----------
    pool
        The models.
    files, batches
        The files and batches of clients.
    """

    def __init__(self, pool: ModelPool, files: FileStore, batches: Batches) -> None:
        self._pool = pool
        self._files = files
        self._batches = batches
        self._started = int(time.time())
        self._uploading = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the handlers."""
        return [
            web.get("/v1/models", self.list_models),
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/files", self.upload),
            web.get("/v1/files", self.list_files),
            web.get("/v1/files/{id}", self.file),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete),
            web.post("/v1/batches", self.start),
            web.get("/v1/batches", self.list_batches),
            web.get("/v1/batches/{id}", self.batch),
            web.post("/v1/batches/{id}/cancel", self.cancel),
        ]

    async def list_models(self, _request: web.Request) -> web.Response:
        """List the models."""
        models = [
            {"id": f"{ALMANAC}/{name}", "object": "model", "created": self._started, "owned_by": "refusal-index"}
            for name in self._pool.names
        ]
        return web.json_response({"object": "list", "data": models})

    async def chat(self, request: web.Request) -> web.Response:
        """Answer a chat request."""
        chat_request, completions = await ask(self._pool, await _read_json(request), _notes.get())
        if not chat_request.stream:
            return web.json_response(completion_body(chat_request, completions))
        events = [*map(json.dumps, chunk_bodies(chat_request, completions)), "[DONE]"]
        text = "".join(f"data: {event}\n\n" for event in events)
        return web.Response(text=text, content_type="text/event-stream")

    async def upload(self, request: web.Request) -> web.Response:
        """Store a file."""
        async with _read_form(request) as form, self._uploading:
            if form.get("purpose") != "batch":
                raise RequestError("'purpose' must be 'batch'", param="purpose")
            uploaded = form.get("file")
            if not isinstance(uploaded, web.FileField):
                raise RequestError("'file' must be a file", param="file")
            if not uploaded.filename.isprintable():
                message = "'file' must have a name without control characters, in UTF-8; rename it"
                raise RequestError(message, param="file")
            for name in sorted({*form} - {"purpose", "file"}):
                message = f"'{name}' is not supported by this server"
                raise RequestError(message, param=name, code="unsupported_parameter")
            size = uploaded.file.seek(0, os.SEEK_END)
            if size > MAX_FILE_SIZE:
                raise _too_large()
            if size + sum(stored.bytes for stored in self._files) > MAX_KEPT:
                message = f"the server keeps at most {MAX_KEPT:,} bytes of files; delete some first"
                raise RequestError(message, param="file", status=413)
            uploaded.file.seek(0)
            identity = self._files.new()
            with self._files.path(identity).open("xb") as file:
                await asyncio.to_thread(shutil.copyfileobj, uploaded.file, file)
            return web.json_response(self._files.add(identity, uploaded.filename, "batch").model_dump())

    async def list_files(self, request: web.Request) -> web.Response:
        """List the files, newest first."""
        purpose = request.query.get("purpose")
        files = [stored for stored in self._files if purpose in (None, stored.purpose)]
        return _page(request, files, max_limit=10_000, default=10_000)

    async def file(self, request: web.Request) -> web.Response:
        """Describe a file."""
        return web.json_response(self._files.get(request.match_info["id"]).model_dump())

    async def content(self, request: web.Request) -> web.FileResponse:
        """Return the content of a file."""
        path = self._files.path(self._files.get(request.match_info["id"]).id)
        return web.FileResponse(path, headers={"Content-Type": "application/jsonl"})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        identity = request.match_info["id"]
        self._files.delete(identity)
        return web.json_response({"id": identity, "object": "file", "deleted": True})

    async def start(self, request: web.Request) -> web.Response:
        """Start a batch."""
        batch = self._batches.start(*parse_batch_request(await _read_json(request)))
        _notes.get().update(batch=batch.id)
        return web.json_response(batch.model_dump())

    async def list_batches(self, request: web.Request) -> web.Response:
        """List the batches, newest first."""
        return _page(request, list(self._batches), max_limit=100, default=20)

    async def batch(self, request: web.Request) -> web.Response:
        """Describe a batch."""
        return web.json_response(self._batches.get(request.match_info["id"]).model_dump())

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a batch."""
        return web.json_response(self._batches.cancel(request.match_info["id"]).model_dump())


async def _read_json(request: web.Request) -> object:
    """Read a JSON body; raise RequestError if it is not valid JSON."""
    async with _within(PATIENCE):
        raw = await request.read()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


@asynccontextmanager
async def _read_form(request: web.Request) -> AsyncIterator[Mapping[str, object]]:
    """Read a form with one file; a large file is spooled to disk until the block ends.

    Raises RequestError if the form is invalid or the file too large.
    """
    limit = MAX_FILE_SIZE + FORM_MARGIN
    if (request.content_length or 0) > limit:  # reject before reading anything
        raise _too_large()
    try:
        async with _within(10 * PATIENCE):
            form = await request.clone(client_max_size=limit).post()
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large() from error
    except HttpProcessingError as error:
        raise RequestError(f"the body is not a valid form: {_reason(error)}") from error
    except ValueError as error:
        raise RequestError(f"the body is not a valid form: {error}") from error
    try:
        yield form
    finally:
        for value in form.values():
            if isinstance(value, web.FileField):
                value.file.close()


def _reason(error: HttpProcessingError) -> str:
    """Return why a request cannot be read, without the excerpt that aiohttp adds on further lines."""
    return error.message.strip().partition("\n")[0].rstrip(":")


def _too_large() -> RequestError:
    return RequestError(f"a file may have at most {MAX_FILE_SIZE:,} bytes; split it", param="file", status=413)


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(reason=f"the body did not arrive within {seconds:g} s") from error


def _page(
    request: web.Request, oldest_first: Sequence[FileObject | Batch], max_limit: int, default: int
) -> web.Response:
    """Return a page of a list, newest first, after the id given in the request."""
    newest_first = oldest_first[::-1]
    start = 0
    after = request.query.get("after")
    if after is not None:
        start = next((index for index, listed in enumerate(newest_first, start=1) if listed.id == after), -1)
        if start < 0:
            raise RequestError(f"'after' must be an id in the list, found '{after}'", param="after")
    limit = request.query.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= max_limit):
        raise RequestError(f"'limit' must be a whole number from 1 to {max_limit}, found '{limit}'", param="limit")
    end = start + int(limit)
    shown = [listed.model_dump() for listed in newest_first[start:end]]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    return web.json_response(
        {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": end < len(newest_first)}
    )


def create_app(pool: ModelPool, log: RequestLog, *, any_host: bool = False) -> web.Application:
    """Create the server as an application; its cleanup closes `log`.

    - `any_host`: whether to accept requests whose Host header names another machine. On loopback, such requests come
      from a page in a browser whose domain was made to resolve to this machine (DNS rebinding).
    """
    files = FileStore()
    batches = Batches(pool, files, log)
    middlewares = [_logging_to(log), _errors_as_json, _own_pages_only, *([] if any_host else [_own_host_only])]
    app = web.Application(middlewares=middlewares)
    app.router.add_routes(Api(pool, files, batches).routes())

    async def close(_app: web.Application) -> None:
        await batches.close()
        files.close()
        log.close()

    app.on_cleanup.append(close)
    return app


@asynccontextmanager
async def listening(app: web.Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve `app` for the duration of the block and yield its base URL; port 0 chooses a free one."""
    log = logging.getLogger("aiohttp.server")
    log.addFilter(_in_one_line)
    runner = web.AppRunner(app, access_log=None, logger=log, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=MAX_WAITING).start()
        bound_port = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound_port}/v1"
    finally:
        await runner.cleanup()


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a request that is not HTTP one line of aiohttp's log instead of a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg = f"rejected a request that is not valid HTTP: {_reason(error)}"
        record.args = ()
        record.exc_info = None
    return True


async def serve(host: str, port: int, log_path: Path | None, announce: Callable[[str], None]) -> None:
    """Serve the embedded models until SIGINT or SIGTERM; call `announce` with the base URL once the server is ready.

    Raises OSError if the server cannot listen on the address or write the log.
    """
    pool = ModelPool(MODEL_NAMES, model_folder)
    log = RequestLog(log_path)
    app = create_app(pool, log, any_host=not is_loopback(host))
    stop = asyncio.Event()
    async with listening(app, host, port) as url:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows, where Ctrl-C cancels this coroutine instead
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        announce(url)
        await stop.wait()


def is_loopback(host: str) -> bool:
    """Whether a host name or address can be reached from this machine only.

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
        started = time.perf_counter()
        status = CLIENT_GONE
        notes = dict[str, Any]()
        _notes.set(notes)
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            seconds = round(time.perf_counter() - started, 4)
            log.write(method=request.method, path=request.path, status=status, seconds=seconds, **notes)

    return logging


@web.middleware
async def _own_host_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        name = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise web.HTTPForbidden(reason="the Host header names another machine")
    return await handler(request)


@web.middleware
async def _own_pages_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject requests from pages of another origin; browsers send these headers, other clients do not."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    origin = request.headers.get("Origin")
    if site not in ("none", "same-origin") or (origin is not None and origin.partition("://")[2] != request.host):
        raise web.HTTPForbidden(reason="the Origin or Sec-Fetch-Site header names another site")
    return await handler(request)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    endpoint = f"{request.method} {request.path}"
    error: JsonResponse
    try:
        return await handler(request)
    except web.HTTPException as raised:
        error = refusal(raised.status, f"{endpoint}: {raised.reason}")
    except Exception as raised:
        error = error_answer(raised, endpoint)
    return web.json_response(error.body, status=error.status)
