"""Replies of a run as answers: those of its own passes, and those that confidence methods asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.data.outcome import Outcome, Question
from refusal_index.plugins.confidence.method import Answer
from refusal_index.protocol import (
    AUXILIARY,
    FORCED,
    Completion,
    ForcedPass,
    GraderKind,
    Pass,
    Procedure,
    Reply,
    Role,
    read_logprobs,
    read_reply,
)
from refusal_index.runs.store import ReplyStore, StoreError

FORCED_ANSWER = f"{AUXILIARY}{FORCED}"
"""The variant of forced answers that methods asked for, since the run has none or none with log probabilities."""


@dataclass(frozen=True)
class Replies:
    """Reads answers from the replies of a run.

    Attributes
    ----------
    store
        The run's.
    grader
        Who grades the answers.
    """

    store: ReplyStore
    grader: GraderKind

    def forced(self, question: Question, variant: str = FORCED) -> dict[int, Answer]:
        """Return the forced answers to a question by draw: the run's own, unless `variant` is `FORCED_ANSWER`."""
        completions = self.store.effective_completions(question.question_id, variant)
        return self.answers(question, ForcedPass(self.grader), [one for one in completions if _is_forced(one)])

    def scored(self, question: Question) -> Answer | None:
        """Return the forced answer that is scored: one that methods asked for, or else the run's own."""
        return self.forced(question, FORCED_ANSWER).get(0) or self.forced(question).get(0)

    def answers(self, question: Question, procedure: Procedure, completions: Sequence[Completion]) -> dict[int, Answer]:
        """Return answers by draw, without a grade while a verdict is missing."""
        own = {one.draw: one for one in completions if one.reply.role is Role.MODEL}
        verdicts = [one for one in completions if one.reply.role is not Role.MODEL]
        judged = {one.draw for one in verdicts}
        graded: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            graded.setdefault(own[draw].reply, draw)
        found = {}
        for draw, one in sorted(own.items()):
            on_it = [verdict.reply for verdict in verdicts if verdict.draw == graded[one.reply]]
            outcome = procedure.step(question, [one.reply, *on_it])
            found[draw] = _answer(one, outcome.wrong if isinstance(outcome, Outcome) else None)
        return found


def _is_forced(one: Completion) -> bool:
    return one.reply.pass_ is Pass.FORCED


def _answer(one: Completion, wrong: bool | None) -> Answer:
    has_logprobs = one.draw == 0 or not _is_forced(one)  # no method reads those of further forced answers
    try:
        logprobs = read_logprobs(one.logprobs) if has_logprobs else None
    except ValueError as error:
        raise StoreError(f"question {one.question_id}: {error}; restore the store of replies from a copy") from error
    text = read_reply(one.reply.text, one.reply.stop_reason).answer
    return Answer(text, one.reply.text, wrong, logprobs, one.reply.stop_reason)
