"""From a score to refusals: a cut chosen on one half of the questions and judged on the other.

The cut, the model's own refusals and answering all are compared over the same questions and the same answers, so that
nothing but the choice of what to answer differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.folder import ComparedRun
from refusal_index.data.outcome_table import ConfidenceError, write_outcomes
from refusal_index.data.rates import first_draws, matched_design
from refusal_index.findings.comparison import CompareOptions
from refusal_index.findings.metrics import Shown, Statement
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.scored_answers import (
    ScoredAnswers,
    questions_of,
    rule_of,
    scored_answers,
    virtual_run,
)
from refusal_index.render.format import Block, Table, abbreviated, estimate, interval_of, number, percent, shows
from refusal_index.render.sentences import add_sentences, sentence
from refusal_index.runs.gate import compared_runs
from refusal_index.runs.writing import Run
from refusal_index.stats import Estimate

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
                raise ConfidenceError(
                    f"{name}: expected a number above 0 and below 1, got {value}; is it a percentage?"
                )

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


Kind = Literal["score", "refusals", "answer_all"]


class Worth(NamedTuple):
    """What a way to refuse gives, or by how much one exceeds another."""

    coverage: Estimate  # share of the questions answered
    error_rate: Estimate  # share of errors among the answered
    utility: Estimate  # of a question: a right answer is worth 1, a wrong one minus the penalty, a refusal 0

    def to_document(self) -> dict[str, Any]:
        """Give all three as JSON holds them."""
        return {name: one.to_document() for name, one in self._asdict().items()}


@dataclass(frozen=True)
class OperatingPoint:
    """One way to refuse over the questions that it can be seen on.

    Attributes
    ----------
    kind, variant
        The score's cut, the model's refusals under a variant, or answering all.
    questions
        How many there are.
    worth
        What it gives.
    difference
        What the score's cut gives less this, over the same questions, paired; None of the cut itself, without one, and
        where both answer the same questions.
    same_as_cut
        Whether both answer the same questions.
    """

    kind: Kind
    variant: str | None
    questions: int
    worth: Worth
    difference: Worth | None = None
    same_as_cut: bool = False

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON holds it."""
        return {
            "kind": self.kind,
            "variant": self.variant,
            "questions": self.questions,
            **self.worth.to_document(),
            "difference": None if self.difference is None else self.difference.to_document(),
        }


