"""The Refusal Index within topics: how well refusals tell wrong from right among questions of the same topic.

Topics that differ in difficulty inflate the index of all questions together: a model that refuses more in a topic of
which it knows less gets credit for telling topics apart. Here every topic has its own refusal and error rate, and
one correlation rho is shared by all.

With free rates a topic's likelihood is conditioned on its margins. What remains depends on the odds ratio of the
topic's table alone, and the count of refused and wrong questions has Fisher's noncentral hypergeometric distribution,
whose odds ratio follows from rho and the topic's rates. This keeps the many rates from biasing rho, as they do
in the joint likelihood: with 100 topics of 10 questions and rho = .405 that gives .45 to .47 on average and this .41
to .43. Topics with an empty cell take part like any other; one with a degenerate margin says nothing.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, ndtri

from refusal_index.stats.arguments import FloatArray, check_same_index, checked_outcomes, unmasked
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Result
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import normal_quantile, refusal_index, spearman

# Where the likelihood is looked at before it is maximised, on the scale z = atanh(rho): up to |rho| = 0.9999.
GRID = np.linspace(-5, 5, 26)
# A modelled cell below this is mostly rounding error.
SMALLEST_CELL = 1e-14


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTopicResult(Result):
    """The Refusal Index that the topics share, beside that of all questions together.

    Attributes
    ----------
    estimate : float or None
        Within-topic Refusal Index, in [-1, 1]. Exactly -1 or +1 at the boundary, None where undefined.
    rho : float or None
        The tetrachoric correlation within topics, with the same conventions.
    pooled : float or None
        Refusal Index of all questions in one table; None where undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary ``"zero_cell_in_every_topic"``: each informative topic has an empty cell that pulls the same
        way. Where undefined ``"no_informative_topic"``.
    tables : dict of ContingencyTable
        The table of each topic.
    """

    rho: float | None = None
    pooled: float | None
    tables: dict[Any, ContingencyTable]

    @property
    def n_uninformative(self) -> int:
        """Topics that say nothing about rho: nobody or everybody refused, or all wrong or all right."""
        return len(self.tables) - len(informative_counts(self.tables))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Likelihood-ratio interval for the shared index, from the likelihood given every topic's margins.

        Returns
        -------
        ConfidenceInterval
            At the boundary it ends at the estimate; ``(nan, nan)`` where undefined.
        """
        quantile = normal_quantile(confidence_level)
        if self.rho is None:
            return NO_INTERVAL
        likelihood, rho = Likelihood(informative_counts(self.tables)), self.rho
        z = math.atanh(rho) if abs(rho) < 1 else math.copysign(GRID[-1], rho)
        top = likelihood(z) if abs(rho) < 1 else 0.0

        def excess(at: float) -> float:
            return 2 * (top - likelihood(at)) - quantile * quantile

        limits = []
        for side, end in ((-1.0, GRID[0]), (1.0, GRID[-1])):
            # A likelihood that has not fallen enough at the end of the grid excludes nothing on that side.
            inside = rho != side and excess(end) > 0
            limits.append(spearman(math.tanh(brentq(excess, z, end, xtol=1e-8)) if inside else side))
        return ConfidenceInterval(*limits)


