"""Counts and matrices for the statistics, from outcome tables or published rates.

A first pass without forced answers, as from another tool, gives the refusal rate and the grades of the answers. The
error rate and RI are unknown, because refused questions have no answer. Refused questions without a gold answer are
wrong whatever the forced answer; other refused questions are unscored. The scored rows are therefore not a
representative sample, and the rates of a first pass are computed over all questions that it refused or answered.

Statistics over several runs match outcomes by question id, in a matrix with one row per run and one column per
question. A question that a run was not asked, or that has no grade there, is missing in that row only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data import tables
from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_GRADED, Grade
from refusal_index.data.outcome_table import GRADES, GROUP, SAMPLING_COLUMNS, SCHEMA, Group, Sampling, read_outcomes
from refusal_index.errors import OutcomeTableError, shortened
from refusal_index.stats import ContingencyTable, Estimate, SampledTable, metrics, refusal_index, tetrachoric
from refusal_index.stats.arguments import checked_weights
from refusal_index.stats.baseline import rate_or_score, ratio_weights
from refusal_index.stats.contingency import (
    FEW_CLUSTERS,
    FEW_IN_CELL,
    AnyTable,
    effective_in_smallest_cell,
    effective_number,
)
from refusal_index.stats.intervals import cell_influence

FIRST_PASS = ("correct_rate", "correct_given_attempted")
MAX_QUESTIONS = 1_000_000
ADVICE = "; each row is one model with correct_rate, refusal_rate, forced_accuracy and n"
STEPS = 9
"""Number of grid points for each rate, over the interval of values that round to it."""

_RATE = re.compile(r"(\d*(?:\.(\d*))?)(\s*%)?")


@dataclass(frozen=True)
class PublishedRates:
    """The published rates of one model."""

    # model, dataset: which model and dataset they belong to
    model: str
    dataset: str | None
    table: ContingencyTable  # counts in whole questions
    possible: np.ndarray  # cell shares of tables that have the same rounded rates, shape (m, 4)

    @property
    def range(self) -> tuple[float | None, float | None]:
        """The smallest and largest RI of the possible tables; None if it is undefined in all of them."""
        defined = [float(index) for index in _indices(self.possible) if np.isfinite(index)]
        return (min(defined), max(defined)) if defined else (None, None)

    def metrics(self, analysis: Analysis) -> dict[str, Estimate]:
        """Return every metric by name; each interval covers those of all tables with the same rounded rates.

        Only the tables in which a metric is smallest or largest are evaluated, since the interval ends there.
        """
        estimates = _metrics(self.table, analysis)
        extremes = {index for estimate in estimates for index in _ends(self.possible, estimate.name, analysis)}
        shares = np.cumsum(self.possible[sorted(extremes)], axis=1)
        counts = np.diff(np.rint(self.table.n * shares / shares[:, -1:]), axis=1, prepend=0)
        others = [_metrics(ContingencyTable(*cells), analysis) for cells in counts.tolist()]
        return {same[0].name: _spanning(*same) for same in zip(estimates, *others, strict=True)}


@dataclass(frozen=True)
class Rate:
    """A rate and its maximum rounding error."""

    value: float
    half: float

    def around(self) -> np.ndarray:
        """Return values in [0, 1] that round to the same rate."""
        return np.clip(np.linspace(self.value - self.half, self.value + self.half, STEPS), 0, 1)


def _rate(cell: Any) -> Rate:
    shown = tables.text(cell) or ""
    match = _RATE.fullmatch(shown)
    if not match or match[1] in {"", "."}:
        raise ValueError(f"expected a rate such as 0.05 or 5%, got {shortened(shown)}")
    scale = 100 if match[3] else 1
    value = float(match[1]) / scale
    if value > 1:
        raise ValueError(f"expected a rate between 0 and 1, got {shortened(shown)}; add % to percentages")
    return Rate(value, 0.5 * 10.0 ** -len(match[2] or "") / scale)


def _questions(cell: Any) -> int:
    digits = (tables.text(cell) or "").replace(",", "").removesuffix(".0")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 9 and 0 < int(digits) <= MAX_QUESTIONS):
        raise ValueError(f"expected the number of questions, 1 to {MAX_QUESTIONS:,}, got {shortened(cell)}")
    return int(digits)


RATE_COLUMNS = {
    "model": tables.Column(("model",), tables.text),
    "dataset": tables.Column(("dataset",), tables.text),
    **{name: tables.Column((name,), _rate) for name in (*FIRST_PASS, "refusal_rate", "forced_accuracy")},
    "n": tables.Column(("n",), _questions),
}
"""The columns of a table of rates."""


def read_rates(path: Path) -> tuple[PublishedRates, ...]:
    """Read published rates.

    Raises OutcomeTableError if a column is missing, a cell is not a rate, a model occurs twice for a dataset, or no 2x2
    table has the rates of a row.

    - `path`: a CSV file (also JSON Lines or Parquet) with the columns `refusal_rate`, `forced_accuracy` (over all
      questions), `n`, and `correct_rate` (over all questions) or `correct_given_attempted`; and optionally `model` and
      `dataset`. A rate is a number between 0 and 1, or has a per cent sign.
    """
    source = tables.Source.from_path(path, "row of rates", OutcomeTableError)
    rows = tables.read_rows(source, tables.read_content(path, OutcomeTableError))
    present = tables.present_columns(rows)
    columns = tables.resolve_columns(source, present, {}, RATE_COLUMNS)
    for name in ("refusal_rate", "forced_accuracy", "n"):
        if name not in columns:
            raise source.lacks(f"a column {name!r}", present, ADVICE)
    available = [name for name in FIRST_PASS if name in columns]
    if len(available) != 1:
        raise source.lacks(f"one of the columns {' and '.join(map(repr, FIRST_PASS))}", present, ADVICE)
    published: dict[tuple[str, str | None], PublishedRates] = {}
    for row in rows:
        cells = tables.values_by_role(row, columns, RATE_COLUMNS)
        rates = {name: cells[name] for name in (available[0], "refusal_rate", "forced_accuracy")}
        try:
            table = ContingencyTable.from_rates(n=cells["n"], **{name: rate.value for name, rate in rates.items()})
        except ValueError as error:
            raise row.wrong(str(error)) from error
        possible = printed_alike(*rates.values(), attempted=available[0] == FIRST_PASS[1])
        model = cells["model"] or row.place
        dataset = cells["dataset"]
        if (model, dataset) in published:
            raise row.wrong(f"{shortened(model)} occurs twice; give each row a model of its own")
        published[model, dataset] = PublishedRates(model, dataset, table, possible)
    return tuple(published.values())


def rates_outcomes(rates: Sequence[PublishedRates]) -> pl.DataFrame:
    """Return an outcome table with these rates, one row per question, with only `refused` and `wrong` filled in."""
    rows = [
        pl.DataFrame(
            {
                "question_id": [f"{row.model}, question {number}" for number in range(1, row.table.n + 1)],
                "refused": np.repeat([True, True, False, False], row.table.counts),
                "wrong": np.repeat([True, False, True, False], row.table.counts),
            }
        ).with_columns(model=pl.lit(row.model, pl.String), dataset=pl.lit(row.dataset, pl.String))
        for row in rates
    ]
    return read_outcomes(pl.concat(rows)).select(list(SCHEMA))


def printed_alike(first: Rate, refused: Rate, forced: Rate, *, attempted: bool) -> np.ndarray:
    """Return the cell shares of 2x2 tables whose rates round to these, shape (m, 4).

    - `first`: rate of right answers in the first pass, over answered questions if `attempted`, else over all.
    - `refused`, `forced`: the refusal rate, and the accuracy if an answer is forced for every refusal.
    """
    c, r, right = np.meshgrid(first.around(), refused.around(), forced.around(), indexing="ij")
    c = c * (1 - r) if attempted else c
    cells = np.stack([r - right + c, right - c, 1 - r - c, c]).reshape(4, -1)
    return np.asarray(np.maximum(cells[:, (cells > -ROUNDING).all(axis=0)], 0).T)


def _indices(cells: np.ndarray) -> np.ndarray:
    return np.asarray(np.arcsin(tetrachoric(*cells.T) / 2) / math.asin(0.5))


def _ends(cells: np.ndarray, metric: str, analysis: Analysis) -> set[int]:
    """Return the indices of the tables in which a metric is smallest and largest; empty if it is always undefined."""
    if metric == "refusal_index":
        values = _indices(cells)
    else:
        top, bottom = (cells @ np.array(weights, float) for weights in ratio_weights(analysis.payoffs)[metric])
        values = np.divide(top, bottom, out=np.full(len(cells), np.nan), where=bottom > 0)
    return {int(np.nanargmin(values)), int(np.nanargmax(values))} if np.isfinite(values).any() else set()


def _spanning(estimate: Estimate, *others: Estimate) -> Estimate:
    """Return an estimate with its interval extended to cover those of others."""
    if estimate.low is None:
        return estimate
    ends = ([getattr(item, end) for item in (estimate, *others)] for end in ("low", "high"))
    lows, highs = ([value for value in values if value is not None] for values in ends)
    return replace(estimate, low=min(lows), high=max(highs))


ROUNDING = 1e-12


MISSING_LIMIT = 0.02
"""Share of unscored questions above which a result is incomplete."""

FORCED_REFUSAL_LIMIT = 0.05
"""Share of the forced answers that are refusals, above which RI may be much too high."""

NOT_STATED = "not_stated"
"""Stands for the reason of an unscored row without one."""


SHORT = {
    "question": pl.when(pl.col("question").is_not_null()).then(pl.col("question").hash()).alias("question"),
    **{name: pl.when(pl.col(name).is_not_null()).then(pl.lit("")).alias(name) for name in ("gold", "forced_reply")},
    "forced_grade": pl.col("forced_grade").cast(pl.Enum(GRADES)),
}
"""Compact replacements of text columns: a hash, an empty text for any value, or an enumeration."""

_SCORED = pl.col("refused").is_not_null() & pl.col("wrong").is_not_null()


def too_many_missing(missing: float, n_asked: int) -> bool:
    """Whether the missing share exceeds `MISSING_LIMIT`."""
    return missing > MISSING_LIMIT * n_asked


@dataclass(frozen=True)
class Completeness:
    """How many rows could be scored."""

    # asked, scored, unscored: numbers of rows; asked = scored + unscored
    asked: int
    scored: int
    unscored: int
    reasons: Mapping[str, int]  # number of unscored rows by reason, the most frequent first
    missing_share: float | None  # unscored / asked; None if nothing was asked

    @property
    def is_enough(self) -> bool:
        """Whether something was asked, and the missing share is at most `MISSING_LIMIT`."""
        return self.asked > 0 and not too_many_missing(self.unscored, self.asked)


@dataclass(frozen=True)
class ForcedRefusals:
    """How many forced answers were refusals again."""

    asked: int  # rows with a graded forced answer
    refused: int  # those that are refusals
    share: float | None  # refused / asked; None if nothing was asked

    @property
    def are_many(self) -> bool:
        """Whether the share exceeds `FORCED_REFUSAL_LIMIT`."""
        return self.share is not None and self.share > FORCED_REFUSAL_LIMIT


@dataclass(frozen=True)
class VariantGroup(Group):
    """The rows of one model on one dataset under one prompt variant."""

    outcomes: pl.DataFrame


def variant_groups(table: pl.DataFrame) -> tuple[VariantGroup, ...]:
    """Split an outcome table by model, dataset and variant.

    Groups keep the order of the table; in a run's own table, variants are ordered from lowest to highest.
    """
    return tuple(
        VariantGroup(model, dataset, variant, rows)
        for (model, dataset, variant), rows in table.group_by(GROUP, maintain_order=True)
    )


def each_group(table: pl.DataFrame | pl.LazyFrame, columns: Sequence[str]) -> Iterator[VariantGroup]:
    """Yield the groups of `variant_groups` with some columns; a lazy table is loaded one group at a time.

    - `table`: in memory or lazy.
    - `columns`: columns to keep, if present. In a lazy table, texts are replaced by short values (`SHORT`), since they
      may not fit in memory.
    """
    if isinstance(table, pl.DataFrame):
        yield from variant_groups(table.select(*GROUP, *(name for name in columns if name in table.columns)))
        return
    schema = table.collect_schema()
    expressions = [SHORT.get(name, pl.col(name)) for name in columns if name in schema]
    for key in table.select(GROUP).unique(maintain_order=True).collect().iter_rows():
        named = tuple(zip(GROUP, key, strict=True))
        in_group = (pl.col(name).is_null() if value is None else pl.col(name) == value for name, value in named)
        names = (pl.lit(value, pl.Enum([] if value is None else [value])).alias(name) for name, value in named)
        rows = table.filter(*in_group).select(*expressions).with_columns(*names)
        model, dataset, variant = key
        yield VariantGroup(model, dataset, variant, rows.collect(engine="streaming"))


def contingency_table(outcomes: pl.DataFrame) -> ContingencyTable:
    """Count the scored rows by refusal and error; unscored rows are left out.

    >>> contingency_table(pl.DataFrame({"refused": [True, True, False, None], "wrong": [True, None, False, None]}))
    ContingencyTable(refused_wrong=1, refused_right=0, answered_wrong=0, answered_right=1)
    """
    scored = outcomes.filter(_SCORED)
    return ContingencyTable.from_arrays(scored["refused"].to_numpy(), scored["wrong"].to_numpy())


def completeness(outcomes: pl.DataFrame, *, answered_only: bool = False) -> Completeness:
    """Count scored and unscored rows, and the reasons of unscored ones.

    - `answered_only`: whether only the first pass was planned: a refusal then needs no forced answer, and a repeated
      draw no grade, so both count as scored.
    """
    missing = outcomes.filter(~_SCORED)["unscored_reason"].fill_null(NOT_STATED)
    if answered_only:
        missing = missing.filter(~missing.is_in([FORCED_NOT_ASKED, NOT_GRADED]))
    counted = missing.value_counts(name="rows").sort("rows", "unscored_reason", descending=[True, False])
    n_asked = outcomes.height
    unscored = missing.len()
    share = unscored / n_asked if n_asked else None
    return Completeness(n_asked, n_asked - unscored, unscored, dict(counted.iter_rows()), share)


def forced_refusals(outcomes: pl.DataFrame) -> ForcedRefusals:
    """Count the forced answers to refused questions, and the refusals among them."""
    grades = outcomes.filter(pl.col("refused"))["forced_grade"].drop_nulls()
    n_asked = grades.len()
    refused = int((grades == Grade.REFUSED.value).sum())
    return ForcedRefusals(n_asked, refused, refused / n_asked if n_asked else None)


NEED_FORCED_ANSWERS = frozenset({"error_rate", "refusal_precision", "refusal_recall", "over_refusal", "refusal_index"})
"""Metrics that need forced answers."""

NEED_NO_GRADES = frozenset({"refusal_rate"})
"""Metrics that need no grades, only refusals."""

_REFUSED = pl.col("refused")
_WRONG = pl.col("wrong")


def variant_metrics(rows: pl.DataFrame, analysis: Analysis) -> tuple[Estimate, ...]:
    """Return every metric of one variant, in the order of `refusal_index.stats.METRIC_NAMES`.

    `rows` has one row per question. Without a forced pass, metrics that need forced answers are undefined, with reason
    ``forced_not_asked``. If the share of questions answered without a grade exceeds `MISSING_LIMIT`, metrics that count
    right answers are undefined too, with the most frequent reason of these rows.
    """
    sampled = sampled_table(rows)
    if not never_forced(rows):
        return _metrics(sampled or contingency_table(rows), analysis)
    answered = rows.filter(~_REFUSED)
    graded = contingency_table(answered)
    refused = rows.filter(_REFUSED).height
    lacking = lacking_grades(rows)

    def shown(estimate: Estimate) -> Estimate:
        if estimate.name in NEED_FORCED_ANSWERS:
            reason = FORCED_NOT_ASKED
        elif lacking and estimate.name not in NEED_NO_GRADES:
            reason = lacking
        else:
            return estimate
        return Estimate(None, status="undefined", reason=reason, name=estimate.name, method=estimate.method)

    # Unknown grades are set to wrong where they do not affect the metric: those of refused questions, and for the
    # refusal rate those of all questions.
    by_answers = sampled_table(_taken_for_wrong(rows, _REFUSED)) or ContingencyTable(
        refused, 0, graded.answered_wrong, graded.answered_right
    )
    by_refusals = sampled_table(without_grades(rows)) or ContingencyTable(refused, 0, answered.height, 0)
    pairs = zip(*(_metrics(table, analysis) for table in (by_answers, by_refusals)), strict=True)
    return tuple(shown(rate if rate.name in NEED_NO_GRADES else estimate) for estimate, rate in pairs)


def lacking_grades(rows: pl.DataFrame) -> str | None:
    """Return the most frequent reason why answers have no grade; None unless too many have none to count right ones."""
    ungraded = rows.filter(~_REFUSED & _WRONG.is_null())["unscored_reason"].fill_null(NOT_STATED)
    return str(ungraded.mode().sort()[0]) if too_many_missing(ungraded.len(), rows.height) else None


def without_grades(rows: pl.DataFrame) -> pl.DataFrame:
    """Set `wrong` wherever it is known whether the question was refused, for metrics that need no grades.

    >>> without_grades(pl.DataFrame({"refused": [True, False, None], "wrong": [None, False, None]}))["wrong"].to_list()
    [True, True, None]
    """
    return _taken_for_wrong(rows, _REFUSED.is_not_null())


IS_UNANSWERABLE = ~pl.col("answerable")
"""Selects the questions without a right answer; null if that is unknown."""

BY_ANSWERABLE: Mapping[str, str] = MappingProxyType(
    {"refused_unanswerable": "refusal_recall", "refused_answerable": "over_refusal"}
)
"""Refusal rates of unanswerable and answerable questions, and the metric that each equals in `by_answerable`."""

ANSWERABLE_NOT_RECORDED = "answerable_not_recorded"
"""Reason why they are undefined: it is not known of any question whether it has a right answer."""


def answerability(rows: pl.DataFrame) -> dict[str, int]:
    """Count the questions with and without a right answer; `rows` has one row per question.

    >>> answerability(pl.DataFrame({"answerable": [True, False, True, None]}))
    {'answerable': 2, 'unanswerable': 1, 'unknown': 1}
    """
    marks = rows["answerable"]
    return {"answerable": int(marks.sum()), "unanswerable": int((~marks).sum()), "unknown": marks.null_count()}


def by_answerable(rows: pl.DataFrame) -> pl.DataFrame:
    """Set `wrong` for exactly the unanswerable questions; it is null if that is unknown.

    >>> by_answerable(pl.DataFrame({"answerable": [False, True, None]}))["wrong"].to_list()
    [True, False, None]
    """
    return rows.with_columns(wrong=IS_UNANSWERABLE)


def answerable_metrics(rows: pl.DataFrame, analysis: Analysis) -> tuple[Estimate, ...]:
    """Return all metrics of `BY_ANSWERABLE` of one variant; `rows` has one row per question."""
    return tuple(answerable_metric(name, rows, analysis, analysis.confidence_level) for name in BY_ANSWERABLE)


def answerable_metric(name: str, rows: pl.DataFrame, analysis: Analysis, level: float) -> Estimate:
    """Return one of the metrics of `BY_ANSWERABLE` of one variant, with the interval of another level."""
    split = by_answerable(rows)
    table = sampled_table(split) or contingency_table(split)
    found = rate_or_score(BY_ANSWERABLE[name], table, analysis.payoffs, level)
    return replace(found, name=name, reason=answerable_reason(found.reason))


REASONS_BY_ANSWERABLE = {
    "no_questions": ANSWERABLE_NOT_RECORDED,
    "all_wrong": "all_unanswerable",
    "all_right": "all_answerable",
}
"""Reasons of the metrics of `BY_ANSWERABLE`, by those of the metrics in `by_answerable`."""


def answerable_reason(reason: str | None) -> str | None:
    """Return a reason of a metric in `by_answerable` as that of the metric of `BY_ANSWERABLE`.

    >>> answerable_reason("first:all_wrong")
    'first:all_unanswerable'
    """
    for like, own in REASONS_BY_ANSWERABLE.items():
        reason = reason and reason.replace(like, own)
    return reason


def _metrics(table: AnyTable, analysis: Analysis) -> tuple[Estimate, ...]:
    payoffs = analysis.payoffs
    return metrics(
        table,
        weighted_score_p=payoffs.weighted_score_p,
        truthfulness_weights=payoffs.truthfulness,
        confidence_level=analysis.confidence_level,
    )


def never_forced(rows: pl.DataFrame) -> bool:
    """Whether the forced pass was not run; questions scored as wrong without asking do not count.

    >>> rows = {"refused": [True, True], "wrong": [None, True], "forced_grade": [None, "incorrect"], "gold": ["a", "b"]}
    >>> never_forced(pl.DataFrame({**rows, "forced_reply": [None, "c"], "unscored_reason": [FORCED_NOT_ASKED, None]}))
    False
    """
    unasked = (pl.col("unscored_reason") == FORCED_NOT_ASKED).fill_null(value=False)
    if not {"unscored_reason", "forced_grade", "forced_reply", "gold"} <= set(rows.columns):
        return False
    judged = (pl.col("forced_grade") == Grade.INCORRECT.value).fill_null(value=False)
    settled = judged & pl.col("forced_reply").is_null() & pl.col("gold").is_null()
    forced = _REFUSED & (_WRONG.is_not_null() | pl.col("forced_reply").is_not_null()) & ~settled
    return bool(rows.select(unasked.any() & ~forced.any()).item())


def refusals_as_wrong(rows: pl.DataFrame) -> pl.DataFrame:
    """Set `wrong` for refused questions without a grade, for metrics that do not depend on it.

    >>> rows = pl.DataFrame({"refused": [True, False, None], "wrong": [None, False, None]})
    >>> refusals_as_wrong(rows)["wrong"].to_list()
    [True, False, None]
    """
    return _taken_for_wrong(rows, _REFUSED & _WRONG.is_null())


def _taken_for_wrong(rows: pl.DataFrame, chosen: pl.Expr) -> pl.DataFrame:
    return rows.with_columns(wrong=pl.when(chosen).then(pl.lit(value=True)).otherwise(_WRONG))


@dataclass(frozen=True)
class SamplingSummary:
    """How the questions of a variant were sampled."""

    # cluster, weight: names of the columns; None if there is none
    cluster: str | None
    weight: str | None
    clusters: int  # clusters with a scored question; the number of questions if they are independent
    degrees_of_freedom: float | None  # of the standard errors; None for a single cluster
    # effective sample size of the weights (Kish); the number of questions if the weights are equal
    effective_by_weight: float
    # number of independent questions that would give RI the same standard error; None if it has none
    effective_questions: float | None
    # effective sample size in the smallest cell; None if the weights leave half of the questions or more
    effective_in_smallest_cell: float | None

    @property
    def few_dominate(self) -> bool:
        """Whether so few questions have most of the weight that intervals are too narrow."""
        return self.effective_in_smallest_cell is not None and self.effective_in_smallest_cell < FEW_IN_CELL

    @property
    def few(self) -> bool:
        """Whether there are too few clusters for a reliable interval."""
        return self.cluster is not None and self.clusters < FEW_CLUSTERS


def sampled_table(outcomes: pl.DataFrame) -> SampledTable | None:
    """Return the scored rows of one variant with their clusters and weights; None if it has neither.

    - `outcomes`: rows of one model, dataset and variant, one draw per question.
    """
    if not any(_is_filled(outcomes, name) for name in SAMPLING_COLUMNS):
        return None
    rows = outcomes.drop_nulls(["refused", "wrong"]).filter(pl.col("weight").fill_null(1) > 0)
    return SampledTable.from_arrays(rows["refused"].to_numpy(), rows["wrong"].to_numpy(), **design_of(rows))


def design_of(rows: pl.DataFrame) -> dict[str, Any]:
    """Return clusters and weights as keyword arguments of `refusal_index.stats`; empty if there are none.

    Raises OutcomeTableError if weights are invalid.
    """
    design = {name: rows[name].to_numpy() for name in SAMPLING_COLUMNS if _is_filled(rows, name)}
    if "weight" in design:
        try:
            checked_weights(rows.height, design["weight"])
        except ValueError as error:
            raise OutcomeTableError(f"column 'weight': {error}") from error
    return design


def sampling_summary(outcomes: pl.DataFrame, table: SampledTable | None, sampling: Sampling) -> SamplingSummary | None:
    """Return the sampling of one variant; None if its questions are independent and equally weighted."""
    if table is None:
        return None
    columns = [sampling.column(name) if _is_filled(outcomes, name) else None for name in SAMPLING_COLUMNS]
    scored = outcomes.drop_nulls(["refused", "wrong"])
    weights = np.ones(table.n) if columns[1] is None else scored["weight"].to_numpy()
    by_weight = effective_number(weights) if table.n else 0.0
    degrees = table.degrees_of_freedom
    index = refusal_index(table)
    rho = index.rho if index.status == "ok" else None
    return SamplingSummary(
        cluster=columns[0],
        weight=columns[1],
        clusters=table.n_clusters,
        degrees_of_freedom=None if np.isnan(degrees) else degrees,
        effective_by_weight=by_weight,
        effective_questions=None if rho is None else table.effective_size(cell_influence(table, rho)),
        effective_in_smallest_cell=effective_in_smallest_cell(table, by_weight),
    )


def describe(design: Mapping[str, Any], sampling: Sampling) -> dict[str, Any] | None:
    """Return the sampling of matched questions for JSON; None if they are independent and equally weighted."""
    if not design:
        return None
    cluster = design.get("cluster")
    weight = design.get("weight")
    return {
        "cluster": None if cluster is None else sampling.column("cluster"),
        "weight": None if weight is None else sampling.column("weight"),
        "clusters": None if cluster is None else len(set(cluster.tolist())),
        "effective_by_weight": None if weight is None else effective_number(weight),
    }


def matched_design(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> dict[str, Any]:
    """Return clusters and weights of questions that several runs share, in the order of `ids`.

    Raises OutcomeTableError if runs disagree about a question, or a question lacks a value that others have.
    """
    filled = [name for name in SAMPLING_COLUMNS if any(_is_filled(table, name) for table in tables)]
    if not filled:
        return {}
    sampling = pl.concat([table.select("question_id", *SAMPLING_COLUMNS) for table in tables])
    for name in filled:
        values = sampling.select("question_id", name).drop_nulls().unique()
        twice = values.filter(pl.len().over("question_id") > 1).sort("question_id", name)
        if twice.height:
            raise OutcomeTableError(
                f"question_id {shortened(twice['question_id'][0])} has the {name} {twice[name][0]!r} in one run and "
                f"{twice[name][1]!r} in another; a question has one {name}: correct it, or name another column with "
                f"--{name}"
            )
    rows = ids.join(
        sampling.group_by("question_id").agg(pl.col(name).drop_nulls().first() for name in SAMPLING_COLUMNS),
        on="question_id",
        how="left",
        maintain_order="left",
    )
    for name in filled:
        lacking = rows.filter(pl.col(name).is_null())
        if lacking.height:
            raise OutcomeTableError(
                f"question_id {shortened(lacking['question_id'][0])} has no {name}, and other questions have one; give "
                f"all runs a column {name!r}, or name one that they have with --{name}"
            )
    return design_of(rows)


def _is_filled(table: pl.DataFrame, name: str) -> bool:
    return name in table.columns and table[name].null_count() < table.height


BoolMatrix = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OutcomeMatrix:
    """Outcomes of k runs on n questions."""

    question_ids: tuple[str, ...]  # the n questions of any run, in order of appearance
    # refused, wrong: shape (k, n); False if the question is not scored
    refused: BoolMatrix
    wrong: BoolMatrix
    scored: BoolMatrix  # shape (k, n); whether the question is scored
    # clusters and weights of the questions, shape (n,) each, as keyword arguments of `refusal_index.stats`
    design: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[BoolMatrix, BoolMatrix, BoolMatrix]:
        """`refused`, `wrong` and `scored`, as arguments of functions of `refusal_index.stats`."""
        return self.refused, self.wrong, self.scored

    @property
    def shared(self) -> BoolMatrix:
        """The questions scored in every row, shape (n,)."""
        return np.asarray(self.scored.all(axis=0))

    def of_questions(self, chosen: BoolMatrix) -> OutcomeMatrix:
        """Return the matrix with the chosen questions."""
        ids = tuple(question for question, keep in zip(self.question_ids, chosen, strict=True) if keep)
        design = {name: values[chosen] for name, values in self.design.items()}
        return OutcomeMatrix(ids, self.refused[:, chosen], self.wrong[:, chosen], self.scored[:, chosen], design)

    def of_rows(self, chosen: Sequence[int]) -> OutcomeMatrix:
        """Return the matrix with the chosen rows, in this order."""
        rows = list(chosen)
        return OutcomeMatrix(self.question_ids, self.refused[rows], self.wrong[rows], self.scored[rows], self.design)


def first_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep the first draw of each question, used by every result that needs one response per question.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> first_draws(rows)["draw"].to_list()
    [0]
    """
    return outcomes if has_single_draw(outcomes) else outcomes.filter(pl.col("draw") == _FIRST_DRAW)


