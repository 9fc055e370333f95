"""Metrics of a run's variants on resampled questions: the variants share them, so they are resampled together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from refusal_index.outcomes.matching import OutcomeMatrix, outcome_matrix
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import ContingencyTable, refusal_index_many
from refusal_index.studies.study import StudyOptions

FloatArray = NDArray[np.float64]

RESAMPLES = 1_000
USABLE = 0.95
"""Share of the resamples in which a statistic must be defined for it to have an interval."""

_CHUNK = 2**22  # weights held at once


def resampled_metrics(run: ComparedRun, options: StudyOptions) -> Mapping[str, FloatArray]:
    """Return the metrics of all variants on resampled questions.

    - returned: by metric an array of shape (resamples, variants), NaN where it is undefined. The weighted score depends
      on its penalty and is to be made of the two rates.
    """
    return metrics_of_counts(
        _resampled_counts(outcome_matrix(list(run.variants.values())), np.random.default_rng(options.seed))
    )


def resampled_together(runs: Sequence[ComparedRun], options: StudyOptions) -> list[Mapping[str, FloatArray]]:
    """Return the metrics of all variants of each run, as `resampled_metrics` does, on questions drawn for all alike."""
    every = outcome_matrix([rows for run in runs for rows in run.variants.values()])
    counts = _resampled_counts(every, np.random.default_rng(options.seed))
    ends = np.cumsum([len(run.variants) for run in runs])
    return [metrics_of_counts(part) for part in np.split(counts, ends[:-1], axis=1)]


def resampled_tables(table: ContingencyTable, options: StudyOptions) -> Mapping[str, FloatArray]:
    """Return the metrics of one table on resampled questions, shape (resamples, 1), as `resampled_metrics` does.

    Drawing its four counts has the law of drawing its questions, and costs nothing.
    """
    shares = np.array(table.counts) / max(1, table.n)
    counts = np.random.default_rng(options.seed).multinomial(table.n, shares, size=RESAMPLES)
    return metrics_of_counts(counts[:, np.newaxis].astype(np.float64))


def metrics_of_counts(counts: FloatArray) -> Mapping[str, FloatArray]:
    """Return the metrics of counts of shape (..., 4), by name."""
    refused_wrong, refused_right, answered_wrong, answered_right = np.moveaxis(counts, -1, 0)
    total, answered = counts.sum(axis=-1), answered_wrong + answered_right
    with np.errstate(invalid="ignore", divide="ignore"):
        correct, refused = answered_right / total, (refused_wrong + refused_right) / total
        attempted = answered_right / answered
        harmonic = np.where(answered > 0, 2 * correct / (2 - refused), np.nan)
    index = refusal_index_many(refused_wrong, refused_right, answered_wrong, answered_right)
    return {
        "correct_rate": correct,
        "refusal_rate": refused,
        "correct_given_attempted": attempted,
        "f_score": harmonic,
        "refusal_index": np.asarray(index),
    }


def metric_draws(draws: Mapping[str, FloatArray], metric: str, penalty: float | None) -> FloatArray:
    """Return the draws of a metric, those of the weighted score made of the two rates."""
    if metric != "weighted_score":
        return draws[metric]
    return draws["correct_rate"] - (0.0 if penalty is None else penalty) * (1 - draws["refusal_rate"])


def percentile_interval(values: FloatArray, confidence_level: float) -> tuple[float | None, float | None]:
    """Return the percentile interval of a statistic on resamples; none where too often it is undefined."""
    defined = values[np.isfinite(values)]
    if defined.size < USABLE * values.size:
        return None, None
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def _resampled_counts(matrix: OutcomeMatrix, rng: np.random.Generator) -> FloatArray:
    """Count the four cells of each variant on resampled questions, shape (resamples, variants, 4)."""
    refused, wrong = matrix.refused, matrix.wrong
    cells = np.stack([refused & wrong, refused & ~wrong, ~refused & wrong, ~refused & ~wrong], axis=1)
    held = (cells & matrix.scored[:, np.newaxis]).astype(np.float64)
    variants, _, n = held.shape
    step = max(1, _CHUNK // n)
    counts = [
        rng.multinomial(n, np.full(n, 1 / n), size=min(step, RESAMPLES - start)) @ held.reshape(-1, n).T
        for start in range(0, RESAMPLES, step)
    ]
    return np.concatenate(counts).reshape(RESAMPLES, variants, 4)
