"""What methods of confidence make scores of: the replies of a run, and those that were asked for beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from refusal_index.confidence.method import Answer
from refusal_index.engines.asks import ask_for
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.outcomes.outcome import Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol import (
    FORCED,
    Asked,
    Completion,
    Conversation,
    Due,
    ForcedPass,
    GraderKind,
    Pass,
    Procedure,
    Reply,
    Step,
    read_logprobs,
    read_reply,
)

OWN = "confidence"
"""In a run's folder: what confidence asked for."""

DRAWN_AGAIN = (pl.col("draw") > 0) & pl.col("first_reply").is_not_null()
"""Whether a row of a run's outcome table is a further draw that was replied to."""


@dataclass(frozen=True)
class Sources:
    """Where replies lie: those of the run, and those that confidence asked for.

    Attributes
    ----------
    run, own
        The stores.
    grader
        Who grades the answers.
    """

    run: ReplyStore
    own: ReplyStore
    grader: GraderKind

    def forced(self, question: Question) -> dict[int, Answer]:
        """Return the run's forced answers to a question, by draw."""
        return self._answers(self.run, question)

    def answer(self, question: Question) -> Answer | None:
        """Return the forced answer that is scored: one that was asked for beside the run goes before the run's."""
        own = self._answers(self.own, question).get(0)
        return own if own is not None else self.forced(question).get(0)

    def _answers(self, store: ReplyStore, question: Question) -> dict[int, Answer]:
        said = [one for one in store.standing(question.question_id, FORCED) if one.reply.of is Pass.FORCED]
        return self._graded(question, ForcedPass(self.grader), said)

    def probed(self, conversation: Conversation, said: Sequence[Completion]) -> list[Answer]:
        """Return the replies to a prompt of confidence's own, in the order of their draws."""
        return list(self._graded(conversation.question, conversation.procedure, said).values())

    def came_with_logprobs(self, prompt: str) -> bool:
        """Whether no reply to a prompt came without log probabilities: also where there is none yet."""
        probes = (one for one in self.own.replies() if one.reply.of is Pass.PROBE and one.variant == prompt)
        return all(one.logprobs is not None for one in probes if one.reply.asked is Asked.MODEL)

    def _graded(self, question: Question, procedure: Procedure, said: Sequence[Completion]) -> dict[int, Answer]:
        """Return the answers by draw; one whose verdict is still to come has no grade, and is there all the same."""
        own = {one.draw: one for one in said if one.reply.asked is Asked.MODEL}
        judged = {one.draw for one in said if one.reply.asked is not Asked.MODEL}
        first: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            first.setdefault(own[draw].reply, draw)
        found = {}
        for draw in sorted(own):
            graded = first[own[draw].reply]
            verdicts = [one.reply for one in said if one.reply.asked is not Asked.MODEL and one.draw == graded]
            became = procedure.step(question, [own[draw].reply, *verdicts])
            wrong = became.wrong if isinstance(became, Outcome) else None
            found[draw] = _answer(own[draw], wrong, with_logprobs=draw == 0 or own[draw].reply.of is Pass.PROBE)
        return found


def current(settings: Settings, conversation: Conversation, own: ReplyStore) -> list[Completion]:
    """Return what was said in a conversation to the very requests that it asks now; nothing where they were others.

    Parameters
    ----------
    settings
        Those that it is asked with.
    conversation, own
        What it is about, and the replies that confidence asked for.
    """
    passes = conversation.procedure.passes
    said = [one for one in own.said(conversation.question.question_id, conversation.variant) if one.reply.of in passes]
    probes = [one for one in said if one.reply.of is Pass.PROBE and one.reply.asked is Asked.MODEL]
    return said if all(_is_reply_to(settings, conversation, one, own) for one in probes) else []


def _is_reply_to(settings: Settings, conversation: Conversation, one: Completion, own: ReplyStore) -> bool:
    if one.request_sha256 is None:
        return True
    place, step = (one.question_id, one.variant, Pass.PROBE, Asked.MODEL), Step(Pass.PROBE, Asked.MODEL)
    # A draw that came as a choice of a response has the request of the first of them.
    return any(
        one.request_sha256 == ask_for(settings, conversation, Due(step, draw), own.times_retired(*place, draw)).sha256
        for draw in dict.fromkeys((one.draw, *range(one.draw)))
    )


def further_refusals(outcomes: pl.DataFrame) -> dict[str, dict[str, list[bool]]]:
    """Return whether the further draws of first passes refused, by variant and question id, where that is known.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    """
    drawn = outcomes.filter(pl.col("draw") > 0).drop_nulls("refused").sort("draw")
    found: dict[str, dict[str, list[bool]]] = {}
    for variant, question_id, refused in drawn.select("variant", "question_id", "refused").iter_rows():
        found.setdefault(variant, {}).setdefault(question_id, []).append(refused)
    return found


def _answer(one: Completion, wrong: bool | None, *, with_logprobs: bool) -> Answer:
    text = read_reply(one.reply.text, one.reply.stop_reason).answer
    try:
        logprobs = read_logprobs(one.logprobs) if with_logprobs else None
    except ValueError as error:
        raise StoreError(f"question {one.question_id}: {error}; restore the store of replies from a copy") from error
    return Answer(text, one.reply.text, wrong, logprobs, one.reply.stop_reason)
