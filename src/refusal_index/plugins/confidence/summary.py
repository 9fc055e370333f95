"""How well each confidence method ranks and calibrates, for one run or for a comparison of two.

If questions were sampled repeatedly, the first draw counts, as in all metrics of a single draw.

If both runs scored the same questions, the comparison is paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.outcome_table import GROUP, OPTIONAL, all_scores, is_trained, scores_by_method
from refusal_index.data.rates import first_draws, too_many_missing, variant_groups
from refusal_index.findings.metrics import Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.protocol import Pass
from refusal_index.stats import Estimate
from refusal_index.stats.calibration import auroc_influence
from refusal_index.stats.comparison import difference_error
from refusal_index.stats.estimate import Result, ResultWithInterval, reasons_of
from refusal_index.stats.highest_auroc import auroc_difference, highest_auroc

TOPIC = "topic"
"""The method that uses the topic alone: the baseline for trained methods."""

TARGETS = (0.5, 0.75, 0.9)
"""Confidence targets: an answer is given if its confidence reaches the target."""

Verdict = Literal["better", "worse", "not_told_apart", "undefined"]

VERDICTS: tuple[Verdict, ...] = ("better", "worse", "not_told_apart", "undefined")

FEW_OF_A_KIND = 20
"""Minimum number of right and of wrong answers; with fewer, the ranking is too imprecise."""

OTHER_ANSWERS = 0.02
"""Minimum difference in accuracy at which the scored answers are reported to differ from those that count."""

NAME = "confidence"
"""Key of these summaries in `Summary.sections`, in ``summary.json`` and in the JSON of a comparison."""

SCORED = (*GROUP, "question_id", "draw", "refused", "wrong", *OPTIONAL)
"""Columns of the outcome table that the comparison with scores needs."""


@dataclass(frozen=True)
class Difference:
    """A metric by the score, by the refusals, and the difference with its interval."""

    score: float | None
    refusals: float | None
    difference: Estimate


@dataclass(frozen=True)
class AgainstRefusals:
    """A score compared with the refusals of one variant, at the same refusal rate, on the scored answers.

    Attributes
    ----------
    variant
        The variant of the refusals.
    questions, refused
        Number of questions with a score, a grade of the scored answer and a graded first pass, and how many of them the
        model refused.
    accuracy, own_accuracy
        Share of right answers among the scored answers, and among the answers that count in the outcome table, on
        questions that have both. They differ if the first pass gave another answer than the forced pass.
    verdict
        Whether the score finds wrong answers better than the refusals, by the interval of the difference in RI or, if
        that has no interval because an RI is at its boundary, by the interval of the difference in error rates.
    refusal_index, answered_error_rate
        Differences, score minus refusals, in RI and in the share of errors among the answered.
    """

    variant: str | None
    questions: int
    refused: int
    accuracy: float | None
    own_accuracy: float | None
    verdict: Verdict
    refusal_index: Difference
    answered_error_rate: Difference

    @property
    def no_comparison(self) -> Statement | None:
        """Why the two cannot be compared, such as the empty cells of either table; None if they can."""
        if self.verdict != "undefined":
            return None
        reason = self.refusal_index.difference.reason or self.answered_error_rate.difference.reason or ""
        parts = [part.partition(":zero_cell:") for part in reason.split(";") if ":zero_cell:" in part]
        cells = [(name, cell) for name, _, cells_of_part in parts for cell in cells_of_part.split("+")]
        return Statement("no_comparison", "serious", {"reason": reason, "cells": cells})

    def in_full(self, method: str) -> Statement:
        """Return the statement of what was compared and with which result."""
        return Statement("refusals_replaced", "conclusion", {"compared": self, "method": method})


@dataclass(frozen=True)
class HighestArea:
    """The highest AUROC of several methods, with an interval that allows for the choice, and the second highest.

    Attributes
    ----------
    methods
        Number of methods with an AUROC, among which this one has the highest; a method with scores for each prompt
        counts once for each.
    by_prompt
        Whether there is such a method among them.
    auroc
        The AUROC with an interval that allows for the choice, as by `highest_auroc`.
    second
        Name of the method with the second highest AUROC.
    questions
        Number of questions with a score and a grade by both.
    difference, pvalue
        The AUROC minus that of the second on these questions, with its interval, and the p-value of no difference.
    """

    methods: int
    by_prompt: bool
    auroc: Estimate
    second: str
    questions: int
    difference: Estimate
    pvalue: float | None


@dataclass(frozen=True)
class MethodSummary:
    """The results of one method on the answers that it scored.

    Attributes
    ----------
    model, dataset, method, variant
        Origin of the scores; the variant is None if they apply to all variants, model and dataset if they are unknown.
    scored_pass
        The pass of the scored answers, as in the column `pass`.
    is_trained
        Whether the scores come from a predictor trained on right and wrong answers rather than from the model itself.
    asked
        Number of questions in the outcome table under the variant, or under any variant.
    questions
        Number of answers with a score and a grade, one per question, on which the metrics are based.
    without_score, without_grade
        Numbers of answers without a score, and of scored answers without a grade; both are excluded.
    accuracy
        Share of right answers.
    auroc, ece, rms_calibration_error, smooth_ece, brier, aurc, prr
        As defined in `refusal_index.stats`.
    miscalibration, discrimination, uncertainty
        Components of the Brier score, which is the first minus the second plus the third.
    targets
        Mean value at each confidence target t: 1 for a right answer, -t / (1 - t) for a wrong one, 0 if the confidence
        is below t.
    against
        Comparison of the score with the refusals of each variant.
    over_topic
        AUROC of a trained method minus that of the topic alone, paired by question; None without that baseline.
    highest
        Of the method with the highest AUROC of several: an interval that allows for the choice; None for the others.
    """

    model: str | None
    dataset: str | None
    method: str
    variant: str | None
    scored_pass: str | None
    is_trained: bool
    asked: int
    questions: int
    without_score: int
    without_grade: int
    accuracy: float | None
    auroc: Estimate
    ece: float | None
    rms_calibration_error: float | None
    smooth_ece: float | None
    brier: Estimate
    miscalibration: float | None
    discrimination: float | None
    uncertainty: float | None
    aurc: float | None
    prr: float | None
    targets: Mapping[str, Estimate]
    against: tuple[AgainstRefusals, ...]
    over_topic: Estimate | None = None
    highest: HighestArea | None = None

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        """Identifier within the run: see `scores_by_method`."""
        return self.method, self.variant, self.scored_pass

    @property
    def name(self) -> str:
        """The method, followed by its variant, if any, and by the pass if it is the first."""
        details = [part for part in (self.variant, "first pass" if self.scored_pass == Pass.FIRST else None) if part]
        return f"{self.method} ({', '.join(details)})" if details else self.method

    def caveats(self) -> Iterator[Statement]:
        """Yield caveats: training, missing scores or grades, small samples, and differing answers."""
        if self.is_trained:
            yield Statement("trained")
        if self.over_topic is not None and self.over_topic.low is not None:
            yield Statement("over_topic", values={"difference": self.over_topic})
        replies = self.questions + self.without_score + self.without_grade
        if self.without_score or self.without_grade:
            yield Statement(
                "method_left_out",
                values={"no_score": self.without_score, "replies": replies, "no_grade": self.without_grade},
            )
        if self.questions and too_many_missing(self.asked - replies, self.asked):
            yield Statement("scored_in_part", "serious", {"questions": self.questions, "asked": self.asked})
        count, kind = min((self.right, "right"), (self.questions - self.right, "wrong"))
        if self.questions and count < FEW_OF_A_KIND:
            yield Statement("few_of_a_kind", "serious", {"count": count, "kind": kind, "questions": self.questions})
        for comparison in self.against:
            own_accuracy = comparison.own_accuracy
            scored = comparison.accuracy
            if own_accuracy is not None and scored is not None and abs(own_accuracy - scored) >= OTHER_ANSWERS:
                yield Statement(
                    "other_answers", values={"variant": comparison.variant, "own": own_accuracy, "scored": scored}
                )

    def conclusions(self) -> Iterator[Statement]:
        """Yield how well the method ranks, and its lead if it has the highest AUROC of several."""
        yield Statement("best_method", "conclusion", {"best": self})
        if self.highest is not None:
            yield Statement("highest_lead", "conclusion", {"highest": self.highest, "questions": self.questions})

    def verdict(self, *, numbers: bool = False) -> Statement:
        """Return the statement whether the score finds wrong answers better than the refusals, grouped by verdict.

        - `numbers`: include the differences and their intervals.
        """
        grouped = (
            (verdict, [comparison for comparison in self.against if comparison.verdict == verdict])
            for verdict in VERDICTS
        )
        verdicts = [
            (
                verdict,
                [Statement("verdict_under", "conclusion", {"compared": item, "numbers": numbers}) for item in group],
            )
            for verdict, group in grouped
            if group
        ]
        named = any(comparison.variant for comparison in self.against)
        return Statement("score_or_refusals", "conclusion", {"name": self.name, "verdicts": verdicts, "named": named})

    @property
    def tone(self) -> Literal["better", "worse", "mixed", "open", "undefined"]:
        """Whether the score beats the refusals, over all variants with a significant difference."""
        verdicts = {comparison.verdict for comparison in self.against}
        if {"better", "worse"} <= verdicts:
            return "mixed"
        if "better" in verdicts or "worse" in verdicts:
            return "better" if "better" in verdicts else "worse"
        return "open" if "not_told_apart" in verdicts else "undefined"

    @property
    def right(self) -> int:
        """Number of right answers among `questions`."""
        return round((self.accuracy or 0.0) * self.questions)


def shared_caveats(methods: Sequence[MethodSummary]) -> tuple[tuple[tuple[str, ...], Statement], ...]:
    """Return every distinct caveat with the names of all methods that it applies to."""
    named = [(method.name, caveat) for method in methods for caveat in method.caveats()]
    distinct = [caveat for index, (_, caveat) in enumerate(named) if all(caveat != other for _, other in named[:index])]
    return tuple((tuple(name for name, other in named if other == caveat), caveat) for caveat in distinct)


def summarise_outcomes(
    outcomes: pl.LazyFrame, scores: pl.DataFrame | None, analysis: Analysis
) -> tuple[MethodSummary, ...]:
    """Summarise the scores of each model and dataset in an outcome table.

    - `outcomes`: the outcome table, in memory or in a file.
    - `scores`: a confidence table of the same questions, in addition to the scores in the outcome table; None if there
      is none.
    - `analysis`: how to compute the intervals.
    """
    if scores is None and not set(OPTIONAL) & set(outcomes.collect_schema()):
        return ()
    rows = outcomes.select(cs.by_name(*SCORED, require_all=False)).collect()
    summaries: list[MethodSummary] = []
    for part in rows.partition_by("model", "dataset", maintain_order=True):
        summaries += summarise_confidence(all_scores(scores, part), part, analysis)
    return tuple(summaries)


def summarise_confidence(
    scores: pl.DataFrame, outcomes: pl.DataFrame, analysis: Analysis = DEFAULT_ANALYSIS
) -> tuple[MethodSummary, ...]:
    """Summarise a confidence table: one entry for each method, or for each variant if its scores differ by variant.

    Parameters
    ----------
    scores
        The table, with the columns of `CONFIDENCE_SCHEMA`.
    outcomes
        The outcome table of the same run: one model and dataset.
    analysis
        How to compute the intervals.
    """
    variants = {group.variant: first_draws(group.outcomes) for group in variant_groups(outcomes)}
    run = (outcomes["model"][0], outcomes["dataset"][0]) if outcomes.height else (None, None)
    groups = scores_by_method(scores)
    topic = groups.get((TOPIC, None, "forced"))
    methods = [_of_method(group, run, variants, topic, analysis) for group in groups.values()]
    return tuple(_with_highest(methods, list(groups.values()), analysis))


def _with_highest(
    methods: Sequence[MethodSummary], tables: Sequence[pl.DataFrame], analysis: Analysis
) -> Iterator[MethodSummary]:
    """Yield the summaries, that of the method with the highest AUROC with its interval and its lead."""
    scores, right = _aligned(tables)
    found = highest_auroc(scores, right, confidence_level=analysis.confidence_level) if tables else None
    for place, method in enumerate(methods):
        if found is None or found.second is None or found.difference is None or place != found.place:
            yield method
            continue
        highest = HighestArea(
            methods=found.count,
            by_prompt=any(other.variant for other in methods),
            auroc=Estimate.of(found.area, found.interval),
            second=methods[found.second].name,
            questions=found.difference.n,
            difference=_estimate(found.difference, analysis),
            pvalue=found.difference.pvalue,
        )
        yield replace(method, highest=highest)


def _aligned(tables: Sequence[pl.DataFrame]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the scores and whether the answers are right, shape (tables, questions); NaN without score or grade."""
    rows = [usable(table) for table in tables]
    ids = sorted({question_id for table in rows for question_id in table["question_id"]})
    places = {question_id: place for place, question_id in enumerate(ids)}
    scores = np.full((len(rows), len(ids)), np.nan)
    right = np.zeros(scores.shape, bool)
    for number, table in enumerate(rows):
        columns = [places[question_id] for question_id in table["question_id"]]
        scores[number, columns] = table["confidence"].to_numpy()
        right[number, columns] = ~table["wrong"].to_numpy()
    return scores, right