class Halves(NamedTuple):
    """Questions by id; none is in both, and questions of one cluster are in the same half."""

    first: frozenset[str]
    second: frozenset[str]


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
    found: stats.UtilityThreshold | stats.RiskThreshold
    points: tuple[OperatingPoint, ...]
    table: pl.DataFrame | None

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """What was chosen, what to know of it, and what the cut is worth on the other half."""
        known = self.run.variants.values()
        clusters = pl.concat([table["cluster"] for table in known]).drop_nulls().n_unique()
        weighted = any(table["weight"].null_count() < table.height for table in known)
        bounded = isinstance(self.found, stats.RiskThreshold)
        missing = {"no_score": self.answers.without_score, "no_grade": self.answers.without_grade}
        same = [self.name(one) for one in self.points if one.same_as_cut]
        compared = any(one.difference is not None for one in self.points)
        scale = {"level": self.options.interval_level, "price": self.options.price}
        values = {**self._named, **missing, "replies": self.answers.rows.height}
        return (
            self._bound(self.found) if isinstance(self.found, stats.RiskThreshold) else self._choice(self.found),
            *([Statement("scores_left_out", values=values)] if any(missing.values()) else []),
            *([Statement("trained_on_both_halves", "serious", self._named)] if self.answers.is_trained else []),
            *([Statement("clusters_in_bound", "serious", {"clusters": clusters})] if clusters and bounded else []),
            *([Statement("cut_ignores_weights")] if weighted else []),
            Statement("judged_on_other_half", "scope", scale),
            *([Statement("same_as_cut", values={**self._named, "others": same})] if same else []),
            *([Statement("cut_less_others", "scope", self._named)] if compared else []),
            *([self._worth()] if compared and not bounded else []),
        )

    @property
    def _named(self) -> dict[str, Any]:
        return {"name": self.answers.name, "rule": self.rule}

    def name(self, point: OperatingPoint) -> Statement:
        """Name a way to refuse."""
        return Statement("way_to_refuse", "scope", {"kind": point.kind, "variant": point.variant, "rule": self.rule})

    def _choice(self, found: stats.UtilityThreshold) -> Statement:
        first, second = self.sizes
        values = {"reason": found.reason, "penalty": found.penalty, "utility": found.utility}
        return Statement("utility_cut", "conclusion", {**self._named, **values, "first": first, "second": second})

    def _bound(self, found: stats.RiskThreshold) -> Statement:
        values = {**self._named, "level": self.options.bound_level, "max_error": found.max_error}
        if found.cut is not None:
            return Statement("error_bound", "conclusion", {**values, "seen": self.points[0].worth.error_rate})
        if found.reason == "too_few_questions":
            return Statement("too_few_for_bound", "conclusion", {**values, "questions": self.sizes[0]})
        first = found.tested[0]
        values |= {
            "rule": rule_of(self.answers, first.cut),
            "errors": first.n_errors,
            "answered": first.n_answered,
            "upper": first.upper_bound,
            "is_above": first.n_errors > found.max_error * first.n_answered,
        }
        return Statement("no_error_bound", "conclusion", values)

    def _worth(self) -> Statement:
        """Decide which ways to refuse are worth less than the cut, and which more, by intervals of the difference."""
        ways: dict[str, list[Statement]] = {"more": [], "less": [], "open": []}
        for one in self.points:
            if one.difference is not None:
                utility = one.difference.utility
                more, less = (utility.low or 0) > 0, (utility.high or 0) < 0
                ways["more" if more else "less" if less else "open"].append(self.name(one))
        return Statement("cut_worth", "conclusion", ways)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many scored and graded answers either half has."""
        usable = self.answers.usable["question_id"]
        first, second = (int(usable.is_in(list(half)).sum()) for half in self.halves)
        return first, second

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
        rows = []
        for point in self.points:
            for name, own, apart in zip(Worth._fields, point.worth, point.difference or (None,) * 3, strict=True):
                ends = (None, None, None) if apart is None else (apart.estimate, apart.low, apart.high)
                rows.append((point.kind, point.variant, point.questions, name, own.estimate, own.low, own.high, *ends))
        return pl.DataFrame(rows, schema=FRAME, orient="row")

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded; a cut that answers all or nothing is null, with its reason."""
        found, options = self.found, self.options
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
            "chosen_on": self.sizes[0],
            "judged_on": self.sizes[1],
            "without_score": self.answers.without_score,
            "without_grade": self.answers.without_grade,
            "tested": [asdict(one) for one in found.tested] if isinstance(found, stats.RiskThreshold) else None,
            "points": [one.to_document() for one in self.points],
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
    _check(answers)
    halves = halves_of(questions_of(run), options.seed)
    first, second = (usable.filter(pl.col("question_id").is_in(list(half))) for half in halves)
    if first.is_empty() or second.is_empty():
        raise ConfidenceError(
            f"{answers.name}: expected answers with a score and a grade in both halves of the questions, got "
            f"{usable.height:,} in all, and none in one half; score more answers"
        )
    score, wrong = first["confidence"].to_numpy(), first["wrong"].to_numpy()
    found: stats.UtilityThreshold | stats.RiskThreshold
    if options.max_error is None:
        found = stats.utility_threshold(score, ~wrong, options.price)
    else:
        grid = np.quantile(second["confidence"].to_numpy(), np.arange(CUTS) / CUTS, method="inverted_cdf")
        found = stats.risk_controlling_threshold(
            score, wrong, options.max_error, grid=grid, confidence_level=options.bound_level
        )
    points = operating_points(second, found.cut, run.variants, options.price, options.interval_level)
    table = None if found.cut is None else virtual_run(run, answers, found.cut, halves.second)
    return Threshold(run, answers, options, halves, found, tuple(points), table)


