"""Release gates: error rates and power of the verdicts.

Questions have a latent error score and a latent refusal score in each model; the models share part of both, so pairing
helps as it does between two versions of a model. The candidate is worse in one metric by exactly its margin, and in the
others by less than theirs (it may pass in at most 5% of cases); in no metric (it may fail in at most 5%, and its pass
rate is the power); or by twice the margin (its failure rate is the power). Margins are the defaults. The guard is RI,
or with two draws of all questions the corrected index. With several looks the candidate is judged after equal portions
of the questions, as in `gate --run`, and the first verdict other than inconclusive counts.

Answers may be lacking: a share of the refusals is refused again in the forced pass, and a share of all questions has no
grade. They are chosen at random in both runs, or with more of those that count against the verdict in one run: with
twice or three times the odds, or from one cell only, the worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.findings.gate_policy import MARGINS, Policy
from refusal_index.findings.guards import questions_for_scenario
from refusal_index.findings.judged_runs import CONCORDANT, DISCORDANT, JudgedRuns
from refusal_index.findings.metrics import CORRECTED, INDEX
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import AtLook, GroupSequential, PlanningScenario, upper_orthant
from refusal_index.stats.intervals import spearman
from refusal_index.stats.non_inferiority import Verdict, judge_guards, verdict_of

RI = 0.4
"""Index of every baseline."""

SHARED = 0.9
"""Share of the variance of the latent scores that is common to both models."""

SLOPE = 3.0
"""Slope of the probits of the probabilities in the latent scores, unless a world has another one."""

MAX_MISSING = 0.02
"""Largest share without a grade, in these policies."""

BoolArray = NDArray[np.bool_]


class World(NamedTuple):
    """Refusal and error rate of the baseline, and the slope of its probits in the latent scores.

    Without a slope the scores decide, so that a repeated question gets the same response.
    """

    refusal: float = 0.4
    error: float = 0.55
    slope: float | None = None

    def __str__(self) -> str:
        slope = "" if self.slope is None else f", slope {self.slope:g}"
        return f"r {self.refusal:g}, mu {self.error:g}{slope}"


WITHOUT_NOISE = World()


class Lacking(NamedTuple):
    """Which answers are lacking.

    `again` is the share of the refusals that is refused again, `missing` the share of all questions without a grade.
    In the run `adverse`, what counts against the verdict is lacking with `odds` times the odds; infinite odds mean the
    worst cell only. `kinds` says which answers are chosen so, the missing ones, those refused again, or both.
    """

    again: float = 0.0
    missing: float = 0.0
    adverse: str | None = None
    odds: float = 2.0
    kinds: tuple[str, ...] = ("again", "missing")

    def __str__(self) -> str:
        if not (self.again or self.missing):
            return "nothing lacking"
        how = "at random"
        if self.adverse is not None:
            odds = "one cell only" if math.isinf(self.odds) else f"odds {self.odds:g}"
            how = f"{odds} in the {self.adverse} for {' and '.join(self.kinds)}"
        return f"{self.again:.0%} refused again, {self.missing:.0%} missing, {how}"


NOTHING = Lacking()


DEFAULT_POLICY = Policy()


class Scenario(NamedTuple):
    """The metric in which the candidate is worse, by how many margins, and the number of questions, draws and looks.

    `n` is None for the recommended number. `power` is the minimum share of replicates with the right verdict, and
    `size` the largest share that may pass though worse than the margin; NaN is a figure without a target.
    """

    metric: str
    margins: float
    n: int | None
    draws: int = 1
    power: float = 0.0
    looks: int = 1
    world: World = WITHOUT_NOISE
    lacking: Lacking = NOTHING
    size: float = 0.05
    policy: Policy = DEFAULT_POLICY

    def __str__(self) -> str:
        index = CORRECTED if self.draws > 1 else INDEX
        name = index if self.metric == INDEX else self.metric
        worse = f"{name} worse by {self.margins:g} margins" if self.margins else f"no difference, {index} guarded"
        parts = [worse, f"n {self.questions:,}{' (recommended)' if self.n is None else ''}"]
        if self.draws > 1:
            parts.append(f"{self.draws} draws")
        if self.looks > 1:
            parts.append(f"{self.looks} looks")
        if self.policy != DEFAULT_POLICY:
            parts.append(f"margins {', '.join(f'{margin:g}' for margin in self.policy.margins.values())}")
        if self.world != WITHOUT_NOISE:
            parts.append(str(self.world))
        if self.lacking != NOTHING:
            parts.append(str(self.lacking))
        return ", ".join(parts)

    @property
    def questions(self) -> int:
        """The number of questions."""
        return recommended(self.world) if self.n is None else self.n

    @property
    def loss(self) -> float:
        """By how much the candidate is worse."""
        return self.margins * self.policy.margins.get(self.metric, 0.0)

    @property
    def design(self) -> GroupSequential:
        """The group-sequential design of the looks."""
        return GroupSequential.planned(self.questions, self.looks, Policy().alpha)


class Model(NamedTuple):
    """Refusal rate, error rate and copula correlation of a model's responses."""

    refusal: float
    error: float
    rho: float

    @property
    def cells(self) -> dict[str, float]:
        """The probability of each cell."""
        right = correct_rate(self)
        return {
            "refused_wrong": self.refusal - (1 - self.error - right),
            "refused_right": 1 - self.error - right,
            "answered_wrong": 1 - self.refusal - right,
            "answered_right": right,
        }


