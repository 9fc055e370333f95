"""Guards of a gate: one for every limited metric, and how many questions they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data import rates
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.findings.comparison import (
    Difference,
    VariantComparison,
    both_numbers,
)
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS, corrected_indices
from refusal_index.findings.gate_policy import INDICES, Policy
from refusal_index.findings.matching import Match
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import VariantSummary
from refusal_index.stats.baseline import rate_or_score
from refusal_index.stats.contingency import AnyTable, ContingencyTable, effective_number
from refusal_index.stats.corrected import influence_range
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.non_inferiority import (
    Guard,
    constant_interval,
    pvalue_of_none,
    questions_to_decide,
)
from refusal_index.stats.planning import PlanningScenario

Interval = Callable[[float], stats.ConfidenceInterval]


CONSTANT = "constant_difference"
"""Reason of a difference that is the same on every question, as of a model that repeats its baseline's answers."""


@dataclass(frozen=True)
class NamedGuard:
    """A guard, and its metric."""

    guard: Guard
    against_baseline: bool
    # first, second: the candidate's number and the baseline's; the last is None for a fixed bound
    candidate: float | None
    baseline: float | None
    reason: str | None  # why the number is undefined or at its boundary


def margin_guards(compared: VariantComparison, margins: Mapping[str, float]) -> Iterator[NamedGuard]:
    """Yield a guard for each margin in the comparison of a candidate with its baseline."""
    matrix = compared.match.matrix
    refused = matrix.refused[0][matrix.scored[0]]
    for name, margin in margins.items():
        higher = not METRICS[name].lower_is_better
        limit = _limit(margin, higher)
        is_split = name in rates.BY_ANSWERABLE
        difference = (compared.by_answerable if is_split else compared.differences()).get(name)
        if difference is None:  # the corrected index of runs that were sampled once
            yield _undefined(name, margin, NO_REPEATED_QUESTIONS)
            continue
        match = compared.split if is_split else compared.match
        estimate = difference.estimate
        pvalue, reason = _missing_index(name, estimate, difference.reason, refused, matrix.design)
        is_constant = difference.reason == CONSTANT
        guard = Guard(name, estimate, limit, higher, _interval(name, difference, match), pvalue, is_constant)
        yield NamedGuard(guard, True, *both_numbers(difference), reason)


def questions_for_margins(variant: VariantSummary, analysis: Analysis, policy: Policy) -> int | None:
    """Return the number of questions that `questions_to_decide` recommends for a gate with this baseline.

    Answers of a candidate are taken to differ from the baseline's as those of other questions would: where they repeat,
    fewer are enough. None where a number has no interval, or no margin.

    - `variant`: of the baseline.
    - `analysis`: how its intervals were computed.
    """
    estimates = {name: variant.metric(name) for name in policy.margins}
    ends = {name: (estimate.low, estimate.high) for name, estimate in estimates.items()}
    return _recommended(ends, variant.table.n, analysis, policy)


def questions_for_scenario(scenario: PlanningScenario, policy: Policy) -> int | None:
    """Return what `questions_for_margins` does, for a baseline with expected rates."""
    expected = (round(EXPECTED_QUESTIONS * probability) for probability in scenario.cells)
    table = ContingencyTable(*expected)
    ends = {estimate.name: (estimate.low, estimate.high) for estimate in stats.metrics(table)}
    return _recommended(ends, table.n, DEFAULT_ANALYSIS, policy)


EXPECTED_QUESTIONS = 10**6
"""Number of questions of a table with expected rates."""


def _recommended(
    ends: Mapping[str, tuple[float | None, float | None]], n: int, analysis: Analysis, policy: Policy
) -> int | None:
    """Return the recommended number of questions, given the intervals of a baseline's metrics from n questions."""
    deviations = []
    quantile = normal_quantile(analysis.confidence_level)
    for name, margin in policy.margins.items():
        low, high = ends.get(name, (None, None))
        if low is None or high is None or not margin:
            return None
        error = (high - low) / (2 * quantile)
        deviations.append(math.sqrt(2 * n) * error / margin)
    return math.ceil(questions_to_decide(deviations, policy.alpha))


