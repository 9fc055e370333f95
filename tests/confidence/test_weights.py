"""P(IK) of a run over HTTP, from weights on this machine that the user names."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec

import numpy as np
import polars as pl
import pytest

from refusal_index.data.datasets import Dataset
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.findings.confidence_record import read_record
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import runtime
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.confidence import hidden_states
from refusal_index.plugins.confidence.scores import allowed, confidence_scores, evidence_of_run
from refusal_index.plugins.confidence.trained import METHODS
from refusal_index.protocol import Message
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Settings
from tests.models.fake_api import FakeApi, question_of

COUNT = 40
P_IK = next(method for method in METHODS if method.name == "p-ik")


def answered(message: str) -> str:
    """Answer questions about even numbers right, and those about odd ones wrong."""
    number = int(question_of(message).split()[2])
    return f"<answer>{2 * number if number % 2 == 0 else 'none'}</answer>"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run over HTTP, with all forced answers."""
    questions = tuple(
        Question(f"q{number}", f"What is {number} plus {number}?", str(2 * number)) for number in range(COUNT)
    )
    dataset = Dataset("sums", questions, "0" * 64, "made by a test", "exact", "none")
    settings = Settings.from_values(model="openai-api/fake/any", grader="exact", variants="low", draws=2)
    with FakeApi(answered) as api:
        monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        asyncio.run(execute(prepare(settings, dataset=dataset, out=tmp_path / "run")))
    return tmp_path / "run"


def recorded(run) -> str | None:
    (record,) = (record for record in read_record(RunFolder(run).confidence_record) if record.method == "p-ik")
    return record.weights


def test_without_weights_the_method_says_what_to_add(run):
    assert "--weights hf/NAME" in allowed(run, Settings())[P_IK]
    with pytest.raises(SettingError, match="--weights hf/NAME"):
        confidence_scores(run, ["p-ik"], group="none")


def test_end_to_end_states_are_those_of_the_named_weights(run):
    assert allowed(run, Settings(), weights="almanac/small")[P_IK] is None
    table = confidence_scores(run, ["p-ik"], weights="almanac/small", group="none", layer=1)
    scores = table.filter(method="p-ik")
    assert scores.height == COUNT
    assert scores["confidence"].is_between(0, 1).all()
    assert recorded(run) == "almanac/small"
    evidence = evidence_of_run(run, P_IK)
    states = evidence.states(["q3", "q4"])
    prompt = json.loads((run / "run.json").read_text())["about"]["prompt_set"]["forced"]
    from refusal_index.plugins.almanac import runtime

    messages = [
        [Message("user", prompt.replace("{question}", f"What is {number} plus {number}?"))] for number in (3, 4)
    ]
    np.testing.assert_allclose(states, runtime.hidden_states("small", messages), atol=0.02)


def test_named_weights_are_used_again_and_others_replace_them(run):
    confidence_scores(run, ["p-ik"], weights="almanac/small", group="none")
    first = pl.read_parquet(run / "confidence.parquet")
    assert confidence_scores(run, ["p-ik"], group="none").equals(first)
    assert recorded(run) == "almanac/small"
    other = confidence_scores(run, ["p-ik"], weights="almanac/rash", group="none")
    assert recorded(run) == "almanac/rash"
    assert not other["confidence"].equals(first["confidence"])


def test_weights_that_only_the_folder_names_are_not_loaded(run, monkeypatch):
    confidence_scores(run, ["p-ik"], weights="almanac/small", group="none")
    (run / hidden_states.FILE).unlink()
    monkeypatch.setattr(runtime, "hidden_states", lambda *_: pytest.fail("weights were loaded"))
    assert "name the weights again, with --weights almanac/small" in allowed(run, Settings())[P_IK]
    with pytest.raises(SettingError, match="name the weights again"):
        confidence_scores(run, ["p-ik"], group="none")


@pytest.mark.parametrize("weights", ["openai/gpt-4.1", "hf/", "some/folder", "almanac"])
def test_other_models_are_no_weights(run, weights):
    with pytest.raises(SettingError, match="weights: expected weights on this machine or the Hub as hf/NAME"):
        confidence_scores(run, ["p-ik"], weights=weights)


def test_weights_that_no_method_reads_are_an_error(run):
    with pytest.raises(SettingError, match="only the method p-ik reads weights"):
        confidence_scores(run, ["self-consistency"], weights="almanac/small")


def test_run_of_a_local_model_records_no_other_weights(tmp_path):
    settings = Settings.from_values(model="almanac/small", limit=60, variants="low")
    asyncio.run(execute(prepare(settings, out=tmp_path / "own")))
    confidence_scores(tmp_path / "own", ["p-ik"], group="none")
    assert recorded(tmp_path / "own") is None


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, hidden_states.PACKAGES)), reason="needs torch and transformers: refusal-index[transformers]"
)
def test_end_to_end_weights_of_transformers_give_the_states_of_the_embedded_runtime(run):
    confidence_scores(run, ["p-ik"], weights=f"hf/{model_folder('small')}", group="none")
    states = evidence_of_run(run, P_IK).states(["q1"])
    assert recorded(run) == f"hf/{model_folder('small')}"
    confidence_scores(run, ["p-ik"], weights="almanac/small", group="none")
    np.testing.assert_allclose(states, evidence_of_run(run, P_IK).states(["q1"]), atol=0.02)