def usable(scores: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with both a score and a grade."""
    return scores.drop_nulls(["confidence", "wrong"])


def graded(scores: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the scores of answers with both a score and a grade, and whether these answers are right."""
    rows = usable(scores)
    return rows["confidence"].to_numpy(), ~rows["wrong"].to_numpy()


def difference_of(results: Sequence[Result], influences: Sequence[NDArray[np.float64]], analysis: Analysis) -> Estimate:
    """Return the first of two estimates minus the second, with its interval.

    Parameters
    ----------
    results, influences
        The two estimates, and the influence of each question on them.
    analysis
        How to compute the interval.
    """
    first, second = results
    reason = reasons_of(first, second)
    if first.estimate is None or second.estimate is None:
        return Estimate(None, status="undefined", reason=reason)
    estimate = first.estimate - second.estimate
    if reason is not None:
        return Estimate(estimate, status="boundary", reason=reason)
    error = difference_error(influences)
    if error == 0:
        return Estimate(estimate, status="boundary", reason="constant_difference")
    return _estimate(ResultWithInterval(estimate, standard_error=error), analysis)


def _over_topic(scores: pl.DataFrame, topic: pl.DataFrame | None, analysis: Analysis) -> Estimate | None:
    """Return the AUROC of a trained method minus that of the topic alone, on the same answers."""
    if topic is None or scores["method"][0] == TOPIC or not is_trained(scores):
        return None
    return _estimate(auroc_difference(*_aligned([scores, topic])), analysis)


def _of_method(
    scores: pl.DataFrame,
    run: tuple[str | None, str | None],
    variants: Mapping[str | None, pl.DataFrame],
    topic: pl.DataFrame | None,
    analysis: Analysis,
) -> MethodSummary:
    score, right = graded(scores)
    variant = scores["variant"][0]
    by_variant = {name: rows for name, rows in variants.items() if variant is None or name == variant}
    area = stats.auroc(score, right)
    brier = stats.brier_score(score, right)
    return MethodSummary(
        *run,
        method=scores["method"][0],
        variant=variant,
        scored_pass=scores["pass"][0],
        is_trained=is_trained(scores),
        asked=len({question for rows in by_variant.values() for question in rows["question_id"]}),
        questions=score.size,
        without_score=scores["confidence"].null_count(),
        without_grade=scores.filter(pl.col("confidence").is_not_null() & pl.col("wrong").is_null()).height,
        accuracy=_mean(right),
        auroc=_estimate(area, analysis),
        ece=stats.expected_calibration_error(score, right).estimate,
        rms_calibration_error=stats.rms_calibration_error(score, right).estimate,
        smooth_ece=stats.smooth_calibration_error(score, right).estimate,
        brier=_estimate(brier, analysis),
        miscalibration=brier.miscalibration,
        discrimination=brier.discrimination,
        uncertainty=brier.uncertainty,
        aurc=stats.aurc(score, right).estimate,
        prr=stats.prediction_rejection_ratio(score, right).estimate,
        targets={
            f"{target:g}": _estimate(stats.value_at_target(score < target, ~right, target), analysis)
            for target in TARGETS
        },
        against=tuple(_against(scores, name, rows, analysis) for name, rows in by_variant.items()),
        over_topic=_over_topic(scores, topic, analysis),
    )


def _estimate(result: ResultWithInterval, analysis: Analysis) -> Estimate:
    return Estimate.of(result, result.confidence_interval(analysis.confidence_level))


def _against(scores: pl.DataFrame, variant: str | None, outcomes: pl.DataFrame, analysis: Analysis) -> AgainstRefusals:
    passes = outcomes.drop_nulls("refused").select("question_id", "refused", own="wrong")
    both = usable(scores).join(passes, on="question_id", maintain_order="left")
    comparison = stats.compare_with_refusals(*(both[name].to_numpy() for name in ("confidence", "refused", "wrong")))
    index, error_rate = (
        Difference(difference.score, difference.refusals, _estimate(difference, analysis))
        for difference in (comparison.refusal_index, comparison.answered_error_rate)
    )
    graded_rows = both.drop_nulls("own")
    return AgainstRefusals(
        variant,
        questions=both.height,
        refused=int(both["refused"].sum()),
        accuracy=_mean(~graded_rows["wrong"].to_numpy()),
        own_accuracy=_mean(~graded_rows["own"].to_numpy()),
        verdict=_verdict(index.difference, error_rate.difference),
        refusal_index=index,
        answered_error_rate=error_rate,
    )


def _mean(right: NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if right.size else None


def _verdict(index: Estimate, error_rate: Estimate) -> Verdict:
    """Return the verdict by the first difference with an interval; a higher RI and a lower error rate are better."""
    for difference, better in ((index, 1), (error_rate, -1)):
        if difference.low is not None and difference.high is not None:
            low, high = sorted((better * difference.low, better * difference.high))
            return "better" if low > 0 else "worse" if high < 0 else "not_told_apart"
    return "undefined"


@dataclass(frozen=True)
class ScoreComparison:
    """One measure of one method, compared between two runs.

    Attributes
    ----------
    measure
        ``"auroc"`` or ``"brier"``.
    method, variant, of
        Origin of the scores: see `MethodSummary`.
    paired
        Whether the comparison is paired on the questions that both runs scored; otherwise the runs are independent.
    questions
        Number of questions of the first run and of the second.
    first, second
        The measure in each run.
    difference
        The first minus the second, with its interval.
    """

    measure: str
    method: str
    variant: str | None
    scored_pass: str | None
    paired: bool
    questions: tuple[int, int]
    first: float | None
    second: float | None
    difference: Estimate


def compare_confidence(
    first: RunResults, second: RunResults, analysis: Analysis = DEFAULT_ANALYSIS
) -> tuple[ScoreComparison, ...]:
    """Compare two runs by the methods that scored answers in both.

    Parameters
    ----------
    first, second
        The runs.
    analysis
        How to compare them. If it names a variant, only scores of it and those that apply to all variants are compared.
    """
    if first.confidence is None or second.confidence is None:
        return ()
    first_scores = scores_by_method(first.confidence)
    second_scores = scores_by_method(second.confidence)
    variant = analysis.variant
    shared = [key for key in first_scores if key in second_scores and (variant is None or key[1] in (None, variant))]
    return tuple(
        comparison for key in shared for comparison in _compared(key, first_scores[key], second_scores[key], analysis)
    )


def _compared(
    key: tuple[str, str | None, str | None], first: pl.DataFrame, second: pl.DataFrame, analysis: Analysis
) -> Iterator[ScoreComparison]:
    first_rows, second_rows, paired = _matched(first, second)
    sides = (graded(first_rows), graded(second_rows))
    sizes = (first_rows.height, second_rows.height)
    for measure, results, influences in (
        ("auroc", [stats.auroc(*side) for side in sides], [auroc_influence(*side) for side in sides]),
        ("brier", [stats.brier_score(*side) for side in sides], [_brier_influence(*side) for side in sides]),
    ):
        padded = np.pad(influences[0], (0, sizes[1])), np.pad(influences[1], (sizes[0], 0))  # no two are the same
        difference = difference_of(results, influences if paired else padded, analysis)
        yield ScoreComparison(measure, *key, paired, sizes, results[0].estimate, results[1].estimate, difference)


def _matched(first: pl.DataFrame, second: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, bool]:
    """Return the rows of questions that both runs scored and graded, in the same order, and True.

    If these are less than half of the smaller run, return all rows and False, as in comparisons of outcomes.
    """
    first_rows, second_rows = (usable(scores).sort("question_id") for scores in (first, second))
    first_shared = first_rows.join(second_rows, on="question_id", how="semi", maintain_order="left")
    second_shared = second_rows.join(first_rows, on="question_id", how="semi", maintain_order="left")
    if first_shared.height and 2 * first_shared.height >= min(first_rows.height, second_rows.height):
        return first_shared, second_shared, True
    return first_rows, second_rows, False


def _brier_influence(score: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    losses = (score - right) ** 2
    return np.asarray((losses - losses.mean()) / losses.size) if losses.size else losses
