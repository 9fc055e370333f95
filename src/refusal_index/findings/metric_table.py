"""Every metric of a run as a table, from its summary as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.findings.summary import INCOMPLETE

POOLED = "pooled"
"""Stands for the variant of a joint estimate."""

UNNAMED = "all"
"""Stands for the variant if a table has none."""

JOINT = ("refusal_index", "corrected_refusal_index")
"""The metrics that are also estimated jointly over all variants of a model."""

METRICS_SCHEMA: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "variant": pl.String(),
        "metric": pl.String(),
        "estimate": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "status": pl.Enum(["ok", "boundary", "undefined", "not_identified", INCOMPLETE]),
        "reason": pl.String(),
        "method": pl.Enum(["wilson", "score", "profile"]),
        "n": pl.Int64(),
        "asked": pl.Int64(),
        "missing": pl.Int64(),
        "further_asked": pl.Int64(),
        "further_missing": pl.Int64(),
        "lacks": pl.String(),
    }
)
"""The columns of `RunResults.metrics`.

`n` is the number of scored questions, null for an estimate that is joint over all variants. `asked` and `missing` are
the number of questions and how many of them are unscored, `further_asked` and `further_missing` those of draws after
the first; all are summed over the variants if joint. `lacks` is a short description of what is missing, null if the
variant is complete. A metric that has a value has the status "incomplete" if its variant is.
"""


def metrics_of(document: Mapping[str, Any]) -> pl.DataFrame:
    """Return the metrics of each variant in a summary, then the joint ones, with the columns of `METRICS_SCHEMA`.

    Raises KeyError, TypeError, ValueError, AttributeError, OverflowError or PolarsError if the document is not a valid
    summary.
    """
    variants = document["variants"]
    groups = [
        (variant, variant["variant"] or UNNAMED, variant["n"], variant["metrics"], [variant]) for variant in variants
    ]
    for pooled in document["pooled"]:
        joint = {name: pooled[name] for name in JOINT if pooled[name] is not None}
        members = [variant for variant in variants if variant["variant"] in pooled["variants"]]
        groups.append((pooled, POOLED, None, joint, members))
    rows = []
    for group, variant, n, metrics, members in groups:
        is_complete = all(member["status"] != INCOMPLETE for member in members)
        n_asked, missing = _totals(member["completeness"] for member in members)
        further_asked, further_missing = _totals(member["further_draws"] for member in members)
        parts = (missing, n_asked, "questions"), (further_missing, further_asked, "repeated samples")
        unscored = " and ".join(f"{missing:,} of {n_asked:,} {label}" for missing, n_asked, label in parts if missing)
        lacks = None if is_complete else f"{unscored} not scored"
        counts = (*_numbers(n), n_asked, missing, further_asked, further_missing, lacks)
        for metric, value in metrics.items():
            status = value["status"] if is_complete or value["estimate"] is None else INCOMPLETE
            ends = _numbers(value["estimate"], value["low"], value["high"])
            shown = (*ends, status, value["reason"], value.get("method"))
            rows.append((group["model"], group["dataset"], variant, metric, *shown, *counts))
    columns = zip(*rows, strict=True) if rows else [()] * len(METRICS_SCHEMA)
    return pl.DataFrame(dict(zip(METRICS_SCHEMA, columns, strict=True)), schema=dict(METRICS_SCHEMA))


def _totals(parts: Iterable[Mapping[str, Any] | None]) -> tuple[int, int]:
    """Return the sums of the asked and of the unscored rows; None, for a variant without further draws, adds none."""
    pairs = [_numbers(part["asked"], part["unscored"]) for part in parts if part]
    return sum(n_asked for n_asked, _ in pairs), sum(unscored for _, unscored in pairs)


def _numbers(*values: Any) -> tuple[Any, ...]:
    """Return values for Polars to check, or raise TypeError for a Boolean, which Polars reads as a number."""
    for value in values:
        if isinstance(value, bool):
            raise TypeError(f"{value} is not a number")
    return values
