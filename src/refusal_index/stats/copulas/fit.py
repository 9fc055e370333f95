r"""One copula fitted to one 2x2 table, and why that cannot choose between copulas.

With both margins fixed at the observed rates, the other three cells follow from the share of refused and wrong
questions. One parameter therefore fits the table exactly, in every family whose range reaches that share: the
likelihood is the same in all of them, that of the saturated table, and what differs between two printed likelihoods
is numerical noise, a penalty for a parameter that does nothing, or a family that cannot be negative on a table that
is. Ties are the rule here, and are counted as such. What can choose between copulas is several prompts over the same
questions: see `refusal_index.stats.copulas.shared`.

What a single table does allow is to ask how much the answer depends on the family: each fit implies a Spearman
correlation, and the Gaussian's is the Refusal Index.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.copulas.families import (
    COPULA_NAMES,
    DEFAULT_DF,
    CopulaFamily,
    CopulaName,
    copula_family,
    copula_spearman,
)
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import refusal_index

# Log-likelihoods and criteria that differ by less are equal: rounding leaves about 1e-9 of a table of a million.
TIE = 1e-6
CRITERIA = ("log_likelihood", "aic", "bic")


@dataclass(frozen=True, slots=True)
class CopulaFit:
    """A one-parameter copula fitted to a table with its margins fixed.

    Attributes
    ----------
    family : str
        Name of the family.
    parameter : float or None
        The maximum-likelihood parameter; an end of its range at the boundary (infinite where the range is), None
        where undefined.
    log_likelihood : float or None
        Multinomial log-likelihood of the counts without its constant, ``sum n log p``. None where undefined.
    n_parameters : int
        What the criteria penalise: 1, or 2 for a t copula whose degrees of freedom are counted.
    df : float or None
        Degrees of freedom of the t copula, None for other families.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the parameter lies at an end of its range.
    reason : str or None
        ``"negative_dependence"``: the table is negative, the family cannot be, and sits at independence.
        ``"zero_cell:"`` with the empty cells: perfect dependence. Where undefined as in `RefusalIndexResult`.
    table : ContingencyTable
    """

    family: CopulaName
    parameter: float | None
    log_likelihood: float | None
    n_parameters: int
    df: float | None
    status: Status
    reason: str | None
    table: ContingencyTable

    @property
    def aic(self) -> float | None:
        """Akaike's criterion, ``2 k - 2 log-likelihood``; None where undefined."""
        return None if self.log_likelihood is None else 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float | None:
        """Schwarz's criterion, ``k log n - 2 log-likelihood``; None where undefined."""
        if self.log_likelihood is None:
            return None
        return self.n_parameters * math.log(self.table.n) - 2 * self.log_likelihood

    @property
    def spearman(self) -> float | None:
        """Spearman correlation of the fitted copula, in the Gaussian family the Refusal Index; None where undefined."""
        return (
            None if self.parameter is None else copula_spearman(self.parameter, self.family, df=self.df or DEFAULT_DF)
        )


def fit_copula(
    table: ContingencyTable, family: CopulaName = "gaussian", *, df: float = DEFAULT_DF, count_df: bool = False
) -> CopulaFit:
    """Fit a copula to a table by maximum likelihood, with the margins fixed at the observed rates.

    Parameters
    ----------
    table : ContingencyTable
        Counts of refused and answered, wrong and right questions.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family.
    df : float, default: 4
        Degrees of freedom of the t copula, which a 2x2 table cannot estimate.
    count_df : bool, default: False
        Whether AIC and BIC count `df` as a second parameter of the t copula, as the paper does.

    Returns
    -------
    CopulaFit
        Undefined where a margin is degenerate.

    Raises
    ------
    TypeError, ValueError
        If `table` is not a ContingencyTable, the family unknown, or df not positive.

    Notes
    -----
    The table is saturated, so that every family that reaches it has the same likelihood: a smaller one means only that
    the table is negative and the family cannot be. It is no sign of the right copula, nor is equality.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Validating the Gaussian Copula Assumption".

    Examples
    --------
    >>> table = ContingencyTable(710, 30, 210, 50)
    >>> gaussian, gumbel = fit_copula(table), fit_copula(table, "gumbel")
    >>> round(gaussian.parameter, 5), round(gumbel.parameter, 5)
    (0.49958, 1.71556)
    >>> abs(gaussian.log_likelihood - gumbel.log_likelihood) < 1e-9
    True
    >>> round(gaussian.spearman, 4), round(gumbel.spearman, 4)
    (0.4822, 0.5839)
    """
    spec = copula_family(family, df)
    # Gives the errors and the reasons of tables that hold no estimate.
    index = refusal_index(table)
    k, used_df = (2 if family == "t" and count_df else 1), (df if family == "t" else None)
    if index.status == "undefined":
        return CopulaFit(family, None, None, k, used_df, "undefined", index.reason, table)
    r, mu, p11 = table.refusal_rate, table.error_rate, table.refused_wrong / table.n
    if p11 < r * mu and not spec.can_be_negative:
        independence, likelihood = _parameter(spec, 0.0), _log_likelihood(table, r * mu)
        return CopulaFit(family, independence, likelihood, k, used_df, "boundary", "negative_dependence", table)
    if index.status == "boundary":
        end = (-1.0 if p11 < r * mu else 1.0) * (1.0 if family in {"gaussian", "t"} else math.inf)
        return CopulaFit(family, end, _log_likelihood(table, p11), k, used_df, "boundary", index.reason, table)
    strength = strength_of_table(spec, r, mu, p11)
    likelihood = _log_likelihood(table, _cell(spec, r, mu, strength))
    return CopulaFit(family, _parameter(spec, strength), likelihood, k, used_df, "ok", None, table)


