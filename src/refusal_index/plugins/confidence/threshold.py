"""Refuse by a confidence score: choose a cut on one half of the questions and evaluate it on the other half.

If several methods are possible, one is chosen too. With a limit on the error rate, the half that evaluates the cut
chooses the method, and the cut is tested on questions that played no part in this choice. With a penalty, one half
chooses method and cut, and the other half, which chose nothing, evaluates them.

The cut, the model's own refusals and answering everything are compared on the same questions and the same answers, so
that only the decision which questions to answer differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.files import plain
from refusal_index.data.outcome_table import ConfidenceError, write_outcomes
from refusal_index.data.rates import first_draws, matched_design
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.metrics import Printable, Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.saving import write_rule
from refusal_index.plugins.confidence.scored_answers import (
    ScoredAnswers,
    all_scored_answers,
    questions_of,
    rule_of,
    virtual_run,
)
from refusal_index.plugins.confidence.section import estimate_cells
from refusal_index.plugins.confidence.selection import (
    ComparedMethod,
    best_candidate,
    compared_on,
    trained_on,
    with_one_calibration,
)
from refusal_index.render.format import Block, Table, abbreviated, estimate, number, percent, to_html, to_text
from refusal_index.render.sentences import add_sentences, sentence
from refusal_index.runs.gate import compared_runs
from refusal_index.stats import Estimate

BOUND_LEVEL = 0.9
"""Default confidence level of the bound on the error rate."""

INTERVAL_LEVEL = 0.95
"""Default confidence level of the intervals."""

CUTS = 20
"""Number of quantiles of the other half's scores that are tried as cuts."""

PRICE = 1.0
"""Default cost of a wrong answer, in right answers, of utilities reported with a bound on the error rate."""


