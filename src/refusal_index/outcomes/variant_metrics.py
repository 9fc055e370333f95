"""Every metric of one variant, also where its refused questions were never forced.

A first pass alone, as another evaluation made it, shows how often the model refused, and how its answers were graded.
It does not show what it would have said to the questions that it refused: the error rate and the Refusal Index are not
known. Questions without a gold answer are settled without asking, wrong whatever is forced, and those that need asking
are not scored. So the scored rows alone are no sample of the questions, and the rates of a first pass are those of all
questions that it refused or answered.
"""

from __future__ import annotations

import polars as pl

from refusal_index.outcomes.counts import MISSING_LIMIT, NOT_STATED, contingency_table
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import FORCED_NOT_ASKED
from refusal_index.outcomes.sampling import sampled_table
from refusal_index.stats import ContingencyTable, Estimate, metrics
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.sampled_table import AnyTable

NEED_FORCED_ANSWERS = frozenset({"error_rate", "refusal_index"})
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
    lacking = str(ungraded.mode().sort()[0]) if ungraded.len() > MISSING_LIMIT * rows.height else None

    def shown(found: Estimate) -> Estimate:
        if found.name in NEED_FORCED_ANSWERS:
            return _not_known(found, FORCED_NOT_ASKED)
        return _not_known(found, lacking) if lacking and found.name not in NEED_NO_GRADES else found

    # What is not known counts as wrong, where it does not matter to the metric: of refused questions, and for the
    # refusal rate of all.
    by_answers = sampled_table(_taken_for_wrong(rows, _REFUSED)) or ContingencyTable(
        refused, 0, graded.answered_wrong, graded.answered_right
    )
    by_refusals = sampled_table(_taken_for_wrong(rows, _REFUSED.is_not_null())) or ContingencyTable(
        refused, 0, answered.height, 0
    )
    found, rates = (_metrics(table, worth, confidence_level) for table in (by_answers, by_refusals))
    pairs = zip(found, rates, strict=True)
    return tuple(shown(rate if rate.name in NEED_NO_GRADES else one) for one, rate in pairs)


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


def _not_known(found: Estimate, reason: str) -> Estimate:
    return Estimate(None, status="undefined", reason=reason, name=found.name, method=found.method)
