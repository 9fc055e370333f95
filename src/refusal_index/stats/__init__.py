"""Numbers in, numbers out: the Refusal Index, its intervals and the metrics it is compared with."""

from refusal_index.stats.baseline import (
    METRIC_NAMES,
    TRUTHFULNESS_WEIGHTS,
    correct_given_attempted,
    f_score,
    metrics,
    weighted_score,
)
from refusal_index.stats.bivariate_normal import density, upper_orthant
from refusal_index.stats.calibration.against_refusals import (
    RefusalComparison,
    ScoreDifference,
    compare_with_refusals,
)
from refusal_index.stats.calibration.auroc import AurocResult, auroc
from refusal_index.stats.calibration.brier import BrierResult, brier_score
from refusal_index.stats.calibration.rejection_ratio import RejectionRatioResult, prediction_rejection_ratio
from refusal_index.stats.calibration.reliability import (
    CalibrationErrorResult,
    ReliabilityBin,
    expected_calibration_error,
    reliability_table,
)
from refusal_index.stats.calibration.risk_control import (
    CutTest,
    RiskThreshold,
    risk_controlling_threshold,
)
from refusal_index.stats.calibration.risk_coverage import (
    AurcResult,
    aurc,
    empirical_accuracy_refusal_curve,
    risk_coverage_curve,
)
from refusal_index.stats.calibration.rms_calibration import (
    rms_calibration_error,
)
from refusal_index.stats.calibration.smooth_calibration import SmoothCalibrationError, smooth_calibration_error
from refusal_index.stats.calibration.target_value import TargetValue, value_at_target
from refusal_index.stats.calibration.threshold import (
    SelectiveReport,
    UtilityThreshold,
    selective_report,
    utility_threshold,
)
from refusal_index.stats.comparison.between_prompts import BetweenPrompts
from refusal_index.stats.comparison.joint import HomogeneityTest, JointRefusalIndexResult, joint_refusal_index
from refusal_index.stats.comparison.joint_comparison import JointDifference, compare_joint, rank_joint
from refusal_index.stats.comparison.metric_influence import metric_influence
from refusal_index.stats.comparison.pair import Comparison, MetricDifference, compare_metrics
from refusal_index.stats.comparison.pairwise import compact_letters, holm
from refusal_index.stats.comparison.ranking import (
    Adjustment,
    BoundaryPair,
    PairwiseDifference,
    RankedRun,
    Ranking,
    rank_runs,
)
from refusal_index.stats.comparison.sparse import EqualIndexTest, equal_index_test
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable
from refusal_index.stats.copulas.correlation import copula_spearman, kendall_tau
from refusal_index.stats.copulas.families import COPULA_NAMES, CopulaName, copula_upper_orthant
from refusal_index.stats.copulas.fit import CopulaComparison, CopulaFit, copula_win_rates, fit_copula, fit_copulas
from refusal_index.stats.copulas.shared import CopulaTestResult, copula_test, copula_tests
from refusal_index.stats.curves.abstention import abstention_metrics
from refusal_index.stats.curves.closed_forms import (
    accuracy_refusal_area,
    latent_aurc,
    latent_auroc,
    latent_excess_aurc,
    rho_from_refusal_index,
)
from refusal_index.stats.curves.operating_point import (
    OperatingPoint,
    best_operating_point,
    best_refusal_rate,
    utility_at,
)
from refusal_index.stats.curves.penalty_response import PenaltyPoint, PenaltyResponse, response_to_penalty
from refusal_index.stats.curves.plane import (
    AccuracyRefusalCurve,
    ConfidenceBand,
    accuracy_refusal_curve,
    correct_rate_at,
    iso_refusal_index,
    iso_score,
)
from refusal_index.stats.curves.utility import omniscience_index, penalty_from_confidence, utility
from refusal_index.stats.design import SamplingDesign, clustered_covariance
from refusal_index.stats.draws.difference import CorrectedDifference, compare_corrected, rank_corrected
from refusal_index.stats.draws.frequencies import MidRankSpearman, mid_rank_spearman
from refusal_index.stats.draws.noise import (
    CorrectedRefusalIndexResult,
    attenuated_refusal_index,
    corrected_refusal_index,
    deterministic_refusal_index,
    joint_corrected_refusal_index,
)
from refusal_index.stats.draws.patterns import DrawPatterns
from refusal_index.stats.estimate import ConfidenceInterval, Estimate, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.index import RefusalIndexResult, refusal_index, refusal_index_many
from refusal_index.stats.influence import influence_function
from refusal_index.stats.intervals import IntervalMethod
from refusal_index.stats.matrices import checked_matrices
from refusal_index.stats.planning.power import (
    PowerPlan,
    influence_correlation,
    power_to_tell_apart,
    questions_over_interval,
    questions_to_tell_apart,
)
from refusal_index.stats.planning.repeats import (
    RepeatPlan,
    repeats_half_width,
    split_budget,
)
from refusal_index.stats.planning.sample_size import (
    SamplePlan,
    expected_half_width,
    questions_for_cv,
    questions_for_half_width,
)
from refusal_index.stats.planning.scenario import PlanningScenario, asymptotic_deviation
from refusal_index.stats.sampled_table import SampledTable
from refusal_index.stats.sensitivity.grader_labels import GraderLabels
from refusal_index.stats.sensitivity.label_plan import LabelPlan, labels_for_half_width
from refusal_index.stats.sensitivity.misgrading import (
    GraderRates,
    MisgradingResult,
    correct_guessing,
    correct_misgrading,
)
from refusal_index.stats.sensitivity.missing import (
    MissingBounds,
    OutcomeCounts,
    ScoredByRule,
    missing_bounds,
    scoring_rules,
)
from refusal_index.stats.sensitivity.prediction_powered import PredictionPowered, prediction_powered
from refusal_index.stats.sensitivity.scoring_range import ScoringRange, scoring_ranges
from refusal_index.stats.sensitivity.topics import WithinTopicResult, within_topic_refusal_index
from refusal_index.stats.sensitivity.unknown_misgrading import MisgradingRange, misgrading_from_labels, misgrading_range
from refusal_index.stats.sequential.designs import AtLook, GroupSequential
from refusal_index.stats.stability.agreement import KendallWResult, WinnerEntropyResult, kendall_w, winner_entropy
from refusal_index.stats.stability.isotonic import IsotonicResiduals, isotonic_residuals
from refusal_index.stats.stability.random_agreement import (
    RandomDistribution,
    expected_kendall_w,
    expected_winner_entropy,
)
from refusal_index.stats.stability.ranking_stability import RankingStability, ranking_stability
from refusal_index.stats.stability.variability import VariabilityResult, coefficient_of_variation, normalized_difference

