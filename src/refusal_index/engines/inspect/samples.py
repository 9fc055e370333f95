"""Question to Inspect sample and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inspect_ai.dataset import MemoryDataset, Sample

from refusal_index.outcomes.question import Question
from refusal_index.protocol import Conversation

NO_GOLD = "no_gold"
"""Marks the sample of a question without a right answer: Inspect wants a target of every sample."""


def to_dataset(name: str, conversations: Iterable[Conversation]) -> MemoryDataset:
    """Return the questions of conversations as an Inspect dataset."""
    return MemoryDataset([to_sample(one.question, one.draws) for one in conversations], name=name)


def to_sample(question: Question, draws: int = 1) -> Sample:
    """Return a question as a sample of Inspect's."""
    known: dict[str, Any] = {
        "topic": question.topic,
        "aliases": list(question.aliases),
        "context": question.context,
        "choices": list(question.choices),
        "pattern": question.pattern,
        NO_GOLD: question.gold is None,
        "draws": draws if draws > 1 else None,
    }
    return Sample(
        id=question.question_id,
        input=question.text,
        target=question.gold or "",
        metadata={key: value for key, value in known.items() if value},
    )


def to_question(sample_id: object, text: str, gold: str, metadata: Mapping[str, Any]) -> Question:
    """Return the question of a sample, from its parts as the task state and the log both hold them."""
    return Question(
        str(sample_id),
        text,
        None if metadata.get(NO_GOLD) else gold,
        tuple(metadata.get("aliases", ())),
        metadata.get("topic"),
        metadata.get("context"),
        tuple(metadata.get("choices", ())),
        metadata.get("pattern"),
    )
