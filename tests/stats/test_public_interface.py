"""The public names, what importing them costs, and the benchmark that times them."""

import pkgutil
import subprocess
import sys
from importlib.metadata import version

import pytest
from tests.runs.test_package import PUBLIC

import refusal_index
from benchmarks import estimator
from refusal_index import stats

STATS_NAMES = """
    AccuracyRefusalCurve Adjustment AtLook AurcResult AurocResult BetweenPrompts BoundaryPair
    BrierResult CELL_NAMES CalibrationErrorResult Comparison ConfidenceBand ConfidenceInterval
    ContingencyTable CutTest DrawPatterns EqualIndexTest
    Estimate GraderLabels GraderRates GroupSequential HomogeneityTest IntervalMethod
    JointDifference JointRefusalIndexResult LabelPlan METRIC_NAMES
    MetricDifference
    MidRankSpearman MisgradingRange MisgradingResult MissingBounds CorrectedDifference CorrectedRefusalIndexResult
    OutcomeCounts PairwiseDifference PlanningScenario PowerPlan PredictionPowered
    RankedRun Ranking RefusalComparison RefusalIndexResult
    ReliabilityBin RepeatPlan RiskThreshold SamplePlan SampledTable SamplingDesign ScoreDifference
    ScoringRange SelectiveReport Status TRUTHFULNESS_WEIGHTS TargetValue UtilityThreshold
    Result
    WithinTopicResult
    accuracy_refusal_curve asymptotic_deviation attenuated_refusal_index aurc auroc
    brier_score checked_matrices compact_letters
    compare_joint compare_metrics compare_corrected compare_with_refusals
    correct_given_attempted
    correct_guessing correct_misgrading correct_rate_at density deterministic_refusal_index
    equal_index_test expected_calibration_error expected_half_width
    f_score mid_rank_spearman
    holm influence_correlation influence_function iso_refusal_index
    joint_corrected_refusal_index joint_refusal_index
    labels_for_half_width latent_auroc metric_influence metrics
    misgrading_from_labels misgrading_range missing_bounds corrected_refusal_index
    omniscience_index penalty_from_confidence power_to_tell_apart prediction_powered
    prediction_rejection_ratio questions_for_cv questions_for_half_width questions_over_interval
    questions_to_tell_apart rank_joint rank_corrected rank_runs
    refusal_index refusal_index_many reliability_table repeats_half_width rho_from_refusal_index
    risk_controlling_threshold risk_coverage_curve rms_calibration_error scoring_ranges scoring_rules
    selective_report smooth_calibration_error split_budget tetrachoric upper_orthant utility
    utility_threshold value_at_target weighted_score within_topic_refusal_index
"""
STATS = set(STATS_NAMES.split())


def test_public_names_are_these_and_exist() -> None:
    assert refusal_index.__all__ == PUBLIC
    assert set(stats.__all__) == STATS
    for module in (refusal_index, stats):
        assert all(hasattr(module, name) for name in module.__all__)


def test_version_is_the_installed_one() -> None:
    assert refusal_index.__version__ == version("refusal-index")


def test_import_loads_nothing_heavy() -> None:
    heavy = ["inspect_ai", "pandas", "matplotlib", "torch", "polars", "typer", "scipy.stats"]
    program = f"import sys, refusal_index; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_benchmark_times_every_contender(capsys, monkeypatch) -> None:
    sizes = ["--many", "200", "--one", "5", "--slow", "2", "--repetitions", "1"]
    monkeypatch.setattr(sys, "argv", ["estimator", *sizes])
    estimator.main()
    printed = capsys.readouterr().out
    for contender in ("plain SciPy", "refusal_index_many", "one call", "with profile interval"):
        (line,) = [line for line in printed.splitlines() if contender in line]
        assert float(line.split()[-2]) > 0


def test_no_module_of_the_statistics_is_hidden_by_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(stats.__path__)}
    assert modules & set(stats.__all__) == set()
