"""Precision and recall of the refusal detector on graded replies of real models: `python -m benchmarks.refusals`.

The replies are in `../shared/data`, which is not part of this repository. Half of the questions, chosen by a hash of
their text, were used to write the patterns; figures are for the other half, or the first with `--half written`. The
labels come with the data: in Czech SimpleQA, GPT-4o's grade, where `C` is "not attempted"; in the SQuAD 2.0 replies,
the rules of the project that published them. For BixBench the replies are the choices, one of which declines.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from refusal_index.data import Question
from refusal_index.protocol.replies import refuses

DATA = Path(__file__).parents[2] / "shared" / "data"
LANGUAGES = {"czech_simpleqa": "Czech", "squad2_refusal": "English", "bixbench": "English"}


@dataclass(frozen=True)
class Labelled:
    """A reply with its question, and whether it is labelled as a refusal."""

    source: str
    question: Question
    reply: str
    refused: bool

    @property
    def is_held_out(self) -> bool:
        """Whether the reply was not used to write the patterns."""
        return hashlib.sha256(self.question.text.encode()).digest()[0] % 2 == 1


def replies(data: Path = DATA) -> Iterator[Labelled]:
    """Read the labelled replies in the folder `data`; missing files are skipped."""
    for path in sorted((data / "czech_simpleqa").glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                question = Question("q", row["problem"], row["target"])
                yield Labelled(
                    f"czech_simpleqa/{path.name[:-7]}", question, row["predicted_answer"], row["grade"] == "C"
                )
    for path in sorted((data / "squad2_refusal").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            gold, *aliases = dict.fromkeys(row["gold_answers"]) or [None]
            question = Question("q", row["question"], gold, aliases=tuple(aliases))
            yield Labelled(f"squad2_refusal/{path.stem}", question, row["model_output"], row["abstained"])
    for path in sorted((data / "bixbench").glob("bixbench*_refusal_True_*.csv")):
        with path.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                for letter, choice in ((choice[1], choice[4:]) for choice in ast.literal_eval(row["choices"])):
                    question = Question("q", row["question"], None)
                    yield Labelled("bixbench/choices", question, choice, letter == row["unsure"])


@dataclass(frozen=True)
class Score:
    """Counts of replies, labelled and recognised refusals, and replies that are both."""

    replies: int
    refusals: int
    recognised: int
    both: int

    @property
    def precision(self) -> float:
        """Share of the recognised refusals that are labelled as refusals."""
        return self.both / self.recognised if self.recognised else float("nan")

    @property
    def recall(self) -> float:
        """Share of the labelled refusals that are recognised."""
        return self.both / self.refusals if self.refusals else float("nan")


def score(labelled: Iterable[Labelled]) -> dict[str, Score]:
    """Score the replies of each source and of each data set."""
    counts: dict[str, Counter[tuple[bool, bool]]] = {}
    for one in labelled:
        cell = one.refused, refuses(one.reply, one.question)
        folder = one.source.partition("/")[0]
        for name in (one.source, f"{folder} ({LANGUAGES[folder]})"):
            counts.setdefault(name, Counter())[cell] += 1
    return {
        name: Score(
            cells.total(),
            cells[True, True] + cells[True, False],
            cells[True, True] + cells[False, True],
            cells[True, True],
        )
        for name, cells in sorted(counts.items())
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("held-out", "written"), default="held-out")
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parser.parse_args()
    held_out = arguments.half == "held-out"
    print("| replies | | labelled refusals | recognised | precision | recall |\n|---|---|---|---|---|---|")
    for name, found in score(one for one in replies(arguments.data) if one.is_held_out == held_out).items():
        print(
            f"| {name} | {found.replies:,} | {found.refusals:,} | {found.recognised:,} "
            f"| {found.precision:.3f} | {found.recall:.3f} |"
        )


if __name__ == "__main__":
    main()
