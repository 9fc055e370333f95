"""From the outcome table, or from published rates, to the counts that everything is computed from.

A first pass alone, as another evaluation made it, shows how often the model refused, and how its answers were graded.
It does not show what it would have said to the questions that it refused: the error rate and the Refusal Index are not
known. Questions without a gold answer are settled without asking, wrong whatever is forced, and those that need asking
are not scored. So the scored rows alone are no sample of the questions, and the rates of a first pass are those of all
questions that it refused or answered.

Statistics over several runs need to know which outcomes belong to the same question. In a matrix of outcomes, with one
row a run and one column a question, rows are matched by question id; a question that a run was not asked, or that has
no grade there, is a gap in that row and nowhere else.
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
from refusal_index.data.errors import OutcomeTableError, shortened
from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade
from refusal_index.data.outcome_table import GRADES, GROUP, SAMPLING_COLUMNS, SCHEMA, Sampling, read_outcomes
from refusal_index.stats import ContingencyTable, Estimate, SampledTable, metrics, refusal_index, tetrachoric
from refusal_index.stats.baseline import DEFAULT_PAYOFFS, Payoffs, rate_or_score, ratio_weights
from refusal_index.stats.contingency import FEW_CLUSTERS, AnyTable, effective_number
from refusal_index.stats.intervals import cell_influence

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


RATE_COLUMNS = {
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
    columns = tables.resolve_columns(source, present, {}, RATE_COLUMNS)
    for name in ("refusal_rate", "forced_accuracy", "n"):
        if name not in columns:
            raise source.lacks(f"a column {name!r}", present, ADVICE)
    given = [name for name in FIRST_PASS if name in columns]
    if len(given) != 1:
        raise source.lacks(f"one of the columns {' and '.join(map(repr, FIRST_PASS))}", present, ADVICE)
    published: dict[tuple[str, str | None], PublishedRates] = {}
    for row in rows:
        cells = tables.values_by_role(row, columns, RATE_COLUMNS)
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
        top, bottom = (cells @ np.array(weights, float) for weights in ratio_weights(worth)[metric])
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


def completeness(outcomes: pl.DataFrame, *, answered_only: bool = False) -> Completeness:
    """Count what is missing, and why.

    - `answered_only`: whether only the first pass was planned: then a refusal needs no forced answer, and is scored.
    """
    missing = outcomes.filter(~_SCORED)["unscored_reason"].fill_null(NOT_STATED)
    if answered_only:
        missing = missing.filter(missing != FORCED_NOT_ASKED)
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


@dataclass(frozen=True)
class SamplingSummary:
    """How the questions behind a variant's numbers were sampled."""

    # cluster, weight: the columns that say so; None where none does
    cluster: str | None
    weight: str | None
    clusters: int  # clusters with a scored question; questions where they are independent
    degrees_of_freedom: float | None  # of every standard error; None for a single cluster
    # questions that weights of one size would need; the number of questions where weights are equal
    effective_by_weight: float
    # independent questions that would give the index the same standard error; None where it has none
    effective_questions: float | None

    @property
    def few(self) -> bool:
        """Whether there are fewer clusters than an interval should rest on."""
        return self.cluster is not None and self.clusters < FEW_CLUSTERS


def sampled_table(outcomes: pl.DataFrame) -> SampledTable | None:
    """Count the scored rows of one variant with their clusters and weights; None where it has neither.

    - `outcomes`: rows of one model, dataset and variant, one draw a question.
    """
    if not any(_is_filled(outcomes, name) for name in SAMPLING_COLUMNS):
        return None
    rows = outcomes.drop_nulls(["refused", "wrong"]).filter(pl.col("weight").fill_null(1) > 0)
    return SampledTable.from_arrays(rows["refused"].to_numpy(), rows["wrong"].to_numpy(), **design_of(rows))


def design_of(rows: pl.DataFrame) -> dict[str, Any]:
    """Give clusters and weights as the functions of `refusal_index.stats` take them; empty where there are none."""
    return {name: rows[name].to_numpy() for name in SAMPLING_COLUMNS if _is_filled(rows, name)}


