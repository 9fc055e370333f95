"""Counts of how a run's replies are read and graded, for the checks of its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.findings.reply_checks import ReplyChecks
from refusal_index.protocol.comparison import includes
from refusal_index.protocol.grading import accepted_answers
from refusal_index.protocol.messages import Completion
from refusal_index.protocol.procedure import TwoPass
from refusal_index.protocol.reading import ReadAs, Reading, StopReason, read_reply

COUNTS = tuple(field.name for field in fields(ReplyChecks) if field.name != "refusals")
"""What is counted: the fields of `ReplyChecks`."""


class ReplyCounter:
    """Counts how replies are read and graded, over the first draws of a variant.

    Parameters
    ----------
    procedure
        The procedure that interprets the replies.
    """

    def __init__(self, procedure: TwoPass) -> None:
        self._procedure = procedure
        self._refusals = Counter[str]()
        self._counts = Counter[str](dict.fromkeys(COUNTS, 0))

    def add(self, question: Question, outcome: Outcome) -> None:
        """Count the outcome of one question."""
        if outcome.refused and outcome.reading is not None:
            self._refusals[outcome.reading] += 1
        elif outcome.refused is False and outcome.first_reply is not None:
            is_flagged = outcome.reading == ReadAs.FLAGGED_ANSWER
            reading = self._read(question, outcome.first_reply, StopReason.ANSWER if is_flagged else StopReason.STOP)
            self._counts.update(
                answers=1,
                untagged=not reading.is_tagged,
                unclear=outcome.reading == ReadAs.UNCLEAR,
                unread_choices=self._is_read and bool(question.choices) and reading.choice is None,
            )
        reply = outcome.forced_reply if outcome.refused else outcome.first_reply
        grade = outcome.forced_grade if outcome.refused else outcome.first_grade
        if self._is_read and outcome.wrong and grade is Grade.INCORRECT and reply is not None:
            text = self._read(question, reply).answer
            has_gold = any(includes(gold, text, question.text) for gold in accepted_answers(question))
            self._counts.update(wrong=1, wrong_with_gold=has_gold)

    def add_filtered(self, completions: Iterable[Completion]) -> None:
        """Count the replies from which a key of the run was removed."""
        self._counts["filtered"] += sum(completion.filtered for completion in completions)

    def _read(self, question: Question, reply: str, stop_reason: StopReason = StopReason.STOP) -> Reading:
        return read_reply(
            reply, question.text, question.choices, stop_reason=stop_reason, refusals=self._procedure.rule
        )

    @property
    def _is_read(self) -> bool:
        """Whether replies are read before they are graded, by a rule or a function, and not by a grading model."""
        return self._procedure.rule.reads_choices

    @property
    def checks(self) -> ReplyChecks:
        """The counts so far."""
        unknown: dict[str, Any] = {} if self._is_read else {"wrong": None, "wrong_with_gold": None}
        return ReplyChecks(dict(sorted(self._refusals.items())), **{**self._counts, **unknown})
