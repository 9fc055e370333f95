"""The public names, their docstrings, what importing them costs, and the same numbers on every processor."""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import pytest
from tests.runs.test_package import PUBLIC, USED_ELSEWHERE
from tests.tiers import one_fast

import refusal_index
from benchmarks import estimator
from refusal_index import ContingencyTable, stats
from refusal_index import refusal_index as index_function

# --- Public names and import cost

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
    OTHER_COPULAS ComparedCopula CopulaDifference compare_under_copula
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
    questions_to_tell_apart rank_joint rank_corrected rank_runs reading_bounds
    refusal_index refusal_index_many reliability_table repeats_half_width rho_from_refusal_index
    risk_controlling_threshold risk_coverage_curve rms_calibration_error scoring_ranges scoring_rules
    selective_report smooth_calibration_error split_budget tetrachoric upper_orthant utility
    utility_threshold value_at_target weighted_score within_topic_refusal_index
"""
STATS = set(STATS_NAMES.split())


def test_public_names_are_as_listed_and_exist() -> None:
    assert refusal_index.__all__ == PUBLIC
    assert set(stats.__all__) == STATS
    for module in (refusal_index, stats):
        assert all(hasattr(module, name) for name in set(module.__all__) - USED_ELSEWHERE)


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


def test_public_names_do_not_shadow_stats_modules() -> None:
    modules = {module.name for module in pkgutil.iter_modules(stats.__path__)}
    assert modules & set(stats.__all__) == set()


# --- Docstrings of public functions

FUNCTIONS = {name: value for name, value in vars(stats).items() if name in stats.__all__ and inspect.isfunction(value)}

CHECKS_NOTHING = {
    "scoring_rules": "its counts are checked when they are made",
}
"""Functions without a Raises section, and why."""

OWN_DEFINITION = {
    "asymptotic_deviation": "the delta method written out for each metric",
    "checked_matrices": "makes no number",
    "correct_guessing": "the arithmetic of lucky guesses",
    "density": "the textbook formula",
    "expected_half_width": "the normal approximation, written out in its module",
    "influence_correlation": "a plain correlation of two influence functions",
    "joint_corrected_refusal_index": "sums of both parts of a quotient, written out in its module",
    "latent_auroc": "a closed form, derived in its module",
    "power_to_tell_apart": "the normal approximation, written out in its module",
    "questions_for_cv": "the normal approximation, written out in its module",
    "questions_for_half_width": "the normal approximation, written out in its module",
    "questions_to_tell_apart": "the normal approximation, written out in its module",
    "scoring_ranges": "smallest and largest over the package's own scoring rules",
    "scoring_rules": "the package's own scoring rules",
}
"""Functions without a References section, and why."""

TABLE = ContingencyTable(7, 3, 2, 5)
REFUSED = {
    "asymptotic_deviation": lambda: stats.asymptotic_deviation(0.5, 0.5, 2),
    "correct_given_attempted": lambda: stats.correct_given_attempted(0.6, 0.6),
    "correct_guessing": lambda: stats.correct_guessing(TABLE, 1),
    "density": lambda: stats.density(0, 0, 2),
    "f_score": lambda: stats.f_score(0.6, 0.6),
    "influence_function": lambda: stats.influence_function([True], [True, False]),
    "iso_refusal_index": lambda: stats.iso_refusal_index(0.5, 2, 0.5),
    "metrics": lambda: stats.metrics(TABLE, weighted_score_p=np.inf),
    "omniscience_index": lambda: stats.omniscience_index(TABLE, confidence_level=95),
    "rho_from_refusal_index": lambda: stats.rho_from_refusal_index(2),
    "scoring_ranges": lambda: stats.scoring_ranges(stats.OutcomeCounts(7, 3, 2, 5), weighted_score_p=-1),
    "holm": lambda: stats.holm([0.1, 1.2]),
    "tetrachoric": lambda: stats.tetrachoric(-5, 1, 1, 1),
    "upper_orthant": lambda: stats.upper_orthant(0, 0, 2),
    "weighted_score": lambda: stats.weighted_score(0.5, 0.2, -1),
}
"""One call each that a checker below the function refuses."""


def sections(name: str) -> set[str]:
    return set(re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(FUNCTIONS[name]) or "", re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_document_returns_raises_and_examples(name: str) -> None:
    expected = {"Returns", "Examples"} if name in CHECKS_NOTHING else {"Returns", "Raises", "Examples"}
    assert expected - sections(name) == set()
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    # Parameters shared by several functions are described once, in the place that the sentence names.
    assert "Parameters" in sections(name) or re.search(r"^Parameters (and .+ )?are those of `\w+`", text, re.MULTILINE)


def test_only_unchecked_functions_lack_a_raises_section() -> None:
    assert {name for name in FUNCTIONS if "Raises" not in sections(name)} == set(CHECKS_NOTHING)


def test_functions_cite_a_source_unless_defined_here() -> None:
    assert {name for name in FUNCTIONS if "References" not in sections(name)} == set(OWN_DEFINITION)


def test_refusal_index_docstring_gives_formula_and_paper() -> None:
    text = inspect.getdoc(index_function) or ""
    for said in (
        "RI = 6 / pi * asin(rho / 2)",
        "tetrachoric",
        "maximum likelihood",
        "Two passes",
        "Pan, W.",
        "Pearson",
    ):
        assert said in text


@pytest.mark.parametrize("name", REFUSED)
def test_documented_exceptions_are_raised(name: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        REFUSED[name]()
    assert type(refused.value).__name__ in (inspect.getdoc(FUNCTIONS[name]) or "").partition("Raises")[2]


# --- Seeded numbers on other processors

PROGRAM = """
import json
import numpy as np
import threadpoolctl
from refusal_index import stats
from refusal_index.plugins.studies.stability import kendall_w_ceiling
from refusal_index.plugins.training.steps import metric_over_steps

