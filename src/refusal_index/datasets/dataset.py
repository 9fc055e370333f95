"""A dataset and a sample of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

from refusal_index.outcomes.question import Question

GraderName = Literal["exact", "model"]
"""Who can tell right from wrong: a comparison of text, or a model that reads both answers."""


class DatasetError(ValueError):
    """A dataset cannot be used as asked; the message names the file and line, what was expected and what to do."""


@dataclass(frozen=True)
class Dataset:
    """Questions with their gold answers and where they came from.

    Attributes
    ----------
    name
        What the outcome table calls it.
    questions
        In the order of the source.
    sha256
        Of the source, byte for byte; a sample keeps it.
    source
        Where it was read from, in words.
    default_grader
        What its answers need to be graded unless the user says otherwise.
    licence
        Terms of the source, as far as known.
    """

    name: str
    questions: tuple[Question, ...]
    sha256: str
    source: str
    default_grader: GraderName
    licence: str


def sample(dataset: Dataset, limit: int, seed: int) -> Dataset:
    """Draw questions at random, the same ones for the same seed.

    Each question's lot is drawn from the seed and its id alone. So a smaller sample is part of a larger one of the same
    seed, and neither the order of the source nor questions added to it change which of the others comes first.

    Parameters
    ----------
    dataset
        To draw from.
    limit
        How many questions, from 1 to all of them.
    seed
        Of the draw.

    Returns
    -------
    Dataset
        With the drawn questions in the order of the source.

    Raises
    ------
    DatasetError
        If there are fewer questions than asked for.
    """
    size = len(dataset.questions)
    if not 1 <= limit <= size:
        raise DatasetError(
            f"limit: expected a number from 1 to {size}, the questions of {dataset.name!r}, got {limit}; "
            "leave the limit out to ask all of them"
        )
    drawn = set(sorted((question.question_id for question in dataset.questions), key=lambda x: _lot(seed, x))[:limit])
    return replace(dataset, questions=tuple(q for q in dataset.questions if q.question_id in drawn))


def _lot(seed: int, question_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{question_id}".encode()).digest()
