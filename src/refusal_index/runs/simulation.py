"""Counts of the requests and tokens that a run has yet to send: its procedure is followed over simulated replies.

The same `next_requests` that a run follows names each request. Replies that are stored, or known beforehand, are taken
as they are; the others are simulated in several scenarios. The counts are the least and the most of all scenarios, and
the mean of two of them, in which a question is answered and in which it is refused, weighted by the assumed share of
refusals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil

from refusal_index.data.outcome import LETTERS, Question
from refusal_index.findings.dry_run import Assumptions, Load, Range, RequestCounts
from refusal_index.protocol import (
    REFUSAL,
    Completion,
    Conversation,
    Pass,
    PendingRequest,
    Procedure,
    Reply,
    Request,
    Role,
    forced_variant,
    next_requests,
)
from refusal_index.protocol.conversation import BEFORE
from refusal_index.protocol.steps import Step
from refusal_index.protocol.wording import Says, read_wording

VERDICT_TOKENS = 2  # a letter and the end-of-text token

Tokens = Callable[[Request], int]
"""Counts the tokens of a request."""

Stored = Callable[[Conversation], Sequence[Completion]]
"""Returns the stored replies of a conversation, and of the forced passes that it shares with others."""

ATTEMPTED = "B"
NOT_ATTEMPTED = "C"
UNREADABLE = ""
"""Verdicts of a grader."""


@dataclass(frozen=True)
class Scenario:
    """How the model and its graders reply.

    Attributes
    ----------
    answers
        Whether replies can be scored; if not, no verdict on them is needed.
    refuses
        Whether the first pass is refused; a forced pass is always answered.
    verdicts
        The first and the second verdict of a grader on the same reply.
    choices
        The number of choices in a response, as an attribute of the assumed range.
    """

    answers: bool
    refuses: bool
    verdicts: tuple[str, str]
    choices: str


SCENARIOS = (
    # expected: every answer is graded once; the question is answered in the first, and refused in the second
    Scenario(answers=True, refuses=False, verdicts=(ATTEMPTED, ATTEMPTED), choices="expected"),
    Scenario(answers=True, refuses=True, verdicts=(ATTEMPTED, ATTEMPTED), choices="expected"),
    # least: nothing can be scored; stored answers need as few verdicts as possible, or no forced pass
    Scenario(answers=False, refuses=False, verdicts=(ATTEMPTED, UNREADABLE), choices="most"),
    Scenario(answers=False, refuses=False, verdicts=(UNREADABLE, UNREADABLE), choices="most"),
    # most: every verdict is asked for twice, and then says that the question was refused
    Scenario(answers=True, refuses=False, verdicts=(UNREADABLE, NOT_ATTEMPTED), choices="least"),
)


@dataclass(frozen=True)
class _Sent:
    """Requests for the same step, with the output tokens of all replies; the answer to grade is empty if simulated."""

    procedure: Procedure
    variant: str
    step: Step
    requests: int
    output_tokens: int


def count_requests(
    conversations: Iterable[Conversation],
    tokens: Tokens,
    assumed: Assumptions,
    stored: Stored = lambda _conversation: (),
    known_replies: Mapping[tuple[str, str], Completion] | None = None,
    *,
    by_length: bool = False,
) -> RequestCounts:
    """Count the requests that a run has yet to send, and their tokens.

    Parameters
    ----------
    conversations
        Every question under every variant of the run; the variants of a question must be adjacent.
    tokens
        Counts the tokens of a request.
    assumed
        Assumptions about replies.
    stored
        Looks up stored replies; by default there are none.
    known_replies
        Replies to first passes that are known beforehand, by question id and variant.
    by_length
        Whether the tokens of a request depend only on the lengths of its parts, so that questions of the same lengths
        are counted together.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, Protocol, TwoPass, about_tokens, load_prompt_set
    >>> prompts, question = load_prompt_set("default"), Question("q1", "What is the capital of Peru?", "Lima")
    >>> kind = GraderKind.EXACT
    >>> asked = [Conversation(question, one, TwoPass(kind, Protocol(prompts, one, kind))) for one in prompts.variants]
    >>> found = count_requests(asked, lambda request: about_tokens(request.messages[0].content), Assumptions())
    >>> found.first.requests, found.forced.requests
    (Range(least=4, expected=4, most=4), Range(least=0, expected=0.5, most=1))
    """
    total = RequestCounts()
    known_replies = known_replies or {}
    examples: dict[tuple[Hashable, Hashable], Sequence[Conversation]] = {}
    numbers = Counter[tuple[Hashable, Hashable]]()
    for question, group in groupby(conversations, key=lambda conversation: conversation.question):
        variants: Sequence[Conversation] = list(group)
        replies = list(dict.fromkeys(reply for conversation in variants for reply in stored(conversation)))
        if replies or any((question.question_id, conversation.variant) in known_replies for conversation in variants):
            found = _counts(question, _simulated(variants, assumed, replies, known_replies), tokens, assumed)
            total += replace(found, stored=sum(1 for reply in replies if reply.requests))
        else:
            key = _kind(variants), _lengths(question) if by_length else question.question_id
            examples.setdefault(key, variants)
            numbers[key] += 1
    simulated: dict[Hashable, Sequence[Sequence[_Sent]]] = {}
    for key, variants in examples.items():
        kind, _ = key
        if kind not in simulated:
            simulated[kind] = _simulated(variants, assumed, (), {})
        total += _counts(variants[0].question, simulated[kind], tokens, assumed) * numbers[key]
    return total


def _kind(variants: Sequence[Conversation]) -> Hashable:
    """Return a key that is equal for questions without replies whose requests differ only in their messages."""
    question = variants[0].question
    draws = tuple((conversation.variant, conversation.draws) for conversation in variants)
    return draws, question.gold is None, _answer(question)


def _lengths(question: Question) -> Hashable:
    """Return the lengths of a question's parts."""
    parts = question.text, question.context or "", question.gold or "", *question.choices
    return question.context is None, tuple(map(len, parts))


