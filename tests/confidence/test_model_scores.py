"""Scores from log probabilities, repeated draws and P(True)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Question
from refusal_index.plugins.confidence.answer_probability import answer_tokens
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.model_scores import (
    METHODS,
    answer_entropy,
    believed,
    choice_probability,
    chosen,
    cluster_sizes,
    p_true,
    self_consistency,
)
from refusal_index.protocol import StopReason, TokenLogprob
from refusal_index.protocol.logprobs import IMPOSSIBLE

# --- Scores from log probabilities, against theory

LIKELIHOODS = [method for method in METHODS if method.name.startswith("likelihood")]
TOKENS = tuple(
    TokenLogprob(text, math.log(share))
    for text, share in (("<answer>", 0.01), ("Ta", 0.5), ("lara", 0.25), ("</", 0.02), ("answer>", 0.03))
)


def scored(answer: Answer) -> dict[str, float | None]:
    known = Evidence({"q": Question("q", "?", "!")}, {"q": answer})
    return {likelihood.name: likelihood.scores(known)["confidence"].item() for likelihood in LIKELIHOODS}


def test_product_geometric_mean_and_minimum_of_answer_tokens_against_theory():
    found = scored(Answer("Talara", "<answer>Talara</answer>", False, TOKENS))
    assert found["likelihood"] == pytest.approx(0.125)
    assert found["likelihood-mean"] == pytest.approx(math.sqrt(0.125))
    assert found["likelihood-min"] == pytest.approx(0.25)


def test_an_answer_without_log_probabilities_has_no_score():
    assert set(scored(Answer("Talara", "Talara", False, ())).values()) == {None}


def test_answer_requested_without_logprobs_has_no_row():
    known = Evidence({"q": Question("q", "?", "!")}, {"q": Answer("Talara", "Talara", False)})
    assert [likelihood.scores(known).height for likelihood in LIKELIHOODS] == [0, 0, 0]


def test_rounding_never_gives_a_probability_above_one():
    assert scored(Answer("a", "a", False, (TokenLogprob("a", 1e-9),)))["likelihood"] == 1.0


@pytest.mark.parametrize(
    ("answer", "reply", "expected"),
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
def test_answer_tokens_are_located(answer, reply, expected):
    tokens = [TokenLogprob(text, -1.0) for text in reply]
    assert [token.token for token in answer_tokens(answer, tokens)] == expected


# --- Scores from repeated draws, against theory

P_ANSWERING = METHODS[0]


def confidences(method, known: Evidence) -> list[float | None]:
    return method(known)["confidence"].to_list()


def answer(text: str, *, wrong: bool | None = False) -> Answer:
    return Answer(text, text, wrong)


def evidence(first: str, *further: str, **others: object) -> Evidence:
    question = Question("q", "?", "!")
    return Evidence({"q": question}, {"q": answer(first)}, {"q": [answer(one) for one in further]}, **others)


def test_answering_share_is_per_variant_and_scored_on_the_forced_answer():
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


def test_agreement_excludes_the_answer_itself_and_ignores_spelling():
    assert confidences(self_consistency, evidence("Lima", "lima.", "Cusco", "the LIMA", "Puno")) == [0.5]


@pytest.mark.parametrize(
    ("reply", "certainty"),
    [
        (("a", "a", "a"), 1.0),
        (("a", "b", "c"), 0.0),
        (("a", "a", "b"), 1 - (math.log(3) - 2 / 3 * math.log(2)) / math.log(3)),
        (("a", "a", "b", "b"), 0.5),
    ],
)
def test_certainty_is_one_minus_normalised_entropy_against_theory(reply, certainty):
    (found,) = confidences(answer_entropy, evidence(*reply))
    assert found == pytest.approx(certainty, abs=1e-15)
    assert 0 <= found <= 1


def test_question_sampled_once_has_no_row():
    assert confidences(self_consistency, evidence("Lima")) == confidences(answer_entropy, evidence("Lima")) == []


def test_agreeing_answers_form_clusters():
    assert cluster_sizes(["1,000", "Lima", "1000", "lima"]) == [2, 2]


def test_empty_or_truncated_draws_are_ignored():
    known = evidence("Lima", "lima", "", "")
    unread = evidence("", "", "")
    for method in (self_consistency, answer_entropy):
        assert confidences(method, known) == [1.0]
        assert confidences(method, unread) == [None]


# --- P(True): from planted replies and planted log probabilities to the share of "true"


def replied(reply: str, *tokens: TokenLogprob, stop_reason: StopReason = StopReason.STOP) -> Answer:
    return Answer(reply, reply, None, tokens or None, stop_reason)


def place(token: str, shares: Mapping[str, float] | None = None) -> TokenLogprob:
    """Return a token with the probabilities of its alternatives; it need not be one of them."""
    held = {name: math.log(share) for name, share in (shares or {}).items()}
    return TokenLogprob(token, held.get(token, math.log(0.001)), tuple(held.items()))


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("A", "B"),
        ("a", "b"),
        ("A.", "B."),
        ("(A)", "(B)"),
        ("**A**", "**B**"),
        (" A\n", " B\n"),
        ("A) true", "B) false"),
        ("A: True.", "B: False."),
        ("TRUE", "FALSE"),
        ("Answer: A", "The correct answer is B"),
        ("A\n\nBecause B is not.", "B\n\nA good answer would be Lima."),
        ("<answer>A</answer>", "<answer>b</answer>"),
        ("<think>B?</think>A", "A or B?</think> B"),
        ("Either B or A: <answer>A) true</answer>", "A good answer is another: <answer>B</answer>"),
    ],
)
def test_reply_with_letter_or_word_is_a_choice(true, false):
    assert (believed([replied(true)]), believed([replied(false)])) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "1",
        "C",
        "AB",
        "A or B",
        "A, B",
        "A B",
        "A) false",
        "B) true",
        "A good answer.",
        "not A",
        "It is true that Lima is the capital.",
        "<answer>UNANSWERED</answer>",
        "<answer>Lima</answer>",
        "<think>A</think>",
        "<think>A",
        "\u0391",  # a Greek letter
        "A" * 10**6,
    ],
    ids=lambda text: text[:20],
)
def test_other_replies_are_not_a_choice(text):
    assert believed([replied(text)]) is None


@pytest.mark.parametrize("reason", sorted({*StopReason} - {StopReason.STOP, StopReason.ANSWER}))
def test_unfinished_reply_is_not_a_choice(reason):
    assert believed([replied("A", stop_reason=reason)]) is None


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        ("AAAAAAAAAA", 1.0),
        ("ABBBBBBBBB", 0.1),
        ("AAB??", 2 / 3),
        ("AB??", 0.5),
        ("A??", None),
        ("ABAB?????", None),
        ("??????????", None),
    ],
)
def test_sampled_score_is_the_share_of_true_if_half_the_replies_choose(reply, share):
    assert believed([replied(one) for one in reply]) == share


@pytest.mark.parametrize(
    ("tokens", "probability"),
    [
        ([place("A", {"A": 0.6, "B": 0.2})], 0.75),
        ([place("B", {"A": 0.6, "B": 0.2})], 0.75),  # whichever was drawn
        ([place("A", {"A": 0.3, " A": 0.2, "B": 0.2, "The": 0.1, " B": 0.1})], 5 / 8),
        ([place("(A", {"A": 0.2, "(A": 0.2, "A)": 0.1, "a": 0.1, "(B)": 0.2})], 0.75),
        ([place("True", {"A": 0.3, "True": 0.1, " true": 0.05, "False": 0.15})], 0.75),
        (
            [place("(", {"A": 0.9}), place("A", {"A": 0.3, "B": 0.3}), place("A", {"A": 0.9})],
            0.5,
        ),  # the first that is one
        ([place("A", {"A": 0.3, "B": 0.19})], None),
        ([place("A", {"A": 0.001, "Lima": 0.9})], None),  # among the likeliest by accident
        ([place("A", {"A": 1.0})], 1.0),
        ([place("A", {"B": 0.499, "Lima": 0.2})], 0.001 / 0.5),  # itself not among its alternatives
        ([TokenLogprob("A", 0.0, (("A", 0.0), ("B", IMPOSSIBLE)))], 1.0),
        ([place("Answer", {"Answer": 0.9}), place(":", {":": 0.9})], None),
        ([], None),
    ],
)
def test_likelihood_score_uses_the_first_token_that_holds_a_letter(tokens, probability):
    found = choice_probability(tokens)
    assert (found is None) is (probability is None)
    assert found is None or found == pytest.approx(probability)


def test_likelihood_score_uses_the_final_answer():
    thought = [place("<think>"), place("A", {"A": 0.9, "B": 0.1}), place("</think>")]
    tagged = [place("<answer>"), place("B", {"A": 0.2, "B": 0.6}), place("</answer>")]
    assert believed([replied("<think>A</think><answer>B</answer>", *thought, *tagged)]) == pytest.approx(0.25)


def test_low_probability_letters_give_no_score_even_if_sampled():
    assert believed([replied("A", place("A", {"A": 0.2, "B": 0.1, "Lima": 0.5}))]) is None


def test_letter_that_starts_a_sentence_gives_no_score():
    tokens = (place("A", {"A": 0.9, "B": 0.05}), place(" good"), place(" answer"))
    assert believed([replied("A good answer", *tokens)]) is None


def test_tokens_without_alternatives_score_like_the_reply():
    assert believed([replied("A", TokenLogprob("A", math.log(0.6)))]) == 1.0
    assert believed([replied("B", TokenLogprob("B", math.log(0.6)))]) == 0.0


def test_several_replies_with_log_probabilities_are_averaged():
    first, second = place("A", {"A": 0.6, "B": 0.2}), place("B", {"A": 0.1, "B": 0.7})
    assert believed([replied("A", first), replied("B", second)]) == pytest.approx((0.75 + 0.125) / 2)


@given(odds=st.lists(st.floats(-4, 4), min_size=2, max_size=9, unique=True), leaning=st.floats(-3, 3))
def test_letter_bias_preserves_the_ranking_property(odds, leaning):
    def score(log_odds: float) -> float | None:
        share = 1 / (1 + math.exp(-log_odds))
        return choice_probability([place("A", {"A": share, "B": 1 - share})])

    plain, leant = ([score(odd + shift) for odd in sorted(odds)] for shift in (0.0, leaning))
    assert plain == sorted(plain)
    assert leant == sorted(leant)


@given(st.text())
def test_any_reply_is_true_false_or_none(text):
    assert chosen(text) in ("true", "false", None)
    assert believed([replied(text)]) in (1.0, 0.0, None)


def test_score_belongs_to_the_forced_answer_that_was_judged():
    answers = {f"q{n}": Answer("Lima", "Lima", wrong=n == 2) for n in (1, 2, 3, 4)}
    replies = {"q2": [replied("B")], "q1": [replied("A")], "q3": [replied("hm")], "q4": [], "q5": [replied("A")]}
    assert p_true(Evidence({}, answers, probes={"p-true": replies})).rows() == [
        ("q1", 1.0, False),
        ("q2", 0.0, True),
        ("q3", None, False),
    ]
    assert p_true(Evidence({}, answers)).is_empty()
