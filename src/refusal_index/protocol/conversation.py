"""One question as a conversation: what is due next, given every reply so far, and what became of each draw.

Pure functions of stored replies: whoever carries requests asks `due` until nothing is, in whatever order replies come
and however often it was interrupted; whoever reads results asks `outcome` of the same replies.

The seed of each request.

A question of its own, beside the two passes: about an answer that was given, or for an answer with a confidence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from refusal_index.outcomes.outcome import Grade, Outcome, Question
from refusal_index.protocol.graders import GraderKind
from refusal_index.protocol.procedure import (
    GRADE_REASONS,
    REFUSAL,
    TWO_PASSES,
    Asked,
    Completion,
    Message,
    Pass,
    Procedure,
    Reply,
    Request,
    Step,
    judged_alone,
    worded,
)
from refusal_index.protocol.prompts import PromptSet
from refusal_index.protocol.replies import REPLY_REASONS

PASSES = tuple(Pass)

BEFORE: dict[Pass, tuple[Reply, ...]] = {Pass.FIRST: (), Pass.FORCED: (REFUSAL,), Pass.PROBE: ()}
"""What stands for the first pass where a pass is looked at by itself."""

ASKED_AGAIN = tuple(f"{of}_{reason}" for of in TWO_PASSES for reason in (*REPLY_REASONS, *GRADE_REASONS))
"""Why a question is unscored that another reply, or another verdict, may score."""


@dataclass(frozen=True)
class Due:
    """A request that nobody has answered yet, not yet in words.

    Attributes
    ----------
    step
        What to ask.
    draw
        The first draw that it is for, from 0.
    choices
        How many draws, one after the other, may be answered by as many choices of one response.
    """

    step: Step
    draw: int = 0
    choices: int = 1


@dataclass(frozen=True)
class Conversation:
    """A question under one variant.

    Attributes
    ----------
    question, variant
        What is asked, and with which wording of the first pass.
    procedure
        What follows what.
    draws
        How often the question is drawn. One that is drawn more than once goes through both passes in every draw,
        whether the first refused or not.
    seed
        Of its requests; None for one that is derived from the run's and from what is asked.
    """

    question: Question
    variant: str
    procedure: Procedure
    draws: int = 1
    seed: int | None = None

    @property
    def in_turn(self) -> bool:
        """Whether the forced pass waits for the first one to refuse."""
        return self.draws == 1 and self.procedure.asks_model


class _Said:
    """The replies about one question, by pass and draw."""

    def __init__(self, conversation: Conversation, said: Iterable[Completion]) -> None:
        self.own: dict[Pass, dict[int, Reply]] = {of: {} for of in PASSES}
        self._verdicts: dict[tuple[Pass, int], list[Completion]] = {}
        for one in said:
            of, draw = one.reply.of, one.draw
            if draw >= conversation.draws:
                continue  # of another variant that is drawn more often
            if one.reply.asked is Asked.MODEL:
                self.own[of][draw] = one.reply
            else:
                self._verdicts.setdefault((of, draw), []).append(one)

    @cached_property
    def first_drawn(self) -> dict[Pass, dict[Reply, int]]:
        """The draw in which each distinct reply is graded."""
        found: dict[Pass, dict[Reply, int]] = {of: {} for of in PASSES}
        for of, replies in self.own.items():
            for draw in sorted(replies, key=lambda draw: ((of, draw) not in self._verdicts, draw)):
                found[of].setdefault(replies[draw], draw)
        return found

    def graded(self, of: Pass, reply: Reply) -> list[Reply]:
        """Return a reply and the verdicts on it: the same reply in several draws is graded in one of them.

        That is the first, or the first that has a verdict: a draw before it may come out the same when asked again.
        """
        if not self._verdicts:
            return [reply]
        verdicts = self._verdicts.get((of, self.first_drawn[of][reply]), ())
        return [reply, *(one.reply for one in sorted(verdicts, key=lambda one: (one.reply.asked, one.attempt)))]

    def in_draw(self, draw: int) -> list[Reply]:
        """Return all that was said in one draw."""
        return [one for of in PASSES if draw in self.own[of] for one in self.graded(of, self.own[of][draw])]


def due(conversation: Conversation, said: Iterable[Completion]) -> list[Due]:
    """Return what is to be asked next; nothing where every draw has its outcome.

    Parameters
    ----------
    conversation
        The question and how it is asked.
    said
        Every reply about the question so far: to its first passes under this variant, and to its forced passes.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> [one.step.of for one in due(talk, [])]
    [<Pass.FIRST: 'first'>]
    >>> due(talk, [Completion("q1", "low", 0, Reply(Pass.FIRST, Asked.MODEL, "<answer>Lima</answer>"))])
    []
    """
    known, step = _taken(conversation, said)
    if not conversation.in_turn:
        replies = _Said(conversation, known)
        return [one for of in conversation.procedure.passes for one in _due_of_pass(conversation, of, replies)]
    step = step or _step(conversation, known)
    return [] if isinstance(step, Outcome) else [Due(step)]


def outcomes(conversation: Conversation, said: Iterable[Completion]) -> list[Outcome] | None:
    """Return what became of every draw, in their order; None while a reply is missing."""
    found = finished_draws(conversation, said)
    return found if len(found) == conversation.draws else None


def finished_draws(conversation: Conversation, said: Iterable[Completion]) -> list[Outcome]:
    """Return what became of the draws before the first one of which a reply is missing."""
    return finished(conversation, said)[1]


def finished(conversation: Conversation, said: Iterable[Completion]) -> tuple[list[Completion], list[Outcome]]:
    """Return the replies that outcomes rest on, as `taken` does, and the outcomes, as `finished_draws` does."""
    known, step = _taken(conversation, said)
    if conversation.in_turn:
        step = step or _step(conversation, known)
        return known, [step] if isinstance(step, Outcome) else []
    return known, list(_each_drawn(conversation, _Said(conversation, known)))


def _each_drawn(conversation: Conversation, known: _Said) -> Iterator[Outcome]:
    step = partial(conversation.procedure.step, conversation.question, force_answered=conversation.draws > 1)
    found: dict[tuple[Reply | None, ...], Outcome] = {}  # draws in which the same was said have the same outcome
    for draw in range(conversation.draws):
        replies = tuple(known.own[of].get(draw) for of in PASSES)
        if not any(replies):
            return
        if replies not in found:
            became = step(known.in_draw(draw))
            if isinstance(became, Step):
                return
            found[replies] = became
        yield found[replies]


def so_far(conversation: Conversation, said: Iterable[Completion], reason: str) -> Outcome:
    """Return what is known of a first draw that is not finished: unscored, with `reason`, unless it was answered.

    Parameters
    ----------
    conversation, said
        As for `due`.
    reason
        What keeps it from its grade.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> so_far(talk, [], "not_finished").refused is None
    True
    >>> refused = Completion("q1", "low", 0, Reply(Pass.FIRST, Asked.MODEL, "<answer>UNANSWERED</answer>"))
    >>> so_far(talk, [refused], "not_finished").refused
    True
    """
    known = _Said(conversation, said)
    first, forced = (known.own[of].get(0) for of in TWO_PASSES)
    asks_first = conversation.procedure.asks_first
    became = Outcome(None if asks_first else True, None)
    if first is not None:
        step = conversation.procedure.step(conversation.question, known.graded(Pass.FIRST, first))
        became = step if isinstance(step, Outcome) else Outcome(True if step.of is Pass.FORCED else None, None)
    if became.wrong is not None:
        return became  # it answered: what is missing is the forced answer beside, which does not count
    refused = became.refused
    return Outcome(
        refused=refused,
        wrong=None,
        first_grade=None if first is None else Grade.REFUSED if refused else Grade.UNSCORED,
        forced_grade=None if forced is None else Grade.UNSCORED,
        unscored_reason=reason,
        first_reply=None if first is None else first.text,
        forced_reply=None if forced is None else forced.text,
    )


def taken(conversation: Conversation, said: Iterable[Completion]) -> list[Completion]:
    """Return the replies that the outcomes rest on: a forced answer that only another variant needed is not among them.

    Parameters
    ----------
    conversation, said
        As for `due`.
    """
    return _taken(conversation, said)[0]


def _taken(conversation: Conversation, said: Iterable[Completion]) -> tuple[list[Completion], Step | Outcome | None]:
    """Return the replies that the outcomes rest on, and what is next after them where that was found on the way."""
    replies = [one for one in said if one.draw < conversation.draws]
    unforced = [one for one in replies if one.reply.of is not Pass.FORCED]
    if len(unforced) == len(replies) or not conversation.in_turn:
        return replies, None
    first = [one for one in unforced if one.reply.of is Pass.FIRST]
    step = _step(conversation, first)
    if isinstance(step, Step) and step.of is Pass.FORCED:
        return replies, None
    return unforced, step if len(first) == len(unforced) else None


def _step(conversation: Conversation, replies: Iterable[Completion]) -> Step | Outcome:
    """Return what is next of a question that is drawn once."""
    return conversation.procedure.step(conversation.question, _Said(conversation, replies).in_draw(0))


def kept_unscored(conversation: Conversation, said: Iterable[Completion], reasons: Container[str]) -> list[Completion]:
    """Return the replies without which a draw would be asked for again, of draws that are unscored for some reasons.

    Of a reply that could not be graded as it is, that reply; of one that graders could not settle, their verdicts.

    Parameters
    ----------
    conversation, said
        As for `due`.
    reasons
        Some of `ASKED_AGAIN`; others keep nothing that another reply could mend.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> empty = Completion("q1", "low", 0, Reply(Pass.FIRST, Asked.MODEL, ""))
    >>> kept_unscored(talk, [empty], {"first_empty"}) == [empty]
    True
    """
    replies = taken(conversation, said)
    known = _Said(conversation, replies)
    found: dict[Completion, None] = {}
    for draw, outcome in enumerate(outcomes(conversation, replies) or ()):
        reason = outcome.unscored_reason
        if reason not in reasons or reason not in ASKED_AGAIN:
            continue
        of, kind = Pass(reason.partition("_")[0]), reason.partition("_")[2]
        if kind in REPLY_REASONS and not conversation.procedure.asks_model:
            continue  # nobody would reply
        first = known.first_drawn[of][known.own[of][draw]]
        for one in replies:
            of_model = one.reply.asked is Asked.MODEL
            if one.reply.of is of and of_model is (kind in REPLY_REASONS) and one.draw == (draw if of_model else first):
                found[one] = None
    return list(found)


def _due_of_pass(conversation: Conversation, of: Pass, said: _Said) -> Iterator[Due]:
    question, procedure, before = conversation.question, conversation.procedure, BEFORE[of]
    if procedure.asks_model:
        step = procedure.step(question, before)
        if isinstance(step, Outcome):
            return  # of a question without a right answer the forced pass is known
        missing = (draw for draw in range(conversation.draws) if draw not in said.own[of])
        yield from (Due(step, *run) for run in _runs(missing))
    for reply, draw in said.first_drawn[of].items():
        step = procedure.step(question, [*before, *said.graded(of, reply)])
        if isinstance(step, Step) and step.asked is not Asked.MODEL:
            yield Due(step, draw)


def _runs(draws: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield each run of consecutive draws as its first and its length.

    Examples
    --------
    >>> list(_runs([0, 1, 2, 5, 6]))
    [(0, 3), (5, 2)]
    """
    run: list[int] = []
    for draw in draws:
        if run and draw != run[-1] + 1:
            yield run[0], len(run)
            run = []
        run.append(draw)
    if run:
        yield run[0], len(run)


