"""Release gates with the preset `coarse` and few questions: how often each verdict is given.

The models are those of `gate`, once without sampling noise and once with noisy responses, which pairing helps less. The
candidate equals its baseline, is worse by exactly a margin (a pass is then false), or is worse by twice a margin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.gate import NOISY, WITHOUT_NOISE, Scenario, simulate
from benchmarks.coverage.row import Row, share

from refusal_index.findings.gate_policy import COARSE, Policy
from refusal_index.findings.metrics import INDEX

COARSE_POLICY = Policy(margins=COARSE)

QUESTIONS = (300, 400, 500)
"""Numbers of questions for which the preset is meant."""

LOST = (INDEX, "correct_given_attempted", "refusal_rate")
"""The metrics in which a candidate is worse; one that loses a margin of its correct rate is beyond others, too."""

TWICE = (INDEX, "correct_given_attempted")
"""The metrics whose loss of two margins is hardest to show."""

PASSES = {300: 0.7, 400: 0.8, 500: 0.88}
"""How often an equal candidate passes at least, by the number of questions."""

FAILS = {300: 0.4, 400: 0.55, 500: 0.7}
"""How often a candidate that is worse by two margins fails at least."""


SIZE = 0.06
"""Largest share of wrong verdicts: with so few questions, intervals of differences are a little too narrow."""


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios."""
    for world in (WITHOUT_NOISE, NOISY):
        for n in QUESTIONS:
            yield Scenario("none", 0, n, power=PASSES[n], world=world, policy=COARSE_POLICY)
            for metric in LOST:
                yield Scenario(metric, 1, n, world=world, size=SIZE, policy=COARSE_POLICY)
            for metric in TWICE:
                yield Scenario(metric, 2, n, power=FAILS[n], world=world, policy=COARSE_POLICY)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in scenarios():
        yield from verdict_rows(scenario, max(replicates // 2, 1), rng)


def verdict_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Yield how often the verdict is pass, inconclusive and fail."""
    verdicts = [simulate(scenario, rng)[0] for _ in range(replicates)]
    is_equal = scenario.margins == 0
    is_far = scenario.margins > 1
    ranges = {
        "pass": (scenario.power, 1.0) if is_equal else (0.0, scenario.size),
        "inconclusive": (0.0, 1.0),
        # beyond a margin, a failure is no error
        "fail": (scenario.power, 1.0) if is_far else (0.0, scenario.size),
    }
    for verdict, (low, high) in ranges.items():
        yield share(str(scenario), verdict, verdicts.count(verdict), replicates, low, high)
