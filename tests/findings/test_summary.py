"""The summary, in memory and of a file, and the range that missing grades leave."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.render.making import rows
from tests.tiers import one_fast

from refusal_index import refusal_index_many
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.files import json_text
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED
from refusal_index.data.outcome_table import SCHEMA, Identification, outcome_table
from refusal_index.data.rates import BY_ANSWERABLE, FORCED_REFUSAL_LIMIT, MISSING_LIMIT, each_group, variant_groups
from refusal_index.data.run_json import Price, Prices
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.conclusions import missing_answers
from refusal_index.findings.labels import grade_changes
from refusal_index.findings.metrics import Statement
from refusal_index.findings.sections import with_sections
from refusal_index.findings.sensitivity import LEVEL, MIN_FAILURES, failure_pvalue, missing_range
from refusal_index.findings.summary import Summary, Usage, VariantSummary, is_complete, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_document, summary_table
from refusal_index.stats import METRIC_NAMES, ContingencyTable, metrics, missing_bounds

# --- The summary

RIGHT, WRONG = Outcome(False, False), Outcome(False, True)
REFUSED_RIGHT, REFUSED_WRONG = Outcome(True, False), Outcome(True, True)
UNSCORED = Outcome(None, None, unscored_reason="first_truncated")


def table_of(cells: dict[Outcome, int], variant: str | None = "normal", draw: int = 0) -> pl.DataFrame:
    outcomes = [outcome for outcome, count in cells.items() for _ in range(count)]
    asked = Identification("m", "d", variant, draw)
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


def variant_of(refused_wrong: int, refused_right: int, wrong: int, right: int, more: dict[Outcome, int] | None = None):
    cells = {REFUSED_WRONG: refused_wrong, REFUSED_RIGHT: refused_right, WRONG: wrong, RIGHT: right, **(more or {})}
    (variant,) = summarise(table_of(cells)).variants
    return variant


def codes(variant: VariantSummary) -> list[str]:
    return [caveat.code for caveat in variant.caveats]


def warning(variant: VariantSummary, code: str) -> Statement:
    return next(one for one in variant.caveats if one.code == code)


def message(variant: VariantSummary, code: str) -> str:
    return sentence(warning(variant, code))


def test_metrics_match_stats_for_the_counts():
    variant = variant_of(710, 30, 210, 50)
    assert variant.table == ContingencyTable(710, 30, 210, 50)
    assert variant.metrics[: len(METRIC_NAMES)] == metrics(variant.table)
    assert variant.index == variant.metrics[len(METRIC_NAMES) - 1]
    assert codes(variant) == []


def test_confidence_level_and_p_of_the_weighted_score_are_passed_on_and_kept():
    table = table_of({REFUSED_WRONG: 7, REFUSED_RIGHT: 5, WRONG: 6, RIGHT: 9})
    summary = summarise(table, Analysis(0.8, weighted_score_p=0.2))
    (variant,) = summary.variants
    assert variant.metrics[: len(METRIC_NAMES)] == metrics(variant.table, weighted_score_p=0.2, confidence_level=0.8)
    assert (summary.analysis.payoffs.weighted_score_p, summary.analysis.confidence_level) == (0.2, 0.8)


def test_variants_keep_their_order_and_tables_are_not_summed():
    names = ["low", "normal", "high", "highest"]
    table = pl.concat([table_of({REFUSED_WRONG: i + 1, RIGHT: 9}, name) for i, name in enumerate(names)])
    summary = summarise(table)
    assert [(variant.variant, variant.table.n_refused) for variant in summary.variants] == list(
        zip(names, [1, 2, 3, 4], strict=True)
    )
    (pooled,) = summary.pooled
    assert pooled.variants == tuple(names)
    assert sum(variant.table.n for variant in summary.variants) == 4 * 9 + 1 + 2 + 3 + 4


def test_no_rows_give_no_variants():
    assert summarise(outcome_table([])) == Summary((), (), DEFAULT_ANALYSIS)


@pytest.mark.parametrize(
    ("cells", "reason", "words"),
    [
        ((0, 0, 50, 50), "nobody_refused", "no question was refused"),
        ((50, 50, 0, 0), "everybody_refused", "every question was refused"),
        ((50, 0, 50, 0), "all_wrong", "no question got a right answer"),
        ((0, 50, 0, 50), "all_right", "every answer was right"),
    ],
)
def test_an_undefined_estimate_is_explained_in_plain_words(cells, reason, words):
    variant = variant_of(*cells)
    assert variant.index.reason == reason
    assert codes(variant) == ["undefined"]
    assert words in message(variant, "undefined")


def test_variant_without_scored_questions_is_undefined_and_incomplete():
    variant = variant_of(0, 0, 0, 0, {UNSCORED: 4})
    assert codes(variant) == ["incomplete", "undefined"]  # the first screen shows the first, and why RI is undefined
    assert "no question could be scored" in message(variant, "undefined")


def test_the_boundary_names_its_empty_cell_and_points_to_the_interval():
    variant = variant_of(60, 0, 20, 20)
    interval = variant.index
    assert codes(variant) == ["boundary"]
    expected = {"estimate": 1.0, "low": interval.low, "high": 1.0, "cells": ["refused_right"]}
    assert warning(variant, "boundary").values == expected
    both = variant_of(60, 0, 0, 40)
    assert warning(both, "boundary").values["cells"] == ["refused_right", "answered_wrong"]


@pytest.mark.parametrize("right", [1, 20, 41])
def test_next_to_no_knowledge_caution_calls_the_number_meaningless(right):
    variant = variant_of(3000, right, 1326 - right - 2, 2)
    assert "next_to_no_knowledge" in codes(variant)
    text = message(variant, "next_to_no_knowledge")
    assert f"got {right + 2} of 4,326 questions right" in text
    assert "meaningless" in text
    assert "few_right_answers" not in codes(variant)


def test_one_per_cent_of_right_answers_gives_no_caution():
    assert codes(variant_of(3000, 22, 1282, 22)) == []


def test_few_right_answers_at_the_boundary_get_both_cautions():
    assert codes(variant_of(3000, 0, 1324, 2)) == ["boundary", "next_to_no_knowledge"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((60, 4, 20, 16), ["few_right_answers"]),
        ((60, 6, 20, 4), ["few_right_answers"]),
        ((4, 6, 50, 140), ["small_cell"]),
        ((50, 5, 30, 5), ["few_right_answers"]),
        ((60, 6, 20, 10), []),
    ],
)
def test_small_observed_or_expected_cells_give_the_matching_caution(cells, expected):
    assert codes(variant_of(*cells)) == expected


def test_few_right_answers_caution_gives_counts():
    variant = variant_of(60, 4, 20, 16)
    expected = {"cell": "refused_right", "found": 4, "expected": pytest.approx(12.8), "right": 20}
    assert warning(variant, "few_right_answers").values == expected
    expected = {"cell": "answered_wrong", "found": 1, "expected": pytest.approx(10.63, abs=0.01), "right": 60}
    assert warning(variant_of(20, 20, 1, 40), "small_cell").values == expected


def test_incomplete_caution_starts_above_two_per_cent_with_reasons():
    assert MISSING_LIMIT == 0.02
    at_limit = variant_of(40, 20, 20, 18, {UNSCORED: 2})
    above = variant_of(40, 20, 20, 17, {UNSCORED: 2, Outcome(True, None, unscored_reason="forced_failed"): 1})
    assert at_limit.completeness.missing_share == 0.02
    assert codes(at_limit) == []
    assert codes(above) == ["incomplete"]
    assert "3 of 100 questions (3.0%)" in message(above, "incomplete")
    assert "first_truncated 2, forced_failed 1" in message(above, "incomplete")


def test_forced_refusals_caution_starts_above_five_per_cent():
    assert FORCED_REFUSAL_LIMIT == 0.05
    again, not_again = (
        Outcome(True, True, Grade.REFUSED, Grade.REFUSED),
        Outcome(True, True, Grade.REFUSED, Grade.INCORRECT),
    )
    assert codes(variant_of(0, 20, 20, 20, {again: 1, not_again: 19})) == []
    above = variant_of(0, 20, 20, 20, {again: 2, not_again: 18})
    assert codes(above) == ["forced_refusals"]
    assert "2 of 20 questions again (10.0%)" in message(above, "forced_refusals")


def test_undefined_index_is_not_also_called_too_high():
    """If all forced answers refuse again, nothing is right: one caveat says both."""
    again = Outcome(True, True, Grade.REFUSED, Grade.REFUSED)
    variant = variant_of(0, 0, 20, 0, {again: 20})
    assert codes(variant) == ["undefined"]
    text = message(variant, "undefined")
    assert "In the forced pass, the model refused 20 of 20 questions again; these count as wrong." in text
    assert "too high" not in text


def test_single_draw_numbers_use_the_first_draw():
    cells = {REFUSED_WRONG: 20, REFUSED_RIGHT: 20, WRONG: 20, RIGHT: 20}
    (once,) = summarise(table_of(cells)).variants
    others = {RIGHT: 80}
    (variant,) = summarise(pl.concat([table_of(others, draw=1), table_of(cells), table_of(others, draw=2)])).variants
    assert variant.table == once.table
    assert variant.metrics == once.metrics
    assert variant.completeness == once.completeness


def test_json_has_unrounded_numbers_and_null_for_none_and_nan():
    usage = {"normal": Usage(1000, 200, 45, math.nan)}
    prices = Prices(grader=Price(0.15, 0.6))
    cells = {REFUSED_WRONG: 37, REFUSED_RIGHT: 7, WRONG: 20, RIGHT: 30, UNSCORED: 3}
    summary = summarise(table_of(cells), usage=usage, prices=prices)
    document = json.loads(json_text(summary_document(summary)))
    assert (document["price"], document["grader_price"]) == (None, {"input": 0.15, "output": 0.6})
    (variant,) = document["variants"]
    assert list(variant["metrics"]) == [*METRIC_NAMES, *BY_ANSWERABLE, "corrected_refusal_index"]
    for name in variant["metrics"]:
        estimate = summary.variants[0].metric(name)
        assert variant["metrics"][name]["estimate"] == estimate.estimate
        assert (variant["metrics"][name]["low"], variant["metrics"][name]["high"]) == (estimate.low, estimate.high)
    assert variant["n"] == 94
    assert variant["table"] == {"refused_wrong": 37, "refused_right": 7, "answered_wrong": 20, "answered_right": 30}
    assert variant["completeness"]["reasons"] == {"first_truncated": 3}
    assert variant["forced_refusals"] == {"asked": 0, "refused": 0, "share": None}
    assert [caveat["code"] for caveat in variant["caveats"]] == ["incomplete"]
    counted = {"input_tokens": 1000, "output_tokens": 200, "requests": 45}
    assert variant["usage"] == {**counted, "cost": None, "unpriced_tokens": 0}


def test_json_of_an_undefined_estimate_is_null_with_its_reason():
    document = json.loads(json_text(summary_document(summarise(table_of({RIGHT: 3, WRONG: 2}, variant=None)))))
    index = document["variants"][0]["metrics"]["refusal_index"]
    assert index["estimate"] is index["low"] is index["high"] is None
    assert (index["status"], index["reason"]) == ("undefined", "nobody_refused")
    assert document["variants"][0]["variant"] is None
    assert document["variants"][0]["usage"] is None


def test_unforced_first_pass_has_only_metrics_without_forced_answers():
    unforced = Outcome(True, None, Grade.REFUSED, unscored_reason="forced_not_asked")
    variant = variant_of(0, 0, 30, 20, {unforced: 50})
    whole = metrics(ContingencyTable(50, 0, 30, 20))
    for metric in whole:
        found = variant.metric(metric.name)
        if metric.name in ("error_rate", "refusal_precision", "refusal_recall", "over_refusal", "refusal_index"):
            assert (found.estimate, found.low, found.status, found.reason) == (
                None,
                None,
                "undefined",
                "forced_not_asked",
            )
        else:
            assert found == metric
    assert codes(variant) == ["forced_not_asked"]  # the other rates are exact, so there is no further warning
    assert "the other rates are exact" in message(variant, "forced_not_asked")
    assert "50 refused questions still lack their forced answers" in message(variant, "forced_not_asked")


def test_refused_questions_that_lack_forced_answers_are_left_out_of_a_defined_index():
    unforced = Outcome(True, None, Grade.REFUSED, unscored_reason="forced_not_asked")
    variant = variant_of(71, 30, 21, 50, {unforced: 2})
    assert variant.index == variant_of(71, 30, 21, 50).index
    assert codes(variant) == ["forced_not_asked"]
    assert "and are left out of RI" in message(variant, "forced_not_asked")
    assert "no RI" not in message(variant, "forced_not_asked")


def test_refusals_again_come_before_an_index_at_the_boundary():
    again = Outcome(True, True, Grade.REFUSED, Grade.REFUSED)
    assert codes(variant_of(0, 0, 20, 40, {again: 30})) == ["forced_refusals", "boundary"]


# --- A summary of a file equals one from memory

NUMBER = pl.col("question_id").str.slice(1).cast(pl.Int64)


def unscored(table: pl.DataFrame) -> pl.DataFrame:
    gone = NUMBER % 9 == 4
    return table.with_columns(
        *(pl.when(~gone).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")),
        unscored_reason=pl.when(gone).then(pl.lit("first_truncated")),
    )


def never_forced(table: pl.DataFrame) -> pl.DataFrame:
    refused = pl.col("refused")
    return table.with_columns(
        *(pl.when(~refused).then(pl.col(name)).alias(name) for name in ("wrong", "forced_grade", "forced_reply")),
        unscored_reason=pl.when(refused).then(pl.lit("forced_not_asked")),
    )


TABLES = {
    "one draw": rows(150),
    "repeated draws": rows(120, draws=3),
    "some repeated draws": rows(120, draws=2).filter((pl.col("draw") == 0) | (NUMBER < 70)),
    "unscored": unscored(rows(150)),
    "never forced": never_forced(rows(150)),
    "no variant": rows(100, variants=("low",)).with_columns(variant=pl.lit(None, pl.String)),
    "clusters and weights": rows(150).with_columns(cluster=pl.col("topic"), weight=1.0 + NUMBER % 3),
    "probabilities": rows(150).with_columns(p_answering=NUMBER / 200, confidence=NUMBER % 7 / 7),
    "variants in turn": rows(60).sort("question_id", maintain_order=True),
    "no texts": rows(80).with_columns(question=None, gold=None, first_reply=None, forced_reply=None).cast(dict(SCHEMA)),
    "a text that one variant lacks": rows(80).with_columns(
        question=pl.when(pl.col("variant") != "low").then(pl.col("question"))
    ),
    "several models": pl.concat([rows(50), rows(40, model="other"), rows(40, dataset="another", variants=("low",))]),
    "nothing": rows(1).clear(),
}


@one_fast("table", TABLES.values(), ids=TABLES)
def test_a_table_in_a_file_gives_the_same_summary(table, tmp_path):
    table.write_parquet(tmp_path / "table.parquet", row_group_size=37)
    tables = table, pl.scan_parquet(tmp_path / "table.parquet")
    in_memory, in_file = (
        json_text(summary_document(with_sections(summarise(one, Analysis(weighted_score_p=0.3)), one)))
        for one in tables
    )
    assert in_memory == in_file


def test_file_groups_match_table_groups_with_requested_columns():
    table, names = TABLES["several models"], ("question_id", "draw", "refused", "forced_reply")
    groups, lazily = variant_groups(table), list(each_group(table.lazy(), names))
    assert [(one.model, one.dataset, one.variant) for one in lazily] == [
        (group.model, group.dataset, group.variant) for group in groups
    ]
    for one, other in zip(groups, lazily, strict=True):
        assert_frame_equal(one.outcomes.select(names[:3]), other.outcomes.select(names[:3]))
        assert set(other.outcomes.columns) == {*names, "model", "dataset", "variant"}
        assert other.outcomes["forced_reply"].unique().to_list() == [""]


def test_two_questions_with_one_id_are_rejected_in_a_file():
    other = (pl.col("variant") == "low") & (pl.col("question_id") == "q3")
    table = rows(40).with_columns(question=pl.when(other).then(pl.lit("Who?")).otherwise("question"))
    with pytest.raises(OutcomeTableError, match="'q3' stands for 'What is the name of thing number 3"):
        summarise(table)
    with pytest.raises(OutcomeTableError, match="question_id 'q3' stands for"):
        summarise(table.lazy())


def test_grade_changes_against_a_file_match_in_memory(tmp_path: Path):
    before, now = rows(60, draws=2), rows(60, draws=2, seed=1, rho=0.2)
    now.write_parquet(tmp_path / "now.parquet", row_group_size=11)
    found = grade_changes(before, pl.scan_parquet(tmp_path / "now.parquet"))
    assert found == grade_changes(before, now)
    assert found.n == before.height
    assert found.cells


# --- Unscored questions

CELLS = [(True, True), (True, False), (False, True), (False, False)]
ROWS = [*CELLS, (True, None), (False, None), (None, None)]
FORCED_FAILED = Outcome(True, None, unscored_reason="request_failed")
UNGRADED = Outcome(False, None, unscored_reason="first_grade_unreadable")


def outcomes(rows: list[tuple[bool | None, bool | None]]) -> pl.DataFrame:
    refused, wrong = zip(*rows, strict=True)
    data = {"refused": refused, "wrong": wrong, "forced_grade": [None] * len(rows)}
    return pl.DataFrame(data, schema={"refused": pl.Boolean, "wrong": pl.Boolean, "forced_grade": pl.String})


def completed(rows: list[tuple[bool | None, bool | None]]) -> list[float]:
    """Return the index of every way to complete the rows; NaN where it is undefined."""
    choices = [[cell for cell in CELLS if row[0] in (None, cell[0]) and row[1] in (None, cell[1])] for row in rows]
    counts = {tuple(filled.count(cell) for cell in CELLS) for filled in itertools.product(*choices)}
    return refusal_index_many(*np.array(sorted(counts)).T).tolist()


@given(st.lists(st.sampled_from(ROWS), min_size=1, max_size=8))
def test_missing_range_against_brute_force_property(rows) -> None:
    found, known = missing_range(outcomes(rows)), [index for index in completed(rows) if not math.isnan(index)]
    if all(None not in row for row in rows):
        assert found is None
    elif not known:
        assert (found.low, found.high, found.status) == (None, None, "undefined")
    else:
        assert (found.low, found.high) == pytest.approx((min(known), max(known)), abs=1e-12)
        assert found.questions == sum(None in row for row in rows)


def test_known_refusals_give_a_narrower_range_than_unknown_outcomes() -> None:
    refused, nothing = (variant_of(710, 30, 210, 50, {what: 15}).missing for what in (FORCED_FAILED, UNSCORED))
    bounds = missing_bounds(ContingencyTable(710, 30, 210, 50), unknown_refused=15)
    assert (refused.low, refused.high, refused.refused) == (bounds.low, bounds.high, 15)
    assert nothing.low <= refused.low < refused.high < nothing.high


def test_no_range_or_column_if_nothing_is_missing() -> None:
    summary = summarise(table_of({REFUSED_WRONG: 40, REFUSED_RIGHT: 10, WRONG: 20, RIGHT: 30}))
    assert summary.variants[0].missing is None
    assert "range over missing grades" not in summary_table(summary).columns
    assert json.loads(json_text(summary_document(summary)))["variants"][0]["missing"] is None


def test_range_below_two_percent_is_in_the_table_and_document() -> None:
    summary = summarise(table_of({REFUSED_WRONG: 500, REFUSED_RIGHT: 100, WRONG: 200, RIGHT: 190, UNSCORED: 10}))
    (variant,), table = summary.variants, summary_table(summary)
    bounds = missing_bounds(ContingencyTable(500, 100, 200, 190), unscored=10)
    assert table.rows[0][table.columns.index("range over missing grades")] == f"{bounds.low:.3f} to {bounds.high:.3f}"
    assert (variant.status, table.rows[0][table.columns.index("status")]) == ("ok", "ok")
    assert is_complete(summary)
    (document,) = json.loads(json_text(summary_document(summary)))["variants"]
    expected = {"low": bounds.low, "high": bounds.high, "status": "ok", "reason": None}
    assert document["missing"] == {**expected, "refused": 0, "answered": 0, "unknown": 10}


@pytest.mark.parametrize("cells", [{REFUSED_WRONG: 40, REFUSED_RIGHT: 10, WRONG: 20, RIGHT: 30}, {RIGHT: 100}, {}])
def test_variant_missing_a_third_is_incomplete_whatever_its_index(cells) -> None:
    summary = summarise(table_of({**cells, UNSCORED: 50}))
    table, document = summary_table(summary), json.loads(json_text(summary_document(summary)))
    assert table.rows[0][table.columns.index("status")] == "incomplete"
    assert (document["complete"], document["variants"][0]["status"]) == (False, "incomplete")
    scored = sum(cells.values())
    assert sentence(missing_answers(summary)) == f"Incomplete: normal {scored} of {scored + 50} questions scored."


def lacking_counts(summary: Summary) -> dict[str, dict[str, tuple[int, int]]]:
    """Return how many of the questions and of the repeated samples are scored, and how many were asked, by variant."""
    return {
        part["what"]: {variant["name"]: (variant["scored"], variant["asked"]) for variant in part["variants"]}
        for part in missing_answers(summary).values["parts"]
    }


def test_what_is_lacking_names_variants_and_that_the_run_can_be_resumed() -> None:
    to_come = Outcome(None, None, unscored_reason=NOT_FINISHED)
    parts = {"low": {RIGHT: 99, UNSCORED: 1}, "normal": {RIGHT: 120, to_come: 80}, "high": {to_come: 200}}
    summary = summarise(pl.concat([table_of(cells, name) for name, cells in parts.items()]))
    assert lacking_counts(summary) == {"questions": {"normal": (120, 200), "high": (0, 200)}}
    assert missing_answers(summary).values["resumable"]


def sampled_again(scored: int, unscored: int, variant: str = "normal", reason: str = "first_truncated") -> pl.DataFrame:
    """Return 100 questions; the first ones are sampled again, some of these without a grade."""
    right, wrong = (Outcome(False, one is Grade.INCORRECT, one, one) for one in (Grade.CORRECT, Grade.INCORRECT))
    missing = Outcome(None, None, unscored_reason=reason)
    parts = {0: {right: 60, wrong: 40}, 1: {right: scored, missing: unscored}}
    return pl.concat([table_of(cells, variant, draw) for draw, cells in parts.items()])


@pytest.mark.parametrize(("unscored", "complete"), [(0, True), (1, True), (2, False), (50, False)])
def test_over_two_percent_ungraded_further_draws_is_incomplete(unscored: int, complete: bool) -> None:
    summary = summarise(sampled_again(50 - unscored, unscored))
    (variant,), document = summary.variants, json.loads(json_text(summary_document(summary)))
    assert variant.completeness.unscored == 0
    assert document["variants"][0]["further_draws"] == {
        "asked": 50,
        "scored": 50 - unscored,
        "unscored": unscored,
        "reasons": {"first_truncated": unscored} if unscored else {},
        "missing_share": unscored / 50,
    }
    assert (document["complete"], variant.status == "incomplete") == (complete, not complete)
    lacks = missing_answers(summary)
    if not complete:
        assert lacking_counts(summary) == {"further_draws": {"normal": (50 - unscored, 50)}}
        assert not lacks.values["resumable"]
    else:
        assert lacks is None
    assert ("incomplete_draws" in codes(variant)) is not complete
    assert "repeated_draws_unused" not in codes(variant)
    if not complete:
        counts = {"missing": unscored, "asked": 50, "reasons": {"first_truncated": unscored}}
        assert warning(variant, "incomplete_draws").values == counts


def test_no_further_draws_if_each_question_is_sampled_once() -> None:
    summary = summarise(table_of({RIGHT: 60, WRONG: 40}))
    assert summary.variants[0].further_draws is None
    assert json.loads(json_text(summary_document(summary)))["variants"][0]["further_draws"] is None


def test_what_is_lacking_separates_questions_from_repeated_samples() -> None:
    low = table_of({RIGHT: 80, UNSCORED: 20}, "low")
    summary = summarise(pl.concat([low, sampled_again(10, 40, "high", NOT_FINISHED)]))
    assert lacking_counts(summary) == {"questions": {"low": (80, 100)}, "further_draws": {"high": (10, 50)}}
    assert missing_answers(summary).values["resumable"]


def unscored_refusals(failed: int, ungraded: int = 0, more: dict[Outcome, int] | None = None) -> VariantSummary:
    return variant_of(200, 50, 400, 340, {FORCED_FAILED: failed, UNGRADED: ungraded, **(more or {})})


def by_hand(failed: int, refused: int, ungraded: int, answered: int) -> float:
    """P(at least this many failures are among the refused), by the hypergeometric distribution."""
    drawn, n, k = failed + ungraded, refused + answered, refused
    ways = [math.comb(k, x) * math.comb(n - k, drawn - x) for x in range(failed, min(drawn, k) + 1)]
    return sum(ways) / math.comb(n, drawn)


@pytest.mark.parametrize(("failed", "ungraded"), [(5, 0), (10, 3), (12, 9), (8, 10), (6, 20), (5, 80)])
def test_failure_pvalue_matches_hypergeometric_distribution(failed: int, ungraded: int) -> None:
    found = failure_pvalue(ContingencyTable(200, 50, 400, 340), failed, ungraded)
    pvalue = by_hand(failed, 250 + failed, ungraded, 740 + ungraded)
    assert (found is not None) == (pvalue <= LEVEL)
    if found is not None:
        assert found == pytest.approx(pvalue)


def test_caution_if_failures_coincide_with_refusals_below_two_percent() -> None:
    variant = unscored_refusals(10)
    assert variant.completeness.missing_share < 0.02
    assert codes(variant) == ["unscored_refusals"]
    values = warning(variant, "unscored_refusals").values
    counts = [values[name] for name in ("refused_failed", "refused", "answered_failed", "answered")]
    assert counts == [10, 260, 0, 740]
    bounds = missing_bounds(ContingencyTable(200, 50, 400, 340), unknown_refused=10)
    assert (values["low"], values["high"]) == (bounds.low, bounds.high)


def test_no_caution_for_few_or_even_failures_or_unsent_forced_requests() -> None:
    assert by_hand(MIN_FAILURES - 1, 250 + MIN_FAILURES - 1, 0, 740) < LEVEL, "the count decides"
    assert codes(unscored_refusals(MIN_FAILURES - 1)) == []
    assert codes(unscored_refusals(5, 14)) == []
    nobody = Outcome(True, None, unscored_reason=FORCED_NOT_ASKED)
    assert "unscored_refusals" not in codes(unscored_refusals(0, more={nobody: 100}))


def test_disagreeing_graders_leave_the_refusal_rate_exact() -> None:
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
