"""Spearman's correlation of refusal and error under other copulas than the Gaussian, and its difference between runs.

A table fits every copula exactly, so RI rests on the Gaussian copula without a test. If two runs refuse equally often,
this hardly matters for their difference: whatever the copula is, it was cut at the same place. If one refuses far more
often, a difference of RI may come from the copula alone. With the same t, Clayton or survival Clayton copula in both
runs, refusal rates of .15 and .6 and 1,000 questions, RI differs significantly in up to half of the samples
(`benchmarks/coverage/other_copulas.py`). The comparison is therefore repeated under these three.

**Estimate.** The strength of a family is fitted to each table as in `refusal_index.stats.copulas`, and Spearman's
correlation is a function of it. With several prompts, strengths are averaged with weights by inverse variance, as
atanh(rho) is for RI. For the Gaussian family, whose strength is atanh(rho), all of this is RI, joint RI, and their
difference.

**Negative dependence.** Clayton copulas have none. A table with negative dependence is fitted by the copula with wrong
and right answers exchanged, and its strength counts as negative.

**Standard error.** The share of refused and wrong questions predicted at the rates r and mu is C(r, mu; s). So a
question has the influence ``(R W - p11 - dC/dr (R - r) - dC/dmu (W - mu)) / (dC/ds)`` on the strength s, with
derivatives by central differences. The influence of shared questions is paired, and clusters and weights are
accounted for, as in `refusal_index.stats.comparison`.

**Spearman's correlation.** A t vector is a normal one divided by the root of a gamma variable S. Given S, S' and S'' of
three independent vectors, the correlation of ``(X - X', Y - Y'')`` is ``rho a' a''`` with ``a' = sqrt(S' / (S + S'))``
and a'' likewise, so that the correlation is ``6 / pi E asin(rho a' a'')`` [1]_. That of Clayton's copula, and of its
survival form, is ``12 int int C(u, v) du dv - 3``, computed by exp-sinh quadrature in ``-log u`` and ``-log v``.

References
----------
.. [1] Lu, Y. (2024). Kendall's tau and Spearman's rho for normal location-scale and skew-normal scale mixture copulas.
   :arxiv:`2412.20013`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.arguments import FloatArray, one_of
from refusal_index.stats.comparison import NO_INFLUENCE, Influence, PointEstimate, influence_of, unrounded
from refusal_index.stats.contingency import Counts, Matrices, SamplingDesign, cell_codes, tables_of_rows
from refusal_index.stats.copulas import (
    DEFAULT_DF,
    CopulaFamily,
    cell_and_rate_slopes,
    copula_family,
    strength_of_table,
    strength_slope,
)
from refusal_index.stats.estimate import Result, ResultWithInterval, reasons_of
from refusal_index.stats.intervals import refusal_index, spearman
from refusal_index.stats.joint import checked_models

ComparedCopula = Literal["gaussian", "t", "clayton", "survival_clayton"]
OTHER_COPULAS: tuple[ComparedCopula, ...] = ("t", "clayton", "survival_clayton")
"""Copulas under which a comparison is repeated: dependence in both tails, in the lower, and in the upper."""

STEP = 1e-4
T_NODES = 24
T_LIMIT = 6.0
# Nodes of the exp-sinh quadrature: exp(pi/2 sinh(x)) from 1e-19 to 1e12.
EXP_SINH = np.arange(-4.0, 3.6, 0.1)


def copula_spearman(strength: float, family: ComparedCopula) -> float:
    """Return Spearman's correlation of a family at a strength; an odd function of it."""
    if family == "gaussian":
        return spearman(math.tanh(strength))
    if family == "t":
        products, weights = _mixture()
        return float(6 / math.pi * (weights @ np.arcsin(math.tanh(strength) * products)))
    return math.copysign(_clayton_spearman(math.expm1(abs(strength))), strength) if strength else 0.0


