"""What tokens cost."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1_000_000


class PriceError(ValueError):
    """A price that cannot be read."""


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens read and a million tokens written."""

    input: float
    output: float

    @classmethod
    def parse(cls, text: str) -> Price:
        """Read a price such as ``"2.5,10"``.

        Raises
        ------
        PriceError
            If it is not two numbers from 0.
        """
        try:
            read, written = (float(part) for part in text.split(","))
        except ValueError:
            read = written = -1.0
        if not (0 <= read < float("inf") and 0 <= written < float("inf")):
            raise PriceError(
                f"price: expected dollars per million tokens in and out, for instance 2.5,10, got {text!r}"
            )
        return cls(read, written)

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the dollars for so many tokens.

        Examples
        --------
        >>> Price(2.5, 10).of(1_000_000, 100_000)
        3.5
        """
        return (self.input * input_tokens + self.output * output_tokens) / MILLION
