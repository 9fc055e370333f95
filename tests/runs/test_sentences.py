"""End to end: a server that answers and refuses in sentences, with a known truth."""

from __future__ import annotations

import random
import re

import pytest

import refusal_index as ri
from tests.faults.api import FakeApi
from tests.served import ADDRESS, at

pytestmark = pytest.mark.slow

NAMES = ("Ole Ruud", "Marta Venn", "Ida Falk", "Per Holm", "Eva Lind", "Jon Aas", "Siri Dahl", "Tor Vik")
SENTENCES = (
    "The bridge was designed by {}.",
    "According to the register, {} drew the plans for it.",
    "It was {} who designed the bridge, in 1912.",
    "That would be {}.",
    "{} designed it, though I could not find the exact year.",
)
REFUSALS = (
    "I could not find who designed it in the register.",
    "I'm sorry, but the documents do not mention the designer.",
    "There is no information about the designer in the sources.",
    "Unfortunately I don't know who designed that bridge.",
    "The register does not say who designed this bridge.",
)
N = 400


def planted() -> tuple[list[dict[str, str]], list[bool], list[str]]:
    """Return the questions, which of them are refused, and the name that the model gives to each."""
    rng = random.Random(3)
    questions, refused, given = [], [], []
    for number in range(N):
        skill = rng.gauss(0, 1)
        refused.append(0.44 * rng.gauss(0, 1) - 0.9 * skill > 0.4)
        right = NAMES[number % 8]
        given.append(right if skill > -0.1 else NAMES[(number + 1 + rng.randrange(7)) % 8])
        questions.append({"id": f"q{number}", "question": f"Who designed bridge number {number}?", "answer": right})
    return questions, refused, given


@pytest.fixture
def truth(monkeypatch, tmp_path):
    questions, refused, given = planted()

    def answer(prompt: str) -> str:
        number = int(re.findall(r"bridge number (\d+)", prompt)[-1])
        if refused[number] and "UNANSWERED" in prompt:
            return REFUSALS[number % 5]
        return SENTENCES[number % 5].format(given[number])

    wrong = [name != question["answer"] for name, question in zip(given, questions, strict=True)]
    with FakeApi(answer) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        monkeypatch.setenv("FAKE_API_KEY", "sk-none")
        monkeypatch.chdir(tmp_path)
        yield questions, ri.refusal_index(refused=refused, wrong=wrong).estimate


def evaluated(questions, grader: str) -> ri.RunResults:
    return ri.evaluate("any", questions, variants="normal", grader=grader, out=f"runs/{grader}", **at())


def codes(run: ri.RunResults) -> set[str]:
    return {caveat.code for caveat in run.summary.variants[0].caveats if caveat.severity == "serious"}


def test_includes_comes_within_a_twentieth_of_the_planted_index_and_exact_ends_with_a_caveat(truth):
    questions, planted_index = truth
    assert planted_index > 0.8
    included = evaluated(questions, "includes")
    assert included.refusal_index("normal").estimate == pytest.approx(planted_index, abs=0.05)
    assert "wrong_with_gold" not in codes(included)
    assert "wrong_with_gold" in codes(evaluated(questions, "exact"))
