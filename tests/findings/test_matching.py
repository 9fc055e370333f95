"""Outcomes put side by side: matched by question id, gaps where there is no grade."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import draw_matrices, draw_matrix, first_draws, outcome_matrix
from refusal_index.errors import OutcomeTableError

CELLS = st.sampled_from([None, (False, False), (False, True), (True, False), (True, True)])
RUNS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), CELLS, min_size=1), min_size=1, max_size=4)


def outcome(cell: tuple[bool, bool] | None, forced: Grade | None = None) -> Outcome:
    if cell is None:
        return Outcome(None, None, Grade.UNSCORED, unscored_reason="first_empty")
    refused, wrong = cell
    answer = Grade.INCORRECT if wrong else Grade.CORRECT
    return Outcome(refused, wrong, Grade.REFUSED if refused else answer, answer if refused else forced)


def table(cells: dict[str, tuple[bool, bool] | None], variant: str = "v", text: str = "") -> pl.DataFrame:
    rows = ((Identification("m", "d", variant), Question(q, text + q, "?"), outcome(c)) for q, c in cells.items())
    return outcome_table(rows)


@given(RUNS)
def test_every_cell_is_that_of_its_run_and_question(runs):
    matrix = outcome_matrix([table(run) for run in runs])
    assert set(matrix.question_ids) == set().union(*runs)
    assert matrix.scored.shape == (len(runs), len(matrix.question_ids))
    for row, run in enumerate(runs):
        for column, question in enumerate(matrix.question_ids):
            cell = run.get(question)
            assert matrix.scored[row, column] == (cell is not None)
            found = matrix.refused[row, column], matrix.wrong[row, column]
            assert found == (cell or (False, False))
    assert matrix.shared.tolist() == [all(run.get(q) is not None for run in runs) for q in matrix.question_ids]


def test_the_order_of_the_questions_is_that_of_their_first_appearance():
    matrix = outcome_matrix([table({"b": (True, True), "a": None}), table({"c": (True, True), "a": (True, False)})])
    assert matrix.question_ids == ("b", "a", "c")


def test_parts_of_a_matrix_keep_their_questions_and_rows():
    matrix = outcome_matrix([table({"a": (True, True), "b": (True, False)}), table({"b": (False, True)})])
    shared = matrix.of_questions(matrix.shared)
    assert shared.question_ids == ("b",)
    assert shared.refused.tolist() == [[True], [False]]
    assert matrix.of_rows([1]).scored.tolist() == [[False, True]]


def test_the_same_id_for_another_question_is_an_error_naming_both():
    with pytest.raises(OutcomeTableError, match=r"'a' stands for 'that a' and for 'this a'"):
        outcome_matrix([table({"a": (True, True)}, text="this "), table({"a": (True, True)}, text="that ")])


def draws(cells: dict[tuple[str, int], tuple[tuple[bool, bool] | None, Grade | None]]) -> pl.DataFrame:
    return outcome_table(
        (Identification("m", "d", "v", draw), Question(question, question, "?"), outcome(cell, forced))
        for (question, draw), (cell, forced) in cells.items()
    )


def test_of_several_draws_the_first_is_matched():
    rows = draws({("a", 1): ((True, True), None), ("a", 0): ((False, False), None), ("b", 1): ((True, False), None)})
    assert first_draws(rows).select("question_id", "draw").rows() == [("a", 0), ("b", 1)]
    assert outcome_matrix([rows]).refused.tolist() == [[False, True]]


def test_draws_side_by_side_are_wrong_by_the_forced_answer():
    rows = draws(
        {
            ("a", 0): ((False, False), Grade.INCORRECT),  # answered rightly, forced wrongly
            ("a", 1): ((True, False), None),
            ("b", 0): ((False, True), Grade.REFUSED),
            ("b", 1): ((False, True), Grade.UNSCORED),  # no grade: a gap, and b has one draw left
            ("c", 0): ((True, True), None),
            ("c", 1): ((False, True), Grade.CORRECT),
            ("c", 2): (None, None),
            ("d", 0): ((True, True), None),  # drawn once
        }
    )
    matrix = draw_matrix(rows)
    assert matrix.question_ids == ("a", "c")
    assert matrix.refused.tolist() == [[False, True], [True, False]]
    assert matrix.wrong.tolist() == [[True, True], [False, False]]
    assert matrix.scored.all()


def test_without_repeated_questions_there_is_nothing_to_put_side_by_side():
    matrix = draw_matrix(table({"a": (True, True)}))
    assert matrix.refused.shape == (0, 0)
    assert not np.any(matrix.scored)


def test_draws_of_several_runs_have_the_same_columns_and_rows_of_their_own():
    yes, no = ((True, True), None), ((True, False), None)
    one = draws({("a", 0): yes, ("a", 1): no, ("b", 0): yes, ("c", 0): no, ("c", 2): no})
    other = draws({("c", 1): yes, ("b", 0): yes, ("c", 3): yes})
    first, second = draw_matrices([one, other])
    assert first.question_ids == second.question_ids == ("a", "c")
    assert first.scored.tolist() == [[True, True], [True, False], [False, True]]
    assert first.wrong.tolist() == [[True, False], [False, False], [False, False]]
    assert second.scored.tolist() == second.refused.tolist() == [[False, True], [False, True]]
    assert [matrix.refused.shape for matrix in draw_matrices([table({"a": (True, True)}), other])] == [(0, 1), (2, 1)]
