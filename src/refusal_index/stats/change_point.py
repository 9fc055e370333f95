"""Where a series of estimates that share their questions changed: every split of it, held against chance together.

The errors of the estimates are simulated from the normal distribution with the covariance of their influence, and the
largest statistic of many is held against its distribution over the draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.pair import ROUNDING
from refusal_index.stats.influence import symmetric_root


@dataclass(frozen=True, slots=True)
class Split:
    """The steps of a panel, cut in two.

    Attributes
    ----------
    row : int
        The first step of the second part.
    before, after : float
        Mean of the estimates of either part.
    estimate, low, high : float
        ``after - before``, and an interval; those of all splits hold at once.
    """

    row: int
    before: float
    after: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JointErrors:
    """Standard errors of sums of the estimates; clusters never make them smaller, which would be chance."""

    influences: tuple[FloatArray, ...]

    @classmethod
    def of(cls, influence: FloatArray, independent: FloatArray | None, doubts: FloatArray) -> "JointErrors":
        """Take the scaled influence of the estimates, and what each has beside it as standard error of its own."""
        own = np.diag(doubts)  # of each step alone, as if it had questions of its own
        found = (influence,) if independent is None else (influence, independent)
        return cls(tuple(np.hstack([one, own]) for one in found))

    @property
    def covariance(self) -> FloatArray:
        """Of the estimates."""
        return np.asarray(self.influences[0] @ self.influences[0].T)

    def of_steps(self) -> FloatArray:
        """Return those of the estimates themselves."""
        return self.of_contrasts(np.eye(len(self.influences[0])))

    def of_contrasts(self, contrasts: FloatArray) -> FloatArray:
        """Return those of sums of the estimates with the weights of each row; 0 where it is rounding."""
        found = [np.linalg.norm(contrasts @ one, axis=1) for one in self.influences]
        largest = np.abs(contrasts) @ np.linalg.norm(self.influences[0], axis=1)
        errors = np.max(found, axis=0)
        return np.asarray(np.where(errors > ROUNDING * largest, errors, 0.0))


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest of several absolute statistics, in each of many draws."""

    draws: FloatArray

    def quantile(self, confidence_level: float) -> float:
        """Return what it stays below in so many of the draws."""
        return float(np.quantile(self.draws, confidence_level))

    def pvalue(self, observed: float) -> float:
        """Return in how many draws it is as large as what was observed."""
        # The data count as one draw, which keeps the test valid for any number of draws.
        return float((np.count_nonzero(self.draws >= observed) + 1) / (len(self.draws) + 1))


def largest_of(drawn: FloatArray, errors: FloatArray) -> Largest:
    """Return the largest of drawn errors of estimates, in standard errors."""
    return Largest(np.max(_studentised(drawn, errors), axis=1))


def _studentised(values: FloatArray, errors: FloatArray) -> FloatArray:
    return np.divide(np.abs(values), errors, out=np.zeros(values.shape), where=errors > 0)


def drawn_errors(
    covariance: FloatArray, n_resamples: int, rng: np.random.Generator, degrees_of_freedom: float | None
) -> FloatArray:
    """Errors of the estimates, shape (draws, k), from their joint distribution."""
    drawn = rng.standard_normal((n_resamples, len(covariance))) @ symmetric_root(covariance)
    if degrees_of_freedom is not None:
        drawn /= np.sqrt(rng.chisquare(degrees_of_freedom, (n_resamples, 1)) / degrees_of_freedom)
    return np.asarray(drawn)


def changes(
    rows: Sequence[int], values: FloatArray, errors: JointErrors, drawn: FloatArray, confidence_level: float
) -> tuple[tuple[Split, ...], int, float]:
    """Return all splits, the number of the one that tells most, and the p-value of it."""
    contrasts = _splits(len(rows))
    of_splits = errors.of_contrasts(contrasts)
    differences = np.where(of_splits > 0, contrasts @ values, 0.0)
    largest = largest_of(drawn @ contrasts.T, of_splits)
    observed = _studentised(differences, of_splits)
    reach = largest.quantile(confidence_level) * of_splits
    splits = tuple(
        Split(
            row,
            float(values[:cut].mean()),
            float(values[cut:].mean()),
            difference,
            difference - half,
            difference + half,
        )
        for cut, (row, difference, half) in enumerate(
            zip(rows[1:], differences.tolist(), reach.tolist(), strict=True), start=1
        )
    )
    return splits, int(np.argmax(observed)), largest.pvalue(float(observed.max()))


def pvalue_within(cut: int, values: FloatArray, errors: JointErrors, drawn: FloatArray) -> float | None:
    """Test whether the values before a cut are one, and those after it."""
    k = len(values)
    before, after = _splits(cut), _splits(k - cut)
    contrasts = np.zeros((k - 2, k))
    contrasts[: cut - 1, :cut] = before
    contrasts[cut - 1 :, cut:] = after
    of_splits = errors.of_contrasts(contrasts)
    if not of_splits.any():
        return None
    return largest_of(drawn @ contrasts.T, of_splits).pvalue(float(_studentised(contrasts @ values, of_splits).max()))


def _splits(k: int) -> FloatArray:
    """Return the contrasts of all splits of k steps, shape (k - 1, k): the mean after less the mean before.

    >>> _splits(3).tolist()
    [[-1.0, 0.5, 0.5], [-0.5, -0.5, 1.0]]
    """
    places, cuts = np.arange(k), np.arange(1, k)[:, None]
    return np.where(places < cuts, -1 / cuts, 1 / (k - cuts))
