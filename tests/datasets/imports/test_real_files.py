"""Evidence against real data: five models on SimpleQA in Czech, and one model that may decline on SQuAD 2."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from refusal_index.data.first_pass import FirstPass, to_outcomes
from refusal_index.data.imports import ReadOptions, SourceFile, detected_format, read_first_passes
from refusal_index.findings.conclusions import tallies

DATA = Path(__file__).parents[4] / "shared" / "data"
MODELS = (
    "claude-3-5-haiku-20241022",
    "claude-3-5-sonnet-20240620",
    "claude-3-5-sonnet-20241022",
    "gpt-4o-2024-11-20",
    "gpt-4o-mini-2024-07-18",
)


def real(name: str) -> Path:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"the real {name} is not at hand")
    return path


def read(path: Path) -> tuple[FirstPass, ...]:
    file = SourceFile.read(path)
    assert detected_format(file) == "graded"
    return read_first_passes(file, "graded", ReadOptions(dataset="czech_simpleqa"))


@pytest.mark.slow
def test_all_21630_czech_answers_are_counted_as_a_plain_count_of_their_grades_does():
    everything: list[FirstPass] = []
    for model in MODELS:
        path = real(f"czech_simpleqa/{model}.csv.gz")
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        plain = Counter(row["grade"] for row in rows)
        passes = read(path)
        (tally,) = tallies(passes)
        assert tally.model == model
        assert (tally.correct, tally.incorrect, tally.refused) == (plain["A"], plain["B"], plain["C"])
        assert (tally.unscored, tally.to_force) == (0, plain["C"])
        assert [one.reply for one in passes] == [row["predicted_answer"] for row in rows]
        everything += passes
    table = to_outcomes(everything)
    assert len(table) == 21_630
    assert table["question_id"].n_unique() == 4326, "every model was asked the same questions"


@pytest.mark.parametrize("condition", ["explicit", "implicit"])
def test_abstentions_on_squad_are_refusals_and_answers_are_not_graded(condition):
    path = real(f"squad2_refusal/{condition}_n500.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    summary = json.loads(real("squad2_refusal/summary_n500.json").read_text())[condition]
    (tally,) = tallies(read(path))
    assert tally.refused == sum(row["abstained"] for row in rows)
    assert tally.unscored == round(summary["answer_attempt_rate"] * 500), "the answerable that were answered"
    assert tally.incorrect == round(summary["hallucination_rate"] * 500), "the unanswerable that were answered"
    assert tally.to_force == sum(row["abstained"] and row["is_answerable"] for row in rows)
    assert tally.metrics == ()
    assert tally.variant == condition
