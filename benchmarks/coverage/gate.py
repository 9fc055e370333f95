"""Release gates: error rates and power of the verdicts.

Questions have a latent error score and a latent refusal score in each model; the models share part of both, so pairing
helps as it does between two versions of a model. The candidate is worse in one metric by exactly its margin, and in the
others by less than theirs (it may pass in at most 5% of cases); in no metric (it may fail in at most 5%, and its pass
rate is the power); or by twice the margin (its failure rate is the power). Margins are the defaults. The guard is RI,
or with two draws of all questions the corrected index. With several looks the candidate is judged after equal portions
of the questions, as in `gate --run`, and the first verdict other than inconclusive counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from refusal_index.data.folder import Match
from refusal_index.data.rates import OutcomeMatrix
from refusal_index.findings.comparison import VariantComparison
from refusal_index.findings.gate_policy import MARGINS, Policy, margin_guards
from refusal_index.findings.metrics import CORRECTED, INDEX
from refusal_index.stats import (
    AtLook,
    GroupSequential,
    compare_corrected,
    compare_metrics,
    corrected_refusal_index,
    upper_orthant,
)
from refusal_index.stats.intervals import spearman
from refusal_index.stats.non_inferiority import Verdict, judge_guards, verdict_of

REFUSAL, ERROR, RHO = 0.4, 0.55, 2 * math.sin(0.4 * math.asin(0.5))
"""Refusal rate, error rate and copula correlation of the baseline, whose index is .4."""

SHARED = 0.9
"""Share of the variance of the latent scores that is common to both models."""

SLOPE = 3.0
"""Slope of the probits of the probabilities in the latent scores, if questions are drawn twice."""

BoolArray = NDArray[np.bool_]


class Scenario(NamedTuple):
    """The metric in which the candidate is worse, by how many margins, and the number of questions, draws and looks.

    `power` is the minimum share of replicates with the right verdict.
    """

    metric: str
    margins: float
    n: int
    draws: int = 1
    power: float = 0.0
    looks: int = 1

    def __str__(self) -> str:
        index = CORRECTED if self.draws > 1 else INDEX
        name = index if self.metric == INDEX else self.metric
        worse = f"{name} worse by {self.margins:g} margins" if self.margins else f"no difference, {index} guarded"
        looks = "" if self.looks == 1 else f", {self.looks} looks"
        return f"{worse}, n {self.n:,}{', 2 draws' if self.draws > 1 else ''}{looks}"

    @property
    def design(self) -> GroupSequential:
        """The group-sequential design of the looks."""
        return GroupSequential.planned(self.n, self.looks, Policy().alpha)


class Model(NamedTuple):
    """Refusal rate, error rate and copula correlation of a model."""

    refusal: float
    error: float
    rho: float


SCENARIOS = (
    *(Scenario(metric, 1, n) for metric in MARGINS for n in (300, 4000)),
    *(Scenario(metric, 2, 1000, 1, power) for metric, power in zip(MARGINS, (0.4, 0.97, 0.7, 0.97), strict=True)),
    Scenario("refusal_index", 1, 2000, draws=2),
    Scenario("refusal_index", 2, 2000, draws=2, power=0.7),
    *(Scenario("none", 0, n, 1, power) for n, power in ((300, 0.2), (1000, 0.65), (2000, 0.88), (4000, 0.97))),
    Scenario("none", 0, 2000, draws=2, power=0.85),
    *(Scenario(metric, 1, 2000, looks=5) for metric in MARGINS),
    Scenario("refusal_index", 2, 2000, power=0.6, looks=5),
    Scenario("none", 0, 4000, power=0.95, looks=5),
    Scenario("refusal_index", 1, 2000, draws=2, looks=5),
)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        yield from scenario_rows(scenario, max(replicates // 2, 1), rng)


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Yield the error rate that alpha bounds, and the power if the scenario has one."""
    results = [simulate(scenario, rng) for _ in range(replicates)]
    verdicts = [verdict for verdict, _ in results]
    if scenario.looks > 1:
        questions = np.array([n for _, n in results])
        error = float(questions.std()) / math.sqrt(replicates)
        yield Row(str(scenario), "mean questions", float(questions.mean()), error, 0, scenario.n)
    passed, failed = verdicts.count("pass"), verdicts.count("fail")
    if scenario.margins == 0:
        yield share(str(scenario), "fails, though equally good", failed, replicates, 0, 0.05)
        yield share(str(scenario), "passes (power)", passed, replicates, scenario.power, 1)
        return
    yield share(str(scenario), "passes, though worse than the margin", passed, replicates, 0, 0.05)
    if scenario.margins > 1:
        yield share(str(scenario), "fails (power)", failed, replicates, scenario.power, 1)