def further_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Drop the first draw of each question.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> further_draws(rows)["draw"].to_list()
    [1]
    """
    return outcomes.clear() if has_single_draw(outcomes) else outcomes.filter(pl.col("draw") > _FIRST_DRAW)


_FIRST_DRAW = pl.col("draw").min().over("model", "dataset", "variant", "question_id")


def has_single_draw(outcomes: pl.DataFrame) -> bool:
    """Whether all rows have the same draw, so that no question occurs twice: a fast check for the common case."""
    return bool(outcomes["draw"].min() == outcomes["draw"].max())


def outcome_matrix(tables: Sequence[pl.DataFrame]) -> OutcomeMatrix:
    """Match the first draws of several runs or variants by question id.

    Raises OutcomeTableError if two tables ask different questions under the same id.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.

    >>> low = pl.DataFrame({"question_id": ["a", "b"], "refused": [False, True], "wrong": [True, None]})
    >>> high = pl.DataFrame({"question_id": ["a", "c"], "refused": [True, True], "wrong": [True, True]})
    >>> columns = pl.lit(None, pl.String).alias("question"), pl.lit(0).alias("draw")
    >>> groups = [pl.lit("m").alias(name) for name in ("model", "dataset", "variant")]
    >>> outcome_matrix([table.with_columns(*columns, *groups) for table in (low, high)]).scored.tolist()
    [[True, False, False], [True, False, True]]
    """
    rows = [first_draws(table) for table in tables]
    check_texts(rows)
    ids = pl.concat([table.select("question_id") for table in rows]).unique(maintain_order=True)
    matrix = _matrix([table.select("question_id", "refused", "wrong") for table in rows], ids)
    return replace(matrix, design=matched_design(rows, ids))


@dataclass(frozen=True, eq=False)
class DrawnOutcomes:
    """The repeated draws and the first draws of one variant, over the same questions."""

    repeated: OutcomeMatrix  # one row per draw, as from `draw_matrix`; not scored for questions drawn once
    single: OutcomeMatrix  # one row, as from `outcome_matrix`


def drawn_outcomes(tables: Sequence[pl.DataFrame]) -> tuple[DrawnOutcomes, ...]:
    """Match the first and the repeated draws of several runs by question id.

    Raises the errors of `outcome_matrix`.

    - `tables`: as for `draw_matrices`.
    """
    singles = outcome_matrix(tables)
    ids = pl.DataFrame({"question_id": singles.question_ids}, schema={"question_id": pl.String})
    return tuple(
        DrawnOutcomes(_matrix(_by_draw(_repeated_draws(table)), ids), singles.of_rows([row]))
        for row, table in enumerate(tables)
    )


def draw_matrix(outcomes: pl.DataFrame) -> OutcomeMatrix:
    """Return a matrix of the draws of one variant, over the questions that were drawn more than once.

    `wrong` is that of the forced answer even if the first pass answered, so that draws are comparable. A draw without a
    forced answer, or without a grade in either pass, is not scored.

    - `outcomes`: rows of one model, dataset and variant.
    """
    return draw_matrices([outcomes])[0]


def draw_matrices(tables: Sequence[pl.DataFrame]) -> tuple[OutcomeMatrix, ...]:
    """Return the matrix of `draw_matrix` for several runs, over the same questions.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - returned: one matrix per table, with one row per draw. The columns are the questions drawn more than once in any
      table.
    """
    repeated = [_repeated_draws(table) for table in tables]
    ids = pl.concat([rows.select("question_id") for rows in repeated]).unique(maintain_order=True)
    return tuple(_matrix(_by_draw(rows), ids) for rows in repeated)


def _by_draw(rows: pl.DataFrame) -> list[pl.DataFrame]:
    return rows.sort("draw", maintain_order=True).partition_by("draw", maintain_order=True)


def _repeated_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep draws with grades in both passes, of questions with more than one such draw."""
    forced = pl.col("forced_grade")
    outcomes = outcomes.clear() if has_single_draw(outcomes) else outcomes
    graded = outcomes.filter(pl.col("refused").is_not_null() & forced.is_not_null() & (forced != Grade.UNSCORED.value))
    repeated = graded.filter(pl.len().over("question_id") > 1).with_columns(wrong=forced != Grade.CORRECT.value)
    return repeated.select("question_id", "draw", "refused", "wrong")