@cache
def _mixture() -> tuple[FloatArray, FloatArray]:
    """Return the products a' a'' of a t copula with 4 degrees of freedom at the nodes of a quadrature, and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(T_NODES)
    roots = T_LIMIT / 2 * (1 + nodes)
    density = weights * roots ** (DEFAULT_DF - 1) * np.exp(-(roots**2))
    density /= density.sum()
    shares = roots / np.hypot(roots[:, np.newaxis], roots)
    products = shares[:, :, np.newaxis] * shares[:, np.newaxis, :]
    return products.ravel(), np.einsum("i,j,k->ijk", density, density, density).ravel()


def _clayton_spearman(theta: float) -> float:
    # The smaller of -log u and -log v is b, and their distance d.
    points = np.exp(0.5 * math.pi * np.sinh(EXP_SINH))
    weights = points * 0.5 * math.pi * np.cosh(EXP_SINH) * (EXP_SINH[1] - EXP_SINH[0])
    d = points
    b = points[:, np.newaxis]
    inner = -np.exp(-theta * d) * np.expm1(-theta * b)
    # C(u, v) - u v, which loses no digits of a weak dependence.
    excess = np.exp(-b - d) * (np.exp(-np.log1p(inner) / theta) - np.exp(-b))
    return float(24 * weights @ (excess * np.exp(-2 * b - d)) @ weights)


class _Fit(NamedTuple):
    """A family's strength in a table, and the influence of a question in each cell on it."""

    strength: float
    by_cell: Counts


def _fit(spec: CopulaFamily, shares: Sequence[float]) -> _Fit:
    """Fit a family to the four shares of a table without an empty cell."""
    p11, p10, p01, p00 = shares
    r = p11 + p10
    mu = p11 + p01
    if p11 < r * mu and not spec.can_be_negative:
        reflected = _fit(spec, (p10, p11, p00, p01))
        w, x, y, z = reflected.by_cell
        return _Fit(-reflected.strength, (-x, -w, -z, -y))
    strength = strength_of_table(spec, r, mu, p11)
    at = np.array(r), np.array(mu), np.array(strength)
    _, alpha, beta = map(float, cell_and_rate_slopes(spec, *at))
    slope = float(strength_slope(spec, *at))
    with_rates = p11 - alpha * r - beta * mu
    by_cell = 1 - alpha - beta - with_rates, -alpha - with_rates, -beta - with_rates, -with_rates
    if slope <= 0:
        return _Fit(strength, NO_INFLUENCE)
    w, x, y, z = (value / slope for value in by_cell)
    return _Fit(strength, (w, x, y, z))


@dataclass(frozen=True, slots=True, kw_only=True)
class CopulaDifference(ResultWithInterval):
    """The difference of Spearman's correlation between two models under a copula, first minus second.

    Attributes
    ----------
    family : {"gaussian", "t", "clayton", "survival_clayton"}
    first, second : float or None
        Spearman's correlation of each model; None if no prompt has a table without an empty cell.
    estimate, standard_error, pvalue : float or None
        As in `JointDifference`; None unless both models have such a table.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"first:"`` or ``"second:"`` followed by ``"no_standard_error"``, or both, joined by ``";"``; or
        ``"constant_difference"`` if the models do not differ on any question, so that there is no interval.
    """

    family: ComparedCopula
    first: float | None
    second: float | None
    pvalue: float | None = None


