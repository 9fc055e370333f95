"""Two runs compared, or several ranked: everything that came out, as one record that can be shown and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from refusal_index.data.files import plain
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.data.sampling import describe
from refusal_index.findings.comparison import (
    CompareOptions,
    Difference,
    PairComparison,
    RunRanking,
    both_numbers,
    compare_pair,
    rank,
)
from refusal_index.findings.confidence_summary import ScoreComparison, compare_confidence
from refusal_index.findings.metrics import CORRECTED, INDEX
from refusal_index.findings.sensitivity import missing_ranges
from refusal_index.findings.shown import Shown
from refusal_index.stats import CorrectedDifference, MetricDifference, holm

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
    options
        How they were compared.
    confidence
        The methods that scored the answers of both; empty where there are none.
    """

    runs: tuple[ComparedRun, ...]
    pair: PairComparison
    options: CompareOptions
    confidence: tuple[ScoreComparison, ...] = ()

    def rows(self) -> Iterator[tuple[str, str, Difference]]:
        """Yield every difference with the metric's name and the variant's, RI first, the corrected RI below it.

        Where that repeats RI, it is not compared a second time.
        """
        indices = (
            (INDEX, self.pair.joint, self.pair.joint_over),
            (CORRECTED, self.pair.joint_corrected, self.pair.corrected_over),
        )
        for name, joint, over in indices[:1] if self.pair.repeats_ri else indices:
            if joint is not None:
                yield name, self._jointly(over), joint
            yield from ((name, one.name, found) for one in self.pair.variants if (found := one.differences().get(name)))
        for name in [one.name for one in self.pair.variants[0].comparison.differences if one.name != INDEX]:
            yield from ((name, one.name, one.comparison[name]) for one in self.pair.variants)

    @property
    def has_primary(self) -> bool:
        """Whether the first of `rows` is the one that decides: RI, jointly or of the only variant."""
        return len(self.pair.variants) == 1 or next(self.rows())[1].startswith(JOINTLY)

    def adjusted_pvalues(self) -> tuple[float | None, ...]:
        """Return Holm's p-values of all differences in `rows` but the primary; None for it, and where there is none.

        Whoever looks at seven metrics finds some difference between equal models far more often than in one comparison
        of twenty. The primary one is decided on by itself, and all others share one family-wise error.
        """
        given = {place: difference.pvalue for place, (*_, difference) in enumerate(self.rows())}
        family = {p: one for p, one in given.items() if one is not None and not (self.has_primary and p == 0)}
        adjusted = dict(zip(family, holm(list(family.values())).tolist(), strict=True))
        return tuple(map(adjusted.get, given))

    def to_frame(self) -> pl.DataFrame:
        """Return every difference as a row: metric, variant, both numbers, the difference, interval and p-values.

        The column `pvalue_holm` is empty in the row of the primary comparison, and where there is no p-value.
        """
        level = self.options.confidence_level
        rows = [
            {"metric": metric, "variant": variant, **_compared(difference, level)}
            for metric, variant, difference in self.rows()
        ]
        adjusted = pl.Series("pvalue_holm", self.adjusted_pvalues(), pl.Float64)
        return pl.DataFrame(rows, infer_schema_length=None).with_columns(adjusted)

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded."""
        level = self.options.confidence_level
        first, second = self.runs
        return {
            "first": first.label,
            "second": second.label,
            "confidence_level": level,
            "joint": {
                INDEX: _document(self.pair.joint, level) if self.pair.joint else None,
                CORRECTED: _document(self.pair.joint_corrected, level) if self.pair.joint_corrected else None,
            },
            "joint_over": {INDEX: self.pair.joint_over, CORRECTED: self.pair.corrected_over},
            "variants": [
                {
                    "variant": variant.name,
                    **_matched(self.runs, variant.match, self.options),
                    "metrics": {name: _document(one, level) for name, one in variant.differences().items()},
                }
                for variant in self.pair.variants
            ],
            "confidence": plain(self.confidence),
            "settings_that_differ": differing_settings(self.runs),
            "missing": _missing(self.runs),
        }

    def _jointly(self, over: Sequence[str]) -> str:
        """Name what a joint index rests on, where that is not all variants."""
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
    options
        How they were ranked.
    """

    runs: tuple[ComparedRun, ...]
    found: RunRanking
    options: CompareOptions

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
            "boundary_pairs": [
                {**asdict(pair), "first": labels[pair.first], "second": labels[pair.second]}
                for pair in ranking.boundary_pairs
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
    level = options.confidence_level
    scores = compare_confidence(first, second, variant=options.variant, confidence_level=level)
    return TwoRuns(runs, compare_pair(runs, options), options, scores)


def rank_all(runs: Sequence[ComparedRun], options: CompareOptions) -> RankedRuns:
    """Rank runs by one metric, and say which cannot be told apart.

    Raises
    ------
    OutcomeTableError
        If they share no variant, or not the one asked for, or share several and the metric has no joint estimate.
    """
    return RankedRuns(tuple(runs), rank(runs, options), options)


def _document(difference: Difference, level: float) -> dict[str, Any]:
    if isinstance(difference, CorrectedDifference):
        questions = {
            "questions_first": difference.first.n_repeated,
            "questions_second": difference.second.n_repeated,
            "questions_shared": difference.n_shared,
        }
        return {**_compared(difference, level), **questions}
    return {**_compared(difference, level), "standard_error": difference.standard_error}


def _compared(difference: Difference, level: float) -> dict[str, Any]:
    (first, second), (low, high) = both_numbers(difference), difference.confidence_interval(level).or_none()
    return {
        "first": first,
        "second": second,
        "estimate": difference.estimate,
        "low": low,
        "high": high,
        "pvalue": difference.pvalue,
        "test": difference.method if isinstance(difference, MetricDifference) else None,
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