SEED_BITS = 31  # what every provider takes


def request_seed(run_seed: int, question_id: str, draw: int, variant: str, request: Request) -> int:
    """Return the seed of `request`, derived from what it asks and nothing else.

    The variant counts in the first pass only: a forced answer belongs to the question and the draw, so that a question
    refused under two variants is forced once and both share the answer.

    Parameters
    ----------
    run_seed
        The seed of the run.
    question_id, draw
        Which question is asked, and for which time, from 0.
    variant
        The first-pass variant.
    request
        The pass, who is asked, and the attempt.

    Examples
    --------
    >>> from refusal_index.protocol.procedure import Asked, Pass
    >>> forced = Request(Pass.FORCED, Asked.MODEL, ())
    >>> request_seed(0, "q1", 0, "low", forced) == request_seed(0, "q1", 0, "high", forced)
    True
    """
    of_variant = "" if request.of.is_shared else variant
    parts = (run_seed, question_id, draw, of_variant, request.of, request.asked, request.attempt)
    key = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> (64 - SEED_BITS)


@dataclass(frozen=True)
class Probing:
    """One prompt, asked of each question in each draw.

    Attributes
    ----------
    grader
        Who grades the answer in the reply, where there is one.
    template
        What is asked, with the field ``{question}`` and, where it is about an answer, ``{answer}``.
    prompts
        Puts the question into words, with its context and its choices.
    answers
        By question id, the answer that it is about; empty where it is about none.
    is_graded
        Whether the reply holds an answer of its own.
    think
        A switch that the model's chat template knows, which ends what the model is asked.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts = load_prompt_set("default")
    >>> probing = Probing(GraderKind.EXACT, "{question} {answer}: true or false?", prompts, {"q": "5"})
    >>> question = Question("q", "How much is 2 + 2?", "4")
    >>> probing.request(probing.step(question, []), question).messages[0].content
    'Question: How much is 2 + 2? 5: true or false?'
    """

    grader: GraderKind
    template: str
    prompts: PromptSet
    answers: Mapping[str, str] = field(default_factory=dict)
    is_graded: bool = False
    think: str = ""
    asks_first: bool = False
    asks_model: bool = True
    passes: tuple[Pass, ...] = (Pass.PROBE,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - of the interface
        """Return what is next; an outcome says no more than that nothing is, unless the answer is graded."""
        found = judged_alone(Pass.PROBE, question, replies, self.grader)
        if self.is_graded or not replies:
            return found
        return Outcome(None, None, Grade.UNSCORED)

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""
        if step.asked is not Asked.MODEL:
            return worded(step, question, None)
        asked = self.prompts.asked(question.text, question.context, question.choices)
        text = self.template.format(question=asked, answer=self.answers.get(question.question_id, ""))
        return Request(step.of, step.asked, (Message("user", f"{text}\n\n{self.think}" if self.think else text),))