def compare_under_copula(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    family: ComparedCopula,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> CopulaDifference:
    """Compare two models by Spearman's correlation of refusal and error under a copula.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, v, n)
        Two models, v prompts (one or more), n questions.
    scored : array_like of bool, shape (2, v, n), optional
        False where there is no grade. By default all True.
    family : {"gaussian", "t", "clayton", "survival_clayton"}
        The t copula has 4 degrees of freedom. ``"gaussian"`` gives the difference of RI or joint RI.
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`.

    Returns
    -------
    CopulaDifference
        Prompts whose table has an empty cell are left out.

    Raises
    ------
    TypeError, ValueError
        As `compare_joint`, or if the family is none of these.

    References
    ----------
    .. [1] Lu, Y. (2024). Kendall's tau and Spearman's rho for normal location-scale and skew-normal scale mixture
       copulas. :arxiv:`2412.20013`

    Examples
    --------
    One model refuses 60% of 1,000 questions, the other 15%. The difference of RI is significant; that under survival
    Clayton copulas is not:

    >>> def outcomes(*counts):
    ...     cells = np.repeat(np.arange(4), counts)
    ...     return [cells < 2], [cells % 2 == 0]
    >>> first, second = outcomes(370, 230, 120, 280), outcomes(145, 5, 555, 295)
    >>> refused, wrong = np.array([first[0], second[0]]), np.array([first[1], second[1]])
    >>> for family in ("gaussian", "survival_clayton"):
    ...     found = compare_under_copula(refused, wrong, family=family)
    ...     print(f"{found.first:.2f} {found.second:.2f} {found.pvalue:.2f}")
    0.46 0.61 0.02
    0.48 0.57 0.19
    """
    one_of("family", family, get_args(ComparedCopula))
    arrays, design = checked_models(refused, wrong, scored, cluster, weight)
    if len(arrays[0]) != 2:
        raise ValueError(f"refused must hold exactly two models to compare, got {len(arrays[0])}")
    first, second = (_Model.of(family, model, design) for model in zip(*arrays, strict=True))
    if first.estimate is None or second.estimate is None:
        return CopulaDifference(
            None,
            "undefined",
            reasons_of(first, second),
            family=family,
            first=first.estimate,
            second=second.estimate,
        )
    estimate = unrounded(first.estimate - second.estimate)
    independent = None if design is None else np.stack([first.independent, second.independent])
    scored_by_any = np.asarray(arrays[2].any(axis=1))
    influence = Influence(np.stack([first.influence, second.influence]), scored_by_any, design, independent)
    error, pvalue = influence.compare(0, 1, estimate)
    return CopulaDifference(
        estimate,
        "ok" if error else "boundary",
        None if error else "constant_difference",
        error or None,
        influence.degrees_of_freedom,
        family=family,
        first=first.estimate,
        second=second.estimate,
        pvalue=pvalue,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Model(Result):
    """Spearman's correlation of a model, and the contribution of each question or cluster to its error."""

    influence: FloatArray = field(default_factory=lambda: np.zeros(0))
    independent: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, family: ComparedCopula, matrices: Matrices, design: SamplingDesign | None) -> _Model:
        """Estimate it from the prompts of a model, shape (v, n)."""
        spec = copula_family(family)
        tables = tables_of_rows(matrices, design)
        codes = cell_codes(*matrices)
        rows = [row for row, table in enumerate(tables) if refusal_index(table).status == "ok"]
        fits = [_fit(spec, [count / tables[row].n for count in tables[row].counts]) for row in rows]
        rows = [row for row, fit in zip(rows, fits, strict=True) if not math.isnan(fit.by_cell[0])]
        fits = [fit for fit in fits if not math.isnan(fit.by_cell[0])]
        if not fits:
            return cls(None, "undefined", "no_standard_error")
        points = [PointEstimate(fit.strength, by_cell=fit.by_cell) for fit in fits]
        influence = Influence.of(influence_of(points, codes[rows]), codes[rows] < 4, design)
        independent = influence.rows if influence.independent is None else influence.independent
        information = 1 / np.sum(independent**2, axis=1)
        weights = information / information.sum()
        strength = float(weights @ np.array([fit.strength for fit in fits]))
        slope = _slope(strength, family)
        return cls(
            copula_spearman(strength, family),
            influence=slope * (weights @ influence.rows),
            independent=slope * (weights @ independent),
        )


def _slope(strength: float, family: ComparedCopula) -> float:
    return (copula_spearman(strength + STEP, family) - copula_spearman(strength - STEP, family)) / (2 * STEP)
