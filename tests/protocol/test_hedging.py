"""A simulated model whose hedges do not depend on being right, and replies by writers who had not seen the phrases.

`data/hedges.jsonl`, `caveats.jsonl` and `refusals.jsonl` were written without knowledge of the phrases that are
recognised. Some of them were looked at afterwards, when phrases were added; the bounds below hold for all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import refusal_index as ri
from refusal_index.data.outcome import Grade, Question
from refusal_index.protocol.grading import GraderKind, grade_by_rule
from refusal_index.protocol.reading import ReadAs, read_reply

DATA = Path(__file__).parent / "data"
QUESTION = "Who designed bridge number 7?"
NAMES = ("Ole Ruud", "Marta Venn", "Ida Falk", "Per Holm", "Eva Lind")
REFUSALS = (
    "I don't know.",
    "I'm sorry, but I could not find who designed it.",
    "The documents do not say who designed this bridge.",
    "Das weiß ich leider nicht.",
    "Je ne sais pas qui a conçu ce pont.",
)


def written(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


TEMPLATES = [(hedge["language"], hedge["template"]) for hedge in written("hedges")]


@pytest.mark.parametrize(("language", "template"), TEMPLATES, ids=[template[:40] for _, template in TEMPLATES])
def test_hedged_answer_is_no_refusal(language, template):
    for name in NAMES:
        assert read_reply(template.replace("{answer}", name), QUESTION).read_as is not ReadAs.REFUSAL, language


def test_hedges_are_in_twelve_languages_and_at_most_one_in_ten_is_unclear():
    unclear = [
        read_reply(template.replace("{answer}", name), QUESTION).read_as is ReadAs.UNCLEAR
        for _, template in TEMPLATES
        for name in NAMES
    ]
    assert len({language for language, _ in TEMPLATES}) == 12
    assert np.mean(unclear) < 0.1


def simulated(refusal_rate: float, n: int = 2000, *, hedges: bool) -> ri.ContingencyTable:
    """Return the counts of a model that knows what it does not know to some degree, and hedges half of its answers."""
    rng = np.random.default_rng(11)
    difficulty = rng.standard_normal(n)
    tendency = 0.5 * difficulty + np.sqrt(0.75) * rng.standard_normal(n)
    is_wrong = difficulty > 0
    refuses = tendency > np.quantile(tendency, 1 - refusal_rate) if refusal_rate else np.zeros(n, bool)
    is_hedged = rng.random(n) < 0.5
    refused, wrong = [], []
    for i in range(n):
        question = Question("q", f"Who designed bridge number {i}?", NAMES[i % 5])
        name = NAMES[(i + is_wrong[i]) % 5]
        answer = f"<answer>{name}</answer>"
        if hedges and is_hedged[i]:
            answer = TEMPLATES[rng.integers(len(TEMPLATES))][1].replace("{answer}", name)
        refusal = REFUSALS[rng.integers(len(REFUSALS))] if hedges else "<answer>UNANSWERED</answer>"
        first = read_reply(refusal if refuses[i] else answer, question.text)
        forced = read_reply(f"<answer>{name}</answer>", question.text)
        refused.append(first.refused)
        counts = forced if first.refused else first
        wrong.append(grade_by_rule(GraderKind.INCLUDES, question, counts) is not Grade.CORRECT)
    return ri.ContingencyTable.from_arrays(np.array(refused), np.array(wrong))


def test_model_that_hedges_but_never_refuses_has_no_refusals_and_an_undefined_index():
    result = ri.refusal_index(simulated(0.0, hedges=True))
    assert result.table.n_refused == 0
    assert (result.status, result.reason) == ("undefined", "nobody_refused")


@pytest.mark.parametrize("refusal_rate", [0.1, 0.3])
def test_hedges_leave_the_index_within_sampling_error_of_that_with_a_tag(refusal_rate):
    with_tag = ri.refusal_index(simulated(refusal_rate, hedges=False))
    hedged = ri.refusal_index(simulated(refusal_rate, hedges=True))
    assert hedged.table.n_refused == with_tag.table.n_refused
    assert hedged.estimate == pytest.approx(with_tag.estimate, abs=with_tag.standard_error)


def test_at_most_one_in_twenty_answers_with_a_caveat_is_called_a_refusal():
    caveats = written("caveats")
    refused = [reply for reply in caveats if read_reply(reply["reply"], reply["question"]).refused]
    assert len(refused) <= 0.05 * len(caveats), refused


def test_most_refusals_are_recognised():
    refusals = written("refusals")
    readings = [read_reply(reply["reply"], reply["question"]) for reply in refusals]
    assert np.mean([reading.refused for reading in readings]) > 0.8