def _check(answers: ScoredAnswers) -> None:
    name, usable, n = answers.name, answers.usable, answers.usable.height
    if not n:
        raise ConfidenceError(
            f"{name}: expected answers with a score and a grade, got none: no score in {answers.without_score:,} of "
            f"{answers.rows.height:,} replies; try another method"
        )
    if usable["confidence"].n_unique() == 1:
        raise ConfidenceError(
            f"{name}: expected scores that differ, got {usable['confidence'][0]:g} for all {n:,} answers, where no cut "
            "tells any apart; try another method"
        )
    if usable["wrong"].n_unique() == 1:
        raise ConfidenceError(
            f"{name}: expected right and wrong answers, got {n:,} that are all "
            f"{'wrong' if usable['wrong'][0] else 'right'}: there is nothing for a cut to keep apart"
        )


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
    penalty: float,
    confidence_level: float,
) -> Iterator[OperatingPoint]:
    """Yield the score's cut, where there is one, the refusals of each variant, and answering all.

    - `answers`: columns `question_id`, `confidence` and `wrong`, none null, none of which the cut was chosen on.
    - `cut`: refuses what scores below.
    - `outcomes`: first passes by variant. A question without a grade of its first pass is left out there.
    - `penalty`: price of a wrong answer.
    - `confidence_level`: of every interval.
    """
    refused = pl.lit(None, pl.Boolean) if cut is None else pl.col("confidence") < cut
    rows = answers.select("question_id", "wrong", by_score=refused)
    firsts = {variant: first_draws(table) for variant, table in outcomes.items()}
    sampled = _Sampled(list(firsts.values()), penalty, confidence_level)
    if cut is not None:
        yield OperatingPoint("score", None, rows.height, sampled.worth(rows, "by_score"))
    for variant, first in firsts.items():
        known = first.drop_nulls("refused").select("question_id", "refused")
        yield sampled.point("refusals", variant, rows.join(known, on="question_id", maintain_order="left"))
    if cut != -math.inf:
        yield sampled.point("answer_all", None, rows.with_columns(refused=pl.lit(value=False)))


@dataclass(frozen=True, eq=False)
class _Sampled:
    """How numbers are made: of which tables clusters and weights come, at which penalty and level."""

    tables: Sequence[pl.DataFrame]
    penalty: float
    level: float

    def point(self, kind: Kind, variant: str | None, rows: pl.DataFrame) -> OperatingPoint:
        has_cut = rows["by_score"].null_count() == 0 and not rows.is_empty()
        same = has_cut and bool((rows["by_score"] == rows["refused"]).all())
        difference = self._difference(rows) if has_cut and not same else None
        return OperatingPoint(kind, variant, rows.height, self.worth(rows, "refused"), difference, same)

    def worth(self, rows: pl.DataFrame, name: str) -> Worth:
        """Give what refusing by a column is worth; with clusters or weights the intervals allow for them."""
        refused, wrong = rows[name].to_numpy(), rows["wrong"].to_numpy()
        design = matched_design(self.tables, rows.select("question_id"))
        if not design:
            answered = (~refused).astype(float)
            found = stats.selective_report(answered, ~wrong, 0.5, penalty=self.penalty, confidence_level=self.level)
            return Worth(found.coverage, found.error_rate, found.utility)
        table = stats.SampledTable.from_arrays(refused, wrong, **design)
        by_name = {one.name: one for one in stats.metrics(table, penalty=self._weighted, confidence_level=self.level)}
        return self._of_metrics(by_name.__getitem__, shift=1.0)

    def _difference(self, rows: pl.DataFrame) -> Worth:
        wrong = rows["wrong"].to_numpy()
        refused = np.stack([rows["by_score"].to_numpy(), rows["refused"].to_numpy()])
        design = matched_design(self.tables, rows.select("question_id"))
        found = stats.compare_metrics(refused, np.stack([wrong, wrong]), penalty=self._weighted, **design)
        return self._of_metrics(lambda name: Estimate.of(found[name], found[name].confidence_interval(self.level)))

    @property
    def _weighted(self) -> float:
        """The penalty of the weighted score, which is the utility over one more than its own penalty."""
        return self.penalty / (1 + self.penalty)

    def _of_metrics(self, found: Callable[[str], Estimate], shift: float = 0.0) -> Worth:
        """Take the stats.metrics behind coverage, error rate and utility; a share is `shift` less the other share."""
        return Worth(
            _scaled(found("refusal_rate"), -1, shift),
            _scaled(found("correct_given_attempted"), -1, shift),
            _scaled(found("weighted_score"), 1 + self.penalty),
        )


def _scaled(found: Estimate, factor: float, shift: float = 0.0) -> Estimate:
    """Return a number with its interval on another scale."""
    ends = sorted(shift + factor * end for end in (found.low, found.high) if end is not None)
    low, high = ends if len(ends) == 2 else (None, None)
    estimate = None if found.estimate is None else shift + factor * found.estimate
    return replace(found, estimate=estimate, low=low, high=high, name="")


