"""The study sample_size."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, check_files, make_run, run_of, table_rows

from refusal_index.data.analysis import Analysis
from refusal_index.plugins.studies.precision import (
    COMPARED,
    N_SUBSETS,
    NEAR_ZERO,
    SIZES,
    metrics_of_counts,
    sample_size,
    spread_rows,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import (
    ContingencyTable,
    PlanningScenario,
    metrics,
    questions_for_cv,
    refusal_index,
)

OPTIONS = StudyOptions()
RHO = 0.6
TRUTH = 6 / math.pi * math.asin(RHO / 2)


TABLE = ContingencyTable(420, 80, 300, 200)


def spread_frame(table: ContingencyTable, options: StudyOptions) -> pl.DataFrame:
    return pl.DataFrame(spread_rows(table, options), infer_schema_length=None)


@pytest.fixture(scope="module")
def spread():
    return spread_frame(TABLE, OPTIONS)


def test_subset_sizes_are_below_the_number_of_questions(spread):
    assert spread["size"].unique(maintain_order=True).to_list() == [size for size in SIZES if size < 1000]
    assert set(spread["subsets"]) == {N_SUBSETS}
    assert spread.height == 3 * spread["size"].n_unique()


def test_vectorised_metrics_match_single_tables():
    counts = np.array([[10, 5, 20, 15], [3, 1, 0, 9], [0, 0, 20, 30], [7, 3, 0, 0]])
    values = metrics_of_counts(counts.astype(float))
    for row, table in enumerate(counts):
        expected = {metric.name: metric.estimate for metric in metrics(ContingencyTable(*table.tolist()))}
        for name in COMPARED:
            found = values[name][row]
            assert (None if math.isnan(found) else found) == (expected[name] and pytest.approx(expected[name]))


def test_predicted_spread_against_simulated_subsets(spread):
    cells = np.repeat(np.arange(4), TABLE.counts)
    rng = np.random.default_rng(5)
    drawn = np.array([np.bincount(rng.choice(cells, 400, replace=False), minlength=4) for _ in range(4000)])
    values = metrics_of_counts(drawn.astype(float))
    for name in COMPARED:
        row = spread.filter(metric=name, size=400).row(0, named=True)
        assert row["predicted_standard_deviation"] == pytest.approx(values[name].std(ddof=1), rel=0.06)


def test_predicted_spread_for_new_questions_against_standard_error(spread):
    row = spread.filter(metric="refusal_index", size=500).row(0, named=True)
    error = refusal_index(TABLE).standard_error
    assert row["predicted_for_new_questions"] == pytest.approx(error * math.sqrt(1000 / 500), rel=1e-9)
    shrunk = row["predicted_for_new_questions"] * math.sqrt((1000 - 500) / (1000 - 1))
    assert row["predicted_standard_deviation"] == pytest.approx(shrunk)
    c_a = spread.filter(metric="correct_given_attempted", size=500).row(0, named=True)
    share = 200 / 500
    expected = math.sqrt(share * (1 - share) / (500 * 0.5))
    assert c_a["predicted_for_new_questions"] == pytest.approx(expected)


def test_spread_intervals_mostly_contain_the_prediction(spread):
    inside = spread.filter(spread["cv_low"] <= spread["predicted_cv"], spread["predicted_cv"] <= spread["cv_high"])
    assert inside.height >= 0.8 * spread.height
    row = spread.row(0, named=True)
    assert row["cv"] == pytest.approx(row["standard_deviation"] / row["estimate"])


def test_questions_for_a_cv_of_ten_percent_match_the_plan(spread):
    scenario = PlanningScenario.from_table(TABLE)
    for name in COMPARED:
        planned = spread.filter(metric=name)["questions_for_cv_10"][0]
        assert planned == questions_for_cv(scenario, 0.1, metric=name).n


def test_the_same_seed_gives_the_same_subsets(spread):
    assert spread_frame(TABLE, OPTIONS).equals(spread)
    assert not spread_frame(TABLE, StudyOptions(Analysis(seed=1))).equals(spread)


def test_subsets_without_an_index_are_counted():
    rare = spread_frame(ContingencyTable(12, 6, 500, 500), OPTIONS)
    row = rare.filter(metric="refusal_index", size=50).row(0, named=True)
    assert row["undefined"] > 0
    assert row["boundary"] > 0


def test_one_variant_represents_a_run_and_unusable_runs_are_reported():
    silent = run_of({"normal": table_rows(np.zeros(90), np.arange(90) % 2, model="z")}, model="z")
    study = sample_size.make([make_run("a", n=130), make_run("b", n=40), silent], OPTIONS)
    assert set(study.frame.select("model", "variant").iter_rows()) == {("a", "normal")}
    assert "1 left out, since there are 50 graded questions or fewer: b, normal." in study.notes
    assert any("(no refusals): z, normal" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="more than 50 graded questions"):
        sample_size.make([silent], OPTIONS)


def test_relative_scatter_of_an_index_near_zero_cannot_be_estimated():
    study = sample_size.make([make_run("a", rho=0.0, n=300)], OPTIONS)
    assert any("does not differ significantly from 0" in note for note in study.notes)
    index = study.frame.filter(metric="refusal_index")
    assert set(index["reason"]) == {NEAR_ZERO}
    assert index.select("cv", "cv_low", "predicted_cv", "questions_for_cv_10").null_count().sum_horizontal().item() == (
        4 * index.height
    )
    assert index["standard_deviation"].null_count() == 0
    assert set(study.frame.filter(metric="f_score")["reason"]) == {None}
    assert set(study.printed(study.frame)["RI"]) == {"cannot be estimated"}
    (axes,) = study.figure().axes
    assert [text.get_text() for text in axes.texts] == ["RI cannot be estimated"]
    assert "RI " not in study.caption.partition("New questions needed for that: ")[2].partition(".")[0]


def test_runs_of_different_sizes_share_the_axis_of_questions():
    study = sample_size.make([make_run("a", n=60, rho=0.8), make_run("b", n=300, rho=0.8)], OPTIONS)
    for axes in study.figure().axes:
        low, high = axes.get_xlim()
        assert low < 50
        assert high > study.frame["size"].max()


def test_sample_size_draws_and_prints_names_that_are_code_elsewhere():
    check_files(sample_size.make([make_run(f"{HOSTILE}{i}", n=120, seed=i, rho=0.7) for i in range(4)], OPTIONS))


@pytest.mark.parametrize(("count", "sizes"), [(4, [50, 100, 150, 200]), (5, [100, 200])])
def test_the_table_of_many_runs_has_few_sizes(count, sizes):
    study = sample_size.make([make_run(f"m{i}", n=250, seed=i, rho=0.6) for i in range(count)], OPTIONS)
    table = study.printed(study.frame)
    assert table["size"].to_list() == sizes * count
