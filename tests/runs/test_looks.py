"""Runs in looks, and further draws."""

from __future__ import annotations

import asyncio
import html
import json
import os
import signal
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.files import locked
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.errors import RunFolderError
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.summary import half_width_of, summarise
from refusal_index.models.settings import SettingError
from refusal_index.plugins.trackers.tracker import read_folder
from refusal_index.render.sentences import sentence
from refusal_index.runs.api import plan_of
from refusal_index.runs.engine import WaitingError
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.events import Event, Finished, ignore_events
from refusal_index.runs.execute import execute_in_looks, sizes_of
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import open_store
from refusal_index.runs.sweep import execute_sweep, prepare_sweep
from tests.runs.models import ASKED, LOCAL, answer, number_in
from tests.tiers import one_fast, others_nightly

# --- Interim looks

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(300)]
SETTINGS = {
    "variants": "normal",
    "grader": "exact",
    "max_retries": 0,
    "temperature": 0.0,
    "model_name": "sums",
}


def reply(number: int, forced: bool) -> str:
    """Answer three numbers of seven wrongly; refuse two of these and one of the others."""
    wrong = number % 7 < 3
    if not forced and number % 7 in (0, 1, 6):
        return "<answer>UNANSWERED</answer>"
    return f"<answer>{'none' if wrong else 2 * number}</answer>"


def sums(messages: list[dict[str, str]]) -> str:
    message = messages[-1]["content"]
    ASKED[message] += 1
    return reply(number_in(message), "leaving the question open is not allowed" in message)


async def interrupted(messages: list[dict[str, str]]) -> str:
    if ASKED.total() == 80:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
    return sums(messages)


def measure(**settings: object) -> ri.RunResults:
    return ri.evaluate(sums, ROWS, **SETTINGS | settings)


def test_run_stops_at_the_first_look_with_a_narrow_interval():
    run = measure(half_width=0.25, looks=6, out="run")
    stop = run.stopped
    assert (stop.asked, stop.planned, stop.look, stop.looks) == (100, 300, 2, 6)
    assert run.is_complete
    assert run.ended is None
    assert run.outcomes["question_id"].n_unique() == 100
    assert half_width_of(run.summary) <= 0.25
    earlier = measure(limit=50, out="earlier")
    assert half_width_of(earlier.summary) > 0.25
    assert f"{half_width_of(run.summary):.3f}" in stop.why


def test_stopped_run_equals_a_run_with_that_limit():
    stopped, small = measure(half_width=0.25, looks=6, out="run"), measure(limit=100, out="small")
    assert stopped.outcomes.sort("question_id").equals(small.outcomes.sort("question_id"))
    assert stopped.summary.variants == small.summary.variants


def test_stop_is_shown_next_to_the_numbers():
    run = measure(half_width=0.25, looks=6, out="run")
    text = sentence(stopped(run.stopped))
    assert (run.stopped.asked, run.stopped.look, stopped(run.stopped).code) == (100, 2, "stopped")
    assert text in str(run).replace("\n", " ")
    assert text in run.folder.report.read_text()
    document = json.loads(run.folder.summary.read_text())
    assert document["complete"] is True
    assert document["stopped"] == run.stopped.to_document()
    assert rebuild(run.path).document["stopped"] == document["stopped"]
    assert ri.open_run(run.path).stopped == run.stopped


@others_nightly("engine", ["direct", "batch"])
def test_stopped_run_continues_with_another_goal_without_repeats(engine):
    first = measure(half_width=0.25, looks=6, out="run", engine=engine)
    assert first.stopped.asked == 100
    again = measure(half_width=0.25, looks=6, out="run", engine=engine)
    assert (again.stopped, again.summary) == (first.stopped, first.summary)
    further = measure(half_width=0.2, looks=3, out="run", engine=engine)
    assert further.stopped.asked == 200
    whole = measure(out="run", engine=engine)
    assert whole.stopped is None
    assert whole.document["stopped"] is None
    assert whole.outcomes.height == 300
    assert set(ASKED.values()) == {1}


def test_request_files_hold_only_the_current_look():
    with pytest.raises(WaitingError, match=r"^50 requests are pending"):
        measure(half_width=0.25, looks=6, out="run", engine="files")


