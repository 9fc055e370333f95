"""What a store of replies adds up to: nothing counts twice, what is missing is said, and grading anew keeps apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.evaluation.plan import prepare
from refusal_index.evaluation.regrade import prepare_regrade, regrade
from refusal_index.evaluation.results import UnfinishedError, derive
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked, Completion, Pass, Reply
from tests.engines.conftest import make_dataset
from tests.evaluation import models
from tests.evaluation.models import LOCAL, ROWS

RIGHT, REFUSED = "<answer>0</answer>", "<answer>UNANSWERED</answer>"


@pytest.fixture
def folder() -> RunFolder:
    plan = prepare(Settings.of(model="almanac/small", variants="low,high"), dataset=make_dataset(1), out=Path("run"))
    with plan.folder.lock():
        plan.folder.create_or_resume(plan.identity, about=plan.about)
    return plan.folder


def said(of: Pass, text: str, draw: int = 0, variant: str = "low", tokens: int = 10) -> Completion:
    return Completion("q0", "" if of is Pass.FORCED else variant, draw, Reply(of, Asked.MODEL, text), 0, tokens, 1)


@pytest.fixture
def store():
    with ReplyStore(None) as store:
        yield store


(QUESTION,) = make_dataset(1).questions


def test_a_question_whose_further_draws_are_missing_counts_by_its_first_and_is_named(folder, store):
    store.ask("low", {QUESTION: 3})
    store.put([said(Pass.FIRST, RIGHT), said(Pass.FORCED, RIGHT), said(Pass.FIRST, RIGHT, 1)])
    store.fail("low", "q0", "the provider fell over")
    derived = derive(folder, store)
    assert derived.outcomes.select("draw", "refused", "wrong").rows() == [(0, False, False)]
    assert [(one.variant, one.question_id, one.error) for one in derived.missing] == [
        ("low", "q0", "the provider fell over")
    ]


def test_a_question_that_failed_is_unscored_and_neither_refused_nor_wrong(folder, store):
    store.ask("low", {QUESTION: 1})
    with pytest.raises(UnfinishedError, match="run the same command again to resume"):
        derive(folder, store)
    store.fail("low", "q0", "no")
    (row,) = derive(folder, store).outcomes.rows(named=True)
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (None, None, "request_failed")


def test_a_forced_answer_that_variants_share_counts_for_the_first_of_them(folder, store):
    for variant in ("low", "high"):
        store.ask(variant, {QUESTION: 1})
        store.put([said(Pass.FIRST, REFUSED, variant=variant)])
    store.put([said(Pass.FORCED, RIGHT, tokens=1000)])
    usage = derive(folder, store).usage
    assert [(usage[name].requests, usage[name].input_tokens) for name in ("low", "high")] == [(2, 1010), (1, 10)]


def test_variants_stand_in_the_order_of_their_prompt_set_whenever_they_were_asked(folder, store):
    for variant in ("high", "low"):
        store.ask(variant, {QUESTION: 1})
        store.put([said(Pass.FIRST, RIGHT, variant=variant)])
    assert derive(folder, store).outcomes["variant"].to_list() == ["low", "high"]


def test_asked_for_less_often_than_before_a_question_is_still_drawn_as_often(store):
    plan = prepare(Settings.of(model="almanac/small", variants="low"), dataset=make_dataset(2), out=Path("run"))
    store.ask("low", {QUESTION: 3})
    assert [talk.draws for talk in plan.conversations("low", store)] == [3, 1]


def regraded(run: ri.Run, grader: str) -> ri.Run:
    settings = Settings.of(grader=grader, engine="local")
    return asyncio.run(regrade(prepare_regrade(run.path, settings, out=Path("regraded"))))


def test_graded_anew_nobody_asks_the_model_and_what_is_a_refusal_now_has_no_forced_answer():
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"variants": "low,high"})
    models.ASKED.clear()
    anew = regraded(run, "python:tests.evaluation.models:judge_in_words")
    assert not models.ASKED
    for variant in ("low", "high"):
        rows = anew.outcomes.filter(variant=variant)
        refused_now = rows.filter(pl.col("unscored_reason") == "forced_not_asked")
        assert refused_now["question_id"].to_list() == ["q2", "q6"]
        assert refused_now["forced_reply"].null_count() == 2
        assert refused_now["refused"].to_list() == [True, True]
    assert anew.changes is not None
    assert anew.document["regrading"]["from"] == run.document["grader"]


def test_that_another_variant_was_forced_says_nothing_of_one_that_answered():
    def sometimes(messages: list[dict[str, str]]) -> str:
        """Refuse under the last variant alone, answer with nothing otherwise."""
        if "leaving the question open is not allowed" in messages[-1]["content"]:
            return "<answer>forced</answer>"
        return REFUSED if "Be very cautious" in messages[-1]["content"] else "<answer>none</answer>"

    run = ri.evaluate(sometimes, ROWS[:2], model_name="sometimes", **LOCAL | {"variants": "low,highest"})
    assert run.outcomes.filter(variant="low")["forced_reply"].null_count() == 2
    anew = regraded(run, "python:tests.evaluation.models:judge_in_words").outcomes
    low, highest = anew.filter(variant="low"), anew.filter(variant="highest")
    assert low["unscored_reason"].to_list() == ["forced_not_asked"] * 2
    assert low["forced_reply"].null_count() == 2
    assert highest["forced_reply"].to_list() == ["<answer>forced</answer>"] * 2
