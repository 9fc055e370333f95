"""An HTTP server for the embedded models: the OpenAI chat, files and batches API."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.almanac.batch_lines import (
    Answer,
    ModelPool,
    ask,
    error_answer,
    new_identity,
    refusal,
    reply_body,
)
from refusal_index.plugins.almanac.batches import (
    MAX_FILE_SIZE,
    MAX_KEPT,
    Batch,
    Batches,
    FileStore,
    RequestLog,
    StoredFile,
    begin_fields,
    noted,
    parse_batch_request,
)
from refusal_index.plugins.almanac.chat_api import (
    ChatRequest,
    Form,
    Json,
    chunk_bodies,
    read_form,
    read_json,
    too_large,
)
from refusal_index.plugins.almanac.errors import RequestError
from refusal_index.plugins.almanac.llama import Completion
from refusal_index.plugins.almanac.models import model_folder, model_names

Listed = TypeVar("Listed", StoredFile, Batch)

_MOST_LISTED, _LISTED = 100, 20


class BatchApi:
    """The handlers.

    Parameters
    ----------
    files
        What was brought and made.
    batches
        What is under way.
    """

    def __init__(self, files: FileStore, batches: Batches) -> None:
        self._files, self._batches, self._uploading = files, batches, asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return where each handler is."""
        return [
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

    async def upload(self, request: web.Request) -> web.Response:
        """Take a file."""
        async with read_form(request, MAX_FILE_SIZE) as form, self._uploading:
            given = _given_file(form)
            size = given.file.seek(0, os.SEEK_END)
            if size > MAX_FILE_SIZE:
                raise too_large(MAX_FILE_SIZE)
            if size + sum(one.size for one in self._files) > MAX_KEPT:
                message = f"the server keeps at most {MAX_KEPT:,} bytes of files; delete some first"
                raise RequestError(message, param="file", status=413)
            given.file.seek(0)
            path = self._files.new_path()
            with path.open("xb") as file:
                await asyncio.to_thread(shutil.copyfileobj, given.file, file)
            return web.json_response(self._files.add(path, given.filename, "batch").document())

    async def list_files(self, request: web.Request) -> web.Response:
        """List the files, the newest first."""
        purpose = request.query.get("purpose")
        return _page(request, [one for one in self._files if purpose in (None, one.purpose)], most=10_000)

    async def file(self, request: web.Request) -> web.Response:
        """Tell of a file."""
        return web.json_response(self._files.get(request.match_info["id"]).document())

    async def content(self, request: web.Request) -> web.FileResponse:
        """Give what is in a file."""
        path = self._files.get(request.match_info["id"]).path
        return web.FileResponse(path, headers={"Content-Type": "application/jsonl"})

    async def delete(self, request: web.Request) -> web.Response:
        """Forget a file."""
        identity = request.match_info["id"]
        self._files.delete(identity)
        return web.json_response({"id": identity, "object": "file", "deleted": True})

    async def start(self, request: web.Request) -> web.Response:
        """Begin a batch."""
        batch = self._batches.start(parse_batch_request(await read_json(request)))
        noted().update(batch=batch.id)
        return web.json_response(batch.document())

    async def list_batches(self, request: web.Request) -> web.Response:
        """List the batches, the newest first."""
        return _page(request, list(self._batches))

    async def batch(self, request: web.Request) -> web.Response:
        """Tell of a batch."""
        return web.json_response(self._batches.get(request.match_info["id"]).document())

    async def cancel(self, request: web.Request) -> web.Response:
        """Let a batch end early."""
        return web.json_response(self._batches.cancel(request.match_info["id"]).document())


def _given_file(form: Form) -> web.FileField:
    purpose, file = form.get("purpose"), form.get("file")
    if purpose != "batch":
        raise RequestError("'purpose' must be 'batch'", param="purpose")
    if not isinstance(file, web.FileField):
        raise RequestError("'file' must be a file", param="file")
    others = sorted(form.keys() - {"purpose", "file"})
    if others:
        told = f"'{others[0]}' is not supported by this server"
        raise RequestError(told, param=others[0], code="unsupported_parameter")
    return file


def _page(request: web.Request, oldest_first: Sequence[Listed], most: int = _MOST_LISTED) -> web.Response:
    """Return a part of a list, the newest first, after the id that the request names."""
    newest_first = oldest_first[::-1]
    after = request.query.get("after")
    start = 0
    if after is not None:
        start = next((place for place, one in enumerate(newest_first, start=1) if one.id == after), -1)
        if start < 0:
            raise RequestError(f"'after' must be the id of one of the list, found '{after}'", param="after")
    limit = _limit(request, most)
    shown = [one.document() for one in newest_first[start : start + limit]]
    return web.json_response(_list(shown, has_more=start + limit < len(newest_first)))


def _list(shown: Sequence[Json], *, has_more: bool) -> Json:
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return {"object": "list", "data": shown, **ends, "has_more": has_more}


def _limit(request: web.Request, most: int) -> int:
    given = request.query.get("limit", str(_LISTED if most == _MOST_LISTED else most))
    if not (given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= most):
        raise RequestError(f"'limit' must be a whole number from 1 to {most}, found '{given}'", param="limit")
    return int(given)


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
    middlewares = [_logging_to(log), _shape_errors, _own_pages_only, *([] if any_host else [_own_host_only])]
    app = web.Application(middlewares=middlewares)
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


@web.middleware
async def _own_pages_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a page of another origin sends: a browser says so in these headers, other clients send neither."""
    site, origin = request.headers.get("Sec-Fetch-Site", "none"), request.headers.get("Origin")
    if site not in ("none", "same-origin") or (origin is not None and origin.partition("://")[2] != request.host):
        raise web.HTTPForbidden(reason="the Origin or Sec-Fetch-Site header names another site")
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
