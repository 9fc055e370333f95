"""The correction finds the index that the draws were made with, and one sample of each shows the closed form."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, check_files, make_run, run_of, table_rows

from refusal_index.data.rates import draw_matrix
from refusal_index.plugins.studies.precision import CORRECTED, CROSSED, SINGLE, attenuation
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import attenuated_refusal_index, corrected_refusal_index, refusal_index

OPTIONS = StudyOptions()
RHO = 0.6
TRUTH = 6 / math.pi * math.asin(RHO / 2)


@pytest.fixture(scope="module")
def run():
    # Noise as large as the differences between the questions: b = 1 on both sides.
    return make_run("a", rho=RHO, n=4000, draws=6, noise=1.0, seed=5, variants=("normal",))


@pytest.fixture(scope="module")
def frame(run):
    return attenuation.make([run], OPTIONS).frame


def test_crossed_draws_show_the_attenuated_index_and_the_correction_the_true_one(frame):
    expected = float(attenuated_refusal_index(TRUTH, 1.0, 1.0))
    crossed = frame.filter(kind=CROSSED).row(0, named=True)
    assert crossed["low"] < expected < crossed["high"]
    assert crossed["estimate"] == pytest.approx(expected, abs=0.06)
    for row in frame.filter(kind=CORRECTED).iter_rows(named=True):
        assert row["estimate"] == pytest.approx(TRUTH, abs=0.09)
        assert row["low"] < TRUTH < row["high"]
        assert (row["refusal_reliability"], row["error_reliability"]) == pytest.approx((0.5, 0.5), abs=0.06)


def test_counts_of_draws_go_up_to_all_and_more_draws_narrow_the_interval(frame):
    rows = frame.filter(kind=CORRECTED)
    assert rows["draws"].to_list() == [2, 3, 5, 6]
    widths = (rows["high"] - rows["low"]).to_list()
    assert widths[-1] < 0.7 * widths[0]


def test_each_row_is_the_estimate_of_its_draws(run, frame):
    matrix = draw_matrix(run.variants["normal"])
    single = refusal_index(refused=matrix.refused[0], wrong=matrix.wrong[0])
    crossed = refusal_index(refused=matrix.refused[0], wrong=matrix.wrong[1])
    three = corrected_refusal_index(matrix.refused[:3], matrix.wrong[:3], matrix.scored[:3])
    assert frame.filter(kind=SINGLE)["estimate"].item() == single.estimate
    assert frame.filter(kind=CROSSED)["estimate"].item() == crossed.estimate
    row = frame.filter(kind=CORRECTED, draws=3).row(0, named=True)
    assert (row["estimate"], row["uncorrected"]) == (three.estimate, three.uncorrected)


def test_what_cannot_be_corrected_is_undefined_with_its_reason():
    # Of every question the second draw does the opposite: the reliability is negative.
    refused, wrong = np.arange(300) % 2 == 0, np.arange(300) % 3 == 0
    rows = pl.concat([table_rows(refused, wrong), table_rows(~refused, wrong, draw=1)])
    study = attenuation.make([run_of({"normal": rows})], OPTIONS)
    row = study.frame.filter(kind=CORRECTED).row(0, named=True)
    assert (row["estimate"], row["status"], row["reason"]) == (None, "undefined", "refusal_reliability_not_positive")
    assert any("undefined" in note for note in study.notes)
    silent = pl.concat([table_rows(np.zeros(30), np.arange(30) % 2, draw=draw) for draw in range(2)])
    study = attenuation.make([run_of({"normal": silent})], OPTIONS)
    assert set(study.frame["estimate"]) == {None}
    assert any("nobody_refused" in note for note in study.notes)
    check_files(study)


def test_variants_drawn_once_are_said(run):
    study = attenuation.make([run, make_run("b", n=60, variants=("low",))], OPTIONS)
    assert any(note.startswith("b, low is left out") for note in study.notes)
    with pytest.raises(NotPossibleError, match="two samples or more"):
        attenuation.make([make_run("b", n=60)], OPTIONS)


def test_it_draws_and_prints_names_that_are_code_elsewhere():
    check_files(
        attenuation.make([make_run(HOSTILE, n=80, draws=2, seed=1), make_run("b", n=80, draws=5, seed=2)], OPTIONS)
    )
