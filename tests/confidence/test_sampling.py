"""Scores from repeated draws, against theory."""

from __future__ import annotations

import math

import pytest

from refusal_index.data import Question
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.model_scores import answer_entropy, cluster_sizes, p_answering, self_consistency


def answer(text: str, *, wrong: bool | None = False) -> Answer:
    return Answer(text, text, wrong)


def evidence(first: str, *further: str, **others: object) -> Evidence:
    question = Question("q", "?", "!")
    return Evidence("m", {"q": question}, {"q": answer(first)}, {"q": [answer(one) for one in further]}, **others)


def test_the_share_of_further_draws_that_answer_is_by_variant_and_against_the_forced_answer():
    known = evidence(
        "Lima", refusals={"low": {"q": [False, False, True, False]}, "high": {"q": [True], "gone": [False]}}
    )
    found = {(one.variant, one.question_id): (one.confidence, one.wrong) for one in p_answering(known)}
    assert found == {("low", "q"): (0.75, False), ("high", "q"): (0.0, False)}


def test_agreement_takes_no_part_of_the_answer_itself_and_no_notice_of_spelling():
    (found,) = self_consistency(evidence("Lima", "lima.", "Cusco", "the LIMA", "Puno"))
    assert found.confidence == 0.5


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
    (found,) = answer_entropy(evidence(*said))
    assert found.confidence == pytest.approx(certainty, abs=1e-15)
    assert 0 <= found.confidence <= 1


def test_a_question_that_was_drawn_once_has_no_row():
    assert list(self_consistency(evidence("Lima"))) == list(answer_entropy(evidence("Lima"))) == []


def test_clusters_are_of_answers_that_agree():
    assert cluster_sizes(["1,000", "Lima", "1000", "lima"]) == [2, 2]


def test_a_draw_that_was_cut_or_empty_neither_agrees_nor_differs():
    known = evidence("Lima", "lima", "", "")
    assert [one.confidence for one in self_consistency(known)] == [1.0]
    assert [one.confidence for one in answer_entropy(known)] == [1.0]
    unread = evidence("", "", "")
    assert [one.confidence for one in (*self_consistency(unread), *answer_entropy(unread))] == [None, None]
