"""What tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from refusal_index.errors import RefusalIndexError

MILLION = 1_000_000

Tokens = tuple[int, int]
"""Read and written."""


class PriceError(RefusalIndexError, ValueError):
    """A price that cannot be read."""


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens read and a million tokens written."""

    input: float
    output: float

    @classmethod
    def parse(cls, text: str, name: str = "price") -> Price:
        """Read a price such as ``"2.5,10"``.

        Raises PriceError if it is not two numbers from 0.

        - `text`: as given.
        - `name`: what to call it in messages.
        """
        try:
            read, written = (float(part) for part in text.split(","))
        except ValueError:
            read = written = -1.0
        if not (0 <= read < float("inf") and 0 <= written < float("inf")):
            raise PriceError(
                f"{name}: expected dollars per million tokens in and out, for instance 2.5,10, got {text!r}"
            )
        return cls(read, written)

    def times(self, factor: float) -> Price:
        """Return a share of it, or several times as much."""
        return Price(self.input * factor, self.output * factor)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the dollars for so many tokens.

        >>> Price(2.5, 10).of(1_000_000, 100_000)
        3.5
        """
        return (self.input * input_tokens + self.output * output_tokens) / MILLION


@dataclass(frozen=True)
class Prices:
    """What the models of a run cost."""

    model: Price | None = None  # the model under evaluation; None where its price is not known
    grader: Price | None = None  # each of the models that grade, in the same way
    batch_rate: float | None = None  # share of both that is paid for what came in a provider's batch; None for all

    @classmethod
    def parse(cls, model: str | None, grader: str | None) -> Prices:
        """Read the options that give them.

        Raises PriceError if one of them is not a price; the message names the option.
        """
        return cls(
            Price.parse(model, "--price") if model else None, Price.parse(grader, "--grader-price") if grader else None
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Prices:
        """Read back what `to_document` gave; what is not there is not known.

        >>> Prices.read({"price": {"input": 2.0, "output": 8.0}})
        Prices(model=Price(input=2.0, output=8.0), grader=None, batch_rate=None)
        """
        model, grader = document.get("price"), document.get("grader_price")
        return cls(Price(**model) if model else None, Price(**grader) if grader else None, document.get("batch_rate"))

    def to_document(self) -> dict[str, Any]:
        """Return plain data, under the names of the options."""
        prices = {"price": self.model, "grader_price": self.grader}
        rate = {} if self.batch_rate is None else {"batch_rate": self.batch_rate}
        return {**{name: price and asdict(price) for name, price in prices.items()}, **rate}

    def or_those(self, others: Prices) -> Prices:
        """Return these prices, with those of `others` in place of the ones that are not known."""
        rate = others.batch_rate if self.batch_rate is None else self.batch_rate
        return Prices(self.model or others.model, self.grader or others.grader, rate)

    @property
    def in_batches(self) -> Prices:
        """What the same costs in a provider's batches.

        >>> Prices(Price(2, 8), batch_rate=0.5).in_batches.model
        Price(input=1.0, output=4.0)
        """
        rate = 1.0 if self.batch_rate is None else self.batch_rate
        return Prices(self.model and self.model.times(rate), self.grader and self.grader.times(rate))

    def cost(self, model: Tokens, grader: Tokens) -> float | None:
        """Return the dollars for tokens of the model and of graders.

        Graders whose price is not known are left out. The model is not: without its price the cost of its tokens is
        None.

        >>> Prices(Price(2, 8), Price(1, 4)).cost((1_000_000, 0), (500_000, 0))
        2.5
        >>> Prices(grader=Price(1, 4)).cost((0, 0), (500_000, 0))
        0.5
        >>> Prices(grader=Price(1, 4)).cost((1_000_000, 0), (500_000, 0)) is None
        True
        """
        if self.model is None and any(model):
            return None
        parts = ((self.model, model), (self.grader, grader))
        costs = [price.of(*tokens) for price, tokens in parts if price is not None]
        return sum(costs) if costs else None


UNPRICED = Prices()
"""No price is known."""
