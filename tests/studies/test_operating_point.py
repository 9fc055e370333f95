"""The best point beats a fine grid of others; utilities and abstention metrics by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.studies.outcomes_made import HOSTILE, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.plugins.studies.curves import gap_left
from refusal_index.plugins.studies.planes import PENALTIES, operating_point, operating_point_rows
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import ContingencyTable, correct_rate_at, refusal_index

OPTIONS = StudyOptions()
COUNTS = (300, 100, 200, 400)
TABLE = ContingencyTable(*COUNTS)


@pytest.fixture(scope="module")
def rows():
    return list(operating_point_rows(TABLE, OPTIONS))


def test_the_curve_runs_from_all_answered_through_today_to_all_refused(rows):
    curve = [row for row in rows if row["part"] == "curve"]
    assert (curve[0]["refusal_rate"], curve[0]["correct_rate"]) == (0.0, pytest.approx(0.5))
    assert (curve[-1]["refusal_rate"], curve[-1]["correct_rate"]) == (1.0, pytest.approx(0.0))
    (at,) = (row for row in curve if row["refusal_rate"] == 0.4)
    (today,) = (row for row in rows if row["part"] == "today")
    assert (today["refusal_rate"], today["correct_rate"]) == (0.4, 0.4)
    assert at["correct_rate"] == pytest.approx(0.4)
    assert at["correct_rate_low"] < 0.4 < at["correct_rate_high"]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_no_other_point_of_the_curve_is_worth_more_than_the_best(rows, penalty):
    (best,) = (row for row in rows if row["part"] == "best" and row["penalty"] == penalty)
    r = np.linspace(0, 1, 4001)
    c = correct_rate_at(r, refusal_index(TABLE).rho, 0.5)
    utilities = c - penalty * (1 - r - c)
    assert best["utility_at_best"] == pytest.approx(utilities.max(), abs=1e-6)
    assert best["refusal_rate"] == pytest.approx(r[utilities.argmax()], abs=2e-3)
    assert best["correct_rate"] == pytest.approx(np.interp(best["refusal_rate"], r, c), abs=1e-6)
    today = 0.4 - penalty * 0.2
    assert best["utility_today"] == pytest.approx(today)
    assert best["estimate"] == pytest.approx(utilities.max() - today, abs=1e-6)
    assert 0 <= best["low"] <= best["estimate"] <= best["high"]


def test_metrics_are_those_of_the_counts(rows):
    both, needless, missed, fine = COUNTS
    found = {(row["name"], row.get("penalty")): row["estimate"] for row in rows if row["part"] == "metric"}
    for penalty in PENALTIES:
        assert found["utility", penalty] == pytest.approx((fine - penalty * missed) / 1000)
    precision, recall = both / (both + needless), both / (both + missed)
    assert found["omniscience_index", None] == pytest.approx(100 * (fine - missed) / 1000)
    assert found["refusal_precision", None] == pytest.approx(precision)
    assert found["refusal_recall", None] == pytest.approx(recall)
    assert found["abstention_f1", None] == pytest.approx(2 * precision * recall / (precision + recall))


def test_the_regret_interval_is_reproducible(rows):
    assert list(operating_point_rows(TABLE, OPTIONS)) == rows


def test_where_refusals_tell_nothing_the_best_is_an_end():
    best = [row for row in operating_point_rows(ContingencyTable(100, 100, 120, 100), OPTIONS) if row["part"] == "best"]
    assert {row["refusal_rate"] for row in best} <= {0.0, 1.0}
    assert {row["reason"] for row in best} <= {"answer_all", "refuse_all"}


def test_a_boundary_table_has_a_curve_without_a_band():
    curve = [row for row in operating_point_rows(ContingencyTable(30, 0, 20, 50), OPTIONS) if row["part"] == "curve"]
    assert {row["status"] for row in curve} == {"boundary"}
    assert {row["correct_rate_low"] for row in curve} == {None}


def test_other_variants_are_observed_and_not_fitted():
    run = make_run("a", n=200)
    frame = operating_point.make([run], OPTIONS).frame
    others = frame.filter(part="other_variant")
    assert others["variant"].to_list() == ["low", "high"]
    n11, n10, _, n00 = counts_of(run, "high")
    assert others.filter(variant="high").select("refusal_rate", "correct_rate").row(0) == ((n11 + n10) / 200, n00 / 200)
    assert set(frame.filter(part="curve")["variant"]) == {"normal"}


def test_a_run_without_an_index_is_said():
    silent = run_of({"normal": table_rows(np.zeros(30), np.arange(30) % 2, model="z")}, model="z")
    study = operating_point.make([silent, make_run("a", n=90)], OPTIONS)
    assert any(note.startswith("z, normal is left out") for note in study.notes)
    with pytest.raises(NotPossibleError, match="nobody_refused"):
        operating_point.make([silent], OPTIONS)


def test_it_draws_and_prints_names_that_are_code_elsewhere():
    runs = [make_run(f"{HOSTILE}{i}", n=90, seed=i, dataset=None, variants=("low", "high")) for i in range(4)]
    check_files(operating_point.make(runs, OPTIONS))


def test_the_gap_left_is_one_a_model_and_is_printed():
    run = make_run("m", rho=0.6, n=400, variants=("normal",))
    study = operating_point.make([run], OPTIONS)
    row = study.frame.filter(part="gap").row(0, named=True)
    table = ContingencyTable(*counts_of(run, "normal"))
    assert row["estimate"] == pytest.approx(float(gap_left(refusal_index(table).rho, table.error_rate)))
    assert row["low"] < row["estimate"] < row["high"]
    assert study.printed(study.frame)["gap left"].item().startswith(f"{row['estimate']:.2f} [")
