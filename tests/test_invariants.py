"""Property: every estimate lies inside its interval, or has no interval and a reason, wherever it is shown."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index import stats
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.outcome_table import ConfidenceError, Identification, outcome_table
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.gate import decide
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults, runs_of_table
from refusal_index.findings.sensitivity import DecisionOptions, decide_otherwise
from refusal_index.findings.summary import summarise
from refusal_index.plugins.confidence.summary import NAME, summarise_outcomes
from refusal_index.plugins.confidence.threshold import ThresholdOptions, find_threshold
from refusal_index.plugins.studies import rankings
from refusal_index.plugins.studies.curves import abstention_metrics
from refusal_index.plugins.studies.study import STUDY_NAMES, NotPossibleError, StudyOptions, study_spec
from refusal_index.render.format import percent
from refusal_index.render.summary import summary_document
from tests.studies.made import made_run
from tests.studies.scores_made import in_folder, record, with_scores
from tests.tiers import reduced_examples

SLACK = 1e-9
RATES = st.sampled_from((0.02, 0.2, 0.5, 0.9))
SEEDS = st.integers(0, 2**32 - 1)


class Found(NamedTuple):
    """A number with its interval, as it appears somewhere; NaN also means missing."""

    estimate: float | None
    low: float | None
    high: float | None
    reason: str | None = None


def check(place: object, found: Found) -> None:
    """Fail unless low <= estimate <= high, or there is no interval, or no number, and a reason."""
    estimate, low, high = (None if one is None or math.isnan(one) else one for one in found[:3])
    told = (place, found)
    assert (low is None) == (high is None), told
    assert (estimate is not None and low is not None) or found.reason, told
    if low is not None and high is not None:
        assert low - SLACK <= (low if estimate is None else estimate) <= high + SLACK, told


# --- Written documents


def check_document(document: Any, place: str = "") -> None:
    """Check everything in a document that has an estimate with both ends, and name its place if it fails."""
    if isinstance(document, Mapping):
        if {"estimate", "low", "high"} <= set(document):
            check(place, Found(*(document[key] for key in ("estimate", "low", "high")), document.get("reason")))
        for key, item in document.items():
            check_document(item, f"{place}/{key}")
    elif isinstance(document, list | tuple):
        for number, item in enumerate(document):
            check_document(item, f"{place}/{number}")


@st.composite
def outcomes(draw: st.DrawFn, model: str) -> pl.DataFrame:
    """Return the outcome table of a small run: any cells, one to three draws, one or two prompts."""
    n, draws = draw(st.integers(4, 30)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(SEEDS))
    refusal, error, noise = (draw(RATES) for _ in range(3))
    latent = rng.random((2, n)) * (1 - noise)
    rows = []
    for variant in ("low", "high")[: draw(st.integers(1, 2))]:
        for at in range(draws):
            chance = latent + noise * rng.random((2, n))
            for question in range(n):
                refused, wrong = bool(chance[0, question] < refusal), bool(chance[1, question] < error)
                grade = Grade.INCORRECT if wrong else Grade.CORRECT
                outcome = Outcome(refused, wrong, first_grade=Grade.REFUSED if refused else grade, forced_grade=grade)
                rows.append((Identification(model, "d", variant, at), Question(f"q{question}", "?", "!"), outcome))
    return outcome_table(rows)


def run_of(table: pl.DataFrame) -> RunResults:
    (run,) = runs_of_table(Path("table.parquet"), table, {})
    return run


@reduced_examples(0.6)
@given(outcomes("a"), st.booleans())
def test_property_every_number_of_a_run_lies_in_its_interval(table, is_deterministic):
    scored = with_scores(run_of(table))
    sections = {NAME: summarise_outcomes(table.lazy(), scored.confidence, DEFAULT_ANALYSIS)}
    summary = replace(summarise(table, is_deterministic=is_deterministic), sections=sections)
    check_document(summary_document(summary))
    for found in decide_otherwise(table, DecisionOptions()):
        for one in found.as_scored.values():
            check(one.name, Found(one.estimate, one.low, one.high, one.reason))


@reduced_examples(0.6)
@given(outcomes("a"), outcomes("b"), st.sampled_from(("refusal_index", "corrected_refusal_index")))
def test_property_every_number_of_a_comparison_and_a_ranking_lies_in_its_interval(first, second, metric):
    runs = [run_of(first), run_of(second)]
    check_document(compare_pair(runs, Analysis(variant="low")).to_document())
    if metric == "refusal_index" or all(table["draw"].max() for table in (first, second)):
        check_document(rank(runs, Analysis(variant="low", metric=metric)).to_document())


@reduced_examples(0.4)
@given(outcomes("a"), outcomes("b"), st.sampled_from(("refusal_index", "corrected_refusal_index")))
def test_property_every_number_of_a_gate_lies_between_its_limits(first, second, metric):
    policy = Policy(metric=metric, at_least={metric: 0.0}, variant="low", max_missing=0.99)
    for guard in decide(run_of(first), run_of(second), policy).to_document()["guards"]:
        ends = sorted(end for end in (guard["worst"], guard["best"]) if end is not None)
        if len(ends) == 2:
            check(guard["metric"], Found(guard["estimate"], *ends))
        else:
            assert guard["verdict"] != "pass", guard


@given(outcomes("a"), st.sampled_from(({"penalty": 1.0}, {"max_error": 0.3})))
def test_property_every_number_of_a_threshold_lies_in_its_interval(table, options):
    try:
        run = replace(with_scores(run_of(table)), source=Path(__file__).parent)  # a folder's scores are its own
        found = find_threshold(run, ThresholdOptions(**options))
    except ConfidenceError:
        return  # too few questions of either kind
    check_document(found.to_document())


# --- Results of public functions


def results(found: Any) -> Iterator[tuple[Any, Found]]:
    """Find every number with an interval in what a function returns, itself included."""
    if hasattr(found, "confidence_interval"):
        low, high = found.confidence_interval()
        yield found, Found(getattr(found, "estimate", None), low, high, _reason(found) or _is_range(found))
    elif hasattr(found, "low") and hasattr(found, "high"):
        yield found, Found(getattr(found, "estimate", None), found.low, found.high, _reason(found) or _is_range(found))
    parts: Any = found if isinstance(found, tuple | list) else ()
    if is_dataclass(found):
        parts = (getattr(found, field.name) for field in fields(found) if not field.name.startswith("_"))
    for part in parts:
        if is_dataclass(part) or isinstance(part, tuple):
            yield from results(part)


def _reason(found: Any) -> str | None:
    return getattr(found, "reason", None)


def _is_range(found: Any) -> str | None:
    """Describe a result that has two ends but no single number, such as bounds and bins."""
    return None if hasattr(found, "estimate") else "a range"


def calls(rng: np.random.Generator, n: int, rate: float, noise: float) -> Iterator[tuple[str, Any]]:
    """Call the public estimators over the same questions; yields the name of each with its result."""
    latent = rng.random((2, n)) * (1 - noise)
    refused, wrong = (latent[part] + noise * rng.random((3, n)) < level for part, level in ((0, rate), (1, 0.6)))
    cluster, weight = rng.integers(0, max(2, n // 3), n), rng.integers(1, 4, n)
    table = stats.ContingencyTable.from_arrays(refused[0], wrong[0])
    for name in ("refusal_index", "metrics", "omniscience_index"):
        yield name, getattr(stats, name)(table)
    yield "abstention_metrics", abstention_metrics(table)
    for design in ({"cluster": cluster}, {"weight": weight}):
        yield "refusal_index", stats.refusal_index(refused=refused[0], wrong=wrong[0], **design)
    yield "utility", stats.utility(table, 0.5)
    yield "within_topic_refusal_index", stats.within_topic_refusal_index(refused[0], wrong[0], list(cluster % 3))
    yield "value_at_target", stats.value_at_target(refused[0], wrong[0], 0.5)
    yield from of_draws(refused, wrong, cluster)
    yield from of_models(refused, wrong, cluster)
    yield from of_grades(rng, table, refused[0], wrong[0])
    yield from of_scores(rng.random(n).round(1), refused[0], wrong[0])


def of_draws(refused: np.ndarray, wrong: np.ndarray, cluster: np.ndarray) -> Iterator[tuple[str, Any]]:
    once = stats.corrected_refusal_index(refused[:2], wrong[:2], single=(refused[0], wrong[0]))
    other = stats.corrected_refusal_index(refused[1:], wrong[1:])
    clustered = stats.corrected_refusal_index(refused[:2], wrong[:2], cluster=cluster)
    yield "corrected_refusal_index", (once, other, clustered)
    yield "deterministic_refusal_index", stats.deterministic_refusal_index(refused[0], wrong[0])
    yield "joint_corrected_refusal_index", stats.joint_corrected_refusal_index([once, other])
    yield "compare_corrected", stats.compare_corrected(once, other)
    yield "rank_corrected", stats.rank_corrected([once, other], n_resamples=100, rng=0)
    yield "mid_rank_spearman", stats.mid_rank_spearman(refused, wrong)


def of_models(refused: np.ndarray, wrong: np.ndarray, cluster: np.ndarray) -> Iterator[tuple[str, Any]]:
    both = np.stack([refused, wrong]), np.stack([wrong, wrong])
    yield "compare_metrics", stats.compare_metrics(refused[:2], wrong[:2])
    yield "compare_metrics", stats.compare_metrics(refused[:2], wrong[:2], cluster=cluster)
    yield "rank_runs", stats.rank_runs(refused, wrong, n_resamples=100, rng=0)
    yield "joint_refusal_index", stats.joint_refusal_index(refused, wrong)
    yield "compare_joint", stats.compare_joint(*both)
    for family in ("gaussian", *stats.OTHER_COPULAS):
        yield "compare_under_copula", stats.compare_under_copula(*both, family=family, cluster=cluster)
    yield "rank_joint", stats.rank_joint(*both, n_resamples=100, rng=0)


def of_grades(
    rng: np.random.Generator, table: stats.ContingencyTable, refused: np.ndarray, wrong: np.ndarray
) -> Iterator[tuple[str, Any]]:
    labelled, truly = rng.random(len(wrong)) < 0.5, wrong ^ (rng.random(len(wrong)) < 0.1)
    both = refused[np.newaxis], wrong[np.newaxis]
    yield (
        "prediction_powered",
        stats.prediction_powered(*both, labelled=labelled[np.newaxis], truly_wrong=truly[np.newaxis]),
    )
    yield "missing_bounds", stats.missing_bounds(table, 1, 1, 1)
    some = table.answered_wrong // 2, table.answered_right // 2
    yield "reading_bounds", stats.reading_bounds(table, some[0], 0, some[1], 0)
    counts = stats.OutcomeCounts(*table.counts, 1, 1, 1)
    yield "scoring_ranges", stats.scoring_ranges(counts)
    yield "scoring_rules", tuple(stats.scoring_rules(counts).values())
    yield "misgrading_range", stats.misgrading_range(table, (0, 0.03), (0, 0.03))


def of_scores(score: np.ndarray, refused: np.ndarray, wrong: np.ndarray) -> Iterator[tuple[str, Any]]:
    for name in ("auroc", "brier_score", "expected_calibration_error", "rms_calibration_error", "reliability_table"):
        yield name, getattr(stats, name)(score, ~wrong)
    yield "selective_report", stats.selective_report(score, ~wrong, 0.5)
    yield "compare_with_refusals", stats.compare_with_refusals(score, refused, wrong)


@reduced_examples(0.6)
@given(SEEDS, st.integers(3, 40), RATES, st.sampled_from((0, 0.5, 1)))
def test_property_every_estimate_lies_in_its_interval(seed, n, rate, noise):
    for name, returned in calls(np.random.default_rng(seed), n, rate, noise):
        for result, found in results(returned):
            check((name, result), found)


@given(st.tuples(*[st.integers(0, 30)] * 4).filter(any), st.sampled_from((0.5, 0.8, 0.95, 0.999)))
def test_property_every_method_contains_the_estimate_at_every_level(counts, level):
    result = stats.refusal_index(stats.ContingencyTable(*counts))
    for method in ("profile", "jeffreys", "delta"):
        ends = result.confidence_interval(level, method=method)
        check((method, result), Found(result.estimate, *ends, result.reason))


BY_RESAMPLING = {"correct_guessing", "correct_misgrading", "misgrading_from_labels"}
"""Percentile intervals of resamples: they have tests of their own."""

OF_STUDIES = {"abstention_metrics"}


def test_properties_cover_every_public_estimator_with_an_interval():
    known = {name for name, _ in calls(np.random.default_rng(0), 30, 0.5, 0.5)}
    functions = [one for name in stats.__all__ if inspect.isfunction(one := getattr(stats, name))]
    with_interval = {function.__name__ for function in functions if _has_interval(_returned(function))}
    assert with_interval - BY_RESAMPLING == known - OF_STUDIES


def _returned(function: Any) -> Any:
    try:
        return typing.get_type_hints(function)["return"]
    except NameError:  # one that only type checkers know
        return None


def _has_interval(kind: Any) -> bool:
    if parts := typing.get_args(kind):
        return any(map(_has_interval, parts))
    if not is_dataclass(kind):
        return False
    hints = typing.get_type_hints(kind)
    own = hasattr(kind, "confidence_interval") or {"low", "high"} <= set(hints)
    return own or any(_has_interval(hint) for name, hint in hints.items() if not name.startswith("_"))


# --- Frames of the studies


UNNAMED = ("estimate", "y", "agreement", "refusal_index", "value", "correct_rate")
"""Columns that `low` and `high` may belong to; the first one present is taken."""

CALLED = {"bootstrap": "estimate", "delta": "delta_signed", "bin": "x", "refusal": "refusal_rate"}
"""Columns whose name differs from that of their ends."""


def frame_results(frame: pl.DataFrame) -> Iterator[tuple[str, Found]]:
    """Find the column of the number for each pair of ends in a study's frame, row by row."""
    for low in (name for name in frame.columns if name == "low" or name.endswith("_low")):
        stem = low.removesuffix("low").removesuffix("_")
        named = (CALLED.get(stem, stem), f"{stem}_rate") if stem else UNNAMED
        columns = [next(name for name in named if name in frame.columns), low, low.removesuffix("low") + "high"]
        for row in frame.select(columns).iter_rows():
            yield columns[0], Found(*row, "none needed in a frame")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[RunResults]:
    """Three models with three draws and scores, at different rates."""
    folder, methods = tmp_path_factory.mktemp("runs"), ("p-answering", "likelihood")
    made = (
        made_run(f"m{number}", n=60, seed=number, draws=3, rho=0.2 + 0.3 * number, right=0.4) for number in range(3)
    )
    return [
        in_folder(with_scores(run, methods), folder / run.label, [record(name) for name in methods]) for run in made
    ]


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_property_every_number_of_a_study_lies_in_its_interval(runs, name, monkeypatch):
    # Neither estimates nor the order of the ends depend on how many there are.
    monkeypatch.setattr(rankings, "N_RESAMPLES", 20)
    try:
        frame = study_spec(name).make(runs, StudyOptions()).frame
    except NotPossibleError:
        pytest.skip("these runs do not allow it")
    if "source" in frame.columns:  # one interval that the paper printed misses its own estimate
        frame = frame.filter(pl.col("source") != "paper")
    for column, found in frame_results(frame):
        check(column, found)


# --- Rendering


@given(st.floats(-1e-3, 1), st.integers(0, 2))
@example(-0.001, 1)
def test_property_share_that_rounds_to_zero_has_no_sign(share, digits):
    rounds_to_nothing = float(f"{100 * share:.{digits}f}") == 0
    assert percent(share, digits).startswith("-") == (share < 0 and not rounds_to_nothing)
