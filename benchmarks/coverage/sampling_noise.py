"""Corrections for sampling errors: reliability, disattenuated correlation, Kendall's W, relative variability.

True values and errors are normal; errors are correlated over models, as in runs over the same questions. With few
models the disattenuated correlation has a long tail, so the expected range of its mean is wider. Relative variability
is simulated for three models and four prompts with a true coefficient of variation of RI of .08, and errors of .015 and
.045 with a correlation of .5 between prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.row import Row, share

from refusal_index.plugins.studies.prompts import HEURISTIC, ratio_rows
from refusal_index.plugins.studies.stability import disattenuated_correlation, kendall_w, kendall_w_ceiling

PROMPTS = np.array([-1.2, -0.4, 0.3, 1.3]) / np.std([-1.2, -0.4, 0.3, 1.3])
RESAMPLES = 200


def mean_row(scenario: str, quantity: str, values: list[float], low: float, high: float) -> Row:
    """Return the row for a mean."""
    return Row(scenario, quantity, float(np.mean(values)), float(np.std(values)) / math.sqrt(len(values)), low, high)


def correlation_rows(n_models: int, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Mean reliability and correlations; the truth is .8 and .6, and errors of both variables are correlated."""
    errors = np.full((n_models, n_models), 0.125) + np.diag([0.125] * n_models)
    root = np.linalg.cholesky(errors)
    plain, corrected, reliable = [], [], []
    for _ in range(replicates):
        x, y = rng.multivariate_normal([0, 0], [[0.5, 0.3], [0.3, 0.5]], size=n_models, method="cholesky").T
        first, other = root @ rng.standard_normal(n_models), root @ rng.standard_normal(n_models)
        found = disattenuated_correlation(x + first, y + 0.8 * first + 0.6 * other, errors, errors, 0.8 * errors)
        if found.estimate is not None and found.observed is not None and found.first.estimate is not None:
            plain.append(found.observed)
            corrected.append(found.estimate)
            reliable.append(found.first.estimate)
    name = f"{n_models} models, true correlation .6, reliability .8"
    yield mean_row(name, "mean reliability", reliable, 0.74, 0.82)
    yield mean_row(name, "mean plain correlation (.64 in the limit)", plain, 0.58, 0.66)
    yield mean_row(name, "mean disattenuated correlation", corrected, *((0.56, 0.64) if n_models > 20 else (0.5, 0.66)))


def agreement_row(spread: float, replicates: int, rng: np.random.Generator) -> Row:
    """Difference of W and its ceiling if four settings rank eight models equally apart from errors."""
    m, n = 4, 8
    covariance = np.kron(np.eye(m), np.eye(n)) * 0.01 + np.kron(np.ones((m, m)), np.eye(n)) * 0.004
    root, differences = np.linalg.cholesky(covariance), []
    for _ in range(replicates):
        scores = (np.tile(rng.normal(0, spread, n), m) + root @ rng.standard_normal(m * n)).reshape(m, n)
        found, ceiling = kendall_w(scores), kendall_w_ceiling(scores, covariance, n_resamples=RESAMPLES, rng=rng)
        if found.estimate is not None and ceiling.estimate is not None:
            differences.append(found.estimate - ceiling.estimate)
    return mean_row(f"spread {spread:g}, errors .1", "mean of W minus its ceiling", differences, -0.02, 0.02)


def ratio_row(error: float, replicates: int, rng: np.random.Generator) -> Row:
    """Coverage of the ratio of relative variabilities."""
    steady = dict.fromkeys((*HEURISTIC, "correct_rate", "refusal_rate"), np.tile(1 + 0.24 * PROMPTS, (3, 1)))

    def errors(size: tuple[int, ...]) -> np.ndarray:
        return error * math.sqrt(0.5) * (rng.standard_normal((*size, 1)) + rng.standard_normal((*size, 4)))

    hits = 0
    for _ in range(replicates):
        values = steady | {"refusal_index": 0.25 + 0.02 * PROMPTS + errors((3,))}
        draws = [
            {name: np.broadcast_to(rows[place], (RESAMPLES, 4)) for name, rows in values.items()}
            | {"refusal_index": values["refusal_index"][place] + errors((RESAMPLES,))}
            for place in range(3)
        ]
        row = next(row for row in ratio_rows(values, draws, 1.0, 0.95) if row["metric"] == "f_score")
        hits += row["ratio_low"] is not None and row["ratio_low"] <= 0.08 / 0.24 <= row["ratio_high"]
    return share(
        f"errors of RI {error:g}", "coverage of the ratio of relative variabilities", hits, replicates, 0.93, 1
    )


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for n_models in (12, 40):
        yield from correlation_rows(n_models, replicates, rng)
    for spread in (0.15, 0.3):
        yield agreement_row(spread, replicates // 4, rng)
    for error in (0.015, 0.045):
        yield ratio_row(error, replicates, rng)
