r"""The likelihood ratio for one copula behind nested refusals: a (K+1) x 2 table with ordered rows.

If every question that a laxer prompt refuses is refused by a stricter one too, and the answers that count are the
same, K prompts sort the questions into K + 1 ordered levels of refusal. A copula predicts the 2 (K + 1) cells of levels
and errors with K refusal rates, one error rate and one parameter, of 2 K + 1 free proportions: K - 1 too few. All of
them are fitted by maximum likelihood, with Fisher scoring, for many tables at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.special import xlogy

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import ContingencyTable, checked_counts
from refusal_index.stats.copulas.families import (
    DEFAULT_DF,
    CopulaFamily,
    CopulaName,
    cell_and_rate_slopes,
    copula_family,
    strength_slope,
)
from refusal_index.stats.copulas.shared import (
    CopulaTestResult,
    finished_test,
    parameter_end,
    undefined_test,
    why_left_out,
)
from refusal_index.stats.matrices import BoolArray

# Where the search for the strength begins, and how far it goes at once.
START = 0.4
LARGEST_STEP = 0.5
# Where a step gains less log-likelihood than this, the strength is right to about 1e-6 of its standard error.
GAIN_TOLERANCE = 1e-12
MAX_ITERATIONS = 100
# So little likelihood does not tell the weakest fit from independence itself.
INDEPENDENCE_TOLERANCE = 1e-9
HALVINGS = 20
# A smaller predicted cell is one that the prediction excludes.
SMALLEST_CELL = 1e-14
# As for the moments: perfect dependence, as far as a test is concerned.
LARGEST_STRENGTH = 4.0


class NestedFit(NamedTuple):
    """The maximum-likelihood fit of each of b tables; arrays of shape (b,)."""

    strength: FloatArray
    statistic: FloatArray
    at_independence: BoolArray


def nested_copula_test(
    counts: ArrayLike, family: CopulaName = "gaussian", *, df: float = DEFAULT_DF
) -> CopulaTestResult:
    """Test whether one copula of a family lies behind nested refusals, by the likelihood ratio.

    Parameters
    ----------
    counts : array_like of int, shape (k + 1, 2)
        Questions by level of refusal, and wrong or right. The first row holds the questions that all k prompts refuse,
        the next those that all but the laxest refuse, and so on, the last those that no prompt refuses. The first
        column holds wrong answers, the second right ones.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family under test.
    df : float, default: 4
        Degrees of freedom of the t copula.

    Returns
    -------
    CopulaTestResult
        `tables` has one table a prompt, the laxest first. A level without questions makes two prompts one. Undefined
        with ``"all_wrong"`` or ``"all_right"`` where a column is empty.

    Raises
    ------
    TypeError, ValueError
        If the counts are no counts, or not of shape (k + 1, 2) with k of at least 1.

    Examples
    --------
    >>> result = nested_copula_test([[2467, 41], [460, 22], [405, 27], [468, 54], [330, 52]])
    >>> result.degrees_of_freedom, round(result.parameter, 3), round(result.pvalue, 3)
    (3, 0.42, 0.271)
    """
    table = checked_counts("counts", counts)
    if table.ndim != 2 or table.shape[1] != 2 or len(table) < 2:
        raise ValueError(
            f"counts must have shape (k + 1, 2), one row a level of refusal, columns wrong and right, "
            f"got {table.shape}; is it transposed, or one row a prompt?"
        )
    spec, tables = copula_family(family, df), _tables_of_prompts(table)
    levels = table[table.sum(axis=1) > 0]
    if len(levels) < 3:
        return undefined_test(family, "fewer_than_two_tables", tables)
    if not levels.sum(axis=0).all():
        return undefined_test(family, next(iter(why_left_out(tables).values())), tables)
    fit = fit_nested(spec, levels[np.newaxis])
    strength = float(fit.strength[0])
    if abs(strength) >= LARGEST_STRENGTH:
        end = parameter_end(family) if strength > 0 else -parameter_end(family)
        return CopulaTestResult(family, end, None, None, None, "boundary", "perfect_dependence", tables)
    parameter = float(spec.parameter(np.array(strength)))
    independent = bool(fit.at_independence[0])
    statistic, freedom = float(fit.statistic[0]), len(levels) - (1 if independent else 2)
    found = statistic, freedom, float(special.chdtrc(freedom, statistic))
    return finished_test(family, parameter, found, independent, tables)


def _tables_of_prompts(counts: FloatArray) -> tuple[ContingencyTable, ...]:
    refused = np.cumsum(counts, axis=0)[:-1]
    answered = counts.sum(axis=0) - refused
    return tuple(ContingencyTable(*row) for row in np.hstack([refused, answered]).tolist())


def fit_nested(spec: CopulaFamily, counts: FloatArray) -> NestedFit:
    """Fit one copula to each of b tables, counts of shape (b, k + 1, 2) with no empty row or column."""
    n = counts.sum(axis=(1, 2))
    rates = np.cumsum(counts.sum(axis=2), axis=1)[:, :-1] / n[:, np.newaxis]
    error_rate = counts[:, :, 0].sum(axis=1, keepdims=True) / n[:, np.newaxis]
    parameters = np.hstack([rates, error_rate, np.full_like(error_rate, START)])
    likelihood = _log_likelihood(counts, _cells(spec, parameters))
    for _ in range(MAX_ITERATIONS):
        step = _scoring_step(spec, counts, parameters)
        parameters, likelihood, gain = _uphill(spec, counts, parameters, step, likelihood)
        if gain.max() < GAIN_TOLERANCE:
            break
    # A family that cannot be negative may fit best at independence, where the margins fit by themselves.
    independent = (
        counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True) / (n * n)[:, np.newaxis, np.newaxis]
    )
    at_independence = _log_likelihood(counts, independent)
    weakest = (not spec.can_be_negative) & (at_independence >= likelihood - INDEPENDENCE_TOLERANCE)
    saturated = _log_likelihood(counts, counts / n[:, np.newaxis, np.newaxis])
    statistic = 2 * (saturated - np.where(weakest, at_independence, likelihood))
    return NestedFit(np.where(weakest, 0.0, parameters[:, -1]), np.maximum(statistic, 0.0), weakest)


def _cells(spec: CopulaFamily, parameters: FloatArray) -> FloatArray:
    """Predicted proportions, shape (b, k + 1, 2), from the rates of refusal and error and the strength."""
    r, mu, strength = parameters[:, :-2], parameters[:, -2:-1], parameters[:, -1:]
    return _levels(spec.cell(r, mu, strength), mu, r)


def _levels(refused_wrong: FloatArray, wrong: FloatArray, refused: FloatArray, total: float = 1.0) -> FloatArray:
    """Difference what is cumulated over the levels; `total` is 0 for derivatives of a proportion."""
    zero = np.zeros_like(wrong)
    in_wrong = np.diff(np.concatenate([zero, refused_wrong, wrong], axis=1), axis=1)
    in_both = np.diff(np.concatenate([zero, refused, np.full_like(wrong, total)], axis=1), axis=1)
    return np.stack([in_wrong, in_both - in_wrong], axis=2)


def _log_likelihood(counts: FloatArray, cells: FloatArray) -> FloatArray:
    likelihood = xlogy(counts, np.maximum(cells, SMALLEST_CELL)).sum(axis=(1, 2))
    return np.asarray(np.where((cells < -SMALLEST_CELL).any(axis=(1, 2)), -np.inf, likelihood))


def _scoring_step(spec: CopulaFamily, counts: FloatArray, parameters: FloatArray) -> FloatArray:
    """Fisher scoring step: the inverse expected information times the score."""
    r, mu, strength = parameters[:, :-2], parameters[:, -2:-1], parameters[:, -1:]
    cell, alpha, beta = cell_and_rate_slopes(spec, r, mu, strength)
    slope, one, zero = strength_slope(spec, r, mu, strength), np.ones_like(mu), np.zeros_like(mu)
    columns = [
        _levels(alpha * unit, zero, np.broadcast_to(unit, alpha.shape), 0.0)
        for unit in np.eye(r.shape[1])[:, np.newaxis]
    ]
    columns += [_levels(beta, one, np.zeros_like(r), 0.0), _levels(slope, zero, np.zeros_like(r), 0.0)]
    jacobian = np.stack([column.reshape(len(counts), -1) for column in columns], axis=2)
    predicted = np.maximum(_levels(cell, mu, r).reshape(len(counts), -1), SMALLEST_CELL)
    weighted = np.swapaxes(jacobian / predicted[:, :, np.newaxis], 1, 2)
    score = weighted @ counts.reshape(len(counts), -1, 1)
    information = counts.sum(axis=(1, 2))[:, np.newaxis, np.newaxis] * (weighted @ jacobian)
    return np.asarray((np.linalg.pinv(information, hermitian=True) @ score)[:, :, 0])


def _uphill(
    spec: CopulaFamily, counts: FloatArray, parameters: FloatArray, step: FloatArray, likelihood: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Take the step, halved until the likelihood does not fall; return also the gain."""
    fraction = np.minimum(1.0, LARGEST_STEP / np.maximum(np.abs(step[:, -1]), 1e-300))
    best, reached = parameters, likelihood
    for _ in range(HALVINGS):
        proposed = parameters + fraction[:, np.newaxis] * step
        rates_hold = (np.diff(proposed[:, :-2], axis=1, prepend=0, append=1) > 0).all(axis=1)
        rates_hold &= (proposed[:, -2] > 0) & (proposed[:, -2] < 1)
        proposed = np.where(rates_hold[:, np.newaxis], proposed, parameters)
        proposed[:, -1] = np.clip(proposed[:, -1], max(spec.limits[0], -LARGEST_STRENGTH), LARGEST_STRENGTH)
        now = _log_likelihood(counts, _cells(spec, proposed))
        better = now > reached
        best, reached = np.where(better[:, np.newaxis], proposed, best), np.where(better, now, reached)
        waiting = ~better & (reached == likelihood)
        if not waiting.any():
            break
        fraction = np.where(waiting, 0.5 * fraction, fraction)
    return best, reached, reached - likelihood
