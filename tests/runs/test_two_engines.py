"""Several clients, the same run."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspect_ai.model import get_model

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.models.requests import model_request
from refusal_index.plugins.almanac.batches import RequestLog
from refusal_index.plugins.almanac.chat_api import ModelPool
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
from refusal_index.plugins.almanac.server import create_app
from refusal_index.protocol import Completion, Pass, Role, next_requests, request_seed
from refusal_index.runs import store
from refusal_index.runs.events import Event, Opened
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import open_store
from tests.models.batches.batch_server import serve_in_thread
from tests.runs import models
from tests.runs.models import ASKED, LOCAL, ROWS, TABLE, cells
from tests.tiers import one_fast

# --- Several clients, one run

SMALL = {"limit": 30, "variants": "low,high"}


def completions(run: ri.RunResults) -> dict[tuple[object, ...], tuple[object, ...]]:
    with open_store(run.folder) as held:
        return {
            (reply.question_id, reply.variant, reply.reply.pass_, reply.draw): (
                reply.reply,
                reply.request_sha256,
                reply.requests,
            )
            for reply in held.replies()
        }


@one_fast("draws", [1, 2])
def test_embedded_model_gives_the_same_table_and_requests_through_inspect(draws):
    embedded, provided = (
        ri.evaluate(model, out=out, draws=draws, **SMALL)
        for out, model in (("embedded", "almanac/small"), ("provided", get_model("almanac/small", memoize=False)))
    )
    assert embedded.outcomes.height == 60 * draws
    assert embedded.outcomes.equals(provided.outcomes)
    assert completions(embedded) == completions(provided)
    assert embedded.summary == provided.summary


def test_answers_before_an_interrupt_are_kept():
    settings = LOCAL | {"variants": "low,high", "out": "run", "max_connections": 1}
    with pytest.raises(KeyboardInterrupt):
        ri.evaluate(models.stopping, ROWS, **settings)
    with open_store(RunFolder(Path("run"))) as held:
        assert len(list(held.replies())) == ASKED.total() == 6, "the one in flight is kept"
        assert not held.failures()
    ASKED["go on"] = 100
    run = ri.evaluate(models.stopping, ROWS, **settings)
    assert cells(run) == TABLE * 2
    assert ASKED.total() == 100 + 8 + 8 + 4, "nothing is asked again"
    told: list[Event] = []
    ri.evaluate(models.stopping, ROWS, progress=told.append, **settings)
    assert not [event for event in told if not isinstance(event, Opened)]


def test_store_keys_do_not_depend_on_the_client():
    """Only the protocol determines a reply's key: later versions of a library find replies of earlier ones."""
    run = ri.evaluate(models.answer, ROWS, out="run", **LOCAL)
    with sqlite3.connect(run.folder.replies) as connection:
        columns = connection.execute("SELECT name FROM pragma_table_info('replies') WHERE pk").fetchall()
        text = " ".join(str(row) for row in connection.execute("SELECT * FROM replies"))
    connection.close()
    assert [name for (name,) in columns] == ["question_id", "variant", "pass", "role", "draw", "attempt"]
    assert "inspect" not in text
    assert "inspect_ai" not in inspect.getsource(store)
    assert not any("inspect" in name for name in Completion.__slots__)


def test_each_request_has_its_own_seed_and_content_hash():
    plan = prepare(Settings.from_values(model="almanac/small", limit=5, variants="low,high", seed=3))
    run = ri.evaluate("almanac/small", limit=5, variants="low,high", seed=3)
    seen = {}
    with open_store(run.folder) as replies:
        for reply in replies.replies():
            assert reply.request_sha256 not in seen, "every request of a run has its own hash"
            seen[reply.request_sha256] = reply
            assert (reply.variant == "") == (reply.reply.pass_ is Pass.FORCED)
            assert reply.reply.role is Role.MODEL
    with store.ReplyStore(None) as empty:
        for variant in ("low", "high"):
            for conversation in plan.conversations(variant, empty):
                (first,) = next_requests(conversation, [])
                ask = model_request(plan.settings, conversation, first)
                assert ask.seed == request_seed(3, conversation.question.question_id, 0, variant, ask.request)
                assert seen[ask.sha256].question_id == conversation.question.question_id


# --- The same run by each client

SERVED = "base"
DRAWN_TWICE = {"limit": 12, "variants": "low,high", "draws": 2}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_in_thread(create_app(ModelPool(MODEL_NAMES, model_folder), RequestLog(None))) as url:
        yield url


@pytest.fixture
def served(address, monkeypatch, tmp_path) -> str:
    monkeypatch.chdir(tmp_path)
    return address


@pytest.mark.slow
def test_engines_give_the_same_table_and_requests(served):
    models = {"embedded": "almanac/base", "provided": get_model("almanac/base", memoize=False), "served": SERVED}
    embedded, provided, over_http = (
        ri.evaluate(model, out=out, base_url=served if model == SERVED else None, **DRAWN_TWICE)
        for out, model in models.items()
    )
    assert embedded.outcomes.height == 12 * 2 * 2
    assert embedded.outcomes.equals(provided.outcomes)
    assert embedded.outcomes.drop("model").equals(over_http.outcomes.drop("model"))
    assert completions(embedded) == completions(provided) == completions(over_http)
    assert [variant.metrics for variant in embedded.summary.variants] == [
        variant.metrics for variant in over_http.summary.variants
    ]


@pytest.mark.slow
def test_one_engine_finishes_a_run_begun_by_another(tmp_path, monkeypatch):
    """The name and contents of the folder are the same with either client."""
    monkeypatch.chdir(tmp_path)
    begun = ri.evaluate(get_model("almanac/base", memoize=False), out="run", **DRAWN_TWICE | {"variants": "low"})
    finished = ri.evaluate("almanac/base", out="run", **DRAWN_TWICE)
    whole = ri.evaluate("almanac/base", out="whole", **DRAWN_TWICE)
    assert finished.outcomes.equals(whole.outcomes)
    kept = {place: one for place, one in completions(finished).items() if place in completions(begun)}
    assert kept == completions(begun), "nothing is asked again"


@pytest.mark.nightly
def test_default_run_is_the_same_over_http(served):
    embedded, over_http = (
        ri.evaluate(out="embedded"),
        (ri.evaluate(SERVED, "almanac", limit=1000, out="http", base_url=served)),
    )
    assert embedded.outcomes.drop("model").equals(over_http.outcomes.drop("model"))
