"""A dataset, a sample of it, and a mix of several."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from heapq import nsmallest
from itertools import zip_longest
from operator import itemgetter
from typing import Literal

from refusal_index.data.errors import TableError
from refusal_index.data.outcome import Question
from refusal_index.data.text import wrong_id

FIELDS = tuple(field.name for field in fields(Question))
ALWAYS = frozenset({"question_id", "text", "gold", "aliases", "topic"})
"""Fields of a question that count in its hash whether they are used or not."""

GraderName = Literal["exact", "choice", "model"]
"""Who can tell right from wrong: a comparison of text or of choices, or a model that reads both answers."""


class DatasetError(TableError):
    """A dataset or a file of questions that cannot be used; the message names the file and line."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """Questions with their gold answers and where they came from."""

    name: str  # what the outcome table calls it
    questions: tuple[Question, ...]  # in the order of the source
    sha256: str  # of the source, byte for byte; a sample keeps it
    source: str  # where it was read from, in words
    default_grader: GraderName  # what its answers need to be graded unless the user says otherwise
    licence: str  # terms of the source, as far as known
    # in a mix, the names of the datasets that it mixes; each question's topic says which one it comes from
    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is worth knowing about it before it is asked

    def __post_init__(self) -> None:
        for question in self.questions:  # so that nothing is paid for what could not be kept
            if (message := wrong_id(question.question_id)) is not None:
                raise DatasetError(f"{self.name}, question_id: {message}")

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self.questions)} questions)"

    @property
    def questions_sha256(self) -> str:
        """SHA-256 of the questions as they were read: the same file with another column for the answer has another.

        Fields that a question does not use do not count, so that a release may add some.
        """
        return questions_sha256(self.questions)


def questions_sha256(questions: Iterable[Question]) -> str:
    """Return the checksum of questions, as `Dataset.questions_sha256` has it: that of a JSON list of them."""
    digest = hashlib.sha256(b"[")
    for number, question in enumerate(questions):
        read = {name: getattr(question, name) for name in FIELDS}
        used = {name: value for name, value in read.items() if name in ALWAYS or value}
        digest.update(f"{', ' if number else ''}{json.dumps(used)}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def sample(dataset: Dataset, limit: int, seed: int) -> Dataset:
    """Draw questions at random, the same ones for the same seed.

    Each question's lot is drawn from the seed and its id alone. So a smaller sample is part of a larger one of the same
    seed, and neither the order of the source nor questions added to it change which of the others comes first. Raises
    DatasetError if there are fewer questions than asked for.

    - `dataset`: to draw from.
    - `limit`: how many questions, from 1 to all of them; of a mix, as many from each of its parts.
    - `seed`: of the draw.
    - returned: with the drawn questions in the order of the source.
    """
    if not dataset.parts:
        return replace(dataset, questions=drawn(dataset.questions, limit, seed, dataset.name))
    _check_limit(limit, len(dataset.questions), dataset.name)
    by_lot = sorted(dataset.questions, key=lambda question: _lot(seed, question.question_id))
    by_part = [[question for question in by_lot if question.topic == part] for part in dataset.parts]
    in_turns = [question for turn in zip_longest(*by_part) for question in turn if question is not None]
    taken = {question.question_id for question in in_turns[:limit]}
    return replace(dataset, questions=tuple(q for q in dataset.questions if q.question_id in taken))


def drawn(questions: Iterable[Question], limit: int, seed: int, name: str) -> tuple[Question, ...]:
    """Draw questions as `sample` does, and hold no others while they are read.

    - `questions`: in the order of the source.
    - `limit`, `seed`: as for `sample`.
    - `name`: of the dataset, for messages.
    """
    size = 0

    def lots() -> Iterator[tuple[bytes, int, Question]]:
        nonlocal size
        for question in questions:
            size += 1
            yield _lot(seed, question.question_id), size, question

    least = nsmallest(max(limit, 1), lots(), key=itemgetter(0, 1))
    _check_limit(limit, size, name)
    return tuple(question for _, _, question in sorted(least, key=itemgetter(1)))


def _check_limit(limit: int, size: int, name: str) -> None:
    if not 1 <= limit <= size:
        raise DatasetError(
            f"limit: expected a number from 1 to {size}, the questions of {name!r}, got {limit}; "
            "leave the limit out to ask all of them"
        )


def _lot(seed: int, question_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{question_id}".encode()).digest()


SIGN = "+"
"""Joins the names of the parts."""


def mix(datasets: Sequence[Dataset], seed: int) -> Dataset:
    """Draw as many questions from each dataset as the smallest one has, taking turns.

    Raises DatasetError if there are fewer than two datasets, or two of the same name.

    - `datasets`: two or more, of different names.
    - `seed`: of the draw; the questions of a dataset are drawn as `sample` draws them.
    - returned: its questions have their dataset's name as `topic` and before their id.

    >>> few = Dataset("few", (Question("1", "Who?", "Ann"),), "", "made up", "exact", "none")
    >>> many = Dataset("many", tuple(Question(str(n), f"{n}?", str(n)) for n in range(9)), "", "", "exact", "none")
    >>> mixed = mix([few, many], seed=0)
    >>> mixed.name, [question.topic for question in mixed.questions]
    ('few+many', ['few', 'many'])
    """
    names = tuple(dataset.name for dataset in datasets)
    if len(set(names)) < max(2, len(names)):
        raise DatasetError(f"mix: expected two or more datasets of different names, got {', '.join(names) or 'none'}")
    size = min(len(dataset.questions) for dataset in datasets)
    drawn = [
        [
            replace(question, question_id=f"{dataset.name}/{question.question_id}", topic=dataset.name)
            for question in sample(dataset, size, seed).questions
        ]
        for dataset in datasets
    ]
    graders = {dataset.default_grader for dataset in datasets}
    return Dataset(
        name=SIGN.join(names),
        questions=tuple(question for turn in zip(*drawn, strict=True) for question in turn),
        sha256=hashlib.sha256("".join(dataset.sha256 for dataset in datasets).encode()).hexdigest(),
        source="; ".join(f"{dataset.name}: {dataset.source}" for dataset in datasets),
        default_grader=graders.pop() if len(graders) == 1 else "model",
        licence="; ".join(f"{dataset.name}: {dataset.licence}" for dataset in datasets),
        parts=names,
    )