def bound_guards(
    run: RunResults, rows: pl.DataFrame, bounds: Mapping[bool, Mapping[str, float]], analysis: Analysis
) -> Iterator[NamedGuard]:
    """Yield a guard for each fixed bound on one variant of the candidate.

    - `bounds`: by whether the number must be at least the bound.
    """
    single = rates.first_draws(rows)
    table = rates.sampled_table(single) or rates.contingency_table(single)
    scored = single.drop_nulls(["refused", "wrong"])
    refused = scored["refused"].to_numpy()
    design = rates.design_of(scored)
    for higher, bound_of in bounds.items():
        for name, bound in bound_of.items():
            estimate, why, interval = _own_number(name, run, rows, table, analysis)
            pvalue, reason = _missing_index(name, estimate, why, refused, design)
            yield NamedGuard(Guard(name, estimate, bound, higher, interval, pvalue), False, estimate, None, reason)


def undefined_guards(margins: Mapping[str, float]) -> Iterator[NamedGuard]:
    """Yield a guard without a number for each margin; runs that share too few questions have none."""
    for name, margin in margins.items():
        # reason of an undefined guard: the runs share too few questions that neither of them refused again
        yield _undefined(name, margin, "too_few_not_refused_again")


def _undefined(name: str, margin: float, reason: str) -> NamedGuard:
    """Return a guard without a number for a margin."""
    higher = not METRICS[name].lower_is_better
    return NamedGuard(Guard(name, None, _limit(margin, higher), higher), True, None, None, reason)


def _limit(margin: float, higher_is_better: bool) -> float:
    """Return the smallest or largest acceptable difference."""
    return -margin if higher_is_better else margin


def _interval(name: str, difference: Difference, match: Match) -> Interval:
    """Return the interval of a difference; if it is constant, the interval for zero observed changes."""
    if difference.reason != CONSTANT or difference.estimate is None:
        return difference.confidence_interval
    if isinstance(difference, stats.CorrectedDifference):
        widest = influence_range(difference.first)
        n = difference.n_shared
    else:
        influences = INDEX if name == CORRECTED else rates.BY_ANSWERABLE.get(name, name)
        influence = stats.metric_influence(*(array[:1] for array in match.matrix.arrays), metric=influences)
        widest = float(np.ptp(influence))
        n = len(match.matrix.question_ids)
    units = _independent(match.matrix.design, n)
    estimate = difference.estimate
    return lambda level: constant_interval(estimate, widest, units, level)


def _independent(design: Mapping[str, Any], n: int) -> int:
    """Return the largest effective sample size of n questions under this design."""
    cluster = design.get("cluster")
    weight = design.get("weight")
    clusters = n if cluster is None else len(set(cluster.tolist()))
    return min(n, clusters, n if weight is None else int(effective_number(weight)))


def _missing_index(
    name: str, estimate: float | None, reason: str | None, refused: rates.BoolMatrix, design: Mapping[str, Any]
) -> tuple[float | None, str | None]:
    """Return the p-value of an acceptable model refusing nothing, or everything, and the reason for an undefined index.

    If the index is defined, or undefined for another reason, there is no p-value.
    """
    is_sampled = reason != NO_REPEATED_QUESTIONS
    if name in INDICES and estimate is None and is_sampled and refused.size and refused.any() == refused.all():
        # reasons for an undefined index that count against the candidate
        code = "candidate_refused_everything" if refused.all() else "candidate_refused_nothing"
        return pvalue_of_none(_independent(design, refused.size)), code
    return None, reason


def _own_number(
    name: str, run: RunResults, rows: pl.DataFrame, table: AnyTable, analysis: Analysis
) -> tuple[float | None, str | None, Interval]:
    """Return the candidate's metric: estimate, status and interval."""
    if name in INDICES:
        same = [run.is_deterministic]
        index = stats.refusal_index(table) if name == INDEX else corrected_indices([rows], same)[0]
        return index.estimate, index.reason, index_interval(index)

    def at_level(level: float) -> stats.Estimate:
        if name in rates.BY_ANSWERABLE:
            return rates.answerable_metric(name, rates.first_draws(rows), analysis, level)
        return rate_or_score(name, table, analysis.payoffs, level)

    rate = at_level(0.9)
    return rate.estimate, rate.reason, lambda level: at_level(level).interval


def index_interval(index: stats.RefusalIndexResult | stats.CorrectedRefusalIndexResult) -> Interval:
    """Return the interval of an index with the given error at both ends.

    At the boundary one end may be 1 or -1, and the other then has all of the error.
    """
    if index.status == "ok":
        return index.confidence_interval
    return lambda level: index.confidence_interval((1 + level) / 2)
