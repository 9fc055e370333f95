"""The corrected Refusal Index: bias, coverage, and how often a gate with a fixed bound passes at its limit.

Questions have normal latent scores X and Y whose correlation makes the index .582. They determine the probabilities of
refusing and of being wrong: probit functions with slope b, Beta margins, or uniform margins with atoms at 0 and 1.
Given the probabilities, draws are independent. A run observes for each question a first pass with its answer, or else a
forced answer; for questions that are drawn twice, it observes two first passes and the forced answer of each. Within a
draw, noise may be correlated between the decision to answer, the answer and the forced answer ("mood").

In the sparse scenarios, few or no pairs of draws are refused and right. The interval is conservative there, since the
limit of an empty cell is divided by a limit of the reliability. At temperature 0 there is no noise and a single draw.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from refusal_index.findings.guards import index_interval
from refusal_index.stats import (
    CorrectedRefusalIndexResult,
    corrected_refusal_index,
    deterministic_refusal_index,
    joint_corrected_refusal_index,
    refusal_index,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Margin = Callable[[FloatArray], FloatArray]

TRUE_INDEX = 0.582
INTRA_CLUSTER = 0.3
RHO = 2 * math.sin(TRUE_INDEX * math.asin(0.5))


class Scenario(NamedTuple):
    """Number of questions, probabilities of refusal and error as functions of normal scores, and noise correlation."""

    name: str
    n_questions: int
    refusal: Margin
    error: Margin
    mood: float = 0.0
    rho: float = RHO
    n_repeated: int | None = None  # None for all
    clusters: int = 0  # number of clusters, with intra-cluster correlation .3; 0 for independent questions

    @property
    def repeated(self) -> int:
        """The number of questions with two draws."""
        return self.n_questions if self.n_repeated is None else self.n_repeated

    @property
    def index(self) -> float:
        """The true corrected index."""
        return math.asin(self.rho / 2) / math.asin(0.5)

    def __str__(self) -> str:
        mood = f", mood {self.mood:g}" if self.mood else ""
        clusters = f", {self.clusters} clusters" if self.clusters else ""
        return f"n {self.n_questions}, {self.repeated} twice, index {self.index:.3g}: {self.name}{mood}{clusters}"


class Draws(NamedTuple):
    """The observations of a run: repeated draws, masked for the other questions, and a single draw of all questions."""

    refused: BoolArray
    wrong: BoolArray
    scored: BoolArray
    single: tuple[BoolArray, BoolArray]
    cluster: NDArray[np.int64] | None = None

    def until(self, n: int) -> "Draws":
        """Return the draws of the first n questions."""
        cluster = None if self.cluster is None else self.cluster[:n]
        single = self.single[0][:n], self.single[1][:n]
        return Draws(self.refused[:, :n], self.wrong[:, :n], self.scored[:, :n], single, cluster)


def probit(slope: float, rate: float) -> Margin:
    """Return a margin with mean `rate` whose probit has standard deviation `slope`."""
    centre = float(ndtri(rate)) * math.hypot(1, slope)
    return lambda score: ndtr(centre + slope * score)


def beta(a: float, b: float) -> Margin:
    """Return a margin with a Beta distribution."""
    return lambda score: betaincinv(a, b, ndtr(score))


def with_atoms(size: float) -> Margin:
    """Return a uniform margin with atoms of the given size at 0 and at 1."""
    return lambda score: np.clip((ndtr(score) - size) / (1 - 2 * size), 0, 1)


def both(slope: float, refusal: float, error: float) -> tuple[Margin, Margin]:
    """Return the probit margins of refusals and errors with the same slope."""
    return probit(slope, refusal), probit(slope, error)


ORDINARY = tuple(
    Scenario(f"b = {slope}, r {r:g}, mu {mu:g}", n, *both(slope, r, mu), n_repeated=repeated)
    for r, mu in ((0.4, 0.55), (0.74, 0.9))
    for n, repeated in ((1000, 1000), (1000, 200), (4326, 400))
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


def sparse(refusal: float, error: float, index: float, n: int, repeated: int) -> Scenario:
    """Return a scenario with slopes of 6 in which hardly any question is refused and right, or answered and wrong."""
    rho = 2 * math.sin(index * math.asin(0.5))
    return Scenario(f"b = 6, r {refusal:g}, mu {error:g}", n, *both(6, refusal, error), rho=rho, n_repeated=repeated)


SPARSE = (
    sparse(0.15, 0.90, 0.58, 1000, 200),
    sparse(0.15, 0.90, 0.58, 300, 300),
    sparse(0.15, 0.90, 0.58, 1000, 1000),
    sparse(0.16, 0.95, 0.38, 1000, 200),
    sparse(0.01, 0.50, 0.58, 1000, 200),
    sparse(0.06, 0.65, 0.58, 1000, 200),
)
AT_TEMPERATURE_0 = ((0.2, 0.9, 0.58, 1000), (0.2, 0.9, 0.48, 1000), (0.075, 0.6, 0.325, 40), (0.16, 0.95, 0.38, 1000))
"""Refusal rate, error rate, index and number of questions."""

SEVERAL_PROMPTS = ((0.2, 0.4, 0.6, 0.8), (0.58, 0.69, 0.79, 0.90), (0.08, 0.62))
"""Refusal rates of the prompts of a model; some prompts often have an empty cell."""

JOINT_INDEX, JOINT_ERROR = 0.483, 0.94


def draw(scenario: Scenario, rng: np.random.Generator) -> Draws:
    """Draw one run; the questions that are drawn twice come first, which is arbitrary."""
    n, m = scenario.n_questions, scenario.repeated
    x, own = rng.standard_normal((2, n))
    cluster = rng.permutation(n) % scenario.clusters if scenario.clusters else None
    if cluster is not None:
        shared = rng.standard_normal((2, scenario.clusters))[:, cluster]
        x, own = math.sqrt(INTRA_CLUSTER) * shared + math.sqrt(1 - INTRA_CLUSTER) * np.stack([x, own])
    r, w = scenario.refusal(x), scenario.error(scenario.rho * x + math.sqrt(1 - scenario.rho**2) * own)
    chance = rng.standard_normal((2, n))
    answers, forced = (_mixed(chance, scenario.mood, rng) for _ in range(2))
    refused, answered_wrong, wrong = (ndtr(-each) < p for each, p in ((chance, r), (answers, w), (forced, w)))
    scored = np.tile(np.arange(n) < m, (2, 1))
    return Draws(refused, wrong, scored, (refused[0], np.where(refused[0], wrong[0], answered_wrong[0])), cluster)


def _mixed(chance: FloatArray, correlation: float, rng: np.random.Generator) -> FloatArray:
    return correlation * chance + math.sqrt(1 - correlation**2) * rng.standard_normal(chance.shape)


def corrected(draws: Draws, *, of_all: bool = True) -> CorrectedRefusalIndexResult:
    """Estimate the index from the first draws of all questions, or from the repeated draws only."""
    single = draws.single if of_all else None
    return corrected_refusal_index(draws.refused, draws.wrong, draws.scored, single=single, cluster=draws.cluster)


def requests(draws: Draws) -> tuple[int, int]:
    """Return the requests for one draw of each question, and the additional requests for the repeated draws."""
    refused, repeated = draws.refused[0], draws.scored[0]
    once = refused.size + np.count_nonzero(refused)
    return once, 2 * np.count_nonzero(repeated) + np.count_nonzero(repeated & ~refused)


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias and coverage of a scenario, the cost of the repeated draws, and the gain from the single draws."""
    runs = [draw(scenario, rng) for _ in range(replicates)]
    results, alone = ([corrected(run, of_all=of_all) for run in runs] for of_all in (True, False))
    name, intervals = str(scenario), [result.confidence_interval() for result in results]
    estimates, repeated_only = (
        np.array([one.estimate for one in each if one.estimate is not None]) for each in (results, alone)
    )
    error = float(estimates.std()) / math.sqrt(estimates.size)
    # ratios with a large variance are skewed, so compare the median with the truth
    yield Row(name, "bias of the median", float(np.median(estimates)) - scenario.index, 1.25 * error, -0.02, 0.02)
    hits = sum(low <= scenario.index <= high for low, high in intervals)
    yield share(name, "coverage", hits, replicates, 0.93, 0.97)
    defined = np.mean([result.status != "undefined" for result in results])
    yield Row(name, "share of runs with an interval", float(defined), 0.01, 0.95, 1)
    if scenario.repeated == scenario.n_questions:
        return
    naive = sum(_covers(run.single, scenario.index) for run in runs)
    yield share(name, "coverage of the interval of RI", naive, replicates, 0, 1)
    once, more = np.sum([requests(run) for run in runs], axis=0)
    yield Row(name, "additional requests per request of the first draws", more / once, 0.0, 0, 0.45)
    gain = float(np.var(repeated_only) / np.var(estimates))
    yield Row(name, "variance with repeated draws only, over that with all", gain, 2 / math.sqrt(replicates), 0.95, 4)


