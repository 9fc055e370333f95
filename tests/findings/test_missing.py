"""Questions without a grade: the range that they leave by brute force over the table, and whether failures refuse."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.findings.test_summary import (
    REFUSED_RIGHT,
    REFUSED_WRONG,
    RIGHT,
    UNSCORED,
    WRONG,
    codes,
    message,
    one,
    table_of,
    warning,
)

from refusal_index import refusal_index_many
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.findings.conclusions import lacking
from refusal_index.findings.sensitivity import LEVEL, MIN_FAILURES, failure_pvalue, missing_range
from refusal_index.findings.summary import VariantSummary, is_complete, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_document, summary_table
from refusal_index.runs.writing import as_json
from refusal_index.stats import ContingencyTable, missing_bounds

CELLS = [(True, True), (True, False), (False, True), (False, False)]
ROWS = [*CELLS, (True, None), (False, None), (None, None)]
FORCED_FAILED = Outcome(True, None, unscored_reason="request_failed")
UNGRADED = Outcome(False, None, unscored_reason="first_grade_unreadable")


def outcomes(rows: list[tuple[bool | None, bool | None]]) -> pl.DataFrame:
    refused, wrong = zip(*rows, strict=True)
    data = {"refused": refused, "wrong": wrong, "forced_grade": [None] * len(rows)}
    return pl.DataFrame(data, schema={"refused": pl.Boolean, "wrong": pl.Boolean, "forced_grade": pl.String})


def completed(rows: list[tuple[bool | None, bool | None]]) -> list[float]:
    """Index of every way to fill in the rows, question by question; NaN where it has none."""
    choices = [[cell for cell in CELLS if row[0] in (None, cell[0]) and row[1] in (None, cell[1])] for row in rows]
    counts = {tuple(filled.count(cell) for cell in CELLS) for filled in itertools.product(*choices)}
    return refusal_index_many(*np.array(sorted(counts)).T).tolist()


@given(st.lists(st.sampled_from(ROWS), min_size=1, max_size=8))
def test_the_range_is_that_of_every_way_to_fill_in_the_questions(rows) -> None:
    found, known = missing_range(outcomes(rows)), [index for index in completed(rows) if not math.isnan(index)]
    if all(None not in row for row in rows):
        assert found is None
    elif not known:
        assert (found.low, found.high, found.status) == (None, None, "undefined")
    else:
        assert (found.low, found.high) == pytest.approx((min(known), max(known)), abs=1e-12)
        assert found.questions == sum(None in row for row in rows)


def test_known_refusals_leave_less_open_than_questions_of_which_nothing_is_known() -> None:
    refused, nothing = (one(710, 30, 210, 50, {what: 15}).missing for what in (FORCED_FAILED, UNSCORED))
    bounds = missing_bounds(ContingencyTable(710, 30, 210, 50), unknown_refused=15)
    assert (refused.low, refused.high, refused.refused) == (bounds.low, bounds.high, 15)
    assert nothing.low <= refused.low < refused.high < nothing.high


def test_with_nothing_missing_there_is_no_range_and_no_column() -> None:
    summary = summarise(table_of({REFUSED_WRONG: 40, REFUSED_RIGHT: 10, WRONG: 20, RIGHT: 30}))
    assert summary.variants[0].missing is None
    assert "range over missing grades" not in summary_table(summary).columns
    assert json.loads(as_json(summary_document(summary)))["variants"][0]["missing"] is None


def test_below_two_percent_the_range_stands_beside_the_interval_and_in_the_document() -> None:
    summary = summarise(table_of({REFUSED_WRONG: 500, REFUSED_RIGHT: 100, WRONG: 200, RIGHT: 190, UNSCORED: 10}))
    (variant,), table = summary.variants, summary_table(summary)
    bounds = missing_bounds(ContingencyTable(500, 100, 200, 190), unscored=10)
    assert table.rows[0][table.columns.index("range over missing grades")] == f"{bounds.low:.3f} to {bounds.high:.3f}"
    assert (variant.status, table.rows[0][table.columns.index("status")]) == ("ok", "ok")
    assert is_complete(summary)
    (document,) = json.loads(as_json(summary_document(summary)))["variants"]
    expected = {"low": bounds.low, "high": bounds.high, "status": "ok", "reason": None}
    assert document["missing"] == {**expected, "refused": 0, "answered": 0, "unknown": 10}


@pytest.mark.parametrize("cells", [{REFUSED_WRONG: 40, REFUSED_RIGHT: 10, WRONG: 20, RIGHT: 30}, {RIGHT: 100}, {}])
def test_a_variant_that_lacks_a_third_is_incomplete_whatever_its_index_is(cells) -> None:
    summary = summarise(table_of({**cells, UNSCORED: 50}))
    table, document = summary_table(summary), json.loads(as_json(summary_document(summary)))
    assert table.rows[0][table.columns.index("status")] == "incomplete"
    assert (document["complete"], document["variants"][0]["status"]) == (False, "incomplete")
    scored = sum(cells.values())
    assert sentence(lacking(summary)) == f"Incomplete: normal {scored} of {scored + 50} questions scored."


def test_what_is_lacking_names_each_incomplete_variant_and_who_asks_for_the_rest() -> None:
    to_come = Outcome(None, None, unscored_reason=NOT_FINISHED)
    parts = {"low": {RIGHT: 99, UNSCORED: 1}, "normal": {RIGHT: 120, to_come: 80}, "high": {to_come: 200}}
    summary = summarise(pl.concat([table_of(cells, name) for name, cells in parts.items()]))
    assert sentence(lacking(summary)) == (
        "Incomplete: normal 120 of 200, high 0 of 200 questions scored; run the same command again to complete it."
    )


def drawn_again(scored: int, unscored: int, variant: str = "normal", reason: str = "first_truncated") -> pl.DataFrame:
    """Return 100 questions, the first of which are drawn again, some of these without a grade."""
    right, wrong = (Outcome(False, one is Grade.INCORRECT, one, one) for one in (Grade.CORRECT, Grade.INCORRECT))
    missing = Outcome(None, None, unscored_reason=reason)
    parts = {0: {right: 60, wrong: 40}, 1: {right: scored, missing: unscored}}
    return pl.concat([table_of(cells, variant, draw) for draw, cells in parts.items()])


@pytest.mark.parametrize(("unscored", "complete"), [(0, True), (1, True), (2, False), (50, False)])
def test_more_than_two_percent_of_further_draws_without_a_grade_are_incomplete(unscored: int, complete: bool) -> None:
    summary = summarise(drawn_again(50 - unscored, unscored))
    (variant,), document = summary.variants, json.loads(as_json(summary_document(summary)))
    assert variant.completeness.unscored == 0
    assert document["variants"][0]["further_draws"] == {
        "asked": 50,
        "scored": 50 - unscored,
        "unscored": unscored,
        "reasons": {"first_truncated": unscored} if unscored else {},
        "missing_share": unscored / 50,
    }
    assert (document["complete"], variant.status == "incomplete") == (complete, not complete)
    lacks = lacking(summary)
    if not complete:
        assert sentence(lacks) == f"Incomplete: normal {50 - unscored} of 50 repeated samples scored."
    else:
        assert lacks is None
    assert ("incomplete_draws" in codes(variant)) is not complete
    assert "repeated_draws_unused" not in codes(variant)
    if not complete:
        counts = {"missing": unscored, "asked": 50, "reasons": {"first_truncated": unscored}}
        assert warning(variant, "incomplete_draws").values == counts
        assert message(variant, "incomplete_draws").startswith(
            f"{unscored} of 50 repeated samples ({100 * unscored / 50:.1f}%) could not be scored"
        )


def test_where_every_question_is_drawn_once_there_are_no_further_draws() -> None:
    summary = summarise(table_of({RIGHT: 60, WRONG: 40}))
    assert summary.variants[0].further_draws is None
    assert json.loads(as_json(summary_document(summary)))["variants"][0]["further_draws"] is None


def test_what_is_lacking_tells_questions_and_further_draws_apart() -> None:
    low = table_of({RIGHT: 80, UNSCORED: 20}, "low")
    summary = summarise(pl.concat([low, drawn_again(10, 40, "high", NOT_FINISHED)]))
    assert sentence(lacking(summary)) == (
        "Incomplete: low 80 of 100 questions and high 10 of 50 repeated samples scored; "
        "run the same command again to complete it."
    )


def unscored_refusals(failed: int, ungraded: int = 0, more: dict[Outcome, int] | None = None) -> VariantSummary:
    return one(200, 50, 400, 340, {FORCED_FAILED: failed, UNGRADED: ungraded, **(more or {})})


def by_hand(failed: int, refused: int, ungraded: int, answered: int) -> float:
    """P(so many or more of the failures are among the refused), by the hypergeometric distribution."""
    drawn, n, k = failed + ungraded, refused + answered, refused
    ways = [math.comb(k, x) * math.comb(n - k, drawn - x) for x in range(failed, min(drawn, k) + 1)]
    return sum(ways) / math.comb(n, drawn)


@pytest.mark.parametrize(("failed", "ungraded"), [(5, 0), (10, 3), (12, 9), (8, 10), (6, 20), (5, 80)])
def test_failures_go_with_refusals_by_the_hypergeometric_distribution(failed: int, ungraded: int) -> None:
    found = failure_pvalue(ContingencyTable(200, 50, 400, 340), failed, ungraded)
    pvalue = by_hand(failed, 250 + failed, ungraded, 740 + ungraded)
    assert (found is not None) == (pvalue <= LEVEL)
    if found is not None:
        assert found == pytest.approx(pvalue)


def test_a_caution_where_failures_go_with_refusals_also_below_two_percent() -> None:
    variant = unscored_refusals(10)
    assert variant.completeness.missing_share < 0.02
    assert codes(variant) == ["unscored_refusals"]
    said, values = message(variant, "unscored_refusals"), warning(variant, "unscored_refusals").values
    assert "10 of 260 refused questions (3.8%) could not be scored, compared with 0 of 740 answered ones (0.0%;" in said
    bounds = missing_bounds(ContingencyTable(200, 50, 400, 340), unknown_refused=10)
    assert (values["low"], values["high"]) == (bounds.low, bounds.high)


def test_no_caution_from_tiny_counts_even_failures_or_what_nobody_asked() -> None:
    assert by_hand(MIN_FAILURES - 1, 250 + MIN_FAILURES - 1, 0, 740) < LEVEL, "the count decides"
    assert codes(unscored_refusals(MIN_FAILURES - 1)) == []
    assert codes(unscored_refusals(5, 14)) == []
    nobody = Outcome(True, None, unscored_reason=FORCED_NOT_ASKED)
    assert "unscored_refusals" not in codes(unscored_refusals(0, more={nobody: 100}))


def test_graders_who_differ_between_right_and_wrong_leave_a_sharp_range() -> None:
    """Sixty rows, five of them answered without a grade and four refused without one: the refusal rate is known."""
    kinds = {
        Outcome(True, True, Grade.REFUSED, Grade.INCORRECT): 13,
        Outcome(True, False, Grade.REFUSED, Grade.CORRECT): 4,
        Outcome(True, None, Grade.REFUSED, Grade.UNSCORED, "forced_graders_disagree"): 4,
        Outcome(False, True, Grade.INCORRECT): 17,
        Outcome(False, False, Grade.CORRECT): 17,
        Outcome(False, None, Grade.UNSCORED, None, "first_graders_disagree"): 5,
    }
    each = [kind for kind, count in kinds.items() for _ in range(count)]
    asked = Identification("m", "d", "normal")
    table = outcome_table((asked, Question(f"q{place}", "?", "!"), kind) for place, kind in enumerate(each))
    (variant,) = summarise(table).variants
    rate, index = (variant.sensitivity.range_of(name) for name in ("refusal_rate", "refusal_index"))
    assert (rate.low, rate.high) == (21 / 60, 21 / 60)
    assert variant.missing is not None
    assert (variant.missing.refused, variant.missing.answered, variant.missing.unknown) == (4, 5, 0)
    assert (index.low, index.high) == (variant.missing.low, variant.missing.high)
