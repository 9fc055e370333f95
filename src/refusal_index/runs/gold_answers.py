"""Gold answers that decline to answer: such a question has no right answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from refusal_index.data.datasets import Dataset
from refusal_index.data.datasets.dataset import declining_note
from refusal_index.data.outcome import Question
from refusal_index.protocol.wording import Says, read_wording


def declines(text: str, question: str = "") -> bool:
    """Whether a gold answer declines to answer, as in "not enough information".

    - `text`, `question`: the gold answer, and the question's text, which tells the language of a short answer.

    >>> declines("unanswerable"), declines("Lima")
    (True, False)
    """
    return read_wording(text, question).says is Says.REFUSAL


def declining_notes(questions: Iterable[Question]) -> tuple[str, ...]:
    """Return a warning about gold answers that decline, if there are any."""
    with_gold = (question for question in questions if question.gold is not None)
    declining = [question for question in with_gold if declines(question.gold or "", question.text)]
    if not declining:
        return ()
    first = declining[0]
    return (declining_note(len(declining), f"question {first.question_id!r}", first.gold or ""),)


def without_declining_gold(question: Question) -> Question:
    """Return a question, with no gold answer if it declines.

    >>> without_declining_gold(Question("q", "Who was it?", "unanswerable")).gold is None
    True
    """
    is_declining = question.gold is not None and declines(question.gold, question.text)
    return replace(question, gold=None, aliases=()) if is_declining else question


def with_answerable(dataset: Dataset) -> Dataset:
    """Return a dataset whose questions have no gold answer where it declines, and a note about them.

    Refusing such a question is right, and every answer to it is wrong.
    """
    questions = tuple(map(without_declining_gold, dataset.questions))
    if questions == dataset.questions:
        return dataset
    return replace(dataset, questions=questions, notes=(*dataset.notes, *declining_notes(dataset.questions)))
