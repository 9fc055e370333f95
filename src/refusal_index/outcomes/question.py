"""What is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with its gold answer.

    Attributes
    ----------
    question_id
        Stable over versions of the file that it comes from.
    text
        The question as it is asked.
    gold
        The correct answer, without surrounding white space.
    aliases
        Other forms of the answer that the exact grader accepts.
    topic
        Subject of the question, where known.
    """

    question_id: str
    text: str
    gold: str
    aliases: tuple[str, ...] = ()
    topic: str | None = None
