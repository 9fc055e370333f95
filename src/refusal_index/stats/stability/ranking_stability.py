"""Whether a metric ranks models alike in all settings, beyond what correct rate and refusal rate say already.

The paper's procedure: Kendall's W and winner entropy of a metric over settings and models, as it is and after
removing the monotonic effects of correct rate, of refusal rate and of both. Each comes with its random baseline, which
goes through the same regressions: these tie models and tie their residuals to the covariates, so that 1/m is not what
random values give any more.

A metric that is a sum of monotonic functions of both rates, such as the weighted score ``c - penalty * (1 - r)`` and
the rates themselves, leaves nothing when both are removed. Its status says so; any ranking would be one of rounding
errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import Seed, checked_resamples
from refusal_index.stats.stability.agreement import (
    average_ranks,
    checked_scores_matrix,
    concordance,
    entropy_of_winners,
    kendall_w,
    winner_entropy,
)
from refusal_index.stats.stability.isotonic import FitOver, IsotonicResiduals, checked_covariate, isotonic_residuals
from refusal_index.stats.stability.random_agreement import RandomDistribution

Removed = Literal["nothing", "correct_rate", "refusal_rate", "both"]


@dataclass(frozen=True, slots=True)
class RankingStability:
    """Agreement of the settings' rankings by one metric after one adjustment.

    Attributes
    ----------
    removed : {"nothing", "correct_rate", "refusal_rate", "both"}
        Whose monotonic effects were removed from the metric.
    kendall_w, winner_entropy : float or None
        As in `kendall_w` and `winner_entropy`; None where undefined.
    random_kendall_w, random_winner_entropy : RandomDistribution
        The same for the metric's values shuffled over the models within each setting, and adjusted likewise.
    increasing : tuple of bool
        For each effect removed whether the metric was taken to rise with it.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"one_setting"``, ``"one_model"`` and ``"all_tied"``: the effects
        removed explain the metric completely.
    """

    removed: Removed
    kendall_w: float | None
    winner_entropy: float | None
    random_kendall_w: RandomDistribution
    random_winner_entropy: RandomDistribution
    increasing: tuple[bool, ...]
    status: Status
    reason: str | None


def ranking_stability(
    metric: ArrayLike,
    correct_rate: ArrayLike,
    refusal_rate: ArrayLike,
    *,
    increasing: Sequence[bool] | None = None,
    fit_over: FitOver = "all",
    correct_ties: bool = False,
    n_resamples: int = 1_000,
    rng: Seed = None,
) -> tuple[RankingStability, ...]:
    """Kendall's W and winner entropy of a metric, as it is and without the effects of correct and refusal rate.

    Parameters
    ----------
    metric : array_like of float, shape (m, n)
        One row a setting, one column a model; higher is better.
    correct_rate, refusal_rate : array_like of float, shape (m, n)
        Of the same settings and models.
    increasing : sequence of two bool, optional
        Whether the metric may only rise, or only fall, with the correct rate and with the refusal rate. If not given,
        the better fitting direction for each adjustment, as in `isotonic_residuals`; the baseline chooses as freely.
    fit_over : {"all", "model"}, default: "all"
        As for `isotonic_residuals`.
    correct_ties : bool, default: False
        As for `kendall_w`.
    n_resamples : int, default: 1,000
        Shuffles for the baseline.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    tuple of RankingStability
        With nothing removed, without the correct rate, without the refusal rate, without both.

    Raises
    ------
    TypeError, ValueError
        If a matrix is not one of finite numbers, the shapes differ, or an option is not one of those named.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Can Refusal Index Consistently Rank Models?", appendix
       "Ranking Stability Metrics".

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> correct, refused, noise = rng.uniform(0, 0.4, size=(3, 8, 6))
    >>> metric = np.linspace(0.3, 0.6, 6) + noise / 3
    >>> for row in ranking_stability(metric, correct, refused, n_resamples=100, rng=1):
    ...     print(f"{row.removed:12} {row.kendall_w:.2f}, random {row.random_kendall_w.mean:.2f}")
    nothing      0.91, random 0.13
    correct_rate 0.87, random 0.14
    refusal_rate 0.88, random 0.13
    both         0.79, random 0.14
    """
    values = checked_scores_matrix("metric", metric)
    effects = {"correct_rate": correct_rate, "refusal_rate": refusal_rate}
    covariates = [checked_covariate(name, effect, values.shape) for name, effect in effects.items()]
    if increasing is not None and len(increasing) != 2:
        raise ValueError(f"increasing must hold two truth values, for correct and refusal rate, got {increasing!r}")
    copies = np.broadcast_to(values, (checked_resamples(n_resamples), *values.shape))
    random = np.random.default_rng(rng).permuted(copies, axis=-1)

    def row(removed: Removed, chosen: tuple[int, ...]) -> RankingStability:
        def adjust(matrix: FloatArray) -> IsotonicResiduals:
            if not chosen:
                return IsotonicResiduals(matrix, ())
            directions = None if increasing is None else [increasing[i] for i in chosen]
            picked = [covariates[i] for i in chosen]
            return isotonic_residuals(matrix, *picked, increasing=directions, fit_over=fit_over)

        baseline = np.array([adjust(matrix).residuals for matrix in random])
        return _row(removed, adjust(values), baseline, correct_ties)

    return row("nothing", ()), row("correct_rate", (0,)), row("refusal_rate", (1,)), row("both", (0, 1))


def _row(removed: Removed, adjusted: IsotonicResiduals, random: FloatArray, correct_ties: bool) -> RankingStability:
    """Measure the agreement of adjusted scores, and of random ones of shape (n_resamples, m, n)."""
    baseline = (
        RandomDistribution.of(concordance(average_ranks(random), correct_ties=correct_ties)),
        RandomDistribution.of(entropy_of_winners(random)),
    )
    w, entropy = kendall_w(adjusted.residuals, correct_ties=correct_ties), winner_entropy(adjusted.residuals)
    return RankingStability(removed, w.estimate, entropy.estimate, *baseline, adjusted.increasing, w.status, w.reason)
