"""`--retry`: what is unscored though every reply came is asked again, by reason, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from refusal_index.models.settings import SettingError
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan, open_store
from refusal_index.runs.writing import Run, open_run
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of
from tests.models.test_run import sums

GRADED = {"grader": "openai-api/fake/judge"}


def run(plan: Plan) -> Run:
    return asyncio.run(execute(plan))


def number_of(message: str) -> int:
    return int(question_of(message).split()[2])


def faulty(message: str) -> str:
    """Say nothing to question 1, be cut at 2, be filtered in the forced pass of 3, else as usual."""
    if is_grading(message):
        return "A"
    if is_forced(message):
        return "[content_filter]" if number_of(message) == 3 else sums(message)
    if number_of(message) == 3:
        return "<answer>UNANSWERED</answer>"
    return {1: "", 2: "It is[length]"}.get(number_of(message), sums(message))


def reasons(run: Run) -> dict[str, str]:
    unscored = run.outcomes.drop_nulls("unscored_reason")
    return dict(unscored.select("question_id", "unscored_reason").rows())


UNSCORED = {"q1": "first_empty", "q2": "first_truncated", "q3": "forced_content_filter"}


@pytest.mark.parametrize(
    ("retry", "asked", "left"),
    [
        ("", set(), set(UNSCORED)),
        ("first_empty", {"q1"}, {"q2", "q3"}),
        ("first_truncated,forced_content_filter", {"q2", "q3"}, {"q1"}),
        ("unscored", {"q1", "q2", "q3"}, set()),
    ],
)
def test_just_what_is_unscored_for_these_reasons_is_asked_again(plan_for, retry, asked, left):
    with FakeApi(faulty) as api:
        first = run(plan_for(api.url))
        assert reasons(first) == UNSCORED
        api._answer, before = sums, len(api.answered)
        again = run(plan_for(api.url, retry=retry))
        sent = [f"q{number_of(message)}" for message in api.messages()[before:]]
    assert sorted(set(sent)) == sorted(asked)
    assert reasons(again).keys() == left
    others = [name for name in first.outcomes["question_id"] if name not in asked]
    same = first.outcomes.filter(first.outcomes["question_id"].is_in(others))
    assert again.outcomes.filter(again.outcomes["question_id"].is_in(others)).equals(same)


def test_a_dry_run_counts_what_is_asked_again(plan_for):
    with FakeApi(faulty) as api:
        run(plan_for(api.url))
        sent = len(api.answered)
        plan = plan_for(api.url, retry="first_empty")
        found = asyncio.run(estimate_run(plan))
        assert found.pending == ("normal",)
        assert found.found.first.requests.expected == 1
        assert len(api.answered) == sent
    assert reasons(open_run(plan.folder.path)) == UNSCORED


def test_what_was_set_aside_still_counts_as_paid_for_and_the_request_has_a_seed_of_its_own(plan_for):
    with FakeApi(faulty) as api:
        first = run(plan_for(api.url))
        again = run(plan_for(api.url, retry="unscored"))
        seeds = {(str(body["messages"]), body["seed"]) for body in api.answered}
        assert len(seeds) == len(api.answered), "a server that goes by the seed would say the same again"
        (before,), (after,) = (one.summary.variants for one in (first, again))
        assert after.usage.requests == len(api.answered) > before.usage.requests
        third = run(plan_for(api.url))
    assert reasons(again) == UNSCORED, "the replies were no better"
    assert third.outcomes.equals(again.outcomes)
    with open_store(again.folder) as store:
        assert sorted(one.question_id for one in store.retired()) == ["q1", "q2", "q3"]


def test_verdicts_that_cannot_be_read_are_asked_for_again_and_the_answers_are_not(plan_for):
    def answer(message: str) -> str:
        return "hm" if is_grading(message) else sums(message)

    with FakeApi(answer) as api:
        plan = plan_for(api.url, count=3, **GRADED)
        api._answer = lambda message: "A" if "capital of France" in message else answer(message)
        first = run(plan)
        assert set(reasons(first).values()) == {"first_grade_unreadable", "forced_grade_unreadable"}
        api._answer, before = lambda message: "A" if is_grading(message) else sums(message), len(api.answered)
        again = run(plan_for(api.url, count=3, **GRADED, retry="first_grade_unreadable,forced_grade_unreadable"))
        sent = api.messages()[before:]
    assert not reasons(again)
    assert all(map(is_grading, sent))
    assert not any("capital of France" in message for message in sent), "the grader is known to this run"


def test_a_reason_that_is_none_is_told_with_those_that_are(plan_for):
    with pytest.raises(SettingError, match=r"retry.*first_truncated.*did you mean 'first_empty'"):
        plan_for("http://127.0.0.1:9/v1", retry="first_emty")


@pytest.mark.slow
def test_a_check_of_the_grader_that_was_paid_for_is_not_sent_again_though_nothing_was_graded(plan_for):
    with FakeApi(sums, lambda message, _: None if is_grading(message) else web.Response(status=401)) as api:
        plan = plan_for(api.url, count=30, **GRADED)
        api._answer = lambda message: "A" if is_grading(message) else sums(message)
        for _ in range(2):
            with pytest.raises(RunFailedError, match="401"):
                run(plan)
        assert len(api.answered) == 1, "the check"
        api._fault = None
        assert run(plan).is_complete
    assert sum("capital of France" in message for message in api.messages()) == 1


@pytest.mark.parametrize("ended", ["refused", "budget"])
def test_what_was_set_aside_stands_until_another_reply_is_there_and_no_draw_beside_it_is_lost(plan_for, ended):
    def broken(message: str, _: int) -> web.StreamResponse | None:
        return web.json_response({"error": {"message": "no"}}, status=400)

    count = iter(range(1000))
    with FakeApi(lambda message: "" if next(count) == 0 else sums(message)) as api:
        first = run(plan_for(api.url, count=3, draws=3, max_connections=1))
        assert list(reasons(first).values()) == ["first_empty"]
        how = {"max_requests": 1} if ended == "budget" else {}
        api._fault = broken
        again = run(plan_for(api.url, count=3, draws=3, max_connections=1, retry="unscored", **how))
        assert again.outcomes.equals(first.outcomes)
        (before,), (after,) = (one.summary.variants for one in (first, again))
        assert after.usage == before.usage, "paid for once"
        api._fault = None
        last = run(plan_for(api.url, count=3, draws=3, max_connections=1))
    assert not reasons(last)
    assert last.summary.variants[0].usage.requests == len(api.answered)
