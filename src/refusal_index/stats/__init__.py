"""The Refusal Index, its confidence intervals and tests, and the metrics it is compared with."""

# ruff: noqa: I001
# fmt: off
from refusal_index.stats.baseline import (
    METRIC_NAMES, TRUTHFULNESS_WEIGHTS, AccuracyRefusalCurve, ConfidenceBand, accuracy_refusal_curve,
    correct_given_attempted, correct_rate_at, f_score, iso_refusal_index, latent_auroc, metrics, omniscience_index,
    penalty_from_confidence, rho_from_refusal_index, utility, weighted_score,
)
from refusal_index.stats.calibration import (
    AurocResult, BrierResult, CalibrationErrorResult, ReliabilityBin, auroc, brier_score,
    expected_calibration_error, reliability_table, rms_calibration_error, smooth_calibration_error,
)
from refusal_index.stats.comparison import (
    Comparison, EqualIndexTest, MetricDifference, compare_metrics, equal_index_test, influence_function,
    metric_influence,
)
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable, SampledTable, SamplingDesign
from refusal_index.stats.arguments import checked_matrices
from refusal_index.stats.corrected import (
    CorrectedDifference, CorrectedRefusalIndexResult, attenuated_refusal_index, compare_corrected,
    corrected_refusal_index, deterministic_refusal_index, joint_corrected_refusal_index, rank_corrected,
)
from refusal_index.stats.draws import DrawPatterns, MidRankSpearman, mid_rank_spearman
from refusal_index.stats.estimate import ConfidenceInterval, Estimate, Result, Status
from refusal_index.stats.estimator import density, tetrachoric, upper_orthant
from refusal_index.stats.intervals import IntervalMethod, RefusalIndexResult, refusal_index, refusal_index_many
from refusal_index.stats.joint import (
    BetweenPrompts, HomogeneityTest, JointDifference, JointRefusalIndexResult, compare_joint, joint_refusal_index,
    rank_joint,
)
from refusal_index.stats.misgrading import (
    GraderLabels, GraderRates, LabelPlan, MisgradingRange, MisgradingResult, PredictionPowered, correct_guessing,
    correct_misgrading, labels_for_half_width, misgrading_from_labels, misgrading_range, prediction_powered,
)
from refusal_index.stats.sensitivity import (
    MissingBounds, OutcomeCounts, ScoringRange, WithinTopicResult, missing_bounds, scoring_ranges, scoring_rules,
    within_topic_refusal_index,
)
from refusal_index.stats.non_inferiority import AtLook, GroupSequential
from refusal_index.stats.planning import (
    PlanningScenario, PowerPlan, RepeatPlan, SamplePlan, asymptotic_deviation, expected_half_width,
    influence_correlation, power_to_tell_apart, questions_for_cv, questions_for_half_width, questions_over_interval,
    questions_to_tell_apart, repeats_half_width, split_budget,
)
from refusal_index.stats.ranking import (
    Adjustment, BoundaryPair, PairwiseDifference, RankedRun, Ranking, compact_letters, holm, rank_runs,
)
from refusal_index.stats.selective import (
    AurcResult, CutTest, RefusalComparison, RiskThreshold, ScoreDifference, SelectiveReport, TargetValue,
    UtilityThreshold, aurc, compare_with_refusals, prediction_rejection_ratio, risk_controlling_threshold,
    risk_coverage_curve, selective_report, utility_threshold, value_at_target,
)

__all__ = [
    "CELL_NAMES", "METRIC_NAMES", "TRUTHFULNESS_WEIGHTS", "AccuracyRefusalCurve", "Adjustment", "AtLook",
    "AurcResult", "AurocResult", "BetweenPrompts", "BoundaryPair", "BrierResult", "CalibrationErrorResult",
    "Comparison", "ConfidenceBand", "ConfidenceInterval", "ContingencyTable", "CorrectedDifference",
    "CorrectedRefusalIndexResult", "CutTest", "DrawPatterns", "EqualIndexTest", "Estimate", "GraderLabels",
    "GraderRates", "GroupSequential", "HomogeneityTest", "IntervalMethod", "JointDifference",
    "JointRefusalIndexResult", "LabelPlan", "MetricDifference", "MidRankSpearman", "MisgradingRange",
    "MisgradingResult", "MissingBounds", "OutcomeCounts", "PairwiseDifference", "PlanningScenario", "PowerPlan",
    "PredictionPowered", "RankedRun", "Ranking", "RefusalComparison", "RefusalIndexResult", "ReliabilityBin",
    "RepeatPlan", "Result", "RiskThreshold", "SamplePlan", "SampledTable", "SamplingDesign", "ScoreDifference",
    "ScoringRange", "SelectiveReport", "Status", "TargetValue", "UtilityThreshold", "WithinTopicResult",
    "accuracy_refusal_curve", "asymptotic_deviation", "attenuated_refusal_index", "aurc", "auroc", "brier_score",
    "checked_matrices", "compact_letters", "compare_corrected", "compare_joint",
    "compare_metrics", "compare_with_refusals", "correct_given_attempted", "correct_guessing", "correct_misgrading",
    "correct_rate_at", "corrected_refusal_index", "density", "deterministic_refusal_index", "equal_index_test",
    "expected_calibration_error", "expected_half_width", "f_score", "holm", "influence_correlation",
    "influence_function", "iso_refusal_index", "joint_corrected_refusal_index", "joint_refusal_index",
    "labels_for_half_width", "latent_auroc", "metric_influence", "metrics", "mid_rank_spearman",
    "misgrading_from_labels", "misgrading_range", "missing_bounds", "omniscience_index", "penalty_from_confidence",
    "power_to_tell_apart", "prediction_powered", "prediction_rejection_ratio", "questions_for_cv",
    "questions_for_half_width", "questions_over_interval", "questions_to_tell_apart", "rank_corrected",
    "rank_joint", "rank_runs", "refusal_index", "refusal_index_many", "reliability_table", "repeats_half_width",
    "rho_from_refusal_index", "risk_controlling_threshold", "risk_coverage_curve", "rms_calibration_error",
    "scoring_ranges", "scoring_rules", "selective_report", "smooth_calibration_error", "split_budget",
    "tetrachoric", "upper_orthant", "utility", "utility_threshold", "value_at_target", "weighted_score",
    "within_topic_refusal_index",
]