def _covers(single: tuple[BoolArray, BoolArray], index: float) -> bool:
    low, high = refusal_index(refused=single[0], wrong=single[1]).confidence_interval()
    return low <= index <= high


def sparse_rows(name: str, index: float, results: list[CorrectedRefusalIndexResult], replicates: int) -> Iterator[Row]:
    """Coverage if cells may be empty, estimates outside their intervals, and passes of a gate at its limit."""
    found = [(result, result.confidence_interval()) for result in results if result.estimate is not None]
    covered = sum(low <= index <= high for _, (low, high) in found)
    outside = sum(not low <= (one.estimate or 0.0) <= high for one, (low, high) in found)
    passed = sum(index_interval(one)(0.9).low > index for one, _ in found)
    yield share(name, "coverage", covered, len(found), 0.93, 1)
    yield share(name, "estimates outside their intervals", outside, len(found), 0, 0)
    yield share(name, "passes a gate that requires more than the index", passed, replicates, 0, 0.05)


def at_temperature_0(
    refusal: float, error: float, rho: float, n: int, rng: np.random.Generator
) -> CorrectedRefusalIndexResult:
    """Estimate the index of a deterministic model from one draw of each question."""
    x, own = rng.standard_normal((2, n))
    y = rho * x + math.sqrt(1 - rho * rho) * own
    return deterministic_refusal_index(x > -ndtri(refusal), y > -ndtri(error))


