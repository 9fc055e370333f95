"""Questions of a run that are also worked examples of its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.findings.metrics import Statement

MANY = 0.01
"""The share of the questions from which the caveat is serious."""


def example_statements(asked: Sequence[Sequence[object]], questions: int) -> Iterator[Statement]:
    """State which questions the prompts answer in a worked example.

    - `asked`: the number of each such example, and the question.
    - `questions`: the number of all questions.
    """
    if asked:
        are_many = len(asked) >= MANY * questions
        values = {"asked": [tuple(pair) for pair in asked], "questions": questions}
        yield Statement("example_asked", "serious" if are_many else "note", values)
