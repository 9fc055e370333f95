"""Comparisons as JSON: all that the terminal shows, unrounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from refusal_index.outcomes.comparison import CompareOptions, CorrectedPair, PairComparison, RunRanking
from refusal_index.outcomes.runs import ComparedRun, Match, differing_settings
from refusal_index.stats import JointDifference, MetricDifference, NoiseCorrectedDifference

JOINTLY = "jointly"
"""The place of a variant's name where there are several."""

Difference = MetricDifference | JointDifference | NoiseCorrectedDifference


def both_numbers(difference: Difference) -> tuple[float | None, float | None]:
    """Return the number of either run."""
    if isinstance(difference, MetricDifference):
        return difference.first, difference.second
    return difference.first.estimate, difference.second.estimate


def pair_document(
    runs: Sequence[ComparedRun], pair: PairComparison, corrected: Sequence[CorrectedPair], options: CompareOptions
) -> dict[str, Any]:
    """Describe two runs compared."""
    by_variant = {each.variant: _corrected_document(each, options.confidence_level) for each in corrected}
    return {
        "first": runs[0].label,
        "second": runs[1].label,
        "confidence_level": options.confidence_level,
        "joint": _difference_document(pair.joint, options.confidence_level) if pair.joint else None,
        "joint_over": pair.joint_over,
        "variants": [
            {
                "variant": variant.name,
                **_match_document(runs, variant.match),
                "metrics": {
                    difference.name: _difference_document(difference, options.confidence_level)
                    for difference in variant.comparison.differences
                },
                "corrected": by_variant.get(variant.name),
            }
            for variant in pair.variants
        ],
        "settings_that_differ": differing_settings(runs),
    }


def _difference_document(difference: MetricDifference | JointDifference, level: float) -> dict[str, Any]:
    return {**_compared_document(difference, level), "standard_error": difference.standard_error}


def _corrected_document(pair: CorrectedPair, level: float) -> dict[str, Any]:
    difference = pair.difference
    return {
        **_compared_document(difference, level),
        "questions_first": difference.first.patterns.n_questions,
        "questions_second": difference.second.patterns.n_questions,
        "questions_shared": difference.n_shared,
    }


def _compared_document(difference: Difference, level: float) -> dict[str, Any]:
    first, second = both_numbers(difference)
    low, high = difference.confidence_interval(level).or_none()
    return {
        "first": first,
        "second": second,
        "estimate": difference.estimate,
        "low": low,
        "high": high,
        "pvalue": difference.pvalue,
        "status": difference.status,
        "reason": difference.reason,
    }


def ranking_document(
    runs: Sequence[ComparedRun], found: RunRanking, corrected: Sequence[CorrectedPair]
) -> dict[str, Any]:
    """Describe a ranking, and the corrected differences beside it."""
    ranking = found.ranking
    return {
        "metric": ranking.metric,
        "variant": found.variant or JOINTLY,
        "variants": found.variants,
        "left_out_variants": found.left_out,
        **_match_document(runs, found.match),
        "confidence_level": ranking.confidence_level,
        "adjustment": ranking.adjustment,
        "runs": [{"run": runs[run.row].label, **asdict(run)} for run in ranking.runs],
        "unranked": [{"run": runs[run.row].label, **asdict(run)} for run in ranking.unranked],
        "pairs": [
            {
                **asdict(pair),
                "first": runs[pair.first].label,
                "second": runs[pair.second].label,
                "simultaneous_interval": pair.simultaneous_interval.or_none(),
            }
            for pair in ranking.pairs
        ],
        "corrected": [
            {
                **_corrected_document(each, ranking.confidence_level),
                "variant": each.variant,
                "first": runs[each.first].label,
                "second": runs[each.second].label,
                "first_estimate": each.difference.first.estimate,
                "second_estimate": each.difference.second.estimate,
                "pvalue_holm": each.pvalue_holm,
            }
            for each in corrected
        ],
        "settings_that_differ": differing_settings(runs),
    }


def _match_document(runs: Sequence[ComparedRun], found: Match) -> dict[str, Any]:
    left_out = {run.label: count for run, count in zip(runs, found.left_out, strict=True)}
    return {"paired": found.paired, "questions": len(found.matrix.question_ids), "left_out": left_out}