NOISY = World(slope=SLOPE)

WORLDS = (NOISY, *(World(r, mu, SLOPE) for r, mu in ((0.7, 0.9), (0.15, 0.9), (0.06, 0.65))), World(slope=1.0))

UP_TO = tuple(Lacking(again, missing) for again, missing in ((0.0, 0.0), (0.05, 0.01), (0.1, 0.02)))

DOUBLED = tuple(
    Lacking(0.1, 0.02, role, kinds=(kind,)) for role in ("candidate", "baseline") for kind in ("again", "missing")
)

WORSE_STILL = (
    *(Lacking(0.1, 0.02, role) for role in ("candidate", "baseline")),
    *(Lacking(0.1, 0.02, role, 3.0) for role in ("candidate", "baseline")),
    *(Lacking(again, missing, "candidate", math.inf) for again, missing in ((0.05, 0.0), (0.0, 0.02))),
)


def _lacking_scenarios() -> Iterator[Scenario]:
    """Yield what the gate promises where answers are lacking."""
    for world in WORLDS:
        for n in (1000, None):
            few = min(candidate_of(INDEX, MARGINS[INDEX], world).cells.values()) * (n or recommended(world)) < FEW
            chosen = (*UP_TO, *DOUBLED) if world == NOISY else (UP_TO[-1], *DOUBLED[:2])
            for lacking in chosen:
                yield Scenario(INDEX, 1, n, world=world, lacking=lacking, size=0.065 if few else 0.05)
        # at slope 1 pairing helps least, and the recommended number has its power only where nothing is lacking
        powers = (0.85, 0.8, 0.72) if world.slope == 1.0 else (0.85, 0.85, 0.75)
        for lacking, power in zip((NOTHING, Lacking(0.05, 0.02), Lacking(0.1, 0.02)), powers, strict=True):
            yield Scenario("none", 0, None, power=power, world=world, lacking=lacking)
        yield Scenario(INDEX, 2, None, power=0.8, world=world)
        power = 0.72 if world.slope == 1.0 else 0.8
        yield Scenario(INDEX, 2, None, power=power, world=world, lacking=Lacking(0.05, 0.02))
    for n in (2000, 4000):
        for lacking in (UP_TO[-1], *DOUBLED[:2]):
            yield Scenario(INDEX, 1, n, world=NOISY, lacking=lacking)
    for lacking in (UP_TO[-1], *DOUBLED[:2]):
        yield Scenario(INDEX, 1, 2000, looks=5, world=NOISY, lacking=lacking)
        yield Scenario("correct_rate", 1, 2000, world=NOISY, lacking=lacking)
    yield Scenario("none", 0, None, power=0.8, looks=5, world=NOISY, lacking=Lacking(0.05, 0.02))
    yield Scenario("none", 0, None, power=0.0, world=NOISY, lacking=Lacking(0.2, 0.0))
    for lacking in WORSE_STILL:
        yield Scenario(INDEX, 1, None, world=NOISY, lacking=lacking, size=math.nan)


FEW = 10
"""Below this expected count in a cell, the size of the tests may be larger."""