def test_unreached_goal_asks_every_question():
    run = measure(half_width=0.01, out="run")
    assert run.stopped is None
    assert run.outcomes.height == 300
    plain = measure(out="plain")
    assert run.summary == plain.summary
    assert plain.unmet_goal is plain.document["short_of"] is None


@pytest.mark.slow
def test_unreached_goal_is_shown_next_to_the_numbers():
    run = measure(half_width=0.01, out="run")
    half_width = half_width_of(run.summary)
    text = f"Not reached: half-width=0.01; half-width {half_width:.3f} after 300 questions."
    assert run.unmet_goal == text
    assert text in str(run).replace("\n", " ")
    assert text in run.folder.report.read_text()
    assert json.loads(run.folder.summary.read_text())["short_of"] == text
    assert rebuild(run.path).unmet_goal == ri.open_run(run.path).unmet_goal == text
    for other in ({"half_width": half_width + 0.001}, {}):
        again = measure(out="run", **other)
        assert (again.unmet_goal, again.document["short_of"]) == (None, None)
        assert "Not reached" not in again.folder.report.read_text()


@pytest.mark.slow
def test_goal_already_met_by_a_full_run_is_reported():
    whole = measure(out="run")
    half_width = half_width_of(whole.summary)
    assert whole.met_goal is None
    run = measure(half_width=half_width + 0.001, out="run")
    text = f"Reached: half-width={half_width + 0.001:g}; half-width {half_width:.3f} after 300 questions."
    assert (run.met_goal, run.unmet_goal, run.stopped) == (text, None, None)
    assert rebuild(run.path).met_goal == ri.open_run(run.path).met_goal == text
    assert text in str(run).replace("\n", " ")
    assert measure(half_width=half_width - 0.001, out="run").met_goal is None
    assert measure(half_width=0.25, looks=6, out="stopped").met_goal is None, "the stop already says so"


def test_goal_is_unmet_if_the_budget_ends_first():
    run = measure(half_width=0.01, out="run", max_requests=100)
    assert run.ended
    asked = run.outcomes["question_id"].n_unique()
    assert run.unmet_goal.endswith(f"after {asked} questions, not all of which have a grade.")
    assert measure(half_width=0.25, looks=6, out="run").unmet_goal is None


def test_each_question_is_reported_finished_once():
    told: list[Event] = []
    measure(half_width=0.01, looks=3, out="run", progress=told.append)
    finished = Counter(one.question_id for one in told if isinstance(one, Finished))
    assert len(finished) == 300
    assert set(finished.values()) == {1}


@pytest.mark.slow
def test_interrupted_look_resumes_where_it_stopped():
    settings = SETTINGS | {"half_width": 0.25, "looks": 6, "max_connections": 1, "out": "run"}
    with pytest.raises(KeyboardInterrupt):
        ri.evaluate(interrupted, ROWS, **settings)
    assert ASKED.total() == 81, "in the second look; the request in flight ends"
    ASKED["go on"] = 1000
    run = ri.evaluate(interrupted, ROWS, **settings)
    assert (run.stopped.asked, run.stopped.look) == (100, 2)
    del ASKED["go on"]
    assert set(ASKED.values()) == {1}
    undisturbed = measure(half_width=0.25, looks=6, out="undisturbed")
    assert run.summary == undisturbed.summary


def test_budget_end_is_reported_and_the_look_finishes_later():
    run = measure(half_width=0.25, looks=6, out="run", max_requests=90)
    assert "90" in run.ended
    assert run.stopped is None
    run = measure(half_width=0.25, looks=6, out="run")
    assert (run.ended, run.stopped.asked) == (None, 100)


def test_stop_is_kept_when_the_budget_is_used_up():
    asked = measure(half_width=0.25, looks=6, out="run").document["variants"][0]["usage"]["requests"]
    again = measure(half_width=0.25, looks=6, out="run", max_requests=asked)
    assert again.stopped.asked == 100


def test_look_without_ri_does_not_stop_the_run():
    def never(messages: list[dict[str, str]]) -> str:
        return "<answer>none</answer>"

    run = ri.evaluate(never, ROWS, half_width=0.9, looks=4, out="run", **SETTINGS)
    assert half_width_of(run.summary) is None
    assert run.stopped is None
    assert run.outcomes.height == 300


