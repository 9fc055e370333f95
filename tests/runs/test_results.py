"""Outcomes derived from stored replies: nothing counts twice, missing replies are reported, regrading is separate."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.findings.summary import summarise
from refusal_index.protocol import TWO_PASSES, Completion, GraderKind, Pass, Reply, Role, TwoPass
from refusal_index.runs import results, writing
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import prepare
from refusal_index.runs.rebuild import rebuild
from refusal_index.runs.results import UnfinishedError, derive_into, each_conversation
from refusal_index.runs.reuse import NOT_ANSWERED, prepare_regrade
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError, open_store
from refusal_index.runs.writing import write_results
from tests.left_behind import left_behind
from tests.models.conftest import derive, make_dataset
from tests.runs import models
from tests.runs.models import LOCAL, ROWS

RIGHT, REFUSED = "<answer>0</answer>", "<answer>UNANSWERED</answer>"


@pytest.fixture
def folder() -> RunFolder:
    plan = prepare(
        Settings.from_values(model="almanac/small", variants="low,high"), dataset=make_dataset(1), out=Path("run")
    )
    with plan.folder.lock():
        plan.folder.create_or_resume(plan.identity, about=plan.about)
    return plan.folder


def completion(of: Pass, text: str, draw: int = 0, variant: str = "low", tokens: int = 10) -> Completion:
    return Completion("q0", "" if of is Pass.FORCED else variant, draw, Reply(of, Role.MODEL, text), 0, tokens, 1)


@pytest.fixture
def store():
    with ReplyStore(None) as store:
        yield store


(QUESTION,) = make_dataset(1).questions


def test_failed_further_draws_leave_the_first_draw_and_are_reported(folder, store):
    store.require("low", {QUESTION: 3})
    store.put([completion(Pass.FIRST, RIGHT), completion(Pass.FORCED, RIGHT), completion(Pass.FIRST, RIGHT, 1)])
    store.record_failure("low", "q0", "the provider fell over")
    derived = derive(folder, store)
    assert rows_of(derived, "draw", "refused", "wrong", "unscored_reason") == [
        (0, False, False, None),
        (1, None, None, "request_failed"),
        (2, None, None, "request_failed"),
    ]
    assert [(one.variant, one.question_id, one.error) for one in derived.missing] == [
        ("low", "q0", "the provider fell over")
    ]


def test_failed_question_is_unscored(folder, store):
    store.require("low", {QUESTION: 1})
    with pytest.raises(UnfinishedError, match="run the same command again to resume"):
        derive(folder, store)
    store.record_failure("low", "q0", "no")
    (row,) = derive(folder, store).outcomes.rows(named=True)
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (None, None, "request_failed")


def rows_of(derived, *columns: str) -> list[tuple[object, ...]]:
    return derived.outcomes.select(*columns).rows()


def test_run_ended_in_its_second_variant_reports_both(folder, store):
    for variant in ("low", "high"):
        store.require(variant, dict.fromkeys(make_dataset(2).questions, 1))
    store.put([completion(Pass.FIRST, RIGHT), completion(Pass.FIRST, RIGHT, variant="high")])
    store.put([Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, RIGHT))])
    derived = derive(folder, store)
    assert rows_of(derived, "variant", "question_id", "refused", "wrong", "unscored_reason") == [
        ("low", "q0", False, False, None),
        ("low", "q1", False, True, None),
        ("high", "q0", False, False, None),
        ("high", "q1", None, None, "not_finished"),
    ]
    assert [(one.variant, one.question_id) for one in derived.missing] == [("high", "q1")]
    high = summarise(derived.outcomes).variants[1]
    assert (high.variant, high.status, high.completeness.asked) == ("high", "incomplete", 2)


def test_variant_without_answers_is_in_the_table(folder, store):
    for variant in ("low", "high"):
        store.require(variant, {QUESTION: 1})
    store.put([completion(Pass.FIRST, RIGHT)])
    assert rows_of(derive(folder, store), "variant", "unscored_reason") == [("low", None), ("high", "not_finished")]


@pytest.mark.parametrize(("failed", "reason"), [(False, "not_finished"), (True, "request_failed")])
def test_refusal_of_an_unfinished_question_is_known(folder, store, failed, reason):
    store.require("low", {QUESTION: 1})
    store.put([completion(Pass.FIRST, REFUSED)])
    if failed:
        store.record_failure("low", "q0", "no")
    derived = derive(folder, store)
    (row,) = derived.outcomes.rows(named=True)
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, reason)
    assert (row["first_grade"], row["first_reply"], row["forced_reply"]) == ("refused", REFUSED, None)
    assert derived.usage["low"].requests == 1


def test_ungraded_reply_is_kept_with_missing_outcome(store):
    settings = Settings.from_values(model="almanac/small", grader="openai/any", variants="low")
    plan = prepare(settings, dataset=make_dataset(1), out=Path("graded"))
    with plan.folder.lock():
        plan.folder.create_or_resume(plan.identity, about=plan.about)
    store.require("low", {QUESTION: 1})
    store.put([completion(Pass.FIRST, RIGHT)])
    (row,) = derive(plan.folder, store).outcomes.rows(named=True)
    assert (row["refused"], row["wrong"], row["unscored_reason"]) == (None, None, "not_finished")
    assert (row["first_grade"], row["first_reply"]) == ("unscored", RIGHT)


def test_answered_first_draw_counts_before_its_forced_answer_arrives(folder, store):
    store.require("low", {QUESTION: 3})
    store.put([completion(Pass.FIRST, RIGHT, draw) for draw in range(3)])
    derived = derive(folder, store)
    assert rows_of(derived, "draw", "refused", "wrong") == [(0, False, False), (1, None, None), (2, None, None)]
    assert derived.usage["low"].requests == 3, "paid replies count whether they are used yet or not"


def test_complete_draws_count_before_further_ones_arrive(folder, store):
    store.require("low", {QUESTION: 5})
    store.put([completion(of, RIGHT, draw) for draw in range(3) for of in TWO_PASSES])
    derived = derive(folder, store)
    assert rows_of(derived, "draw", "wrong", "unscored_reason") == [
        *((draw, False, None) for draw in range(3)),
        *((draw, None, "not_finished") for draw in (3, 4)),
    ]
    assert [one.error for one in derived.missing] == ["the run ended before all of its repeated samples were finished"]


def test_unanswered_question_is_missing_all_draws(folder, store):
    store.require("low", {QUESTION: 3})
    store.require("high", {QUESTION: 1})
    store.put([completion(Pass.FIRST, RIGHT, variant="high")])
    derived = derive(folder, store)
    low, high = summarise(derived.outcomes).variants
    assert [(one.asked, one.scored) for one in (low.completeness, low.further_draws)] == [(1, 0), (2, 0)]
    assert (high.completeness.scored, high.further_draws) == (1, None)


def planted(store: ReplyStore, number: int) -> None:
    """Ask questions under two variants, some repeatedly, with refusals, failures and missing replies."""
    for variant, draws in (("high", 1), ("low", 3)):
        questions = make_dataset(number).questions
        store.require(variant, {one: draws if place % 3 else 1 for place, one in enumerate(questions)})
        for place, one in enumerate(questions):
            texts = [RIGHT, REFUSED, "<answer>7</answer>", ""]
            replies = [
                Completion(one.question_id, name, draw, Reply(of, Role.MODEL, texts[(place + draw) % 4]), 0, place, 1)
                for draw in range(draws)
                for of, name in ((Pass.FIRST, variant), (Pass.FORCED, ""))
                if (place + draw + (of is Pass.FORCED)) % 11
            ]
            store.put(replies)
            if place % 5 == 0:
                store.retire(replies[:1])
            if place % 13 == 0:
                store.record_failure(variant, one.question_id, "no")


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_table_written_in_parts_equals_table_written_at_once(folder, store, monkeypatch, rows):
    planted(store, 40)
    whole = derive(folder, store)
    monkeypatch.setattr(results, "ROWS_OF_PART", rows)
    again, written = derive(folder, store), derive_into(folder.path / "derived.parquet", folder, store)
    assert whole.outcomes.height > 80
    assert again.outcomes.equals(whole.outcomes)
    assert read_outcomes(folder.path / "derived.parquet").equals(whole.outcomes)
    assert written.outcomes.collect_schema() == whole.outcomes.schema
    for name in ("usage", "missing", "disagreements"):
        assert getattr(again, name) == getattr(written, name) == getattr(whole, name)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "derived.parquet", "run.json"]


def test_rows_are_sorted_by_variant_id_and_draw(folder, store):
    planted(store, 12)
    found = derive(folder, store).outcomes.with_columns(place=pl.col("variant").replace_strict({"low": 0, "high": 1}))
    assert found.select("place", "question_id", "draw").rows() == sorted(
        found.select("place", "question_id", "draw").rows()
    )


def test_questions_are_sorted_by_variant_and_id_with_their_replies(store):
    planted(store, 12)
    asked = list(each_conversation(store, ["low", "high"], TwoPass(GraderKind.EXACT)))
    assert [(one.variant, one.question.question_id) for one, _, _ in asked] == [
        (variant, question_id) for variant in ("low", "high") for question_id in sorted(store.questions())
    ]
    for conversation, said_of, error in asked:
        place = conversation.question.question_id, conversation.variant
        assert said_of == store.effective_completions(*place)
        assert error == store.failures().get(place[::-1])


def test_run_without_answers_writes_no_table(folder, store):
    store.require("low", {QUESTION: 1})
    with pytest.raises(UnfinishedError):
        derive_into(folder.path / "derived.parquet", folder, store)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "run.json"]


def test_results_with_lost_replies_are_not_overwritten(folder):
    with open_store(folder) as store:
        store.require("low", dict.fromkeys(make_dataset(3).questions, 1))
        store.put([Completion(f"q{n}", "low", 0, Reply(Pass.FIRST, Role.MODEL, RIGHT)) for n in range(3)])
        write_results(folder, store)
    before = folder.outcomes.read_bytes()
    connection = sqlite3.connect(folder.replies)
    with connection:
        connection.execute("DELETE FROM replies WHERE question_id != 'q0'")
    connection.close()
    with pytest.raises(StoreError, match="found none for 2 of its 3 scored outcomes, the first low, q1; restore"):
        rebuild(folder.path)
    assert folder.outcomes.read_bytes() == before
    folder.outcomes.rename(folder.path / "elsewhere.parquet")
    assert rebuild(folder.path).summary.variants[0].status == "incomplete"


def test_unfinished_run_can_be_regraded():
    run = ri.evaluate(models.answer, ROWS, **LOCAL)
    connection = sqlite3.connect(run.folder.replies)
    with connection:
        connection.execute("DELETE FROM replies WHERE question_id = 'q1'")
    connection.close()
    run.folder.outcomes.unlink()
    anew = regraded(run, "exact")
    rows = anew.outcomes.filter(question_id="q1")
    assert set(rows["unscored_reason"]) == {"request_failed"}
    assert anew.outcomes.filter(pl.col("question_id") != "q1")["wrong"].null_count() == 0
    assert {one.error for one in anew.missing} == {f"{NOT_ANSWERED}the run ended before it was finished"}


def test_shared_forced_answer_counts_for_the_first_variant(folder, store):
    for variant in ("low", "high"):
        store.require(variant, {QUESTION: 1})
        store.put([completion(Pass.FIRST, REFUSED, variant=variant)])
    store.put([completion(Pass.FORCED, RIGHT, tokens=1000)])
    usage = derive(folder, store).usage
    assert [(usage[name].requests, usage[name].input_tokens) for name in ("low", "high")] == [(2, 1010), (1, 10)]


def test_variants_follow_the_order_of_the_prompt_set(folder, store):
    for variant in ("high", "low"):
        store.require(variant, {QUESTION: 1})
        store.put([completion(Pass.FIRST, RIGHT, variant=variant)])
    assert derive(folder, store).outcomes["variant"].to_list() == ["low", "high"]


def test_number_of_draws_never_decreases(store):
    plan = prepare(
        Settings.from_values(model="almanac/small", variants="low"), dataset=make_dataset(2), out=Path("run")
    )
    store.require("low", {QUESTION: 3})
    assert [conversation.draws for conversation in plan.conversations("low", store)] == [3, 1]


def regraded(run: ri.RunResults, grader: str) -> ri.RunResults:
    settings = Settings.from_values(grader=grader)
    return asyncio.run(execute(prepare_regrade(run.path, settings, out=Path("regraded"))))


def test_regrading_asks_no_model_and_new_refusals_have_no_forced_answer():
    run = ri.evaluate(models.answer, ROWS, **LOCAL | {"variants": "low,high"})
    models.ASKED.clear()
    anew = regraded(run, "python:tests.runs.models:judge_in_words")
    assert not models.ASKED
    for variant in ("low", "high"):
        rows = anew.outcomes.filter(variant=variant)
        refused_now = rows.filter(pl.col("unscored_reason") == "forced_not_asked")
        assert refused_now["question_id"].to_list() == ["q2", "q6"]
        assert refused_now["forced_reply"].null_count() == 2
        assert refused_now["refused"].to_list() == [True, True]
    assert anew.changes is not None
    assert anew.document["regrading"]["from"] == run.document["grader"]


def test_forced_answer_of_another_variant_is_not_reused():
    def sometimes(messages: list[dict[str, str]]) -> str:
        """Refuse only under the last variant; answer "none" otherwise."""
        if "leaving the question open is not allowed" in messages[-1]["content"]:
            return "<answer>forced</answer>"
        return REFUSED if "Be very cautious" in messages[-1]["content"] else "<answer>none</answer>"

    run = ri.evaluate(sometimes, ROWS[:2], model_name="sometimes", **LOCAL | {"variants": "low,highest"})
    assert run.outcomes.filter(variant="low")["forced_reply"].null_count() == 2
    anew = regraded(run, "python:tests.runs.models:judge_in_words").outcomes
    low, highest = anew.filter(variant="low"), anew.filter(variant="highest")
    assert low["unscored_reason"].to_list() == ["forced_not_asked"] * 2
    assert low["forced_reply"].null_count() == 2
    assert highest["forced_reply"].to_list() == ["<answer>forced</answer>"] * 2


def test_large_table_is_read_lazily(folder, monkeypatch):
    with open_store(folder) as store:
        planted(store, 12)
        small = write_results(folder, store)
        monkeypatch.setattr(writing, "MAX_ROWS_IN_MEMORY", 10)
        large = write_results(folder, store)
    assert large.outcomes.equals(small.outcomes)
    assert (large.summary, large.refusal_index("low").estimate) == (small.summary, small.refusal_index("low").estimate)
    assert large.report("large.html").read_bytes() == small.report("small.html").read_bytes()
    folder.outcomes.unlink()
    assert small.rows.collect().height > 20
    with pytest.raises(FileNotFoundError):
        large.rows.collect()


def test_temporary_files_of_a_killed_process_are_removed(folder):
    kept = folder.path / "kept"
    kept.mkdir()
    (kept / "0.parquet").touch()
    left = left_behind(folder.outcomes, ".parts.tmp")
    left.mkdir()
    (left / "0.parquet").touch()
    left_behind(folder.outcomes).touch()
    left_behind(folder.outcomes).symlink_to(kept)
    with open_store(folder) as store:
        planted(store, 4)
        write_results(folder, store)
    assert not list(folder.path.glob("*.tmp"))
    assert [path.name for path in kept.iterdir()] == ["0.parquet"]
