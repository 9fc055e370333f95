"""Runs compared: what `stats` says of them once their questions are matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from refusal_index.outcomes.draws import INDEX, SINGLE_DRAW, corrected_indices
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.runs import ComparedRun, Match, chosen_variant, match, shared_variants
from refusal_index.outcomes.sampling import OWN_COLUMNS, Sampling
from refusal_index.outcomes.settings import always_alike
from refusal_index.stats import (
    TRUTHFULNESS_WEIGHTS,
    Adjustment,
    Comparison,
    CorrectedDifference,
    CorrectedRefusalIndexResult,
    JointDifference,
    MetricDifference,
    Ranking,
    SamplingDesign,
    compare_corrected,
    compare_joint,
    compare_metrics,
    joint_corrected_refusal_index,
    rank_corrected,
    rank_joint,
    rank_runs,
    refusal_index,
)
from refusal_index.stats.baseline import Weights
from refusal_index.stats.sampled_table import tables_of_rows

Difference = MetricDifference | JointDifference | CorrectedDifference


@dataclass(frozen=True)
class CompareOptions:
    """How to compare."""

    variant: str | None = None  # the only variant to compare; None for all that the runs share
    # metric, adjustment: of a ranking: what by, and how it allows for many comparisons. Without a metric it is by the
    # index of the probabilities, or by that of single draws where a run has no repeated ones.
    metric: str | None = None
    adjustment: Adjustment = "max-t"
    # penalty, truthfulness_weights: of the weighted and of the truthfulness score
    penalty: float = 1.0
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS
    confidence_level: float = 0.95  # of every interval
    seed: int = 0  # of the simulation behind max-t
    sampling: Sampling = OWN_COLUMNS  # what the columns that say how questions were sampled are called


@dataclass(frozen=True)
class VariantComparison:
    """Two runs under one variant: every metric, and the questions it rests on."""

    name: str
    match: Match
    comparison: Comparison  # of single draws
    index: CorrectedDifference | None  # of the probabilities; None where a run has no repeated draws

    def differences(self) -> dict[str, Difference]:
        """Every difference by the name of its metric: single draws have an index of their own name."""
        of_single: dict[str, Difference] = {
            SINGLE_DRAW if one.name == INDEX else one.name: one for one in self.comparison.differences
        }
        return of_single if self.index is None else {**of_single, INDEX: self.index}


@dataclass(frozen=True)
class PairComparison:
    """Two runs, variant by variant, and jointly; the first minus the second."""

    variants: tuple[VariantComparison, ...]  # each on its own
    # joint, joint_over: the difference of the joint indices of single draws, and the variants that it rests on: those
    # in which both runs have an index with a standard error. None and empty where they are fewer than two.
    joint: JointDifference | None
    joint_over: tuple[str, ...]
    # joint_index, index_over: the same of the probabilities
    joint_index: CorrectedDifference | None
    index_over: tuple[str, ...]

    @property
    def headline(self) -> Difference:
        """The difference to look at first: of the probabilities before single draws, jointly before one variant."""
        first = self.variants[0]
        return self.joint_index or first.index or self.joint or first.comparison[INDEX]


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


def compare_pair(runs: Sequence[ComparedRun], options: CompareOptions) -> PairComparison:
    """Compare two runs; raises OutcomeTableError if they share no variant, or not the one asked for."""
    matches = matched_variants(runs, options.variant)
    corrected = _corrected(runs, matches, options.variant)
    compared = tuple(
        VariantComparison(
            name,
            found,
            compare_metrics(
                *found.matrix.arrays,
                penalty=options.penalty,
                truthfulness_weights=options.truthfulness_weights,
                **found.matrix.design,
            ),
            compare_corrected(*corrected[name]) if name in corrected else None,
        )
        for name, found in matches.items()
    )
    usable, drawn = _defined_everywhere(matches), _all_defined(corrected)
    arrays, design = _stacked(usable) if len(usable) > 1 else ((), {})
    return PairComparison(
        compared,
        compare_joint(*arrays, **design) if len(usable) > 1 else None,
        tuple(usable) if len(usable) > 1 else (),
        compare_corrected(*_jointly(drawn)) if len(drawn) > 1 else None,
        tuple(drawn) if len(drawn) > 1 else (),
    )


def rank(runs: Sequence[ComparedRun], options: CompareOptions) -> RunRanking:
    """Rank three runs or more.

    Raises OutcomeTableError if they share no variant, or not the one asked for, or share several and the metric has no
    joint estimate.
    """
    matches = matched_variants(runs, options.variant)
    corrected = _corrected(runs, matches, options.variant)
    metric = options.metric or (INDEX if corrected else SINGLE_DRAW)
    if len(matches) > 1 and metric not in (INDEX, SINGLE_DRAW):
        raise OutcomeTableError(
            f"metric: only {INDEX} and {SINGLE_DRAW} have a joint estimate over several variants, got {metric!r}; "
            f"name one variant, out of {', '.join(matches)}"
        )
    if metric == INDEX:
        return _rank_by_probabilities(runs, matches, corrected, options)
    usable = (_defined_everywhere(matches) or dict(list(matches.items())[:1])) if len(matches) > 1 else matches
    left_out = tuple(name for name in matches if name not in usable)
    found = next(iter(usable.values()))
    if len(usable) == 1:
        ranking = rank_runs(
            *found.matrix.arrays,
            metric=INDEX if metric == SINGLE_DRAW else metric,
            penalty=options.penalty,
            truthfulness_weights=options.truthfulness_weights,
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
    return RunRanking(tuple(usable), left_out, found, replace(ranking, metric=metric))


def _rank_by_probabilities(
    runs: Sequence[ComparedRun], matches: Mapping[str, Match], corrected: _Corrected, options: CompareOptions
) -> RunRanking:
    if not corrected:
        raise OutcomeTableError(
            f"metric: expected repeated draws of every run for {INDEX} (run --draws 2), got none of "
            f"{', '.join(_without_draws(runs))}; {SINGLE_DRAW} ranks by single draws"
        )
    usable = _all_defined(corrected) or dict(list(corrected.items())[:1])
    ranking = rank_corrected(
        _jointly(usable),
        confidence_level=options.confidence_level,
        adjustment=options.adjustment,
        rng=options.seed,
    )
    left_out = tuple(name for name in matches if name not in usable)
    return RunRanking(tuple(usable), left_out, matches[next(iter(usable))], ranking)


def _without_draws(runs: Sequence[ComparedRun]) -> list[str]:
    return [
        run.label
        for run in runs
        if not always_alike(run.settings) and all(one is None for one in corrected_indices([*run.variants.values()]))
    ] or ["some run under the same variant"]


_Corrected = Mapping[str, tuple[CorrectedRefusalIndexResult, ...]]
"""The index of the probabilities of each run, by variant, all over the same columns."""


def _corrected(runs: Sequence[ComparedRun], matches: Mapping[str, Match], variant: str | None) -> _Corrected:
    """Estimate the index of the probabilities of every run, under each variant in which all have repeated draws."""
    chosen = _variants_compared(runs, variant)
    tables = {
        name: [_matched(run.variants[one], matches[name]) for run, one in zip(runs, chosen[name], strict=True)]
        for name in matches
    }
    alike = [always_alike(run.settings) for run in runs]
    results = iter(corrected_indices([one for each in tables.values() for one in each], alike * len(tables)))
    found = {name: tuple(one for _ in runs if (one := next(results)) is not None) for name in tables}
    return {name: each for name, each in found.items() if len(each) == len(runs)}


def _matched(outcomes: pl.DataFrame, found: Match) -> pl.DataFrame:
    """Keep the questions that the comparison rests on."""
    return outcomes.filter(pl.col("question_id").is_in(found.matrix.question_ids)) if found.paired else outcomes


def _all_defined(corrected: _Corrected) -> _Corrected:
    return {name: each for name, each in corrected.items() if all(one.status == "ok" for one in each)}


def _jointly(corrected: _Corrected) -> list[CorrectedRefusalIndexResult]:
    """Return one index of each run over all variants."""
    return [joint_corrected_refusal_index(each) for each in zip(*corrected.values(), strict=True)]


def _defined_everywhere(matches: Mapping[str, Match]) -> dict[str, Match]:
    """Keep the variants in which every run has an index with a standard error: joint indices then rest on the same."""
    return {name: found for name, found in matches.items() if all(_statuses(found) == "ok")}


def _statuses(found: Match) -> np.ndarray:
    design = SamplingDesign.of(len(found.matrix.question_ids), **found.matrix.design)
    arrays = found.matrix.arrays if design is None else design.taking_part(found.matrix.arrays)
    return np.array([refusal_index(table).status for table in tables_of_rows(arrays, design)])


def matched_variants(runs: Sequence[ComparedRun], variant: str | None) -> dict[str, Match]:
    """Match the questions of each variant to compare, by its name.

    Runs of one variant each are compared whatever these are called: to compare two prompts of one model, say. A run
    without variants, as one that answers by a score, stands beside each variant of the others.
    """
    return {name: match(runs, variants) for name, variants in _variants_compared(runs, variant).items()}


def _variants_compared(runs: Sequence[ComparedRun], variant: str | None) -> dict[str, tuple[str | None, ...]]:
    """Find what to compare under which name: the variant of each run."""
    named = [run for run in runs if not run.has_no_variants]
    if variant is not None:
        return {variant: _beside(runs, chosen_variant(named or runs, variant))}
    shared = shared_variants(named or runs)
    if shared:
        return {name or "all": _beside(runs, name) for name in shared}
    if all(len(run.variants) == 1 for run in runs):
        only = tuple(next(iter(run.variants)) for run in runs)
        return {" / ".join(name or "all" for name in only): only}
    listed = "; ".join(f"{run.label}: {', '.join(name or 'no variant' for name in run.variants)}" for run in runs)
    raise OutcomeTableError(
        f"expected runs that share a variant, got none ({listed}); run one of them under a variant of the other, or "
        "name it in a column 'variant' of a file"
    )


def _beside(runs: Sequence[ComparedRun], variant: str | None) -> tuple[str | None, ...]:
    return tuple(None if run.has_no_variants else variant for run in runs)


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
