"""Questions drawn repeatedly: what is sent, what is kept, and what a later run adds."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from refusal_index.runs.plan import Plan
from tests.models.conftest import both_clients, results, run
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of
from tests.models.test_run import sums

COUNT, REPEATED = 12, 5


def requests(api: FakeApi) -> Counter[str]:
    return Counter("forced" if is_forced(message) else "first" for message in api.messages())


def test_repeated_questions_are_forced_in_every_draw_and_the_others_only_where_refused(plan_for):
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


def test_a_run_is_extended_by_draws_and_pays_only_for_what_is_new(plan_for):
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
    """Replies that differ from choice to choice: refuse every third time, else answer rightly every other time."""

    def __init__(self) -> None:
        self.thrown = 0

    def __call__(self, message: str) -> str:
        self.thrown += 1
        if self.thrown % 3 == 0 and not is_forced(message):
            return "<answer>UNANSWERED</answer>"
        return sums_rightly(message) if self.thrown % 2 else "<answer>none</answer>"


def sums_rightly(message: str) -> str:
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
def test_draws_are_completed_whatever_number_of_choices_comes_back(plan_for, gives, asked_for):
    with FakeApi(Die(), max_choices=gives) as api:
        outcomes = run(plan_for(api.url, count=3, draws=DRAWS, max_choices=asked_for)).outcomes
    assert outcomes.height == DRAWS * 3
    most = min(gives, asked_for)
    assert len(api.answered) == 3 * 2 * -(-DRAWS // most)
    seeds = [body["seed"] for body in api.answered]
    assert len(set(seeds)) == len(seeds)
    assert all((body.get("n") or 1) <= asked_for for body in api.answered)


def test_a_grader_sees_each_distinct_reply_once(plan_for):
    with FakeApi(lambda m: "A" if is_grading(m) else sums_rightly(m), max_choices=100) as api:
        plan = plan_for(api.url, count=3, draws=DRAWS, grader="openai-api/fake/any")
        outcomes = run(plan).outcomes
        gradings = sum(is_grading(message) for message in api.messages())
    assert outcomes["forced_grade"].to_list() == ["correct"] * 3 * DRAWS
    assert gradings == 1 + 3 * 2, "the check of the grader, and each pass of each question"


def test_draws_killed_on_the_way_are_not_asked_again(plan_for):
    with FakeApi(Die(), max_choices=100) as api:
        plan = plan_for(api.url, count=3, draws=DRAWS)
        first = run(plan)
        sent = len(api.answered)
        assert run(plan).outcomes.equals(first.outcomes)
        assert len(api.answered) == sent


@pytest.mark.nightly
def test_draws_that_are_missing_in_a_row_are_asked_for_together(plan_for):
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
