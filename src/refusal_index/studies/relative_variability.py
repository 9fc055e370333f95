"""By how much less one metric varies over prompts than the others do, relative to its size.

A coefficient of variation takes in sampling errors, and so do resamples of it, once more: their percentiles cover a
true one of .08 that is seen as .13 in .00 to .79 of simulated cases. On the scale of squares errors add up, and the
basic interval, which mirrors the resamples at the estimate, takes them out: it covers .88 to .98 there (1, 3 and 8
models, 600 replicates), and more where there is no true variation at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from refusal_index.outcomes.presentation import METRIC_LABELS
from refusal_index.studies.cells import number
from refusal_index.studies.resampling import USABLE, FloatArray, metric_draws
from refusal_index.studies.scores import INDEX

HEURISTIC = ("correct_given_attempted", "f_score", "weighted_score")
"""The metrics that the paper calls heuristic."""

ALL_HEURISTIC = "heuristic"
"""In the column `metric`: the three together."""

RATIO = "ratio"
"""In the column `model` of such rows."""


def ratio_rows(
    values: Mapping[str, FloatArray], draws: Sequence[Mapping[str, FloatArray]], penalty: float, confidence_level: float
) -> Iterator[dict[str, Any]]:
    """Yield the ratio of RI's coefficient of variation to that of each heuristic metric, over some models.

    - `values`: by metric its values, shape (models, variants).
    - `draws`: by model its metrics on resampled questions, the same questions for all.
    - `penalty`: of the weighted score.
    - returned: `ratio`, of the coefficients averaged over the models as the paper does, and an interval, for the root
      mean square coefficients, without what sampling errors add. It begins at 0 where they may account for all; both
      ends are None where they account for more than there is.
    """
    own = {name: _cv(values[name]) for name in (INDEX, *HEURISTIC)}
    resampled = {name: np.stack([_cv(metric_draws(one, name, penalty)) for one in draws]) for name in own}
    own[ALL_HEURISTIC] = np.stack([own[name] for name in HEURISTIC])
    resampled[ALL_HEURISTIC] = np.stack([resampled[name] for name in HEURISTIC])
    for name in (*HEURISTIC, ALL_HEURISTIC):
        if own[name].mean() > 0:
            square = float(np.mean(own[INDEX] ** 2) / np.mean(own[name] ** 2))
            low, high = _basic(square, _mean_square(resampled[INDEX]) / _mean_square(resampled[name]), confidence_level)
            ends = {"ratio": float(own[INDEX].mean() / own[name].mean()), "ratio_low": low, "ratio_high": high}
            yield {"model": RATIO, "metric": name, "penalty": penalty if name == "weighted_score" else None, **ends}


def _basic(square: float, draws: FloatArray, confidence_level: float) -> tuple[float | None, float | None]:
    """Return the roots of the basic interval of a square."""
    defined = draws[np.isfinite(draws)]
    if defined.size < USABLE * draws.size:
        return None, None
    tail = (1 - confidence_level) / 2
    low, high = (2 * square - float(end) for end in np.quantile(defined, [1 - tail, tail]))
    return (None, None) if high < 0 else (math.sqrt(max(low, 0.0)), math.sqrt(high))


def _mean_square(draws: FloatArray) -> FloatArray:
    """Average squares over everything but the last axis, the resamples."""
    return np.asarray(np.mean(draws.reshape(-1, draws.shape[-1]) ** 2, axis=0))


def _cv(values: FloatArray) -> FloatArray:
    """Return the population's coefficient of variation along the last axis."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(values.std(axis=-1) / abs(values.mean(axis=-1)))


def ratio_notes(frame: pl.DataFrame) -> tuple[str, ...]:
    """Say the ratios in a sentence, where there are any."""
    said = [f"{_label(row['metric'])} {_shown(row)}" for row in frame.filter(model=RATIO).iter_rows(named=True)]
    if not said:
        return ()
    return (
        f"Coefficient of variation of RI over that of each metric, both averaged over the models: {'; '.join(said)}. "
        "Below 1 RI varies less; the paper says about 70 % less, and its table gives 0.32 against the three together. "
        "RI is the noisiest of them, so that sampling errors make the ratio larger; the brackets hold it without them, "
        "and begin at 0 where they may account for all.",
    )


def _shown(row: Mapping[str, Any]) -> str:
    if row["ratio_low"] is None:
        return f"{number(row['ratio'], 2)} [no more than chance]"
    return f"{number(row['ratio'], 2)} [{number(row['ratio_low'], 2)}, {number(row['ratio_high'], 2)}]"


def _label(metric: str) -> str:
    return "the three together" if metric == ALL_HEURISTIC else METRIC_LABELS[metric]
