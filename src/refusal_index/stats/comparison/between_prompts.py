r"""How far the prompts of a model lie apart beyond chance: the random-effects view of a joint Refusal Index.

The index of a prompt is taken for one drawn from a normal distribution on the scale of ``z = atanh(rho)``, with
variance tau^2 around the joint one. The estimates of k prompts then have the covariance ``V + tau^2 I``, where V is
that of their influence functions over the questions they share. With the fixed weights w of the joint estimate,

    Q = sum of w_a (z_a - mean)^2

has mean and variance that are polynomials in tau^2. That gives the estimate of tau^2 by moments [1]_, and its interval:
the values that a test by Q does not reject [2]_ (`refusal_index.stats.quadratic_form` has the reference distribution).
At tau = 0 the same test is the one of homogeneity.

Where the prompts happen to lie closer together than chance leaves them most of the time, the upper end is the one of a
median Q: such luck is no proof that prompts do not matter.

References
----------
.. [1] DerSimonian, R. and Kacker, R. (2007). Random-effects model for meta-analysis of clinical trials: an update.
   Contemporary Clinical Trials, 28, 105-114. :doi:`10.1016/j.cct.2006.04.004`
.. [2] Jackson, D. (2013). Confidence intervals for the between-study variance in random effects meta-analysis using
   generalised Cochran heterogeneity statistics. Research Synthesis Methods, 4, 220-229. :doi:`10.1002/jrsm.1081`
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize import brentq

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.quadratic_form import Traces, traces

# log(tau^2) beyond which prompts have no variance, and beyond which all of theirs are at -1 or +1.
SMALLEST_LOG, LARGEST_LOG = -40.0, 40.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class Spread(NamedTuple):
    """What k estimates z with weights w say of the variance between prompts.

    `sum_of_squares` is Q, and `sampling`, of one data set, belongs to its distribution without variance between
    prompts. With B the covariance of the weighted deviations for V = 0 and tau = 1, and A that for tau = 0,
    `trace` is tr B, `with_sampling` tr AB and `of_square` tr B^2. `error` is w' V w, the squared standard error of the
    weighted mean from questions, and `squared_weights` the sum of the squares of w.
    """

    sum_of_squares: float
    sampling: Traces
    trace: float
    with_sampling: float
    of_square: float
    error: float
    squared_weights: float
    n_prompts: int

    def variance(self) -> float:
        """Estimate of tau^2 by moments, 0 where chance alone would leave more."""
        return max((self.sum_of_squares - float(self.sampling.trace[0])) / self.trace, 0.0)

    def traces(self, variance: float) -> Traces:
        """Traces of the covariance of the weighted deviations at a given tau^2."""
        sampling = self.sampling
        square = sampling.of_square + 2 * self.with_sampling * variance + self.of_square * variance**2
        return Traces(sampling.trace + self.trace * variance, square, sampling.own)

    def pvalue(self, variance: float = 0.0, sum_of_squares: float | None = None) -> float:
        """Probability of a Q as large at a given tau^2."""
        q = self.sum_of_squares if sum_of_squares is None else sum_of_squares
        return float(self.traces(variance).pvalue(np.array([q]), self.n_prompts - 1)[0])

    def variance_at(self, pvalue: float, sum_of_squares: float) -> float:
        """Find the tau^2 at which a Q as large has a given probability; 0 where it is larger at 0 already."""
        if self.pvalue(0.0, sum_of_squares) >= pvalue:
            return 0.0
        found = brentq(
            lambda x: self.pvalue(math.exp(x), sum_of_squares) - pvalue, SMALLEST_LOG, LARGEST_LOG, xtol=1e-9
        )
        return math.exp(found)

    def median(self) -> float:
        """Median of Q without variance between prompts."""
        freedom = float(self.sampling.degrees_of_freedom(self.n_prompts - 1)[0])
        return float(special.chdtri(freedom, 0.5) * self.sampling.trace[0] / freedom)

    def error_and_quantile(self, confidence_level: float, new_prompt: bool = False) -> tuple[float, float]:
        """Return the standard error of the mean over prompts like these, or of one more prompt, and its quantile.

        The quantile is that of a t distribution whose degrees of freedom fit the variance of the estimate of tau^2.
        """
        variance, share = self.variance(), self.squared_weights + new_prompt
        total = self.error + share * variance
        if variance == 0:
            return math.sqrt(total), normal_quantile(confidence_level)
        uncertainty = 2 * float(self.traces(variance).of_square[0]) * (share / self.trace) ** 2
        freedom = 2 * total**2 / uncertainty
        return math.sqrt(total), float(special.stdtrit(freedom, (1 + confidence_level) / 2))


@dataclass(frozen=True, slots=True)
class BetweenPrompts:
    """Standard deviation of the Refusal Index between prompts, beyond what chance in the questions makes.

    Attributes
    ----------
    estimate : float or None
        In units of the index, of prompts like these; 0 where they lie no farther apart than chance leaves them. None
        where undefined.
    status : {"ok", "undefined"}
    reason : str or None
        ``"fewer_than_two_variants"``, or ``"variants_repeat_each_other"`` if all have the same outcomes.
    z : float or None
        The joint ``atanh(rho)``.
    spread : Spread or None
        What the interval is made from.
    """

    estimate: float | None
    status: Status
    reason: str | None
    z: float | None
    spread: Spread | None

    @classmethod
    def of(cls, z: float, spread: Spread) -> "BetweenPrompts":
        """Estimate the standard deviation from the spread around the joint z."""
        return cls(deviation_of_index(z, spread.variance()), "ok", None, z, spread)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the standard deviation; both ends NaN where it is undefined.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            The low end is 0 where the test of homogeneity has a p-value above half of ``1 - confidence_level``.

        References
        ----------
        .. [1] Jackson (2013). :doi:`10.1002/jrsm.1081`
        """
        normal_quantile(confidence_level)
        if self.spread is None or self.z is None:
            return NO_INTERVAL
        tail, q = (1 - confidence_level) / 2, self.spread.sum_of_squares
        low = self.spread.variance_at(tail, q)
        high = self.spread.variance_at(1 - tail, max(q, self.spread.median()))
        return ConfidenceInterval(deviation_of_index(self.z, low), deviation_of_index(self.z, high))


def no_spread(reason: str) -> BetweenPrompts:
    """Return the result where there is nothing to compare."""
    return BetweenPrompts(None, "undefined", reason, None, None)


def spread_of(z: FloatArray, weights: FloatArray, influence: FloatArray) -> Spread:
    """Measure the spread of k estimates with weights that add up to 1.

    `influence`, of shape (k, m), holds what each of m independent units adds to z: the questions, or clusters of them.
    """
    k = len(z)
    centring = np.eye(k) - weights
    root = np.sqrt(weights)[:, np.newaxis] * centring
    deviations, between = root @ influence, root @ root.T
    covariance = deviations @ deviations.T
    return Spread(
        float(weights @ (centring @ z) ** 2),
        traces(deviations[np.newaxis], np.ones((1, influence.shape[1]))),
        float(np.trace(between)),
        float(np.sum(covariance * between)),
        float(np.sum(between**2)),
        float(np.sum((weights @ influence) ** 2)),
        float(weights @ weights),
        k,
    )


def deviation_of_index(z: float, variance: float) -> float:
    """Return the standard deviation of the index where atanh(rho) is normal with mean z."""
    if variance == 0:
        return 0.0
    index = np.arcsin(np.tanh(z + math.sqrt(variance) * NODES) / 2) / math.asin(0.5)
    share = WEIGHTS / WEIGHTS.sum()
    return float(np.sqrt(share @ (index - share @ index) ** 2))
