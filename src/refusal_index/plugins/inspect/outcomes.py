"""Scores of samples: the outcome in two passes with its metrics, and the grade in a score of another task's scorer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from refusal_index.data.graded import COLUMNS
from refusal_index.data.outcome import Grade, Outcome
from refusal_index.data.tables import FLAG, plain_name
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


FLAGS = {
    **dict.fromkeys(COLUMNS["correct"].names, (True, Grade.CORRECT)),
    **dict.fromkeys(COLUMNS["incorrect"].names, (True, Grade.INCORRECT)),
    **dict.fromkeys(COLUMNS["refused"].names, (True, Grade.REFUSED)),
    **dict.fromkeys(COLUMNS["answered"].names, (False, Grade.REFUSED)),
}
"""Parts of a dictionary score that together give the grade: the value of each, and the grade that it stands for."""


def grade_in(score: Score | None) -> Any:
    """Return the part of a score that holds the grade; None without a score."""
    if score is None:
        return None
    grade = (score.metadata or {}).get("grade")
    return grade if isinstance(grade, str) and grade.strip() else score.value


def grade_of_flags(value: Mapping[str, Any]) -> Grade | None:
    """Return the grade in the parts of a dictionary score; raises ValueError if they give none, or several."""
    parts = {plain_name(name): part for name, part in value.items()}
    if not FLAGS.keys() & parts.keys():
        raise ValueError(f"expected a grade, or the parts correct, incorrect and not_attempted, got {', '.join(value)}")
    flags = {name: _flag(name, parts[name]) for name in FLAGS if name in parts}
    grades = {FLAGS[name][1] for name, flag in flags.items() if flag is FLAGS[name][0]}
    if len(grades) > 1:
        raise ValueError(f"expected one grade, got {' and '.join(sorted(grades))}")
    if grades:
        return grades.pop()
    # without a part for wrong answers, an answer that is not right is wrong
    is_only_right = any(FLAGS[name][1] is Grade.CORRECT for name in flags) and not any(
        FLAGS[name][1] is Grade.INCORRECT for name in flags
    )
    is_wrong = is_only_right and not any(flag is None for flag in flags.values())
    return Grade.INCORRECT if is_wrong else None


def _flag(name: str, value: Any) -> bool | None:
    """Return a truth value; raises ValueError if it is not one."""
    try:
        flag: bool | None = FLAG(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return flag
