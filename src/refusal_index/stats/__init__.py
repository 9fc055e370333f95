"""Numbers in, numbers out: the Refusal Index, its intervals and the metrics it is compared with."""

from refusal_index.stats.baseline import (
    METRIC_NAMES,
    TRUTHFULNESS_WEIGHTS,
    correct_given_attempted,
    f_score,
    metrics,
    weighted_score,
)
from refusal_index.stats.calibration.against_refusals import (
    AurcResult,
    RefusalComparison,
    ScoreDifference,
    aurc,
    compare_with_refusals,
    empirical_accuracy_refusal_curve,
    prediction_rejection_ratio,
    risk_coverage_curve,
)
from refusal_index.stats.calibration.auroc import AurocResult, auroc
from refusal_index.stats.calibration.reliability import (
    BrierResult,
    CalibrationErrorResult,
    ReliabilityBin,
    brier_score,
    expected_calibration_error,
    reliability_table,
    rms_calibration_error,
    smooth_calibration_error,
)
from refusal_index.stats.calibration.threshold import (
    CutTest,
    RiskThreshold,
    SelectiveReport,
    TargetValue,
    UtilityThreshold,
    risk_controlling_threshold,
    selective_report,
    utility_threshold,
    value_at_target,
)
from refusal_index.stats.comparison.joint import (
    BetweenPrompts,
    HomogeneityTest,
    JointDifference,
    JointRefusalIndexResult,
    compare_joint,
    joint_refusal_index,
    rank_joint,
)
from refusal_index.stats.comparison.pair import (
    Comparison,
    EqualIndexTest,
    MetricDifference,
    compare_metrics,
    equal_index_test,
    metric_influence,
)
from refusal_index.stats.comparison.ranking import (
    Adjustment,
    BoundaryPair,
    PairwiseDifference,
    RankedRun,
    Ranking,
    compact_letters,
    holm,
    rank_runs,
)
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable
from refusal_index.stats.copulas.families import (
    COPULA_NAMES,
    CopulaComparison,
    CopulaFit,
    CopulaName,
    copula_spearman,
    copula_upper_orthant,
    copula_win_rates,
    fit_copula,
    fit_copulas,
    kendall_tau,
)
from refusal_index.stats.copulas.shared import CopulaTestResult, copula_test, copula_tests
from refusal_index.stats.curves.operating_point import (
    AccuracyRefusalCurve,
    ConfidenceBand,
    OperatingPoint,
    abstention_metrics,
    accuracy_refusal_area,
    accuracy_refusal_curve,
    best_operating_point,
    best_refusal_rate,
    correct_rate_at,
    iso_refusal_index,
    iso_score,
    latent_aurc,
    latent_auroc,
    latent_excess_aurc,
    omniscience_index,
    penalty_from_confidence,
    rho_from_refusal_index,
    utility,
    utility_at,
)
from refusal_index.stats.curves.penalty_response import PenaltyPoint, PenaltyResponse, response_to_penalty
from refusal_index.stats.design import SampledTable, SamplingDesign, clustered_covariance
from refusal_index.stats.draws.noise import (
    CorrectedDifference,
    CorrectedRefusalIndexResult,
    attenuated_refusal_index,
    compare_corrected,
    corrected_refusal_index,
    deterministic_refusal_index,
    joint_corrected_refusal_index,
    rank_corrected,
)
from refusal_index.stats.draws.patterns import DrawPatterns, MidRankSpearman, mid_rank_spearman
from refusal_index.stats.estimate import ConfidenceInterval, Estimate, Result, Status
from refusal_index.stats.estimator import density, tetrachoric, upper_orthant
from refusal_index.stats.influence import influence_function
from refusal_index.stats.intervals import IntervalMethod, RefusalIndexResult, refusal_index, refusal_index_many
from refusal_index.stats.matrices import checked_matrices
from refusal_index.stats.planning import (
    PlanningScenario,
    PowerPlan,
    RepeatPlan,
    SamplePlan,
    asymptotic_deviation,
    expected_half_width,
    influence_correlation,
    power_to_tell_apart,
    questions_for_cv,
    questions_for_half_width,
    questions_over_interval,
    questions_to_tell_apart,
    repeats_half_width,
    split_budget,
)
from refusal_index.stats.sensitivity.misgrading import (
    GraderLabels,
    GraderRates,
    MisgradingRange,
    MisgradingResult,
    correct_guessing,
    correct_misgrading,
    misgrading_from_labels,
    misgrading_range,
)
from refusal_index.stats.sensitivity.missing import (
    MissingBounds,
    OutcomeCounts,
    ScoredByRule,
    ScoringRange,
    missing_bounds,
    scoring_ranges,
    scoring_rules,
)
from refusal_index.stats.sensitivity.prediction_powered import (
    LabelPlan,
    PredictionPowered,
    labels_for_half_width,
    prediction_powered,
)
from refusal_index.stats.sensitivity.topics import WithinTopicResult, within_topic_refusal_index
from refusal_index.stats.sequential import AtLook, GroupSequential
from refusal_index.stats.stability import (
    IsotonicResiduals,
    KendallWResult,
    RandomDistribution,
    RankingStability,
    WinnerEntropyResult,
    coefficient_of_variation,
    expected_kendall_w,
    expected_winner_entropy,
    isotonic_residuals,
    kendall_w,
    normalized_difference,
    ranking_stability,
    winner_entropy,
)

