"""The Refusal Index of one table or of many."""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable, checked_counts, empty_margin
from refusal_index.stats.design import ONE_CLUSTER
from refusal_index.stats.estimate import ConfidenceInterval, Status
from refusal_index.stats.estimator import tetrachoric, tetrachoric_of_counts
from refusal_index.stats.influence import spearman, spearman_slope, standard_error
from refusal_index.stats.intervals import IntervalMethod, Seed, rho_interval
from refusal_index.stats.sampled_table import AnyTable, SampledTable


@dataclass(frozen=True, slots=True)
class RefusalIndexResult:
    """The Refusal Index of one table, with what it came from and whether it means anything.

    Attributes
    ----------
    estimate : float or None
        The Refusal Index, in [-1, 1]. Exactly -1 or +1 at the boundary, None where undefined.
    rho : float or None
        The tetrachoric correlation behind it, with the same conventions.
    standard_error : float or None
        Standard error of `estimate`, with the refusal and error rates taken as estimated. None unless the status is
        ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a cell is empty, so that the likelihood keeps rising up to rho = -1 or +1. ``"undefined"``: the
        data hold no information about rho.
    reason : str or None
        Why the status is not ``"ok"``. At the boundary ``"zero_cell:"`` with the empty cells, joined by ``+``, or
        ``"one_cluster"``, which leaves the standard error unknown; where undefined the first that applies of
        ``"no_questions"``, ``"nobody_refused"``, ``"everybody_refused"``, ``"all_wrong"``, ``"all_right"``.
    table : ContingencyTable or SampledTable
    """

    estimate: float | None
    rho: float | None
    standard_error: float | None
    status: Status
    reason: str | None
    table: AnyTable

    def confidence_interval(
        self,
        confidence_level: float = 0.95,
        method: IntervalMethod = "profile",
        *,
        n_resamples: int | None = None,
        rng: Seed = None,
    ) -> ConfidenceInterval:
        """Confidence interval of the Refusal Index.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        method : {"profile", "jeffreys", "delta", "bootstrap"}
            ``"profile"``: likelihood-ratio interval, maximised over both thresholds; at the boundary a one-sided one.
            ``"jeffreys"``: posterior
            quantiles under Jeffreys' prior for the four cells. ``"delta"``: normal interval for ``atanh(rho)``.
            ``"bootstrap"``: percentiles over resampled questions, as in the paper; resamples without a defined estimate
            are left out. With clusters or weights the first or the third.
        n_resamples : int, optional
            Posterior draws (10,000 by default) or bootstrap resamples (1,000 by default).
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(low, high)``. At the boundary the profile and the Jeffreys interval end at the estimate; the delta and
            bootstrap intervals, which cannot see beyond an empty cell, are ``(nan, nan)``. Where undefined all are, and
            for a single cluster.

        Examples
        --------
        >>> result = refusal_index(ContingencyTable(710, 30, 210, 50))
        >>> low, high = result.confidence_interval()
        >>> round(low, 4), round(high, 4)
        (0.3596, 0.5922)
        """
        low, high = rho_interval(self.table, self.rho, confidence_level, method, n_resamples=n_resamples, rng=rng)
        return ConfidenceInterval(spearman(low), spearman(high))


@overload
def refusal_index(table: AnyTable, /) -> RefusalIndexResult: ...
@overload
def refusal_index(
    *, refused: ArrayLike, wrong: ArrayLike, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
) -> RefusalIndexResult: ...


