"""The procedures that a question goes through, as pure functions of the replies so far.

The two passes: in the first, the model may answer or refuse. Its reply is read, the UNANSWERED tag first, and otherwise
graded. A question that was refused, by the tag or in the grader's judgement, goes through the forced pass, where
refusing again counts as wrong. The forced request depends on the question only, never on the variant or on the first
reply. A question that is sampled more than once, to correct the estimate for noise, is forced whether its first pass
refused or answered.

A question without a gold answer has no right one: whatever it was answered is wrong. So nothing is forced or graded in
its second pass, whose grade is ``incorrect``; a model that grades is asked only whether the first reply attempted an
answer.

Each `Procedure` (both passes, the forced pass alone, regrading, a prompt of a confidence method) says what comes
next. `next_requests` applies it to a `Conversation`, a question under one variant, in whatever order replies come and
however often a run was interrupted; `outcomes` reads results from the same replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Protocol as Interface

from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade, Outcome, Question
from refusal_index.protocol.grading import GraderKind, grade_by_rule, grader_prompt, read_verdict, unscored_reason
from refusal_index.protocol.prompts import AUXILIARY, FORCED, UNANSWERED, PromptSet, PromptSetError
from refusal_index.protocol.replies import REPLY_REASONS, Detector, StopReason, read_reply, refuses


class Pass(StrEnum):
    """The two passes, and what is asked beside them, about an answer or for one with a confidence."""

    FIRST = "first"
    FORCED = "forced"
    PROBE = "probe"

    @property
    def is_shared(self) -> bool:
        """Whether all variants share its replies, since it is asked the same in each."""
        return self is Pass.FORCED


TWO_PASSES = (Pass.FIRST, Pass.FORCED)
"""Those that the index is measured in."""


class Role(StrEnum):
    """Who is asked: the model under evaluation or a model that grades it."""

    MODEL = "model"
    GRADER = "grader"
    SECOND_GRADER = "second_grader"


GRADERS = (Role.GRADER, Role.SECOND_GRADER)


class Placement(StrEnum):
    """Where the instruction and the worked examples stand: in the user message, or in a system message before it."""

    USER = "user"
    SYSTEM = "system"


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes
    ----------
    role
        ``"system"`` or ``"user"``.
    content
        Its text.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Step:
    """What to ask next, not yet in words.

    Attributes
    ----------
    pass_, role, attempt
        As in the request that it becomes.
    prediction
        What the grader is to judge; empty in a step that asks the model.
    """

    pass_: Pass
    role: Role
    attempt: int = 0
    prediction: str = ""


@dataclass(frozen=True)
class Request:
    """What to ask next: a new conversation of its own.

    Attributes
    ----------
    pass_
        The pass it belongs to.
    role
        The model or one of its graders.
    messages
        The whole conversation.
    attempt
        From 0; a grade that could not be read is asked for once more.
    """

    pass_: Pass
    role: Role
    messages: tuple[Message, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for a request.

    Attributes
    ----------
    pass_, role
        As in the request.
    text
        The reply, word for word.
    stop_reason
        Why it ended.
    """

    pass_: Pass
    role: Role
    text: str
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply to a request about one question, and what it took, as a run's store keeps it.

    Attributes
    ----------
    question_id, variant
        What was asked; the variant is empty in the forced pass, which all variants share.
    draw
        The repetition that it belongs to, from 0.
    reply, attempt
        What came back, and for which attempt of the request.
    input_tokens, output_tokens
        As the provider counted them; 0 where it did not say, and where the reply came along with another.
    requests
        How many requests brought it: 0 where it came along with another as a choice of the same response.
    seconds
        From the request to its response; None where it is not known.
    logprobs
        Logarithms of the probabilities of its tokens as JSON, as the provider gave them; None where not asked for.
    request_sha256
        Hash of all that was asked; None where a release that kept none asked it.
    in_batch
        Whether it came in a provider's batch, which has a price of its own.
    """

    question_id: str
    variant: str
    draw: int
    reply: Reply
    attempt: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 1
    seconds: float | None = None
    logprobs: str | None = None
    request_sha256: str | None = None
    in_batch: bool = False


@dataclass(frozen=True)
class Protocol:
    """The settings of the procedure.

    Attributes
    ----------
    prompts
        The wording of both passes.
    variant
        The prompt set's variant that the first pass asks with.
    grader
        Who grades what the UNANSWERED tag does not settle.
    placement
        Where instruction and worked examples stand.
    think
        A switch that the model's chat template knows, such as ``"/no_think"``; it ends what the model is asked. Empty
        for none.

    Raises
    ------
    PromptSetError
        If the prompt set has no such first-pass variant.
    """

    prompts: PromptSet
    variant: str
    grader: GraderKind
    placement: Placement = Placement.USER
    think: str = ""

    def __post_init__(self) -> None:
        if self.variant == FORCED:
            raise PromptSetError(f"'{FORCED}' is the second pass; choose one of {', '.join(self.prompts.variants)}")
        self.prompts.variant(self.variant)


GRADE_ATTEMPTS = 2
GRADE_REASONS = UNREADABLE, DISAGREE = "grade_unreadable", "graders_disagree"
"""Why those that grade could not settle a reply."""


@dataclass(frozen=True)
class _Verdict:
    """The grade of one pass; `reply` is None where the grade is known without asking."""

    grade: Grade
    reply: str | None
    reason: str | None = None
    answered: bool = False  # whether an answer was attempted, where that much is known of what is unscored


def next_request(
    question: Question, replies: Sequence[Reply], protocol: Protocol, *, force_answered: bool = False
) -> Request | Outcome:
    """Return what to ask next about `question`, or its outcome when nothing is left to ask.

    Parameters
    ----------
    question
        The question with its gold answer.
    replies
        Every reply about it so far, in the order they came.
    protocol
        Prompt set, variant, grader and placement.
    force_answered
        Ask the forced pass also where the first pass answered; the first pass's answer remains the one that counts.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> protocol = Protocol(load_prompt_set("default"), "high", GraderKind.EXACT)
    >>> next_request(question, [], protocol).pass_
    <Pass.FIRST: 'first'>
    >>> refused = Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>")
    >>> next_request(question, [refused], protocol).pass_
    <Pass.FORCED: 'forced'>
    >>> forced = Reply(Pass.FORCED, Role.MODEL, "<answer>Lima</answer>")
    >>> outcome = next_request(question, [refused, forced], protocol)
    >>> outcome.refused, outcome.wrong
    (True, False)
    """
    step = next_step(question, replies, protocol.grader, force_answered=force_answered)
    if isinstance(step, Outcome):
        return step
    return to_request(step, question, protocol)


def next_step(
    question: Question,
    replies: Sequence[Reply],
    grader: GraderKind,
    *,
    force_answered: bool = False,
    detector: Detector | None = refuses,
) -> Step | Outcome:
    """Return the step that `next_request` would put into words, or the outcome: so a log is read without its prompts.

    Parameters
    ----------
    question, replies
        As for `next_request`.
    grader
        Who grades what the UNANSWERED tag does not settle.
    force_answered
        As for `next_request`. A forced reply that is there already is judged whatever this says.
    detector
        What a rule recognises refusals by beside the tag.
    """
    first = _judge(Pass.FIRST, question, replies, grader, detector)
    if isinstance(first, Step):
        return first
    if first.grade is Grade.UNSCORED:
        return _outcome(first)
    was_forced = any(reply.pass_ is Pass.FORCED for reply in replies)
    if first.grade is not Grade.REFUSED and not force_answered and not was_forced:
        return _outcome(first)
    if question.gold is None:
        return _outcome(first, _Verdict(Grade.INCORRECT, None))  # no answer could be right: none is paid for
    forced = _judge(Pass.FORCED, question, replies, grader, detector)
    return forced if isinstance(forced, Step) else _outcome(first, forced)


def pass_outcome(of: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind) -> Step | Outcome:
    """Return what is next of a pass that is looked at by itself, or its outcome, with its grade as the first.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.PROBE, Role.MODEL, "<answer>Lima</answer>")
    >>> pass_outcome(Pass.PROBE, question, [said], GraderKind.EXACT).wrong
    False
    """
    verdict = _judge(of, question, replies, grader, refuses)
    return verdict if isinstance(verdict, Step) else _outcome(verdict)


def _judge(
    of: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind, detector: Detector | None
) -> Step | _Verdict:
    """Return the verdict on one pass, or the step that it still needs."""
    said = [reply for reply in replies if reply.pass_ is of and reply.role is Role.MODEL]
    if not said:
        return Step(of, Role.MODEL)
    text = said[0].text
    reading = read_reply(text, said[0].stop_reason)
    if reading.unscored_reason:
        return _Verdict(Grade.UNSCORED, text, f"{of}_{reading.unscored_reason}")
    if reading.refused:
        return _Verdict(Grade.REFUSED, text)
    if not grader.models:
        grade = grade_by_rule(grader, question, reading.answer, detector)
        return _Verdict(grade, text, f"{of}_{unscored_reason(grader, question)}" if grade is Grade.UNSCORED else None)
    steps = [Step(of, role, prediction=reading.answer) for role in GRADERS[: grader.models]]
    return _graded_by_models(steps, text, question, replies)


def _graded_by_models(
    steps: Sequence[Step], text: str, question: Question, replies: Sequence[Reply]
) -> Step | _Verdict:
    """Return the verdict of all graders on one reply, or the first of their steps that is still to be taken."""
    of = steps[0].pass_
    grades: list[Grade] = []
    for step in steps:
        verdict = _ask_grader(step, question, replies)
        if isinstance(verdict, Step):
            return verdict
        if verdict is Grade.UNSCORED:
            return _Verdict(verdict, text, f"{of}_{UNREADABLE}")
        grades.append(verdict)
    if len(set(grades)) > 1:
        # who differ between right and wrong agree that there was an answer
        return _Verdict(Grade.UNSCORED, text, f"{of}_{DISAGREE}", answered=Grade.REFUSED not in grades)
    return _Verdict(grades[0], text)


def _ask_grader(step: Step, question: Question, replies: Sequence[Reply]) -> Step | Grade:
    """Return one grader's verdict, unscored where it cannot be read, or the step that asks for it."""
    if (grade := grade_by(step.role, step.pass_, question, replies)) is not None:
        return grade
    attempts = sum((reply.pass_, reply.role) == (step.pass_, step.role) for reply in replies)
    return replace(step, attempt=attempts) if attempts < GRADE_ATTEMPTS else Grade.UNSCORED


