"""All pairwise differences of one metric among several runs: p-values adjusted for their number, and letters for ties.

A hypothesis is rejected where its adjusted p-value is at most alpha; the chance that any true one is rejected is then
at most alpha, whichever of them are true. Both adjustments are step-down: once the clearest differences are found,
the rest need not be adjusted for them, which makes the tests more powerful than adjusting all alike.

In the compact letter display two estimates share a letter if and only if they do not differ significantly. Not
differing is not transitive (the middle one of three may differ from neither end while the ends differ), so an estimate
can carry several letters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import pvalues_of
from refusal_index.stats.comparison.metric_influence import ROUNDING, difference_error, fewest_degrees_of_freedom
from refusal_index.stats.comparison.pair import difference_pvalue, units_shared
from refusal_index.stats.design import SamplingDesign
from refusal_index.stats.influence import symmetric_root
from refusal_index.stats.matrices import BoolArray


def holm(pvalues: ArrayLike) -> FloatArray:
    """Adjust p-values of shape (m,) by Holm's method, which holds however they depend on each other.

    Parameters
    ----------
    pvalues : array_like of float, shape (m,)
        In [0, 1].

    Returns
    -------
    ndarray, shape (m,)
        Adjusted p-values, in the order of those given.

    Raises
    ------
    TypeError, ValueError
        If they are no numbers, or one is NaN or lies outside [0, 1].

    References
    ----------
    .. [1] Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of
       Statistics, 6, 65-70. https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    given = pvalues_of(pvalues)
    order = np.argsort(given, kind="stable")
    remaining = np.arange(len(given), 0, -1)
    return _in_given_order(np.minimum(remaining * given[order], 1.0), order)


