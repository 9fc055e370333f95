"""Bias and coverage of the Refusal Index corrected for an imperfect grader.

The true 2x2 table has a Gaussian copula; a grader misgrades right answers with probability f_c and wrong answers with
f_w. The correction uses the known rates, or 300 grades checked by a person: a sample of all questions, half from each
grade, or a quarter from each grade of the refused and of the answered questions.

A grader whose error rates differ between refused and answered questions can be corrected only with the last design: by
the posterior of the cells, and by prediction-powered estimates, also of the difference of two models that answer the
same questions and whose labelled answers overlap only in part.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index import ContingencyTable
from refusal_index.stats import upper_orthant
from refusal_index.stats.misgrading import (
    GraderLabels,
    MisgradingResult,
    correct_misgrading,
    misgrading_from_labels,
    prediction_powered,
)

IntArray = NDArray[np.int64]

N_DRAWS = 1_000
SLICE = 300
# Two models are simulated question by question, which is slow.
MAX_PAIRS = 1_000
DESIGNS = ("known rates", "slice of all", "slice by grade", "slice by refusal and grade")


class Scenario(NamedTuple):
    """Number of questions, refusal rate, error rate, rho, and error rates of the grader."""

    n: int
    refusal_rate: float
    error_rate: float
    rho: float
    f_c: float
    f_w: float


SCENARIOS = (
    Scenario(2000, 0.74, 0.92, 0.509, 0.02, 0.02),
    Scenario(2000, 0.4, 0.6, 0.5, 0.03, 0.03),
    Scenario(2000, 0.3, 0.65, 0.3, 0.05, 0.01),
)


def simulate(scenario: Scenario, rng: np.random.Generator) -> IntArray:
    """Draw counts by group (refused, answered), truth (wrong, right) and grade (wrong, right), shape (2, 2, 2)."""
    n, r, mu, rho, f_c, f_w = scenario
    p11 = float(upper_orthant(-ndtri(r), -ndtri(mu), rho))
    truth = np.array([[p11, r - p11], [mu - p11, 1 - r - mu + p11]])
    grade = np.array([[1 - f_w, f_w], [f_c, 1 - f_c]])
    return rng.multinomial(n, (truth[..., np.newaxis] * grade).ravel()).reshape(2, 2, 2)


def labels(checked: IntArray) -> GraderLabels:
    """Return the labels with these counts by truth and grade."""
    (wrong_wrong, wrong_right), (right_wrong, right_right) = checked.tolist()
    return GraderLabels(wrong_wrong, right_wrong, wrong_right, right_right)


def draw_slice(questions: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw `size` questions of each grade, or all there are, from counts by truth and grade."""
    columns = [rng.multivariate_hypergeometric(column, min(size, column.sum())) for column in questions.T]
    return np.stack(columns, axis=1)