def refusal_index(
    table: AnyTable | None = None,
    /,
    *,
    refused: ArrayLike | None = None,
    wrong: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> RefusalIndexResult:
    """Estimate the Refusal Index from a table of counts or from one outcome per question.

    The Refusal Index is Spearman's rank correlation between the probability that a model refuses a question and the
    probability that it would answer it wrongly, under a Gaussian copula. Two passes over the same questions show both:
    a first in which the model may refuse, and a second in which it is forced to answer what it refused. The 2x2 table
    of refusal and error then gives the tetrachoric correlation rho by maximum likelihood, and from it

        RI = 6 / pi * asin(rho / 2)

    Parameters
    ----------
    table : ContingencyTable or SampledTable
        Counts of refused and answered, wrong and right questions. Give this or both arrays.
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`. The estimate is that of the
        weighted cells; standard error and interval allow for both.

    Returns
    -------
    RefusalIndexResult
        Data that are valid but say nothing (nobody refused, say) give the status ``"undefined"``, not an exception.

    Raises
    ------
    TypeError, ValueError
        If neither or both forms are given, the arrays are not truth values of one length, or as `SamplingDesign.of`.

    Notes
    -----
    The estimate is the maximum of the multinomial likelihood over rho with the thresholds at the observed rates.
    This 2x2 table is saturated, so the maximum is where the modelled share of refused and wrong questions equals the
    observed one, and it is found as a root, to 1e-12 while every cell holds more than 1e-5 of the questions.

    References
    ----------
    .. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware
       Refusal in Factual Tasks. Definition, section "Refusal Index"; likelihood, section "Two-Pass Evaluation".
    .. [2] Pearson, K. (1900). Mathematical contributions to the theory of evolution. VII. On the correlation of
       characters not quantitatively measurable. Philosophical Transactions of the Royal Society A, 195, 1-47.
       :doi:`10.1098/rsta.1900.0022`
    .. [3] Hamdan, M. A. (1970). The equivalence of tetrachoric and maximum likelihood estimates of rho in 2x2 tables.
       Biometrika, 57, 212-215. :doi:`10.1093/biomet/57.1.212`

    Examples
    --------
    >>> result = refusal_index(ContingencyTable(710, 30, 210, 50))
    >>> round(result.estimate, 6), round(result.rho, 6), round(result.standard_error, 6)
    (0.482169, 0.49958, 0.059594)

    A model that never refuses says nothing about what its refusals would be worth:

    >>> nobody = refusal_index(refused=[False, False, False], wrong=[True, False, True])
    >>> nobody.estimate is None, nobody.status, nobody.reason
    (True, 'undefined', 'nobody_refused')
    """
    if table is None:
        if refused is None or wrong is None:
            raise TypeError("refusal_index needs a ContingencyTable, or both refused= and wrong=")
        table = _counted(refused, wrong, cluster, weight)
    elif any(given is not None for given in (refused, wrong, cluster, weight)):
        raise TypeError("refusal_index takes a ContingencyTable or the arrays refused= and wrong=, not both")
    elif not isinstance(table, AnyTable):
        raise TypeError(
            f"table must be a ContingencyTable, got {type(table).__name__}; "
            "for four counts write refusal_index(ContingencyTable(...)), for arrays of counts refusal_index_many(...)"
        )
    return _estimate(table)


def _counted(
    refused: ArrayLike, wrong: ArrayLike, cluster: ArrayLike | None, weight: ArrayLike | None
) -> ContingencyTable | SampledTable:
    if cluster is None and weight is None:
        return ContingencyTable.from_arrays(refused, wrong)
    return SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=weight)


def _estimate(table: AnyTable) -> RefusalIndexResult:
    undefined = _why_undefined(table)
    if undefined:
        return RefusalIndexResult(None, None, None, "undefined", undefined, table)
    empty = [name for name, count in zip(CELL_NAMES, table.counts, strict=True) if count == 0]
    if empty:
        end = 1.0 if table.refused_right == 0 or table.answered_wrong == 0 else -1.0
        return RefusalIndexResult(end, end, None, "boundary", "zero_cell:" + "+".join(empty), table)
    rho = tetrachoric_of_counts(*table.counts)
    error = standard_error(table, rho) * spearman_slope(rho)
    if math.isnan(error):
        return RefusalIndexResult(spearman(rho), rho, None, "boundary", ONE_CLUSTER, table)
    return RefusalIndexResult(spearman(rho), rho, error, "ok", None, table)


def _why_undefined(table: AnyTable) -> str | None:
    if table.n == 0:
        return "no_questions"
    right, wrong = table.refused_right + table.answered_right, table.refused_wrong + table.answered_wrong
    return empty_margin(table.n_refused, table.n_answered, right, wrong)


def refusal_index_many(
    refused_wrong: ArrayLike, refused_right: ArrayLike, answered_wrong: ArrayLike, answered_right: ArrayLike
) -> FloatArray:
    """Estimate the Refusal Index of many tables at once, a few tenths of a microsecond each.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : array_like of int
        Counts, not negative, of any shapes that broadcast. Integer-valued floats are accepted.

    Returns
    -------
    ndarray
        Refusal Index of each table, of the broadcast shape (a NumPy float if that is the shape of a single number).
        Exactly -1 or +1 at the boundary and NaN where undefined, as in `RefusalIndexResult`.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a count is negative, fractional, infinite or NaN, or the shapes do not broadcast.

    References
    ----------
    .. [1] Pan et al. Definition, section "Refusal Index"; likelihood, section "Two-Pass Evaluation".

    Examples
    --------
    >>> refusal_index_many([710, 40, 5, 0], [30, 10, 0, 0], [210, 20, 3, 7], [50, 30, 4, 9])
    array([0.48216949, 0.58900441, 1. , nan])
    """
    arguments = (refused_wrong, refused_right, answered_wrong, answered_right)
    rho = tetrachoric(*(checked_counts(name, values) for name, values in zip(CELL_NAMES, arguments, strict=True)))
    return np.asarray(np.arcsin(rho / 2) / math.asin(0.5))[()]
