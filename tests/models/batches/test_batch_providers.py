"""Runs with Anthropic's message batches: a local stand-in and the official client."""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches import engine, providers
from refusal_index.plugins.batches.journal import Journal
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.events import Underway
from tests.faults.world import answer, write_questions
from tests.models.batches.anthropic_api import AnthropicApi
from tests.models.batches.batch_server import serve_in_thread

CLAUDE = "anthropic/claude-any"
BATCH = {"engine": "batch", "engine_option": ("poll=0.01",), "out": "run", "max_retries": 8, "grader": "exact"}


@pytest.fixture(autouse=True)
def _quickly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(providers, "SETTLED", 0.05)


def evaluate(model=CLAUDE, **changes):
    notes = []
    changes = {**BATCH, **changes}
    run = ri.evaluate(
        model, progress=lambda one: notes.append(one.note) if isinstance(one, Underway) else None, **changes
    )
    return run, notes


def outcomes(run):
    return run.outcomes.drop("model", "grader", strict=False)


def journal():
    return [json.loads(line) for line in Path("run/batches.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Not caught anywhere, like a kill."""


def scripted_reply(messages):
    return answer("\n\n".join(message["content"] for message in messages))


@pytest.fixture
def sums(tmp_path):
    write_questions(tmp_path / "sums.csv", 24)
    return {"data": tmp_path / "sums.csv", "variants": "low,high", "draws": 1, "limit": None}


@pytest.fixture
def claude(monkeypatch):
    def serve(api):
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
        server = serve_in_thread(api.app())
        url = server.__enter__()
        running.append(server)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url.removesuffix("/v1"))
        return api

    running = []
    yield serve
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def direct_outcomes(sums):
    """The outcomes of the same answers in this process."""
    return outcomes(ri.evaluate(scripted_reply, out="local", grader="exact", **sums))


def by_chance(name, earlier):
    drawn = int(hashlib.sha256(f"{name} {earlier}".encode()).hexdigest(), 16) % 10
    return {0: "errored", 1: "expired", 2: "canceled"}.get(drawn, "succeeded")


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [lambda *_: "succeeded", by_chance])
def test_anthropics_batches_give_the_same_table(claude, sums, direct_outcomes, outcome):
    api = claude(AnthropicApi(outcome=outcome))
    run, notes = evaluate(**sums)
    assert outcomes(run).equals(direct_outcomes)
    assert "1 batch at anthropic: 1 in progress; 0 of 48 done" in notes
    if outcome is not by_chance:
        assert len(api.asked) == len(set(api.asked))


@pytest.mark.slow
def test_each_role_has_separate_batches(claude, sums, direct_outcomes):
    api = claude(AnthropicApi())
    run, _ = evaluate(**{**sums, "grader": "anthropic/judge"})
    assert (
        outcomes(run)
        .select("question_id", "refused", "wrong")
        .equals(direct_outcomes.select("question_id", "refused", "wrong"))
    )
    assert [len({request["params"]["model"] for request in batch.requests}) for batch in api.batches] == [1] * len(
        api.batches
    )
    assert {batch.requests[0]["params"]["model"] for batch in api.batches} == {"claude-any", "judge"}


@pytest.mark.slow
def test_lost_anthropic_batch_is_found_by_time_and_size(claude, sums, direct_outcomes):
    api = claude(AnthropicApi(answer_lost=1))
    run, _ = evaluate(**sums)
    assert outcomes(run).equals(direct_outcomes)
    assert (len(api.batches), len(api.asked)) == (2, len(set(api.asked)))


@pytest.mark.slow
def test_foreign_batch_of_the_same_size_is_rejected_by_its_results(claude, sums, direct_outcomes, monkeypatch):
    api = claude(AnthropicApi(looks=1))
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "submitted", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            evaluate(**sums)
    (own,) = api.batches
    stranger = [{**one, "custom_id": f"other-{number}"} for number, one in enumerate(own.requests)]
    own.id = "msgbatch_own"
    api.batches.insert(0, type(own)("msgbatch_other", stranger, own.created, 1, own.host))
    own.created += timedelta(hours=30)  # its clock is ahead
    run, _ = evaluate(**sums)
    assert outcomes(run).equals(direct_outcomes)
    assert len(api.batches) == 3, "the foreign one, the first passes and the forced passes"
    assert "not_it" in [one["event"] for one in journal()]


@pytest.mark.slow
def test_lost_submission_is_not_repeated_while_an_unknown_batch_is_listed(claude, sums, direct_outcomes, monkeypatch):
    api = claude(AnthropicApi(looks=1))
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "submitted", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            evaluate(**sums)
    (other,) = api.batches
    other.requests.pop()
    with pytest.raises(
        ModelError, match=r"does not show whether it is \(it lists .* such as msgbatch_0000\).*forget=ri-"
    ):
        evaluate(**sums)
    assert len(api.batches) == 1
    other.created -= timedelta(days=4)
    run, _ = evaluate(**sums)
    assert outcomes(run).equals(direct_outcomes)
    assert len(api.batches) == 3


@pytest.mark.slow
def test_anthropic_results_of_another_batch_are_not_paid_for_twice(claude, sums, monkeypatch):
    def foreign(self, one, *, canceled, result=AnthropicApi.result):
        return {**result(self, one, canceled=canceled), "custom_id": "other"}

    monkeypatch.setattr(AnthropicApi, "result", foreign)
    api = claude(AnthropicApi(looks=1, outcome=lambda *_: "succeeded"))
    for _ in range(2):
        with pytest.raises(RunFailedError, match=r"48 of 48 results of msgbatch_0000 are not available .*forget=ri-"):
            evaluate(**sums)
    assert len(api.batches) == 1


@pytest.mark.slow
def test_rejected_anthropic_batch_ends_the_run_at_once(claude, sums):
    api = claude(AnthropicApi(refusal=(400, "your credit balance is too low")))
    with pytest.raises(RunFailedError, match=r"a batch was refused .*credit balance is too low.*add credit"):
        evaluate(**sums)
    assert not api.batches
    assert [one["event"] for one in journal()] == ["begun", "given_up"]


def test_missing_client_package_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ModelError, match=r"package anthropic .*pip install 'refusal-index\[batch\]'"):
        evaluate(limit=2)


def test_missing_key_error_names_the_variable(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelError, match="expected a key in ANTHROPIC_API_KEY, found none"):
        evaluate(limit=2)


@pytest.mark.parametrize("model", ["google/gemini-2.5-flash", "mistral/mistral-large-2411", "grok/grok-4"])
def test_provider_without_batch_support_raises_with_advice(model):
    with pytest.raises(ModelError, match=f"model '{model}': .*leave out engine batch to send requests one at a time"):
        evaluate(model, limit=2)