def test_stopping_rule_sees_every_look_and_cannot_stop_at_the_last():
    plan, seen = plan_of(sums, ROWS, **SETTINGS, out="run"), []
    run = run_to_completion(
        execute_in_looks(plan, sizes_of(plan, 4), lambda run, asked: seen.append((asked, run.outcomes.height)))
    )
    assert seen == [(75, 75), (150, 150), (225, 225), (300, 300)]
    assert run.outcomes.height == 300
    run = run_to_completion(execute_in_looks(plan, sizes_of(plan, 4), lambda *_: "it is the last"))
    assert run.stopped is None


def test_looks_work_with_repeated_draws():
    settings = SETTINGS | {"temperature": 0.7}
    run = ri.evaluate(sums, ROWS, half_width=0.25, looks=6, draws=2, repeat_questions=60, out="run", **settings)
    drawn = run.outcomes.group_by("question_id").len()["len"].to_list()
    assert run.stopped is not None
    assert Counter(drawn)[2] == min(60, run.stopped.asked)


@pytest.mark.slow
def test_configuration_sets_half_width_per_dataset(tmp_path):
    Path("set.toml").write_text(
        '[defaults]\nhalf_width = 0.3\nlooks = 4\nvariants = "normal"\ntemperature = 0\n'
        '[[models]]\nmodel = "almanac/base"\n[[datasets]]\ndataset = "almanac"\nlimit = 200\n'
    )
    sweep = prepare_sweep("set.toml")

    async def run_sweep() -> list[ri.RunResults]:
        with locked(sweep.path):
            return [one.results async for one in execute_sweep(sweep, lambda *_: nullcontext(ignore_events))]

    (run,) = run_to_completion(run_sweep())
    assert run.stopped.asked < 200


@pytest.mark.parametrize("given", ["half-width=.05", 0, 5, float("nan"), True])
def test_invalid_half_width_raises(given):
    with pytest.raises(SettingError, match=r"half_width: expected a number"):
        Settings.from_values(half_width=given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "expected", "tampered"),
    [
        *(
            ("until", "a half_width above 0 and below 1", value)
            for value in ({"half_width": 5}, {"half_width": "x"}, {"width": 0.1}, "half-width=.05")
        ),
        *(
            ("stopped", "where it stopped", value)
            for value in ({"asked": 1}, {"asked": "1", "planned": 2, "look": 1, "looks": 5, "why": ""}, "yes")
        ),
    ],
)
def test_tampered_goal_or_stop_raises(key, expected, tampered):
    run = measure(half_width=0.25, looks=6, out="run")
    document = json.loads(run.folder.run_json.read_text())
    document["about"][key] = tampered
    run.folder.run_json.write_text(json.dumps(document))
    with pytest.raises(RunFolderError, match=f"about, {key}: expected {expected}, or null, got"):
        rebuild(run.path)


# --- Missing repeated samples

DRAWN_ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(60)]
ONCE_ASKED = 60 + 30  # odd numbers are refused, and asked again


def measure_twice(out: str = "run", **settings: object) -> ri.RunResults:
    return ri.evaluate(answer, DRAWN_ROWS, out=out, **LOCAL | {"max_connections": 1, "draws": 2} | settings)


@one_fast(
    ("settings", "requests"),
    [
        ({"draws": None}, ONCE_ASKED),  # the paper's protocol: each question once, and again if it was refused
        ({"draws": None, "temperature": 0.0}, ONCE_ASKED),
        ({"draws": 2}, 4 * 60),  # with two samples, every question also gets a forced answer
    ],
)
def test_each_question_and_each_refusal_costs_one_request_by_default(settings, requests):
    (variant,) = measure_twice(**settings).summary.variants
    assert variant.usage.requests == requests
    assert (variant.corrected is None) == (requests == ONCE_ASKED), "a function is not sent the temperature"


def test_only_repeated_questions_are_sampled_twice():
    run = measure_twice(draws=None, repeat_questions=20)
    once = run.outcomes.filter(pl.len().over("question_id") == 1)
    assert once.height == 40
    assert run.summary.variants[0].usage.requests == 4 * 20 + 40 + once["refused"].sum()


