"""Planned and simulated precision and power, and the effect of early stopping on an interval.

Half-widths: tables are drawn with the planned number of questions, and the mean half-width of their profile intervals
is compared with the planned one. Power: two models answer the planned number of shared questions, with partly shared
latent difficulty and reluctance; the two-sided normal test of their difference is applied to each pair of tables.
Stopping: in a run of 4,300 questions, a delta interval is computed after every hundred; either the run stops at the
first interval that is narrow enough, or all intervals have to cover. Repeats: some questions of noisy models are drawn
twice; the standard deviation of the corrected index, with the cross term from all questions and the reliabilities from
the repeated ones, is compared with the planned one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import corrected, draw, probit
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats.planning import (
    PlanningScenario,
    asymptotic_deviation,
    influence_correlation,
    questions_for_half_width,
    questions_to_tell_apart,
    repeats_half_width,
)

Floats = NDArray[np.float64]

QUANTILE_95 = 1.959963984540054
SCENARIOS = (
    PlanningScenario(0.74, 0.92, 0.48),
    PlanningScenario(0.5, 0.8, 0.42),
    PlanningScenario(0.36, 0.49, 0.33),
    PlanningScenario(0.06, 0.65, 0.28),
)
# Profile intervals are slow to compute, and a few suffice for their mean width.
MAX_INTERVALS = 400
STEP, LOOKS = 100, 43
LATENT_DRAWS = 200_000


def describe(scenario: PlanningScenario) -> str:
    """Describe a scenario for the table of results."""
    return f"r {scenario.refusal_rate:.2g}, mu {scenario.error_rate:.2g}, RI {scenario.refusal_index:.2g}"


def half_width_row(scenario: PlanningScenario, half_width: float, replicates: int, rng: np.random.Generator) -> Row:
    """Ratio of the mean half-width of profile intervals to the planned one."""
    plan = questions_for_half_width(scenario, half_width)
    tables = rng.multinomial(plan.n, scenario.cells, size=min(replicates, MAX_INTERVALS)).tolist()
    intervals = [refusal_index(ContingencyTable(*counts)).confidence_interval() for counts in tables]
    ratios = np.array([(high - low) / 2 for low, high in intervals]) / plan.half_width
    error = float(ratios.std() / math.sqrt(len(ratios)))
    name = f"{describe(scenario)}, half-width {half_width:g}, n {plan.n}"
    return Row(name, "profile half-width over plan", float(ratios.mean()), error, 0.97, 1.03)


def power_row(rhos: tuple[float, float], shared: float, replicates: int, rng: np.random.Generator) -> Row:
    """Share of simulated pairs of models with a significant difference; the planned power is .8."""
    refused, wrong = two_models(rhos, shared, rng)
    models = [
        PlanningScenario.from_table(ContingencyTable.from_arrays(*runs)) for runs in zip(refused, wrong, strict=True)
    ]
    plan = questions_to_tell_apart(*models, correlation=influence_correlation(refused, wrong))
    codes = 2 * ~refused + ~wrong
    cells = np.bincount(4 * codes[0] + codes[1], minlength=16) / codes.shape[1]
    counts = rng.multinomial(plan.n, cells, size=replicates).reshape(-1, 4, 4)
    (index_1, sigma_1), (index_2, sigma_2) = (estimates(counts.sum(axis=axis)) for axis in (2, 1))
    variance = sigma_1**2 + sigma_2**2 - 2 * plan.correlation * sigma_1 * sigma_2
    significant = np.abs(index_1 - index_2) > QUANTILE_95 * np.sqrt(variance / plan.n)
    name = f"rho {rhos}, shared {shared:g}, correlation {plan.correlation:.2f}, n {plan.n}"
    return share(name, "power, planned for .8", int(significant.sum()), replicates, 0.77, 0.83)


def two_models(
    rhos: tuple[float, float], shared: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw refusals and errors of two models with partly shared latent scores, shape (2, LATENT_DRAWS)."""
    common, own = rng.standard_normal((2, 1, LATENT_DRAWS)), rng.standard_normal((2, 2, LATENT_DRAWS))
    difficulty, reluctance = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
    rho = np.array(rhos)[:, np.newaxis]
    score = rho * difficulty + np.sqrt(1 - rho**2) * reluctance
    return score > -ndtri([[0.5], [0.42]]), difficulty > -ndtri([[0.8], [0.76]])


