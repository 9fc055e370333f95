"""How many requests and tokens a run would take, computed from its own prompts.

The procedure is walked through for every question, as far as replies are known, and what would come next is counted.
What is certain is counted exactly: every first pass, and every forced pass of a question that is drawn repeatedly.
What depends on replies is a range: at least, to be expected under stated assumptions, and at most.
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
    """A dataclass whose values are added, and multiplied by a number or by a chance, field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: Range | float) -> Self:
        return type(self)(*(value * factor for value in vars(self).values()))


@dataclass(frozen=True)
class Range(_Countable):
    """A number that replies decide: what it is at least, what is to be expected, and at most.

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
        """Return the range of one number."""
        return cls(number, number, number)

    def __mul__(self, factor: Range | float) -> Range:
        by = factor if isinstance(factor, Range) else Range.exactly(factor)
        return Range(self.least * by.least, self.expected * by.expected, self.most * by.most)

    def or_more(self, other: Range) -> Range:
        """Return the larger one of each of the three numbers."""
        return Range(max(self.least, other.least), max(self.expected, other.expected), max(self.most, other.most))


@dataclass(frozen=True)
class Load(_Countable):
    """Requests of one kind, and their tokens."""

    requests: Range = field(default_factory=Range)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)


@dataclass(frozen=True)
class Estimate(_Countable):
    """What would be sent.

    Attributes
    ----------
    first, forced
        To the model.
    grading
        To the models that grade, in both passes.
    there
        Requests of the same run that were answered before, and are left out of the others.
    """

    first: Load
    forced: Load
    grading: Load
    there: int

    @property
    def model(self) -> Load:
        """Everything that is sent to the model under evaluation."""
        return self.first + self.forced

    @property
    def total(self) -> Load:
        """Everything that is sent."""
        return self.model + self.grading


VERDICT_TOKENS = 2  # a letter and the end


@dataclass(frozen=True)
class Assumptions:
    """What cannot be known before anything is asked.

    Attributes
    ----------
    refusal_share
        Share of the questions that are refused, the same ones under every variant.
    reply_tokens
        Length of a reply.
    choices
        How many choices the provider gives for one request, where several are asked for.
    """

    refusal_share: float = 0.5
    reply_tokens: int = 50
    choices: Range = field(default_factory=lambda: Range.exactly(1))


@dataclass(frozen=True)
class ToAsk:
    """A question under one variant, and how often it is drawn."""

    protocol: Protocol
    question: Question
    draws: int = 1


NOTHING = Estimate(Load(), Load(), Load(), 0)

Tokens = Callable[[Request], int]
"""Counts the tokens of a request."""

Paid = Callable[[ToAsk, Request, int, int], Sequence[Reply]]
"""Looks up the replies to a request for a draw and some choices; none where it was not answered before."""


@dataclass(frozen=True)
class Foreseen:
    """A reply that is not paid for and known nevertheless, as that of a model that can be asked at no cost."""

    reply: Reply
    output_tokens: int


Foresee = Callable[[ToAsk], Foreseen | None]
"""Tells the reply of a first pass that was not answered before; None where nobody can know."""


Alike = Callable[[ToAsk], Hashable]
"""Tells what two questions have in common that take the same; None of one that is counted by itself."""

MAX_KINDS = 10_000
"""Kinds of questions that are held at a time."""


def by_itself(_one: ToAsk) -> None:
    """Count each question by itself."""


def nothing_paid(_one: ToAsk, _request: Request, _draw: int, _choices: int) -> Sequence[Reply]:
    """Look into a run that has not begun."""
    return ()


def estimate(
    asked: Iterable[ToAsk],
    tokens: Tokens,
    assumed: Assumptions,
    paid: Paid = nothing_paid,
    foresee: Foresee = lambda _question: None,
    alike: Alike = by_itself,
) -> Estimate:
    """Count what would be sent.

    Parameters
    ----------
    asked
        Every question under every variant that is to be run, the variants of a question one after the other.
    tokens
        Counts the tokens of a request.
    assumed
        What cannot be known.
    paid
        What was answered before; nothing unless told otherwise.
    foresee
        What is known of the replies to first passes of single draws; nothing unless told otherwise.
    alike
        Which questions take the same, so that it is worked out once.

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
    for variants, number in _kinds(asked, alike):
        estimator = _Estimator(tokens, assumed, paid, foresee)
        for question in variants:
            estimator.add(question)
        total += estimator.result() * number
    return total


def _kinds(asked: Iterable[ToAsk], alike: Alike) -> Iterator[tuple[Sequence[ToAsk], int]]:
    """Yield one question of each kind, under all its variants, with how many there are of it."""
    examples: dict[tuple[Hashable, ...], Sequence[ToAsk]] = {}
    counts = Counter[tuple[Hashable, ...]]()
    for _, variants in groupby(asked, key=lambda one: one.question.question_id):
        question = list(variants)
        kind = tuple(map(alike, question))
        if None in kind:
            yield question, 1
            continue
        counts[kind] += 1
        examples.setdefault(kind, question)
        if len(examples) == MAX_KINDS:
            yield from ((examples[each], number) for each, number in counts.items())
            examples.clear()
            counts.clear()
    yield from ((examples[each], number) for each, number in counts.items())


@dataclass(frozen=True)
class _Forced:
    """A forced pass that several variants share: what it takes, and the chance that one of them needs it."""

    model: Load = field(default_factory=Load)
    grading: Load = field(default_factory=Load)
    chance: Range = field(default_factory=Range)


