r"""Do several prompts over the same questions share one copula? A test that can choose between families.

A single table fits every family. K prompts that make the same model more or less cautious cut one and the same
dependence at K places; a family then predicts K cells with one parameter, and K - 1 predictions can fail. For the
Gaussian family this tests whether all prompts have the same rho.

The test takes any prompts over the same questions (`refusal_index.stats.copulas.moments` has the formulas):
refusals need not be nested, not every prompt needs every question, the error may be another answer's in each, and a
table with an empty cell is no obstacle.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.copulas.families import COPULA_NAMES, DEFAULT_DF, CopulaName, copula_family, parameter_range
from refusal_index.stats.copulas.moments import fit_common_strength, moments
from refusal_index.stats.estimate import Status
from refusal_index.stats.index import refusal_index
from refusal_index.stats.matrices import checked_matrices, repeat_each_other, row_tables


@dataclass(frozen=True, slots=True)
class CopulaTestResult:
    """Whether several tables share one copula of a family.

    Attributes
    ----------
    family : str
        The family tested.
    parameter : float or None
        The parameter that fits all tables best. None where undefined.
    statistic : float or None
        How far the tables are from that fit; scaled to be chi-squared if the family holds. None where undefined.
    degrees_of_freedom : float or None
        At most the tables less one for the parameter, and the fewer the more the tables say the same.
    pvalue : float or None
        Probability of a statistic as large if the family holds. None where undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the parameter is at an end of its range.
    reason : str or None
        At the boundary ``"independence"`` (the family cannot be negative: no parameter was fitted, and none is taken
        off the degrees of freedom) or ``"perfect_dependence"`` (no statistic). Where undefined
        ``"fewer_than_two_tables"``, ``"tables_repeat_each_other"`` if all prompts have the same outcomes, or
        ``"no_variation"`` if a handful of questions leaves nothing to test.
    tables : tuple of ContingencyTable
        One a prompt, those of `left_out` included.
    """

    family: CopulaName
    parameter: float | None
    statistic: float | None
    degrees_of_freedom: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    tables: tuple[ContingencyTable, ...]

    @property
    def left_out(self) -> dict[int, str]:
        """Rows of the tables that say nothing about the dependence, each with the reason of `RefusalIndexResult`."""
        return why_left_out(self.tables)


def copula_test(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    family: CopulaName = "gaussian",
    df: float = DEFAULT_DF,
) -> CopulaTestResult:
    """Test whether several prompts over the same questions share one copula of a family.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row a prompt of the same model, one column a question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        False where a prompt has no grade for a question; all True if not given.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family under test.
    df : float, default: 4
        Degrees of freedom of the t copula.

    Returns
    -------
    CopulaTestResult
        A prompt whose table has a degenerate margin (nobody refused, say) is left out.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape, or the family is unknown.

    Notes
    -----
    A small p-value speaks against one copula of that family behind all prompts: the family is wrong, or the prompts
    change the dependence itself. A large one is weak support. The simulated power of the Gaussian test at .05 with four
    prompts and 4,326 questions is .05 to .15 against a Gumbel copula at error rates from .75 to .92, and .87 at .5;
    .9 and above against a t copula at these, and .1 at .5; .15 to .7 against Frank's. Its size is .03 to .07 for 2 to
    24 prompts and 450 to 4,326 questions.

    References
    ----------
    .. [1] Hansen, L. P. (1982). Large sample properties of generalized method of moments estimators. Econometrica, 50,
       1029-1054. :doi:`10.2307/1912775`
    .. [2] Hansen, L. P., Heaton, J. and Yaron, A. (1996). Finite-sample properties of some alternative GMM estimators.
       Journal of Business & Economic Statistics, 14, 262-280. :doi:`10.1080/07350015.1996.10524656`
    .. [3] Box (1954). :doi:`10.1214/aoms/1177728786`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> refusal, noise = rng.standard_normal((2, 3000))
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> wrong = np.broadcast_to(0.5 * refusal + 0.75**0.5 * noise > -0.4, refused.shape)
    >>> result = copula_test(refused, wrong)
    >>> round(result.degrees_of_freedom, 2), round(result.parameter, 2), result.pvalue > 0.05
    (1.85, 0.49, True)
    """
    matrices = checked_matrices(refused, wrong, scored)
    spec, tables = copula_family(family, df), row_tables(*matrices)

    def undefined(reason: str) -> CopulaTestResult:
        return CopulaTestResult(family, None, None, None, None, "undefined", reason, tables)

    kept = [row for row in range(len(tables)) if row not in why_left_out(tables)]
    if len(kept) < 2:
        return undefined("fewer_than_two_tables")
    r, w, s = (matrix[kept] for matrix in matrices)
    if repeat_each_other(r, w, s):
        return undefined("tables_repeat_each_other")
    fit = fit_common_strength(spec, moments(r, w, s, np.ones((1, r.shape[1]))))
    if fit.at_strongest[0] or (fit.at_weakest[0] and spec.can_be_negative):
        end = math.copysign(parameter_range(family)[1], fit.strength[0])
        return CopulaTestResult(family, end, None, None, None, "boundary", "perfect_dependence", tables)
    if math.isnan(fit.pvalue[0]):
        return undefined("no_variation")
    found = spec.parameter(fit.strength), fit.statistic, fit.degrees_of_freedom, fit.pvalue
    parameter, statistic, freedom, pvalue = (float(values[0]) for values in found)
    if fit.at_weakest[0]:
        return CopulaTestResult(family, parameter, statistic, freedom, pvalue, "boundary", "independence", tables)
    return CopulaTestResult(family, parameter, statistic, freedom, pvalue, "ok", None, tables)


def copula_tests(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None, *, df: float = DEFAULT_DF
) -> tuple[CopulaTestResult, ...]:
    """Test every family on the same prompts, the best fitting first.

    Parameters are those of `copula_test`.

    Returns
    -------
    tuple of CopulaTestResult
        By falling p-value, those without one last. The first family fits best; the p-values say which others are not
        ruled out.

    Raises
    ------
    TypeError, ValueError
        As `copula_test`, or if `df` is not positive and finite.

    References
    ----------
    .. [1] Hansen (1982). :doi:`10.2307/1912775`
    .. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> refusal, noise = rng.standard_normal((2, 3000))
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> wrong = np.broadcast_to(0.5 * refusal + 0.75**0.5 * noise > -0.4, refused.shape)
    >>> [result.family for result in copula_tests(refused, wrong) if result.pvalue < 0.001]
    ['clayton', 'survival_clayton']
    """
    results = [copula_test(refused, wrong, scored, family=family, df=df) for family in COPULA_NAMES]
    return tuple(sorted(results, key=lambda result: -1.0 if result.pvalue is None else result.pvalue, reverse=True))


def why_left_out(tables: tuple[ContingencyTable, ...]) -> dict[int, str]:
    """Rows of the tables with a degenerate margin, each with its reason."""
    results = {row: refusal_index(table) for row, table in enumerate(tables)}
    return {row: result.reason or "" for row, result in results.items() if result.status == "undefined"}
