"""The grade of one reply."""

from __future__ import annotations

from enum import StrEnum


class Grade(StrEnum):
    """What a reply was worth.

    ``REFUSED`` is SimpleQA's NOT_ATTEMPTED. ``UNSCORED`` says that nobody knows: a reply cut at the token limit, a
    content filter, a grade that cannot be read. It is counted and shown, and is never a refusal.
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    REFUSED = "refused"
    UNSCORED = "unscored"
