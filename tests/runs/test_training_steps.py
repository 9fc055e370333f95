"""The steps of a training: their metrics, and their place in a set."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refusal_index.data.run_sets import SET_VERSION, set_members
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.plugins.training.steps import MetricOverSteps, _splits, metric_over_steps
from refusal_index.plugins.training.watch import PanelFolder
from refusal_index.runs.run_set import SetRun
from refusal_index.stats import metrics, refusal_index
from refusal_index.stats.contingency import ContingencyTable
from tests.tiers import others_nightly

# --- Metrics over the steps of a training


def steps(k: int, n: int, rng: np.random.Generator, shift: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Draw k steps over the same n questions, those of one model unless some refuse more."""
    doubt = rng.standard_normal(n)
    wrong = 0.8 * doubt + 0.6 * rng.standard_normal((k, n)) > 0
    more = 0 if shift is None else shift[:, None]
    return 0.7 * doubt + 0.714 * rng.standard_normal((k, n)) + more > 0.25, wrong


def share(reached: list[bool]) -> float:
    return float(np.mean(reached))


@others_nightly("metric", ["refusal_rate", "refusal_index", "error_rate"])
def test_equal_steps_show_a_change_at_nominal_rate(metric: str):
    rng = np.random.default_rng(1)
    found = [metric_over_steps(*steps(8, 300, rng), metric=metric, n_resamples=1000, rng=2) for _ in range(300)]
    rejected = share([one.pvalue is not None and one.pvalue <= 0.05 for one in found])
    assert 0.015 < rejected < 0.09  # two Monte-Carlo errors are .025


@others_nightly("metric", ["refusal_index", "refusal_rate"])
def test_bands_cover_all_true_values_simultaneously(metric: str):
    rng = np.random.default_rng(3)
    many = steps(1, 1_000_000, rng)
    truth = {
        "refusal_rate": float(many[0].mean()),
        "refusal_index": refusal_index(refused=many[0][0], wrong=many[1][0]).estimate,
    }[metric]
    found = [metric_over_steps(*steps(8, 300, rng), metric=metric, n_resamples=1000, rng=4) for _ in range(300)]
    held = share([all(point.low <= truth <= point.high for point in one.points) for one in found])
    assert 0.92 < held < 0.98
    alone = share([one.points[0].low <= truth <= one.points[0].high for one in found])
    assert alone > held


def test_rise_in_refusal_rate_is_detected_at_the_right_step():
    rng = np.random.default_rng(5)
    shift = np.where(np.arange(8) >= 3, 0.35, 0.0)
    found = [
        metric_over_steps(*steps(8, 400, rng, shift), metric="refusal_rate", n_resamples=500, rng=1) for _ in range(40)
    ]
    assert all(one.pvalue <= 0.01 and one.change.row == 3 for one in found)
    assert all(one.change.low > 0 for one in found)


def test_split_differences_are_of_means_with_simultaneous_intervals():
    rng = np.random.default_rng(6)
    refused, wrong = steps(5, 300, rng)
    found = metric_over_steps(refused, wrong, metric="refusal_rate", rng=1)
    rates = refused.mean(axis=1)
    assert [split.row for split in found.splits] == [1, 2, 3, 4]
    for split in found.splits:
        assert split.estimate == pytest.approx(rates[split.row :].mean() - rates[: split.row].mean())
        assert (split.before, split.after) == pytest.approx((rates[: split.row].mean(), rates[split.row :].mean()))
    # A difference of means by hand, each question's own.
    by_question = refused[2:].mean(axis=0) - refused[:2].mean(axis=0)
    error = by_question.std() / math.sqrt(300)
    assert (found.splits[1].high - found.splits[1].estimate) / error > 1.96
    assert found.change in found.splits


