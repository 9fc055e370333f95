"""Interim looks at a run: size, power, and number of questions until it stops.

One run: a model with a refusal rate of .40 and an error rate of .55 answers up to 2,000 questions, to test whether its
index is above .2. The true index is .2 for the size of the test, .3 for its power, and .3, .4 and .5 for the number of
questions. A fixed sample is tested once; peeking means an ordinary test after every hundred questions; the
group-sequential design has five looks. The expected ranges are from an independent simulation with 2,000 replicates,
plus or minus two of its Monte Carlo errors.

Repeated draws: the corrected index uses 200 questions that were drawn twice, all available at the first look, and one
draw of all questions so far. Runs either stop at the first of five looks at which the ordinary 95% interval is narrow
enough, or are tested at each look against the true index.

For looks at a comparison of two runs, see `benchmarks.coverage.gate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import both, corrected, draw
from benchmarks.coverage.planning import estimates
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray

from refusal_index.stats import AtLook, GroupSequential
from refusal_index.stats.planning import PlanningScenario

Floats = NDArray[np.float64]

REFUSAL_RATE, ERROR_RATE, BOUND = 0.4, 0.55, 0.2
MAX_QUESTIONS, STEP = 2000, 100
KNOWN_REPLICATES = 2000
ONE_SIDED_95 = 1.6448536269514722
FIVE = GroupSequential.planned(MAX_QUESTIONS)
OFTEN = tuple(range(STEP, MAX_QUESTIONS + 1, STEP))


@dataclass(frozen=True)
class Rule:
    """A stopping rule, with the critical value at each look and the figures of an independent simulation.

    `size` and `power` are for a true index of .2 and .3; `questions` is their mean number at .3, .4 and .5.
    """

    name: str
    boundary: dict[int, float]
    size: float
    power: float | None = None
    questions: tuple[int, ...] = ()


RULES = (
    Rule("fixed size", {MAX_QUESTIONS: ONE_SIDED_95}, 0.051, 0.92),
    Rule("peeking", dict.fromkeys(OFTEN, ONE_SIDED_95), 0.225),
    Rule("O'Brien-Fleming", {n: FIVE.critical_value(n) for n in FIVE.sizes}, 0.050, 0.92, (1357, 768, 494)),
)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    yield from one_run_rows(replicates, rng)
    for rates, half_width in (((0.4, 0.55), 0.15), ((0.74, 0.9), 0.2)):
        yield from two_draws(
            Drawn(f"b = 2, r {rates[0]:g}, mu {rates[1]:g}", MAX_QUESTIONS, *both(2, *rates), n_repeated=200),
            half_width,
            max(replicates // 4, 50),
            rng,
        )


def one_run_rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Size, power and number of questions of each rule, on the same runs."""
    statistics = {index: distances(index, replicates, rng) for index in (0.2, 0.3, 0.4, 0.5)}
    for rule in RULES:
        yield from one_run(rule, statistics)


def distances(index: float, replicates: int, rng: np.random.Generator) -> Floats:
    """Return the distance from the bound in standard errors after each hundred questions, shape (replicates, looks)."""
    cells = PlanningScenario(REFUSAL_RATE, ERROR_RATE, index).cells
    counts = rng.multinomial(STEP, cells, size=(replicates, len(OFTEN))).cumsum(axis=1)
    found, sigma = estimates(counts)
    statistics = (found - BOUND) / (sigma / np.sqrt(OFTEN))
    # a look at a table with an undefined or boundary index does not reject
    return np.where(np.isnan(statistics), -np.inf, statistics)


def stops(rule: Rule, statistics: Floats) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return whether each run was found to be above the bound, and the number of questions at which it stopped."""
    looks = np.array(list(rule.boundary))
    above = statistics[:, looks // STEP - 1] > list(rule.boundary.values())
    found = above.any(axis=1)
    return found, np.where(found, looks[above.argmax(axis=1)], MAX_QUESTIONS)


def one_run(rule: Rule, statistics: dict[float, Floats]) -> Iterator[Row]:
    """Size, power and number of questions of one rule."""
    name = f"{rule.name}, RI above .2, r .40, mu .55"
    for index, quantity, known in ((0.2, "size", rule.size), (0.3, "power at .3", rule.power)):
        if known is not None:
            found, _ = stops(rule, statistics[index])
            error = 2 * math.sqrt(known * (1 - known) / KNOWN_REPLICATES)
            yield share(name, quantity, int(found.sum()), found.size, known - error, known + error)
    for index, questions in zip((0.3, 0.4, 0.5), rule.questions, strict=False):
        _, asked = stops(rule, statistics[index])
        own, theirs = (float(asked.std()) / math.sqrt(n) for n in (asked.size, KNOWN_REPLICATES))
        yield Row(
            name,
            f"mean questions at {index:.1g}".replace("0.", "."),
            float(asked.mean()),
            own,
            questions - 2 * theirs,
            questions + 2 * theirs,
        )


def two_draws(scenario: Drawn, half_width: float, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage if a run stops once its interval is narrow enough, and size of five one-sided looks."""
    covered = above = 0
    for _ in range(replicates):
        run = draw(scenario, rng)
        looks = [(n, corrected(run.until(n))) for n in FIVE.sizes]
        ends = [found.confidence_interval() for _, found in looks]
        narrow = (end for (_, found), end in zip(looks, ends, strict=True) if found.status == "ok")
        low, high = next((end for end in narrow if end[1] - end[0] <= 2 * half_width), ends[-1])
        covered += low <= scenario.index <= high
        levels = (1 - 2 * AtLook(FIVE, n).level for n, _ in looks)
        limits = (found.confidence_interval(level) for (_, found), level in zip(looks, levels, strict=True))
        above += any(limit.low > scenario.index for limit in limits)
    yield share(str(scenario), f"coverage at the stop, half-width {half_width:g}", covered, replicates, 0.93, 0.97)
    yield share(str(scenario), "size of five looks, repeated draws", above, replicates, 0.02, 0.065)
