"""First passes as an outcome table and back, which of them are forced, and what they say without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.datasets import DatasetError
from refusal_index.data.first_pass import (
    FirstPass,
    from_outcomes,
    of_one_model,
    questions_to_force,
    self_contained,
    to_outcomes,
)
from refusal_index.data.imports import ReadOptions, SourceFile, detected_format, read_first_passes
from refusal_index.data.outcome_table import read_outcomes, write_outcomes
from refusal_index.findings.conclusions import tallies

C, I, R, U = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED  # noqa: E741


def one(question_id: str, grade: Grade | None, **changes: object) -> FirstPass:
    first = FirstPass(Question(question_id, f"{question_id}?", "so"), "m", "d", grade, reply="said", variant="low")
    return replace(first, **changes)


PASSES = (
    one("a", C),
    one("b", I),
    one("c", R),
    one("d", U, reason="request_failed"),
    one("e", None),
    one("f", R, question=Question("f", "f?", None)),
)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_what_was_written_is_read_back_as_the_same_first_passes(tmp_path, suffix):
    path = tmp_path / f"first{suffix}"
    write_outcomes(to_outcomes(PASSES), path)
    file = SourceFile.read(path)
    assert detected_format(file) == "outcomes"
    assert read_first_passes(file, "outcomes", ReadOptions()) == PASSES


def test_an_outcome_table_says_what_is_missing():
    table = to_outcomes(PASSES)
    assert table.select("refused", "wrong", "unscored_reason").rows() == [
        (False, False, None),
        (False, True, None),
        (True, None, "forced_not_asked"),
        (None, None, "request_failed"),
        (False, None, "first_not_graded"),
        (True, True, None),
    ]
    assert table["forced_grade"].to_list() == [None] * 5 + ["incorrect"], "no answer to it can be right"
    assert table["gold"].to_list()[-1] is None


def test_a_context_is_kept_in_the_text_where_there_is_no_column_for_it():
    passes = one("a", R, question=Question("a", "Who?", "I", context="It was I."))
    assert self_contained(passes).question == Question("a", "It was I.\n\nWho?", "I")
    assert self_contained(PASSES[0]) is PASSES[0]


def test_forced_answers_find_their_rows_and_leave_the_first_pass_alone():
    forced = Outcome(True, False, R, C, first_reply="<answer>UNANSWERED</answer>", forced_reply="so")
    table = to_outcomes(PASSES, {"c": forced, "a": forced})
    assert table.row(2, named=True) | {"first_reply": "said", "forced_reply": "so", "wrong": False} == table.row(
        2, named=True
    )
    assert table.row(0, named=True)["forced_reply"] is None, "what was not refused needs no forcing"


def test_variants_share_a_forced_question_and_draws_do_not():
    passes = [one("c", R), one("c", R, variant="high"), one("c", R, draw=1)]
    assert [question.question_id for question in questions_to_force(passes, "x")] == ["c", "c (draw 2)"]


@pytest.mark.parametrize(
    ("passes", "told"),
    [
        ([one("a", C)], "expected refused questions, got none.*--refusal"),
        ([one("a", R, question=Question("a", "", "so"))], "expected the question of every refused question, got 1 of"),
        ([one("a", R, question=Question("a", "a?", ""))], r"expected the answer.*'a'.*--column answer=NAME"),
        ([one("a", R), one("a", R, variant="x", question=Question("a", "b?", "so"))], "two with different texts"),
    ],
)
def test_what_cannot_be_forced_is_told(passes, told):
    with pytest.raises(DatasetError, match=told):
        questions_to_force(passes, "x.csv")


def test_one_model_is_chosen_by_its_name():
    passes = [one("a", C), one("a", R, model="n")]
    assert of_one_model(passes, "x", "n") == (passes[1],)
    for name, told in ((None, "2 models; choose one with --name: m, n"), ("N", "got 'N'; did you mean 'n'")):
        with pytest.raises(DatasetError, match=told):
            of_one_model(passes, "x", name)
    with pytest.raises(DatasetError, match="on 2 datasets"):
        of_one_model([one("a", C), one("a", C, dataset="e")], "x", None)


def test_the_metrics_of_the_first_pass_are_those_by_hand():
    passes = [one(f"c{n}", C) for n in range(30)] + [one(f"i{n}", I) for n in range(50)] + [one("r", R)] * 20
    (tally,) = tallies(passes, penalty=0.5)
    c, r = 0.3, 0.2
    expected = (c / (1 - r), 2 * c / (2 - r), c - 0.5 * (1 - r))
    assert [metric.estimate for metric in tally.metrics] == pytest.approx(expected)
    assert (tally.rows, tally.to_force, tally.unscored) == (100, 20, 0)


def test_metrics_are_left_out_where_the_unscored_would_mislead():
    (tally,) = tallies(PASSES)
    assert tally.metrics == ()
    assert (tally.correct, tally.incorrect, tally.refused, tally.unscored, tally.to_force) == (1, 1, 2, 2, 1)
    assert tally.reasons == {"request_failed": 1, "first_not_graded": 1}


def test_a_table_of_two_columns_is_a_first_pass_without_questions(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("refused,wrong\ntrue,\nfalse,true\n")
    passes = from_outcomes(read_outcomes(path))
    assert [found.grade for found in passes] == [R, I]
    with pytest.raises(DatasetError, match="expected the question"):
        questions_to_force(passes, "two.csv")
