"""What became of one question under one prompt."""

from __future__ import annotations

from dataclasses import dataclass

from refusal_index.outcomes.grade import Grade

REQUEST_FAILED = "request_failed"
"""Reason of a question that a request about could not be answered, however often it was sent."""

NOT_FINISHED = "not_finished"
"""Reason of a question that was asked for, and of which a reply is still to come: the run's own command asks for it."""

FORCED_NOT_ASKED = "forced_not_asked"
"""Reason of a refused question whose forced answer nobody asked for: a first pass of elsewhere, or graded anew."""

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
    # first_reply, forced_reply: what the model said, word for word; None for a pass that was not asked
    first_reply: str | None = None
    forced_reply: str | None = None
