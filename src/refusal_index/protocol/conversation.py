"""A question under one variant, over all of its draws.

`next_requests` applies its procedure in whatever order replies arrive and however often a run was interrupted;
`outcomes` derives results from the same replies.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.protocol.messages import PASSES, TWO_PASSES, Completion, Pass, Reply, Role
from refusal_index.protocol.procedure import REFUSAL, Procedure
from refusal_index.protocol.reading import (
    REPLY_REASONS,
)
from refusal_index.protocol.steps import GRADE_REASONS, Step

BEFORE: dict[Pass, tuple[Reply, ...]] = {Pass.FIRST: (), Pass.FORCED: (REFUSAL,), Pass.PROBE: ()}
"""Replies that stand for the first pass when a pass is examined by itself."""

ASKED_AGAIN = tuple(f"{pass_}_{reason}" for pass_ in TWO_PASSES for reason in (*REPLY_REASONS, *GRADE_REASONS))
"""Reasons for unscored questions that another reply or verdict may score."""


@dataclass(frozen=True)
class PendingRequest:
    """An unanswered request, before its messages are built.

    Attributes
    ----------
    step
        The step to take.
    draw
        Its first draw, from 0.
    n
        Number of consecutive draws that the choices of one response may answer.
    """

    step: Step
    draw: int = 0
    n: int = 1


@dataclass(frozen=True)
class Conversation:
    """A question under one variant.

    Attributes
    ----------
    question, variant
        The question, and the wording of its first pass.
    procedure
        Determines the order of requests.
    draws
        How often the question is sampled. If it is more than once, each draw goes through both passes, even if the
        first did not refuse.
    seed
        Seed of its requests; None to derive it from the run's seed and the request.
    """

    question: Question
    variant: str
    procedure: Procedure
    draws: int = 1
    seed: int | None = None

    @property
    def in_turn(self) -> bool:
        """Whether the forced pass is requested only after the first one refused."""
        return self.draws == 1 and self.procedure.asks_model


class _Transcript:
    """The replies about one question, by pass and draw."""

    def __init__(self, conversation: Conversation, completions: Iterable[Completion]) -> None:
        self.own: dict[Pass, dict[int, Reply]] = {pass_: {} for pass_ in PASSES}
        self._verdicts: dict[tuple[Pass, int], list[Completion]] = {}
        for completion in completions:
            pass_ = completion.reply.pass_
            draw = completion.draw
            if draw >= conversation.draws:
                continue  # of another variant with more draws
            if completion.reply.role is Role.MODEL:
                self.own[pass_][draw] = completion.reply
            else:
                self._verdicts.setdefault((pass_, draw), []).append(completion)

    @cached_property
    def graded_draw(self) -> dict[Pass, dict[Reply, int]]:
        """The draw in which each distinct reply is graded."""
        draws: dict[Pass, dict[Reply, int]] = {pass_: {} for pass_ in PASSES}
        for pass_, replies in self.own.items():
            for draw in sorted(replies, key=lambda draw: ((pass_, draw) not in self._verdicts, draw)):
                draws[pass_].setdefault(replies[draw], draw)
        return draws

    def graded(self, pass_: Pass, reply: Reply) -> list[Reply]:
        """Return a reply and the verdicts on it: a reply that occurs in several draws is graded in one of them.

        That is the first draw, or the first one with a verdict: an earlier draw that is asked again may bring the same
        reply.
        """
        if not self._verdicts:
            return [reply]
        verdicts = self._verdicts.get((pass_, self.graded_draw[pass_][reply]), ())
        return [
            reply,
            *(verdict.reply for verdict in sorted(verdicts, key=lambda verdict: (verdict.reply.role, verdict.attempt))),
        ]

    def is_as_first(self, pass_: Pass, draw: int) -> bool:
        """Whether a draw is the first, or has the same reply, which is judged only once."""
        return self.own[pass_].get(draw) == self.own[pass_].get(0)

    def in_draw(self, draw: int) -> list[Reply]:
        """Return all replies and verdicts of one draw."""
        return [
            reply for pass_ in PASSES if draw in self.own[pass_] for reply in self.graded(pass_, self.own[pass_][draw])
        ]


def next_requests(conversation: Conversation, completions: Iterable[Completion]) -> list[PendingRequest]:
    """Return the next requests; none if every draw has its outcome.

    Parameters
    ----------
    conversation
        The question and its procedure.
    completions
        All replies about the question so far: to its first passes under this variant, and to its forced passes.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> [one.step.pass_ for one in next_requests(talk, [])]
    [<Pass.FIRST: 'first'>]
    >>> next_requests(talk, [Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "<answer>Lima</answer>"))])
    []
    """
    used, step = _used_and_step(conversation, completions)
    if step is None:
        replies = _Transcript(conversation, used)
        return [
            request
            for pass_ in conversation.procedure.passes
            for request in _pending_of_pass(conversation, pass_, replies)
        ]
    return [] if isinstance(step, Outcome) else [PendingRequest(step)]


def outcomes(conversation: Conversation, completions: Iterable[Completion]) -> list[Outcome] | None:
    """Return the outcomes of all draws, in order; None while a reply is missing."""
    derived = completions_and_outcomes(conversation, completions)[1]
    return derived if len(derived) == conversation.draws else None


def completions_and_outcomes(
    conversation: Conversation, completions: Iterable[Completion]
) -> tuple[list[Completion], list[Outcome]]:
    """Return the replies that determine outcomes, and the outcomes of the draws before the first unfinished one."""
    used, step = _used_and_step(conversation, completions)
    if step is None:
        return used, list(_outcome_of_each_draw(conversation, _Transcript(conversation, used)))
    return used, [step] if isinstance(step, Outcome) else []


def replies_by_draw(conversation: Conversation, completions: Iterable[Completion]) -> dict[int, list[Reply]]:
    """Return the replies and verdicts of each draw; a reply that occurs in several draws is graded in one of them."""
    transcript = _Transcript(conversation, completions)
    return {
        draw: transcript.in_draw(draw)
        for draw in sorted({draw for replies in transcript.own.values() for draw in replies})
    }


def _outcome_of_each_draw(conversation: Conversation, transcript: _Transcript) -> Iterator[Outcome]:
    by_replies: dict[tuple[Reply | None, ...], Outcome] = {}  # draws with the same replies have the same outcome
    for draw in range(conversation.draws):
        replies = tuple(transcript.own[pass_].get(draw) for pass_ in PASSES)
        if not any(replies):
            return
        if replies not in by_replies:
            is_first = transcript.is_as_first(Pass.FIRST, draw)
            result = _step_of_draw(
                conversation, transcript.in_draw(draw), is_first=is_first, force_answered=conversation.draws > 1
            )
            if isinstance(result, Step):
                return
            by_replies[replies] = result
        yield by_replies[replies]


def partial_outcome(conversation: Conversation, completions: Iterable[Completion], reason: str) -> Outcome:
    """Return the outcome of an unfinished first draw: unscored, with `reason`, unless the first pass answered.

    Parameters
    ----------
    conversation, completions
        As for `next_requests`.
    reason
        Why it has no grade.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> partial_outcome(talk, [], "not_finished").refused is None
    True
    >>> refused = Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>"))
    >>> partial_outcome(talk, [refused], "not_finished").refused
    True
    """
    transcript = _Transcript(conversation, completions)
    first, forced = (transcript.own[pass_].get(0) for pass_ in TWO_PASSES)
    asks_first = conversation.procedure.asks_first
    outcome = Outcome(None if asks_first else True, None)
    if first is not None:
        step = conversation.procedure.first_pass(conversation.question, transcript.graded(Pass.FIRST, first))
        outcome = step if isinstance(step, Outcome) else Outcome(None, None)
    if outcome.wrong is not None:
        return outcome  # it answered: only the forced answer is missing, which does not count
    refused = outcome.refused
    return Outcome(
        refused=refused,
        wrong=None,
        first_grade=None if first is None else Grade.REFUSED if refused else Grade.UNSCORED,
        forced_grade=None if forced is None else Grade.UNSCORED,
        unscored_reason=reason,
        first_reply=None if first is None else first.text,
        forced_reply=None if forced is None else forced.text,
        reading=outcome.reading,
    )


def used_completions(conversation: Conversation, completions: Iterable[Completion]) -> list[Completion]:
    """Return the replies that determine the outcomes, without forced answers that only other variants needed.

    Parameters
    ----------
    conversation, completions
        As for `next_requests`.
    """
    return _used_and_step(conversation, completions)[0]


def _used_and_step(
    conversation: Conversation, completions: Iterable[Completion]
) -> tuple[list[Completion], Step | Outcome | None]:
    """Return the replies that determine the outcomes and, if the passes are in turn, the next step or the outcome."""
    replies = [completion for completion in completions if completion.draw < conversation.draws]
    if not conversation.in_turn:
        return replies, None
    unforced = [completion for completion in replies if completion.reply.pass_ is not Pass.FORCED]
    step = _step(conversation, unforced)
    if len(unforced) < len(replies) and isinstance(step, Step) and step.pass_ is Pass.FORCED:
        return replies, _step(conversation, replies)
    return unforced, step


def _step(conversation: Conversation, replies: Iterable[Completion]) -> Step | Outcome:
    """Return the next step of a question with a single draw, or its outcome."""
    return conversation.procedure.step(conversation.question, _Transcript(conversation, replies).in_draw(0))


def completions_to_retire(
    conversation: Conversation, completions: Iterable[Completion], reasons: Container[str]
) -> list[Completion]:
    """Return the replies to set aside so that draws that are unscored for some reasons are asked again.

    If a reply could not be graded, that is the reply; if its graders could not grade it, their verdicts.

    Parameters
    ----------
    conversation, completions
        As for `next_requests`.
    reasons
        Some of `ASKED_AGAIN`; other reasons are ignored, because no new reply would help.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> empty = Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, ""))
    >>> completions_to_retire(talk, [empty], {"first_empty"}) == [empty]
    True
    """
    replies = used_completions(conversation, completions)
    transcript = _Transcript(conversation, replies)
    retired: dict[Completion, None] = {}
    for draw, outcome in enumerate(outcomes(conversation, replies) or ()):
        reason = outcome.unscored_reason
        if reason not in reasons or reason not in ASKED_AGAIN:
            continue
        pass_ = Pass(reason.partition("_")[0])
        kind = reason.partition("_")[2]
        by_model = kind in REPLY_REASONS
        if by_model and not conversation.procedure.asks_model:
            continue  # the model would not be asked again
        target = (pass_, by_model, draw if by_model else transcript.graded_draw[pass_][transcript.own[pass_][draw]])
        retired |= dict.fromkeys(
            completion
            for completion in replies
            if (completion.reply.pass_, completion.reply.role is Role.MODEL, completion.draw) == target
        )
    return list(retired)


def _pending_of_pass(conversation: Conversation, pass_: Pass, transcript: _Transcript) -> Iterator[PendingRequest]:
    question = conversation.question
    procedure = conversation.procedure
    before = BEFORE[pass_]
    if procedure.asks_model:
        step = procedure.step(question, before)
        if isinstance(step, Outcome):
            return  # without a gold answer the forced pass needs no request
        missing = (draw for draw in range(conversation.draws) if draw not in transcript.own[pass_])
        for _, run in groupby(enumerate(missing), key=lambda pair: pair[1] - pair[0]):  # draws in a row
            draws = [draw for _, draw in run]
            yield PendingRequest(step, draws[0], len(draws))
    for reply, draw in transcript.graded_draw[pass_].items():
        graded = [*before, *transcript.graded(pass_, reply)]
        step = _step_of_draw(conversation, graded, is_first=transcript.is_as_first(pass_, draw))
        if isinstance(step, Step) and step.role is not Role.MODEL:
            yield PendingRequest(step, draw)


def _step_of_draw(
    conversation: Conversation, replies: Sequence[Reply], *, is_first: bool, force_answered: bool = False
) -> Step | Outcome:
    """Return the next step of a draw, or its outcome."""
    procedure = conversation.procedure
    step = procedure.step if is_first else procedure.step_of_further_draw
    return step(conversation.question, replies, force_answered=force_answered)
