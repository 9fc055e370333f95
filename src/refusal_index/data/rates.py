"""From the outcome table, or from published rates, to the counts that everything is computed from.

A first pass alone, as another evaluation made it, shows how often the model refused, and how its answers were graded.
It does not show what it would have said to the questions that it refused: the error rate and the Refusal Index are not
known. Questions without a gold answer are settled without asking, wrong whatever is forced, and those that need asking
are not scored. So the scored rows alone are no sample of the questions, and the rates of a first pass are those of all
questions that it refused or answered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data import tables
from refusal_index.data.errors import OutcomeTableError, shortened
from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade
from refusal_index.data.outcome_table import GRADES, GROUP, SCHEMA, read_outcomes
from refusal_index.data.sampling import sampled_table
from refusal_index.stats import ContingencyTable, Estimate, metrics, tetrachoric
from refusal_index.stats.baseline import DEFAULT_PAYOFFS, Payoffs, rate_or_score, ratio_weights
from refusal_index.stats.contingency import AnyTable

FIRST_PASS = ("correct_rate", "correct_given_attempted")
MOST_QUESTIONS = 1_000_000
ADVICE = "; each row is one model with correct_rate, refusal_rate, forced_accuracy and n"
STEPS = 9
"""Values tried for each rate between the ends of what rounds to it."""

_RATE = re.compile(r"(\d*(?:\.(\d*))?)(\s*%)?")


@dataclass(frozen=True)
class PublishedRates:
    """One row of rates."""

    # model, dataset: whose they are
    model: str
    dataset: str | None
    table: ContingencyTable  # in whole questions
    possible: np.ndarray  # shares of the four cells of tables whose rates are printed alike, shape (m, 4)

    @property
    def range(self) -> tuple[float | None, float | None]:
        """The smallest and the largest index of such tables; None where it is undefined throughout."""
        defined = [float(index) for index in _indices(self.possible) if np.isfinite(index)]
        return (min(defined), max(defined)) if defined else (None, None)

    def metrics(self, worth: Payoffs, level: float) -> dict[str, Estimate]:
        """Return every metric by name, each interval reaching over those of all tables whose rates are printed alike.

        A metric is smallest and largest, and its interval ends, at one of a few such tables.
        """
        estimates = _metrics(self.table, worth, level)
        extremes = {place for estimate in estimates for place in _ends(self.possible, estimate.name, worth)}
        shares = np.cumsum(self.possible[sorted(extremes)], axis=1)
        counts = np.diff(np.rint(self.table.n * shares / shares[:, -1:]), axis=1, prepend=0)
        others = [_metrics(ContingencyTable(*cells), worth, level) for cells in counts.tolist()]
        return {same[0].name: _spanning(*same) for same in zip(estimates, *others, strict=True)}


@dataclass(frozen=True)
class Rate:
    """A rate, and by how much it may have been rounded."""

    value: float
    half: float

    def around(self) -> np.ndarray:
        """Return values that would be printed alike, within [0, 1]."""
        return np.clip(np.linspace(self.value - self.half, self.value + self.half, STEPS), 0, 1)


def _rate(cell: Any) -> Rate:
    shown = tables.text(cell) or ""
    match = _RATE.fullmatch(shown)
    if not match or match[1] in {"", "."}:
        raise ValueError(f"expected a rate such as 0.05 or 5 %, got {shortened(shown)}")
    scale = 100 if match[3] else 1
    value = float(match[1]) / scale
    if value > 1:
        raise ValueError(f"expected a rate between 0 and 1, got {shortened(shown)}; add % to percentages")
    return Rate(value, 0.5 * 10.0 ** -len(match[2] or "") / scale)


def _questions(cell: Any) -> int:
    digits = (tables.text(cell) or "").replace(",", "").removesuffix(".0")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 9 and 0 < int(digits) <= MOST_QUESTIONS):
        raise ValueError(f"expected the number of questions, 1 to {MOST_QUESTIONS:,}, got {shortened(cell)}")
    return int(digits)


COLUMNS = {
    "model": tables.Column(("model",), tables.text),
    "dataset": tables.Column(("dataset",), tables.text),
    **{name: tables.Column((name,), _rate) for name in (*FIRST_PASS, "refusal_rate", "forced_accuracy")},
    "n": tables.Column(("n",), _questions),
}
"""The columns of a table of rates."""


def read_rates(path: Path) -> tuple[PublishedRates, ...]:
    """Read rates as they are printed.

    Raises OutcomeTableError if a column is missing, a cell is no rate, a model occurs twice on a dataset, or no table
    has the rates of a row.

    - `path`: a CSV file (also JSON Lines or Parquet) with the columns `refusal_rate`, `forced_accuracy` (over all
      questions), `n`, and `correct_rate` (over all questions) or `correct_given_attempted`; `model` and `dataset` where
      they are known. A rate is a number between 0 and 1, or has a per cent sign.
    """
    source = tables.Source.of(path, "row of rates", OutcomeTableError)
    rows = tables.read_rows(source, tables.read_content(path, OutcomeTableError))
    present = tables.present_columns(rows)
    columns = tables.resolve_columns(source, present, {}, COLUMNS)
    for name in ("refusal_rate", "forced_accuracy", "n"):
        if name not in columns:
            raise source.lacks(f"a column {name!r}", present, ADVICE)
    given = [name for name in FIRST_PASS if name in columns]
    if len(given) != 1:
        raise source.lacks(f"one of the columns {' and '.join(map(repr, FIRST_PASS))}", present, ADVICE)
    published: dict[tuple[str, str | None], PublishedRates] = {}
    for row in rows:
        cells = tables.values_by_role(row, columns, COLUMNS)
        rates = {name: cells[name] for name in (given[0], "refusal_rate", "forced_accuracy")}
        try:
            table = ContingencyTable.from_rates(n=cells["n"], **{name: rate.value for name, rate in rates.items()})
        except ValueError as error:
            raise row.wrong(str(error)) from error
        possible = printed_alike(*rates.values(), attempted=given[0] == FIRST_PASS[1])
        model, dataset = cells["model"] or row.place, cells["dataset"]
        if (model, dataset) in published:
            raise row.wrong(f"{shortened(model)} occurs twice; give each row a model of its own")
        published[model, dataset] = PublishedRates(model, dataset, table, possible)
    return tuple(published.values())


def rates_outcomes(rates: Sequence[PublishedRates]) -> pl.DataFrame:
    """Make the outcome table that such rates would be of: one row a question, of which only the cell is known."""
    rows = [
        pl.DataFrame(
            {
                "question_id": [f"{row.model}, question {place}" for place in range(1, row.table.n + 1)],
                "refused": np.repeat([True, True, False, False], row.table.counts),
                "wrong": np.repeat([True, False, True, False], row.table.counts),
            }
        ).with_columns(model=pl.lit(row.model, pl.String), dataset=pl.lit(row.dataset, pl.String))
        for row in rates
    ]
    return read_outcomes(pl.concat(rows)).select(list(SCHEMA))


def printed_alike(first: Rate, refused: Rate, forced: Rate, *, attempted: bool) -> np.ndarray:
    """Return the shares of the four cells of tables whose rates are printed as these are, shape (m, 4).

    - `first`: right answers of the first pass, over the questions `attempted` or over all.
    - `refused`, `forced`: the refusal rate and the accuracy under forced answering.
    """
    c, r, right = np.meshgrid(first.around(), refused.around(), forced.around(), indexing="ij")
    c = c * (1 - r) if attempted else c
    cells = np.stack([r - right + c, right - c, 1 - r - c, c]).reshape(4, -1)
    return np.asarray(np.maximum(cells[:, (cells > -ROUNDING).all(axis=0)], 0).T)


def _indices(cells: np.ndarray) -> np.ndarray:
    return np.asarray(np.arcsin(tetrachoric(*cells.T) / 2) / math.asin(0.5))


def _ends(cells: np.ndarray, metric: str, worth: Payoffs) -> set[int]:
    """Return in which tables a metric is smallest and largest; none where it is undefined throughout."""
    if metric == "refusal_index":
        values = _indices(cells)
    else:
        top, bottom = (cells @ np.array(weights, float) for weights in ratio_weights(metric, worth))
        values = np.divide(top, bottom, out=np.full(len(cells), np.nan), where=bottom > 0)
    return {int(np.nanargmin(values)), int(np.nanargmax(values))} if np.isfinite(values).any() else set()


def _spanning(estimate: Estimate, *others: Estimate) -> Estimate:
    """Return an estimate whose interval also covers those of others."""
    if estimate.low is None:
        return estimate
    ends = ([getattr(each, end) for each in (estimate, *others)] for end in ("low", "high"))
    lows, highs = ([value for value in values if value is not None] for values in ends)
    return replace(estimate, low=min(lows), high=max(highs))


ROUNDING = 1e-12


MISSING_LIMIT = 0.02
"""Share of unscored questions above which a result is incomplete."""

NOT_STATED = "not_stated"
"""Reason of an unscored row that gives none."""


def _whether_there(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null()).then(pl.lit("")).alias(name)


SHORT = {
    "question": pl.when(pl.col("question").is_not_null()).then(pl.col("question").hash()).alias("question"),
    "gold": _whether_there("gold"),
    "forced_reply": _whether_there("forced_reply"),
    "forced_grade": pl.col("forced_grade").cast(pl.Enum(GRADES)),
}
"""What stands for texts where there may be too many of them: which are the same, or whether there is one at all."""

_SCORED = pl.col("refused").is_not_null() & pl.col("wrong").is_not_null()


def too_many_missing(missing: float, asked: int) -> bool:
    """Whether more is missing of what was asked than is tolerated."""
    return missing > MISSING_LIMIT * asked


@dataclass(frozen=True)
class Completeness:
    """How much of what was asked could be scored."""

    # asked, scored, unscored: numbers of rows; the first is the sum of the others
    asked: int
    scored: int
    unscored: int
    reasons: Mapping[str, int]  # number of unscored rows by reason, the most frequent first
    missing_share: float | None  # unscored over asked; None when nothing was asked

    @property
    def is_enough(self) -> bool:
        """Whether something was asked, and no more of it is missing than is tolerated."""
        return self.asked > 0 and not too_many_missing(self.unscored, self.asked)


@dataclass(frozen=True)
class ForcedRefusals:
    """How often the forced pass refused what the first had refused."""

    asked: int  # rows with a graded forced answer
    refused: int  # those that refused again
    share: float | None  # refused over asked; None when nothing was asked


@dataclass(frozen=True)
class VariantGroup:
    """The rows of one model on one dataset under one prompt variant."""

    model: str | None
    dataset: str | None
    variant: str | None
    outcomes: pl.DataFrame


def variant_groups(table: pl.DataFrame) -> tuple[VariantGroup, ...]:
    """Split the table by model, dataset and variant.

    The groups come in the order in which they appear, which in a run's own table is from the lowest to the highest
    variant.
    """
    return tuple(
        VariantGroup(model, dataset, variant, rows)
        for (model, dataset, variant), rows in table.group_by(GROUP, maintain_order=True)
    )


def each_group(table: pl.DataFrame | pl.LazyFrame, columns: Sequence[str]) -> Iterator[VariantGroup]:
    """Yield what `variant_groups` returns, with some of the columns; of a table in a file only one group is in memory.

    - `table`: in memory, or in a file.
    - `columns`: those that are there of these are kept. Of a table in a file texts are kept as short as they can be
      (`SHORT`), as there may be more of them than there is memory.
    """
    if isinstance(table, pl.DataFrame):
        yield from variant_groups(table.select(*GROUP, *(name for name in columns if name in table.columns)))
        return
    known = table.collect_schema()
    kept = [SHORT.get(name, pl.col(name)) for name in columns if name in known]
    for key in table.select(GROUP).unique(maintain_order=True).collect().iter_rows():
        named = tuple(zip(GROUP, key, strict=True))
        in_group = (pl.col(name).is_null() if value is None else pl.col(name) == value for name, value in named)
        names = (pl.lit(value, pl.Enum([] if value is None else [value])).alias(name) for name, value in named)
        rows = table.filter(*in_group).select(*kept).with_columns(*names)
        model, dataset, variant = key
        yield VariantGroup(model, dataset, variant, rows.collect(engine="streaming"))


def contingency_table(outcomes: pl.DataFrame) -> ContingencyTable:
    """Count the scored rows by refusal and error; unscored rows are in none of the four cells.

    >>> contingency_table(pl.DataFrame({"refused": [True, True, False, None], "wrong": [True, None, False, None]}))
    ContingencyTable(refused_wrong=1, refused_right=0, answered_wrong=0, answered_right=1)
    """
    scored = outcomes.filter(_SCORED)
    return ContingencyTable.from_arrays(scored["refused"].to_numpy(), scored["wrong"].to_numpy())


def completeness(outcomes: pl.DataFrame) -> Completeness:
    """Count what is missing, and why."""
    missing = outcomes.filter(~_SCORED)["unscored_reason"].fill_null(NOT_STATED)
    counted = missing.value_counts(name="rows").sort("rows", "unscored_reason", descending=[True, False])
    asked, unscored = outcomes.height, missing.len()
    share = unscored / asked if asked else None
    return Completeness(asked, asked - unscored, unscored, dict(counted.iter_rows()), share)


def forced_refusals(outcomes: pl.DataFrame) -> ForcedRefusals:
    """Count the forced answers that refused again; those to questions that the first pass answered are left out."""
    grades = outcomes.filter(pl.col("refused"))["forced_grade"].drop_nulls()
    asked, refused = grades.len(), int((grades == Grade.REFUSED.value).sum())
    return ForcedRefusals(asked, refused, refused / asked if asked else None)


NEED_FORCED_ANSWERS = frozenset({"error_rate", "refusal_precision", "refusal_recall", "over_refusal", "refusal_index"})
"""The metrics that no first pass alone decides."""

NEED_NO_GRADES = frozenset({"refusal_rate"})
"""The metrics for which it is enough to know which questions were refused."""

_REFUSED, _WRONG = pl.col("refused"), pl.col("wrong")


def variant_metrics(rows: pl.DataFrame, worth: Payoffs, confidence_level: float) -> tuple[Estimate, ...]:
    """Return every metric of one variant, a row a question, in the order of `refusal_index.stats.METRIC_NAMES`.

    Of a first pass that nobody forced, the error rate and the index are undefined for ``forced_not_asked``; where more
    than the tolerated share of the questions was answered without a grade, so are the metrics that count right answers,
    for the reason that most of these rows give.
    """
    sampled = sampled_table(rows)
    if not never_forced(rows):
        return _metrics(sampled or contingency_table(rows), worth, confidence_level)
    answered = rows.filter(~_REFUSED)
    graded = contingency_table(answered)
    refused = rows.filter(_REFUSED).height
    ungraded = answered.filter(_WRONG.is_null())["unscored_reason"].fill_null(NOT_STATED)
    lacking = str(ungraded.mode().sort()[0]) if too_many_missing(ungraded.len(), rows.height) else None

    def shown(estimate: Estimate) -> Estimate:
        if estimate.name in NEED_FORCED_ANSWERS:
            reason = FORCED_NOT_ASKED
        elif lacking and estimate.name not in NEED_NO_GRADES:
            reason = lacking
        else:
            return estimate
        return Estimate(None, status="undefined", reason=reason, name=estimate.name, method=estimate.method)

    # What is not known counts as wrong, where it does not matter to the metric: of refused questions, and for the
    # refusal rate of all.
    by_answers = sampled_table(_taken_for_wrong(rows, _REFUSED)) or ContingencyTable(
        refused, 0, graded.answered_wrong, graded.answered_right
    )
    by_refusals = sampled_table(_taken_for_wrong(rows, _REFUSED.is_not_null())) or ContingencyTable(
        refused, 0, answered.height, 0
    )
    pairs = zip(*(_metrics(table, worth, confidence_level) for table in (by_answers, by_refusals)), strict=True)
    return tuple(shown(rate if rate.name in NEED_NO_GRADES else estimate) for estimate, rate in pairs)


BY_ANSWERABLE: Mapping[str, str] = MappingProxyType(
    {"refused_unanswerable": "refusal_recall", "refused_answerable": "over_refusal"}
)
"""The metrics of questions without a right answer and of those with one, as what each is of `by_answerable`."""

ANSWERABLE_NOT_RECORDED = "answerable_not_recorded"
"""Why they are undefined where the dataset does not mark questions of both kinds."""


def by_answerable(rows: pl.DataFrame) -> pl.DataFrame | None:
    """Mark as wrong the questions without a right answer, and no others; None unless the rows hold both kinds.

    Such a question has no gold answer, and nothing that is right. Of a table in which a question without a gold answer
    is right, the column is not filled in, and tells nothing.

    >>> rows = pl.DataFrame({"refused": [True, False], "wrong": [True, None], "gold": [None, "a"]})
    >>> by_answerable(rows)["wrong"].to_list(), by_answerable(rows[:1])
    ([True, False], None)
    """
    if "gold" not in rows.columns:
        return None
    without = pl.col("gold").is_null()
    is_recorded = without.any() & ~without.all() & ~(without & ~_WRONG).any()
    return rows.with_columns(wrong=without) if rows.select(is_recorded).item() else None


def answerable_metrics(rows: pl.DataFrame, confidence_level: float) -> tuple[Estimate, ...]:
    """Return the metrics of `BY_ANSWERABLE` of one variant, a row a question."""
    split = by_answerable(rows)
    if split is None:
        reason = ANSWERABLE_NOT_RECORDED
        return tuple(Estimate(None, status="undefined", reason=reason, name=name) for name in BY_ANSWERABLE)
    table = sampled_table(split) or contingency_table(split)
    return tuple(
        replace(rate_or_score(like, table, DEFAULT_PAYOFFS, confidence_level), name=name)
        for name, like in BY_ANSWERABLE.items()
    )


def _metrics(table: AnyTable, worth: Payoffs, level: float) -> tuple[Estimate, ...]:
    return metrics(table, penalty=worth.penalty, truthfulness_weights=worth.truthfulness, confidence_level=level)


def never_forced(rows: pl.DataFrame) -> bool:
    """Whether refused questions lack their forced answers and none has one: what is settled without asking is none.

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


def _taken_for_wrong(rows: pl.DataFrame, chosen: pl.Expr) -> pl.DataFrame:
    return rows.with_columns(wrong=pl.when(chosen).then(pl.lit(value=True)).otherwise(_WRONG))
