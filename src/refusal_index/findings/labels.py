"""Human labels of grades, and the agreement of two graders on the same replies.

A sheet is a CSV file with one row a graded answer and an empty column `human_grade`. The answer is the one that counts:
the first reply where the model answered, the forced one where it refused. Labels are counted for each model and
dataset on its own, over all its variants.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.cells import Kind
from refusal_index.data.files import write_atomically
from refusal_index.data.outcome_table import GRADES, GROUP, KEY
from refusal_index.data.rates import contingency_table, first_draws, variant_groups
from refusal_index.data.tables import read_text
from refusal_index.data.written_tables import csv_text, undo_safe
from refusal_index.errors import OutcomeTableError, shortened
from refusal_index.findings.metrics import Statement
from refusal_index.stats import GraderLabels, labels_for_half_width
from refusal_index.stats.estimate import CohenKappaResult, cohen_kappa

SHEET = (
    *("model", "dataset", "variant", "question_id", "pass", "question", "gold", "reply", "grade"),
    *("inclusion_probability", "human_grade"),
)
VERDICT = Kind(
    "correct, incorrect or refused (or A, B, C)",
    {
        **dict.fromkeys(("correct", "a", "right", "true", "1", "yes"), "correct"),
        **dict.fromkeys(("incorrect", "b", "wrong", "false", "0", "no"), "incorrect"),
        **dict.fromkeys(("refused", "c", "not_attempted", "unsure", "?"), "refused"),
    },
    "correct it or leave it empty",
)
CHANCE = Kind(
    "a number above 0 and up to 1",
    advice="leave the column as 'refusal-index audit' wrote it, or take it out",
    low=sys.float_info.min,
    high=1,
)
"""Column with the probability with which an answer was sampled."""

Source = tuple[str | None, str | None]
"""A model and a dataset."""


@dataclass(frozen=True)
class Labels:
    """Human labels of the grades of one model on one dataset."""

    # refused, answered: labelled answers of the forced and of the first pass
    refused: GraderLabels
    answered: GraderLabels
    neither: int  # labelled answers that the person found to be neither right nor wrong; they are left out
    # whether each labelled answer is wrong, and its chance of being drawn; by variant, None for a forced one, which
    # variants share, and question
    verdicts: Mapping[tuple[str | None, str], tuple[bool, float]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Labelled answers that are right or wrong."""
        return int(self.refused.errors.sum() + self.answered.errors.sum())


def audit_sheet(outcomes: pl.DataFrame, size: int, seed: int) -> pl.DataFrame:
    """Sample graded answers for human labelling: equal numbers of each model, dataset, pass and grade, where available.

    A slice drawn by grade says as much about rare grades as about frequent ones; the correction weighs them by their
    shares in the whole run. The chance with which an answer was drawn stands beside it.

    - `outcomes`: an outcome table; of repeated draws the first counts.
    - `size`: how many answers to draw, at most.
    - `seed`: of the draw.
    """
    refused = pl.col("refused")
    graded = first_draws(outcomes).drop_nulls(["refused", "wrong"])
    sheet = graded.select(
        *GROUP,
        "question_id",
        pl.when(refused).then(pl.lit("forced")).otherwise(pl.lit("first")).alias("pass"),
        "question",
        "gold",
        pl.when(refused).then("forced_reply").otherwise("first_reply").alias("reply"),
        pl.when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct")).alias("grade"),
        pl.lit(None, pl.String).alias("human_grade"),
    )
    # A forced answer that variants share is one answer, to be judged once.
    answer = ("model", "dataset", "question_id")
    shared = sheet.filter(pl.col("pass") == "forced").unique(answer, keep="first", maintain_order=True)
    sheet = pl.concat([sheet.filter(pl.col("pass") == "first"), shared])
    order = np.random.default_rng(seed).permutation(sheet.height)
    shuffled = sheet.with_columns(_lot=pl.Series(order)).sort("_lot")
    cell = ("model", "dataset", "pass", "grade")
    turns = shuffled.with_columns(_turn=pl.int_range(pl.len()).over(cell), _size=pl.len().over(cell))
    chosen = turns.sort("_turn", "_lot").head(size).sort("_lot")
    return chosen.with_columns(inclusion_probability=pl.len().over(cell) / pl.col("_size")).select(SHEET)