__all__ = [
    "CELL_NAMES", "COPULA_NAMES", "METRIC_NAMES", "TRUTHFULNESS_WEIGHTS", "AccuracyRefusalCurve", "Adjustment",
    "AtLook", "AurcResult", "AurocResult", "BetweenPrompts", "BoundaryPair", "BrierResult", "CalibrationErrorResult",
    "Comparison", "ConfidenceBand", "ConfidenceInterval", "ContingencyTable", "CopulaComparison", "CopulaFit",
    "CopulaName", "CopulaTestResult", "CorrectedDifference", "CorrectedRefusalIndexResult", "CutTest", "DrawPatterns",
    "EqualIndexTest", "Estimate", "GraderLabels", "GraderRates", "GroupSequential", "HomogeneityTest", "IntervalMethod",
    "IsotonicResiduals", "JointDifference", "JointRefusalIndexResult", "KendallWResult", "LabelPlan",
    "MetricDifference", "MidRankSpearman", "MisgradingRange", "MisgradingResult", "MissingBounds", "OperatingPoint",
    "OutcomeCounts", "PairwiseDifference", "PenaltyPoint", "PenaltyResponse", "PlanningScenario", "PowerPlan",
    "PredictionPowered", "RandomDistribution", "RankedRun", "Ranking", "RankingStability", "RefusalComparison",
    "RefusalIndexResult", "ReliabilityBin", "RepeatPlan", "Result", "RiskThreshold", "SamplePlan", "SampledTable",
    "SamplingDesign", "ScoreDifference", "ScoredByRule", "ScoringRange", "SelectiveReport", "Status", "TargetValue",
    "UtilityThreshold", "WinnerEntropyResult", "WithinTopicResult", "abstention_metrics", "accuracy_refusal_area",
    "accuracy_refusal_curve", "asymptotic_deviation", "attenuated_refusal_index", "aurc", "auroc",
    "best_operating_point", "best_refusal_rate", "brier_score", "checked_matrices", "clustered_covariance",
    "coefficient_of_variation", "compact_letters", "compare_corrected", "compare_joint", "compare_metrics",
    "compare_with_refusals", "copula_spearman", "copula_test", "copula_tests", "copula_upper_orthant",
    "copula_win_rates", "correct_given_attempted", "correct_guessing", "correct_misgrading", "correct_rate_at",
    "corrected_refusal_index", "density", "deterministic_refusal_index", "empirical_accuracy_refusal_curve",
    "equal_index_test", "expected_calibration_error", "expected_half_width", "expected_kendall_w",
    "expected_winner_entropy", "f_score", "fit_copula", "fit_copulas", "holm", "influence_correlation",
    "influence_function", "iso_refusal_index", "iso_score", "isotonic_residuals", "joint_corrected_refusal_index",
    "joint_refusal_index", "kendall_tau", "kendall_w", "labels_for_half_width", "latent_aurc", "latent_auroc",
    "latent_excess_aurc", "metric_influence", "metrics", "mid_rank_spearman", "misgrading_from_labels",
    "misgrading_range", "missing_bounds", "normalized_difference", "omniscience_index", "penalty_from_confidence",
    "power_to_tell_apart", "prediction_powered", "prediction_rejection_ratio", "questions_for_cv",
    "questions_for_half_width", "questions_over_interval", "questions_to_tell_apart", "rank_corrected", "rank_joint",
    "rank_runs", "ranking_stability", "refusal_index", "refusal_index_many", "reliability_table", "repeats_half_width",
    "response_to_penalty", "rho_from_refusal_index", "risk_controlling_threshold", "risk_coverage_curve",
    "rms_calibration_error", "scoring_ranges", "scoring_rules", "selective_report", "smooth_calibration_error",
    "split_budget", "tetrachoric", "upper_orthant", "utility", "utility_at", "utility_threshold", "value_at_target",
    "weighted_score", "winner_entropy", "within_topic_refusal_index",
]  # fmt: skip
