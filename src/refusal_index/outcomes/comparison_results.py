"""Two runs compared, or several ranked: everything that came out, as one record that can be shown and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from refusal_index.outcomes.comparison import (
    INDEX,
    CompareOptions,
    CorrectedPair,
    Difference,
    PairComparison,
    RunRanking,
    both_numbers,
    compare_corrected,
    compare_pair,
    rank,
)
from refusal_index.outcomes.missing import missing_ranges
from refusal_index.outcomes.presentation import Block, Shown
from refusal_index.outcomes.presentation.comparison import pair_blocks, ranking_blocks
from refusal_index.outcomes.runs import ComparedRun, Match, differing_settings
from refusal_index.outcomes.sampling import describe
from refusal_index.stats import JointDifference, MetricDifference

JOINTLY = "jointly"
"""The place of a variant's name where there are several."""


@dataclass(frozen=True, repr=False)
class TwoRuns(Shown):
    """Two runs compared, the first minus the second.

    Attributes
    ----------
    runs
        Both.
    pair
        Every metric under every variant, and the joint index.
    corrected
        Without the noise of single draws, under each variant in which both have repeated draws.
    options
        How they were compared.
    """

    runs: tuple[ComparedRun, ...]
    pair: PairComparison
    corrected: tuple[CorrectedPair, ...]
    options: CompareOptions

    def blocks(self) -> Iterator[Block]:
        """Yield what came out of it as text."""
        return pair_blocks(self)

    def rows(self) -> Iterator[tuple[str | None, str, Difference]]:
        """Yield every difference with the metric's name and the variant's; no name is a corrected index."""
        if self.pair.joint is not None:
            yield INDEX, self._jointly(), self.pair.joint
        for name in self._metrics():
            yield from ((name, one.name, one.comparison[name]) for one in self.pair.variants)
            if name == INDEX:
                yield from ((None, one.variant, one.difference) for one in self.corrected)

    def to_frame(self) -> pl.DataFrame:
        """Return every difference as a row: metric, variant, both numbers, the difference, its interval and p-value."""
        level = self.options.confidence_level
        rows = [
            {"metric": metric or f"{INDEX}_corrected", "variant": variant, **_compared(difference, level)}
            for metric, variant, difference in self.rows()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded."""
        level = self.options.confidence_level
        corrected = {each.variant: _corrected(each, level) for each in self.corrected}
        first, second = self.runs
        return {
            "first": first.label,
            "second": second.label,
            "confidence_level": level,
            "joint": _with_error(self.pair.joint, level) if self.pair.joint else None,
            "joint_over": self.pair.joint_over,
            "variants": [
                {
                    "variant": variant.name,
                    **_matched(self.runs, variant.match, self.options),
                    "metrics": {one.name: _with_error(one, level) for one in variant.comparison.differences},
                    "corrected": corrected.get(variant.name),
                }
                for variant in self.pair.variants
            ],
            "settings_that_differ": differing_settings(self.runs),
            "missing": _missing(self.runs),
        }

    def _metrics(self) -> list[str]:
        names = [one.name for one in self.pair.variants[0].comparison.differences]
        return sorted(names, key=lambda name: name != INDEX)

    def _jointly(self) -> str:
        """Name what the joint index rests on, where that is not all variants."""
        over = self.pair.joint_over
        return JOINTLY if len(over) == len(self.pair.variants) else f"{JOINTLY} over {', '.join(over)}"


@dataclass(frozen=True, repr=False)
class RankedRuns(Shown):
    """Three runs or more, ranked.

    Attributes
    ----------
    runs
        All of them, as given.
    found
        The ranking, and what it rests on.
    corrected
        Every two of them without the noise of single draws, where both have repeated ones; of a ranking by the index.
    options
        How they were ranked.
    """

    runs: tuple[ComparedRun, ...]
    found: RunRanking
    corrected: tuple[CorrectedPair, ...]
    options: CompareOptions

    def blocks(self) -> Iterator[Block]:
        """Yield what came out of it as text."""
        return ranking_blocks(self)

    def to_frame(self) -> pl.DataFrame:
        """Return a row a run, the highest first: its number, interval, status and letters."""
        ranking = self.found.ranking
        rows = [{"run": self.runs[one.row].label, **asdict(one)} for one in (*ranking.runs, *ranking.unranked)]
        return pl.DataFrame(rows, infer_schema_length=None).drop("row")

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded."""
        ranking, labels = self.found.ranking, [run.label for run in self.runs]
        return {
            "metric": ranking.metric,
            "variant": self.found.variant or JOINTLY,
            "variants": self.found.variants,
            "left_out_variants": self.found.left_out,
            **_matched(self.runs, self.found.match, self.options),
            "confidence_level": ranking.confidence_level,
            "adjustment": ranking.adjustment,
            "runs": [{"run": labels[run.row], **asdict(run)} for run in ranking.runs],
            "unranked": [{"run": labels[run.row], **asdict(run)} for run in ranking.unranked],
            "pairs": [
                {
                    **asdict(pair),
                    "first": labels[pair.first],
                    "second": labels[pair.second],
                    "simultaneous_interval": pair.simultaneous_interval.or_none(),
                }
                for pair in ranking.pairs
            ],
            "corrected": [
                {
                    **_corrected(each, ranking.confidence_level),
                    "variant": each.variant,
                    "first": labels[each.first],
                    "second": labels[each.second],
                    "first_estimate": each.difference.first.estimate,
                    "second_estimate": each.difference.second.estimate,
                    "pvalue_holm": each.pvalue_holm,
                }
                for each in self.corrected
            ],
            "settings_that_differ": differing_settings(self.runs),
            "missing": _missing(self.runs),
        }


def compare_two(first: ComparedRun, second: ComparedRun, options: CompareOptions) -> TwoRuns:
    """Compare two runs by every metric, the first minus the second.

    Raises
    ------
    OutcomeTableError
        If they share no variant, or not the one asked for.
    """
    runs = (first, second)
    return TwoRuns(runs, compare_pair(runs, options), compare_corrected(runs, options), options)


def rank_all(runs: Sequence[ComparedRun], options: CompareOptions) -> RankedRuns:
    """Rank runs by one metric, and say which cannot be told apart.

    Raises
    ------
    OutcomeTableError
        If they share no variant, or not the one asked for, or share several and the metric has no joint estimate.
    """
    found = rank(runs, options)
    order = [run.row for run in (*found.ranking.runs, *found.ranking.unranked)]
    corrected = compare_corrected(runs, options, order) if options.metric == INDEX else ()
    return RankedRuns(tuple(runs), found, corrected, options)


def _with_error(difference: MetricDifference | JointDifference, level: float) -> dict[str, Any]:
    return {**_compared(difference, level), "standard_error": difference.standard_error}


def _corrected(pair: CorrectedPair, level: float) -> dict[str, Any]:
    difference = pair.difference
    return {
        **_compared(difference, level),
        "questions_first": difference.first.patterns.n_questions,
        "questions_second": difference.second.patterns.n_questions,
        "questions_shared": difference.n_shared,
    }


def _compared(difference: Difference, level: float) -> dict[str, Any]:
    (first, second), (low, high) = both_numbers(difference), difference.confidence_interval(level).or_none()
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


def _missing(runs: Sequence[ComparedRun]) -> dict[str, dict[str, Any]]:
    """Give the range of the index that missing questions leave, by run and variant, where there are any."""
    return {
        run.label: {variant or "all": asdict(one) for variant, one in missing_ranges(run.variants).items()}
        for run in runs
    }


def _matched(runs: Sequence[ComparedRun], found: Match, options: CompareOptions) -> dict[str, Any]:
    left_out = {run.label: count for run, count in zip(runs, found.left_out, strict=True)}
    return {
        "paired": found.paired,
        "questions": len(found.matrix.question_ids),
        "left_out": left_out,
        "sampling": describe(found.matrix.design, options.sampling),
    }
