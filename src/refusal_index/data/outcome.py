"""The three records that everything shares: a question, the grade of a reply, and the outcome."""

from __future__ import annotations

import string
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """What a reply was worth.

    ``REFUSED`` is SimpleQA's NOT_ATTEMPTED. ``UNSCORED`` means that it is not known: a reply cut at the token limit, a
    content filter, a grade that cannot be read. It is counted and shown, and is never a refusal.
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    REFUSED = "refused"
    UNSCORED = "unscored"


REQUEST_FAILED = "request_failed"
"""Reason of a question that a request about could not be answered, however often it was sent."""

NOT_FINISHED = "not_finished"
"""Reason of a question that was asked for, and of which a reply is still to come: the run's own command asks for it."""

FORCED_NOT_ASKED = "forced_not_asked"
"""Reason of a refused question whose forced answer nobody asked for: a first pass of elsewhere, or regraded."""

NO_SCORE = "no_score"
"""Reason of a question in a run that answers by a score, where the method gave none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The two passes over one question, graded."""

    refused: bool | None  # whether the first pass refused; None while it is unscored
    # Whether the answer that counts is wrong: the first pass where it answered, the forced pass where it refused. None
    # while that answer is unscored.
    wrong: bool | None
    # first_grade, forced_grade: grade of each pass; None for a pass that was not asked
    first_grade: Grade | None = None
    forced_grade: Grade | None = None
    # why `refused` or `wrong` is None, for instance ``"first_truncated"``; None when both are known
    unscored_reason: str | None = None
    # first_reply, forced_reply: the replies, word for word; None for a pass that was not asked
    first_reply: str | None = None
    forced_reply: str | None = None


LETTERS = string.ascii_uppercase
"""What choices are called, in their order; so there are 26 of them at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answer, and whatever is shown along with it."""

    question_id: str  # stable over versions of the file that it comes from
    text: str  # the question as it is asked
    # The correct answer, without surrounding white space: one of the choices where there are such. None where no right
    # answer exists, as when the context does not tell: then every answer is wrong.
    gold: str | None
    aliases: tuple[str, ...] = ()  # other forms of the answer that the exact grader accepts
    # subject of the question, where known; in a mix of datasets, the name of the one it comes from
    topic: str | None = None
    context: str | None = None  # text that the answer is to be taken from; None for a question asked on its own
    # the answers to choose from, which are called A, B, C and so on; empty for an open question
    choices: tuple[str, ...] = ()
    # regular expression that right answers match from end to end, for the grader that goes by it
    pattern: str | None = None
