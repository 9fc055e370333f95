"""The procedures that a question goes through, as pure functions of the replies so far.

In the first of the two passes, the model may answer or refuse. A reply with the UNANSWERED tag is a refusal; any other
reply is graded. A question that was refused, according to the tag or the grader, goes through the forced pass, in which
refusing again counts as wrong. The forced request depends only on the question, never on the variant or on the first
reply. A question that is sampled more than once, to correct the estimate for noise, goes through the forced pass even
if its first pass answered.

A question without a gold answer has no correct answer: any answer is wrong. So its forced pass is neither requested nor
graded, and gets the grade ``incorrect``; a grading model is asked only whether the first reply attempted an answer.

Each `Procedure` (both passes, the forced pass alone, regrading, a prompt of a confidence method) determines the next
step. `next_requests` applies it to a `Conversation`, a question under one variant, in whatever order replies arrive and
however often a run was interrupted; `outcomes` derives results from the same replies.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from itertools import groupby
from typing import ClassVar

from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade, Outcome, Question
from refusal_index.protocol.grading import GraderKind, grade_by_rule, grader_prompt, read_verdict, unscored_reason
from refusal_index.protocol.prompts import AUXILIARY, FORCED, UNANSWERED, PromptSet, PromptSetError
from refusal_index.protocol.replies import REPLY_REASONS, Detector, StopReason, read_reply, refuses


class Pass(StrEnum):
    """The two passes, and probes: the prompts of confidence methods."""

    FIRST = "first"
    FORCED = "forced"
    PROBE = "probe"

    @property
    def is_shared(self) -> bool:
        """Whether all variants share its replies, because they send the same request."""
        return self is Pass.FORCED


TWO_PASSES = (Pass.FIRST, Pass.FORCED)
"""The passes from which the index is measured."""


class Role(StrEnum):
    """The recipient of a request: the model under evaluation or a model that grades it."""

    MODEL = "model"
    GRADER = "grader"
    SECOND_GRADER = "second_grader"


GRADERS = (Role.GRADER, Role.SECOND_GRADER)


class Placement(StrEnum):
    """Where the instruction and the worked examples are: in the user message, or in a system message before it."""

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
    """The next step for a question, before its request is built.

    Attributes
    ----------
    pass_, role, attempt
        The same as in its request.
    prediction
        The answer to grade; empty in a step that asks the model.
    """

    pass_: Pass
    role: Role
    attempt: int = 0
    prediction: str = ""


@dataclass(frozen=True)
class Request:
    """The next request, which starts a new conversation.

    Attributes
    ----------
    pass_
        The pass that it belongs to.
    role
        The model or one of its graders.
    messages
        The whole conversation.
    attempt
        From 0; an unreadable grade is requested once more.
    """

    pass_: Pass
    role: Role
    messages: tuple[Message, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request.

    Attributes
    ----------
    pass_, role
        The same as in the request.
    text
        The reply, word for word.
    stop_reason
        Why the model stopped writing.
    """

    pass_: Pass
    role: Role
    text: str
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply to a request about one question, and its usage, as stored with a run.

    Attributes
    ----------
    question_id, variant
        The question, and the variant, which is empty in the forced pass because all variants share it.
    draw
        The draw that it belongs to, from 0.
    reply, attempt
        The reply, and the attempt of the request.
    input_tokens, output_tokens
        The provider's counts; 0 if there are none, and for further choices of the same response.
    requests
        Number of requests sent for it: 0 for further choices of the same response.
    seconds
        Duration of the request; None if unknown.
    logprobs
        Log probabilities of its tokens as JSON, as the provider reported them; None if not requested.
    request_sha256
        Hash of the request's content; None if it was not recorded.
    in_batch
        Whether it came from a provider's batch, which has a price of its own.
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
        The first-pass variant of the prompt set.
    grader
        The grader of replies without the UNANSWERED tag.
    placement
        Where instruction and worked examples are.
    think
        A switch of the model's chat template, such as ``"/no_think"``, at the end of each request to the model. Empty
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
"""Reasons why graders could not grade a reply."""


@dataclass(frozen=True)
class _Verdict:
    """The grade of one pass; `reply` is None if the grade is known without a request."""

    grade: Grade
    reply: str | None
    reason: str | None = None
    answered: bool = False  # whether an unscored reply is known to attempt an answer


