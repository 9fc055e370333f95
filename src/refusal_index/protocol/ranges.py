"""Numbers that replies decide: requests and tokens as ranges."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Range:
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

    def __add__(self, other: Range) -> Range:
        return Range(self.least + other.least, self.expected + other.expected, self.most + other.most)

    def times(self, other: Range | float) -> Range:
        """Return the products of the three numbers with another's, or with one number."""
        by = other if isinstance(other, Range) else Range.exactly(other)
        return Range(self.least * by.least, self.expected * by.expected, self.most * by.most)

    def or_more(self, other: Range) -> Range:
        """Return the larger one of each of the three numbers."""
        return Range(max(self.least, other.least), max(self.expected, other.expected), max(self.most, other.most))


@dataclass(frozen=True)
class Load:
    """Requests of one kind, and their tokens."""

    requests: Range = field(default_factory=Range)
    input_tokens: Range = field(default_factory=Range)
    output_tokens: Range = field(default_factory=Range)

    def __add__(self, other: Load) -> Load:
        return Load(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )

    def times(self, chance: Range) -> Load:
        """Return what is left of it if it comes with such a chance."""
        return Load(self.requests.times(chance), self.input_tokens.times(chance), self.output_tokens.times(chance))


@dataclass(frozen=True)
class Estimate:
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
