"""Estimates of the requests, tokens, time and cost of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from operator import add
from typing import Any, Self

from refusal_index.findings.metrics import Printable, Statement


class _Countable:
    """A dataclass whose fields are added, and multiplied by a number, one by one."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: float) -> Self:
        return type(self)(*(value * factor for value in vars(self).values()))


@dataclass(frozen=True)
class Range(_Countable):
    """A quantity that depends on replies: its minimum, its expectation, and its maximum.

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

    @property
    def is_exact(self) -> bool:
        """Whether the number is known."""
        return self.least == self.most


@dataclass(frozen=True)
class Load(_Countable):
    """Requests of one kind, and their tokens."""

    requests: Range = field(default_factory=Range)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)


@dataclass(frozen=True)
class RequestCounts(_Countable):
    """The requests that a run has yet to send, and their tokens."""

    # first, forced: to the model, in each pass; grading: to graders, in both
    first: Load = field(default_factory=Load)
    forced: Load = field(default_factory=Load)
    grading: Load = field(default_factory=Load)
    stored: int = 0  # requests that already have replies; the others leave them out

    @property
    def model(self) -> Load:
        """All requests to the model under evaluation."""
        return self.first + self.forced

    @property
    def total(self) -> Load:
        """All requests."""
        return self.model + self.grading


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about what is unknown before a run."""

    refusal_share: float = 0.5  # of questions that are refused; the same questions under every variant
    reply_tokens: int = 50
    # choices that the provider returns for one request, if several are requested
    choices: Range = field(default_factory=lambda: Range.exactly(1))


@dataclass(frozen=True, repr=False)
class RunEstimate(Printable):
    """Estimate of what remains of a run: one model on one dataset."""

    model: str
    dataset: str
    folder: str
    questions: int
    variants: tuple[str, ...]
    pending: tuple[str, ...]  # variants that are not finished
    assumed: Assumptions
    connections: int  # requests in flight
    known_replies: int  # first passes whose replies are known because the embedded model was asked
    remaining: RequestCounts
    checks: int  # requests that test graders on plain cases before the first question
    cost: Range | None  # in dollars, for the tokens of models with a known price; None without a price
    # duration if every connection sends its requests one after the other; in batches, the time after which the provider
    # lets them expire
    seconds: Range
    notes: tuple[Statement, ...]  # on prices, on the time limit of batches, and on replies that are not counted
    basis: tuple[Statement, ...]  # what the estimate assumes
    caveats: tuple[Statement, ...] = ()  # what to know before the run, whatever it costs

    @property
    def requests(self) -> Range:
        """All requests, including the tests of graders."""
        return self.remaining.total.requests + Range.exactly(self.checks)

    def statements(self) -> tuple[Statement, ...]:
        """State the caveats, what is already there, the notes, and the assumptions."""
        stored = Statement("already_answered", values={"dataset": self.dataset, "requests": self.remaining.stored})
        notes = Statement("estimate_notes", values={"dataset": self.dataset, "notes": self.notes})
        return (
            *self.caveats,
            *([stored] if self.remaining.stored else ()),
            *([notes] if self.notes else ()),
            *self.basis,
        )

    def to_document(self) -> dict[str, Any]:
        """Return the estimate as a JSON-serialisable dictionary, each range as least, expected and most.

        `refusal_index.render.dry_run.dry_run_document` adds the notes.
        """
        return {
            "model": self.model,
            "dataset": self.dataset,
            "folder": self.folder,
            "questions": self.questions,
            "variants": list(self.variants),
            "pending": list(self.pending),
            "stored": self.remaining.stored,
            "known_replies": self.known_replies,
            "first": asdict(self.remaining.first),
            "forced": asdict(self.remaining.forced),
            "grading": asdict(self.remaining.grading),
            "grader_checks": self.checks,
            "requests": asdict(self.requests),
            "cost": None if self.cost is None else asdict(self.cost),
            "seconds": asdict(self.seconds),
            "assumed": {**asdict(self.assumed), "connections": self.connections},
        }
