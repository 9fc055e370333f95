"""Scores from log probabilities, against theory."""

from __future__ import annotations

import math

import pytest

from refusal_index.data import Question
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.model_scores import METHODS, answer_tokens
from refusal_index.protocol import TokenLogprob

LIKELIHOODS = [one for one in METHODS if one.name.startswith("likelihood")]
TOKENS = tuple(
    TokenLogprob(text, math.log(share))
    for text, share in (("<answer>", 0.01), ("Ta", 0.5), ("lara", 0.25), ("</", 0.02), ("answer>", 0.03))
)


def scored(answer: Answer) -> dict[str, float | None]:
    known = Evidence({"q": Question("q", "?", "!")}, {"q": answer})
    return {one.name: one.scores(known)["confidence"].item() for one in LIKELIHOODS}


def test_product_geometric_mean_and_least_of_the_answer_s_own_tokens_against_theory():
    found = scored(Answer("Talara", "<answer>Talara</answer>", False, TOKENS))
    assert found["likelihood"] == pytest.approx(0.125)
    assert found["likelihood-mean"] == pytest.approx(math.sqrt(0.125))
    assert found["likelihood-min"] == pytest.approx(0.25)


def test_an_answer_without_log_probabilities_has_no_score():
    assert set(scored(Answer("Talara", "Talara", False, ())).values()) == {None}


def test_an_answer_that_was_asked_without_them_has_no_row():
    known = Evidence({"q": Question("q", "?", "!")}, {"q": Answer("Talara", "Talara", False)})
    assert [one.scores(known).height for one in LIKELIHOODS] == [0, 0, 0]


def test_rounding_makes_no_probability_above_one():
    assert scored(Answer("a", "a", False, (TokenLogprob("a", 1e-9),)))["likelihood"] == 1.0


@pytest.mark.parametrize(
    ("answer", "said", "expected"),
    [
        ("Lima", ["Is it Lima? <answer>", "Lima", "</answer>"], ["Lima"]),
        ("Lima", ["<answer>", "Lima", "</answer>", " Lima", " it is"], ["Lima"]),
        ("er", ["<answer>", "er", "</answ", "er>"], ["er"]),
        ("Lima", ["<answer>Li", "ma</answer>"], ["<answer>Li", "ma</answer>"]),
        ("", ["<answer>", "</answer>"], ["<answer>", "</answer>"]),
        ("not there", ["Lima"], ["Lima"]),
    ],
    ids=[
        "the last place",
        "said again behind it",
        "also in the tag",
        "a token over the edge",
        "no answer",
        "not found",
    ],
)
def test_which_tokens_are_the_answer_s(answer, said, expected):
    tokens = [TokenLogprob(text, -1.0) for text in said]
    assert [one.token for one in answer_tokens(answer, tokens)] == expected