def grade_by(grader: Role, of: Pass, question: Question, replies: Sequence[Reply]) -> Grade | None:
    """Return the grade that one model gave in one pass, or None where it gave none that can be read.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> grade_by(Role.GRADER, Pass.FIRST, question, [Reply(Pass.FIRST, Role.GRADER, "B")])
    <Grade.INCORRECT: 'incorrect'>
    """
    verdicts = (reply.text for reply in replies if (reply.pass_, reply.role) == (of, grader))
    grades = (read_verdict(question, verdict) for verdict in verdicts)
    return next((grade for grade in grades if grade is not None), None)


def to_request(step: Step, question: Question, protocol: Protocol | None) -> Request:
    """Put a step into words; one that asks a grader needs no protocol."""
    messages: tuple[Message, ...]
    if step.role in GRADERS or protocol is None:
        messages = (Message("user", grader_prompt(question, step.prediction)),)
    else:
        variant = FORCED if step.pass_ is Pass.FORCED else protocol.variant
        preamble, text = protocol.prompts.render(variant, question.text, question.context, question.choices)
        if protocol.think:
            text = f"{text}\n\n{protocol.think}"
        if protocol.placement is Placement.SYSTEM:
            messages = (Message("system", preamble), Message("user", text))
        else:
            messages = (Message("user", f"{preamble}\n\n{text}"),)
    return Request(step.pass_, step.role, messages, step.attempt)


