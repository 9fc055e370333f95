"""The outcome of a sample in two passes: its row in the sample's metadata, its score, and metrics of such scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from refusal_index.data.outcome import Outcome
from refusal_index.protocol.reading import RecognisedBy
from refusal_index.stats import CELL_NAMES, ContingencyTable, metrics

OUTCOME = "refusal_index"
"""The key of a sample's metadata, and of a score's, that holds its row of the outcome table."""

SCORER = "refusal_index/outcome"
"""The name of the score that `two_pass` adds to a sample."""


def outcome_row(outcome: Outcome, variant: str, draw: int) -> dict[str, Any]:
    """Return the row of an outcome: the columns of the outcome table that the rest of the sample does not hold."""
    return {
        "variant": variant,
        "draw": draw,
        "refused": outcome.refused,
        "wrong": outcome.wrong,
        "first_grade": outcome.first_grade and str(outcome.first_grade),
        "forced_grade": outcome.forced_grade and str(outcome.forced_grade),
        "unscored_reason": outcome.unscored_reason,
        "first_reply": outcome.first_reply,
        "forced_reply": outcome.forced_reply,
        "reading": outcome.reading and str(outcome.reading),
    }


def outcome_score(row: Mapping[str, Any]) -> Score:
    """Return the score of a row: C, I or N, as Inspect's own; NaN if it lacks a grade.

    Inspect leaves NaN out of metrics and counts it as unscored. With N for a refusal, `accuracy` of these scores is the
    share of right answers in the first pass.
    """
    shown: Value = math.nan
    if row["refused"] is not None and row["wrong"] is not None:
        shown = "N" if row["refused"] else "I" if row["wrong"] else "C"
    reply = "" if row["forced_reply"] is None else f"forced to answer: {row['forced_reply']}"
    return Score(
        value=shown,
        answer=row["first_reply"],
        explanation=reply or None,
        reason=row["unscored_reason"],
        metadata={OUTCOME: dict(row)},
    )


def _table(rows: Iterable[Mapping[str, Any]]) -> ContingencyTable:
    known = [row for row in rows if row["refused"] is not None and row["wrong"] is not None]
    return ContingencyTable.from_arrays([row["refused"] for row in known], [row["wrong"] for row in known])


def _rows(scores: Iterable[SampleScore]) -> list[Mapping[str, Any]]:
    """Return the rows in scores, of the first epoch only: further epochs are repeated samples of the same questions."""
    rows = [(score.score.metadata or {}).get(OUTCOME) for score in scores]
    return [row for row in rows if row is not None and not row["draw"]]


def _estimate(scores: list[SampleScore], name: str) -> Value:
    """Return a metric with its 95% interval; a status other than ok is an entry of its own.

    Scores without an outcome, of another scorer of the task, have no entries.
    """
    rows = _rows(scores)
    if scores and not rows:
        return {}
    found = next(one for one in metrics(_table(rows)) if one.name == name)
    entries = {name: math.nan if found.estimate is None else found.estimate}
    for end, value in (("low", found.low), ("high", found.high)):
        if value is not None:
            entries[f"{name}/{end}"] = value
    if found.status != "ok":
        entries[f"{name}/{found.status}/{found.reason}"] = 1
    return entries


@metric(scores="unreduced")
def refusal_index() -> Metric:
    """Refusal Index of a task under `two_pass`, with its interval."""
    return partial(_estimate, name="refusal_index")


@metric(scores="unreduced")
def refusal_precision() -> Metric:
    """Share of the refused questions that are wrong when forced, with its interval."""
    return partial(_estimate, name="refusal_precision")


@metric(scores="unreduced")
def over_refusal() -> Metric:
    """Share refused of the questions that the model answers correctly, if need be when forced, with its interval."""
    return partial(_estimate, name="over_refusal")


@metric(scores="unreduced")
def outcome_counts() -> Metric:
    """Count the questions in each cell of the table, and the refusals that only the scorer saw."""

    def compute(scores: list[SampleScore]) -> Value:
        rows = _rows(scores)
        if scores and not rows:
            return {}
        table = _table(rows)
        by_scorer = Counter(row["reading"] for row in rows)[str(RecognisedBy.GRADER)]
        # the count of first replies that only the scorer, not the reading, took for a refusal
        return {**{cell: getattr(table, cell) for cell in CELL_NAMES}, "refused_by_scorer": by_scorer}

    return compute


@scorer(metrics=[refusal_index(), refusal_precision(), over_refusal(), outcome_counts()])
def outcome() -> Scorer:
    """Score a sample by the outcome in its metadata: the metrics of `two_pass`, and for `inspect score`."""

    async def score(state: TaskState, target: Target) -> Score | None:  # noqa: ARG001 - Inspect's signature
        row = state.metadata.get(OUTCOME)
        return None if row is None else outcome_score(row)

    return score