def labels_needed(outcomes: pl.DataFrame, half_width: float, grader_error: float) -> Statement:
    """State the total number of labels for an interval of a given half-width of each variant's index.

    First answers are labelled for each variant, forced ones for all of them at once.

    Raises OutcomeTableError if more questions would be needed, not more labels, or there is no index to plan for.

    - `half_width`: of the interval.
    - `grader_error`: the share of mistaken grades to expect, of right and of wrong answers.
    """
    needed: dict[Source, int] = {}
    for group in variant_groups(outcomes):
        table = contingency_table(first_draws(group.outcomes))
        plan = labels_for_half_width(
            table, half_width, graded_wrong_if_right=grader_error, graded_right_if_wrong=grader_error
        )
        name = " ".join(str(part) for part in (group.model, group.dataset, group.variant) if part)
        if plan.n is None and plan.half_width is not None:
            raise OutcomeTableError(
                f"audit: expected a half-width that labels can reach, got {half_width:g}; with every answer labelled "
                f"that of {name} is {plan.half_width:.3f}, and only more questions narrow it"
            )
        if plan.n is None:
            why = str(plan.reason).replace("_", " ")
            raise OutcomeTableError(
                f"audit: no plan for {name} ({why}) with a grader that errs on {100 * grader_error:.3g}%; "
                "give --size instead, or a smaller --grader-error"
            )
        source = group.model, group.dataset
        needed[source] = needed.get(source, 0) + plan.n
    # The sheet deals answers to all models and datasets alike.
    total = max(needed.values(), default=0) * len(needed)
    values = {"labels": total, "half_width": half_width, "grader_error": grader_error}
    return Statement("labels_needed", "conclusion", values)


def labelled_arrays(outcomes: pl.DataFrame, labels: Labels, variant: str | None) -> dict[str, np.ndarray]:
    """Put the verdicts beside the first draws of one variant, as arguments of `prediction_powered`, one row a run.

    - `outcomes`: the graded first draws.
    """
    keys = [
        (None if refused else variant, question)
        for question, refused in outcomes.select("question_id", "refused").iter_rows()
    ]
    verdicts = [labels.verdicts.get(key, (False, 1.0)) for key in keys]
    columns = {
        "refused": outcomes["refused"].to_numpy(),
        "wrong": outcomes["wrong"].to_numpy(),
        "labelled": np.array([key in labels.verdicts for key in keys], bool),
        "truly_wrong": np.array([is_wrong for is_wrong, _ in verdicts], bool),
        "inclusion": np.array([chance for _, chance in verdicts], float),
    }
    return {name: column[np.newaxis] for name, column in columns.items()}


def write_sheet(sheet: pl.DataFrame, path: Path) -> None:
    """Write a sheet as CSV."""
    write_atomically(path, csv_text(sheet).encode())


