"""The Refusal Index if unclear replies were refusals.

An unclear reply declines and also gives an answer, or names no single choice. It counts as an answer. Its question goes
through the forced pass too, so that the index can also be given with all of them as refusals, and with any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from refusal_index import stats
from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome import UNCLEAR, Grade
from refusal_index.data.rates import contingency_table, variant_metrics
from refusal_index.findings.metrics import INDEX, Statement
from refusal_index.findings.reply_checks import ReplyChecks

SHARE_LIMIT = 0.03
"""Share of unclear replies above which a caveat is shown."""

WIDTH_LIMIT = 0.5
"""Change of RI above which a caveat is shown, as a share of the half-width of its interval.

With 3 % unclear replies among 1,000 questions, it is exceeded in at most 6 % of simulated runs.
"""


@dataclass(frozen=True)
class UnclearReplies:
    """What unclear replies could change in a variant."""

    replies: int  # how many there are
    asked: int  # questions that were asked
    as_refusals: stats.Estimate  # RI with all of them as refusals
    forced_unknown: int  # those without a graded forced answer, left out of `as_refusals`


def unclear_replies(rows: pl.DataFrame, analysis: Analysis) -> UnclearReplies | None:
    """Return what unclear replies could change; None if there are none.

    - `rows`: one variant, one row a question.
    """
    unclear = _unclear(rows)
    if unclear.is_empty():
        return None
    changed = as_refusals(rows)
    index = next(metric for metric in variant_metrics(changed, analysis) if metric.name == INDEX)
    unknown = unclear.filter(_forced_wrong().is_null()).height
    return UnclearReplies(unclear.height, rows.height, index, unknown)


def as_refusals(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with unclear replies as refusals, for which the forced answer counts."""
    is_unclear = _is_unclear()
    return rows.with_columns(
        refused=pl.when(is_unclear).then(pl.lit(value=True)).otherwise("refused"),
        wrong=pl.when(is_unclear).then(_forced_wrong()).otherwise("wrong"),
    )


def unclear_bounds(rows: pl.DataFrame) -> stats.MissingBounds | None:
    """Return the range of RI with any of the unclear replies as refusals; None if there are none.

    - `rows`: one variant, one row a question. Unclear replies without a graded forced answer stay answers. The range
      does not allow for weights, so weighted rows have none.
    """
    unclear = _unclear(rows)
    is_weighted = "weight" in rows.columns and rows["weight"].null_count() < rows.height
    if unclear.is_empty() or is_weighted:
        return None
    unclear = unclear.with_columns(forced_wrong=_forced_wrong()).drop_nulls(["wrong", "forced_wrong"])
    count = unclear.group_by("wrong", "forced_wrong").len()
    counts = {(wrong, forced): n for wrong, forced, n in count.iter_rows()}
    return stats.reading_bounds(
        contingency_table(rows),
        wrong_both=counts.get((True, True), 0),
        wrong_first=counts.get((True, False), 0),
        wrong_forced=counts.get((False, True), 0),
        right_both=counts.get((False, False), 0),
    )


def unclear_caveats(
    index: stats.Estimate, unclear: UnclearReplies | None, checks: ReplyChecks | None = None
) -> Iterator[Statement]:
    """Yield a caveat if unclear replies are many, or move RI by much of its interval; else a note.

    - `index`: RI with unclear replies as answers.
    - `unclear`: what they could change.
    - `checks`: counts of the replies, among them those that name no single choice; None if unknown.
    """
    if unclear is None:
        return
    other = unclear.as_refusals
    is_many = unclear.replies > SHARE_LIMIT * unclear.asked
    if index.estimate is None or other.estimate is None or index.low is None or index.high is None:
        moves = index.estimate != other.estimate
    else:
        moves = abs(other.estimate - index.estimate) > WIDTH_LIMIT * (index.high - index.low) / 2
    values = {
        "replies": unclear.replies,
        "asked": unclear.asked,
        "unread": None if checks is None else checks.unread_choices,
        "estimate": index.estimate,
        "as_refusals": other.estimate,
        "reason": other.reason,
        "forced_unknown": unclear.forced_unknown,
    }
    yield Statement("unclear_replies", "serious" if is_many or moves else "note", values)


def _is_unclear() -> pl.Expr:
    return (pl.col("reading") == UNCLEAR).fill_null(value=False) & pl.col("refused").not_().fill_null(value=False)


def _unclear(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of unclear replies; none if the table does not say how replies were read."""
    return rows.filter(_is_unclear()) if "reading" in rows.columns else rows.clear()


def _forced_wrong() -> pl.Expr:
    """Whether the forced answer is wrong; null if it is unscored or missing."""
    grade = pl.col("forced_grade")
    is_known = grade.is_not_null() & (grade != Grade.UNSCORED.value)
    return pl.when(is_known).then(grade != Grade.CORRECT.value)
