"""Rates as papers print them, where nobody has the outcomes: their table of counts, and what rounding leaves open."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError, shortened
from refusal_index.outcomes.schema import SCHEMA
from refusal_index.outcomes.table import read_outcomes
from refusal_index.outcomes.tabular import TextTable, read_text
from refusal_index.stats import ContingencyTable, tetrachoric

FIRST_PASS = ("correct_rate", "correct_given_attempted")
COLUMNS = ("model", "dataset", *FIRST_PASS, "refusal_rate", "forced_accuracy", "n")
MOST_QUESTIONS = 1_000_000
ADVICE = "; each row is one model with correct_rate, refusal_rate, forced_accuracy and n"
STEPS = 9
"""Values tried for each rate between the ends of what rounds to it."""

_RATE = re.compile(r"\d*(?:\.(\d*))?(\s*%)?")


@dataclass(frozen=True)
class PublishedRates:
    """One row of rates."""

    # model, dataset: whose they are
    model: str
    dataset: str | None
    table: ContingencyTable  # in whole questions
    # of the index, over all rates that are printed as these are; None where it is undefined throughout
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Rate:
    """A rate, and by how much it may have been rounded."""

    value: float
    half: float

    def around(self) -> np.ndarray:
        """Return values that would be printed alike, within [0, 1]."""
        return np.clip(np.linspace(self.value - self.half, self.value + self.half, STEPS), 0, 1)


def read_rates(path: Path) -> tuple[PublishedRates, ...]:
    """Read rates as they are printed.

    Raises OutcomeTableError if a column is missing, a cell is no rate, a model occurs twice on a dataset, or no table
    has the rates of a row.

    - `path`: a CSV file (also JSON Lines or Parquet) with the columns `refusal_rate`, `forced_accuracy` (over all
      questions), `n`, and `correct_rate` (over all questions) or `correct_given_attempted`; `model` and `dataset` where
      they are known. A rate is a number between 0 and 1, or has a per cent sign.
    """
    raw = read_text(path, COLUMNS, "row of rates", OutcomeTableError)
    for name in ("refusal_rate", "forced_accuracy", "n"):
        if name not in raw.columns:
            raise raw.source.lacks(f"a column {name!r}", raw.columns, ADVICE)
    given = [name for name in FIRST_PASS if name in raw.columns]
    if len(given) != 1:
        raise raw.source.lacks(f"one of the columns {' and '.join(map(repr, FIRST_PASS))}", raw.columns, ADVICE)
    found: dict[tuple[str, str | None], PublishedRates] = {}
    for number, row in enumerate(raw.frame.iter_rows(named=True)):
        one = _row(raw, number, row, given[0])
        if (one.model, one.dataset) in found:
            raise OutcomeTableError(
                f"{raw.where(number)}: {shortened(one.model)} is there twice; give each row a model of its own"
            )
        found[one.model, one.dataset] = one
    return tuple(found.values())


def rates_outcomes(rates: Sequence[PublishedRates]) -> pl.DataFrame:
    """Make the outcome table that such rates would be of: one row a question, of which only the cell is known."""
    tables = []
    for one in rates:
        sizes = one.table.counts
        rows = pl.DataFrame(
            {
                "question_id": [f"{one.model}, question {place}" for place in range(1, one.table.n + 1)],
                "refused": np.repeat([True, True, False, False], sizes),
                "wrong": np.repeat([True, False, True, False], sizes),
            }
        )
        whose = {"model": one.model, "dataset": one.dataset}
        tables.append(rows.with_columns(pl.lit(text, pl.String).alias(name) for name, text in whose.items()))
    return read_outcomes(pl.concat(tables)).select(list(SCHEMA))


def rounding_range(first: Rate, refused: Rate, forced: Rate, *, attempted: bool) -> tuple[float | None, float | None]:
    """Return the smallest and the largest index of all rates that are printed as these are.

    - `first`: right answers of the first pass, over the questions `attempted` or over all.
    - `refused`, `forced`: the refusal rate and the accuracy under forced answering.
    """
    c, r, right = np.meshgrid(first.around(), refused.around(), forced.around(), indexing="ij")
    c = c * (1 - r) if attempted else c
    cells = np.stack([r - right + c, right - c, 1 - r - c, c]).reshape(4, -1)
    possible = cells[:, (cells > -ROUNDING).all(axis=0)]
    index = np.arcsin(tetrachoric(*np.maximum(possible, 0)) / 2) / math.asin(0.5)
    defined = index[np.isfinite(index)]
    return (float(defined.min()), float(defined.max())) if defined.size else (None, None)


ROUNDING = 1e-12


def _row(raw: TextTable, number: int, row: dict[str, Any], first: str) -> PublishedRates:
    where = raw.where(number)
    rates = {name: _rate(where, name, row[name]) for name in (first, "refusal_rate", "forced_accuracy")}
    n = _questions(where, row["n"])
    try:
        table = ContingencyTable.from_rates(n=n, **{name: rate.value for name, rate in rates.items()})
    except ValueError as error:
        raise OutcomeTableError(f"{where}: {error}") from error
    low, high = rounding_range(*rates.values(), attempted=first == FIRST_PASS[1])
    return PublishedRates(row.get("model") or where, row.get("dataset"), table, low, high)


def _rate(where: str, name: str, text: str | None) -> Rate:
    shown = (text or "").strip()
    found = _RATE.fullmatch(shown)
    number = shown.rstrip("% ")
    if not found or number in {"", "."}:
        raise OutcomeTableError(f"{where}, {name}: expected a rate such as 0.05 or 5 %, got {shortened(shown)}")
    scale = 100 if found[2] else 1
    value = float(number) / scale
    if value > 1:
        raise OutcomeTableError(
            f"{where}, {name}: expected a rate between 0 and 1, got {shortened(shown)}; put % behind what is in "
            "per cent"
        )
    return Rate(value, 0.5 * 10.0 ** -len(found[1] or "") / scale)


def _questions(where: str, text: str | None) -> int:
    shown = (text or "").strip().replace(",", "").removesuffix(".0")
    if not (shown.isascii() and shown.isdigit() and len(shown) < 9 and 0 < int(shown) <= MOST_QUESTIONS):
        raise OutcomeTableError(
            f"{where}, n: expected the number of questions, 1 to {MOST_QUESTIONS:,}, got {shortened(text)}"
        )
    return int(shown)