class _Estimator:
    def __init__(self, tokens: Tokens, assumed: Assumptions, paid: Paid, foresee: Foresee) -> None:
        self._tokens, self._assumed, self._paid, self._foresee = tokens, assumed, paid, foresee
        self._first, self._grading, self._there = Load(), Load(), 0
        self._forced: dict[tuple[str, int, int], _Forced] = {}

    def add(self, one: ToAsk) -> None:
        """Count what a question under a variant would take, and what its forced pass might."""
        if one.draws == 1:
            first, chance = self._first_in_turn(one)
            self._count_first(first)
            self._force(one, range(1), chance)
            return
        draws = range(one.draws)
        self._count_first(self._portion(one, draws, ()))
        self._force(one, draws, Range.exactly(1))

    def result(self) -> Estimate:
        """Return all that was counted, each shared forced pass once."""
        forced, grading = Load(), self._grading
        for shared in self._forced.values():
            forced += shared.model * shared.chance
            grading += shared.grading * shared.chance
        return Estimate(self._first, forced, grading, self._there)

    def _count_first(self, found: _Forced) -> None:
        self._first += found.model
        self._grading += found.grading

    def _first_in_turn(self, one: ToAsk) -> tuple[_Forced, Range]:
        """Return what a first pass still takes, and the chance of a forced pass after it."""
        request = next_request(one.question, (), one.protocol)
        said = self._look(one, request, 0, 1) if isinstance(request, Request) else ()
        if said:
            return self._after(one, said, Load())
        foreseen = self._foresee(one)
        if foreseen is None or isinstance(request, Outcome):
            return self._portion(one, range(1), ()), Range(0, self._assumed.refusal_share, 1)
        lengths = (1, self._tokens(request), foreseen.output_tokens)
        return self._after(one, [foreseen.reply], Load(*map(Range.exactly, lengths)))

    def _after(self, one: ToAsk, said: Sequence[Reply], model: Load) -> tuple[_Forced, Range]:
        """Return what follows a first pass whose reply is known, with what that reply still takes itself."""
        grading, replies = self._verdicts(one, said, (), 0)
        if grading.requests.most:
            return _Forced(model, grading), Range(0, 0, 1)  # what is not refused by its tag is rarely refused
        refused = isinstance(next_request(one.question, replies, one.protocol), Request)
        return _Forced(model), Range.exactly(1 if refused else 0)

    def _force(self, one: ToAsk, draws: range, chance: Range) -> None:
        """Count a forced pass once for all variants, with the best chance that any of them gives it."""
        if not chance.most:
            return
        key = (one.question.question_id, draws.start, len(draws))
        known = self._forced.get(key) or self._portion(one, draws, (REFUSAL,))
        self._forced[key] = replace(known, chance=known.chance.or_more(chance))

    def _portion(self, one: ToAsk, draws: range, before: Sequence[Reply]) -> _Forced:
        """Return what one pass over some draws still takes; of `before`, whether it is the first or the forced one."""
        request = next_request(one.question, before, one.protocol)
        if isinstance(request, Outcome):
            return _Forced()  # of a question without a right answer the forced pass is known
        said: list[Reply] = []
        while len(said) < len(draws):
            found = self._look(one, request, draws[len(said)], len(draws) - len(said))
            if not found:
                break
            said += found
        left = len(draws) - len(said)
        requests = self._requests(left)
        model = Load(requests, requests * self._tokens(request), Range.exactly(left * self._assumed.reply_tokens))
        grading = self._unseen(one, request.pass_, left)
        for reply in dict.fromkeys(said):
            grading += self._verdicts(one, [reply], before, draws[said.index(reply)])[0]
        return _Forced(model, grading)

    def _requests(self, draws: int) -> Range:
        """Return how many requests bring so many draws: the more choices come back, the fewer."""
        given = self._assumed.choices
        return Range(*(-(-draws // int(choices)) for choices in (given.most, given.expected, given.least)))

    def _verdicts(
        self, one: ToAsk, said: Sequence[Reply], before: Sequence[Reply], draw: int
    ) -> tuple[Load, list[Reply]]:
        """Return the grading that a known reply still takes, and the reply with the verdicts that are there."""
        replies = list(said)
        while isinstance(step := next_request(one.question, [*before, *replies], one.protocol), Request):
            if step.role is Role.MODEL:
                break
            verdict = self._look(one, step, draw, 1)
            if not verdict:
                further = GRADERS[GRADERS.index(step.role) + 1 : one.protocol.grader.models]
                attempts = Range(1, 1, GRADE_ATTEMPTS - step.attempt)
                asked = [(step.role, attempts), *((grader, Range(0, 1, GRADE_ATTEMPTS)) for grader in further)]
                return sum((self._grade(one, step.pass_, *each) for each in asked), Load()), replies
            replies += verdict
        return Load(), replies

    def _unseen(self, one: ToAsk, of: Pass, replies: int) -> Load:
        """Return the grading of replies that nobody knows: those that answer are graded, each another one."""
        if not replies:
            return Load()
        answering = 1 - self._assumed.refusal_share if of is Pass.FIRST else 1
        times = Range(0, answering * replies, GRADE_ATTEMPTS * replies)
        return sum((self._grade(one, of, asked, times) for asked in GRADERS[: one.protocol.grader.models]), Load())

    def _grade(self, one: ToAsk, of: Pass, asked: Role, times: Range) -> Load:
        # of a reply that is not known, the gold answer's length is the best guess
        prompt = grader_prompt(one.question, one.question.gold or "")
        tokens = self._tokens(Request(of, asked, (Message("user", prompt),)))
        return Load(times, times * tokens, times * VERDICT_TOKENS)

    def _look(self, one: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
        found = self._paid(one, request, draw, choices)
        self._there += bool(found)
        return found