def _answer(question: Question) -> str:
    """Return a simulated answer: any, or the letter of the first choice that does not decline."""
    pairs = zip(LETTERS, question.choices, strict=False)
    letters = (letter for letter, choice in pairs if read_wording(choice).says is not Says.REFUSAL)
    return next(letters, "an answer")


def _simulated(
    conversations: Sequence[Conversation],
    assumed: Assumptions,
    stored: Sequence[Completion],
    known_replies: Mapping[tuple[str, str], Completion],
) -> list[list[_Sent]]:
    """Return the requests about a question in each scenario."""
    return [list(_in_scenario(conversations, assumed, stored, known_replies, scenario)) for scenario in SCENARIOS]


def _in_scenario(
    conversations: Sequence[Conversation],
    assumed: Assumptions,
    stored: Sequence[Completion],
    known_replies: Mapping[tuple[str, str], Completion],
    scenario: Scenario,
) -> Iterator[_Sent]:
    """Yield the requests about a question in a scenario, until no conversation needs another.

    Draws that are requested together have the same simulated reply, but its verdicts count once for each of them, as if
    all differed.
    """
    replies = list(stored)
    simulated: dict[
        tuple[str, Pass, int], int
    ] = {}  # the draws that need verdicts, by the first with a simulated reply
    choices = int(getattr(assumed.choices, scenario.choices))
    for conversation in conversations:
        question_id = conversation.question.question_id
        shared = forced_variant(conversation.variant)
        while pending := next_requests(
            conversation, [reply for reply in replies if reply.variant in (conversation.variant, shared)]
        ):
            for request in pending:
                step = request.step
                variant = shared if step.pass_.is_shared else conversation.variant
                place = variant, step.pass_, request.draw
                known = known_replies.get((question_id, variant)) if step.pass_ is Pass.FIRST else None
                if step.role is Role.MODEL and known is not None:
                    replies.append(known)
                    yield _Sent(conversation.procedure, variant, step, 1, known.output_tokens)
                elif step.role is Role.MODEL:
                    reply = Reply(step.pass_, Role.MODEL, _reply(conversation, request, scenario))
                    simulated[place] = _n_judged(conversation, request, reply)
                    draws = range(request.draw, request.draw + request.n)
                    replies += [Completion(question_id, variant, draw, reply) for draw in draws]
                    n_sent = ceil(request.n / choices)
                    yield _Sent(conversation.procedure, variant, step, n_sent, request.n * assumed.reply_tokens)
                else:
                    verdict = Reply(step.pass_, step.role, _verdict(step, scenario, is_simulated=place in simulated))
                    replies.append(Completion(question_id, variant, request.draw, verdict, step.attempt))
                    n_sent = simulated.get(place, 1)
                    sent = replace(step, prediction="") if place in simulated else step
                    yield _Sent(conversation.procedure, "", sent, n_sent, n_sent * VERDICT_TOKENS)


