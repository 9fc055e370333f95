"""Counts and published rates."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import (
    NOT_STATED,
    PublishedRates,
    Rate,
    completeness,
    contingency_table,
    forced_refusals,
    printed_alike,
    rates_outcomes,
    read_rates,
    variant_groups,
)
from refusal_index.errors import OutcomeTableError
from refusal_index.stats import metrics

# --- Published rates

NAMES = ("correct_rate", "refusal_rate", "forced_accuracy")
HEADER = "model,correct_rate,refusal_rate,forced_accuracy,n"


def written(tmp_path, *lines, header=HEADER):
    path = tmp_path / "rates.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_table_round_trips_through_its_rates():
    rng = np.random.default_rng(1)
    for counts in rng.integers(0, 400, size=(200, 4)):
        table = ContingencyTable(*counts.tolist())
        given = {"refusal_rate": table.refusal_rate, "forced_accuracy": 1 - table.error_rate, "n": table.n}
        assert ContingencyTable.from_rates(correct_rate=table.correct_rate, **given) == table
        if table.n_answered:
            attempted = table.answered_right / table.n_answered
            assert ContingencyTable.from_rates(correct_given_attempted=attempted, **given) == table


def test_correct_rate_is_over_all_questions_as_in_the_paper_code():
    given = {"refusal_rate": 0.65, "forced_accuracy": 0.15, "n": 2000}
    table = ContingencyTable.from_rates(correct_rate=0.1, **given)
    assert table == ContingencyTable(1200, 100, 500, 200)
    assert refusal_index(table).estimate == pytest.approx(0.4798, abs=5e-5)
    assert ContingencyTable.from_rates(correct_given_attempted=2 / 7, **given) == table


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"correct_rate": 0.9, "refusal_rate": 0.5, "forced_accuracy": 0.95}, "more right than answered, by 400"),
        ({"correct_rate": 0.3, "refusal_rate": 0.5, "forced_accuracy": 0.2}, "fewer right under forced answering"),
        ({"correct_rate": 0.1, "refusal_rate": 0.1, "forced_accuracy": 0.9}, "more right answers to refused questions"),
        (
            {"correct_rate": 5, "refusal_rate": 0.1, "forced_accuracy": 0.9},
            "between 0 and 1, got 5; is it a percentage",
        ),
        ({"correct_rate": math.nan, "refusal_rate": 0.1, "forced_accuracy": 0.9}, "between 0 and 1"),
    ],
)
def test_impossible_rates_are_errors_and_not_clipped(rates, message):
    with pytest.raises(ValueError, match=message):
        ContingencyTable.from_rates(n=1000, **rates)


def test_exactly_one_first_pass_rate_is_accepted():
    given = {"refusal_rate": 0.65, "forced_accuracy": 0.15, "n": 2000}
    with pytest.raises(TypeError, match="exactly one"):
        ContingencyTable.from_rates(**given)
    with pytest.raises(TypeError, match="exactly one"):
        ContingencyTable.from_rates(correct_rate=0.1, correct_given_attempted=0.3, **given)
    with pytest.raises(TypeError, match="must be one number"):
        ContingencyTable.from_rates(correct_rate="0.1", **given)


def test_rates_file_becomes_outcomes_with_matching_counts(tmp_path):
    path = written(tmp_path, "a,0.05,0.74,0.08,1000", 'b,10%,65%,15%,"2,000"')
    one, other = read_rates(path)
    assert one.table == ContingencyTable(710, 30, 210, 50)
    assert other.table == ContingencyTable(1200, 100, 500, 200)
    outcomes = rates_outcomes([one, other])
    assert contingency_table(outcomes.filter(model="a")) == one.table
    assert contingency_table(outcomes.filter(model="b")) == other.table
    assert outcomes["question_id"].n_unique() == 3000


def test_rounding_is_inferred_from_printed_digits(tmp_path):
    (two,), (three,) = (
        read_rates(written(tmp_path, line)) for line in ("a,0.10,0.65,0.15,2000", "a,0.100,0.650,0.150,2000")
    )
    assert two.range[0] < three.range[0] < 0.4798 < three.range[1] < two.range[1]
    assert three.range[1] - three.range[0] < 0.02
    # The corner with the most right answers in the first pass, from a table of a million questions.
    corner = ContingencyTable.from_rates(correct_rate=0.1005, refusal_rate=0.6505, forced_accuracy=0.1495, n=1_000_000)
    assert refusal_index(corner).estimate <= three.range[1] + 1e-6
    assert refusal_index(corner).estimate == pytest.approx(three.range[1], abs=0.003)


def test_possible_empty_cell_extends_range_to_1_and_undefined_has_none():
    def range_of(*rates: Rate):
        table = ContingencyTable.from_rates(**dict(zip(NAMES, (rate.value for rate in rates), strict=True)), n=1000)
        return PublishedRates("m", None, table, printed_alike(*rates, attempted=False)).range

    low, high = range_of(Rate(0.1, 0.005), Rate(0.65, 0.005), Rate(0.1, 0.005))
    assert 0.5 < low < high == 1
    assert range_of(Rate(0.3, 0), Rate(0.0, 0), Rate(0.3, 0)) == (None, None)


@pytest.mark.parametrize("line", ["a,0.10,0.65,0.15,2000", "a,0.05,0.74,0.08,1000", "a,0.1,0.65,0.1,1000"])
def test_intervals_cover_all_rates_that_round_to_the_printed_ones(tmp_path, line):
    (row,) = read_rates(written(tmp_path, line))
    found = row.metrics(DEFAULT_ANALYSIS)
    half = [0.5 * 10.0 ** -len(rate.partition(".")[2]) for rate in line.split(",")[1:4]]
    given = [float(rate) for rate in line.split(",")[1:4]]
    for signs in itertools.product((-1, 0, 1), repeat=3):
        rates = [rate + sign * reach for rate, sign, reach in zip(given, signs, half, strict=True)]
        try:
            corner = ContingencyTable.from_rates(**dict(zip(NAMES, rates, strict=True)), n=row.table.n)
        except ValueError:  # no table has these
            continue
        for metric in metrics(corner):
            slack = 2 * (found[metric.name].high - found[metric.name].low) / row.table.n  # of a rounded question
            assert found[metric.name].low <= metric.low + slack, metric.name
            assert found[metric.name].high >= metric.high - slack, metric.name
    low, high = row.range
    assert found["refusal_index"].low < low < high <= found["refusal_index"].high
    assert found["refusal_index"].estimate == refusal_index(row.table).estimate


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,x,0.5,0.2,100", "line 2, column 'correct_rate': expected a rate such as 0.05"),
        ("a,10,65,15,100", "add % to percentages"),
        ("a,0.1,0.65,0.15,1e300", "column 'n': expected the number of questions"),
        ("a,0.1,0.65,0.15,0", "column 'n': expected the number of questions"),
        ("a,0.1,0.65,0.04,100", "line 2: these rates fit no table"),
        ("a,0.1,,0.15,100", "column 'refusal_rate': expected a rate"),
    ],
)
def test_invalid_rates_row_is_named(tmp_path, line, message):
    with pytest.raises(OutcomeTableError, match=message):
        read_rates(written(tmp_path, line))


def test_missing_columns_and_duplicate_rows_are_reported(tmp_path):
    with pytest.raises(OutcomeTableError, match="a column 'forced_accuracy'"):
        read_rates(written(tmp_path, "a,0.1,0.6,10", header="model,correct_rate,refusal_rate,n"))
    with pytest.raises(OutcomeTableError, match="one of the columns 'correct_rate' and"):
        read_rates(written(tmp_path, "a,0.6,0.1,10", header="model,refusal_rate,forced_accuracy,n"))
    with pytest.raises(OutcomeTableError, match="line 3: 'a' occurs twice"):
        read_rates(written(tmp_path, *["a,0.05,0.74,0.08,1000"] * 2))


def test_rates_without_a_model_are_named_by_line(tmp_path):
    path = written(tmp_path, "0.05,0.74,0.08,1000", header="correct_rate,refusal_rate,forced_accuracy,n")
    assert read_rates(path)[0].model.endswith("line 2")


def test_score_command_accepts_rates(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from refusal_index.cli import app

    path = written(tmp_path, "a,0.05,0.74,0.08,1000")
    output = CliRunner().invoke(app, ["score", "--rates", str(path)])
    assert output.exit_code == 0
    assert "a: 0.366 to 0.603 (cells 710, 30, 210, 50)" in output.stdout
    document = json.loads(CliRunner().invoke(app, ["score", "--rates", str(path), "--json"]).stdout)
    expected = refusal_index(ContingencyTable(710, 30, 210, 50)).estimate
    assert document["variants"][0]["metrics"]["refusal_index"]["estimate"] == expected
    assert document["rounding"][0]["low"] == pytest.approx(0.366, abs=1e-3)
    assert CliRunner().invoke(app, ["score", "--rates", str(path), str(path)]).exit_code != 0
    assert CliRunner().invoke(app, ["score"]).exit_code != 0


# --- The counts

maybe = st.sampled_from([True, False, None])


def table_of(*outcomes: Outcome, variant: str = "normal") -> pl.DataFrame:
    asked = Identification("m", "d", variant)
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


@given(st.lists(st.tuples(maybe, maybe)))
def test_property_cells_and_missing_sum_to_the_number_asked(pairs):
    table = table_of(*(Outcome(refused, wrong) for refused, wrong in pairs))
    cells = contingency_table(table).counts
    assert cells == tuple(pairs.count(pair) for pair in [(True, True), (True, False), (False, True), (False, False)])
    complete = completeness(table)
    assert (complete.asked, complete.scored) == (len(pairs), sum(cells))
    assert complete.asked == complete.scored + complete.unscored
    assert sum(complete.reasons.values()) == complete.unscored


def test_reasons_are_counted_with_the_most_frequent_first():
    reasons = ["b", "a", "c", "a", None, "c", "c"]
    complete = completeness(table_of(Outcome(True, False), *(Outcome(None, None, unscored_reason=r) for r in reasons)))
    assert list(complete.reasons.items()) == [("c", 3), ("a", 2), ("b", 1), (NOT_STATED, 1)]
    assert complete.missing_share == 7 / 8


def test_shares_of_an_empty_table_are_none_not_zero():
    table = table_of()
    assert completeness(table).missing_share is None
    assert forced_refusals(table).share is None
    assert contingency_table(table).n == 0


def test_forced_refusals_are_counted_among_refused_questions():
    table = table_of(
        Outcome(True, True, Grade.REFUSED, Grade.REFUSED),
        Outcome(True, False, Grade.REFUSED, Grade.CORRECT),
        Outcome(False, True, Grade.INCORRECT, Grade.REFUSED),
        Outcome(False, False, Grade.CORRECT),
        Outcome(True, None, Grade.REFUSED, Grade.UNSCORED, "forced_truncated"),
    )
    found = forced_refusals(table)
    assert (found.asked, found.refused, found.share) == (3, 1, 1 / 3)


def test_groups_keep_the_order_of_appearance():
    names = ["low", "normal", "high", "highest"]
    table = pl.concat([table_of(Outcome(True, True), variant=name) for name in [*names, *names[:0]]])
    groups = variant_groups(table)
    assert [group.variant for group in groups] == names
    assert [group.outcomes.height for group in groups] == [1, 1, 1, 1]


@pytest.mark.parametrize("variant", [None, "low"])
def test_rows_without_a_model_or_variant_form_a_group(variant):
    asked = Identification(None, None, variant)
    (group,) = variant_groups(outcome_table([(asked, Question("q", "?", "!"), Outcome(True, True))]))
    assert (group.model, group.dataset, group.variant) == (None, None, variant)
