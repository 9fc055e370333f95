"""One run by each client: the embedded model in this process, through Inspect, and over HTTP; row for row the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from inspect_ai.model import get_model

import refusal_index as ri
from refusal_index.plugins.almanac.batches import RequestLog
from refusal_index.plugins.almanac.chat_api import ModelPool
from refusal_index.plugins.almanac.models import model_folder, model_names
from refusal_index.plugins.almanac.server import create_app
from tests.models.batches.batch_server import in_a_thread
from tests.runs.test_two_engines import completions

SERVED = "openai-api/almanac/base"
SMALL = {"limit": 12, "variants": "low,high", "draws": 2}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with in_a_thread(create_app(ModelPool(model_names(), model_folder), RequestLog(None))) as url:
        yield url


@pytest.fixture
def served(address, monkeypatch, tmp_path) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALMANAC_BASE_URL", address)
    return address


@pytest.mark.slow
def test_the_same_table_and_the_same_requests_row_for_row(served):
    models = {"embedded": "almanac/base", "provided": get_model("almanac/base", memoize=False), "served": SERVED}
    embedded, provided, over_http = (ri.evaluate(model, out=out, **SMALL) for out, model in models.items())
    assert embedded.outcomes.height == 12 * 2 * 2
    assert embedded.outcomes.equals(provided.outcomes)
    assert embedded.outcomes.drop("model").equals(over_http.outcomes.drop("model"))
    assert completions(embedded) == completions(provided) == completions(over_http)
    assert [one.metrics for one in embedded.summary.variants] == [one.metrics for one in over_http.summary.variants]


@pytest.mark.slow
def test_what_one_began_the_other_finishes(tmp_path, monkeypatch):
    """The name of the folder and all that it holds are the same, whoever asks."""
    monkeypatch.chdir(tmp_path)
    begun = ri.evaluate(get_model("almanac/base", memoize=False), out="run", **SMALL | {"variants": "low"})
    finished = ri.evaluate("almanac/base", out="run", **SMALL)
    whole = ri.evaluate("almanac/base", out="whole", **SMALL)
    assert finished.outcomes.equals(whole.outcomes)
    kept = {place: one for place, one in completions(finished).items() if place in completions(begun)}
    assert kept == completions(begun), "nothing is asked again"


@pytest.mark.nightly
def test_the_default_run_is_the_same_row_for_row(served):
    embedded, over_http = ri.evaluate(out="embedded"), ri.evaluate(SERVED, "almanac", limit=1000, out="http")
    assert embedded.outcomes.drop("model").equals(over_http.outcomes.drop("model"))
