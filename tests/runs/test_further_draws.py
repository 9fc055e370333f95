"""Further draws that were asked for and are missing: whatever tells of a run tells of them until they are there."""

from __future__ import annotations

import html
import json

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.findings.summary import summarise
from refusal_index.plugins.trackers.results import read_folder
from refusal_index.runs.api import plan_of
from refusal_index.runs.plan import open_store
from refusal_index.runs.writing import rebuild
from tests.runs.models import LOCAL, answer
from tests.tiers import one_fast

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(60)]
ONCE_ASKED = 60 + 30  # odd numbers are refused, and asked again


def measure(out: str = "run", **settings: object) -> ri.Run:
    return ri.evaluate(answer, ROWS, out=out, **LOCAL | {"max_connections": 1, "draws": 2} | settings)


@one_fast(
    ("settings", "requests"),
    [
        ({"draws": None}, ONCE_ASKED),  # the paper's protocol: each question once, and again where it was refused
        ({"draws": None, "temperature": 0.0}, ONCE_ASKED),
        ({"draws": 2}, 4 * 60),  # of two samples every question is forced to be answered
    ],
)
def test_requests_are_one_a_question_and_one_a_refusal_unless_more_samples_are_asked_for(settings, requests):
    (variant,) = measure(**settings).summary.variants
    assert variant.usage.requests == requests
    assert (variant.corrected is None) == (requests == ONCE_ASKED and "temperature" not in settings)


def test_some_questions_may_be_asked_twice_and_the_others_once():
    run = measure(draws=None, repeat_questions=20)
    once = run.outcomes.filter(pl.len().over("question_id") == 1)
    assert once.height == 40
    assert run.summary.variants[0].usage.requests == 4 * 20 + 40 + once["refused"].sum()


def test_of_a_thousand_questions_each_is_asked_once_too():
    rows = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(1000)]
    drawing = plan_of(answer, rows, out="large", temperature=0.7, **LOCAL).settings.repeats
    assert (drawing.draws, drawing.repeat_questions) == (1, None)


@pytest.fixture
def ended() -> ri.Run:
    """Return a run whose every question was drawn once, and of which a budget ended the second draws."""
    assert measure(draws=1).is_complete
    return measure(max_requests=ONCE_ASKED + 30)


def test_a_run_that_a_budget_ended_before_its_further_draws_is_incomplete_wherever_it_is_told(ended):
    (variant,) = ended.summary.variants
    assert variant.completeness.unscored == 0
    scored = variant.further_draws.scored
    assert (variant.further_draws.asked, variant.further_draws.reasons) == (60, {"not_finished": 60 - scored})
    assert 0 < scored < 30
    assert (ended.is_complete, variant.status) == (False, "incomplete")
    line = f"Incomplete: high {scored} of 60 repeated samples scored; run the same command again to complete it."
    assert line in str(ended).replace("\n", " ")
    assert line in html.unescape(ended.folder.report.read_text())
    document = json.loads(ended.folder.summary.read_text())
    assert (document["complete"], document["variants"][0]["status"]) == (False, "incomplete")
    assert read_folder(ended.path).lacks == f"high, {60 - scored} of 60 repeated samples not scored"
    for again in (rebuild(ended.path), ri.open_run(ended.path)):
        assert (again.is_complete, again.summary.variants[0].further_draws) == (False, variant.further_draws)
    (of_file,) = summarise(read_outcomes(ended.folder.outcomes)).variants
    assert (of_file.status, of_file.further_draws) == ("incomplete", variant.further_draws)


@pytest.mark.slow
def test_with_its_further_draws_it_is_the_run_that_was_never_ended(ended):
    finished, whole = measure(), measure("whole")
    assert finished.outcomes.equals(whole.outcomes)
    assert finished.summary.variants[0].further_draws == whole.summary.variants[0].further_draws
    assert finished.is_complete
    assert finished.summary.variants[0].further_draws.unscored == 0


@pytest.mark.parametrize("settings", [{"limit": 30}, {"repeat_questions": 20}, {"limit": 30, "repeat_questions": 20}])
def test_of_a_sample_all_further_draws_are_those_that_were_asked_for(settings):
    run = measure(**settings)
    assert run.is_complete
    assert run.summary.variants[0].further_draws.asked == settings.get("repeat_questions", 30)


def test_a_run_that_stopped_at_its_goal_is_complete_with_the_draws_of_its_questions():
    run = measure(half_width=0.99, looks=3)
    asked = run.stopped.asked
    assert asked < 60
    assert run.is_complete
    further = run.summary.variants[0].further_draws
    assert (further.asked, further.unscored) == (asked, 0)


def test_further_draws_of_a_run_that_was_killed_are_missing_to_a_gate_whatever_its_outcomes_hold():
    run = measure(draws=1)
    with open_store(run.folder) as store:
        store.require("high", dict.fromkeys(store.questions().values(), 2))
    policy = {"at_least": {"correct_rate": 0.01}}
    assert ri.gate(run.path, policy=policy).missing == {"candidate": 1.0}
    rebuild(run.path)
    assert ri.open_run(run.path).outcomes.height == 120
    assert ri.gate(run.path, policy=policy).missing == {"candidate": 1.0}


@pytest.mark.slow
def test_scores_of_some_draws_are_taken_out_where_the_others_have_come(ended):
    ri.confidence_scores(ended, ["p-answering"], model=answer)
    assert measure().outdated == ("p-answering",)


def test_draws_that_were_only_asked_for_are_no_several_draws():
    run = measure(draws=1)
    with open_store(run.folder) as store:
        store.require("high", dict.fromkeys(store.questions().values(), 2))
    assert rebuild(run.path).outcomes.filter(pl.col("draw") > 0).height == 60
    with pytest.raises(ri.RefusalIndexError, match="p-answering: needs several samples"):
        ri.confidence_scores(run.path, ["p-answering"])