def _outcome(first: _Verdict, forced: _Verdict | None = None) -> Outcome:
    """Return what became of the question: the forced answer counts where the first pass refused."""
    refused = first.grade is Grade.REFUSED
    counts = forced if refused and forced else first
    unknown = counts.grade is Grade.UNSCORED
    return Outcome(
        refused=None if first.grade is Grade.UNSCORED and not first.answered else refused,
        wrong=None if unknown else counts.grade is not Grade.CORRECT,
        first_grade=first.grade,
        forced_grade=forced.grade if forced else None,
        unscored_reason=counts.reason,
        first_reply=first.reply,
        forced_reply=forced.reply if forced else None,
    )


REFUSAL = Reply(Pass.FIRST, Role.MODEL, f"<answer>{UNANSWERED}</answer>")
"""Stands for a first pass that refused: the forced request depends on the question only."""


class Procedure(Interface):
    """What is asked about a question, and in which order.

    Attributes
    ----------
    grader
        Who grades what the UNANSWERED tag does not settle.
    asks_first, asks_model
        Whether the first pass is asked at all, and the model under evaluation.
    passes
        In which it asks the model.
    """

    @property
    def grader(self) -> GraderKind: ...  # noqa: D102 - described by the class

    @property
    def asks_first(self) -> bool: ...  # noqa: D102

    @property
    def asks_model(self) -> bool: ...  # noqa: D102

    @property
    def passes(self) -> tuple[Pass, ...]: ...  # noqa: D102

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is.

        Parameters
        ----------
        question, replies
            The question, and what was said about it in one draw.
        force_answered
            Whether the forced pass is due also where the first pass answered.
        """

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""


@dataclass(frozen=True)
class TwoPass:
    """Both passes, as the index is measured.

    Attributes
    ----------
    grader
        Who grades what the UNANSWERED tag does not settle.
    wording
        Prompts, variant and placement; None where replies are only read.
    detector
        What a rule recognises refusals by beside the tag.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> TwoPass(GraderKind.EXACT).step(question, [REFUSAL]).pass_
    <Pass.FORCED: 'forced'>
    """

    grader: GraderKind
    wording: Protocol | None = None
    detector: Detector | None = refuses
    asks_first: bool = True
    asks_model: bool = True
    passes: tuple[Pass, ...] = TWO_PASSES

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is."""
        return next_step(question, replies, self.grader, force_answered=force_answered, detector=self.detector)

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""
        return to_request(step, question, self.wording)


