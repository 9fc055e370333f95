"""A real server with OpenAI's batch API, in a thread, and what its log says of what was paid for."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.almanac.server import ModelPool, RequestLog, listening
from tests.faults.almanac import NO_FAULTS, BatchFaults, faulty_app


@contextmanager
def batch_server(
    log: Path,
    name: str = "base",
    *,
    pool: ModelPool | None = None,
    faults: BatchFaults = NO_FAULTS,
    middleware: Any = None,
) -> Iterator[str]:
    """Serve the default embedded model by a name, or a pool of others, and yield the base URL."""
    urls: list[str] = []
    up, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        models = pool or ModelPool([name], lambda _name: model_folder("base"))
        served = faulty_app(models, RequestLog(log), faults=faults)
        served.middlewares.extend(filter(None, [middleware]))
        async with listening(served) as url:
            urls.append(url)
            up.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert up.wait(60)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


def answered(log: Path) -> int:
    """Return how many requests of batches were answered."""
    return sum("custom_id" in entry and entry["status"] == 200 for entry in _entries(log))


def submitted(log: Path) -> int:
    """Return how many batches were submitted."""
    return sum((entry["method"], entry["path"]) == ("POST", "/v1/batches") for entry in _entries(log))


def _entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