def joint_rows(rates: tuple[float, ...], n: int, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias of the median and coverage of the joint index of several prompts, slopes of 3, all questions drawn twice."""
    rho, found = 2 * math.sin(JOINT_INDEX * math.asin(0.5)), []
    for _ in range(replicates):
        x, own = rng.standard_normal((2, n))
        error = probit(3, JOINT_ERROR)(rho * x + math.sqrt(1 - rho * rho) * own)
        wrong, refused = rng.random((2, n)) < error, [rng.random((2, n)) < probit(3, rate)(x) for rate in rates]
        prompts = [corrected_refusal_index(one, wrong, single=(one[0], wrong[0])) for one in refused]
        found.append(joint_corrected_refusal_index(prompts))
    name = f"{len(rates)} prompts, n {n}, all twice, index {JOINT_INDEX:g}: b = 3, r {rates}, mu {JOINT_ERROR:g}"
    estimates = np.array([one.estimate for one in found if one.estimate is not None])
    bias = float(np.median(estimates)) - JOINT_INDEX
    yield Row(name, "bias of the median", bias, 1.25 * float(estimates.std()) / math.sqrt(estimates.size), -0.03, 0.03)
    covered = sum(low <= JOINT_INDEX <= high for low, high in (one.confidence_interval() for one in found))
    yield share(name, "coverage", covered, replicates, 0.93, 1)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in (*ORDINARY, *OTHERS):
        yield from scenario_rows(scenario, replicates, rng)
    for scenario in SPARSE:
        results = [corrected(draw(scenario, rng)) for _ in range(replicates)]
        yield from sparse_rows(str(scenario), scenario.index, results, replicates)
    for refusal, error, index, n in AT_TEMPERATURE_0:
        rho = 2 * math.sin(index * math.asin(0.5))
        results = [at_temperature_0(refusal, error, rho, n, rng) for _ in range(replicates)]
        name = f"n {n}, temperature 0, index {index:g}: r {refusal:g}, mu {error:g}"
        yield from sparse_rows(name, index, results, replicates)
    for rates in SEVERAL_PROMPTS:
        for n in (300, 500, 1000):
            yield from joint_rows(rates, n, max(replicates // 5, 1), rng)