@dataclass(frozen=True)
class ForcedPass(TwoPass):
    """The forced pass alone, for a question whose first pass somebody else asked and graded as refused.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> ForcedPass(GraderKind.EXACT).step(question, []).pass_
    <Pass.FORCED: 'forced'>
    >>> ForcedPass(GraderKind.EXACT).step(question, [Reply(Pass.FORCED, Role.MODEL, "<answer>Lima</answer>")]).wrong
    False
    """

    asks_first: bool = False
    passes: tuple[Pass, ...] = (Pass.FORCED,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is."""
        return next_step(
            question, [REFUSAL, *replies], self.grader, force_answered=force_answered, detector=self.detector
        )


@dataclass(frozen=True)
class FirstPassOnly(TwoPass):
    """The first pass alone: a refusal is unscored, with the reason ``forced_not_asked``, and RI is undefined.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> FirstPassOnly(GraderKind.EXACT).step(question, []).pass_
    <Pass.FIRST: 'first'>
    >>> FirstPassOnly(GraderKind.EXACT).step(question, [REFUSAL]).unscored_reason
    'forced_not_asked'
    """

    passes: tuple[Pass, ...] = (Pass.FIRST,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - as in `TwoPass`
        """Return what is next, or the outcome when nothing is; no answer is forced."""
        return _without_forcing(next_step(question, replies, self.grader, detector=self.detector), replies)


def _without_forcing(step: Step | Outcome, replies: Sequence[Reply]) -> Step | Outcome:
    """Return a step, or the outcome of a refusal in the place of the request that would force an answer."""
    if isinstance(step, Outcome) or (step.pass_, step.role) != (Pass.FORCED, Role.MODEL):
        return step
    first = next(reply.text for reply in replies if (reply.pass_, reply.role) == (Pass.FIRST, Role.MODEL))
    return Outcome(True, None, Grade.REFUSED, unscored_reason=FORCED_NOT_ASKED, first_reply=first)


@dataclass(frozen=True)
class Regrading(TwoPass):
    """Regrading what was replied before: graders are asked, the model under evaluation is not.

    A refusal whose forced answer nobody asked for is unscored, with the reason ``forced_not_asked``.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.FIRST, Role.MODEL, "Sorry, I do not know.")
    >>> Regrading(GraderKind.MODEL).step(question, [said]).role
    <Role.GRADER: 'grader'>
    >>> Regrading(GraderKind.EXACT).step(question, [said]).unscored_reason
    'forced_not_asked'
    """

    asks_model: bool = False

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what a grader is still to be asked, or the outcome.

        Raises
        ------
        ValueError
            If there is no first reply.
        """
        # A forced reply that is there is judged in any case; without a right answer its grade is known without one.
        known = force_answered and question.gold is None
        step = next_step(question, replies, self.grader, force_answered=known, detector=self.detector)
        if isinstance(step, Step) and (step.pass_, step.role) == (Pass.FIRST, Role.MODEL):
            raise ValueError(f"question {question.question_id}: there is no first reply to grade")
        return _without_forcing(step, replies)