def correct(design: str, scenario: Scenario, questions: IntArray, rng: np.random.Generator) -> MisgradingResult:
    """Correct the table of grades according to `design`."""
    table = ContingencyTable(*questions.sum(axis=1).ravel().tolist())
    everything = questions.sum(axis=0)
    if design == "known rates":
        return correct_misgrading(table, scenario.f_c, scenario.f_w)
    if design == "slice of all":
        drawn = rng.multivariate_hypergeometric(everything.ravel(), SLICE).reshape(2, 2)
        return misgrading_from_labels(table, labels(drawn))
    if design == "slice by grade":
        return misgrading_from_labels(table, labels(draw_slice(everything, SLICE // 2, rng)))
    refused, answered = (labels(draw_slice(group, SLICE // 4, rng)) for group in questions)
    return misgrading_from_labels(table, refused=refused, answered=answered)


def design_rows(design: str, scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias and coverage of a design in a scenario."""
    truth = math.asin(scenario.rho / 2) / math.asin(0.5)
    results = [correct(design, scenario, simulate(scenario, rng), rng) for _ in range(replicates)]
    estimates = np.array([result.estimate for result in results if result.estimate is not None])
    intervals = [result.confidence_interval(n_resamples=N_DRAWS, rng=rng) for result in results]
    hits = sum(interval.low <= truth <= interval.high for interval in intervals)
    n, r, mu, _, f_c, f_w = scenario
    name = f"misgrading {f_c:.2f} and {f_w:.2f}, n {n}, r {r:.2f}, mu {mu:.2f}: {design}"
    error = float(estimates.std()) / math.sqrt(estimates.size)
    yield Row(name, "bias", float(estimates.mean()) - truth, error, -0.02, 0.02)
    yield share(name, "coverage", hits, replicates, 0.92, 0.98)


class Differing(NamedTuple):
    """Number of questions, rates, rho, and error rates of the grader on refused and on answered questions."""

    n: int
    refusal_rate: float
    error_rate: float
    rho: float
    f_c: tuple[float, float]
    f_w: tuple[float, float]

    def __str__(self) -> str:
        return f"grader errors {self.f_c} and {self.f_w}, n {self.n}, r {self.refusal_rate}, mu {self.error_rate}"


DIFFERING = (
    Differing(2000, 0.4, 0.6, 0.5, (0.06, 0.01), (0.02, 0.05)),
    Differing(2000, 0.3, 0.65, 0.3, (0.01, 0.08), (0.06, 0.0)),
    Differing(1000, 0.6, 0.8, 0.5, (0.1, 0.02), (0.02, 0.02)),
)
METRICS_SHOWN = ("refusal_index", "correct_rate", "error_rate", "f_score")


def two_models(
    scenario: Differing, replicates: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw refusals, true errors and graded errors of two equal models, shape (replicates, 2, n)."""
    n, r, mu, rho, f_c, f_w = scenario
    shape = (replicates, 2, n)
    difficulty, own = math.sqrt(0.6) * rng.standard_normal((2, replicates, 1, n)) + math.sqrt(
        0.4
    ) * rng.standard_normal((2, *shape))
    refused = rho * difficulty + math.sqrt(1 - rho**2) * own > -ndtri(r)
    truth = difficulty > -ndtri(mu)
    error = np.where(refused, np.where(truth, f_w[0], f_c[0]), np.where(truth, f_w[1], f_c[1]))
    # one answer in three is the same in both models, and graded the same
    chance = np.where(rng.random((replicates, 1, n)) < 1 / 3, rng.random((replicates, 1, n)), rng.random(shape))
    return refused, truth, truth ^ (chance < error)


def stratified_labels(
    refused: NDArray[np.bool_], wrong: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw a quarter of the labels, or all questions there are, from each graded cell of each run."""
    codes, labelled = 2 * ~refused + ~wrong, np.zeros(refused.shape, bool)
    for row, cell in np.ndindex(len(codes), 4):
        where = np.flatnonzero(codes[row] == cell)
        labelled[row, rng.permutation(where)[: SLICE // 4]] = True
    return labelled


def differing_rows(scenario: Differing, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the posterior, and of prediction-powered estimates and differences of metrics."""
    _, r, mu, rho, *_ = scenario
    p11 = float(upper_orthant(-ndtri(r), -ndtri(mu), rho))
    right = 1 - r - mu + p11
    truth = {"refusal_index": math.asin(rho / 2) / math.asin(0.5), "correct_rate": right, "error_rate": mu}
    truth["f_score"] = 2 * right / (2 - r)
    hits: dict[str, int] = dict.fromkeys(("posterior", *METRICS_SHOWN, *(f"difference, {m}" for m in METRICS_SHOWN)), 0)
    for one in zip(*two_models(scenario, replicates, rng), strict=True):
        refused, wrong, graded = one
        labelled = stratified_labels(refused, graded, rng)
        slices = [
            GraderLabels(*np.bincount((2 * ~graded + ~wrong)[0, labelled[0] & group], minlength=4).tolist())
            for group in (refused[0], ~refused[0])
        ]
        table = ContingencyTable.from_arrays(refused[0], graded[0])
        found = misgrading_from_labels(table, refused=slices[0], answered=slices[1])
        low, high = found.confidence_interval(n_resamples=N_DRAWS, rng=rng)
        hits["posterior"] += low <= truth["refusal_index"] <= high
        for rows_of, prefix in ((slice(0, 1), ""), (slice(0, 2), "difference, ")):
            powered = prediction_powered(
                refused[rows_of], graded[rows_of], labelled=labelled[rows_of], truly_wrong=wrong[rows_of]
            )
            for estimate in (each for each in powered if each.name in METRICS_SHOWN):
                low, high = estimate.confidence_interval()
                hits[prefix + estimate.name] += low <= (0.0 if prefix else truth[estimate.name]) <= high
    for name, count in hits.items():
        yield share(str(scenario), f"coverage, {name}", count, replicates, 0.93, 0.975)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate each design in each scenario."""
    for scenario in SCENARIOS:
        for design in DESIGNS:
            yield from design_rows(design, scenario, replicates, rng)
    for differing in DIFFERING:
        yield from differing_rows(differing, min(replicates, MAX_PAIRS), rng)