rng = np.random.default_rng(11)
doubt, own = rng.standard_normal(400), rng.standard_normal((2, 6, 400))
refused, wrong = 0.7 * doubt + 0.7 * own[0] > 0.2, 0.8 * doubt + 0.6 * own[1] > 0
refused[5], wrong[5] = refused[0], wrong[0]  # a run that is there twice: its covariance with the first is singular

ranking = stats.rank_runs(refused, wrong, rng=1)
joint = stats.joint_refusal_index(refused, wrong)
scores = np.linspace(0.3, 0.6, 6) + 0.04 * rng.standard_normal((3, 6))
covariance = 0.002 * np.kron(np.eye(3), np.eye(6)) + 0.001 * np.kron(np.ones((3, 3)), np.eye(6))  # equal eigenvalues
ceiling = kendall_w_ceiling(scores, covariance, rng=1)
table = stats.refusal_index(refused=refused[1], wrong=wrong[1])
numbers = {
    "p-values by max-t": [pair.pvalue_max_t for pair in ranking.pairs],
    "their critical value": [ranking.critical_value],
    "p-value of a change point": [
        metric_over_steps(refused, wrong, metric=metric, rng=1).pvalue for metric in ("refusal_index", "refusal_rate")
    ],
    "ceiling of Kendall's W": [ceiling.estimate, ceiling.low, ceiling.high],
    "joint index": [joint.estimate, joint.standard_error, *joint.confidence_interval(), *joint.weights],
    "its test of homogeneity": [joint.homogeneity.statistic, joint.homogeneity.pvalue],
    "interval by bootstrap": table.confidence_interval(method="bootstrap", n_resamples=500, rng=1),
    "interval by Jeffreys' prior": table.confidence_interval(method="jeffreys", n_resamples=500, rng=1),
}
print(json.dumps([sorted({one["architecture"] for one in threadpoolctl.threadpool_info()}), numbers]))
"""


def seeded_numbers(processor: str) -> tuple[str, Mapping[str, list[float]]]:
    """Compute the numbers with the kernels of a processor; also return the kernels that were actually loaded."""
    environment = os.environ | {"OPENBLAS_CORETYPE": processor, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    if done.returncode == -signal.SIGILL:
        pytest.skip(f"this processor lacks the instructions of {processor}")
    done.check_returncode()
    loaded, numbers = json.loads(done.stdout)
    return ", ".join(loaded), numbers


@pytest.fixture(scope="module")
def haswell() -> tuple[str, Mapping[str, list[float]]]:
    return seeded_numbers("Haswell")


@one_fast("processor", ["Prescott", "SkylakeX"])
def test_seeded_numbers_against_those_of_another_processor(haswell, processor: str) -> None:
    loaded, numbers = seeded_numbers(processor)
    if loaded == haswell[0]:
        pytest.skip(f"this processor runs {loaded} for both")
    assert numbers.keys() == haswell[1].keys()
    for name, values in numbers.items():
        assert values == pytest.approx(haswell[1][name], rel=1e-9), (name, loaded)
