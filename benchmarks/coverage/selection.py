"""The best of several confidence methods: the interval of its AUROC, its threshold, and its payoff.

Each answer has a normal score by each method, shifted for right answers, so the AUROC, and the error rate and the
payoff at every threshold are known. The scores of one answer have a common part. `given the most answered` chooses the
method that answers the most at its own threshold, on the questions that set the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.stats import norm

from refusal_index.data.outcome_table import CONFIDENCE_SCHEMA, SCHEMA
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.confidence.threshold import CUTS, Halves, ThresholdOptions, find_threshold
from refusal_index.stats import risk_controlling_threshold
from refusal_index.stats.highest_auroc import highest_auroc

N_DRAWS = 2_000
"""Draws of the joint distribution of the areas; fewer than the default, to save time."""


@dataclass(frozen=True)
class Methods:
    """True AUROCs of the methods, and the correlation of two scores among answers of one kind."""

    areas: tuple[float, ...]
    correlation: float

    @property
    def shifts(self) -> NDArray[np.float64]:
        """The shift of the scores of right answers."""
        return np.asarray(math.sqrt(2) * norm.ppf(self.areas))

    def scores(self, right: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the scores of each method, shape (methods, answers)."""
        common = math.sqrt(self.correlation) * rng.standard_normal(right.size)
        own = math.sqrt(1 - self.correlation) * rng.standard_normal((len(self.areas), right.size))
        return np.asarray(self.shifts[:, np.newaxis] * right + common + own)

    def __str__(self) -> str:
        low, high = min(self.areas), max(self.areas)
        areas = f"AUROC {low:g}" if low == high else f"AUROC {low:g} to {high:g}"
        return f"{len(self.areas)} methods, {areas}, correlation {self.correlation:g}"


def _equal(count: int, area: float, correlation: float) -> Methods:
    return Methods((area,) * count, correlation)


def _spread(count: int, low: float, high: float, correlation: float) -> Methods:
    return Methods(tuple(np.linspace(low, high, count).round(4).tolist()), correlation)


AREAS = tuple(
    (methods, n_right, n_wrong)
    for n_right, n_wrong in ((20, 20), (180, 20), (50, 50), (950, 50))
    for count in (6, 12)
    for methods in (_equal(count, 0.75, 0.6), _equal(count, 0.95, 0.0), _spread(count, 0.6, 0.8, 0.6))
)