def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios."""
    return (
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
        *_lacking_scenarios(),
    )


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in scenarios():
        yield from scenario_rows(scenario, max(replicates // 2, 1), rng)


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Yield the error rate that alpha bounds, and the power if the scenario has one."""
    results = [simulate(scenario, rng) for _ in range(replicates)]
    verdicts = [verdict for verdict, _ in results]
    name = str(scenario)
    if scenario.looks > 1:
        questions = np.array([n for _, n in results])
        error = float(questions.std()) / math.sqrt(replicates)
        yield Row(name, "mean questions", float(questions.mean()), error, 0, scenario.questions)
    passed = verdicts.count("pass")
    failed = verdicts.count("fail")
    if scenario.lacking.again > Policy().max_refused_again:
        yield share(name, "inconclusive", replicates - passed - failed, replicates, 0.95, 1)
    if scenario.margins == 0:
        yield share(name, "fails, though equally good", failed, replicates, 0, 0.05)
        yield share(name, "passes (power)", passed, replicates, scenario.power, 1)
        return
    size = 1.0 if math.isnan(scenario.size) else scenario.size
    yield share(name, "passes, though worse than the margin", passed, replicates, 0, size)
    if scenario.margins > 1:
        yield share(name, "fails (power)", failed, replicates, scenario.power, 1)


def simulate(scenario: Scenario, rng: np.random.Generator) -> tuple[Verdict, int]:
    """Judge one candidate; return the verdict and the number of questions used."""
    shared = rng.standard_normal((2, scenario.questions))
    models = {
        "candidate": candidate_of(scenario.metric, scenario.loss, scenario.world),
        "baseline": baseline_of(scenario.world),
    }
    responses = {role: _draws(model, shared, scenario, rng) for role, model in models.items()}
    tables = {role: _table(role, *drawn, scenario, rng) for role, drawn in responses.items()}
    verdict: Verdict = "inconclusive"
    for n in scenario.design.sizes:
        look = None if scenario.looks == 1 else AtLook(scenario.design, n)
        so_far = {role: table.filter(pl.col("place") < n) for role, table in tables.items()}
        verdict = _verdict(so_far, look, scenario)
        if verdict != "inconclusive":
            return verdict, n
    return verdict, scenario.questions


def _verdict(tables: dict[str, pl.DataFrame], look: AtLook | None, scenario: Scenario) -> Verdict:
    """Judge the candidate against the baseline at a look."""
    policy = replace(scenario.policy, max_missing=MAX_MISSING)
    if scenario.draws > 1:
        policy = Policy(metric=CORRECTED, max_missing=MAX_MISSING)
    runs = {role: RunResults.of_tables(role, Path(role), role, "d", {"v": table}) for role, table in tables.items()}
    judged = JudgedRuns(runs, tables, policy, DEFAULT_ANALYSIS)
    # imputation can only turn a pass, and is slow
    by_observed = judge_guards([replace(named.guard, imputed=()) for named in judged.guards], policy.alpha, look)
    is_left_undecided = any(judged.refused_too_often(named) for named in judged.guards)
    if verdict_of(by_observed) != "pass" and not is_left_undecided:
        return verdict_of(by_observed)
    return verdict_of(judged.tests(look))


def _table(
    role: str, refused: BoolArray, wrong: BoolArray, scenario: Scenario, rng: np.random.Generator
) -> pl.DataFrame:
    """Return the outcome table of a run, with what is lacking removed; arrays have the shape (draws, n)."""
    draws, n = refused.shape
    flat_refused = refused.ravel()
    flat_wrong = wrong.ravel()
    again = np.zeros(flat_refused.size, dtype=bool)
    missing = again.copy()
    lacking = scenario.lacking
    if lacking != NOTHING:
        weights = _weights(role, flat_refused, flat_wrong, scenario)
        of_kind = {kind: weights if kind in lacking.kinds else np.ones_like(weights) for kind in ("again", "missing")}
        missing = _chosen(lacking.missing, np.ones_like(again), of_kind["missing"], rng)
        again = _chosen(lacking.again, flat_refused & ~missing, of_kind["again"], rng)
    forced = np.where(again, "refused", np.where(flat_wrong, "incorrect", "correct"))
    text = pl.lit(None, pl.String)
    return pl.DataFrame(
        {
            "place": np.tile(np.arange(n), draws),
            "draw": np.repeat(np.arange(draws), n),
            "refused": flat_refused,
            "wrong": flat_wrong | again,
            "forced_grade": forced,
            "is_missing": missing,
        }
    ).with_columns(
        *(
            pl.when("is_missing").then(None).otherwise(name).alias(name)
            for name in ("refused", "wrong", "forced_grade")
        ),
        *(text.alias(name) for name in ("question", "gold", "cluster")),
        answerable=pl.lit(None, pl.Boolean),
        model=pl.lit(role),
        dataset=pl.lit("d"),
        variant=pl.lit("v"),
        question_id=pl.col("place").cast(pl.String),
        weight=pl.lit(None, pl.Float64),
    )


