"""Models compared by their joint index: against resampled questions, against a single prompt, and by simulation."""

import math

import numpy as np
import pytest
from benchmarks.coverage.joint_comparison import EQUAL, SCENARIOS, difference_rows, ranking_row
from tests.tiers import others_nightly

from refusal_index.stats import compare_joint, compare_metrics, joint_refusal_index, rank_joint, rank_runs


def data(seed: int = 1, index: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return SCENARIOS[index].draw(np.random.default_rng(seed))


def test_the_difference_is_that_of_the_joint_indices() -> None:
    refused, wrong = data()
    found = compare_joint(refused, wrong)
    assert found.first == joint_refusal_index(refused[0], wrong[0])
    assert found.estimate == found.first.estimate - found.second.estimate
    low, high = found.confidence_interval()
    assert (low + high) / 2 == pytest.approx(found.estimate)
    assert (high - low) / 2 == pytest.approx(1.959964 * found.standard_error, rel=1e-6)


def test_standard_error_against_resampled_questions() -> None:
    refused, wrong = data(3)
    found, rng = compare_joint(refused, wrong), np.random.default_rng(5)
    n = refused.shape[2]
    draws = [compare_joint(refused[..., i], wrong[..., i]).estimate for i in rng.integers(n, size=(400, n))]
    assert found.standard_error == pytest.approx(np.std(draws), rel=0.12)


def test_of_a_single_prompt_it_is_the_comparison_of_two_runs() -> None:
    refused, wrong = (values[:, :1] for values in data())
    found, single = compare_joint(refused, wrong), compare_metrics(refused[:, 0], wrong[:, 0])["refusal_index"]
    assert found.estimate == pytest.approx(single.estimate, abs=1e-12)
    assert found.standard_error == pytest.approx(single.standard_error, rel=1e-9)
    assert found.pvalue == pytest.approx(single.pvalue, rel=1e-6)


def test_a_ranking_of_single_prompts_is_that_of_runs() -> None:
    refused, wrong = EQUAL[1].draw(np.random.default_rng(2))
    joint, runs = rank_joint(refused[:, :1], wrong[:, :1], rng=4), rank_runs(refused[:, 0], wrong[:, 0], rng=4)
    assert [run.row for run in joint.runs] == [run.row for run in runs.runs]
    assert [run.letters for run in joint.runs] == [run.letters for run in runs.runs]
    for one, other in zip(joint.pairs, runs.pairs, strict=True):
        assert one.pvalue_max_t == pytest.approx(other.pvalue_max_t, abs=1e-3)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-9)


def test_a_model_against_itself_differs_by_nothing() -> None:
    refused, wrong = data()
    found = compare_joint(refused[[0, 0]], wrong[[0, 0]])
    assert (found.estimate, found.standard_error, found.pvalue) == (0.0, 0.0, 1.0)


def test_only_graded_questions_count() -> None:
    refused, wrong = data()
    scored = np.random.default_rng(8).random(refused.shape) < 0.8
    garbled = compare_joint(np.where(scored, refused, ~refused), np.where(scored, wrong, ~wrong), scored)
    assert garbled == compare_joint(refused, wrong, scored)


@pytest.mark.parametrize(("end", "status"), [("never", "undefined"), ("perfect", "boundary")])
def test_without_a_standard_error_there_is_no_test_and_the_model_is_named(end: str, status: str) -> None:
    refused, wrong = data()
    refused = refused.copy()
    refused[1] = False if end == "never" else wrong[1]
    found = compare_joint(refused, wrong)
    assert (found.status, found.standard_error, found.pvalue) == (status, None, None)
    assert found.reason.startswith("second:all_variants")
    assert all(math.isnan(limit) for limit in found.confidence_interval())
    ranking = rank_joint(refused, wrong, rng=0)
    assert [run.row for run in ranking.runs] == [0]
    assert [(run.row, run.status) for run in ranking.unranked] == [(1, status)]


@pytest.mark.parametrize(
    ("refused", "wrong", "says"),
    [
        (np.zeros((2, 5), bool), np.zeros((2, 5), bool), "refused must be three-dimensional"),
        (np.zeros((2, 1, 5), bool), np.zeros((2, 1, 4), bool), "wrong must have the shape of refused"),
        (np.zeros((3, 1, 5), bool), np.zeros((3, 1, 5), bool), "exactly two models to compare, got 3"),
    ],
)
def test_arrays_of_another_shape_are_refused(refused, wrong, says) -> None:
    with pytest.raises(ValueError, match=says):
        compare_joint(refused, wrong)


@pytest.mark.slow
@others_nightly("index", [1, 2])
def test_coverage_and_size(index: int) -> None:
    for row in difference_rows(SCENARIOS[index], 400, np.random.default_rng(index)):
        assert row.holds, row


@pytest.mark.slow
def test_family_wise_error_of_a_ranking() -> None:
    row = ranking_row(EQUAL[0], 150, np.random.default_rng(1))
    assert row.holds, row


def test_a_single_model_is_no_ranking() -> None:
    alone = np.array([[[True, False], [True, True]]])
    with pytest.raises(ValueError, match=r"refused must hold two models or more to rank, got 1"):
        rank_joint(alone, alone)
