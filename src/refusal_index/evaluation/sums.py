"""What the questions of a run add up to beside outcomes: what they took, what is missing, where graders differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from refusal_index.engines.budget import Took
from refusal_index.engines.store import QuestionRecord
from refusal_index.outcomes.outcome import Grade, Outcome, Question
from refusal_index.outcomes.settings import Prices
from refusal_index.outcomes.summary import Usage
from refusal_index.protocol import Asked, Completion, Pass, Reply, verdict_of

STILL_TO_COME = "it was not asked to its end"
"""What is missing of a question that nothing kept from being finished, but that the run ended before."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A question that is not finished, and what kept it from it."""

    variant: str
    question_id: str
    error: str


@dataclass(frozen=True)
class Disagreement:
    """A reply over which two graders differ.

    Attributes
    ----------
    question, variant, of
        What was asked, under which variant and in which pass.
    reply
        Word for word.
    grade, second_grade
        The two verdicts.
    """

    question: Question
    variant: str | None
    of: Pass
    reply: str
    grade: Grade
    second_grade: Grade


@dataclass(frozen=True, slots=True)
class Answered:
    """A question under a variant: what became of its draws, the replies that this rests on, and what is wrong."""

    question: Question
    outcomes: Sequence[Outcome]
    said: Sequence[Completion]
    error: str | None = None


class Sums:
    """What questions add up to, one after the other.

    Parameters
    ----------
    variants
        Those that something is asked under, in their order.
    """

    def __init__(self, variants: Sequence[str]) -> None:
        self.variants = variants
        self.is_begun = False
        """Whether anything was answered, or failed."""
        self._took = {variant: Took() for variant in variants}
        self._missing: dict[str, list[Missing]] = {variant: [] for variant in variants}
        self._disagreements: dict[str, list[Disagreement]] = {variant: [] for variant in variants}

    def add(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Add one question, with all the variants that it is asked under."""
        self.is_begun = self.is_begun or any(one.said or one.error != STILL_TO_COME for one in answered.values())
        self._count(record, answered)
        for found in _disagreements(answered):
            self._disagreements[str(found.variant)].append(found)
        for variant, one in answered.items():
            if one.error is not None:
                self._missing[variant].append(Missing(variant, record.question.question_id, one.error))

    def _count(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Count what each variant took, with what was set aside; what is shared counts once, for the first of them."""
        counted: set[int] = set()
        for variant in self.variants:
            replies = answered[variant].said if variant in answered else ()
            aside = (one for one in record.retired if (one.variant or self.variants[0]) == variant)
            for one in (*replies, *aside):
                if id(one) not in counted:  # all of them are this record's own
                    counted.add(id(one))
                    self._took[variant].add(one)

    def usage(self, prices: Prices) -> dict[str | None, Usage]:
        """Return what each variant took."""
        return {variant: _usage(took, prices) for variant, took in self._took.items()}

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What is not finished, by variant and id."""
        return tuple(one for found in self._missing.values() for one in found)

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Replies over which the graders differ, by variant and id."""
        return tuple(one for found in self._disagreements.values() for one in found)


def _usage(took: Took, prices: Prices) -> Usage:
    (read, written), grading = took.tokens, took.grading_tokens
    return Usage(
        input_tokens=read,
        output_tokens=written,
        requests=took.requests,
        cost=took.cost(prices),
        unpriced_tokens=sum(grading) if prices.grader is None else 0,
    )


def total(replies: Iterable[Completion], prices: Prices) -> Usage:
    """Add up what some replies took."""
    took = Took()
    for one in replies:
        took.add(one)
    return _usage(took, prices)


def _disagreements(answered: Mapping[str, Answered]) -> Iterator[Disagreement]:
    """Yield each reply to a question over which the graders differ, once, however often it came.

    A forced answer that variants share belongs to the first of them.
    """
    shared: set[str] = set()
    for found in (each for variant, one in answered.items() for each in _of_variant(variant, one)):
        if found.of is Pass.FORCED:
            if found.reply in shared:
                continue
            shared.add(found.reply)
        yield found


def _of_variant(variant: str, answered: Answered) -> Iterator[Disagreement]:
    verdicts: dict[tuple[Pass, int], list[Reply]] = {}
    for one in answered.said:
        if one.reply.asked is not Asked.MODEL:
            verdicts.setdefault((one.reply.of, one.draw), []).append(one.reply)
    for (of, draw), told in verdicts.items():
        first = verdict_of(Asked.GRADER, of, answered.question, told)
        second = verdict_of(Asked.SECOND_GRADER, of, answered.question, told)
        if first is not None and second is not None and first is not second:
            reply = next(
                one.reply.text
                for one in answered.said
                if (one.reply.of, one.draw, one.reply.asked) == (of, draw, Asked.MODEL)
            )
            yield Disagreement(answered.question, variant, of, reply, first, second)
