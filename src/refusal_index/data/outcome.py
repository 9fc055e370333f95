"""The records shared by all packages: a question, the grade of a reply, and the outcome of a question."""

from __future__ import annotations

import string
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """The grade of a reply.

    ``REFUSED`` is SimpleQA's NOT_ATTEMPTED. ``UNSCORED`` means that the grade is unknown: the reply was cut at the
    token limit or filtered, or the grader's answer cannot be read. Unscored replies are counted and reported, and are
    never refusals.
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    REFUSED = "refused"
    UNSCORED = "unscored"


REQUEST_FAILED = "request_failed"
"""`unscored_reason` of a question with a request that failed on every attempt."""

NOT_FINISHED = "not_finished"
"""`unscored_reason` of a question whose replies are not complete; resuming the run completes them."""

FORCED_NOT_ASKED = "forced_not_asked"
"""`unscored_reason` of a refused question without a forced pass: a first pass alone, an imported or a regraded one."""

NOT_GRADED = "first_not_graded"
"""`unscored_reason` of a question whose answer in the first pass has no grade."""

FLAGGED_ANSWER = "flagged_answer"
"""`reading` of a reply that a model function marked as an answer."""

UNCLEAR = "unclear"
"""`reading` of a reply that declines and also gives an answer, or that names no single choice."""

NO_SCORE = "no_score"
"""`unscored_reason` of a question in a thresholded run for which the confidence method gave no score."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The two passes over one question, graded."""

    refused: bool | None  # whether the first pass refused; None if it is unscored
    # Whether the answer is wrong: that of the first pass if it answered, else that of the forced pass. None if that
    # answer is unscored.
    wrong: bool | None
    # first_grade, forced_grade: grade of each pass; None for a pass that was not run
    first_grade: Grade | None = None
    forced_grade: Grade | None = None
    # why `refused` or `wrong` is None, such as ``"first_truncated"``; None if both are known
    unscored_reason: str | None = None
    # first_reply, forced_reply: the replies verbatim; None for a pass that was not run
    first_reply: str | None = None
    forced_reply: str | None = None
    # what the first reply was read as: ``"answer"``, ``"unclear"``, or how its refusal was recognised; None if unscored
    reading: str | None = None
    # how likely the answer that counts is right, in [0, 1], as a function or an imported table said it
    confidence: float | None = None


LETTERS = string.ascii_uppercase
"""Labels of the choices, in order; a question has at most 26."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answer, and what is shown with it."""

    question_id: str  # stable across versions of its file
    text: str  # as it is asked
    # The correct answer, without surrounding white space; one of the choices if there are any. None if no right answer
    # exists, for example because the context does not contain it: then every answer is wrong.
    gold: str | None
    aliases: tuple[str, ...] = ()  # other forms of the answer that the exact grader accepts
    # subject of the question, if known; in a mix of datasets, the name of its dataset
    topic: str | None = None
    context: str | None = None  # text that contains the answer; None if the question is asked on its own
    # the answers to choose from, labelled A, B, C and so on; empty for an open question
    choices: tuple[str, ...] = ()
    # regular expression that right answers match in full, for the grader ``regex``
    pattern: str | None = None
