"""Evidence for the summary: its numbers are those of `stats`, and each caution comes exactly when it should."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import BY_ANSWERABLE, MISSING_LIMIT
from refusal_index.data.run_json import Price, Prices
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import FORCED_REFUSAL_LIMIT, Summary, Usage, VariantSummary, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_document
from refusal_index.runs.writing import as_json
from refusal_index.stats import METRIC_NAMES, ContingencyTable, metrics

RIGHT, WRONG = Outcome(False, False), Outcome(False, True)
REFUSED_RIGHT, REFUSED_WRONG = Outcome(True, False), Outcome(True, True)
UNSCORED = Outcome(None, None, unscored_reason="first_truncated")


def table_of(cells: dict[Outcome, int], variant: str | None = "normal", draw: int = 0) -> pl.DataFrame:
    outcomes = [outcome for outcome, count in cells.items() for _ in range(count)]
    asked = Identification("m", "d", variant, draw)
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


def one(refused_wrong: int, refused_right: int, wrong: int, right: int, more: dict[Outcome, int] | None = None):
    cells = {REFUSED_WRONG: refused_wrong, REFUSED_RIGHT: refused_right, WRONG: wrong, RIGHT: right, **(more or {})}
    (variant,) = summarise(table_of(cells)).variants
    return variant


def codes(variant: VariantSummary) -> list[str]:
    return [warning.code for warning in variant.warnings]


def warning(variant: VariantSummary, code: str) -> Statement:
    return next(one for one in variant.warnings if one.code == code)


def message(variant: VariantSummary, code: str) -> str:
    return sentence(warning(variant, code))


def test_metrics_are_those_of_stats_for_the_counts():
    variant = one(710, 30, 210, 50)
    assert variant.table == ContingencyTable(710, 30, 210, 50)
    assert variant.metrics[: len(METRIC_NAMES)] == metrics(variant.table)
    assert variant.index == variant.metrics[len(METRIC_NAMES) - 1]
    assert codes(variant) == []


def test_level_and_penalty_are_passed_on_and_kept():
    summary = summarise(
        table_of({REFUSED_WRONG: 7, REFUSED_RIGHT: 5, WRONG: 6, RIGHT: 9}), penalty=0.2, confidence_level=0.8
    )
    (variant,) = summary.variants
    assert variant.metrics[: len(METRIC_NAMES)] == metrics(variant.table, penalty=0.2, confidence_level=0.8)
    assert (summary.penalty, summary.confidence_level) == (0.2, 0.8)


def test_variants_stay_apart_in_their_order_and_their_tables_are_not_added_up():
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
    assert summarise(outcome_table([])) == Summary((), (), 0.95, 1.0)


@pytest.mark.parametrize(
    ("cells", "reason", "words"),
    [
        ((0, 0, 50, 50), "nobody_refused", "no question was refused"),
        ((50, 50, 0, 0), "everybody_refused", "every question was refused"),
        ((50, 0, 50, 0), "all_wrong", "every answer was wrong"),
        ((0, 50, 0, 50), "all_right", "every answer was right"),
    ],
)
def test_an_undefined_estimate_is_explained_in_plain_words(cells, reason, words):
    variant = one(*cells)
    assert variant.index.reason == reason
    assert codes(variant) == ["undefined"]
    assert words in message(variant, "undefined")


def test_nothing_scored_is_undefined_and_incomplete():
    variant = one(0, 0, 0, 0, {UNSCORED: 4})
    assert codes(variant) == ["undefined", "incomplete"]
    assert "no question could be scored" in message(variant, "undefined")


def test_the_boundary_names_its_empty_cell_and_points_to_the_interval():
    variant = one(60, 0, 20, 20)
    interval = variant.index
    assert codes(variant) == ["boundary"]
    assert "boundary (+1) because no question is refused but right" in message(variant, "boundary")
    assert f"from {interval.low:.2f} to 1.00" in message(variant, "boundary")
    both = one(60, 0, 0, 40)
    assert "refused but right when forced and none answered and wrong" in message(both, "boundary")


@pytest.mark.parametrize("right", [1, 20, 41])
def test_a_model_that_knows_next_to_nothing_is_told_that_its_number_is_meaningless(right):
    variant = one(3000, right, 1326 - right - 2, 2)
    assert "next_to_no_knowledge" in codes(variant)
    said = message(variant, "next_to_no_knowledge")
    assert f"got {right + 2} of 4,326 questions right" in said
    assert "meaningless" in said
    assert "few_right_answers" not in codes(variant)


def test_one_per_cent_of_right_answers_is_enough_to_be_silent():
    assert codes(one(3000, 22, 1282, 22)) == []


def test_lucky_hits_on_the_boundary_get_both_cautions():
    assert codes(one(3000, 0, 1324, 2)) == ["boundary", "next_to_no_knowledge"]


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
def test_small_cells_found_or_expected_are_named_by_what_is_scarce(cells, expected):
    assert codes(one(*cells)) == expected


def test_few_right_answers_says_how_many():
    variant = one(60, 4, 20, 16)
    expected = {"cell": "refused_right", "found": 4, "expected": pytest.approx(12.8), "right": 20}
    assert warning(variant, "few_right_answers").values == expected
    assert message(variant, "few_right_answers").startswith(
        "4 questions were refused but right when forced (12.8 expected by chance). RI depends on 20 right answers"
    )
    assert message(one(20, 20, 1, 40), "small_cell").startswith("1 question was answered and wrong (10.6 expected")


def test_incomplete_from_just_above_two_per_cent_with_reasons():
    assert MISSING_LIMIT == 0.02
    at_limit = one(40, 20, 20, 18, {UNSCORED: 2})
    above = one(40, 20, 20, 17, {UNSCORED: 2, Outcome(True, None, unscored_reason="forced_failed"): 1})
    assert at_limit.completeness.missing_share == 0.02
    assert codes(at_limit) == []
    assert codes(above) == ["incomplete"]
    assert "3 of 100 questions (3.0%)" in message(above, "incomplete")
    assert "first_truncated 2, forced_failed 1" in message(above, "incomplete")


def test_forced_refusals_from_just_above_five_per_cent():
    assert FORCED_REFUSAL_LIMIT == 0.05
    again, not_again = (
        Outcome(True, True, Grade.REFUSED, Grade.REFUSED),
        Outcome(True, True, Grade.REFUSED, Grade.INCORRECT),
    )
    assert codes(one(0, 20, 20, 20, {again: 1, not_again: 19})) == []
    above = one(0, 20, 20, 20, {again: 2, not_again: 18})
    assert codes(above) == ["forced_refusals"]
    assert "2 of 20 questions again (10.0%)" in message(above, "forced_refusals")


def test_every_number_of_one_draw_is_made_of_the_first():
    cells = {REFUSED_WRONG: 20, REFUSED_RIGHT: 20, WRONG: 20, RIGHT: 20}
    (once,) = summarise(table_of(cells)).variants
    others = {RIGHT: 80}
    (variant,) = summarise(pl.concat([table_of(others, draw=1), table_of(cells), table_of(others, draw=2)])).variants
    assert variant.table == once.table
    assert variant.metrics == once.metrics
    assert variant.completeness == once.completeness


def test_json_holds_every_number_unrounded_and_null_for_none_and_nan():
    usage = {"normal": Usage(1000, 200, 45, math.nan)}
    prices = Prices(grader=Price(0.15, 0.6))
    cells = {REFUSED_WRONG: 37, REFUSED_RIGHT: 7, WRONG: 20, RIGHT: 30, UNSCORED: 3}
    summary = summarise(table_of(cells), usage=usage, prices=prices)
    document = json.loads(as_json(summary_document(summary)))
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
    assert [warning["code"] for warning in variant["warnings"]] == ["incomplete"]
    counted = {"input_tokens": 1000, "output_tokens": 200, "requests": 45}
    assert variant["usage"] == {**counted, "cost": None, "unpriced_tokens": 0}


def test_json_of_an_undefined_estimate_is_null_with_its_reason():
    document = json.loads(as_json(summary_document(summarise(table_of({RIGHT: 3, WRONG: 2}, variant=None)))))
    index = document["variants"][0]["metrics"]["refusal_index"]
    assert index["estimate"] is index["low"] is index["high"] is None
    assert (index["status"], index["reason"]) == ("undefined", "nobody_refused")
    assert document["variants"][0]["variant"] is None
    assert document["variants"][0]["usage"] is None


def test_a_first_pass_that_was_never_forced_has_the_metrics_that_need_no_forced_answers():
    unforced = Outcome(True, None, Grade.REFUSED, unscored_reason="forced_not_asked")
    variant = one(0, 0, 30, 20, {unforced: 50})
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
    assert codes(variant) == ["forced_not_asked"]  # its own rates are exact, and nothing warns of them
    assert "the other rates are exact" in message(variant, "forced_not_asked")
    assert "50 refused questions still lack their forced answers" in message(variant, "forced_not_asked")
