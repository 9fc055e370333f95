"""Dry runs against the requests that runs with the same settings send to a scripted server."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from refusal_index.findings.dry_run import Range, RunEstimate
from refusal_index.render.dry_run import dry_run_blocks
from refusal_index.render.format import to_text
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from tests.models.fake_api import FakeApi, is_forced, is_grading, plain_verdict
from tests.models.test_direct import sums

COUNT = 8
"""The scripted model refuses half of so many questions."""
JUDGES = "one,two"
ATTEMPTS = {"grader": "exact", "refusal": "model:one"}


def estimated(plan: Plan) -> RunEstimate:
    return asyncio.run(estimate_run(plan))


def judged(message: str) -> str:
    """Judge plain cases well, call every other answer incorrect, and otherwise answer."""
    if verdict := plain_verdict(message):
        return "B" if verdict == "A" and not is_grading(message) else verdict
    return "B" if is_grading(message) or "<prediction>" in message else sums(message)


def sent(api: FakeApi, before: int = 0) -> Counter[str]:
    """Count the requests by kind; those that test graders are of their own."""

    def kind(message: str) -> str:
        if plain_verdict(message) is not None:
            return "checks"
        return "grading" if "<prediction>" in message else "forced" if is_forced(message) else "first"

    return Counter(map(kind, api.messages()[before:]))


def requests(found: RunEstimate) -> dict[str, Range]:
    return {name: getattr(found.remaining, name).requests for name in ("first", "forced", "grading")}


@pytest.mark.parametrize("answered_only", [False, True], ids=["both passes", "first pass only"])
@pytest.mark.parametrize(
    "repeats",
    [{}, {"draws": 3}, {"draws": 3, "repeat_questions": 2}, {"draws": 5, "max_choices": 2}],
    ids=["once", "all repeated", "some repeated", "two choices"],
)
def test_end_to_end_requests_if_a_rule_grades(plan_for, repeats, answered_only):
    """Exact, except that forced passes of questions asked once, and choices in a response, are not known beforehand."""
    how = {"variants": "low,high", "answered_only": answered_only, "assume_refusal": 0.5, "max_choices": 1, **repeats}
    with FakeApi(sums, max_choices=how["max_choices"]) as api:
        plan = plan_for(api.url, count=COUNT, **how)
        found = estimated(plan)
        asyncio.run(execute(plan))
        counted = sent(api)
        finished = estimated(plan)
    first, forced, grading = requests(found).values()
    assert grading == Range()
    assert first.expected == counted["first"]
    assert first.is_exact == (how["max_choices"] == 1)
    assert forced.least <= counted["forced"] <= forced.most
    if answered_only:
        assert forced == Range.exactly(counted["forced"]) == Range()
    elif "repeat_questions" not in repeats:
        assert forced.expected == counted["forced"], "half of the questions are refused, as assumed"
        assert forced.is_exact == (repeats == {"draws": 3})
    assert (finished.pending, finished.requests, finished.basis) == ((), Range(), ())


@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("answered_only", [False, True], ids=["both passes", "first pass only"])
@pytest.mark.parametrize("graders", [{"grader": "one"}, {"grader": JUDGES}, ATTEMPTS], ids=["one", "two", "attempts"])
def test_end_to_end_requests_lie_in_the_range_of_every_grader(plan_for, graders, answered_only, draws):
    how = {"variants": "low,high", "answered_only": answered_only, "draws": draws, "assume_refusal": 0.5}
    with FakeApi(judged) as api:
        plan = plan_for(api.url, count=COUNT, **how, **graders)
        found = estimated(plan)
        asyncio.run(execute(plan))
        counted = sent(api)
    for kind, load in requests(found).items():
        assert load.least <= counted[kind] <= load.most, kind
    assert found.checks == counted["checks"] == 3 * len(plan.graders)
    if draws == 1 and graders is not ATTEMPTS:  # the scripted replies are tagged, and equal in every draw
        assert {kind: load.expected for kind, load in requests(found).items()} == {
            kind: counted[kind] for kind in requests(found)
        }


@pytest.mark.parametrize("answered_only", [False, True], ids=["both passes", "first pass only"])
def test_end_to_end_replies_of_a_stopped_run_are_subtracted(plan_for, answered_only):
    how = {"variants": "low", "answered_only": answered_only, "grader": "one"}
    with FakeApi(judged) as api:
        asyncio.run(execute(plan_for(api.url, count=COUNT, **how, max_requests=10, max_connections=1)))
        before = len(api.answered)
        n_stored = len(api.answered) - sent(api)["checks"]
        plan = plan_for(api.url, count=COUNT, **how, assume_refusal=0.5)
        found = estimated(plan)
        assert len(api.answered) == before
        asyncio.run(execute(plan))
        counted = sent(api, before)
    assert found.remaining.stored == n_stored > 0
    assert found.checks == counted["checks"] == 0, "the grader was tested before"
    for kind, load in requests(found).items():
        assert load.least <= counted[kind] <= load.most, kind
    assert found.remaining.first.requests == Range.exactly(counted["first"])


def test_end_to_end_the_text_of_a_first_pass_alone_names_no_forced_pass(plan_for):
    plan = plan_for("http://127.0.0.1:9/v1", count=COUNT, draws=2, temperature=1, answered_only=True)
    said = to_text(dry_run_blocks([estimated(plan)]))
    assert "all of the questions are sampled 2 times." in said
    assert "--assume-refusal" not in said, "no request depends on how many are refused"
    assert "forced once" not in said
    assert "corrected RI" not in said