def sampling_summary(outcomes: pl.DataFrame, table: SampledTable | None, sampling: Sampling) -> SamplingSummary | None:
    """Describe the sampling of one variant; None where its questions are independent and count alike."""
    if table is None:
        return None
    columns = [sampling.column(name) if _is_filled(outcomes, name) else None for name in SAMPLING_COLUMNS]
    scored = outcomes.drop_nulls(["refused", "wrong"])
    weights = np.ones(table.n) if columns[1] is None else scored["weight"].to_numpy()
    degrees, index = table.degrees_of_freedom, refusal_index(table)
    rho = index.rho if index.status == "ok" else None
    return SamplingSummary(
        cluster=columns[0],
        weight=columns[1],
        clusters=table.n_clusters,
        degrees_of_freedom=None if np.isnan(degrees) else degrees,
        effective_by_weight=effective_number(weights) if table.n else 0.0,
        effective_questions=None if rho is None else table.effective_size(cell_influence(table, rho)),
    )


def describe(design: Mapping[str, Any], sampling: Sampling) -> dict[str, Any] | None:
    """Describe the sampling of matched questions as JSON holds it; None where they are independent and count alike."""
    if not design:
        return None
    cluster, weight = design.get("cluster"), design.get("weight")
    return {
        "cluster": None if cluster is None else sampling.column("cluster"),
        "weight": None if weight is None else sampling.column("weight"),
        "clusters": None if cluster is None else len(set(cluster.tolist())),
        "effective_by_weight": None if weight is None else effective_number(weight),
    }


