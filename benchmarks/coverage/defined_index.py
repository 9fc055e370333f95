"""The Refusal Index of the probabilities from single draws of all questions and repeated draws of some.

Questions have latent scores X and Y, normal with a copula correlation that makes the index .582. From them follow the
probabilities of refusing and of being wrong: probit of a line with slope b, or with Beta margins, or uniform ones with
a share of exactly 0 and as many of exactly 1. All draws are made with these, independently of one another. What a run
sees of every question is a first pass, with the answer that it gave or else a forced one; of the subsample that a run
draws by default it sees two first passes, and the forced answer of each. Within one draw chance may be shared: by the
decision to answer and that answer ("mood"), and by them and the forced answer.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from refusal_index.stats import (
    CorrectedRefusalIndexResult,
    corrected_refusal_index,
    default_repeat_questions,
    refusal_index,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Margin = Callable[[FloatArray], FloatArray]

TRUE_INDEX = 0.582
ALIKE = 0.3
RHO = 2 * math.sin(TRUE_INDEX * math.asin(0.5))


class Scenario(NamedTuple):
    """Questions, the probabilities of refusal and error as functions of normal scores, and shared chance."""

    name: str
    n_questions: int
    refusal: Margin
    error: Margin
    mood: float = 0.0
    rho: float = RHO
    n_repeated: int | None = None  # None for as many as a run draws twice by default
    clusters: int = 0  # in which the scores have an intra-cluster correlation of .3; 0 for independent questions

    @property
    def repeated(self) -> int:
        """Questions with two draws."""
        return default_repeat_questions(self.n_questions) if self.n_repeated is None else self.n_repeated

    @property
    def index(self) -> float:
        """The index of the probabilities."""
        return math.asin(self.rho / 2) / math.asin(0.5)

    def __str__(self) -> str:
        mood = f", mood {self.mood:g}" if self.mood else ""
        alike = f", {self.clusters} clusters" if self.clusters else ""
        return f"n {self.n_questions}, {self.repeated} twice, index {self.index:.3g}: {self.name}{mood}{alike}"


class Draws(NamedTuple):
    """What a run sees: the repeated draws, with gaps for the other questions, and a single draw of all."""

    refused: BoolArray
    wrong: BoolArray
    scored: BoolArray
    single: tuple[BoolArray, BoolArray]
    cluster: NDArray[np.int64] | None = None

    def until(self, n: int) -> "Draws":
        """Keep the first questions."""
        cluster = None if self.cluster is None else self.cluster[:n]
        single = self.single[0][:n], self.single[1][:n]
        return Draws(self.refused[:, :n], self.wrong[:, :n], self.scored[:, :n], single, cluster)


def probit(slope: float, rate: float) -> Margin:
    """Probability with the given mean whose probit has the standard deviation `slope`."""
    centre = float(ndtri(rate)) * math.hypot(1, slope)
    return lambda score: ndtr(centre + slope * score)


def beta(a: float, b: float) -> Margin:
    """Probability with a Beta distribution."""
    return lambda score: betaincinv(a, b, ndtr(score))


def with_atoms(size: float) -> Margin:
    """Uniform probability, but for atoms of the given size at 0 and at 1."""
    return lambda score: np.clip((ndtr(score) - size) / (1 - 2 * size), 0, 1)


def both(slope: float, refusal: float, error: float) -> tuple[Margin, Margin]:
    """Probit margins of one slope and two rates."""
    return probit(slope, refusal), probit(slope, error)


DEFAULT_RUNS = tuple(
    Scenario(f"b = {slope}, r {r:g}, mu {mu:g}", n, *both(slope, r, mu))
    for r, mu in ((0.4, 0.55), (0.74, 0.9))
    for n in (1000, 4326)
    for slope in (1, 2, 3, 6)
)
OTHERS = (
    Scenario("b = 1, r .4, mu .55", 4326, *both(1, 0.4, 0.55), 0.6),
    Scenario("b = 1, r .4, mu .55", 4326, *both(1, 0.4, 0.55), 0.6, rho=0.0),
    Scenario("b = 3, r .4, mu .55", 4326, *both(3, 0.4, 0.55), rho=0.9),
    Scenario("b = 2, r .4, mu .55", 1000, *both(2, 0.4, 0.55), clusters=50),
    Scenario("b = 3, r .4, mu .55", 4000, *both(3, 0.4, 0.55), clusters=200),
    Scenario("Beta(.5, .5) both", 2000, beta(0.5, 0.5), beta(0.5, 0.5), n_repeated=2000),
    Scenario("Beta(2, 1) and Beta(3, .5)", 2000, beta(2, 1), beta(3, 0.5), n_repeated=2000),
    Scenario("atoms of .39 at 0 and 1", 2000, with_atoms(0.39), with_atoms(0.39), n_repeated=2000),
)


def draw(scenario: Scenario, rng: np.random.Generator) -> Draws:
    """Make the draws of one run; the questions that are drawn twice come first, which says nothing of them."""
    n, m = scenario.n_questions, scenario.repeated
    x, own = rng.standard_normal((2, n))
    cluster = rng.permutation(n) % scenario.clusters if scenario.clusters else None
    if cluster is not None:
        shared = rng.standard_normal((2, scenario.clusters))[:, cluster]
        x, own = math.sqrt(ALIKE) * shared + math.sqrt(1 - ALIKE) * np.stack([x, own])
    r, w = scenario.refusal(x), scenario.error(scenario.rho * x + math.sqrt(1 - scenario.rho**2) * own)
    chance = rng.standard_normal((2, n))
    answers, forced = (_mixed(chance, scenario.mood, rng) for _ in range(2))
    refused, answered_wrong, wrong = (ndtr(-each) < p for each, p in ((chance, r), (answers, w), (forced, w)))
    scored = np.tile(np.arange(n) < m, (2, 1))
    return Draws(refused, wrong, scored, (refused[0], np.where(refused[0], wrong[0], answered_wrong[0])), cluster)


def _mixed(chance: FloatArray, correlation: float, rng: np.random.Generator) -> FloatArray:
    return correlation * chance + math.sqrt(1 - correlation**2) * rng.standard_normal(chance.shape)


def corrected(draws: Draws, *, of_all: bool = True) -> CorrectedRefusalIndexResult:
    """Estimate the index, from all single draws or the repeated ones alone."""
    single = draws.single if of_all else None
    return corrected_refusal_index(draws.refused, draws.wrong, draws.scored, single=single, cluster=draws.cluster)


def requests(draws: Draws) -> tuple[int, int]:
    """Return the requests of one draw of every question, and those that the repeated ones take besides."""
    refused, repeated = draws.refused[0], draws.scored[0]
    once = refused.size + np.count_nonzero(refused)
    return once, 2 * np.count_nonzero(repeated) + np.count_nonzero(repeated & ~refused)


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias and coverage of one scenario, what the repeated draws cost, and what the single ones are worth."""
    runs = [draw(scenario, rng) for _ in range(replicates)]
    results, alone = ([corrected(run, of_all=of_all) for run in runs] for of_all in (True, False))
    name, intervals = str(scenario), [result.confidence_interval() for result in results]
    estimates, repeated_only = (
        np.array([one.estimate for one in each if one.estimate is not None]) for each in (results, alone)
    )
    error = float(estimates.std()) / math.sqrt(estimates.size)
    # Quotients are skewed where they vary much: their median is what is near the truth.
    yield Row(name, "bias of the median", float(np.median(estimates)) - scenario.index, 1.25 * error, -0.02, 0.02)
    hits = sum(low <= scenario.index <= high for low, high in intervals)
    yield share(name, "coverage", hits, replicates, 0.93, 0.97)
    defined = np.mean([result.status != "undefined" for result in results])
    yield Row(name, "share of runs with an interval", float(defined), 0.01, 0.95, 1)
    if scenario.repeated == scenario.n_questions:
        return
    naive = sum(_covers_alone(run.single, scenario.index) for run in runs)
    yield share(name, "coverage by the interval of single draws", naive, replicates, 0, 1)
    once, more = np.sum([requests(run) for run in runs], axis=0)
    yield Row(name, "further requests for one of a single draw", more / once, 0.0, 0, 0.45)
    gain = float(np.var(repeated_only) / np.var(estimates))
    yield Row(name, "variance of the repeated draws alone over this one's", gain, 2 / math.sqrt(replicates), 0.95, 4)


def _covers_alone(single: tuple[BoolArray, BoolArray], index: float) -> bool:
    low, high = refusal_index(refused=single[0], wrong=single[1]).confidence_interval()
    return low <= index <= high


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Every scenario."""
    for scenario in (*DEFAULT_RUNS, *OTHERS):
        yield from scenario_rows(scenario, replicates, rng)