def next_request(
    question: Question, replies: Sequence[Reply], protocol: Protocol, *, force_answered: bool = False
) -> Request | Outcome:
    """Return the next request about `question`, or its outcome if there is none.

    Parameters
    ----------
    question
        The question with its gold answer.
    replies
        All replies about it so far, in order of arrival.
    protocol
        Prompt set, variant, grader and placement.
    force_answered
        Request the forced pass even if the first pass answered; the first pass's answer still counts.

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
    """Return the step before `next_request` builds its request, or the outcome; logs are read without prompts.

    Parameters
    ----------
    question, replies
        As for `next_request`.
    grader
        The grader of replies without the UNANSWERED tag.
    force_answered
        As for `next_request`. An existing forced reply is graded in any case.
    detector
        Recognises refusals without the tag, for rule-based graders.
    """
    first = _judge(Pass.FIRST, question, replies, grader, detector)
    if isinstance(first, Step):
        return first
    if first.grade is Grade.UNSCORED:
        return _outcome(first)
    if not (first.grade is Grade.REFUSED or force_answered or any(reply.pass_ is Pass.FORCED for reply in replies)):
        return _outcome(first)
    if question.gold is None:
        return _outcome(first, _Verdict(Grade.INCORRECT, None))  # no answer could be correct, so none is requested
    forced = _judge(Pass.FORCED, question, replies, grader, detector)
    return forced if isinstance(forced, Step) else _outcome(first, forced)


def pass_outcome(pass_: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind) -> Step | Outcome:
    """Return the next step of a single pass, or its outcome, with the pass's grade as the first grade.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.PROBE, Role.MODEL, "<answer>Lima</answer>")
    >>> pass_outcome(Pass.PROBE, question, [said], GraderKind.EXACT).wrong
    False
    """
    verdict = _judge(pass_, question, replies, grader, refuses)
    return verdict if isinstance(verdict, Step) else _outcome(verdict)


def _judge(
    pass_: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind, detector: Detector | None
) -> Step | _Verdict:
    """Return the verdict on one pass, or the step that it still needs."""
    answers = [reply for reply in replies if reply.pass_ is pass_ and reply.role is Role.MODEL]
    if not answers:
        return Step(pass_, Role.MODEL)
    text = answers[0].text
    reading = read_reply(text, answers[0].stop_reason)
    if reading.unscored_reason:
        return _Verdict(Grade.UNSCORED, text, f"{pass_}_{reading.unscored_reason}")
    if reading.refused:
        return _Verdict(Grade.REFUSED, text)
    if not grader.models:
        grade = grade_by_rule(grader, question, reading.answer, detector)
        return _Verdict(
            grade, text, f"{pass_}_{unscored_reason(grader, question)}" if grade is Grade.UNSCORED else None
        )
    steps = [Step(pass_, role, prediction=reading.answer) for role in GRADERS[: grader.models]]
    return _graded_by_models(steps, text, question, replies)


def _graded_by_models(
    steps: Sequence[Step], text: str, question: Question, replies: Sequence[Reply]
) -> Step | _Verdict:
    """Return the verdict of all graders on one reply, or the first step that is still missing."""
    pass_ = steps[0].pass_
    grades: list[Grade] = []
    for step in steps:
        verdict = grade_by(step.role, pass_, question, replies)
        if verdict is None:
            attempts = sum((reply.pass_, reply.role) == (pass_, step.role) for reply in replies)
            if attempts < GRADE_ATTEMPTS:
                return replace(step, attempt=attempts)
            return _Verdict(Grade.UNSCORED, text, f"{pass_}_{UNREADABLE}")
        grades.append(verdict)
    if len(set(grades)) > 1:
        # graders that disagree only on correctness agree that there was an answer
        return _Verdict(Grade.UNSCORED, text, f"{pass_}_{DISAGREE}", answered=Grade.REFUSED not in grades)
    return _Verdict(grades[0], text)


def grade_by(grader: Role, pass_: Pass, question: Question, replies: Sequence[Reply]) -> Grade | None:
    """Return the grade that one grader gave in one pass; None if there is no readable grade.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> grade_by(Role.GRADER, Pass.FIRST, question, [Reply(Pass.FIRST, Role.GRADER, "B")])
    <Grade.INCORRECT: 'incorrect'>
    """
    verdicts = (reply.text for reply in replies if (reply.pass_, reply.role) == (pass_, grader))
    grades = (read_verdict(question, verdict) for verdict in verdicts)
    return next((grade for grade in grades if grade is not None), None)


def to_request(step: Step, question: Question, protocol: Protocol | None) -> Request:
    """Build the request of a step; a step for a grader needs no protocol."""
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
    """Return the outcome of the question: the forced answer counts if the first pass refused."""
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
"""Stands for a refusal in the first pass: the forced request depends only on the question."""


@dataclass(frozen=True)
class Procedure(ABC):
    """Determines what is asked about a question, and in which order.

    Attributes
    ----------
    grader
        The grader of replies without the UNANSWERED tag.
    asks_first, asks_model
        Whether the first pass is requested, and whether the model under evaluation is asked at all.
    passes
        The passes in which the model is asked.
    """

    grader: GraderKind
    asks_first: ClassVar[bool] = True
    asks_model: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = TWO_PASSES

    @abstractmethod
    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none.

        Parameters
        ----------
        question, replies
            The question, and the replies about it in one draw.
        force_answered
            Whether the forced pass is needed even if the first pass answered.
        """

    @abstractmethod
    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""


