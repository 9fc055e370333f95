"""Questions drawn repeatedly, and `--retry`."""

from __future__ import annotations

import asyncio
from collections import Counter

import polars as pl
import pytest
from aiohttp import web

from refusal_index.findings.run_results import RunResults, open_run
from refusal_index.models.settings import SettingError
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from refusal_index.runs.store import open_store
from tests.models.conftest import both_clients, results, run
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of
from tests.models.test_direct import sums

# --- Repeated samples

COUNT, REPEATED = 12, 5


def requests(api: FakeApi) -> Counter[str]:
    return Counter("forced" if is_forced(message) else "first" for message in api.messages())


def test_repeated_questions_are_forced_in_every_draw_and_others_if_refused(plan_for):
    with FakeApi(sums) as api:
        outcomes = run(plan_for(api.url, count=COUNT, draws=3, repeat_questions=REPEATED)).outcomes
    repeated = set(outcomes.filter(pl.col("draw") == 2)["question_id"])
    assert len(repeated) == REPEATED
    assert outcomes.height == COUNT + 2 * REPEATED
    for row in outcomes.iter_rows(named=True):
        assert (row["forced_grade"] is not None) == (row["refused"] or row["question_id"] in repeated)
    odd_once = sum(int(f"q{number}" not in repeated) for number in range(1, COUNT, 2))
    assert requests(api) == {"first": COUNT + 2 * REPEATED, "forced": 3 * REPEATED + odd_once}
    seeds = [body["seed"] for body in api.answered]
    assert len(set(seeds)) == len(seeds)


def test_all_questions_are_repeated_unless_told_otherwise(plan_for):
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=COUNT, draws=2))
    assert requests(api) == {"first": 2 * COUNT, "forced": 2 * COUNT}


def test_extending_a_run_by_draws_pays_only_for_new_ones(plan_for):
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=COUNT))
        before = requests(api)
        plan = plan_for(api.url, count=COUNT, draws=2, repeat_questions=REPEATED)
        extended = run(plan)
        assert requests(api)["first"] == before["first"] + REPEATED
        sent = requests(api)
        assert run(plan).outcomes.equals(extended.outcomes)
        assert requests(api) == sent
    with FakeApi(sums) as api:
        at_once = run(plan_for(api.url, count=COUNT, draws=2, repeat_questions=REPEATED, out="whole"))
        assert requests(api) == sent
    assert at_once.outcomes.equals(extended.outcomes)


@pytest.mark.slow
def test_asking_for_fewer_draws_later_loses_none(plan_for):
    with FakeApi(sums) as api:
        many = run(plan_for(api.url, count=COUNT, draws=3, repeat_questions=REPEATED))
        for fewer in ({}, {"draws": 2}, {"draws": 3, "repeat_questions": 2}):
            kept = run(plan_for(api.url, count=COUNT, **fewer)).outcomes
            assert many.outcomes.join(kept, on=["question_id", "draw"], how="anti").is_empty(), fewer


def test_variants_share_the_forced_answers_of_every_draw(plan_for):
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=COUNT, draws=2, variants="low,high"))
    assert requests(api) == {"first": 2 * 2 * COUNT, "forced": 2 * COUNT}


class Die:
    """Replies that vary: refuse every third time, otherwise answer correctly every other time."""

    def __init__(self) -> None:
        self.thrown = 0

    def __call__(self, message: str) -> str:
        self.thrown += 1
        if self.thrown % 3 == 0 and not is_forced(message):
            return "<answer>UNANSWERED</answer>"
        return sums_correctly(message) if self.thrown % 2 else "<answer>none</answer>"


def sums_correctly(message: str) -> str:
    return f"<answer>{2 * int(question_of(message).split()[2])}</answer>"


DRAWS = 10


@both_clients
def test_many_draws_are_choices_of_one_request_and_each_is_a_row(plan_for, model):
    with FakeApi(Die(), max_choices=100) as api:
        derived = run(plan_for(api.url, count=COUNT, draws=DRAWS, model=model))
    assert [body["n"] for body in api.answered] == 2 * COUNT * [DRAWS], "one request a question and pass"
    assert derived.usage["normal"].requests == len(api.answered) == 2 * COUNT
    assert derived.usage["normal"].input_tokens == 100 * len(api.answered)
    assert derived.usage["normal"].output_tokens == 5 * 2 * DRAWS * COUNT
    outcomes = derived.outcomes
    assert outcomes.height == DRAWS * COUNT
    assert outcomes["forced_grade"].null_count() == 0
    assert outcomes["refused"].n_unique() == outcomes["wrong"].n_unique() == 2
    texts = outcomes.filter(pl.col("draw") > 0).group_by("question_id").agg(pl.col("first_reply").n_unique())
    assert texts["first_reply"].max() > 1


