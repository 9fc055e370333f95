"""Runs compared: what `stats` says of them once their questions are matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from refusal_index.outcomes.draws import corrected_difference
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.runs import ComparedRun, Match, chosen_variant, match, shared_variants
from refusal_index.outcomes.sampling import OWN_COLUMNS, Sampling
from refusal_index.stats import (
    Adjustment,
    Comparison,
    JointDifference,
    MetricDifference,
    NoiseCorrectedDifference,
    Ranking,
    compare_joint,
    compare_metrics,
    holm,
    rank_joint,
    rank_runs,
    refusal_index,
)
from refusal_index.stats.matrices import row_tables

INDEX = "refusal_index"

Difference = MetricDifference | JointDifference | NoiseCorrectedDifference


@dataclass(frozen=True)
class CompareOptions:
    """How to compare."""

    variant: str | None = None  # the only variant to compare; None for all that the runs share
    # metric, adjustment: of a ranking: what by, and how it allows for many comparisons
    metric: str = INDEX
    adjustment: Adjustment = "max-t"
    # penalty, confidence_level: of the weighted score, and of every interval
    penalty: float = 1.0
    confidence_level: float = 0.95
    seed: int = 0  # of the simulation behind max-t, and of the questions resampled for corrected indices
    sampling: Sampling = OWN_COLUMNS  # what the columns that say how questions were sampled are called


@dataclass(frozen=True)
class VariantComparison:
    """Two runs under one variant: every metric, and the questions it rests on."""

    name: str
    match: Match
    comparison: Comparison


@dataclass(frozen=True)
class PairComparison:
    """Two runs, variant by variant, and jointly; the first minus the second."""

    variants: tuple[VariantComparison, ...]  # each on its own
    # joint, joint_over: the difference of the joint indices, and the variants that it rests on: those in which both
    # runs have an index with a standard error. None and empty where they are fewer than two.
    joint: JointDifference | None
    joint_over: tuple[str, ...]


@dataclass(frozen=True)
class RunRanking:
    """Three runs or more, ranked."""

    variants: tuple[str, ...]  # the variants that the ranking rests on, jointly where there are several
    left_out: tuple[str, ...]  # variants that the runs share in which some run has no index with a standard error
    match: Match  # the questions, of the first of the variants
    ranking: Ranking  # what came out

    @property
    def variant(self) -> str | None:
        """The variant, where there is only one."""
        return self.variants[0] if len(self.variants) == 1 else None


@dataclass(frozen=True)
class CorrectedPair:
    """Two runs under one variant, compared without the noise of single draws."""

    variant: str  # as in `VariantComparison`
    # first, second: the places of the runs among those compared
    first: int
    second: int
    difference: NoiseCorrectedDifference  # the first minus the second
    # adjusted for all pairs under this variant that have a p-value; None where this one has none
    pvalue_holm: float | None


def compare_pair(runs: Sequence[ComparedRun], options: CompareOptions) -> PairComparison:
    """Compare two runs; raises OutcomeTableError if they share no variant, or not the one asked for."""
    matches = matched_variants(runs, options.variant)
    compared = tuple(
        VariantComparison(
            name, found, compare_metrics(*found.matrix.arrays, penalty=options.penalty, **found.matrix.design)
        )
        for name, found in matches.items()
    )
    usable = _defined_everywhere(matches)
    if len(usable) < 2:
        return PairComparison(compared, None, ())
    arrays, design = _stacked(usable)
    return PairComparison(compared, compare_joint(*arrays, **design), tuple(usable))


def rank(runs: Sequence[ComparedRun], options: CompareOptions) -> RunRanking:
    """Rank three runs or more.

    Raises OutcomeTableError if they share no variant, or not the one asked for, or share several and the metric has no
    joint estimate.
    """
    matches = matched_variants(runs, options.variant)
    if len(matches) > 1 and options.metric != INDEX:
        raise OutcomeTableError(
            f"metric: only {INDEX} has a joint estimate over several variants, got {options.metric!r}; "
            f"name one variant, out of {', '.join(matches)}"
        )
    usable = (_defined_everywhere(matches) or dict(list(matches.items())[:1])) if len(matches) > 1 else matches
    left_out = tuple(name for name in matches if name not in usable)
    found = next(iter(usable.values()))
    if len(usable) == 1:
        ranking = rank_runs(
            *found.matrix.arrays,
            metric=options.metric,
            penalty=options.penalty,
            confidence_level=options.confidence_level,
            adjustment=options.adjustment,
            rng=options.seed,
            **found.matrix.design,
        )
    else:
        arrays, design = _stacked(usable)
        ranking = rank_joint(
            *arrays,
            confidence_level=options.confidence_level,
            adjustment=options.adjustment,
            rng=options.seed,
            **design,
        )
    return RunRanking(tuple(usable), left_out, found, ranking)


def compare_corrected(
    runs: Sequence[ComparedRun], options: CompareOptions, order: Sequence[int] | None = None
) -> tuple[CorrectedPair, ...]:
    """Compare every two runs by their noise-corrected indices, under each variant in which both have repeated draws.

    Raises OutcomeTableError as for `compare_pair`.

    - `runs`, `options`: as for `compare_pair`.
    - `order`: places of the runs in the order in which they are to stand, as that of a ranking: earlier minus later. As
      given unless told otherwise.
    """
    pairs = list(combinations(range(len(runs)) if order is None else order, 2))
    return tuple(
        pair
        for name, variants in _variants_compared(runs, options.variant).items()
        for pair in _corrected_pairs(
            name, [run.variants[v] for run, v in zip(runs, variants, strict=True)], pairs, options
        )
    )


def _corrected_pairs(
    name: str, tables: Sequence[pl.DataFrame], pairs: Iterable[tuple[int, int]], options: CompareOptions
) -> list[CorrectedPair]:
    found = {(a, b): corrected_difference(tables[a], tables[b], options.seed) for a, b in pairs}
    tested = {pair: one.pvalue for pair, one in found.items() if one is not None and one.pvalue is not None}
    adjusted = dict(zip(tested, holm(np.array(list(tested.values()))).tolist(), strict=True))
    return [CorrectedPair(name, *pair, one, adjusted.get(pair)) for pair, one in found.items() if one is not None]


def _defined_everywhere(matches: Mapping[str, Match]) -> dict[str, Match]:
    """Keep the variants in which every run has an index with a standard error: joint indices then rest on the same."""
    return {name: found for name, found in matches.items() if all(_statuses(found) == "ok")}


def _statuses(found: Match) -> np.ndarray:
    tables = row_tables(*found.matrix.arrays)
    return np.array([refusal_index(table).status for table in tables])


def matched_variants(runs: Sequence[ComparedRun], variant: str | None) -> dict[str, Match]:
    """Match the questions of each variant to compare, by its name.

    Runs of one variant each are compared whatever these are called: to compare two prompts of one model, say.
    """
    return {name: match(runs, variants) for name, variants in _variants_compared(runs, variant).items()}


def _variants_compared(runs: Sequence[ComparedRun], variant: str | None) -> dict[str, tuple[str | None, ...]]:
    """Find what to compare under which name: the variant of each run."""
    if variant is not None:
        return {variant: (chosen_variant(runs, variant),) * len(runs)}
    shared = shared_variants(runs)
    if shared:
        return {name or "all": (name,) * len(runs) for name in shared}
    if all(len(run.variants) == 1 for run in runs):
        only = tuple(next(iter(run.variants)) for run in runs)
        return {" / ".join(name or "all" for name in only): only}
    listed = "; ".join(f"{run.label}: {', '.join(name or 'no variant' for name in run.variants)}" for run in runs)
    raise OutcomeTableError(
        f"expected runs that share a variant, got none ({listed}); run one of them under a variant of the other, or "
        "name it in a column 'variant' of a file"
    )


def _stacked(matches: Mapping[str, Match]) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Put the variants' matrices together, shape (runs, variants, questions), by question, with their sampling."""
    ids = {
        q: column for column, q in enumerate(dict.fromkeys(q for m in matches.values() for q in m.matrix.question_ids))
    }
    runs = len(next(iter(matches.values())).matrix.refused)
    stacked = [np.zeros((runs, len(matches), len(ids)), bool) for _ in range(3)]
    design: dict[str, Any] = {}
    for row, found in enumerate(matches.values()):
        columns = [ids[question] for question in found.matrix.question_ids]
        for whole, part in zip(stacked, found.matrix.arrays, strict=True):
            whole[:, row, columns] = part
        for name, values in found.matrix.design.items():
            design.setdefault(name, np.zeros(len(ids), values.dtype))[columns] = values
    return tuple(stacked), design


def both_numbers(difference: Difference) -> tuple[float | None, float | None]:
    """Return the number of either run."""
    if isinstance(difference, MetricDifference):
        return difference.first, difference.second
    return difference.first.estimate, difference.second.estimate
