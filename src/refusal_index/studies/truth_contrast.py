"""How much higher a model's index is where the truth is to be had, in the context or from training, than elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from refusal_index.stats.intervals import normal_quantile
from refusal_index.studies.cells import with_interval
from refusal_index.studies.resampling import FloatArray

CONTRAST, AVERAGE_CONTRAST = "truth_contrast", "truth_contrast_average"
HEADINGS = {"available": "Truth available", "unavailable": "Truth unavailable"}
ROUNDING = 1e-12
FEWEST = 3
"""Models, for an interval over models."""

Errors = Mapping[tuple[str, str], FloatArray]
"""By model and dataset the influence of each question on its index, NaN where it has no standard error."""


def contrast_rows(frame: pl.DataFrame, errors: Errors, confidence_level: float) -> Iterator[dict[str, Any]]:
    """Yield the contrast of every model that has both kinds of datasets, and their average.

    - `frame`: with the columns `model`, `dataset`, `truth` and `estimate`.
    - `errors`: empty where they are not known; the models' own contrasts have no interval then.
    - returned: the interval of a model's contrast is over questions, that of the average Student's over models, where
      there are three or more.
    """
    contrasts = []
    for (model,), rows in frame.drop_nulls("estimate").group_by("model", maintain_order=True):
        means = {truth: rows.filter(truth=truth)["estimate"].mean() for truth in HEADINGS}
        if None in means.values():
            continue
        contrasts.append(float(means["available"]) - float(means["unavailable"]))  # type: ignore[arg-type]
        error = _error(str(model), rows, errors)
        reach = None if error is None else normal_quantile(confidence_level) * error
        yield {"statistic": CONTRAST, "model": model, **_interval(contrasts[-1], reach)}
    if contrasts:
        k, reach = len(contrasts), None
        if k >= FEWEST:
            reach = float(stdtrit(k - 1, (1 + confidence_level) / 2)) * float(np.std(contrasts, ddof=1)) / math.sqrt(k)
        yield {"statistic": AVERAGE_CONTRAST, "variants": k, **_interval(float(np.mean(contrasts)), reach)}


def _error(model: str, rows: pl.DataFrame, errors: Errors) -> float | None:
    parts = {truth: rows.filter(truth=truth)["dataset"].to_list() for truth in HEADINGS}
    if any((model, dataset) not in errors for datasets in parts.values() for dataset in datasets):
        return None
    one, other = (np.mean([errors[model, dataset] for dataset in parts[truth]], axis=0) for truth in HEADINGS)
    error = float(np.linalg.norm(one - other))
    # An interval of no width would claim certainty.
    return error if math.isfinite(error) and error > ROUNDING else None


def _interval(estimate: float, reach: float | None) -> dict[str, float | None]:
    ends = (None, None) if reach is None else (estimate - reach, estimate + reach)
    return {"estimate": estimate, "low": ends[0], "high": ends[1]}


def contrast_note(frame: pl.DataFrame) -> tuple[str, ...]:
    """Say the average contrast, where there is one."""
    found = frame.filter(pl.col("statistic") == AVERAGE_CONTRAST)
    return tuple(
        f"Truth available less unavailable: {with_interval(row['estimate'], row['low'], row['high'])} on average over "
        f"{row['variants']} model{'s' if row['variants'] > 1 else ''}"
        + (" (interval over models)." if row["low"] is not None else f"; an interval over models takes {FEWEST}.")
        for row in found.iter_rows(named=True)
    )
