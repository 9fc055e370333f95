"""All pairwise differences of one metric among several runs, and how they vary together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.metric_influence import ROUNDING, difference_error
from refusal_index.stats.comparison.multiple_testing import holm, step_down_max_t
from refusal_index.stats.comparison.pair import difference_pvalue
from refusal_index.stats.matrices import BoolArray

# Draws in memory at a time, each with a statistic for every pair of runs.
CHUNK_DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class PairwiseDifferences:
    """Differences of k runs, first minus second, for all m = k (k - 1) / 2 pairs.

    `covariance` is that of the runs' estimates, of shape (k, k); all else has the shape (m,), and `first` and `second`
    number the runs.
    """

    covariance: FloatArray
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    estimates: FloatArray
    errors: FloatArray
    pvalues: FloatArray


def pairwise_differences(values: FloatArray, influence: FloatArray, scored: BoolArray) -> PairwiseDifferences:
    """Compare all pairs of runs by their estimates, shape (k,), scaled influence and scored questions, both (k, n)."""
    first, second = np.triu_indices(len(values), 1)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    estimates = values[first] - values[second]
    estimates[np.abs(estimates) <= ROUNDING] = 0
    errors = [difference_error(influence[a], influence[b]) for a, b in pairs]
    shared = [int(np.count_nonzero(scored[a] & scored[b])) for a, b in pairs]
    pvalues = [difference_pvalue(*each) for each in zip(estimates.tolist(), errors, shared, strict=True)]
    return PairwiseDifferences(
        influence @ influence.T, first, second, estimates, np.array(errors, float), np.array(pvalues, float)
    )


def adjusted_pvalues(
    differences: PairwiseDifferences, confidence_level: float, n_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, float | None]:
    """Adjust the p-values by Holm's method and by max-t, and find the critical value of simultaneous intervals."""
    pvalues = differences.pvalues
    if not pvalues.size:
        return pvalues, pvalues, None
    # Back from the p-values, so that those of a sign test have a statistic too.
    statistics = -ndtri(pvalues / 2)
    max_t, largest = step_down_max_t(statistics, pvalues, _null_draws(differences, n_resamples, rng))
    return holm(pvalues), max_t, float(np.quantile(largest, confidence_level))


def _null_draws(differences: PairwiseDifferences, n_resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Absolute test statistics of estimates drawn from their joint normal distribution about one common value."""
    # The symmetric root is unique, so that the draws depend on the generator alone, and it exists for equal runs too.
    variances, directions = np.linalg.eigh(differences.covariance)
    root = directions * np.sqrt(np.maximum(variances, 0)) @ directions.T
    errors = differences.errors
    for start in range(0, n_resamples, CHUNK_DRAWS):
        drawn = rng.standard_normal((min(CHUNK_DRAWS, n_resamples - start), len(root))) @ root
        gaps = np.abs(drawn[:, differences.first] - drawn[:, differences.second])
        yield np.divide(gaps, errors, out=np.zeros_like(gaps), where=errors > 0)