def _n_judged(conversation: Conversation, request: PendingRequest, reply: Reply) -> int:
    """Return how many of the draws of a request need a verdict, if the first needs one."""
    replies = [*BEFORE[request.step.pass_], reply]
    further = conversation.procedure.step_of_further_draw(conversation.question, replies)
    return request.n if isinstance(further, Step) else 1


def _reply(conversation: Conversation, request: PendingRequest, scenario: Scenario) -> str:
    """Return a simulated reply, unlike that of other requests by the blanks at its end.

    It has no tag if a model is asked whether replies without one attempt an answer.
    """
    blanks = " " * request.draw
    if not scenario.answers:
        return blanks
    is_tagged = not conversation.procedure.rule.asks_model
    if scenario.refuses and request.step.pass_ is Pass.FIRST:
        return (REFUSAL.text if is_tagged else "no answer") + blanks
    answer = _answer(conversation.question)
    return (f"<answer>{answer}</answer>" if is_tagged else answer) + blanks


def _verdict(step: Step, scenario: Scenario, *, is_simulated: bool) -> str:
    """Return a simulated verdict; in the first pass, it is in line with a simulated refusal."""
    if is_simulated and scenario.refuses and step.pass_ is Pass.FIRST:
        return NOT_ATTEMPTED
    return scenario.verdicts[step.attempt]


def _counts(
    question: Question, scenarios: Sequence[Sequence[_Sent]], tokens: Tokens, assumed: Assumptions
) -> RequestCounts:
    """Return the range of the requests over all scenarios."""
    lengths: dict[tuple[str, Step], int] = {}
    sums = []
    for scenario in scenarios:
        counts = Counter[tuple[str, str]]()
        for sent in scenario:
            step = sent.step
            if (sent.variant, step) not in lengths:
                # the length of the gold answer is the best guess for that of an answer
                is_unknown = step.role is not Role.MODEL and not step.prediction
                asked = replace(step, prediction=question.gold or "") if is_unknown else step
                lengths[sent.variant, step] = tokens(sent.procedure.request(asked, question))
            part = str(step.pass_) if step.role is Role.MODEL else "grading"
            counts[part, "requests"] += sent.requests
            counts[part, "input_tokens"] += sent.requests * lengths[sent.variant, step]
            counts[part, "output_tokens"] += sent.output_tokens
        sums.append(counts)
    answered, refused, *_ = sums

    def ranged(part: str, quantity: str) -> Range:
        key = part, quantity
        more = refused[key] - answered[key]
        expected = answered[key] + (assumed.refusal_share * more if more else 0)
        return Range(min(counts[key] for counts in sums), expected, max(counts[key] for counts in sums))

    quantities = "requests", "input_tokens", "output_tokens"
    parts = (str(Pass.FIRST), str(Pass.FORCED), "grading")
    first, forced, grading = (Load(*(ranged(part, quantity) for quantity in quantities)) for part in parts)
    return RequestCounts(first, forced, grading)
