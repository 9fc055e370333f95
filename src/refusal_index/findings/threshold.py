"""From a score to refusals: a cut chosen on one half of the questions and judged on the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.confidence import ConfidenceError
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.operating_points import Halves, OperatingPoint, Worth, halves_of, operating_points
from refusal_index.findings.scored_answers import ScoredAnswers, rule_of, scored_answers, virtual_run
from refusal_index.findings.shown import Shown
from refusal_index.stats import RiskThreshold, UtilityThreshold, risk_controlling_threshold, utility_threshold

BOUND_LEVEL = 0.9
INTERVAL_LEVEL = 0.95
"""Confidence levels unless one is given: of the bound on the error rate, and of every interval."""

CUTS = 20
"""How many quantiles of the other half's scores are tried as cuts."""

PRICE = 1.0
"""Of a wrong answer, in right answers, where utilities are told beside a bound on the error rate."""


@dataclass(frozen=True)
class ThresholdOptions:
    """What a cut is to be chosen for, of which scores.

    Attributes
    ----------
    method, variant
        Which scores; None where there is only one.
    penalty
        Choose the cut of the highest utility, where a wrong answer costs so many right ones.
    max_error
        Choose the lowest cut at which no larger share of the answers is wrong; one of the two is given.
    confidence_level
        Of the bound, and of every interval; None for `BOUND_LEVEL` and `INTERVAL_LEVEL`.
    seed
        Of the split.
    """

    method: str | None = None
    variant: str | None = None
    penalty: float | None = None
    max_error: float | None = None
    confidence_level: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        given = [name for name in ("penalty", "max_error") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfidenceError(
                f"expected penalty or max_error, got {' and '.join(given) or 'neither'}: a cut is chosen for the "
                "highest utility, where wrong answers have a price, or for a share of wrong answers not to be exceeded"
            )
        if self.penalty is not None and not 0 <= self.penalty < math.inf:
            raise ConfidenceError(
                f"penalty: expected a number from 0, got {self.penalty}; it is what a wrong answer costs"
            )
        for name in ("max_error", "confidence_level"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ConfidenceError(f"{name}: expected a number above 0 and below 1, got {value}; is it in per cent?")

    @property
    def bound_level(self) -> float:
        """Confidence in the bound."""
        return BOUND_LEVEL if self.confidence_level is None else self.confidence_level

    @property
    def interval_level(self) -> float:
        """Confidence level of every interval."""
        return INTERVAL_LEVEL if self.confidence_level is None else self.confidence_level

    @property
    def price(self) -> float:
        """The penalty at which utilities are told."""
        return PRICE if self.penalty is None else self.penalty


@dataclass(frozen=True, repr=False)
class Threshold(Shown):
    """A cut of a score, and what it is worth on the half of the questions that it was not chosen on.

    Attributes
    ----------
    run, answers
        Whose answers, and their scores.
    options
        What the cut was chosen for.
    halves
        The questions that it was chosen on, and the others.
    found
        The choice, from the first half. Where no cut does what is asked, its status is ``"undefined"``.
    points
        On the other half the cut, the model's own refusals under each variant, and answering all. Without a cut it is
        not among them.
    table
        The outcome table of the other half, as of a model that refuses what scores below the cut; None without a cut.
    """

    run: ComparedRun
    answers: ScoredAnswers
    options: ThresholdOptions
    halves: Halves
    found: UtilityThreshold | RiskThreshold
    points: tuple[OperatingPoint, ...]
    table: pl.DataFrame | None

    @property
    def rule(self) -> str | None:
        """The cut in words, as in ``likelihood >= 0.62``; None where there is none."""
        return None if self.found.cut is None else rule_of(self.answers, self.found.cut)

    def write(self, path: str | Path) -> Path:
        """Write the outcome table of the virtual run, and return its place; the suffix says the format.

        Raises
        ------
        ConfidenceError
            If there is no cut.
        OutcomeTableError
            If the suffix is not known.
        """
        if self.table is None:
            raise ConfidenceError(f"there is no cut, and so no run that answers by it ({self.found.reason})")
        write_outcomes(self.table, path)
        return Path(path)

    def to_frame(self) -> pl.DataFrame:
        """Return every number of `points` as a row: kind, variant, measure, the number and the difference to it."""
        return pl.DataFrame([row for one in self.points for row in _rows(one)], schema=FRAME, orient="row")

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded; a cut that answers all or nothing is null, with its reason."""
        found, options, usable = self.found, self.options, self.answers.usable
        cut = found.cut if found.cut is not None and math.isfinite(found.cut) else None
        return {
            "model": self.run.model_id,
            "dataset": self.run.dataset_id,
            "method": self.answers.method,
            "variant": self.answers.variant,
            "penalty": options.penalty,
            "max_error": options.max_error,
            "bound_level": options.bound_level if options.max_error is not None else None,
            "confidence_level": options.interval_level,
            "seed": options.seed,
            "status": found.status,
            "reason": found.reason,
            "cut": cut,
            "rule": self.rule,
            "chosen_on": usable.filter(pl.col("question_id").is_in(list(self.halves.first))).height,
            "judged_on": usable.filter(pl.col("question_id").is_in(list(self.halves.second))).height,
            "without_score": self.answers.rows["confidence"].null_count(),
            "without_grade": self.answers.rows.drop_nulls("confidence")["wrong"].null_count(),
            "tested": [asdict(one) for one in found.tested] if isinstance(found, RiskThreshold) else None,
            "points": [_document(one) for one in self.points],
        }


def find_threshold(run: ComparedRun, options: ThresholdOptions) -> Threshold:
    """Choose a cut of a score on half of a run's questions, and judge it on the other half.

    The halves follow from the run's questions and the seed, whatever the method. Of the other half, the choice for a
    utility sees nothing; that for an error rate sees its scores, whose quantiles are the cuts that it tries, and none
    of its grades.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If there are no scores, or not those that are asked for; if all are the same, or all answers right, or all
        wrong; or a half has no answer with a score and a grade.
    """
    answers = scored_answers(run, options.method, options.variant)
    usable = answers.usable
    _check(answers, usable)
    halves = halves_of(_questions(run), options.seed)
    first, second = (usable.filter(pl.col("question_id").is_in(list(half))) for half in (halves.first, halves.second))
    for half in (first, second):
        if half.is_empty():
            raise ConfidenceError(
                f"{answers.name}: expected answers with a score and a grade in both halves of the questions, got "
                f"{usable.height:,} in all, and none in one half; score more answers"
            )
    found = _chosen(first, second["confidence"].to_numpy(), options)
    points = operating_points(second, found.cut, run.variants, options.price, options.interval_level)
    table = None if found.cut is None else virtual_run(run, answers, found.cut, halves.second)
    return Threshold(run, answers, options, halves, found, tuple(points), table)


def _chosen(
    first: pl.DataFrame, other_scores: np.ndarray, options: ThresholdOptions
) -> UtilityThreshold | RiskThreshold:
    score, wrong = first["confidence"].to_numpy(), first["wrong"].to_numpy()
    if options.max_error is None:
        return utility_threshold(score, ~wrong, options.price)
    grid = np.quantile(other_scores, np.arange(CUTS) / CUTS, method="inverted_cdf")
    return risk_controlling_threshold(score, wrong, options.max_error, grid=grid, confidence_level=options.bound_level)


def _questions(run: ComparedRun) -> pl.DataFrame:
    tables = pl.concat([table.select("question_id", "cluster") for table in run.variants.values()])
    return tables.group_by("question_id", maintain_order=True).agg(pl.col("cluster").drop_nulls().first())


def _check(answers: ScoredAnswers, usable: pl.DataFrame) -> None:
    if usable.is_empty():
        rows = answers.rows
        raise ConfidenceError(
            f"{answers.name}: expected answers with a score and a grade, got none: no score in "
            f"{rows['confidence'].null_count():,} of {rows.height:,} replies; try another method"
        )
    if usable["confidence"].n_unique() == 1:
        raise ConfidenceError(
            f"{answers.name}: expected scores that differ, got {usable['confidence'][0]:g} for all {usable.height:,} "
            "answers, where no cut tells any apart; try another method"
        )
    if usable["wrong"].n_unique() == 1:
        kind = "wrong" if usable["wrong"][0] else "right"
        raise ConfidenceError(
            f"{answers.name}: expected right and wrong answers, got {usable.height:,} that are all {kind}: there is "
            "nothing for a cut to keep apart"
        )


FRAME = {
    **dict.fromkeys(("kind", "variant"), pl.String),
    "questions": pl.Int64,
    "measure": pl.String,
    **dict.fromkeys(("estimate", "low", "high", "difference", "difference_low", "difference_high"), pl.Float64),
}
"""Columns of `Threshold.to_frame`."""

MEASURES = ("coverage", "error_rate", "utility")


def _rows(point: OperatingPoint) -> Iterator[tuple[Any, ...]]:
    for name in MEASURES:
        own, apart = getattr(point.worth, name), getattr(point.difference, name, None)
        ends = (None, None, None) if apart is None else (apart.estimate, apart.low, apart.high)
        yield (point.kind, point.variant, point.questions, name, own.estimate, own.low, own.high, *ends)


def _document(point: OperatingPoint) -> dict[str, Any]:
    return {
        "kind": point.kind,
        "variant": point.variant,
        "questions": point.questions,
        **_measures(point.worth),
        "difference": None if point.difference is None else _measures(point.difference),
    }


def _measures(worth: Worth) -> dict[str, Any]:
    return {name: getattr(worth, name).to_document() for name in MEASURES}