def matched_design(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> dict[str, Any]:
    """Give clusters and weights of questions that several runs share, in the order of `ids`.

    Raises OutcomeTableError if runs disagree about a question, or none says what others say of theirs.
    """
    filled = [name for name in SAMPLING_COLUMNS if any(_is_filled(table, name) for table in tables)]
    if not filled:
        return {}
    known = pl.concat([table.select("question_id", *SAMPLING_COLUMNS) for table in tables])
    for name in filled:
        values = known.select("question_id", name).drop_nulls().unique()
        twice = values.filter(pl.len().over("question_id") > 1).sort("question_id", name)
        if twice.height:
            raise OutcomeTableError(
                f"question_id {shortened(twice['question_id'][0])} has the {name} {twice[name][0]!r} in one run and "
                f"{twice[name][1]!r} in another; a question has one {name}: correct it, or name another column with "
                f"--{name}"
            )
    rows = ids.join(
        known.group_by("question_id").agg(pl.col(name).drop_nulls().first() for name in SAMPLING_COLUMNS),
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
    """Outcomes side by side."""

    question_ids: tuple[str, ...]  # the n questions that occur anywhere, in the order in which they appear
    # refused, wrong: shape (k, n); False where the question has no outcome
    refused: BoolMatrix
    wrong: BoolMatrix
    scored: BoolMatrix  # shape (k, n); whether the question has one
    # clusters and weights of the questions, shape (n,) each, by the names under which `refusal_index.stats` takes them
    design: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[BoolMatrix, BoolMatrix, BoolMatrix]:
        """`refused`, `wrong` and `scored`, as the functions of `refusal_index.stats` take them."""
        return self.refused, self.wrong, self.scored

    @property
    def shared(self) -> BoolMatrix:
        """The questions scored in every row, shape (n,)."""
        return np.asarray(self.scored.all(axis=0))

    def of_questions(self, chosen: BoolMatrix) -> OutcomeMatrix:
        """Keep some of the questions."""
        ids = tuple(question for question, keep in zip(self.question_ids, chosen, strict=True) if keep)
        design = {name: values[chosen] for name, values in self.design.items()}
        return OutcomeMatrix(ids, self.refused[:, chosen], self.wrong[:, chosen], self.scored[:, chosen], design)

    def of_rows(self, chosen: Sequence[int]) -> OutcomeMatrix:
        """Keep some of the rows, in this order."""
        rows = list(chosen)
        return OutcomeMatrix(self.question_ids, self.refused[rows], self.wrong[rows], self.scored[rows], self.design)


def first_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep the first draw of each question: the draw of every number that rests on one draw.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> first_draws(rows)["draw"].to_list()
    [0]
    """
    return outcomes if drawn_once(outcomes) else outcomes.filter(pl.col("draw") == _FIRST_DRAW)


def further_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep all draws of each question but the first.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> further_draws(rows)["draw"].to_list()
    [1]
    """
    return outcomes.clear() if drawn_once(outcomes) else outcomes.filter(pl.col("draw") > _FIRST_DRAW)


_FIRST_DRAW = pl.col("draw").min().over("model", "dataset", "variant", "question_id")


def drawn_once(outcomes: pl.DataFrame) -> bool:
    """Whether all rows are of the same draw, so that no question occurs twice; a quick check for the common case."""
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
    _check_texts(rows)
    ids = pl.concat([table.select("question_id") for table in rows]).unique(maintain_order=True)
    matrix = _matrix([table.select("question_id", "refused", "wrong") for table in rows], ids)
    return replace(matrix, design=matched_design(rows, ids))


@dataclass(frozen=True, eq=False)
class DrawnOutcomes:
    """Repeated draws of one variant beside a single draw of each of its questions, all over the same columns."""

    repeated: OutcomeMatrix  # a row a draw, as `draw_matrix` makes it; gaps where a question was drawn once
    single: OutcomeMatrix  # one row, as `outcome_matrix` makes it


def drawn_outcomes(tables: Sequence[pl.DataFrame]) -> tuple[DrawnOutcomes, ...]:
    """Put the single and the repeated draws of several runs side by side, by question id.

    Raises OutcomeTableError as `outcome_matrix`.

    - `tables`: as for `draw_matrices`.
    """
    singles = outcome_matrix(tables)
    ids = pl.DataFrame({"question_id": singles.question_ids}, schema={"question_id": pl.String})
    return tuple(
        DrawnOutcomes(_matrix(_by_draw(_repeated_draws(table)), ids), singles.of_rows([row]))
        for row, table in enumerate(tables)
    )


def draw_matrix(outcomes: pl.DataFrame) -> OutcomeMatrix:
    """Put the draws of one variant side by side, for the questions that were drawn more than once.

    `wrong` is that of the forced answer, whether the first pass refused or answered: the noise of an estimate is found
    by comparing like with like. A draw without a forced answer, or in which either pass has no grade, is a gap.

    - `outcomes`: rows of one model, dataset and variant.
    """
    return draw_matrices([outcomes])[0]


def draw_matrices(tables: Sequence[pl.DataFrame]) -> tuple[OutcomeMatrix, ...]:
    """Put the draws of several runs side by side, each run as `draw_matrix` does, all over the same questions.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - returned: one a table, with as many rows as it has draws. Its columns are the questions that were drawn more than
      once in any of the tables.
    """
    repeated = [_repeated_draws(table) for table in tables]
    ids = pl.concat([rows.select("question_id") for rows in repeated]).unique(maintain_order=True)
    return tuple(_matrix(_by_draw(rows), ids) for rows in repeated)


def _by_draw(rows: pl.DataFrame) -> list[pl.DataFrame]:
    return rows.sort("draw", maintain_order=True).partition_by("draw", maintain_order=True)


def _repeated_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep the draws with grades in both passes of the questions that have more than one such draw."""
    forced = pl.col("forced_grade")
    outcomes = outcomes.clear() if drawn_once(outcomes) else outcomes
    graded = outcomes.filter(pl.col("refused").is_not_null() & forced.is_not_null() & (forced != Grade.UNSCORED.value))
    repeated = graded.filter(pl.len().over("question_id") > 1).with_columns(wrong=forced != Grade.CORRECT.value)
    return repeated.select("question_id", "draw", "refused", "wrong")


def _matrix(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> OutcomeMatrix:
    """Put tables of at most one row a question side by side, as rows over the given questions."""
    shape = (len(tables), ids.height)
    aligned = [ids.join(table, on="question_id", how="left", maintain_order="left") for table in tables]
    scored = [(rows["refused"].is_not_null() & rows["wrong"].is_not_null()).to_numpy() for rows in aligned]
    refused, wrong = (
        [rows[name].fill_null(value=False).to_numpy() for rows in aligned] for name in ("refused", "wrong")
    )
    r, w, s = (np.array(part, bool).reshape(shape) for part in (refused, wrong, scored))
    return OutcomeMatrix(tuple(ids["question_id"]), r & s, w & s, s)


def _check_texts(tables: Sequence[pl.DataFrame]) -> None:
    """Raise `OutcomeTableError` where an id stands for two questions: matching them would compare unlike things."""
    texts = [table.select("question_id", "question").drop_nulls() for table in tables]
    # Hashes are counted first, as all texts together may take more memory than there is.
    ids, pairs = pl.concat(texts).select("question_id", pair=pl.struct("question_id", "question").hash())
    if pairs.n_unique() > ids.n_unique():
        ambiguous = pl.concat(texts).unique().filter(pl.col("question_id").is_duplicated())
        (question_id, text), (_, other) = ambiguous.sort("question_id", "question").head(2).iter_rows()
        raise OutcomeTableError(
            f"question_id {shortened(question_id)} stands for {shortened(text)} and for {shortened(other)}: expected "
            "the same question under the same id; give the questions ids of their own, or compare runs over one file"
        )