def estimates(counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the Refusal Index and its asymptotic standard deviation, or NaN; the last axis of `counts` is cells."""
    n11, n10, n01, n00 = np.moveaxis(counts, -1, 0)
    n = counts.sum(axis=-1)
    index = refusal_index_many(n11, n10, n01, n00)
    defined = np.abs(index) < 1
    sigma = asymptotic_deviation((n11 + n10) / n, (n11 + n01) / n, np.where(defined, index, 1.0))
    return np.where(defined, index, np.nan), sigma


def sequential_rows(scenario: PlanningScenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the first interval that is narrow enough, and share of runs with a miss at any look."""
    counts = rng.multinomial(STEP, scenario.cells, size=(replicates, LOOKS)).cumsum(axis=1)
    index, sigma = estimates(counts)
    error = sigma / np.sqrt(counts.sum(axis=-1))
    # on Fisher's z of rho, to which the index is nearly proportional
    rho, truth = (2 * np.sin(math.pi / 6 * values) for values in (index, scenario.refusal_index))
    rho_error = error * math.pi * np.sqrt(4 - rho**2) / 6
    missed = np.abs(np.arctanh(rho) - np.arctanh(truth)) > QUANTILE_95 * rho_error / (1 - rho**2)
    name = f"{describe(scenario)}, a look every {STEP} of {STEP * LOOKS}"
    yield share(name, "runs with a miss at any look", int(missed.any(axis=1).sum()), replicates, 0.24, 0.34)
    for half_width in (0.2, 0.1):
        stop = np.argmax(QUANTILE_95 * error <= half_width, axis=1)
        covered = ~missed[np.arange(replicates), stop]
        stopped = f"{name}, stop at half-width {half_width:g}"
        yield share(stopped, "coverage at the stop", int(covered.sum()), replicates, 0.93, 0.97)


REPEATS = (
    (PlanningScenario(0.4, 0.6, 0.5), 2.0, 2.0, 2000, 400),
    (PlanningScenario(0.3, 0.7, 0.3), 1.0, 3.0, 2000, 400),
    (PlanningScenario(0.6, 0.9, 0.58), 3.0, 3.0, 4326, 300),
)


def repeats_row(
    scenario: PlanningScenario,
    slopes: tuple[float, float],
    questions: tuple[int, int],
    replicates: int,
    rng: np.random.Generator,
) -> Row:
    """Ratio of the simulated standard deviation of the corrected index to the planned one."""
    n, repeated = questions
    margins = (
        probit(slope, rate) for slope, rate in zip(slopes, (scenario.refusal_rate, scenario.error_rate), strict=True)
    )
    rho = 2 * math.sin(math.pi / 6 * (scenario.refusal_index or 0.0))
    run = Drawn("", n, *margins, rho=rho, n_repeated=repeated)
    index = [corrected(draw(run, rng)).estimate for _ in range(replicates)]
    plan = repeats_half_width(scenario, n, repeated, refusal_slope=slopes[0], error_slope=slopes[1])
    assert plan.half_width is not None
    ratio = float(np.nanstd(np.array(index, float))) * QUANTILE_95 / plan.half_width
    name = f"{describe(scenario)}, slopes {slopes}, n {n}, {repeated} drawn twice"
    return Row(name, "standard deviation over plan", ratio, ratio / math.sqrt(2 * replicates), 0.95, 1.1)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        for half_width in (0.1, 0.05):
            yield half_width_row(scenario, half_width, replicates, rng)
    for rhos, shared in (((0.5, 0.4), 0.0), ((0.5, 0.4), 0.7), ((0.6, 0.3), 0.7)):
        yield power_row(rhos, shared, replicates, rng)
    for scenario in SCENARIOS[:2]:
        yield from sequential_rows(scenario, replicates, rng)
    for scenario, refusal_slope, error_slope, *questions in REPEATS:
        yield repeats_row(scenario, (refusal_slope, error_slope), (questions[0], questions[1]), replicates, rng)
