"""Metrics from many grades and a few labels."""

import numpy as np
import pytest
from benchmarks.coverage import misgrading as simulation
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import others_nightly

from refusal_index.stats import (
    METRIC_NAMES,
    ContingencyTable,
    GraderLabels,
    compare_metrics,
    metrics,
    misgrading_from_labels,
    prediction_powered,
)


def graded_run(n=4000, seed=11):
    """Refusals, true errors, errors by a grader that is often wrong, and a random slice of a tenth."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.4
    grade = np.where(rng.random(n) < np.where(truth, 0.12, 0.06), ~truth, truth)
    labelled = np.zeros(n, bool)
    labelled[rng.choice(n, n // 10, replace=False)] = True
    refused = rng.random(n) < np.where(truth, 0.5, 0.2)
    return refused, truth, grade, labelled


def test_a_mean_against_ppi_python() -> None:
    # ppi-python 0.2.3, which needs numba and gdown:
    # ppi_mean_pointestimate(truth[labelled], grade[labelled], grade[~labelled]), ppi_mean_ci(..., alpha=0.05)
    refused, truth, grade, labelled = graded_run()
    nobody = np.zeros((1, refused.size), bool)
    found = prediction_powered(nobody, grade[np.newaxis], labelled=labelled[np.newaxis], truly_wrong=truth[np.newaxis])
    error_rate = found[METRIC_NAMES.index("error_rate")]
    assert error_rate.estimate == pytest.approx(0.41185774, abs=2e-6)
    assert error_rate.confidence_interval() == pytest.approx((0.38333078, 0.44038469), abs=5e-4)
    assert error_rate.graded == pytest.approx(grade.mean())


def test_labels_of_every_answer_give_the_metrics_of_the_truth() -> None:
    refused, truth, grade, _ = graded_run()
    everything = np.ones((1, refused.size), bool)
    found = prediction_powered([refused], [grade], labelled=everything, truly_wrong=[truth])
    for one, true in zip(found, metrics(ContingencyTable.from_arrays(refused, truth)), strict=True):
        assert one.estimate == pytest.approx(true.estimate, abs=1e-9)
        low, high = one.confidence_interval()
        scale = 200 if one.name == "omniscience_index" else 1
        assert (low, high) == pytest.approx((true.low, true.high), abs=0.01 * scale)


def test_differences_with_all_labels_are_those_of_a_comparison() -> None:
    runs = [graded_run(1500, seed) for seed in (1, 2)]
    refused, truth, grade = (np.stack([run[part] for run in runs]) for part in range(3))
    truth[1, :700], refused[1, :700] = truth[0, :700], refused[0, :700]
    found = prediction_powered(refused, grade, labelled=np.ones_like(refused), truly_wrong=truth)
    for one, expected in zip(found, compare_metrics(refused, truth).differences, strict=True):
        assert one.estimate == pytest.approx(expected.estimate, abs=1e-9)
        assert one.standard_error == pytest.approx(expected.standard_error, rel=0.01)


@given(st.lists(st.integers(1, 40), min_size=8, max_size=8), st.integers(2, 9))
def test_the_index_is_that_of_labels_for_each_group(cells, times: int) -> None:
    # By group, grade and verdict; each label stands for `times` answers.
    labelled = np.array(cells).reshape(2, 2, 2)
    group, graded_right, right = np.repeat(np.indices((2, 2, 2)).reshape(3, 8), labelled.ravel() * times, axis=1)
    first = np.concatenate([np.arange(count * times) < count for count in labelled.ravel()])
    arrays = [(group == 0)[np.newaxis], (graded_right == 0)[np.newaxis]]
    found = prediction_powered(*arrays, labelled=[first], truly_wrong=[right == 0])[-1]
    table = ContingencyTable(*(times * labelled.sum(axis=2)).ravel().tolist())
    refused, answered = (GraderLabels(*part.ravel().tolist()) for part in labelled)
    expected = misgrading_from_labels(table, refused=refused, answered=answered)
    assert found.estimate == pytest.approx(expected.estimate, abs=1e-7)


def test_unequal_chances_of_being_drawn_are_weighed() -> None:
    # Of the answers graded wrong, long ones are misgraded more often and were drawn five times as often.
    long = np.arange(1000) < 200
    truth = np.where(long, np.arange(1000) % 2 == 0, True)
    labelled = np.where(long, True, np.arange(1000) % 5 == 0)
    chances = np.where(long, 1.0, 0.2)
    arguments = {"labelled": [labelled], "truly_wrong": [truth]}
    grades = np.zeros((1, 1000), bool), np.ones((1, 1000), bool)
    place = METRIC_NAMES.index("error_rate")
    assert prediction_powered(*grades, **arguments, inclusion=[chances])[place].estimate == pytest.approx(0.9)
    assert prediction_powered(*grades, **arguments)[place].estimate == pytest.approx(260 / 360)


def test_a_graded_cell_without_a_label_leaves_all_undefined() -> None:
    refused, truth, grade, labelled = graded_run(500)
    none = labelled & ~(refused & ~grade)
    found = prediction_powered([refused], [grade], labelled=[none], truly_wrong=[truth])
    assert {(one.status, one.reason, one.estimate) for one in found} == {("undefined", "no_labels:refused_right", None)}
    two = [np.stack([part, part]) for part in (refused, grade, truth)]
    difference = prediction_powered(two[0], two[1], labelled=np.stack([labelled, none]), truly_wrong=two[2])[0]
    assert (difference.reason, difference.estimate) == ("second:no_labels:refused_right", None)
    assert np.isnan(difference.confidence_interval()).all()


def test_labels_without_a_mistake_do_not_make_the_grader_faultless() -> None:
    refused, truth, _, labelled = graded_run(1000)
    found = prediction_powered([refused], [truth], labelled=[labelled], truly_wrong=[truth])
    true = metrics(ContingencyTable.from_arrays(refused, truth))
    rate = METRIC_NAMES.index("error_rate")
    assert found[rate].estimate == pytest.approx(true[rate].estimate)
    assert found[rate].standard_error > 1.05 * (true[rate].high - true[rate].low) / 2 / 1.96


def test_a_run_does_not_differ_from_itself_under_the_same_labels() -> None:
    refused, truth, grade, labelled = (np.stack([part, part]) for part in graded_run())
    alone = prediction_powered(refused[:1], grade[:1], labelled=labelled[:1], truly_wrong=truth[:1])
    twice = prediction_powered(refused, grade, labelled=labelled, truly_wrong=truth)
    for one, both in zip(alone, twice, strict=True):
        assert both.estimate == pytest.approx(0, abs=1e-12)
        # But for the half labels.
        assert both.standard_error < 0.35 * one.standard_error or one.name == "refusal_rate"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labelled": [[True, False]]}, ValueError, "labelled and wrong must have|shape"),
        ({"inclusion": [[0.5] * 5]}, ValueError, "inclusion must have the shape of labelled"),
        ({"inclusion": [[0.0] * 4]}, ValueError, r"inclusion must lie in \(0, 1\]"),
        ({"refused": [[True] * 4] * 3, "wrong": [[True] * 4] * 3}, ValueError, "one or two rows"),
        ({"labelled": [[2, 0, 1, 0]]}, TypeError, "must hold truth values"),
    ],
)
def test_bad_arguments_are_refused(change, error, message: str) -> None:
    good = {"refused": [[True] * 4], "wrong": [[True] * 4], "labelled": [[True] * 4], "truly_wrong": [[True] * 4]}
    arguments = {**good, **change}
    with pytest.raises(error, match=message):
        prediction_powered(arguments.pop("refused"), arguments.pop("wrong"), **arguments)


@pytest.mark.slow
@others_nightly("scenario", simulation.DIFFERING, ids=str)
def test_simulated_coverage_of_a_grader_that_errs_differently(scenario) -> None:
    rows = list(simulation.differing_rows(scenario, 150, np.random.default_rng(4)))
    assert all(row.holds for row in rows), [row for row in rows if not row.holds]