def within_topic_refusal_index(refused: ArrayLike, wrong: ArrayLike, topic: ArrayLike) -> WithinTopicResult:
    """Estimate the Refusal Index within topics.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.
    topic : array_like, shape (n,)
        Topic of each question: text or numbers.

    Returns
    -------
    WithinTopicResult
        A shared rho, weighted by how much each topic says about it.

    Raises
    ------
    TypeError, ValueError
        If the arrays are not of one length, or not truth values, or a topic is missing.

    Notes
    -----
    Questions of a topic should be alike but for what the model knows; a topic that is a mixture of topics inflates the
    index as before. The rates of a topic are taken at ``(count + 1/2) / (n + 1)`` when rho is turned into its odds
    ratio.

    References
    ----------
    .. [1] Breslow, N. E. and Day, N. E. (1980). Statistical Methods in Cancer Research, volume 1: The Analysis of
       Case-Control Studies. IARC, chapter 4.

    Examples
    --------
    >>> cells = ([True, True, False, False], [True, False, True, False])
    >>> easy, hard = (30, 60, 120, 790), (600, 150, 150, 100)
    >>> refused, wrong = (np.concatenate([np.repeat(cell, easy), np.repeat(cell, hard)]) for cell in cells)
    >>> result = within_topic_refusal_index(refused, wrong, np.repeat(["easy", "hard"], 1000))
    >>> round(result.estimate, 3), round(result.pooled, 3)
    (0.33, 0.708)
    """
    check_same_index({"refused": refused, "wrong": wrong, "topic": topic})
    r, w = checked_outcomes(refused, wrong)
    topics, index = np.unique(checked_topics(topic, r.size), return_inverse=True)
    counts = np.bincount(4 * index + 2 * ~r + ~w, minlength=4 * topics.size).reshape(-1, 4)
    tables = {key: ContingencyTable(*row) for key, row in zip(topics.tolist(), counts.tolist(), strict=True)}
    pooled = refusal_index(ContingencyTable.from_arrays(r, w)).estimate
    informative = informative_counts(tables)
    if not len(informative):
        return WithinTopicResult(None, "undefined", "no_informative_topic", pooled=pooled, tables=tables)
    likelihood = Likelihood(informative)
    rho = likelihood.end
    if rho is not None:
        return WithinTopicResult(rho, "boundary", "zero_cell_in_every_topic", rho=rho, pooled=pooled, tables=tables)
    best = int(np.argmax([likelihood(z) for z in GRID]))
    bounds = GRID[max(best - 1, 0)], GRID[min(best + 1, GRID.size - 1)]
    rho = math.tanh(minimize_scalar(lambda z: -likelihood(z), bounds=bounds, options={"xatol": 1e-8}).x)
    return WithinTopicResult(spearman(rho), rho=rho, pooled=pooled, tables=tables)


def checked_topics(topic: ArrayLike, n: int) -> np.ndarray[Any, Any]:
    """Return the topic of each of n questions, or raise an error that says what is wrong with them."""
    topics = unmasked("topic", topic)
    if topics.shape != (n,):
        raise ValueError(
            f"topic must have one value for each of the {n} questions, got shape {topics.shape}; was it filtered?"
        )
    is_text = topics.dtype.kind == "O" and all(isinstance(value, str) for value in topics)
    if topics.dtype.kind not in "USiub" and not is_text:
        raise TypeError(
            f"topic must hold text or whole numbers, got an array of {topics.dtype}; is a topic missing? "
            "Drop those questions or give them a topic of their own"
        )
    return topics


def informative_counts(tables: dict[Any, ContingencyTable]) -> NDArray[np.int64]:
    """Return the counts of the topics that say something about rho, shape (topics, 4)."""
    found = [table.counts for table in tables.values() if 0 not in table.margins]
    return np.array(found, np.int64).reshape(-1, 4)


class Likelihood:
    """Likelihood of z = atanh(rho) given the margins of every topic."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        observed, n = counts[:, :1], counts.sum(axis=1, keepdims=True)
        refused, wrong = observed + counts[:, 1:2], observed + counts[:, 2:3]
        self.r, self.mu = ((refused + 0.5) / (n + 1)).ravel(), ((wrong + 0.5) / (n + 1)).ravel()
        self.h, self.k = -ndtri(self.r), -ndtri(self.mu)
        # All values that the count of refused and wrong questions can take with these margins, padded to the widest.
        least, most = np.maximum(0, refused + wrong - n), np.minimum(refused, wrong)
        value = least + np.arange((most - least).max() + 1)
        both = np.minimum(value, most)
        cells = both, refused - both, wrong - both, n - refused - wrong + both
        ways = -sum(gammaln(cell + 1.0) for cell in cells)
        ways -= np.take_along_axis(ways, observed - least, axis=1)
        self.log_ways, self.excess = np.where(value <= most, ways, -np.inf), both - observed
        # The end of the range of rho to which the likelihood rises, if it does.
        self.end = 1.0 if (observed == most).all() else -1.0 if (observed == least).all() else None

    def log_odds_ratio(self, z: float) -> FloatArray:
        """Log odds ratio of each topic, by its rates."""
        r, mu = self.r, self.mu
        joint = upper_orthant(self.h, self.k, math.tanh(z))
        p11, p10, p01, p00 = np.maximum((joint, r - joint, mu - joint, 1 - r - mu + joint), SMALLEST_CELL)
        return np.asarray(np.log(p11 * p00 / (p10 * p01)))

    def __call__(self, z: float) -> float:
        """Log-likelihood, all topics together; it tends to 0 at the boundary."""
        slope = self.log_odds_ratio(z)
        # Relative to what was observed, and to the largest of them, so that no exponential overflows.
        terms = self.log_ways + slope[:, np.newaxis] * self.excess
        largest = terms.max(axis=1)
        return -float(np.sum(largest + np.log(np.exp(terms - largest[:, np.newaxis]).sum(axis=1))))