def simulate(scenario: Scenario, rng: np.random.Generator) -> tuple[Verdict, int]:
    """Judge one candidate; return the verdict and the number of questions used."""
    shared = rng.standard_normal((2, scenario.n))
    base = Model(REFUSAL, ERROR, RHO)
    models = candidate_of(scenario.metric, scenario.margins), base
    drawn = [_draws(model, shared, scenario.draws, rng) for model in models]
    verdict: Verdict = "inconclusive"
    for n in scenario.design.sizes:
        look = None if scenario.looks == 1 else AtLook(scenario.design, n)
        verdict = _verdict([(refused[:, :n], wrong[:, :n]) for refused, wrong in drawn], look)
        if verdict != "inconclusive":
            return verdict, n
    return verdict, scenario.n


def _verdict(drawn: list[tuple[BoolArray, BoolArray]], look: AtLook | None) -> Verdict:
    """Judge the first model, the candidate, against the second at a look."""
    refused, wrong = (np.stack([model[part][0] for model in drawn]) for part in range(2))
    corrected, policy = None, Policy()
    if len(drawn[0][0]) > 1:
        first, second = (corrected_refusal_index(*one, single=[part[0] for part in one]) for one in drawn)
        corrected, policy = compare_corrected(first, second), Policy(metric=CORRECTED)
    matrix = OutcomeMatrix(tuple(map(str, range(wrong.shape[1]))), refused, wrong, np.ones_like(wrong))
    found = VariantComparison("v", Match(matrix, True, (0, 0)), compare_metrics(refused, wrong), corrected)
    return verdict_of(judge_guards([one.guard for one in margin_guards(found, policy)], look=look))


@cache
def candidate_of(metric: str, margins: float) -> Model:
    """Return a model that is worse than the baseline in one metric by some margins, and not in the others."""
    worse = margins * MARGINS.get(metric, 0.0)
    base = Model(REFUSAL, ERROR, RHO)
    if metric == INDEX:
        # a lower index means fewer right answers; find the error rate that keeps the correct rate
        rho = 2 * math.sin((spearman(RHO) - worse) * math.asin(0.5))
        return _with_error(base._replace(rho=rho), correct_rate(base))
    if metric == "refusal_rate":
        return _with_error(base._replace(refusal=REFUSAL + worse), correct_rate(base))
    if metric == "correct_rate":
        # fewer answers of the same accuracy: the index and C/A are unchanged
        return _with_attempted(base, correct_rate(base) - worse)
    if metric == "correct_given_attempted":
        attempted = correct_rate(base) / (1 - REFUSAL) - worse
        refusal = 1 - correct_rate(base) / attempted
        return _with_error(base._replace(refusal=refusal), correct_rate(base))
    return base


def correct_rate(model: Model) -> float:
    """Return the share of questions that a model answers right."""
    h, k = -ndtri(model.refusal), -ndtri(model.error)
    return float(upper_orthant(-h, -k, model.rho))


def _with_error(model: Model, correct: float) -> Model:
    """Return the model with the error rate that gives a correct rate."""
    return model._replace(
        error=float(brentq(lambda error: correct_rate(model._replace(error=error)) - correct, 1e-3, 1 - 1e-3))
    )


def _with_attempted(model: Model, correct: float) -> Model:
    """Return the model with a correct rate and the same share of right answers among its answers."""
    refusal = 1 - correct / (correct_rate(model) / (1 - model.refusal))
    return _with_error(model._replace(refusal=refusal), correct)


def _draws(
    model: Model, shared: NDArray[np.float64], draws: int, rng: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """Draw the refusals and errors of a model, shape (draws, n) each."""
    n = shared.shape[1]
    error, other = math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * rng.standard_normal((2, n))
    scores = model.rho * error + math.sqrt(1 - model.rho**2) * other, error
    rates = model.refusal, model.error
    if draws == 1:
        refused, wrong = ((score > -ndtri(rate))[np.newaxis] for score, rate in zip(scores, rates, strict=True))
        return refused, wrong
    width = math.hypot(1, SLOPE)
    refused, wrong = (
        SLOPE * score + rng.standard_normal((draws, n)) > -ndtri(rate) * width
        for score, rate in zip(scores, rates, strict=True)
    )
    return refused, wrong