def read_labels(path: Path, outcomes: pl.DataFrame) -> dict[Source, Labels]:
    """Read human labels, and check them against the run.

    Raises OutcomeTableError if a column is missing, a grade is unknown, a row is not about a graded answer of this run,
    or no answer is labelled right or wrong.

    - `path`: a CSV file (also Parquet or JSON Lines) with the columns `question_id` and `human_grade`, and `model`,
      `dataset` or `variant` where the run has several of them. Rows without a human grade are passed over. A column
      `grade`, the grader's, is checked against the run; `inclusion_probability` is the chance with which the answer was
      drawn.
    - `outcomes`: the run's outcome table.
    - returned: by model and dataset, for those of the run that have labels; the variants of each are pooled.
    """
    raw = read_text(path, SHEET, "labelled answer", OutcomeTableError)
    varying = [name for name in GROUP if outcomes[name].n_unique() > 1]
    for name in ("question_id", "human_grade", *varying):  # without which a row may be about one answer or another
        if name not in raw.columns:
            why = f" since the run has several {name}s" if name in varying else ""
            advice = "; label the sheet that 'refusal-index audit' writes"
            raise raw.source.lacks(f"a column {name!r}{why}", raw.columns, advice)
    graded = first_draws(outcomes).drop_nulls(["refused", "wrong"])
    answers = {
        (tuple(group), question): (refused, wrong)
        for *group, question, refused, wrong in graded.select(*GROUP, "question_id", "refused", "wrong").iter_rows()
    }
    constant = {name: values[0] for name in GROUP if len(values := outcomes[name].unique().to_list()) == 1}
    counted: Counter[tuple[Source, bool, bool, bool | None]] = Counter()
    verdicts: dict[Source, dict[tuple[str | None, str], tuple[bool, float]]] = {}
    human_verdicts = raw.values("human_grade", VERDICT)
    chances: Sequence[float | None] = [None] * len(raw.lines)  # without the column, all answers of a kind were drawn
    if "inclusion_probability" in raw.columns:
        chances = raw.values("inclusion_probability", CHANCE).to_list()
    for number, row in enumerate(undo_safe(raw.frame).iter_rows(named=True)):
        if human_verdicts[number] is None:
            continue
        model, dataset, variant = (row.get(name) or constant.get(name) for name in GROUP)
        refused, graded_wrong = _answer(raw.where(number), row, (model, dataset, variant), answers)
        right = None if human_verdicts[number] == "refused" else human_verdicts[number] == "correct"
        counted[(model, dataset), refused, graded_wrong, right] += 1
        if right is not None:
            answer = None if refused else variant, row["question_id"] or ""
            verdicts.setdefault((model, dataset), {})[answer] = not right, chances[number] or 1.0
    if not counted:
        raise OutcomeTableError(f"{path}: expected rows with a human_grade, got none; fill in the column and try again")
    if all(verdict is None for *_, verdict in counted):
        raise OutcomeTableError(
            f"{path}: expected answers that are labelled correct or incorrect, got {counted.total():,} labels, "
            "none of them right or wrong; say of each answer whether it agrees with the gold answer"
        )
    labels = {}
    kinds = ((True, False), (True, True), (False, False), (False, True))
    for source in dict.fromkeys(source for source, *_ in counted):
        refused_labels, answered_labels = (
            GraderLabels(*(counted[source, is_refused, wrong, right] for wrong, right in kinds))
            for is_refused in (True, False)
        )
        neither = sum(
            count for (answer_source, *_, right), count in counted.items() if answer_source == source and right is None
        )
        labels[source] = Labels(refused_labels, answered_labels, neither, verdicts.get(source, {}))
    return labels


def _answer(
    location: str,
    row: Mapping[str, str | None],
    group: tuple[str | None, ...],
    answers: Mapping[tuple[tuple[str | None, ...], str], tuple[bool, bool]],
) -> tuple[bool, bool]:
    """Return whether the answer of a row was first refused, and whether it is graded wrong."""
    question = row["question_id"] or ""
    if (group, question) not in answers:
        group_text = ", ".join(f"{name} {shortened(value)}" for name, value in zip(GROUP, group, strict=True) if value)
        raise OutcomeTableError(
            f"{location}: expected a graded answer of this run, got question_id {shortened(question)}"
            + (f" of {group_text}" if group_text else "")
            + "; label the sheet of the same run"
        )
    refused, wrong = answers[group, question]
    grade = (row.get("grade") or "").strip().casefold()
    expected = "incorrect" if wrong else "correct"
    if grade and VERDICT.words.get(grade) != expected:
        raise OutcomeTableError(
            f"{location}: expected the grade that the run has for {shortened(question)}, "
            f"{expected!r}, got {grade!r}; label the sheet of the same run"
        )
    return refused, wrong


