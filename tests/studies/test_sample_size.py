"""Spread over subsets against subsets drawn again, the closed form by the influence function, and what is left out."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, check_files, make_run, run_of, table_rows

from refusal_index.plugins.studies.precision import (
    COMPARED,
    N_SUBSETS,
    SIZES,
    metrics_of_counts,
    sample_size,
    spread_rows,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import ContingencyTable, PlanningScenario, metrics, questions_for_cv, refusal_index

OPTIONS = StudyOptions()
TABLE = ContingencyTable(420, 80, 300, 200)


def spread_frame(table: ContingencyTable, options: StudyOptions) -> pl.DataFrame:
    return pl.DataFrame(spread_rows(table, options), infer_schema_length=None)


@pytest.fixture(scope="module")
def frame():
    return spread_frame(TABLE, OPTIONS)


def test_sizes_are_those_below_the_number_of_questions_with_fifty_subsets_each(frame):
    assert frame["size"].unique(maintain_order=True).to_list() == [size for size in SIZES if size < 1000]
    assert set(frame["subsets"]) == {N_SUBSETS}
    assert frame.height == 3 * frame["size"].n_unique()


def test_the_metrics_of_many_tables_are_those_of_each():
    counts = np.array([[10, 5, 20, 15], [3, 1, 0, 9], [0, 0, 20, 30], [7, 3, 0, 0]])
    values = metrics_of_counts(counts.astype(float))
    for row, table in enumerate(counts):
        expected = {metric.name: metric.estimate for metric in metrics(ContingencyTable(*table.tolist()))}
        for name in COMPARED:
            found = values[name][row]
            assert (None if math.isnan(found) else found) == (expected[name] and pytest.approx(expected[name]))


def test_the_prediction_is_what_subsets_of_real_questions_show(frame):
    cells = np.repeat(np.arange(4), TABLE.counts)
    rng = np.random.default_rng(5)
    drawn = np.array([np.bincount(rng.choice(cells, 400, replace=False), minlength=4) for _ in range(4000)])
    values = metrics_of_counts(drawn.astype(float))
    for name in COMPARED:
        row = frame.filter(metric=name, size=400).row(0, named=True)
        assert row["predicted_standard_deviation"] == pytest.approx(values[name].std(ddof=1), rel=0.06)


def test_new_questions_scatter_as_the_standard_error_says_and_subsets_less(frame):
    row = frame.filter(metric="refusal_index", size=500).row(0, named=True)
    error = refusal_index(TABLE).standard_error
    assert row["predicted_for_new_questions"] == pytest.approx(error * math.sqrt(1000 / 500), rel=1e-9)
    shrunk = row["predicted_for_new_questions"] * math.sqrt((1000 - 500) / (1000 - 1))
    assert row["predicted_standard_deviation"] == pytest.approx(shrunk)
    c_a = frame.filter(metric="correct_given_attempted", size=500).row(0, named=True)
    share = 200 / 500
    expected = math.sqrt(share * (1 - share) / (500 * 0.5))
    assert c_a["predicted_for_new_questions"] == pytest.approx(expected)


def test_the_subsets_lie_about_the_prediction_within_the_interval_of_their_spread(frame):
    inside = frame.filter(frame["cv_low"] <= frame["predicted_cv"], frame["predicted_cv"] <= frame["cv_high"])
    assert inside.height >= 0.8 * frame.height
    row = frame.row(0, named=True)
    assert row["cv"] == pytest.approx(row["standard_deviation"] / row["estimate"])


def test_questions_for_a_cv_of_a_tenth_are_planned_for_new_questions(frame):
    scenario = PlanningScenario.from_table(TABLE)
    for name in COMPARED:
        planned = frame.filter(metric=name)["questions_for_cv_10"][0]
        assert planned == questions_for_cv(scenario, 0.1, metric=name).n


def test_the_same_seed_gives_the_same_subsets(frame):
    assert spread_frame(TABLE, OPTIONS).equals(frame)
    assert not spread_frame(TABLE, StudyOptions(seed=1)).equals(frame)


def test_subsets_without_an_index_are_counted():
    rare = spread_frame(ContingencyTable(12, 6, 500, 500), OPTIONS)
    row = rare.filter(metric="refusal_index", size=50).row(0, named=True)
    assert row["undefined"] > 0
    assert row["boundary"] > 0


def test_one_variant_stands_for_a_run_and_small_or_undefined_runs_are_said():
    silent = run_of({"normal": table_rows(np.zeros(90), np.arange(90) % 2, model="z")}, model="z")
    study = sample_size.make([make_run("a", n=130), make_run("b", n=40), silent], OPTIONS)
    assert set(study.frame.select("model", "variant").iter_rows()) == {("a", "normal")}
    assert any("b, normal is left out: it has 40 graded questions" in note for note in study.notes)
    assert any("nobody_refused" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="more than 50 graded questions"):
        sample_size.make([silent], OPTIONS)


def test_an_index_about_zero_is_said_to_make_its_share_meaningless():
    study = sample_size.make([make_run("a", rho=0.0, n=300)], OPTIONS)
    assert any("does not differ significantly from 0" in note for note in study.notes)


def test_it_draws_and_prints_names_that_are_code_elsewhere():
    check_files(sample_size.make([make_run(f"{HOSTILE}{i}", n=120, seed=i, rho=0.7) for i in range(4)], OPTIONS))