def area_rows(methods: Methods, n_right: int, n_wrong: int, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the intervals of the highest AUROC, and how often it is significantly above the second."""
    right = np.repeat([True, False], [n_right, n_wrong])
    covered = ordinary = significant = 0
    for _ in range(replicates):
        found = highest_auroc(methods.scores(right, rng), right, n_draws=N_DRAWS, rng=rng)
        assert found is not None
        assert found.difference is not None
        truth = methods.areas[found.place]
        low, high = found.area.confidence_interval()
        covered += found.interval.low <= truth <= found.interval.high
        ordinary += low <= truth <= high
        significant += found.difference.pvalue is not None and found.difference.pvalue < 0.05
    name = f"{n_right} right, {n_wrong} wrong, {methods}"
    least = 0.95 if n_wrong >= 50 else 0.92
    yield share(name, "coverage of the highest AUROC", covered, replicates, least, 1)
    yield share(name, "the same by the ordinary interval, for contrast", ordinary, replicates, 0, 1)
    if len(set(methods.areas)) == 1:
        yield share(name, "highest significantly above second", significant, replicates, 0, 0.05)


@dataclass(frozen=True)
class Limit:
    """Methods, the number of questions, the share of wrong answers, and the largest error rate."""

    methods: Methods
    n: int
    wrong: float
    max_error: float

    def error_rate(self, method: int, cut: float) -> float:
        """Return the true error rate of the answers with a score of at least the cut."""
        of_wrong, of_right = self.answered(method, cut)
        return of_wrong / (of_wrong + of_right)

    def answered(self, method: int, cut: float) -> tuple[float, float]:
        """Return the shares of all questions that are answered at the cut, wrongly and rightly."""
        shift = float(self.methods.shifts[method])
        return self.wrong * float(norm.sf(cut)), (1 - self.wrong) * float(norm.sf(cut - shift))

    def run(self, rng: np.random.Generator) -> RunResults:
        """Draw a run with scores."""
        wrong = rng.random(self.n) < self.wrong
        ids = [f"q{number}" for number in range(self.n)]
        scores = pl.concat(
            pl.DataFrame({"question_id": ids, "method": str(number), "confidence": score, "wrong": wrong})
            for number, score in enumerate(self.methods.scores(~wrong, rng))
        )
        usual = {"draw": 0, "pass": "forced"}
        scores = scores.select(
            (pl.col(name) if name in scores.columns else pl.lit(usual.get(name))).cast(kind).alias(name)
            for name, kind in CONFIDENCE_SCHEMA.items()
        )
        columns = {"model": "m", "dataset": "d", "draw": 0, "schema_version": 1}
        table = pl.DataFrame({"question_id": ids, "refused": rng.random(self.n) < 0.3, "wrong": wrong})
        table = table.select(
            (pl.col(name) if name in table.columns else pl.lit(columns.get(name))).cast(kind).alias(name)
            for name, kind in SCHEMA.items()
        )
        return RunResults.of_tables("m", Path(__file__).parent, "m", "d", {None: table}, {}, scores)

    def __str__(self) -> str:
        return f"n {self.n}, wrong {self.wrong:g}, limit {self.max_error:g}, {self.methods}"


LIMITS = (
    Limit(_equal(12, 0.5, 0.0), 400, 0.105, 0.1),
    Limit(_equal(12, 0.85, 0.3), 400, 0.2, 0.1),
    Limit(_spread(12, 0.65, 0.85, 0.3), 400, 0.3, 0.2),
    Limit(_equal(12, 0.9, 0.3), 1000, 0.4, 0.1),
    Limit(_spread(12, 0.65, 0.85, 0.8), 1000, 0.4, 0.1),
)


def limit_rows(limit: Limit, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """How often a threshold is found and exceeds the limit: chosen, fixed, and chosen on the same questions."""
    names = ("method chosen on the other half", "method fixed", "given the most answered, for contrast")
    best = int(np.argmax(limit.methods.areas))
    found = dict.fromkeys(names, 0)
    broken = dict.fromkeys(names, 0)
    for _ in range(replicates):
        run = limit.run(rng)
        chosen, fixed = (
            find_threshold(run, ThresholdOptions(method, max_error=limit.max_error)) for method in (None, str(best))
        )
        cuts = [(int(result.answers.method), result.selected.cut) for result in (chosen, fixed)]
        for name, (method, cut) in zip(names, (*cuts, _most_answered(run, fixed.halves, limit)), strict=True):
            if cut is not None:
                found[name] += 1
                broken[name] += limit.error_rate(method, cut) > limit.max_error
    for name in names:
        yield share(f"{limit}, {name}", "threshold found", found[name], replicates, 0, 1)
        highest = 1.0 if name == names[2] else 0.1
        yield share(f"{limit}, {name}", "limit exceeded", broken[name], replicates, 0, highest)


def _most_answered(run: RunResults, halves: Halves, limit: Limit) -> tuple[int, float | None]:
    """Return the method that answers the most at its own threshold, and that threshold."""
    assert run.confidence is not None
    tables = run.confidence.with_columns(first=pl.col("question_id").is_in(list(halves.first)))
    results = []
    for table in tables.partition_by("method", maintain_order=True):
        score, wrong, first = (table[name].to_numpy() for name in ("confidence", "wrong", "first"))
        grid = np.quantile(score[~first], np.arange(CUTS) / CUTS, method="inverted_cdf")
        results.append(risk_controlling_threshold(score[first], wrong[first], limit.max_error, grid=grid))
    most = int(np.argmax([result.n_answered or 0 for result in results]))
    return most, results[most].cut


PAYOFF = Limit(_equal(12, 0.75, 0.3), 400, 0.4, 0.5)
PENALTY = 2.0


def payoff_rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias of the payoff after choosing method and threshold: on the other half, and on the half that chose them."""
    errors: dict[str, list[float]] = {"the other half": [], "the half that chose, for contrast": []}
    for _ in range(replicates):
        result = find_threshold(PAYOFF.run(rng), ThresholdOptions(penalty=PENALTY))
        wrong, right = PAYOFF.answered(int(result.answers.method), float(result.selected.cut or 0.0))
        utility = result.points[0].utility
        assert utility is not None
        estimates = (utility.estimate, result.selected.utility)
        for values, estimate in zip(errors.values(), estimates, strict=True):
            values.append(float(estimate or 0.0) - (right - PENALTY * wrong))
    for (half, values), highest in zip(errors.items(), (0.005, 0.2), strict=True):
        error = float(np.std(values)) / math.sqrt(replicates)
        yield Row(f"{PAYOFF}, {half}", "bias of the payoff", float(np.mean(values)), error, -0.005, highest)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for methods, n_right, n_wrong in AREAS:
        yield from area_rows(methods, n_right, n_wrong, replicates, rng)
    for limit in LIMITS:
        yield from limit_rows(limit, replicates, rng)
    yield from payoff_rows(replicates, rng)