__all__ = [
    "CELL_NAMES",
    "COPULA_NAMES",
    "METRIC_NAMES",
    "TRUTHFULNESS_WEIGHTS",
    "AccuracyRefusalCurve",
    "Adjustment",
    "AtLook",
    "AurcResult",
    "AurocResult",
    "BetweenPrompts",
    "BoundaryPair",
    "BrierResult",
    "CalibrationErrorResult",
    "Comparison",
    "ConfidenceBand",
    "ConfidenceInterval",
    "ContingencyTable",
    "CopulaComparison",
    "CopulaFit",
    "CopulaName",
    "CopulaTestResult",
    "CorrectedDifference",
    "CorrectedRefusalIndexResult",
    "CutTest",
    "DrawPatterns",
    "EqualIndexTest",
    "Estimate",
    "GraderLabels",
    "GraderRates",
    "GroupSequential",
    "HomogeneityTest",
    "IntervalMethod",
    "IsotonicResiduals",
    "JointDifference",
    "JointRefusalIndexResult",
    "KendallWResult",
    "LabelPlan",
    "MetricDifference",
    "MidRankSpearman",
    "MisgradingRange",
    "MisgradingResult",
    "MissingBounds",
    "OperatingPoint",
    "OutcomeCounts",
    "PairwiseDifference",
    "PenaltyPoint",
    "PenaltyResponse",
    "PlanningScenario",
    "PowerPlan",
    "PredictionPowered",
    "RandomDistribution",
    "RankedRun",
    "Ranking",
    "RankingStability",
    "RefusalComparison",
    "RefusalIndexResult",
    "RejectionRatioResult",
    "ReliabilityBin",
    "RepeatPlan",
    "RiskThreshold",
    "SamplePlan",
    "SampledTable",
    "SamplingDesign",
    "ScoreDifference",
    "ScoredByRule",
    "ScoringRange",
    "SelectiveReport",
    "SmoothCalibrationError",
    "Status",
    "TargetValue",
    "UtilityThreshold",
    "VariabilityResult",
    "WinnerEntropyResult",
    "WithinTopicResult",
    "abstention_metrics",
    "accuracy_refusal_area",
    "accuracy_refusal_curve",
    "asymptotic_deviation",
    "attenuated_refusal_index",
    "aurc",
    "auroc",
    "best_operating_point",
    "best_refusal_rate",
    "brier_score",
    "checked_matrices",
    "clustered_covariance",
    "coefficient_of_variation",
    "compact_letters",
    "compare_corrected",
    "compare_joint",
    "compare_metrics",
    "compare_with_refusals",
    "copula_spearman",
    "copula_test",
    "copula_tests",
    "copula_upper_orthant",
    "copula_win_rates",
    "correct_given_attempted",
    "correct_guessing",
    "correct_misgrading",
    "correct_rate_at",
    "corrected_refusal_index",
    "density",
    "deterministic_refusal_index",
    "empirical_accuracy_refusal_curve",
    "equal_index_test",
    "expected_calibration_error",
    "expected_half_width",
    "expected_kendall_w",
    "expected_winner_entropy",
    "f_score",
    "fit_copula",
    "fit_copulas",
    "holm",
    "influence_correlation",
    "influence_function",
    "iso_refusal_index",
    "iso_score",
    "isotonic_residuals",
    "joint_corrected_refusal_index",
    "joint_refusal_index",
    "kendall_tau",
    "kendall_w",
    "labels_for_half_width",
    "latent_aurc",
    "latent_auroc",
    "latent_excess_aurc",
    "metric_influence",
    "metrics",
    "mid_rank_spearman",
    "misgrading_from_labels",
    "misgrading_range",
    "missing_bounds",
    "normalized_difference",
    "omniscience_index",
    "penalty_from_confidence",
    "power_to_tell_apart",
    "prediction_powered",
    "prediction_rejection_ratio",
    "questions_for_cv",
    "questions_for_half_width",
    "questions_over_interval",
    "questions_to_tell_apart",
    "rank_corrected",
    "rank_joint",
    "rank_runs",
    "ranking_stability",
    "refusal_index",
    "refusal_index_many",
    "reliability_table",
    "repeats_half_width",
    "response_to_penalty",
    "rho_from_refusal_index",
    "risk_controlling_threshold",
    "risk_coverage_curve",
    "rms_calibration_error",
    "scoring_ranges",
    "scoring_rules",
    "selective_report",
    "smooth_calibration_error",
    "split_budget",
    "tetrachoric",
    "upper_orthant",
    "utility",
    "utility_at",
    "utility_threshold",
    "value_at_target",
    "weighted_score",
    "winner_entropy",
    "within_topic_refusal_index",
]
