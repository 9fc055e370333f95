"""Question to Inspect sample and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inspect_ai.dataset import MemoryDataset, Sample

from refusal_index.outcomes.question import Question


def to_dataset(name: str, questions: Iterable[Question]) -> MemoryDataset:
    """Return the questions as an Inspect dataset."""
    return MemoryDataset([_to_sample(question) for question in questions], name=name)


def to_question(sample_id: object, text: str, gold: str, metadata: dict[str, Any]) -> Question:
    """Return the question of a sample, from its parts as the task state and the log both hold them."""
    return Question(str(sample_id), text, gold, tuple(metadata.get("aliases", ())), metadata.get("topic"))


def _to_sample(question: Question) -> Sample:
    known: dict[str, Any] = {"topic": question.topic, "aliases": list(question.aliases)}
    return Sample(
        id=question.question_id,
        input=question.text,
        target=question.gold,
        metadata={key: value for key, value in known.items() if value},
    )