def halves_of(questions: pl.DataFrame, seed: int) -> Halves:
    """Split questions at random, whatever their order; of clusters of different sizes, as near to halves as they allow.

    Raises OutcomeTableError if there is only one cluster, or one question.

    - `questions`: columns `question_id`, each id once, and `cluster`, null where questions are independent.

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
            f"{sizes.height}; a cut is chosen on one half and judged on the other"
        )
    order = np.random.default_rng(seed).permutation(sizes.height)
    drawn = sizes[order.tolist()]
    after = drawn["questions"].cum_sum().to_numpy()[:-1]
    taken = int(np.argmin(abs(after - questions.height / 2))) + 1
    in_first = unit.is_in(drawn[unit.name][:taken].implode())
    ids = questions["question_id"]
    return Halves(frozenset(ids.filter(in_first)), frozenset(ids.filter(~in_first)))


LONGEST_RULE = 30  # characters on the first screen

POINT_COLUMNS = ("n", "answered", "interval", "errors of answered", "interval ", "utility", "interval  ")


def threshold_screen(found: Threshold) -> Iterator[Block]:
    """Yield the choice, what limits it, and a row for each way to refuse, on a screen of 80 columns."""
    for one in found.statements:
        if one.severity in ("conclusion", "serious") or one.code == "scores_left_out":
            yield f"{'Caution: ' if one.severity == 'serious' else ''}{sentence(one)}"
    rows = (
        (
            abbreviated(sentence(found.name(point)), LONGEST_RULE),
            *(percent(one.estimate, 0) for one in (point.worth.coverage, point.worth.error_rate)),
            number(point.worth.utility.estimate, 2),
            "" if point.difference is None else estimate(point.difference.utility, 2),
        )
        for point in found.points
    )
    yield from ("", Table.of(("refusing by", "answered", "wrong", "utility", "gain"), rows, left=("refusing by",)), "")
    values = {"questions": found.sizes[1], "price": found.options.price, "level": found.options.interval_level}
    compared = any(point.difference is not None for point in found.points)
    yield sentence(Statement("threshold_scale", "scope", {**values, "difference": compared}))
    yield "Add --full for all intervals and differences."


@shows(Threshold)
def threshold_blocks(found: Threshold) -> Iterator[Block]:
    """Yield the choice in words, what must be said beside it, and the numbers of the other half."""
    tables = {
        "judged_on_other_half": ("", [(point, point.worth) for point in found.points]),
        "cut_less_others": ("difference", [(one, one.difference) for one in found.points if one.difference]),
    }
    for place, one in enumerate(found.statements):
        yield from [""] * bool(place)
        yield sentence(one)
        if one.code in tables:
            heading, points = tables[one.code]
            rows = (
                (
                    sentence(found.name(point)),
                    f"{point.questions:,}",
                    *(cell for number_ in worth for cell in (number(number_.estimate), interval_of(number_))),
                )
                for point, worth in points
            )
            yield from ("", Table.of((heading, *POINT_COLUMNS), rows, left=(heading,)))


add_sentences(__package__)


def threshold(
    run: Run | str | Path,
    method: str | None = None,
    *,
    penalty: float | None = None,
    max_error: float | None = None,
    **options: Any,
) -> Threshold:
    """Choose from which score on to answer, on one half of the questions, and judge it on the other.

    Parameters
    ----------
    run
        A run whose folder holds scores, its folder, or an outcome table with a column ``confidence``.
    method
        Whose scores, as ``refusal-index confidence`` calls them; may be left out where there is one only.
    penalty
        Choose the cut that is worth most, where a wrong answer costs so many right ones.
    max_error
        Choose the cut that answers most with no larger share of the answers wrong; one of the two is given.
    options
        Others that `refusal_index.plugins.confidence.threshold.ThresholdOptions` takes: ``variant``,
        ``confidence_level``, ``seed``.

    Returns
    -------
    Threshold
        ``found`` is the chosen threshold; ``points`` compares it with the model's own refusals on the other half of the
        questions; ``table`` is the outcome table of a run that refuses all answers below it. If no threshold
        meets the condition, ``found.status`` is ``"undefined"`` and there is no table.

    Raises
    ------
    RefusalIndexError
        If there are no such scores, or they tell nothing apart.

    References
    ----------
    Angelopoulos et al. (2021). Learn then Test: calibrating predictive algorithms to achieve risk control.
    :arxiv:`2110.01052`. Chow (1970). On optimum recognition error and reject tradeoff. :doi:`10.1109/TIT.1970.1054406`
    """
    found = compared_runs([run], CompareOptions())
    if len(found) != 1:
        raise SettingError(f"threshold: expected a run of one model and dataset, got {len(found)}")
    return find_threshold(found[0], ThresholdOptions(method, penalty=penalty, max_error=max_error, **options))
