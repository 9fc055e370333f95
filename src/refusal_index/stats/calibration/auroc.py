"""Area under the ROC curve: how well a score tells questions answered right from questions answered wrong.

Coverage of nominal 95 % intervals, simulated for 200 and 1,000 questions, 5 to 90 % right answers, areas from .63 to
.90 and scores with and without many ties: .94 to .96. DeLong's interval alone falls to .76 with ten right answers.
Newcombe's does not, but it takes the variance from the area alone, so that with many ties it can stay at .90 for any
number of questions.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.optimize import brentq

from refusal_index.stats.arguments import FloatArray, check_same_index, truth_values, unmasked
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, ResultWithInterval
from refusal_index.stats.intervals import normal_quantile

AurocMethod = Literal["auto", "delong", "newcombe"]

FEW_OF_A_KIND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AurocResult(ResultWithInterval):
    """Area under the ROC curve of a score for an outcome.

    Attributes
    ----------
    estimate : float or None
        Probability that a question whose outcome is true scores higher than one whose outcome is false, ties counting
        one half. 1/2 for a score that tells nothing.
    standard_error : float or None
        DeLong's, which knows of ties. None unless the status is ``"ok"`` and there are two questions of each kind.
    degrees_of_freedom : float or None
        Of that error, by Welch and Satterthwaite; None where it is.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the score separates both kinds of questions completely, or not at all.
    reason : str or None
        At the boundary ``"all_true_above"``, ``"all_false_above"`` or ``"all_tied"``; where undefined the first that
        applies of ``"no_questions"``, ``"all_false"`` and ``"all_true"``.
    n_true, n_false : int
        Questions of both kinds.
    """

    degrees_of_freedom: float | None = None
    n_true: int
    n_false: int

    def confidence_interval(self, confidence_level: float = 0.95, method: AurocMethod = "auto") -> ConfidenceInterval:
        """Confidence interval of the area.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        method : {"auto", "delong", "newcombe"}
            ``"delong"``: Student's interval for ``log(A / (1 - A))`` with DeLong's standard error. ``"newcombe"``: the
            areas that a score test would not reject, with a variance by Hanley and McNeil's formula. ``"auto"``:
            Newcombe's where there are fewer than 20 questions of a kind or no standard error, else DeLong's.

        Returns
        -------
        ConfidenceInterval
            At an area of 0 or 1 Newcombe's interval ends there. DeLong's is ``(nan, nan)`` without a standard error,
            as are all where the area is undefined.

        Examples
        --------
        >>> result = auroc([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [True, True, False, True, False, False])
        >>> low, high = result.confidence_interval()
        >>> round(low, 3), round(high, 3)
        (0.401, 0.988)
        """
        quantile = normal_quantile(confidence_level)
        if method not in get_args(AurocMethod):
            raise ValueError(f"method must be one of {', '.join(get_args(AurocMethod))}, got {method!r}")
        if self.estimate is None:
            return NO_INTERVAL
        few = self.standard_error is None or min(self.n_true, self.n_false) < FEW_OF_A_KIND
        if method == "newcombe" or (method == "auto" and few):
            return _newcombe(self.estimate, self.n_true, self.n_false, quantile)
        area, error = self.estimate, self.standard_error
        if error is None:
            return NO_INTERVAL
        quantile = float(special.stdtrit(self.degrees_of_freedom, (1 + confidence_level) / 2))
        centre, reach = float(special.logit(area)), quantile * error / (area * (1 - area))
        return ConfidenceInterval(float(special.expit(centre - reach)), float(special.expit(centre + reach)))


def auroc(score: ArrayLike, outcome: ArrayLike) -> AurocResult:
    """Area under the ROC curve, with its standard error.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        One value a question, such as P(Answering), the share of draws in which the model answers; higher where the
        outcome is expected to be true. Only its order matters.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.

    Returns
    -------
    AurocResult
        Undefined where all outcomes are alike.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `outcome` not truth values, or their lengths differ.

    References
    ----------
    .. [1] DeLong, E. R., DeLong, D. M. and Clarke-Pearson, D. L. (1988). Comparing the areas under two or more
       correlated receiver operating characteristic curves. Biometrics, 44, 837-845. :doi:`10.2307/2531595`
    .. [2] Newcombe, R. G. (2006). Confidence intervals for an effect size measure based on the Mann-Whitney statistic.
       Part 2. Statistics in Medicine, 25, 559-573. :doi:`10.1002/sim.2324`. Method 5.

    Examples
    --------
    >>> result = auroc([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [True, True, False, True, False, False])
    >>> round(result.estimate, 4), round(result.standard_error, 4)
    (0.8889, 0.1571)
    """
    scores, truths = checked_scores(score, outcome)
    above, below = np.sort(scores[truths]), np.sort(scores[~truths])
    if not above.size or not below.size:
        reason = "no_questions" if not scores.size else "all_true" if above.size else "all_false"
        return AurocResult(None, "undefined", reason, n_true=above.size, n_false=below.size)
    wins = _share_below(above, below)
    area = float(wins.mean())
    if area in {0.0, 1.0} or scores.min() == scores.max():
        reason = {0.0: "all_false_above", 1.0: "all_true_above"}.get(area, "all_tied")
        return AurocResult(area, "boundary", reason, n_true=above.size, n_false=below.size)
    error, freedom = _delong_error(wins, _share_below(below, above))
    return AurocResult(area, standard_error=error, degrees_of_freedom=freedom, n_true=above.size, n_false=below.size)


def auroc_influence(score: ArrayLike, outcome: ArrayLike) -> FloatArray:
    """Influence of each question on the area under the ROC curve, over the number of questions.

    Parameters
    ----------
    score, outcome : array_like, shape (n,)
        As for `auroc`.

    Returns
    -------
    ndarray, shape (n,)
        The sum of squares is DeLong's variance but for its n - 1, and products with the influence on another estimate
        from the same questions sum to their covariance. NaN unless the area has the status ``"ok"``.

    Raises
    ------
    TypeError, ValueError
        As for `auroc`.

    References
    ----------
    .. [1] DeLong et al. (1988). :doi:`10.2307/2531595`

    Examples
    --------
    >>> auroc_influence([0.9, 0.4, 0.7, 0.1], [True, True, False, False]).tolist()
    [0.125, -0.125, -0.125, 0.125]
    """
    scores, truths = checked_scores(score, outcome)
    found = auroc(scores, truths)
    if found.status != "ok" or found.estimate is None:
        return np.full(scores.size, np.nan)
    above, below = scores[truths], scores[~truths]
    influence = np.empty(scores.size)
    influence[truths] = (_share_below(above, np.sort(below)) - found.estimate) / above.size
    influence[~truths] = (1 - _share_below(below, np.sort(above)) - found.estimate) / below.size
    return influence


def roc_counts(score: FloatArray, truths: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.intp], NDArray[np.intp]]:
    """Distinct scores from the highest down, and how many questions score at least so much, true ones and all.

    Examples
    --------
    >>> scores, hits, passed = roc_counts(np.array([0.9, 0.7, 0.7, 0.2]), np.array([True, False, True, False]))
    >>> scores.tolist(), hits.tolist(), passed.tolist()
    ([0.9, 0.7, 0.2], [1, 2, 2], [1, 3, 4])
    """
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))
    return score[order][ends], np.cumsum(truths[order], dtype=np.intp)[ends], ends + 1


def checked_scores(score: ArrayLike, outcome: ArrayLike, name: str = "outcome") -> tuple[FloatArray, NDArray[np.bool_]]:
    """Check a finite score and a truth value for each question, and return both as arrays of shape (n,).

    `name` is that of the outcome in messages.
    """
    check_same_index({"score": score, name: outcome})
    scores = unmasked("score", score)
    truths = truth_values(name, outcome)
    if scores.dtype.kind not in "iufb":
        raise TypeError(f"score must hold numbers, got an array of {scores.dtype}; are there questions without one?")
    if scores.ndim != 1 or scores.shape != truths.shape:
        raise ValueError(
            f"score and {name} must have one value for each of the same questions, "
            f"got shapes {scores.shape} and {truths.shape}; was one of them filtered?"
        )
    if not np.isfinite(scores).all():
        raise ValueError("score must be finite, got NaN or infinity; are there questions without one?")
    return scores.astype(np.float64), truths.astype(bool)


def _share_below(values: FloatArray, sorted_others: FloatArray) -> FloatArray:
    """For each value the share of the others below it, equal ones counting one half."""
    below = np.searchsorted(sorted_others, values, "left")
    not_above = np.searchsorted(sorted_others, values, "right")
    return np.asarray((below + not_above) / (2 * sorted_others.size))


def _delong_error(wins: FloatArray, losses: FloatArray) -> tuple[float | None, float | None]:
    """Return DeLong's standard error and its degrees of freedom, from each question's share of wins or losses."""
    if min(wins.size, losses.size) < 2:
        return None, None
    parts = np.array([wins.var(ddof=1) / wins.size, losses.var(ddof=1) / losses.size])
    variance = float(parts.sum())
    freedom = variance**2 / float(np.sum(parts**2 / [wins.size - 1, losses.size - 1]))
    return math.sqrt(variance), freedom


def _newcombe(area: float, n_true: int, n_false: int, quantile: float) -> ConfidenceInterval:
    """Areas A with ``|A - area| <= quantile sd(A)``, by Newcombe's symmetrical form of Hanley and McNeil's variance."""
    size = (n_true + n_false) / 2 - 1

    def excess(candidate: float) -> float:
        spread = 1 + size * ((1 - candidate) / (2 - candidate) + candidate / (1 + candidate))
        variance = candidate * (1 - candidate) * spread / (n_true * n_false)
        return abs(candidate - area) - quantile * math.sqrt(variance)

    # At an area of 0 or 1 that area itself is a root too, but not the one wanted.
    near = 1e-12
    low = 0.0 if area == 0 else float(brentq(excess, 0.0, min(area, 1 - near), xtol=1e-14))
    high = 1.0 if area == 1 else float(brentq(excess, max(area, near), 1.0, xtol=1e-14))
    return ConfidenceInterval(low, high)