def fit_copulas(
    table: ContingencyTable, *, df: float = DEFAULT_DF, count_df: bool = False
) -> dict[CopulaName, CopulaFit]:
    """Fit every family to a table; see `fit_copula`.

    Parameters are those of `fit_copula`.

    Returns
    -------
    dict of str to CopulaFit
        One a family, in the order of `COPULA_NAMES`.

    Raises
    ------
    TypeError, ValueError
        As `fit_copula`.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Validating the Gaussian Copula Assumption".

    Examples
    --------
    >>> fits = fit_copulas(ContingencyTable(40, 20, 20, 10))
    >>> {fit.status for fit in fits.values()}
    {'ok'}
    """
    return {family: fit_copula(table, family, df=df, count_df=count_df) for family in COPULA_NAMES}


@dataclass(frozen=True, slots=True)
class CopulaComparison:
    """A family beside the Gaussian over many tables.

    Attributes
    ----------
    family : str
        Name of the family.
    log_likelihood, aic, bic : float or None
        Means over the tables. None without tables.
    log_likelihood_wins, aic_wins, bic_wins : float or None
        Share of the tables on which the Gaussian copula is better; a tie counts one half.
    ties : float or None
        Share of the tables on which the two log-likelihoods are equal.
    """

    family: CopulaName
    log_likelihood: float | None
    aic: float | None
    bic: float | None
    log_likelihood_wins: float | None
    aic_wins: float | None
    bic_wins: float | None
    ties: float | None


def copula_win_rates(
    tables: Iterable[ContingencyTable], *, df: float = DEFAULT_DF, count_df: bool = False
) -> tuple[CopulaComparison, ...]:
    """Compare every family with the Gaussian copula over many tables, as the paper does.

    Parameters
    ----------
    tables : iterable of ContingencyTable
        One table a model and prompt. Tables without a defined estimate are left out.
    df, count_df
        As for `fit_copula`; the paper's criteria are those of ``count_df=True``.

    Returns
    -------
    tuple of CopulaComparison
        One a family, in the order of `COPULA_NAMES`, the Gaussian itself included: all ties.

    Raises
    ------
    TypeError, ValueError
        As `fit_copula`.

    Notes
    -----
    Tables are saturated (see `fit_copula`), so that on a positive table every family ties and the Gaussian wins against
    t by its penalty alone if df is counted. A win rate above one half against Clayton or Gumbel counts the negative
    tables.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Validating the Gaussian Copula Assumption".

    Examples
    --------
    >>> rows = copula_win_rates([ContingencyTable(710, 30, 210, 50), ContingencyTable(400, 50, 500, 50)])
    >>> [(row.family, row.log_likelihood_wins, row.ties) for row in rows[1:3]]
    [('t', 0.5, 1.0), ('clayton', 0.75, 0.5)]
    """
    fits = [fit_copulas(table, df=df, count_df=count_df) for table in tables]
    defined = [by_family for by_family in fits if by_family["gaussian"].status != "undefined"]
    if not defined:
        return tuple(CopulaComparison(family, *[None] * 7) for family in COPULA_NAMES)
    gaussian = _criteria([by_family["gaussian"] for by_family in defined])
    return tuple(_comparison(gaussian, [by_family[family] for by_family in defined]) for family in COPULA_NAMES)


def strength_of_table(spec: CopulaFamily, r: float, mu: float, p11: float) -> float:
    """Solve for the strength at which a family predicts the share `p11` at the rates, inside its range."""
    low, high = spec.limits
    if _cell(spec, r, mu, low) >= p11:
        return low
    if _cell(spec, r, mu, high) <= p11:
        return high
    return float(brentq(lambda x: _cell(spec, r, mu, x) - p11, low, high, xtol=1e-14, rtol=1e-14))


def _cell(spec: CopulaFamily, r: float, mu: float, strength: float) -> float:
    return float(spec.cell(np.array(r), np.array(mu), np.array(strength)))


def _parameter(spec: CopulaFamily, strength: float) -> float:
    return float(spec.parameter(np.array(strength)))


def _log_likelihood(table: ContingencyTable, p11: float) -> float:
    r, mu = table.refusal_rate, table.error_rate
    cells = p11, r - p11, mu - p11, 1 - r - mu + p11
    return sum(count * math.log(cell) for count, cell in zip(table.counts, cells, strict=True) if count)


def _criteria(fits: list[CopulaFit]) -> FloatArray:
    """Log-likelihood, -AIC and -BIC, so that larger is better, in one row each."""
    log_likelihood, aic, bic = (np.array([getattr(fit, name) for fit in fits], float) for name in CRITERIA)
    return np.stack([log_likelihood, -aic, -bic])


def _comparison(gaussian: FloatArray, fits: list[CopulaFit]) -> CopulaComparison:
    other = _criteria(fits)
    lead = gaussian - other
    wins = np.where(np.abs(lead) < TIE, 0.5, lead > 0).mean(axis=1)
    likelihood, minus_aic, minus_bic = (float(mean) for mean in other.mean(axis=1))
    by_likelihood, by_aic, by_bic = (float(share) for share in wins)
    ties = float(np.mean(np.abs(lead[0]) < TIE))
    return CopulaComparison(fits[0].family, likelihood, -minus_aic, -minus_bic, by_likelihood, by_aic, by_bic, ties)
