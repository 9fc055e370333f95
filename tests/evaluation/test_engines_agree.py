"""One run by each engine: the embedded model in this process, through Inspect, and over HTTP; row for row the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

import refusal_index as ri
from refusal_index.almanac.batch_lines import ModelPool
from refusal_index.almanac.batches import RequestLog
from refusal_index.almanac.models import model_folder, model_names
from refusal_index.almanac.server import create_app, listening
from tests.evaluation.test_two_engines import completions
from tests.tiers import others_nightly

SMALL = {"limit": 12, "variants": "low,high", "draws": 2}


@contextmanager
def embedded_server() -> Iterator[str]:
    """Serve the embedded models in a thread, and give the address."""
    addresses: list[str] = []
    loop, started, stop = asyncio.new_event_loop(), Event(), asyncio.Event()

    async def serve() -> None:
        async with listening(create_app(ModelPool(model_names(), model_folder), RequestLog(None))) as url:
            addresses.append(url)
            started.set()
            await stop.wait()

    thread = Thread(target=run_and_close, args=(loop, serve()))
    thread.start()
    assert started.wait(30)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def run_and_close(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(coroutine)
    loop.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with embedded_server() as url:
        yield url


@pytest.fixture
def served(address, monkeypatch, tmp_path) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALMANAC_BASE_URL", address)
    return address


@pytest.mark.slow
def test_the_same_table_and_the_same_requests_row_for_row(served):
    local, inspect, http = (
        ri.evaluate("almanac/base", engine=engine, out=engine, **SMALL) for engine in ("local", "inspect", "http")
    )
    assert local.outcomes.height == 12 * 2 * 2
    assert local.outcomes.equals(inspect.outcomes)
    assert local.outcomes.equals(http.outcomes)
    assert completions(local) == completions(inspect) == completions(http)
    assert local.summary == http.summary


@pytest.mark.slow
@others_nightly("second", ["local", "inspect", "http"])
def test_what_one_began_the_others_finish(served, second):
    """The name of the folder and all that it holds are the same, whoever asks."""
    begun = ri.evaluate("almanac/base", engine="http", out="run", **SMALL | {"variants": "low"})
    finished = ri.evaluate("almanac/base", engine=second, out="run", **SMALL)
    whole = ri.evaluate("almanac/base", engine="local", out="whole", **SMALL)
    assert finished.outcomes.equals(whole.outcomes)
    kept = {place: one for place, one in completions(finished).items() if place in completions(begun)}
    assert kept == completions(begun), "nothing is asked again"


@pytest.mark.nightly
def test_the_default_run_is_the_same_row_for_row(served):
    local, http = (ri.evaluate(engine=engine, out=engine) for engine in ("local", "http"))
    assert local.outcomes.equals(http.outcomes)