def step_down_max_t(
    statistics: FloatArray, pvalues: FloatArray, null_draws: Iterable[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Adjust by the joint distribution of the statistics, the share of draws whose largest one reaches the observed.

    - `statistics`, ndarray of float, shape (m,): absolute values of the test statistics.
    - `pvalues`, ndarray of float, shape (m,): their unadjusted p-values.
    - `null_draws`, iterable of ndarray of float, shape (n_draws, m): draws of the statistics under the hypothesis that
      all are null, in as many pieces as memory asks for.
    - returned `pvalues`, ndarray of float, shape (m,): never above Holm's, which bound them: where the simulation is
      too coarse for a small p-value, Holm's is given.
    - returned `largest`, ndarray of float: largest statistic of each draw. Its quantiles are the critical values of
      single-step intervals.
    """
    order = np.argsort(-statistics, kind="stable")
    reached, largest = np.zeros(len(order)), []
    for draws in null_draws:
        # Column j: the largest of the statistics that are left when the first j hypotheses are rejected.
        left = np.maximum.accumulate(draws[:, order[::-1]], axis=1)[:, ::-1]
        reached += np.count_nonzero(left >= statistics[order], axis=0)
        largest.append(left[:, 0])
    maxima = np.concatenate(largest)
    # Counting the data as one draw keeps the test valid for any number of draws.
    adjusted = _in_given_order((reached + 1) / (len(maxima) + 1), order)
    return np.minimum(adjusted, holm(pvalues)), maxima


def _in_given_order(stepwise: FloatArray, order: np.ndarray) -> FloatArray:
    """Make p-values in the order of rejection monotone and put them back where they came from."""
    adjusted = np.empty_like(stepwise)
    adjusted[order] = np.maximum.accumulate(stepwise)
    return adjusted


Group = frozenset[int]


def compact_letters(differs: ArrayLike) -> tuple[str, ...]:
    """Letters of the insert-and-absorb algorithm.

    Parameters
    ----------
    differs : array_like of bool, shape (k, k)
        Whether two items differ significantly: symmetric, False on the diagonal. Items come in the order in which they
        are to be shown.

    Returns
    -------
    tuple of str, length k
        Letters of each item, in the order of the alphabet (after ``z`` come ``aa``, ``ab``, ...; letters of more than
        one character are separated by a space). The first letter goes to the group that begins with the first item.

    Raises
    ------
    ValueError
        If the matrix is not square or not symmetric, or says that an item differs from itself.

    References
    ----------
    .. [1] Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise comparisons. Journal of
       Computational and Graphical Statistics, 13, 456-466. :doi:`10.1198/1061860043515`

    Examples
    --------
    The outer two of three differ, the middle one from neither:

    >>> compact_letters([[False, False, True], [False, False, False], [True, False, False]])
    ('a', 'ab', 'b')
    """
    matrix = np.asarray(differs)
    if matrix.dtype != bool or matrix.ndim != 2 or not np.array_equal(matrix, matrix.T) or matrix.diagonal().any():
        raise ValueError(
            f"differs must be a symmetric matrix of truth values, False on the diagonal, got shape {matrix.shape} of "
            f"{matrix.dtype}; is it a matrix of p-values, or only the pairs above the diagonal?"
        )
    k = len(matrix)
    groups = sorted(_tie_groups(matrix), key=sorted)
    names = [_letter_name(index) for index in range(len(groups))]
    separator = "" if len(groups) <= len(ascii_lowercase) else " "
    return tuple(
        separator.join(name for name, group in zip(names, groups, strict=True) if i in group) for i in range(k)
    )


def _tie_groups(differs: np.ndarray) -> set[Group]:
    """Return the maximal sets of items no two of which differ."""
    k = len(differs)
    groups = {frozenset(range(k))} if k else set()
    for i, j in np.argwhere(np.triu(differs)).tolist():
        torn = {group for group in groups if i in group and j in group}
        halves = {group - {item} for group, item in product(torn, (i, j))}
        groups = _absorb(groups - torn, halves)
    return groups


def _absorb(groups: set[Group], added: set[Group]) -> set[Group]:
    """Insert new groups, except where another group contains them."""
    # Only the new groups can lie inside others: the rest were maximal before and have not shrunk.
    everything = groups | added
    return groups | {group for group in added if not any(group < other for other in everything)}


def _letter_name(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ..., as spreadsheets name their columns."""
    before, last = divmod(index, len(ascii_lowercase))
    return (_letter_name(before - 1) if before else "") + ascii_lowercase[last]


# Draws in memory at a time, each with a statistic for every pair of runs.
CHUNK_DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class PairwiseDifferences:
    """Differences of k runs, first minus second, for all m = k (k - 1) / 2 pairs.

    `covariance` is that of the runs' estimates, of shape (k, k); all else has the shape (m,), and `first` and `second`
    number the runs. The covariance has `degrees_of_freedom`, or is taken as known.
    """

    covariance: FloatArray
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    estimates: FloatArray
    errors: FloatArray
    pvalues: FloatArray
    degrees_of_freedom: float | None = None


def pairwise_differences(
    values: FloatArray,
    influence: FloatArray,
    scored: BoolArray,
    design: SamplingDesign | None = None,
    independent: FloatArray | None = None,
    degrees_of_freedom: float | None = None,
) -> PairwiseDifferences:
    """Compare all pairs of runs by their estimates, shape (k,), scaled influence and scored questions, both (k, n).

    With a design the influence is that of clusters, and `independent` what it would be without them;
    `degrees_of_freedom` are given where they do not follow from the design.
    """
    if degrees_of_freedom is None:
        degrees_of_freedom = fewest_degrees_of_freedom(scored, design)
    first, second = np.triu_indices(len(values), 1)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    estimates = values[first] - values[second]
    estimates[np.abs(estimates) <= ROUNDING] = 0
    errors = [
        difference_error(influence[a], influence[b], None if independent is None else (independent[a], independent[b]))
        for a, b in pairs
    ]
    shared = [units_shared(scored[[a, b]], design) for a, b in pairs]
    pvalues = [
        difference_pvalue(*each, degrees_of_freedom) for each in zip(estimates.tolist(), errors, shared, strict=True)
    ]
    return PairwiseDifferences(
        influence @ influence.T,
        first,
        second,
        estimates,
        np.array(errors, float),
        np.array(pvalues, float),
        degrees_of_freedom,
    )


def adjusted_pvalues(
    differences: PairwiseDifferences, confidence_level: float, n_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, float | None]:
    """Adjust the p-values by Holm's method and by max-t, and find the critical value of simultaneous intervals."""
    pvalues = differences.pvalues
    if not pvalues.size:
        return pvalues, pvalues, None
    # Back from the p-values, so that those of a sign test have a statistic too.
    degrees = differences.degrees_of_freedom
    statistics = -ndtri(pvalues / 2) if degrees is None else -stdtrit(degrees, pvalues / 2)
    max_t, largest = step_down_max_t(statistics, pvalues, _null_draws(differences, n_resamples, rng))
    return holm(pvalues), max_t, float(np.quantile(largest, confidence_level))


def _null_draws(differences: PairwiseDifferences, n_resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Absolute test statistics of estimates drawn from their joint normal distribution about one common value."""
    root = symmetric_root(differences.covariance)
    errors = differences.errors
    for start in range(0, n_resamples, CHUNK_DRAWS):
        drawn = rng.standard_normal((min(CHUNK_DRAWS, n_resamples - start), len(root))) @ root
        gaps = np.abs(drawn[:, differences.first] - drawn[:, differences.second])
        if differences.degrees_of_freedom is not None:
            gaps /= np.sqrt(
                rng.chisquare(differences.degrees_of_freedom, (len(gaps), 1)) / differences.degrees_of_freedom
            )
        yield np.divide(gaps, errors, out=np.zeros_like(gaps), where=errors > 0)