PASSES = tuple(Pass)

BEFORE: dict[Pass, tuple[Reply, ...]] = {Pass.FIRST: (), Pass.FORCED: (REFUSAL,), Pass.PROBE: ()}
"""What stands for the first pass where a pass is looked at by itself."""

ASKED_AGAIN = tuple(f"{of}_{reason}" for of in TWO_PASSES for reason in (*REPLY_REASONS, *GRADE_REASONS))
"""Why a question is unscored that another reply, or another verdict, may score."""


@dataclass(frozen=True)
class PendingRequest:
    """A request that nobody has answered yet, not yet in words.

    Attributes
    ----------
    step
        What to ask.
    draw
        The first draw that it is for, from 0.
    n
        How many draws, one after the other, may be answered by as many choices of one response.
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


class _Transcript:
    """The replies about one question, by pass and draw."""

    def __init__(self, conversation: Conversation, said: Iterable[Completion]) -> None:
        self.own: dict[Pass, dict[int, Reply]] = {of: {} for of in PASSES}
        self._verdicts: dict[tuple[Pass, int], list[Completion]] = {}
        for one in said:
            of, draw = one.reply.pass_, one.draw
            if draw >= conversation.draws:
                continue  # of another variant that is drawn more often
            if one.reply.role is Role.MODEL:
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
        return [reply, *(one.reply for one in sorted(verdicts, key=lambda one: (one.reply.role, one.attempt)))]

    def in_draw(self, draw: int) -> list[Reply]:
        """Return all that was said in one draw."""
        return [one for of in PASSES if draw in self.own[of] for one in self.graded(of, self.own[of][draw])]


def next_requests(conversation: Conversation, said: Iterable[Completion]) -> list[PendingRequest]:
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
    >>> [one.step.pass_ for one in next_requests(talk, [])]
    [<Pass.FIRST: 'first'>]
    >>> next_requests(talk, [Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "<answer>Lima</answer>"))])
    []
    """
    known, step = _taken(conversation, said)
    if not conversation.in_turn:
        replies = _Transcript(conversation, known)
        return [one for of in conversation.procedure.passes for one in _due_of_pass(conversation, of, replies)]
    step = step or _step(conversation, known)
    return [] if isinstance(step, Outcome) else [PendingRequest(step)]


def outcomes(conversation: Conversation, said: Iterable[Completion]) -> list[Outcome] | None:
    """Return what became of every draw, in their order; None while a reply is missing."""
    found = completions_and_outcomes(conversation, said)[1]
    return found if len(found) == conversation.draws else None


def finished_outcomes(conversation: Conversation, said: Iterable[Completion]) -> list[Outcome]:
    """Return what became of the draws before the first one of which a reply is missing."""
    return completions_and_outcomes(conversation, said)[1]


def completions_and_outcomes(
    conversation: Conversation, said: Iterable[Completion]
) -> tuple[list[Completion], list[Outcome]]:
    """Return the replies that outcomes rest on, and the outcomes of the draws before the first unfinished one."""
    known, step = _taken(conversation, said)
    if conversation.in_turn:
        step = step or _step(conversation, known)
        return known, [step] if isinstance(step, Outcome) else []
    return known, list(_each_drawn(conversation, _Transcript(conversation, known)))


def _each_drawn(conversation: Conversation, known: _Transcript) -> Iterator[Outcome]:
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


