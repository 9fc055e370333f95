"""Scores from repeated draws, against theory."""

from __future__ import annotations

import math

import polars as pl
import pytest

from refusal_index.data import Question
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.model_scores import METHODS, answer_entropy, cluster_sizes, self_consistency

P_ANSWERING = METHODS[0]


def confidences(method, known: Evidence) -> list[float | None]:
    return method(known)["confidence"].to_list()


def answer(text: str, *, wrong: bool | None = False) -> Answer:
    return Answer(text, text, wrong)


def evidence(first: str, *further: str, **others: object) -> Evidence:
    question = Question("q", "?", "!")
    return Evidence({"q": question}, {"q": answer(first)}, {"q": [answer(one) for one in further]}, **others)


def test_the_share_of_further_draws_that_answer_is_by_variant_and_against_the_forced_answer():
    drawn = [
        *(("low", "q", draw, draw == 3) for draw in range(5)),
        *(("high", "q", 0, False), ("high", "q", 1, True), ("high", "q", 2, None), ("high", "gone", 1, False)),
    ]
    outcomes = pl.DataFrame(drawn, schema=["variant", "question_id", "draw", "refused"], orient="row")
    found = P_ANSWERING.scores(evidence("Lima", outcomes=outcomes))
    assert found.select("variant", "question_id", "confidence", "wrong", "pass").rows() == [
        ("low", "q", 0.75, False, "forced"),
        ("high", "q", 0.0, False, "forced"),
    ]


def test_agreement_takes_no_part_of_the_answer_itself_and_no_notice_of_spelling():
    assert confidences(self_consistency, evidence("Lima", "lima.", "Cusco", "the LIMA", "Puno")) == [0.5]


@pytest.mark.parametrize(
    ("said", "certainty"),
    [
        (("a", "a", "a"), 1.0),
        (("a", "b", "c"), 0.0),
        (("a", "a", "b"), 1 - (math.log(3) - 2 / 3 * math.log(2)) / math.log(3)),
        (("a", "a", "b", "b"), 0.5),
    ],
)
def test_certainty_is_one_less_the_entropy_over_the_most_against_theory(said, certainty):
    (found,) = confidences(answer_entropy, evidence(*said))
    assert found == pytest.approx(certainty, abs=1e-15)
    assert 0 <= found <= 1


def test_a_question_that_was_drawn_once_has_no_row():
    assert confidences(self_consistency, evidence("Lima")) == confidences(answer_entropy, evidence("Lima")) == []


def test_clusters_are_of_answers_that_agree():
    assert cluster_sizes(["1,000", "Lima", "1000", "lima"]) == [2, 2]


def test_a_draw_that_was_cut_or_empty_neither_agrees_nor_differs():
    known = evidence("Lima", "lima", "", "")
    unread = evidence("", "", "")
    for method in (self_consistency, answer_entropy):
        assert confidences(method, known) == [1.0]
        assert confidences(method, unread) == [None]
