"""The embedded models' batch server in a thread of this process, and its requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Middleware

from refusal_index.plugins.almanac.batches import RequestLog
from refusal_index.plugins.almanac.chat_api import ModelPool
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
from refusal_index.plugins.almanac.server import listening
from tests.cli.serving import Server
from tests.faults.almanac import faulty_app
from tests.served import ADDRESS


@contextmanager
def serve_in_thread(app: web.Application) -> Iterator[str]:
    """Serve an application while the block runs, and yield its address."""
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    address: list[str] = []

    async def serve() -> None:
        async with listening(app) as url:
            address.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(30)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextmanager
def almanac(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *middlewares: Middleware, **options: Any
) -> Iterator[Server]:
    """Serve the embedded models and leave the address in the environment."""
    log = folder / "requests.jsonl"
    log.unlink(missing_ok=True)
    app = faulty_app(ModelPool(MODEL_NAMES, model_folder), RequestLog(log), **options)
    app.middlewares.extend(middlewares)
    with serve_in_thread(app) as url:
        monkeypatch.setenv(ADDRESS, url)
        yield Server(url, log)
