"""What Kendall's W and winner entropy are worth: their values for rankings that are made at random."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import special

from refusal_index.stats._ops import FloatArray

QUANTILES = 0.05, 0.5, 0.95


@dataclass(frozen=True, slots=True)
class RandomDistribution:
    """A statistic over random rankings.

    Attributes
    ----------
    mean, low, median, high : float or None
        Mean and the quantiles at 5, 50 and 95 per cent; all None where the statistic was never defined.
    n_resamples : int
        How many random rankings it was defined for.
    """

    mean: float | None
    low: float | None
    median: float | None
    high: float | None
    n_resamples: int

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Summarise values, those that are NaN left out."""
        defined = values[~np.isnan(values)]
        if not defined.size:
            return cls(None, None, None, None, 0)
        low, median, high = np.quantile(defined, QUANTILES).tolist()
        return cls(float(defined.mean()), low, median, high, defined.size)


def expected_kendall_w(n_settings: int) -> float:
    """Return the expectation of W for random rankings by m settings: 1/m, for any number of models.

    Parameters
    ----------
    n_settings : int
        m, at least 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there are fewer than two settings.

    References
    ----------
    .. [1] Kendall and Babington Smith (1939). :doi:`10.1214/aoms/1177732186`

    Examples
    --------
    >>> expected_kendall_w(8)
    0.125
    """
    _check_sizes(n_settings, 2)
    return 1 / n_settings


def expected_winner_entropy(n_settings: int, n_models: int) -> float:
    """Return the expectation of winner entropy for random rankings without ties.

    Each model wins Binomial(m, 1/n) settings, so that it is ``-n E[(X/m) log_n(X/m)]``.

    Parameters
    ----------
    n_settings, n_models : int
        m and n, at least 2 each.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        If there are fewer than two settings or models.

    Examples
    --------
    >>> round(expected_winner_entropy(n_settings=8, n_models=8), 4)
    0.7486
    """
    _check_sizes(n_settings, n_models)
    wins = np.arange(n_settings + 1)
    log_probabilities = (
        special.gammaln(n_settings + 1)
        - special.gammaln(wins + 1)
        - special.gammaln(n_settings - wins + 1)
        + special.xlogy(n_settings - wins, n_models - 1)
        - n_settings * np.log(n_models)
    )
    entropies = special.entr(wins / n_settings) / np.log(n_models)
    return float(n_models * np.sum(np.exp(log_probabilities) * entropies))


def _check_sizes(n_settings: int, n_models: int) -> None:
    for name, size in (("n_settings", n_settings), ("n_models", n_models)):
        if size < 2:
            raise ValueError(f"{name} must be at least 2, got {size!r}: a single one is never ranked differently")
