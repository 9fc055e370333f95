"""Which runs are pairs, and differences against those of the comparison of two runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.studies.made import HOSTILE, made_run
from tests.studies.outcomes_made import check_files

from refusal_index.data.rates import outcome_matrix
from refusal_index.plugins.studies.responses import thinking, thinking_of
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import compare_joint, compare_metrics

OPTIONS = StudyOptions()


def thinking_run(switch="", effort=None, *, label=None, grader="exact", max_tokens=4096, model="m", **given):
    settings = {
        "model": model,
        "dataset": {"name": "d"},
        "grader": grader,
        "think": switch or None,
        "decoding": {"temperature": 0.7, "max_tokens": max_tokens, "reasoning_effort": effort},
    }
    run = made_run(model, **given)
    return dataclasses.replace(run, settings=settings, label=label or f"{model} {switch} {effort}")


@pytest.fixture(scope="module")
def pair():
    return [
        thinking_run("/think", rho=0.8, seed=1, n=250, max_tokens=32_000),
        thinking_run("/no_think", rho=0.3, seed=1, n=250),
    ]


def test_the_difference_is_that_of_compare_joint_over_shared_questions(pair):
    study = thinking.make(pair, OPTIONS)
    row = study.frame.filter(metric="refusal_index").row(0, named=True)
    more, less = (outcome_matrix(list(run.variants.values())).arrays for run in pair)
    expected = compare_joint(*(np.stack(both) for both in zip(more, less, strict=True)))
    low, high = expected.confidence_interval()
    assert (row["less"], row["more"], row["questions"]) == ("/no_think", "/think", 250)
    assert row["estimate"] == pytest.approx(expected.estimate)
    assert (row["low"], row["high"], row["pvalue"]) == pytest.approx((low, high, expected.pvalue))


def test_with_one_variant_the_other_metrics_are_those_of_compare_metrics():
    runs = [
        thinking_run(effort=effort, rho=0.5, seed=seed, n=200, variants=["normal"])
        for seed, effort in enumerate(("high", "low"))
    ]
    frame = thinking.make(runs, OPTIONS).frame
    matrix = outcome_matrix([run.variants["normal"] for run in runs])
    expected = compare_metrics(*matrix.arrays)
    for row in frame.iter_rows(named=True):
        one = expected[row["metric"]]
        assert row["estimate"] == pytest.approx(one.estimate, abs=1e-12)
        assert row["pvalue"] == pytest.approx(one.pvalue)
    assert set(frame["less"]) == {"effort low"}


def test_runs_are_ordered_by_effort_and_switch():
    order = [thinking_run(*what) for what in (("/no_think",), ("",), ("/think",), ("", "low"), ("", "high"))]
    assert [thinking_of(run)[:2] for run in order] == sorted({thinking_of(run)[:2] for run in order})
    assert [thinking_of(run)[2] for run in order[:4]] == ["/no_think", "as it is", "/think", "effort low"]


def test_only_runs_that_are_alike_otherwise_are_pairs(pair):
    other_grader = thinking_run("/think", grader="other", label="g")
    other_model = thinking_run("/think", model="n", label="n")
    without_settings = made_run("m")
    with pytest.raises(NotPossibleError, match="no such pair"):
        thinking.make([pair[1], other_grader, other_model, without_settings], OPTIONS)
    with pytest.raises(NotPossibleError, match="no such pair"):
        thinking.make([pair[1], dataclasses.replace(pair[1], label="again")], OPTIONS)
    assert thinking.make([*pair, other_grader], OPTIONS).frame.height == 6
    three = thinking.make([*pair, thinking_run(seed=3, n=250)], OPTIONS).frame.filter(metric="refusal_index")
    assert three.select("less", "more").rows() == [("/no_think", "as it is"), ("/no_think", "/think")]


def test_an_index_at_the_boundary_has_a_difference_without_an_interval():
    runs = [
        thinking_run("/think", rho=0.9999, right=0.1, n=40, variants=["low"]),
        thinking_run("/no_think", n=200, variants=["low"]),
    ]
    row = thinking.make(runs, OPTIONS).frame.filter(metric="refusal_index").row(0, named=True)
    assert row["reason"] == "no_standard_error"
    assert row["low"] is None


def test_it_draws_and_prints_names_that_are_code_elsewhere(pair):
    hostile = [thinking_run(switch, model=HOSTILE, n=120, seed=4) for switch in ("/think", HOSTILE + "no_think")]
    check_files(thinking.make([*pair, *hostile], OPTIONS))