def partial_outcome(conversation: Conversation, said: Iterable[Completion], reason: str) -> Outcome:
    """Return what is known of a first draw that is not finished: unscored, with `reason`, unless it was answered.

    Parameters
    ----------
    conversation, said
        As for `next_requests`.
    reason
        What keeps it from its grade.

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
    known = _Transcript(conversation, said)
    first, forced = (known.own[of].get(0) for of in TWO_PASSES)
    asks_first = conversation.procedure.asks_first
    became = Outcome(None if asks_first else True, None)
    if first is not None:
        step = conversation.procedure.step(conversation.question, known.graded(Pass.FIRST, first))
        became = step if isinstance(step, Outcome) else Outcome(True if step.pass_ is Pass.FORCED else None, None)
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


def used_completions(conversation: Conversation, said: Iterable[Completion]) -> list[Completion]:
    """Return the replies that the outcomes rest on: a forced answer that only another variant needed is not among them.

    Parameters
    ----------
    conversation, said
        As for `next_requests`.
    """
    return _taken(conversation, said)[0]


def _taken(conversation: Conversation, said: Iterable[Completion]) -> tuple[list[Completion], Step | Outcome | None]:
    """Return the replies that the outcomes rest on, and what is next after them where that was found on the way."""
    replies = [one for one in said if one.draw < conversation.draws]
    unforced = [one for one in replies if one.reply.pass_ is not Pass.FORCED]
    if len(unforced) == len(replies) or not conversation.in_turn:
        return replies, None
    first = [one for one in unforced if one.reply.pass_ is Pass.FIRST]
    step = _step(conversation, first)
    if isinstance(step, Step) and step.pass_ is Pass.FORCED:
        return replies, None
    return unforced, step if len(first) == len(unforced) else None


def _step(conversation: Conversation, replies: Iterable[Completion]) -> Step | Outcome:
    """Return what is next of a question that is drawn once."""
    return conversation.procedure.step(conversation.question, _Transcript(conversation, replies).in_draw(0))


def completions_to_retire(
    conversation: Conversation, said: Iterable[Completion], reasons: Container[str]
) -> list[Completion]:
    """Return the replies without which a draw would be asked for again, of draws that are unscored for some reasons.

    Of a reply that could not be graded as it is, that reply; of one that graders could not settle, their verdicts.

    Parameters
    ----------
    conversation, said
        As for `next_requests`.
    reasons
        Some of `ASKED_AGAIN`; others keep nothing that another reply could mend.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, TwoPass
    >>> talk = Conversation(Question("q1", "What is the capital of Peru?", "Lima"), "low", TwoPass(GraderKind.EXACT))
    >>> empty = Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, ""))
    >>> completions_to_retire(talk, [empty], {"first_empty"}) == [empty]
    True
    """
    replies = used_completions(conversation, said)
    known = _Transcript(conversation, replies)
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
            of_model = one.reply.role is Role.MODEL
            if (
                one.reply.pass_ is of
                and of_model is (kind in REPLY_REASONS)
                and one.draw == (draw if of_model else first)
            ):
                found[one] = None
    return list(found)


def _due_of_pass(conversation: Conversation, of: Pass, said: _Transcript) -> Iterator[PendingRequest]:
    question, procedure, before = conversation.question, conversation.procedure, BEFORE[of]
    if procedure.asks_model:
        step = procedure.step(question, before)
        if isinstance(step, Outcome):
            return  # of a question without a right answer the forced pass is known
        missing = (draw for draw in range(conversation.draws) if draw not in said.own[of])
        yield from (PendingRequest(step, *run) for run in _runs(missing))
    for reply, draw in said.first_drawn[of].items():
        step = procedure.step(question, [*before, *said.graded(of, reply)])
        if isinstance(step, Step) and step.role is not Role.MODEL:
            yield PendingRequest(step, draw)


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


def is_auxiliary(variant: str) -> bool:
    """Whether replies under a variant are no part of the run's two passes."""
    return variant.startswith(AUXILIARY)


def forced_variant(variant: str) -> str:
    """Return the variant of a conversation's forced pass: empty, since all variants share it, except auxiliary ones.

    Examples
    --------
    >>> forced_variant("low"), forced_variant("confidence/forced")
    ('', 'confidence/forced')
    """
    return variant if is_auxiliary(variant) else ""


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
    >>> from refusal_index.protocol.procedure import Role, Pass
    >>> forced = Request(Pass.FORCED, Role.MODEL, ())
    >>> request_seed(0, "q1", 0, "low", forced) == request_seed(0, "q1", 0, "high", forced)
    True
    """
    of_variant = "" if request.pass_.is_shared else variant.removeprefix(AUXILIARY)
    parts = (run_seed, question_id, draw, of_variant, request.pass_, request.role, request.attempt)
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
        found = pass_outcome(Pass.PROBE, question, replies, self.grader)
        if self.is_graded or not replies:
            return found
        return Outcome(None, None, Grade.UNSCORED)

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""
        if step.role is not Role.MODEL:
            return to_request(step, question, None)
        asked = self.prompts.asked(question.text, question.context, question.choices)
        text = self.template.format(question=asked, answer=self.answers.get(question.question_id, ""))
        return Request(step.pass_, step.role, (Message("user", f"{text}\n\n{self.think}" if self.think else text),))
