"""What questions without a grade leave open: the index over all that they may have been, and whether they refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from refusal_index.outcomes.counts import contingency_table
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.sensitivity import outcome_counts
from refusal_index.stats import ContingencyTable, missing_bounds
from refusal_index.stats.estimate import Status

FEWEST_FAILURES = 5
"""Refused questions without a grade below which they say nothing of where failures fall."""

LEVEL = 0.05
"""Of the test of whether failures go with refusals."""


@dataclass(frozen=True)
class MissingRange:
    """The Refusal Index over every grade that the unscored questions may have; no sampling error is in it."""

    # low, high: both ends, each the index of a way to fill in what is missing; None where no such way has one
    low: float | None
    high: float | None
    status: Status  # "boundary" where an end is exactly -1 or +1
    reason: str | None
    # refused, answered, unknown: what is missing, by what the first pass is known to have done
    refused: int
    answered: int
    unknown: int

    @property
    def questions(self) -> int:
        """How many are missing."""
        return self.refused + self.answered + self.unknown


def missing_range(outcomes: pl.DataFrame) -> MissingRange | None:
    """Bound the index by what is missing of one variant, a row a question; None where nothing is.

    >>> refused, wrong = [True, True, False, False, True], [True, False, True, False, None]
    >>> found = missing_range(pl.DataFrame({"refused": refused, "wrong": wrong, "forced_grade": [None] * 5}))
    >>> round(found.low, 3), round(found.high, 3), found.refused
    (-0.252, 0.252, 1)
    """
    counts = outcome_counts(outcomes)
    refused, answered, unknown = counts.unscored_forced, counts.unscored_answered, counts.unscored_first
    if not refused + answered + unknown:
        return None
    found = missing_bounds(contingency_table(outcomes), refused, unknown, answered)
    return MissingRange(found.low, found.high, found.status, found.reason, refused, answered, unknown)


def missing_ranges(variants: Mapping[str | None, pl.DataFrame]) -> dict[str | None, MissingRange]:
    """Bound the index of every variant of which a question is missing, by its first draws."""
    found = {variant: missing_range(first_draws(rows)) for variant, rows in variants.items()}
    return {variant: missing for variant, missing in found.items() if missing is not None}


@dataclass(frozen=True)
class FailuresByRefusal:
    """How many of the questions that the first pass refused, and of those that it answered, have no grade."""

    # refused, refused_failed, answered, answered_failed: questions, and those of them without a grade
    refused: int
    refused_failed: int
    answered: int
    answered_failed: int
    pvalue: float  # one-sided, of Fisher's exact test: small where more are missing of the refused


def failures_by_refusal(table: ContingencyTable, refused_failed: int, answered_failed: int) -> FailuresByRefusal | None:
    """Test whether failures go with refusals, among questions whose first pass is known; None where they do not.

    Too few failures to say so are none either: fewer than `FEWEST_FAILURES` refused questions, or a p-value above
    `LEVEL`.

    - `table`: the scored questions.
    - `refused_failed`, `answered_failed`: questions without a grade that the first pass refused, and answered.

    >>> failures_by_refusal(ContingencyTable(200, 50, 400, 340), 10, 0).refused_failed
    10
    >>> failures_by_refusal(ContingencyTable(200, 50, 400, 340), 4, 0) is None
    True
    """
    if refused_failed < FEWEST_FAILURES:
        return None
    from scipy.stats import fisher_exact  # noqa: PLC0415 - takes a while to import, and most runs need it not

    counts = [[refused_failed, table.n_refused], [answered_failed, table.n_answered]]
    pvalue = float(fisher_exact(counts, alternative="greater").pvalue)
    if pvalue > LEVEL:
        return None
    refused, answered = table.n_refused + refused_failed, table.n_answered + answered_failed
    return FailuresByRefusal(refused, refused_failed, answered, answered_failed, pvalue)