def _matrix(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> OutcomeMatrix:
    """Return a matrix with one row per table, over the given questions; each table has at most one row per question."""
    shape = (len(tables), ids.height)
    aligned = [ids.join(table, on="question_id", how="left", maintain_order="left") for table in tables]
    scored = [(rows["refused"].is_not_null() & rows["wrong"].is_not_null()).to_numpy() for rows in aligned]
    refused, wrong = (
        [rows[name].fill_null(value=False).to_numpy() for rows in aligned] for name in ("refused", "wrong")
    )
    r, w, s = (np.array(part, bool).reshape(shape) for part in (refused, wrong, scored))
    return OutcomeMatrix(tuple(ids["question_id"]), r & s, w & s, s)


def check_texts(tables: Sequence[pl.DataFrame]) -> None:
    """Raise `OutcomeTableError` if two different questions share an id."""
    texts = [table.select("question_id", "question").drop_nulls() for table in tables]
    # Hashes are compared first, since all texts together may not fit in memory.
    ids, pairs = pl.concat(texts).select("question_id", pair=pl.struct("question_id", "question").hash())
    if pairs.n_unique() > ids.n_unique():
        ambiguous = pl.concat(texts).unique().filter(pl.col("question_id").is_duplicated())
        (question_id, text), (_, other) = ambiguous.sort("question_id", "question").head(2).iter_rows()
        raise OutcomeTableError(
            f"question_id {shortened(question_id)} stands for {shortened(text)} and for {shortened(other)}: expected "
            "the same question under the same id; give the questions ids of their own, or compare runs over one file"
        )