def _weights(role: str, refused: BoolArray, wrong: BoolArray, scenario: Scenario) -> NDArray[np.float64]:
    """Return how likely each response is to be lacking, relative to the others."""
    lacking = scenario.lacking
    if role != lacking.adverse:
        return np.ones(refused.size)
    if scenario.metric == "correct_rate":
        against = ["answered_right"] if role == "baseline" else ["answered_wrong", "refused_right", "refused_wrong"]
    else:
        against = list(CONCORDANT if role == "baseline" else DISCORDANT)
    cells = np.array(["answered_right", "answered_wrong", "refused_right", "refused_wrong"])[2 * refused + wrong]
    if math.isinf(lacking.odds):
        return np.where(cells == ("refused_wrong" if role == "baseline" else "refused_right"), 1.0, 0.0)
    return np.where(np.isin(cells, against), lacking.odds, 1.0)


def _chosen(
    share_lacking: float, possible: BoolArray, weights: NDArray[np.float64], rng: np.random.Generator
) -> BoolArray:
    """Choose a share of the possible responses, fewer if too few have a positive weight."""
    chosen = np.zeros(possible.size, dtype=bool)
    places = np.flatnonzero(possible & (weights > 0))
    number = min(int(share_lacking * possible.sum()), places.size)
    if number:
        odds = weights[places]
        chosen[rng.choice(places, number, replace=False, p=odds / odds.sum())] = True
    return chosen


@cache
def recommended(world: World) -> int:
    """Return the number of questions that is recommended for a gate with this baseline."""
    questions = questions_for_scenario(PlanningScenario(world.refusal, world.error, RI), Policy())
    assert questions is not None
    return questions


def baseline_of(world: World) -> Model:
    """Return the baseline of a world."""
    return Model(world.refusal, world.error, 2 * math.sin(RI * math.asin(0.5)))


@cache
def candidate_of(metric: str, worse: float, world: World = WITHOUT_NOISE) -> Model:
    """Return a model that is worse than the baseline in one metric by so much, and by less in the others."""
    base = baseline_of(world)
    if metric == INDEX:
        # a lower index means fewer right answers; find the error rate that keeps the correct rate
        rho = 2 * math.sin((spearman(base.rho) - worse) * math.asin(0.5))
        return _with_error(base._replace(rho=rho), correct_rate(base))
    if metric == "refusal_rate":
        return _with_error(base._replace(refusal=base.refusal + worse), correct_rate(base))
    if metric == "correct_rate":
        # fewer answers of the same accuracy: the index and C/A are unchanged
        return _with_attempted(base, correct_rate(base) - worse)
    if metric == "correct_given_attempted":
        attempted = correct_rate(base) / (1 - base.refusal) - worse
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
    model: Model, shared: NDArray[np.float64], scenario: Scenario, rng: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """Draw the refusals and errors of a model, shape (draws, n) each."""
    n = shared.shape[1]
    draws = scenario.draws
    slope = scenario.world.slope or (SLOPE if draws > 1 else math.inf)
    # so that the responses have the index; with repeated samples the scores have it
    rho = model.rho if draws > 1 or math.isinf(slope) else model.rho * (1 + slope**-2)
    error, other = math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * rng.standard_normal((2, n))
    scores = rho * error + math.sqrt(1 - rho**2) * other, error
    found = []
    for score, rate in zip(scores, (model.refusal, model.error), strict=True):
        noise = 0.0 if math.isinf(slope) else rng.standard_normal((draws, n)) / slope
        width = math.hypot(1, 1 / slope)
        found.append(np.broadcast_to(score + noise > -ndtri(rate) * width, (draws, n)))
    return found[0], found[1]
