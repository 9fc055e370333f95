"""Estimates of a run's requests and tokens, computed from its own prompts.

The procedure is followed for every question as far as replies are known, and the requests that would come next are
counted. What is certain is counted exactly: every first pass, and every forced pass of a question that is sampled more
than once. What depends on replies is a range: the minimum, the expectation under stated assumptions, and the maximum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import add
from typing import Self

from refusal_index.data.outcome import Outcome, Question
from refusal_index.protocol.grading import grader_prompt
from refusal_index.protocol.procedure import (
    GRADE_ATTEMPTS,
    GRADERS,
    REFUSAL,
    Message,
    Pass,
    Protocol,
    Reply,
    Request,
    Role,
    next_request,
)


class _Countable:
    """A dataclass whose fields are added, and multiplied by a number or a range, one by one."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: Range | float) -> Self:
        return type(self)(*(value * factor for value in vars(self).values()))


@dataclass(frozen=True)
class Range(_Countable):
    """A quantity that depends on replies: its minimum, its expectation, and its maximum.

    Examples
    --------
    >>> Range.exactly(3) + Range(0, 1, 2)
    Range(least=3, expected=4, most=5)
    """

    least: float = 0
    expected: float = 0
    most: float = 0

    @classmethod
    def exactly(cls, number: float) -> Range:
        """Return the range of a number that is known."""
        return cls(number, number, number)

    def __mul__(self, factor: Range | float) -> Range:
        factors = factor if isinstance(factor, Range) else Range.exactly(factor)
        return Range(self.least * factors.least, self.expected * factors.expected, self.most * factors.most)

    def elementwise_max(self, other: Range) -> Range:
        """Return the larger of each of the three numbers."""
        return Range(max(self.least, other.least), max(self.expected, other.expected), max(self.most, other.most))


@dataclass(frozen=True)
class Load(_Countable):
    """Requests of one kind, and their tokens."""

    requests: Range = field(default_factory=Range)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)


@dataclass(frozen=True)
class CostEstimate(_Countable):
    """The estimated requests and tokens of a run.

    Attributes
    ----------
    first, forced
        Requests to the model.
    grading
        Requests to graders, in both passes.
    there
        Number of the run's requests that already have replies; the others leave them out.
    """

    first: Load
    forced: Load
    grading: Load
    there: int

    @property
    def model(self) -> Load:
        """All requests to the model under evaluation."""
        return self.first + self.forced

    @property
    def total(self) -> Load:
        """All requests."""
        return self.model + self.grading


