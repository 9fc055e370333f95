"""Numbers as printed tables show them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

NOTHING = "-"
MOST_NAMED = 4


def number(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number as text; a dash where there is none.

    >>> number(0.27331), number(-0.2, 2, signed=True), number(None)
    ('0.273', '-0.20', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Return a count as text; a dash where there is none."""
    return NOTHING if value is None else f"{value:,}"


def with_interval(
    estimate: float | None, low: float | None, high: float | None, reason: str | None = None, digits: int = 3
) -> str:
    """Return an estimate with its interval, or why there is none.

    >>> with_interval(0.2733, 0.2027, 0.3412), with_interval(None, None, None, "nobody_refused")
    ('0.273 [0.203, 0.341]', 'undefined (nobody refused)')
    """
    if estimate is None:
        return f"undefined ({reason.replace('_', ' ')})" if reason else NOTHING
    if low is None or high is None:
        return number(estimate, digits)
    return f"{number(estimate, digits)} [{number(low, digits)}, {number(high, digits)}]"


def widened(frame: pl.DataFrame, index: list[str], on: str, cell: str) -> pl.DataFrame:
    """Spread a column's values into columns, in the order in which they appear; a dash where there is no cell."""
    names = frame[on].unique(maintain_order=True).to_list()
    wide = frame.pivot(on, index=index, values=cell, maintain_order=True)
    return wide.select(*index, *names).with_columns(pl.col(name).fill_null(NOTHING) for name in names)


def listed(names: Sequence[str]) -> str:
    """Name a few of many things, and count the rest.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a; b', 'a; b; c; d and 2 more')
    """
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