@pytest.mark.parametrize(("gives", "asked_for"), [(1, 100), (4, 100), (100, 4)])
def test_draws_are_completed_for_any_number_of_choices_returned(plan_for, gives, asked_for):
    with FakeApi(Die(), max_choices=gives) as api:
        outcomes = run(plan_for(api.url, count=3, draws=DRAWS, max_choices=asked_for)).outcomes
    assert outcomes.height == DRAWS * 3
    most = min(gives, asked_for)
    assert len(api.answered) == 3 * 2 * -(-DRAWS // most)
    seeds = [body["seed"] for body in api.answered]
    assert len(set(seeds)) == len(seeds)
    assert all((body.get("n") or 1) <= asked_for for body in api.answered)


def test_a_grader_sees_each_distinct_reply_once(plan_for):
    with FakeApi(lambda m: "A" if is_grading(m) else sums_correctly(m), max_choices=100) as api:
        plan = plan_for(api.url, count=3, draws=DRAWS, grader="any")
        outcomes = run(plan).outcomes
        gradings = sum(is_grading(message) for message in api.messages())
    assert outcomes["forced_grade"].to_list() == ["correct"] * 3 * DRAWS
    assert gradings == 3 + 3 * 2, "the check of the grader, and each pass of each question"


def test_stored_draws_are_not_requested_again(plan_for):
    with FakeApi(Die(), max_choices=100) as api:
        plan = plan_for(api.url, count=3, draws=DRAWS)
        first = run(plan)
        sent = len(api.answered)
        assert run(plan).outcomes.equals(first.outcomes)
        assert len(api.answered) == sent


@pytest.mark.nightly
def test_consecutive_missing_draws_share_one_request(plan_for):
    with FakeApi(Die(), max_choices=100) as api:
        plan = plan_for(api.url, count=COUNT)
        run(plan)
        for draws, repeat in ((4, REPEATED), (4, None), (DRAWS, None)):
            before = len(api.answered)
            kept = results(plan.folder).outcomes
            now = run(plan_for(api.url, count=COUNT, draws=draws, repeat_questions=repeat)).outcomes
            columns = ["question_id", "draw", "first_reply"]
            assert kept.select(columns).join(now.select(columns), on=columns, how="anti").is_empty()
            asked = [body.get("n") for body in api.answered[before:] if not is_forced(body["messages"][-1]["content"])]
            more = {4: COUNT - REPEATED if repeat is None else REPEATED, DRAWS: COUNT}[draws]
            assert asked == [draws - (1 if draws == 4 else 4)] * more
        low = plan_for(api.url, count=COUNT, draws=DRAWS, variants="low")
        before = len(api.answered)
        run(low)
        new = [body for body in api.answered[before:] if is_forced(body["messages"][-1]["content"])]
        assert new == [], "another variant shares the forced answers of every draw"


def repeated(plan: Plan) -> int:
    return sum(draws > 1 for draws in plan.draws["normal"].values())


@pytest.mark.parametrize(("draws", "repeat", "expected"), [(1, None, 0), (2, None, 12), (2, 5, 5), (2, 12, 12)])
def test_the_plan_says_how_many_questions_are_repeated(plan_for, draws, repeat, expected):
    assert repeated(plan_for("http://127.0.0.1", count=COUNT, draws=draws, repeat_questions=repeat)) == expected


# --- `--retry`

GRADED = {"grader": "judge"}


def execute_plan(plan: Plan) -> RunResults:
    return asyncio.run(execute(plan))


def number_of(message: str) -> int:
    return int(question_of(message).split()[2])


def faulty(message: str) -> str:
    """Reply nothing to question 1, truncate 2, filter the forced pass of 3, and otherwise reply as usual."""
    if is_grading(message):
        return "A"
    if is_forced(message):
        return "[content_filter]" if number_of(message) == 3 else sums(message)
    if number_of(message) == 3:
        return "<answer>UNANSWERED</answer>"
    return {1: "", 2: "It is[length]"}.get(number_of(message), sums(message))


def reasons(run: RunResults) -> dict[str, str]:
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
def test_only_questions_unscored_for_these_reasons_are_asked_again(plan_for, retry, asked, left):
    with FakeApi(faulty) as api:
        first = execute_plan(plan_for(api.url))
        assert reasons(first) == UNSCORED
        api._answer, before = sums, len(api.answered)
        again = execute_plan(plan_for(api.url, retry=retry))
        sent = [f"q{number_of(message)}" for message in api.messages()[before:]]
    assert sorted(set(sent)) == sorted(asked)
    assert reasons(again).keys() == left
    others = [name for name in first.outcomes["question_id"] if name not in asked]
    same = first.outcomes.filter(first.outcomes["question_id"].is_in(others))
    assert again.outcomes.filter(again.outcomes["question_id"].is_in(others)).equals(same)


def test_dry_run_counts_retried_questions(plan_for):
    with FakeApi(faulty) as api:
        execute_plan(plan_for(api.url))
        sent = len(api.answered)
        plan = plan_for(api.url, retry="first_empty")
        found = asyncio.run(estimate_run(plan))
        assert found.pending == ("normal",)
        assert found.remaining.first.requests.expected == 1
        assert len(api.answered) == sent
    assert reasons(open_run(plan.folder.path)) == UNSCORED


def test_retired_replies_count_as_paid_and_retries_use_new_seeds(plan_for):
    with FakeApi(faulty) as api:
        first = execute_plan(plan_for(api.url))
        again = execute_plan(plan_for(api.url, retry="unscored"))
        seeds = {(str(body["messages"]), body["seed"]) for body in api.answered}
        assert len(seeds) == len(api.answered), "a server that honours the seed would repeat its reply"
        (before,), (after,) = (one.summary.variants for one in (first, again))
        assert after.usage.requests == len(api.answered) > before.usage.requests
        third = execute_plan(plan_for(api.url))
    assert reasons(again) == UNSCORED, "the replies were no better"
    assert third.outcomes.equals(again.outcomes)
    with open_store(again.folder) as store:
        assert sorted(one.question_id for one in store.retired()) == ["q1", "q2", "q3"]


def test_unreadable_verdicts_are_requested_again_without_the_answers(plan_for):
    def answer(message: str) -> str:
        return "hm" if is_grading(message) else sums(message)

    with FakeApi(answer) as api:
        plan = plan_for(api.url, count=3, **GRADED)
        api._answer = lambda message: "A" if "capital of France" in message else answer(message)
        first = execute_plan(plan)
        assert set(reasons(first).values()) == {"first_grade_unreadable", "forced_grade_unreadable"}
        api._answer, before = lambda message: "A" if is_grading(message) else sums(message), len(api.answered)
        again = execute_plan(
            plan_for(api.url, count=3, **GRADED, retry="first_grade_unreadable,forced_grade_unreadable")
        )
        sent = api.messages()[before:]
    assert not reasons(again)
    assert all(map(is_grading, sent))
    assert not any("capital of France" in message for message in sent), "this run has already checked the grader"


def test_unknown_retry_reason_error_lists_valid_ones(plan_for):
    with pytest.raises(SettingError, match=r"retry.*first_truncated.*did you mean 'first_empty'"):
        plan_for("http://127.0.0.1:9/v1", retry="first_emty")


@pytest.mark.slow
def test_paid_grader_check_is_not_repeated(plan_for):
    with FakeApi(sums, lambda message, _: None if is_grading(message) else web.Response(status=401)) as api:
        plan = plan_for(api.url, count=30, **GRADED)
        api._answer = lambda message: "A" if is_grading(message) else sums(message)
        for _ in range(2):
            with pytest.raises(RunFailedError, match="401"):
                execute_plan(plan)
        assert len(api.answered) == 3, "the check"
        api._fault = None
        assert execute_plan(plan).is_complete
    assert sum("capital of France" in message for message in api.messages()) == 3


@pytest.mark.parametrize("ended", ["refused", "budget"])
def test_retired_reply_stands_until_replaced_and_other_draws_are_kept(plan_for, ended):
    def broken(message: str, _: int) -> web.StreamResponse | None:
        return web.json_response({"error": {"message": "no"}}, status=400)

    count = iter(range(1000))
    with FakeApi(lambda message: "" if next(count) == 0 else sums(message)) as api:
        first = execute_plan(plan_for(api.url, count=3, draws=3, max_connections=1))
        assert list(reasons(first).values()) == ["first_empty"]
        how = {"max_requests": 1} if ended == "budget" else {}
        api._fault = broken
        again = execute_plan(plan_for(api.url, count=3, draws=3, max_connections=1, retry="unscored", **how))
        assert again.outcomes.equals(first.outcomes)
        (before,), (after,) = (one.summary.variants for one in (first, again))
        assert after.usage == before.usage, "paid for once"
        api._fault = None
        last = execute_plan(plan_for(api.url, count=3, draws=3, max_connections=1))
    assert not reasons(last)
    assert last.summary.variants[0].usage.requests == len(api.answered)