VERDICT_TOKENS = 2  # a letter and the end-of-text token


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about what is unknown before a run.

    Attributes
    ----------
    refusal_share
        Share of questions that are refused; the same questions under every variant.
    reply_tokens
        Tokens per reply.
    choices
        Number of choices that the provider returns for one request, if several are requested.
    """

    refusal_share: float = 0.5
    reply_tokens: int = 50
    choices: Range = field(default_factory=lambda: Range.exactly(1))


@dataclass(frozen=True)
class ToAsk:
    """A question under one variant, and its number of draws."""

    protocol: Protocol
    question: Question
    draws: int = 1


NOTHING = CostEstimate(Load(), Load(), Load(), 0)

Tokens = Callable[[Request], int]
"""Counts the tokens of a request."""

Paid = Callable[[ToAsk, Request, int, int], Sequence[Reply]]
"""Looks up the stored replies to a request, by its first draw and its number of choices; empty if there are none."""


@dataclass(frozen=True)
class Foreseen:
    """A reply that is known before it is paid for, such as that of a model that runs at no cost."""

    reply: Reply
    output_tokens: int


Foresee = Callable[[ToAsk], Foreseen | None]
"""Predicts the reply to a first pass without a stored reply; None if it cannot be known."""


Alike = Callable[[ToAsk], Hashable]
"""Returns a key that is equal for questions with equal costs; None for a question that is counted separately."""

MAX_KINDS = 10_000
"""Maximum number of kinds of questions in memory at a time."""


def by_itself(_one: ToAsk) -> None:
    """Count each question separately."""


def no_stored_replies(_one: ToAsk, _request: Request, _draw: int, _choices: int) -> Sequence[Reply]:
    """Find no stored replies, as in a run that has not started."""
    return ()


def estimate(
    to_ask: Iterable[ToAsk],
    tokens: Tokens,
    assumed: Assumptions,
    paid: Paid = no_stored_replies,
    foresee: Foresee = lambda _question: None,
    alike: Alike = by_itself,
) -> CostEstimate:
    """Estimate the requests and tokens of a run.

    Parameters
    ----------
    to_ask
        Every question under every variant of the run; the variants of a question must be adjacent.
    tokens
        Counts the tokens of a request.
    assumed
        Assumptions about replies.
    paid
        Looks up stored replies; by default there are none.
    foresee
        Predicts the first-pass reply of questions with a single draw; by default none is known.
    alike
        Returns equal keys for questions with equal costs, so that these are computed once.

    Examples
    --------
    >>> from refusal_index.protocol import GraderKind, about_tokens, load_prompt_set
    >>> prompts, question = load_prompt_set("default"), Question("q1", "What is the capital of Peru?", "Lima")
    >>> asked = [ToAsk(Protocol(prompts, name, GraderKind.EXACT), question) for name in prompts.variants]
    >>> found = estimate(asked, lambda request: about_tokens(request.messages[0].content), Assumptions())
    >>> found.first.requests, found.forced.requests
    (Range(least=4, expected=4, most=4), Range(least=0, expected=0.5, most=1))
    """
    total = NOTHING
    for variants, number in _kinds(to_ask, alike):
        estimator = _Estimator(tokens, assumed, paid, foresee)
        for question in variants:
            estimator.add(question)
        total += estimator.result() * number
    return total


def _kinds(to_ask: Iterable[ToAsk], alike: Alike) -> Iterator[tuple[Sequence[ToAsk], int]]:
    """Yield one question of each kind, under all its variants, with the number of questions of that kind."""
    examples: dict[tuple[Hashable, ...], Sequence[ToAsk]] = {}
    counts = Counter[tuple[Hashable, ...]]()
    for _, variants in groupby(to_ask, key=lambda item: item.question.question_id):
        question = list(variants)
        kind = tuple(map(alike, question))
        if None in kind:
            yield question, 1
            continue
        counts[kind] += 1
        examples.setdefault(kind, question)
        if len(examples) == MAX_KINDS:
            yield from ((examples[key], number) for key, number in counts.items())
            examples.clear()
            counts.clear()
    yield from ((examples[key], number) for key, number in counts.items())


@dataclass(frozen=True)
class _Forced:
    """A forced pass that several variants share: its load, and the probability that one of them needs it."""

    model: Load = field(default_factory=Load)
    grading: Load = field(default_factory=Load)
    chance: Range = field(default_factory=Range)


class _Estimator:
    def __init__(self, tokens: Tokens, assumed: Assumptions, paid: Paid, foresee: Foresee) -> None:
        self._tokens, self._assumed, self._paid, self._foresee = tokens, assumed, paid, foresee
        self._first, self._grading, self._n_stored = Load(), Load(), 0
        self._forced: dict[tuple[str, int], _Forced] = {}

    def add(self, item: ToAsk) -> None:
        """Count the first pass of a question under a variant, and the forced pass that may follow."""
        if item.draws == 1:
            first, chance = self._first_in_turn(item)
        else:
            first, chance = self._portion(item, ()), Range.exactly(1)
        self._first += first.model
        self._grading += first.grading
        if chance.most:  # all variants share a forced pass, with the highest probability among them
            key = item.question.question_id, item.draws
            portion = self._forced.get(key) or self._portion(item, (REFUSAL,))
            self._forced[key] = replace(portion, chance=portion.chance.elementwise_max(chance))

    def result(self) -> CostEstimate:
        """Return the total, with each shared forced pass counted once."""
        forced, grading = Load(), self._grading
        for shared in self._forced.values():
            forced += shared.model * shared.chance
            grading += shared.grading * shared.chance
        return CostEstimate(self._first, forced, grading, self._n_stored)

    def _first_in_turn(self, item: ToAsk) -> tuple[_Forced, Range]:
        """Return the remaining load of a first pass, and the probability of a forced pass after it."""
        request = next_request(item.question, (), item.protocol)
        replies = self._look(item, request, 0, 1) if isinstance(request, Request) else ()
        if replies:
            return self._after(item, replies, Load())
        foreseen = self._foresee(item)
        if foreseen is None or isinstance(request, Outcome):
            return self._portion(item, ()), Range(0, self._assumed.refusal_share, 1)
        lengths = (1, self._tokens(request), foreseen.output_tokens)
        return self._after(item, [foreseen.reply], Load(*map(Range.exactly, lengths)))

    def _after(self, item: ToAsk, model_replies: Sequence[Reply], model: Load) -> tuple[_Forced, Range]:
        """Return the load of a first pass whose reply is known, and the probability of a forced pass after it."""
        grading, replies = self._verdicts(item, model_replies, (), 0)
        if grading.requests.most:
            return _Forced(model, grading), Range(0, 0, 1)  # a reply without the tag is rarely a refusal
        refused = isinstance(next_request(item.question, replies, item.protocol), Request)
        return _Forced(model), Range.exactly(1 if refused else 0)

    def _portion(self, item: ToAsk, before: Sequence[Reply]) -> _Forced:
        """Return the remaining load of one pass over all draws: with a refusal in `before`, of the forced pass."""
        request = next_request(item.question, before, item.protocol)
        if isinstance(request, Outcome):
            return _Forced()  # without a gold answer the forced pass needs no request
        replies: list[Reply] = []
        while len(replies) < item.draws:
            stored = self._look(item, request, len(replies), item.draws - len(replies))
            if not stored:
                break
            replies += stored
        left = item.draws - len(replies)
        choices = self._assumed.choices  # the more choices come back, the fewer requests bring so many draws
        requests = Range(*(-(-left // int(choices)) for choices in (choices.most, choices.expected, choices.least)))
        model = Load(requests, requests * self._tokens(request), Range.exactly(left * self._assumed.reply_tokens))
        grading = self._unseen(item, request.pass_, left)
        for reply in dict.fromkeys(replies):
            grading += self._verdicts(item, [reply], before, replies.index(reply))[0]
        return _Forced(model, grading)

    def _verdicts(
        self, item: ToAsk, model_replies: Sequence[Reply], before: Sequence[Reply], draw: int
    ) -> tuple[Load, list[Reply]]:
        """Return the remaining grading of a known reply, and the reply with its existing verdicts."""
        replies = list(model_replies)
        while isinstance(step := next_request(item.question, [*before, *replies], item.protocol), Request):
            if step.role is Role.MODEL:
                break
            verdict = self._look(item, step, draw, 1)
            if not verdict:
                further = GRADERS[GRADERS.index(step.role) + 1 : item.protocol.grader.models]
                attempts = Range(1, 1, GRADE_ATTEMPTS - step.attempt)
                grades = [(step.role, attempts), *((grader, Range(0, 1, GRADE_ATTEMPTS)) for grader in further)]
                return sum(
                    (self._grade(item, step.pass_, *role_and_times) for role_and_times in grades), Load()
                ), replies
            replies += verdict
        return Load(), replies

    def _unseen(self, item: ToAsk, pass_: Pass, replies: int) -> Load:
        """Return the estimated grading of unknown replies, assuming that all answers differ and are graded."""
        if not replies:
            return Load()
        answering = 1 - self._assumed.refusal_share if pass_ is Pass.FIRST else 1
        times = Range(0, answering * replies, GRADE_ATTEMPTS * replies)
        return sum((self._grade(item, pass_, role, times) for role in GRADERS[: item.protocol.grader.models]), Load())

    def _grade(self, item: ToAsk, pass_: Pass, role: Role, times: Range) -> Load:
        # for an unknown reply, the length of the gold answer is the best guess
        prompt = grader_prompt(item.question, item.question.gold or "")
        tokens = self._tokens(Request(pass_, role, (Message("user", prompt),)))
        return Load(times, times * tokens, times * VERDICT_TOKENS)

    def _look(self, item: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
        stored = self._paid(item, request, draw, choices)
        self._n_stored += bool(stored)
        return stored