@dataclass(frozen=True)
class GradeAgreement:
    """Agreement of two graders on the replies of one pass."""

    # number of replies by the grade before and the grade now, in the order of `GRADES`; only grades that occur
    counts: Mapping[tuple[str, str], int]
    kappa: CohenKappaResult  # their agreement

    @property
    def grades(self) -> tuple[str, ...]:
        """The grades that occur, before or now."""
        return tuple(grade for grade in GRADES if any(grade in pair for pair in self.counts))


@dataclass(frozen=True)
class GradeChanges:
    """Changes between two graders."""

    # first, forced: agreement over the replies of each pass; a forced answer that variants share is one
    first: GradeAgreement
    forced: GradeAgreement
    cells: Mapping[tuple[str, str], int]  # number of rows by their cell before and now, where the two differ
    n: int  # number of rows that were compared


def grade_changes(before: pl.DataFrame, now: pl.DataFrame | pl.LazyFrame) -> GradeChanges:
    """Compare two outcome tables of the same replies under two graders.

    - `before`, `now`: outcome tables; rows are matched by variant, question and draw, and those of one table alone are
      left out.

    >>> from refusal_index.data import Grade, Outcome, Question
    >>> from refusal_index.data.outcome_table import Identification, outcome_table
    >>> asked, question = Identification("m", "d", "normal"), Question("q1", "Capital of France?", "Paris")
    >>> before = outcome_table([(asked, question, Outcome(False, True, Grade.INCORRECT))])
    >>> now = outcome_table([(asked, question, Outcome(False, False, Grade.CORRECT))])
    >>> grade_changes(before, now).cells
    {('answered_wrong', 'answered_right'): 1}
    """
    # The model's name and the dataset's are the same in both; nulls among the variants match each other.
    key = [name for name in KEY if name not in {"model", "dataset"}]
    columns = ("refused", "wrong", "first_grade", "forced_grade", "forced_reply")
    then, after = (table.lazy().select(*key, *columns) for table in (before, now))
    both = then.join(after, on=key, suffix="_now", nulls_equal=True, maintain_order="left").collect()
    cells = Counter(zip(both.select(_cell()).to_series(), both.select(_cell("_now")).to_series(), strict=True))
    shared = both.unique(["question_id", "draw", "forced_reply"], keep="first", maintain_order=True)
    return GradeChanges(
        first=_agreement(both, "first_grade"),
        forced=_agreement(shared, "forced_grade"),
        cells={pair: count for pair, count in sorted(cells.items()) if pair[0] != pair[1]},
        n=both.height,
    )


def _agreement(rows: pl.DataFrame, column: str) -> GradeAgreement:
    pairs = Counter(rows.select(column, f"{column}_now").drop_nulls().iter_rows())
    counts = {pair: pairs[pair] for pair in product(GRADES, GRADES) if pairs[pair]}
    return GradeAgreement(counts, cohen_kappa([[pairs[before, now] for now in GRADES] for before in GRADES]))


def _cell(suffix: str = "") -> pl.Expr:
    refused = pl.col(f"refused{suffix}")
    wrong = pl.col(f"wrong{suffix}")
    first = pl.when(refused).then(pl.lit("refused_")).when(~refused).then(pl.lit("answered_"))
    forced = pl.when(wrong).then(pl.lit("wrong")).when(~wrong).then(pl.lit("right"))
    return (first + forced).fill_null("unscored")


def changes_document(changes: GradeChanges) -> dict[str, Any]:
    """Return the changes as a JSON-serialisable dictionary."""
    return {
        "n": changes.n,
        "cells": _pairs(changes.cells),
        "first": {**asdict(changes.first.kappa), "counts": _pairs(changes.first.counts)},
        "forced": {**asdict(changes.forced.kappa), "counts": _pairs(changes.forced.counts)},
    }


def _pairs(counts: Mapping[tuple[str, str], int]) -> Sequence[Mapping[str, Any]]:
    return [{"before": before, "now": now, "count": count} for (before, now), count in counts.items()]
