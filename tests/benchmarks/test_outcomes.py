"""The benchmark of outcome tables, tiny: that it measures what it says it measures. It asserts no speed."""

from __future__ import annotations

import pytest
from benchmarks.outcomes import THRESHOLDS, WORK, made, made_up_outcomes, measure, write

from refusal_index.data.rates import contingency_table
from refusal_index.findings.metrics import METRICS
from refusal_index.stats import refusal_index


@pytest.mark.slow
def test_every_work_is_done_in_a_process_of_its_own(tmp_path):
    path = tmp_path / "few.parquet"
    assert made(path, models=2, questions=60) == 2 * 4 * 60
    one = measure("read and summarised", path)
    assert one.found == 2 * 4 * len(METRICS) + 2  # and a joint estimate of each model
    assert one.wall > 0 < one.cpu
    assert one.memory > 30


@pytest.mark.parametrize(("work", "found"), [("counted by Polars", 2 * 4 * 4), ("read and checked", 2 * 4 * 200)])
def test_what_polars_counts_is_all_of_the_file(work, found, tmp_path):
    write(tmp_path / "few.parquet", models=2, questions=200)
    assert WORK[work](tmp_path / "few.parquet") == found


def test_the_made_up_models_have_the_indices_and_rates_that_they_should():
    table = made_up_outcomes(models=2, questions=20_000)
    for variant in THRESHOLDS:
        one, other = (contingency_table(table.filter(model=f"model-0{number}", variant=variant)) for number in (0, 1))
        # 6/pi asin(rho/2) for rho .1 and .7
        assert refusal_index(one).estimate == pytest.approx(0.0955, abs=0.06)
        assert refusal_index(other).estimate == pytest.approx(0.683, abs=0.06)
    rates = [table.filter(variant=variant)["refused"].mean() for variant in THRESHOLDS]
    assert rates == sorted(rates)