@dataclass(frozen=True)
class TwoPass(Procedure):
    """Both passes, from which the index is measured.

    Attributes
    ----------
    grader
        The grader of replies without the UNANSWERED tag.
    wording
        Prompts, variant and placement; None if replies are only read.
    detector
        Recognises refusals without the tag, for rule-based graders.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> TwoPass(GraderKind.EXACT).step(question, [REFUSAL]).pass_
    <Pass.FORCED: 'forced'>
    """

    wording: Protocol | None = None
    detector: Detector | None = refuses

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none."""
        return next_step(question, replies, self.grader, force_answered=force_answered, detector=self.detector)

    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""
        return to_request(step, question, self.wording)


@dataclass(frozen=True)
class ForcedPass(TwoPass):
    """The forced pass alone, for a question whose first pass was run elsewhere and graded as refused.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> ForcedPass(GraderKind.EXACT).step(question, []).pass_
    <Pass.FORCED: 'forced'>
    >>> ForcedPass(GraderKind.EXACT).step(question, [Reply(Pass.FORCED, Role.MODEL, "<answer>Lima</answer>")]).wrong
    False
    """

    asks_first: ClassVar[bool] = False
    passes: ClassVar[tuple[Pass, ...]] = (Pass.FORCED,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none."""
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

    passes: ClassVar[tuple[Pass, ...]] = (Pass.FIRST,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - as in `TwoPass`
        """Return the next step, or the outcome if there is none; no answer is forced."""
        return _without_forcing(next_step(question, replies, self.grader, detector=self.detector), replies)


def _without_forcing(step: Step | Outcome, replies: Sequence[Reply]) -> Step | Outcome:
    """Return a step, but replace a request for a forced answer by the outcome of a refusal."""
    if isinstance(step, Outcome) or (step.pass_, step.role) != (Pass.FORCED, Role.MODEL):
        return step
    first = next(reply.text for reply in replies if (reply.pass_, reply.role) == (Pass.FIRST, Role.MODEL))
    return Outcome(True, None, Grade.REFUSED, unscored_reason=FORCED_NOT_ASKED, first_reply=first)


@dataclass(frozen=True)
class Regrading(TwoPass):
    """Regrading of existing replies: graders are asked, the model under evaluation is not.

    A refusal without a forced answer is unscored, with the reason ``forced_not_asked``.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.FIRST, Role.MODEL, "Sorry, I do not know.")
    >>> Regrading(GraderKind.MODEL).step(question, [said]).role
    <Role.GRADER: 'grader'>
    >>> Regrading(GraderKind.EXACT).step(question, [said]).unscored_reason
    'forced_not_asked'
    """

    asks_model: ClassVar[bool] = False

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step of a grader, or the outcome.

        Raises
        ------
        ValueError
            If there is no first reply.
        """
        # An existing forced reply is graded in any case; without a gold answer its grade is known without a reply.
        only_answered = force_answered and question.gold is None
        step = next_step(question, replies, self.grader, force_answered=only_answered, detector=self.detector)
        if isinstance(step, Step) and (step.pass_, step.role) == (Pass.FIRST, Role.MODEL):
            raise ValueError(f"question {question.question_id}: there is no first reply to grade")
        return _without_forcing(step, replies)


PASSES = tuple(Pass)

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
            pass_, draw = completion.reply.pass_, completion.draw
            if draw >= conversation.draws:
                continue  # of another variant with more draws
            if completion.reply.role is Role.MODEL:
                self.own[pass_][draw] = completion.reply
            else:
                self._verdicts.setdefault((pass_, draw), []).append(completion)

    @cached_property
    def first_drawn(self) -> dict[Pass, dict[Reply, int]]:
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
        verdicts = self._verdicts.get((pass_, self.first_drawn[pass_][reply]), ())
        return [
            reply,
            *(verdict.reply for verdict in sorted(verdicts, key=lambda verdict: (verdict.reply.role, verdict.attempt))),
        ]

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
    used, step = _taken(conversation, completions)
    if step is None:
        replies = _Transcript(conversation, used)
        return [
            request for pass_ in conversation.procedure.passes for request in _due_of_pass(conversation, pass_, replies)
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
    used, step = _taken(conversation, completions)
    if step is None:
        return used, list(_each_drawn(conversation, _Transcript(conversation, used)))
    return used, [step] if isinstance(step, Outcome) else []


def replies_by_draw(conversation: Conversation, completions: Iterable[Completion]) -> dict[int, list[Reply]]:
    """Return the replies and verdicts of each draw; a reply that occurs in several draws is graded in one of them."""
    transcript = _Transcript(conversation, completions)
    return {
        draw: transcript.in_draw(draw)
        for draw in sorted({draw for replies in transcript.own.values() for draw in replies})
    }


def _each_drawn(conversation: Conversation, transcript: _Transcript) -> Iterator[Outcome]:
    step = partial(conversation.procedure.step, conversation.question, force_answered=conversation.draws > 1)
    by_replies: dict[tuple[Reply | None, ...], Outcome] = {}  # draws with the same replies have the same outcome
    for draw in range(conversation.draws):
        replies = tuple(transcript.own[pass_].get(draw) for pass_ in PASSES)
        if not any(replies):
            return
        if replies not in by_replies:
            result = step(transcript.in_draw(draw))
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
        step = conversation.procedure.step(conversation.question, transcript.graded(Pass.FIRST, first))
        outcome = step if isinstance(step, Outcome) else Outcome(True if step.pass_ is Pass.FORCED else None, None)
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
    )


def used_completions(conversation: Conversation, completions: Iterable[Completion]) -> list[Completion]:
    """Return the replies that determine the outcomes, without forced answers that only other variants needed.

    Parameters
    ----------
    conversation, completions
        As for `next_requests`.
    """
    return _taken(conversation, completions)[0]


def _taken(
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
        pass_, kind = Pass(reason.partition("_")[0]), reason.partition("_")[2]
        by_model = kind in REPLY_REASONS
        if by_model and not conversation.procedure.asks_model:
            continue  # the model would not be asked again
        target = (pass_, by_model, draw if by_model else transcript.first_drawn[pass_][transcript.own[pass_][draw]])
        retired |= dict.fromkeys(
            completion
            for completion in replies
            if (completion.reply.pass_, completion.reply.role is Role.MODEL, completion.draw) == target
        )
    return list(retired)


def _due_of_pass(conversation: Conversation, pass_: Pass, transcript: _Transcript) -> Iterator[PendingRequest]:
    question, procedure, before = conversation.question, conversation.procedure, BEFORE[pass_]
    if procedure.asks_model:
        step = procedure.step(question, before)
        if isinstance(step, Outcome):
            return  # without a gold answer the forced pass needs no request
        missing = (draw for draw in range(conversation.draws) if draw not in transcript.own[pass_])
        for _, run in groupby(enumerate(missing), key=lambda pair: pair[1] - pair[0]):  # draws in a row
            draws = [draw for _, draw in run]
            yield PendingRequest(step, draws[0], len(draws))
    for reply, draw in transcript.first_drawn[pass_].items():
        step = procedure.step(question, [*before, *transcript.graded(pass_, reply)])
        if isinstance(step, Step) and step.role is not Role.MODEL:
            yield PendingRequest(step, draw)


def is_auxiliary(variant: str) -> bool:
    """Whether a variant is auxiliary, so that its replies are not part of the run's two passes."""
    return variant.startswith(AUXILIARY)


def forced_variant(variant: str) -> str:
    """Return the variant of a conversation's forced pass: empty because all variants share it, auxiliary ones aside.

    Examples
    --------
    >>> forced_variant("low"), forced_variant("confidence/forced")
    ('', 'confidence/forced')
    """
    return variant if is_auxiliary(variant) else ""


SEED_BITS = 31  # every provider accepts these


def request_seed(run_seed: int, question_id: str, draw: int, variant: str, request: Request) -> int:
    """Return the seed of `request`, derived only from its content.

    The variant does not count in the forced pass, which belongs to the question and the draw, so that a question
    refused under two variants is forced once and both share the answer.

    Parameters
    ----------
    run_seed
        The seed of the run.
    question_id, draw
        The question, and its draw, from 0.
    variant
        The first-pass variant.
    request
        The pass, the role and the attempt.

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
