"""P-values of many hypotheses tested at once, adjusted so that any false rejection at all is rare.

A hypothesis is rejected where its adjusted p-value is at most alpha; the chance that any true one is rejected is then
at most alpha, whichever of them are true. Both adjustments are step-down: once the clearest differences are found,
the rest need not be adjusted for them, which makes the tests more powerful than adjusting all alike.
"""

from collections.abc import Iterable

import numpy as np

from refusal_index.stats._ops import FloatArray


def holm(pvalues: FloatArray) -> FloatArray:
    """Adjust p-values of shape (m,) by Holm's method, which holds however they depend on each other.

    Parameters
    ----------
    pvalues : ndarray of float, shape (m,)
        In [0, 1]; taken as they are.

    Returns
    -------
    ndarray, shape (m,)
        Adjusted p-values, in the order of those given.

    References
    ----------
    .. [1] Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of
       Statistics, 6, 65-70. https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(pvalues, kind="stable")
    remaining = np.arange(len(pvalues), 0, -1)
    return _in_given_order(np.minimum(remaining * pvalues[order], 1.0), order)


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