def of_rate(rate: float, k: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw k steps that refuse so rarely, whatever the question; half of the answers are wrong."""
    return rng.random((k, n)) < rate, np.tile(np.arange(n) % 2 == 0, (k, 1))


def test_change_from_never_refusing_is_detected():
    refused, wrong = of_rate(0.33, 6, 200, np.random.default_rng(13))
    refused[:3] = False
    found = metric_over_steps(refused, wrong, metric="refusal_rate", rng=1)
    assert found.rows == (0, 1, 2, 3, 4, 5)
    assert (found.change.row, found.change.before) == (3, 0.0)
    assert found.pvalue < 0.001
    assert [point.reason for point in found.points[:3]] == ["no_variation"] * 3
    assert metric_over_steps(refused, wrong, rng=1).rows == (3, 4, 5)


def test_change_from_never_to_always_is_detected_without_variation():
    refused = np.repeat([[False], [True]], 2, axis=0) & np.ones(50, bool)
    found = metric_over_steps(refused, np.zeros((4, 50), bool), metric="refusal_rate", rng=1)
    assert (found.critical_value, found.change.row, found.change.estimate) == (None, 2, 1.0)
    assert found.pvalue < 0.001


def test_steps_that_never_refuse_show_no_change():
    found = metric_over_steps(*of_rate(0.0, 4, 50, np.random.default_rng(14)), metric="refusal_rate", rng=1)
    assert (found.pvalue, found.change.estimate) == (1.0, 0.0)


@pytest.mark.parametrize("expected", [1, 4])
def test_equal_steps_with_rare_refusals_seldom_show_a_change(expected: int):
    rng = np.random.default_rng(15)
    found = [
        metric_over_steps(*of_rate(expected / 200, 8, 200, rng), metric="refusal_rate", n_resamples=400, rng=2)
        for _ in range(150)
    ]
    assert sum(bool((one.pvalue or 1) <= 0.05) for one in found) <= 12  # 8%; without the half, 54 and 20 of 150


def test_larger_clusters_weaken_evidence_of_change():
    refused, wrong = of_rate(0.5, 4, 100, np.random.default_rng(16))
    refused[:2], refused[2:] = False, np.arange(100) < 3
    p_of = {
        size: metric_over_steps(refused, wrong, metric="refusal_rate", cluster=np.arange(100) // size, rng=1).pvalue
        for size in (1, 20)
    }
    assert p_of[20] > p_of[1]


def test_one_step_has_its_own_interval_and_no_change():
    refused, wrong = steps(1, 400, np.random.default_rng(7))
    found = metric_over_steps(refused, wrong, metric="refusal_rate", n_resamples=200_000, rng=1)
    assert found.critical_value == pytest.approx(1.96, abs=0.02)
    assert (found.splits, found.change, found.pvalue) == ((), None, None)
    own = metrics(ContingencyTable.from_arrays(refused[0], wrong[0]))[1]
    assert (found.points[0].low, found.points[0].high) == pytest.approx((own.low, own.high), abs=0.005)


def test_identical_steps_show_no_change():
    refused, wrong = steps(1, 300, np.random.default_rng(8))
    found = metric_over_steps(np.tile(refused, (4, 1)), np.tile(wrong, (4, 1)), rng=1)
    assert found.pvalue == 1.0
    assert all(split.estimate == split.low == split.high == 0 for split in found.splits)


def test_undefined_step_is_a_gap_and_the_rest_is_compared():
    refused, wrong = steps(5, 300, np.random.default_rng(9))
    refused[1] = False
    found = metric_over_steps(refused, wrong, rng=1)
    gap = found.points[1]
    assert (gap.estimate, gap.low, gap.high, gap.reason) == (None, None, None, "nobody_refused")
    assert [split.row for split in found.splits] == [2, 3, 4]
    assert all(point.low is not None for row, point in enumerate(found.points) if row != 1)


def test_result_is_empty_if_no_step_has_an_index():
    nobody = np.zeros((3, 50), bool)
    found = metric_over_steps(nobody, np.tile([True, False], (3, 25)), rng=1)
    assert found == MetricOverSteps("refusal_index", found.points, None, (), (), None, None, None, 0.95)
    assert {point.reason for point in found.points} == {"nobody_refused"}


def test_bands_stay_within_the_range_of_their_metric():
    refused, wrong = steps(4, 30, np.random.default_rng(10))
    refused[:, 1:] &= np.random.default_rng(1).random((4, 29)) < 0.1
    for metric, least in (("refusal_rate", 0), ("correct_rate", 0), ("refusal_index", -1)):
        found = metric_over_steps(refused, wrong, metric=metric, rng=1)
        ends = [end for point in found.points if point.low is not None for end in (point.low, point.high)]
        assert all(least < end < 1 for end in ends)


def test_clustered_duplicates_do_not_narrow_bands():
    refused, wrong = steps(4, 60, np.random.default_rng(11))
    wide = np.repeat(refused, 10, axis=1), np.repeat(wrong, 10, axis=1)
    alike = metric_over_steps(*wide, metric="refusal_rate", cluster=np.repeat(np.arange(60), 10), rng=1)
    taken_for_many = metric_over_steps(*wide, metric="refusal_rate", rng=1)
    alone = metric_over_steps(refused, wrong, metric="refusal_rate", rng=1)
    widths = [one.points[0].high - one.points[0].low for one in (alike, taken_for_many, alone)]
    assert widths[0] > 2.5 * widths[1]
    assert widths[0] == pytest.approx(widths[2], rel=0.1)


def test_splits_are_contrasts():
    assert _splits(4).sum(axis=1) == pytest.approx(0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"metric": "ri"}, "metric must be one of"),
        ({"confidence_level": 2}, "confidence_level"),
        ({"weighted_score_p": -1}, "weighted_score_p"),
    ],
)
def test_wrong_arguments_are_named(changed: dict, message: str):
    refused, wrong = steps(2, 20, np.random.default_rng(12))
    with pytest.raises(ValueError, match=message):
        metric_over_steps(refused, wrong, **changed)


# --- The summary of a panel


def failed(name: str, error: str = "gone") -> SetRun:
    plan: Any = SimpleNamespace(title=(name, "almanac"), folder=SimpleNamespace(path=Path(name)))
    return SetRun(plan, RefusalIndexError(error))


def test_checkpoints_without_a_step_come_last_in_order_of_arrival(tmp_path: Path) -> None:
    for name, step in (("final", None), ("at-500", 500), ("best", None), ("final", None), ("at-1000", 1000)):
        PanelFolder(tmp_path).put(failed(name), step)
    assert [(member.model, member.step) for member in set_members(tmp_path)] == [
        ("at-500", 500),
        ("at-1000", 1000),
        ("final", 1001),
        ("best", 1002),
    ]


@pytest.mark.parametrize("version", [SET_VERSION - 1, SET_VERSION + 1])
def test_panel_of_another_version_raises_and_is_left_unchanged(tmp_path: Path, version: int) -> None:
    PanelFolder(tmp_path).put(failed("at-5"), 5)
    place = tmp_path / "summary.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"set_version": version}))
    before = place.read_bytes()
    text = rf"summary\.json: expected set_version {SET_VERSION}, got {version}; .*watch into another folder"
    with pytest.raises(RunFolderError, match=text):
        PanelFolder(tmp_path)
    assert place.read_bytes() == before


def test_failed_checkpoint_replaces_only_failed_ones(tmp_path: Path) -> None:
    PanelFolder(tmp_path).put(failed("at-5", "first"), 5)
    PanelFolder(tmp_path).put(failed("at-5", "second"), 5)
    place = tmp_path / "summary.json"
    document = json.loads(place.read_text())
    assert [run["error"] for run in document["runs"]] == ["second"]
    document["runs"][0] |= {"status": "complete", "summary": {"variants": []}, "error": None}
    place.write_text(json.dumps(document))
    PanelFolder(tmp_path).put(failed("at-5", "third"), 5)
    after = json.loads(place.read_text())
    assert (after["runs"], after["complete"]) == (document["runs"], True)


# --- Steps in the summary of a set


@pytest.mark.parametrize(
    ("step", "read"),
    [(2000, 2000), (0, 0), (None, None), (True, None), (-1, None), (1.5, None), ("2", None), (10**20, None)],
)
def test_only_valid_training_steps_are_read(tmp_path: Path, step: Any, read: int | None):
    run = {"folder": "a", "model": "m", "dataset": "d", "step": step}
    (tmp_path / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": [run]}))
    assert [member.step for member in set_members(tmp_path)] == [read]


def test_sets_written_without_steps_have_none(tmp_path: Path):
    run = {"folder": "a", "model": "m", "dataset": "d"}
    (tmp_path / "summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": [run]}))
    assert [member.step for member in set_members(tmp_path)] == [None]
