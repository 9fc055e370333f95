"""The gradings that scores take, before and after their requests are sent to a local server."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.datasets import Dataset
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import Price, Prices
from refusal_index.plugins.confidence.commands import _pending
from refusal_index.plugins.confidence.plan import pending
from refusal_index.plugins.confidence.scores import measure, prepare_confidence
from refusal_index.render.format import to_text
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Settings
from tests.models.fake_api import FakeApi, is_grading, plain_verdict
from tests.served import ADDRESS, at

COUNT = 6


def answered(message: str) -> str:
    """Answer each question, and grade every answer as right."""
    return "A" if is_grading(message) else "<answer>some answer</answer>"


@pytest.fixture
def run(tmp_path, monkeypatch):
    questions = tuple(Question(f"q{number}", f"What is {number} plus {number}?", "x") for number in range(COUNT))
    dataset = Dataset("sums", questions, "0" * 64, "made by a test", "exact", "none")
    settings = {"model": "any", "grader": "judge", "variants": "low"}
    with FakeApi(answered) as api:
        monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
        monkeypatch.setenv(ADDRESS, api.url)
        plan = prepare(Settings.from_values(**settings, **at(graded=True)), dataset=dataset, out=tmp_path / "run")
        asyncio.run(execute(plan))
        yield api, tmp_path / "run"


def test_the_missing_address_is_named_before_the_number_of_requests(run):
    _, folder = run
    ended = CliRunner().invoke(app, ["confidence", str(folder), "--method", "verbalised-number,verbalised-words"])
    assert ended.exit_code == 2
    assert "name it with --base-url" in ended.output
    assert "--yes" not in ended.output


def test_end_to_end_gradings_of_scores_are_counted_and_priced(run):
    api, folder = run
    plan = prepare_confidence(folder, ["verbalised-number-after"], Settings.from_values(**at(graded=True)))
    requests = pending(plan)
    grading = sum(request.grading.requests.expected for request in requests)
    tokens_of_model = sum(request.input_tokens for request in requests)
    only_graders = Prices(Price(0, 0), Price(1_000_000, 0))
    shown = to_text(_pending(requests, only_graders))
    cost = sum(request.grading.input_tokens.expected for request in requests)
    assert tokens_of_model > 0
    assert f"about ${cost:,.2f}" in shown
    assert "without graders" not in shown
    assert "without graders" in to_text(_pending(requests, Prices(Price(1, 1))))
    before = len(api.answered)
    asyncio.run(measure(plan))
    sent = [message for message in api.messages()[before:] if is_grading(message) and plain_verdict(message) is None]
    assert len(sent) == grading == COUNT, "of the forced answers, which the first pass did not need"