def test_thousand_questions_are_also_sampled_once():
    rows = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(1000)]
    drawing = plan_of(answer, rows, out="large", temperature=0.7, **LOCAL).settings.repeats
    assert (drawing.draws, drawing.repeat_questions) == (1, None)


@pytest.fixture
def cut_short() -> ri.RunResults:
    """Return a run with each question sampled once, whose second draws were cut short by a budget."""
    assert measure_twice(draws=1).is_complete
    return measure_twice(max_requests=ONCE_ASKED + 30)


def test_run_missing_further_draws_is_incomplete_everywhere(cut_short):
    (variant,) = cut_short.summary.variants
    assert variant.completeness.unscored == 0
    scored = variant.further_draws.scored
    assert (variant.further_draws.asked, variant.further_draws.reasons) == (60, {"not_finished": 60 - scored})
    assert 0 < scored < 30
    assert (cut_short.is_complete, variant.status) == (False, "incomplete")
    line = f"Incomplete: high {scored} of 60 repeated samples scored; run the same command again to complete it."
    assert line in str(cut_short).replace("\n", " ")
    assert line in html.unescape(cut_short.folder.report.read_text())
    document = json.loads(cut_short.folder.summary.read_text())
    assert (document["complete"], document["variants"][0]["status"]) == (False, "incomplete")
    assert read_folder(cut_short.path).lacks == f"high, {60 - scored} of 60 repeated samples not scored"
    for again in (rebuild(cut_short.path), ri.open_run(cut_short.path)):
        assert (again.is_complete, again.summary.variants[0].further_draws) == (False, variant.further_draws)
    (of_file,) = summarise(read_outcomes(cut_short.folder.outcomes)).variants
    assert (of_file.status, of_file.further_draws) == ("incomplete", variant.further_draws)


@pytest.mark.slow
def test_resumed_further_draws_equal_an_uninterrupted_run(cut_short):
    finished, whole = measure_twice(), measure_twice("whole")
    assert finished.outcomes.equals(whole.outcomes)
    assert finished.summary.variants[0].further_draws == whole.summary.variants[0].further_draws
    assert finished.is_complete
    assert finished.summary.variants[0].further_draws.unscored == 0


@pytest.mark.parametrize("settings", [{"limit": 30}, {"repeat_questions": 20}, {"limit": 30, "repeat_questions": 20}])
def test_further_draws_are_counted_within_the_sample(settings):
    run = measure_twice(**settings)
    assert run.is_complete
    assert run.summary.variants[0].further_draws.asked == settings.get("repeat_questions", 30)


def test_run_stopped_at_its_goal_needs_only_draws_of_its_questions():
    run = measure_twice(half_width=0.99, looks=3)
    asked = run.stopped.asked
    assert asked < 60
    assert run.is_complete
    further = run.summary.variants[0].further_draws
    assert (further.asked, further.unscored) == (asked, 0)


def test_gate_counts_missing_further_draws_of_a_killed_run():
    run = measure_twice(draws=1)
    with open_store(run.folder) as store:
        store.require("high", dict.fromkeys(store.questions().values(), 2))
    policy = {"at_least": {"correct_rate": 0.01}}
    assert ri.gate(run.path, policy=policy).missing == {"candidate": 1.0}
    rebuild(run.path)
    assert ri.open_run(run.path).outcomes.height == 120
    assert ri.gate(run.path, policy=policy).missing == {"candidate": 1.0}


@pytest.mark.slow
def test_scores_of_partial_draws_are_removed_when_draws_complete(cut_short):
    ri.confidence_scores(cut_short, ["p-answering"], model=answer)
    assert measure_twice().outdated == ("p-answering",)


def test_requested_but_missing_draws_do_not_count_as_several_samples():
    run = measure_twice(draws=1)
    with open_store(run.folder) as store:
        store.require("high", dict.fromkeys(store.questions().values(), 2))
    assert rebuild(run.path).outcomes.filter(pl.col("draw") > 0).height == 60
    with pytest.raises(ri.RefusalIndexError, match="p-answering: needs several samples"):
        ri.confidence_scores(run.path, ["p-answering"])