@dataclass(frozen=True)
class ThresholdOptions:
    """The scores to use and the criterion for choosing a cut; exactly one of `penalty` and `max_error` is given.

    Attributes
    ----------
    method
        The method of the scores; with several, or None for all, one of them is chosen.
    variant
        The variant of the scores, if they differ between variants.
    penalty
        Choose the cut with the highest utility if a wrong answer costs this many right ones.
    max_error
        Choose the lowest cut at which the error rate of the answers does not exceed this.
    confidence_level
        Confidence level of the bound and of the intervals; None for `BOUND_LEVEL` and `INTERVAL_LEVEL`.
    seed
        Seed of the split into halves.
    prompts
        The file of the run's prompt set, unless it is a set of this package; needed to train methods on one half.
    """

    method: str | Sequence[str] | None = None
    variant: str | None = None
    penalty: float | None = None
    max_error: float | None = None
    confidence_level: float | None = None
    seed: int = 0
    prompts: str | None = None

    def __post_init__(self) -> None:
        names = [name for name in ("penalty", "max_error") if getattr(self, name) is not None]
        if len(names) != 1:
            raise ConfidenceError(
                f"expected penalty or max_error, got {' and '.join(names) or 'neither'}; set one: penalty maximises "
                "the utility, given the cost of a wrong answer, and max_error limits the share of wrong answers"
            )
        if self.penalty is not None and not 0 <= self.penalty < math.inf:
            raise ConfidenceError(
                f"penalty: expected a number from 0, got {self.penalty}; it is what a wrong answer costs"
            )
        for name in ("max_error", "confidence_level"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ConfidenceError(
                    f"{name}: expected a number above 0 and below 1, got {value}; is it a percentage?"
                )

    @property
    def methods(self) -> tuple[str, ...]:
        """The named methods; empty for all."""
        return (self.method,) if isinstance(self.method, str) else tuple(self.method or ())

    @property
    def bound_level(self) -> float:
        """Confidence level of the bound."""
        return BOUND_LEVEL if self.confidence_level is None else self.confidence_level

    @property
    def interval_level(self) -> float:
        """Confidence level of the intervals."""
        return INTERVAL_LEVEL if self.confidence_level is None else self.confidence_level

    @property
    def price(self) -> float:
        """Cost of a wrong answer in the reported utilities."""
        return PRICE if self.penalty is None else self.penalty


Kind = Literal["score", "refusals", "answer_all"]


@dataclass(frozen=True)
class Worth:
    """The results of a rule for refusing, or the differences between two rules."""

    coverage: Estimate  # share of the questions answered
    error_rate: Estimate  # share of errors among the answered
    utility: Estimate  # mean per question: 1 for a right answer, minus the penalty for a wrong one, 0 for a refusal


@dataclass(frozen=True)
class RuleResult:
    """The results of one rule for refusing.

    Attributes
    ----------
    kind, variant
        The score's cut, the model's refusals under a variant, or answering everything.
    questions
        Number of questions.
    coverage, error_rate, utility
        The results of the rule, as in `Worth`.
    difference
        Results of the cut minus those of this rule, paired on the same questions; None for the cut itself, without a
        cut, or if both answer the same questions.
    """

    kind: Kind
    variant: str | None
    questions: int
    coverage: Estimate
    error_rate: Estimate
    utility: Estimate
    difference: Worth | None = None


class Halves(NamedTuple):
    """Question ids of two disjoint halves; questions of one cluster are in the same half."""

    first: frozenset[str]
    second: frozenset[str]


@dataclass(frozen=True, repr=False)
class Threshold(Printable):
    """A cut of a score, and its results on the half of the questions that was not used to choose it.

    Attributes
    ----------
    run, answers
        The run, and its answers with their scores.
    options
        The criterion for choosing the cut.
    halves
        The questions used to choose the cut, and the others.
    selected
        The chosen cut. If no cut meets the criterion, its status is ``"undefined"``.
    points
        Results on the other half: of the cut, if there is one, of the model's own refusals under each variant, and of
        answering everything.
    table
        The outcome table of the other half for a model that refuses below the cut; None without a cut.
    candidates
        The methods among which one was chosen; empty if there was only one. They were compared on the half that did
        not set the cut if the error rate is limited, else on the half that set it.
    """

    run: RunResults
    answers: ScoredAnswers
    options: ThresholdOptions
    halves: Halves
    selected: stats.UtilityThreshold | stats.RiskThreshold
    points: tuple[RuleResult, ...]
    table: pl.DataFrame | None
    candidates: tuple[ComparedMethod, ...] = ()

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Statements about the choice, its caveats, and the results of the cut on the other half."""
        tables = self.run.tables.values()
        clusters = pl.concat([table["cluster"] for table in tables]).drop_nulls().n_unique()
        weighted = any(table["weight"].null_count() < table.height for table in tables)
        bounded = isinstance(self.selected, stats.RiskThreshold)
        missing = {"no_score": self.answers.without_score, "no_grade": self.answers.without_grade}
        unanswerable = self._unscored_unanswerable
        same = [
            self.name(point) for point in self.points[1:] if self.rule and point.questions and point.difference is None
        ]
        compared = any(point.difference is not None for point in self.points)
        scale = {"level": self.options.interval_level, "price": self.options.price}
        is_trained = self.answers.is_trained
        on_half = self.answers.is_trained_on_half
        is_adapted = bool(self.candidates) or self.answers.calibration is not None
        trained = {**self._named, "bounded": bounded, "reason": self.answers.not_trained}
        values = {**self._named, **missing, "replies": self.answers.rows.height}
        adapted = {**self._named, "chosen": bool(self.candidates)}
        return (
            self._bound(self.selected)
            if isinstance(self.selected, stats.RiskThreshold)
            else self._choice(self.selected),
            *([self._selection()] if self.candidates else []),
            *([Statement("scores_left_out", values=values)] if any(missing.values()) else []),
            *([Statement("unanswerable_left_out", "serious", unanswerable)] if unanswerable["questions"] else []),
            *([Statement("trained_on_both_halves", "serious", trained)] if is_trained and not on_half else []),
            *([Statement("trained_on_half", "scope", trained)] if on_half else []),
            *([Statement("clusters_in_bound", "serious", {"clusters": clusters})] if clusters and bounded else []),
            *([Statement("cut_ignores_weights")] if weighted else []),
            *([Statement("judged_where_chosen", "serious", adapted)] if is_adapted and bounded and self.rule else []),
            Statement("judged_on_other_half", "scope", scale),
            *([Statement("same_as_cut", values={**self._named, "others": same})] if same else []),
            *([Statement("cut_less_others", "scope", self._named)] if compared else []),
            *([self._utility_statement()] if compared and not bounded else []),
        )

    def __str__(self) -> str:
        return to_text(threshold_blocks(self))

    def _repr_html_(self) -> str:
        return to_html(threshold_blocks(self))

    @property
    def _unscored_unanswerable(self) -> dict[str, int]:
        """Number of refused questions without a right answer and without a score, since they are never forced.

        Also, with those of the other half counted as wrong, the number of errors there if everything were answered.
        """
        tables = (table.filter("refused", ~pl.col("answerable")) for table in self.run.tables.values())
        refused = pl.concat([table.select("question_id") for table in tables]).unique()
        unscored = refused.join(self.answers.usable, on="question_id", how="anti")
        is_on_other_half = pl.col("question_id").is_in(list(self.halves.second))
        scored, added = (rows.filter(is_on_other_half) for rows in (self.answers.usable, unscored))
        wrong = int(scored["wrong"].sum()) + added.height
        return {"questions": unscored.height, "wrong": wrong, "answered": scored.height + added.height}

    def _selection(self) -> Statement:
        """State among which methods the method was chosen, by what, and which were left out."""
        considered = [candidate for candidate in self.candidates if candidate.left_out is None]
        return Statement(
            "method_chosen",
            "conclusion",
            {
                **self._named,
                "count": len(considered),
                "variants": any(candidate.answers.variant for candidate in considered),
                "questions": self.sizes[0 if self.options.max_error is None else 1],
                "by_utility": self.options.max_error is None,
                "left_out": [
                    ([one.answers.name for one in self.candidates if one.left_out == reason], reason)
                    for reason in dict.fromkeys(one.left_out for one in self.candidates if one.left_out is not None)
                ],
            },
        )

    @property
    def _named(self) -> dict[str, Any]:
        return {"name": self.answers.name, "rule": self.rule}

    def name(self, point: RuleResult) -> Statement:
        """Return the statement that names a rule for refusing."""
        return Statement("way_to_refuse", "scope", {"kind": point.kind, "variant": point.variant, "rule": self.rule})

    def _choice(self, chosen: stats.UtilityThreshold) -> Statement:
        return Statement(
            "utility_cut",
            "conclusion",
            {
                **self._named,
                "reason": chosen.reason,
                "penalty": chosen.penalty,
                "utility": chosen.utility,
                "first": self.sizes[0],
                "second": self.sizes[1],
            },
        )

    def _bound(self, bound: stats.RiskThreshold) -> Statement:
        values = {
            **self._named,
            "level": self.options.bound_level,
            "max_error": bound.max_error,
            "chosen": bool(self.candidates),
        }
        if bound.cut is not None:
            return Statement("error_bound", "conclusion", {**values, "seen": self.points[0].error_rate})
        if bound.reason == "too_few_questions":
            return Statement("too_few_for_bound", "conclusion", {**values, "questions": self.sizes[0]})
        first = bound.tested[0]
        values |= {
            "rule": rule_of(self.answers, first.cut),
            "errors": first.n_errors,
            "answered": first.n_answered,
            "upper": first.upper_bound,
        }
        return Statement("no_error_bound", "conclusion", values)

    def _utility_statement(self) -> Statement:
        """State which rules have a lower or higher utility than the cut, by the intervals of the differences."""
        by_verdict: dict[str, list[Statement]] = {"more": [], "less": [], "open": []}
        for point in self.points:
            if point.difference is not None:
                utility = point.difference.utility
                more = (utility.low or 0) > 0
                less = (utility.high or 0) < 0
                by_verdict["more" if more else "less" if less else "open"].append(self.name(point))
        return Statement("cut_worth", "conclusion", by_verdict)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of answers with a score and a grade in each half."""
        usable = self.answers.usable["question_id"]
        first, second = (int(usable.is_in(list(half)).sum()) for half in self.halves)
        return first, second

    @property
    def rule(self) -> str | None:
        """The rule as text, such as ``likelihood >= 0.62``; None without a cut."""
        return None if self.selected.cut is None else rule_of(self.answers, self.selected.cut)

    def write(self, path: str | Path) -> Path:
        """Write the outcome table in the format that the suffix selects, and return its path.

        Raises
        ------
        ConfidenceError
            If there is no cut.
        OutcomeTableError
            If the suffix is unknown.
        """
        if self.table is None:
            raise ConfidenceError(
                f"there is no threshold, so there is no outcome table to write ({self.selected.reason})"
            )
        write_outcomes(self.table, path)
        return Path(path)

    def save_rule(self, path: str | Path) -> Path:
        """Write method, calibration and threshold as a JSON file for `refusal_index.load_rule`, and return its path.

        Raises
        ------
        ConfidenceError
            If the score is computed from more than a reply and its log probabilities, or there is no threshold.
        RunFolderError
            If the scores are not those of a run's folder.
        """
        write_rule(Path(path), self.run, self.answers, self.to_document())
        return Path(path)

    def to_frame(self) -> pl.DataFrame:
        """Return `points` as a table, one row for each point and measure, with estimates and differences."""
        rows = []
        for point in self.points:
            for name in MEASURES:
                measure, apart = (getattr(source, name, UNKNOWN) for source in (point, point.difference))
                numbers = (measure.estimate, measure.low, measure.high, apart.estimate, apart.low, apart.high)
                rows.append((point.kind, point.variant, point.questions, name, *numbers))
        return pl.DataFrame(rows, schema=FRAME, orient="row")

    def to_document(self) -> dict[str, Any]:
        """Return all results as a JSON-serialisable dict, unrounded; a cut that is not finite becomes null."""
        result = self.selected
        options = self.options
        document = {
            "model": self.run.model_id,
            "dataset": self.run.dataset_id,
            "method": self.answers.method,
            "variant": self.answers.variant,
            "penalty": options.penalty,
            "max_error": options.max_error,
            "bound_level": options.bound_level if options.max_error is not None else None,
            "confidence_level": options.interval_level,
            "seed": options.seed,
            "status": result.status,
            "reason": result.reason,
            "cut": result.cut,
            "rule": self.rule,
            "chosen_on": self.sizes[0],
            "judged_on": self.sizes[1],
            "without_score": self.answers.without_score,
            "without_grade": self.answers.without_grade,
            "tested": result.tested if isinstance(result, stats.RiskThreshold) else None,
            "points": self.points,
            "candidates": [candidate.to_document() for candidate in self.candidates],
        }
        return {name: plain(value) for name, value in document.items()}


def find_threshold(run: RunResults, options: ThresholdOptions) -> Threshold:
    """Choose a cut of a score on half of a run's questions, and evaluate it on the other half.

    The halves depend only on the run's questions and the seed, not on the method. Choosing by utility uses nothing of
    the other half. Choosing by error rate uses its scores, whose quantiles are the candidate cuts, and its grades to
    choose the method if there are several. Trained methods are trained on the grades of the same half.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If the requested scores do not exist or are all equal; if all answers are right or all are wrong; if a half has
        no answer with a score and a grade; or if no method can be chosen.
    """
    methods = all_scored_answers(run, options.methods, options.variant)
    if len(methods) == 1:
        _check(methods[0])
    halves = halves_of(questions_of(run), options.seed)
    choosing = halves.first if options.max_error is None else halves.second
    methods = tuple(trained_on(run, methods, choosing, options.prompts))
    compared = () if len(methods) == 1 else compared_on(methods, choosing, options.penalty)
    best = best_candidate(compared).answers if compared else methods[0]
    answers = with_one_calibration(run, best, choosing, options.prompts)
    _check(answers)
    first, second = (answers.usable.filter(pl.col("question_id").is_in(list(half))) for half in halves)
    if first.is_empty() or second.is_empty():
        raise ConfidenceError(
            f"{answers.name}: expected answers with a score and a grade in both halves of the questions, got "
            f"{answers.usable.height:,} in total and none in one half; score more answers"
        )
    score = first["confidence"].to_numpy()
    wrong = first["wrong"].to_numpy()
    chosen: stats.UtilityThreshold | stats.RiskThreshold
    if options.max_error is None:
        chosen = stats.utility_threshold(score, ~wrong, options.price)
    else:
        grid = np.quantile(second["confidence"].to_numpy(), np.arange(CUTS) / CUTS, method="inverted_cdf")
        chosen = stats.risk_controlling_threshold(
            score, wrong, options.max_error, grid=grid, confidence_level=options.bound_level
        )
    points = operating_points(second, chosen.cut, run.tables, options)
    table = None if chosen.cut is None else virtual_run(run, answers, chosen.cut, halves.second)
    return Threshold(run, answers, options, halves, chosen, tuple(points), table, compared)


def _check(answers: ScoredAnswers) -> None:
    name = answers.name
    usable = answers.usable
    n = answers.usable.height
    if not n:
        raise ConfidenceError(
            f"{name}: expected answers with a score and a grade, got none: no score in {answers.without_score:,} of "
            f"{answers.rows.height:,} replies; try another method"
        )
    if usable["confidence"].n_unique() == 1:
        raise ConfidenceError(
            f"{name}: expected scores that differ, got {usable['confidence'][0]:g} for all {n:,} answers, which no "
            "threshold can separate; try another method"
        )
    if usable["wrong"].n_unique() == 1:
        raise ConfidenceError(
            f"{name}: expected right and wrong answers, got {n:,} that are all "
            f"{'wrong' if usable['wrong'][0] else 'right'}: there is nothing for a threshold to separate"
        )


MEASURES = ("coverage", "error_rate", "utility")
UNKNOWN = Estimate(None, status="undefined")

FRAME = {
    **dict.fromkeys(("kind", "variant"), pl.String),
    "questions": pl.Int64,
    "measure": pl.String,
    **dict.fromkeys(("estimate", "low", "high", "difference", "difference_low", "difference_high"), pl.Float64),
}
"""Columns of `Threshold.to_frame`."""


def operating_points(
    answers: pl.DataFrame,
    cut: float | None,
    outcomes: Mapping[str | None, pl.DataFrame],
    options: ThresholdOptions,
) -> Iterator[RuleResult]:
    """Yield the results of the score's cut, if there is one, of the refusals of each variant, and of answering all.

    - `answers`: columns `question_id`, `confidence` and `wrong` without nulls, of questions not used to choose the cut.
    - `cut`: answers with a score below it are refused.
    - `outcomes`: outcome tables by variant; questions whose first pass has no grade are left out of the variant.
    - `options`: cost of a wrong answer, and confidence level of the intervals.
    """
    refused = pl.lit(None, pl.Boolean) if cut is None else pl.col("confidence") < cut
    rows = answers.select("question_id", "wrong", by_score=refused)
    firsts = {variant: first_draws(table) for variant, table in outcomes.items()}
    sampled = _Sampled(list(firsts.values()), options)
    if cut is not None:
        yield RuleResult("score", None, rows.height, **vars(sampled.measures_of(rows, "by_score")))
    for variant, first in firsts.items():
        refusals = first.drop_nulls("refused").select("question_id", "refused")
        yield sampled.point("refusals", variant, rows.join(refusals, on="question_id", maintain_order="left"))
    if cut != -math.inf:
        yield sampled.point("answer_all", None, rows.with_columns(refused=pl.lit(value=False)))


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Computes results with clusters and weights from the given tables."""

    tables: Sequence[pl.DataFrame]
    options: ThresholdOptions

    def point(self, kind: Kind, variant: str | None, rows: pl.DataFrame) -> RuleResult:
        has_cut = rows["by_score"].null_count() == 0 and not rows.is_empty()
        difference = None if not has_cut or (rows["by_score"] == rows["refused"]).all() else self._difference(rows)
        return RuleResult(kind, variant, rows.height, **vars(self.measures_of(rows, "refused")), difference=difference)

    def measures_of(self, rows: pl.DataFrame, name: str) -> Worth:
        """Return the results of refusing by a Boolean column; intervals account for clusters and weights."""
        refused = rows[name].to_numpy()
        wrong = rows["wrong"].to_numpy()
        design = matched_design(self.tables, rows.select("question_id"))
        if not design:
            answered = (~refused).astype(float)
            report = stats.selective_report(
                answered, ~wrong, 0.5, penalty=self.options.price, confidence_level=self.options.interval_level
            )
            return Worth(report.coverage, report.error_rate, report.utility)
        table = stats.SampledTable.from_arrays(refused, wrong, **design)
        metrics = stats.metrics(table, weighted_score_p=self._p, confidence_level=self.options.interval_level)
        return self._of_metrics({metric.name: metric for metric in metrics}.__getitem__, shift=1.0)

    def _difference(self, rows: pl.DataFrame) -> Worth:
        wrong = rows["wrong"].to_numpy()
        refused = np.stack([rows["by_score"].to_numpy(), rows["refused"].to_numpy()])
        design = matched_design(self.tables, rows.select("question_id"))
        comparison = stats.compare_metrics(refused, np.stack([wrong, wrong]), weighted_score_p=self._p, **design)
        level = self.options.interval_level
        return self._of_metrics(lambda name: Estimate.of(comparison[name], comparison[name].confidence_interval(level)))

    @property
    def _p(self) -> float:
        """The p at which the weighted score times one plus the penalty is the utility."""
        return self.options.price / (1 + self.options.price)

    def _of_metrics(self, metric: Callable[[str], Estimate], shift: float = 0.0) -> Worth:
        """Convert metrics to coverage, error rate and utility; a share is `shift` minus the complementary share."""
        return Worth(
            _scaled(metric("refusal_rate"), -1, shift),
            _scaled(metric("correct_given_attempted"), -1, shift),
            _scaled(metric("weighted_score"), 1 + self.options.price),
        )


def _scaled(original: Estimate, factor: float, shift: float = 0.0) -> Estimate:
    """Return the estimate and its interval, multiplied by `factor` and shifted."""
    ends = sorted(shift + factor * end for end in (original.low, original.high) if end is not None)
    low, high = ends if len(ends) == 2 else (None, None)
    estimate = None if original.estimate is None else shift + factor * original.estimate
    return replace(original, estimate=estimate, low=low, high=high, name="")


def halves_of(questions: pl.DataFrame, seed: int) -> Halves:
    """Split questions at random into halves; clusters are kept whole, so the halves may differ in size.

    The split does not depend on the order of the questions. Raises OutcomeTableError if there is only one cluster, or
    only one question.

    - `questions`: columns `question_id`, each id once, and `cluster`, null if questions are independent.

    >>> questions = pl.DataFrame({"question_id": ["a", "b", "c", "d"], "cluster": ["x", "x", "y", "y"]})
    >>> sorted(map(sorted, (halves_of(questions, seed=0).first, halves_of(questions, seed=0).second)))
    [['a', 'b'], ['c', 'd']]
    """
    clustered = bool(questions["cluster"].null_count() < questions.height)
    unit = questions["cluster" if clustered else "question_id"]
    sizes = unit.value_counts(name="questions").sort(unit.name)
    if sizes.height < 2:
        raise OutcomeTableError(
            f"expected two {'clusters' if clustered else 'questions'} or more to split into halves, got "
            f"{sizes.height}; a threshold is chosen on one half and evaluated on the other"
        )
    order = np.random.default_rng(seed).permutation(sizes.height)
    shuffled = sizes[order.tolist()]
    after = shuffled["questions"].cum_sum().to_numpy()[:-1]
    taken = int(np.argmin(abs(after - questions.height / 2))) + 1
    in_first = unit.is_in(shuffled[unit.name][:taken].implode())
    ids = questions["question_id"]
    return Halves(frozenset(ids.filter(in_first)), frozenset(ids.filter(~in_first)))


MAX_RULE_LENGTH = 30  # characters on the first screen

POINT_COLUMNS = ("n", "answered", "interval", "wrong when answering", "interval ", "utility", "interval  ")


def threshold_screen(result: Threshold) -> Iterator[Block]:
    """Yield the choice, its caveats and a table with a row for each rule for refusing, within 80 columns."""
    for statement in result.statements:
        if statement.severity in ("conclusion", "serious") or statement.code == "scores_left_out":
            yield f"{'Caveat: ' if statement.severity == 'serious' else ''}{sentence(statement)}"
    rows = (
        (
            abbreviated(sentence(result.name(point)), MAX_RULE_LENGTH),
            *(percent(share.estimate, 0) for share in (point.coverage, point.error_rate)),
            number(point.utility.estimate, 2),
            "" if point.difference is None else estimate(point.difference.utility, 2),
        )
        for point in result.points
    )
    yield from (
        "",
        Table.from_rows(("refusing by", "answered", "wrong", "utility", "gain"), rows, left=("refusing by",)),
        "",
    )
    yield sentence(
        Statement(
            "threshold_scale",
            "scope",
            {
                "questions": result.sizes[1],
                "price": result.options.price,
                "level": result.options.interval_level,
                "difference": any(point.difference is not None for point in result.points),
            },
        )
    )
    yield "Add --full for all intervals and differences."


def threshold_blocks(result: Threshold) -> Iterator[Block]:
    """Yield the choice, its caveats, and tables of all results on the other half."""
    tables: dict[str, tuple[str, list[tuple[RuleResult, RuleResult | Worth]]]] = {
        "judged_on_other_half": ("", [(point, point) for point in result.points]),
        "cut_less_others": ("difference", [(point, point.difference) for point in result.points if point.difference]),
    }
    for index, statement in enumerate(result.statements):
        yield from [""] * bool(index)
        yield sentence(statement)
        if statement.code == "method_chosen":
            yield from ("", _candidates_table(result))
        if statement.code in tables:
            heading, points = tables[statement.code]
            rows = (
                (
                    sentence(result.name(point)),
                    f"{point.questions:,}",
                    *chain.from_iterable(estimate_cells(getattr(measures, name)) for name in MEASURES),
                )
                for point, measures in points
            )
            yield from ("", Table.from_rows((heading, *POINT_COLUMNS), rows, left=(heading,)))


def _candidates_table(result: Threshold) -> Table:
    """Return the table of the methods among which one was chosen."""
    by_utility = result.options.max_error is None
    rows = (
        (
            candidate.answers.name,
            f"{candidate.questions:,}",
            number(candidate.auroc),
            *([number(candidate.utility)] if by_utility else []),
        )
        for candidate in result.candidates
    )
    columns = ("method", "answers", "AUROC", *(["highest utility"] if by_utility else []))
    return Table.from_rows(columns, rows, left=("method",))


add_sentences(__package__)


def threshold(
    run: RunResults | str | Path,
    method: str | Sequence[str] | None = None,
    *,
    penalty: float | None = None,
    max_error: float | None = None,
    **options: Any,
) -> Threshold:
    """Choose the score from which to answer on one half of the questions, and evaluate it on the other half.

    Exactly one of `penalty` and `max_error` is required.

    Parameters
    ----------
    run
        A run with scores in its folder, such a folder, or an outcome table with a column ``confidence``.
    method
        Method of the scores, as named by ``refusal-index confidence``. If several are named, or none, one is chosen: by
        AUROC on the half of the questions that does not set the threshold with `max_error`, or together with the
        threshold with `penalty`. Name one only if you did not choose it by these grades.
    penalty
        Choose the threshold with the highest utility if a wrong answer costs this many right ones.
    max_error
        Choose the threshold that answers most with an error rate of at most this.
    options
        Other fields of `refusal_index.plugins.confidence.threshold.ThresholdOptions`: ``variant``,
        ``confidence_level``, ``seed``, ``prompts``.

    Returns
    -------
    Threshold
        ``found`` is the chosen threshold; ``points`` compares it with the model's own refusals on the other half of the
        questions; ``table`` is the outcome table of a run that refuses all answers below it. If no threshold
        meets the condition, ``selected.status`` is ``"undefined"`` and there is no table.

    Raises
    ------
    RefusalIndexError
        If the scores do not exist, or cannot separate right answers from wrong ones.

    References
    ----------
    Angelopoulos et al. (2021). Learn then Test: calibrating predictive algorithms to achieve risk control.
    :arxiv:`2110.01052`. Chow (1970). On optimum recognition error and reject tradeoff. :doi:`10.1109/TIT.1970.1054406`
    """
    compared = compared_runs([run], DEFAULT_ANALYSIS)
    if len(compared) != 1:
        raise SettingError(f"threshold: expected a run of one model and dataset, got {len(compared)}")
    return find_threshold(compared[0], ThresholdOptions(method, penalty=penalty, max_error=max_error, **options))
