"""Runs compared: what `stats` says of them once their questions are matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.runs import ComparedRun, Match, chosen_variant, match, shared_variants
from refusal_index.data.sampling import OWN_COLUMNS, Sampling
from refusal_index.findings.draws import corrected_indices, is_defined, repeats_ri
from refusal_index.findings.metrics import CORRECTED, INDEX
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
from refusal_index.stats.design import tables_of_rows

Difference = MetricDifference | JointDifference | CorrectedDifference


@dataclass(frozen=True)
class CompareOptions:
    """How to compare."""

    variant: str | None = None  # the only variant to compare; None for all that the runs share
    metric: str = INDEX  # what to rank by
    adjustment: Adjustment = "max-t"  # how a ranking allows for many comparisons
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
    comparison: Comparison  # of one response per question
    corrected: Difference | None  # of the corrected index; None where a run has no repeated draws

    def differences(self) -> dict[str, Difference]:
        """Every difference by the name of its metric."""
        found: dict[str, Difference] = {one.name: one for one in self.comparison.differences}
        return found if self.corrected is None else {**found, CORRECTED: self.corrected}


@dataclass(frozen=True)
class PairComparison:
    """Two runs, variant by variant, and jointly; the first minus the second."""

    variants: tuple[VariantComparison, ...]  # each on its own
    # joint, joint_over: the difference of joint RI, and the variants that it rests on: those in which both runs have RI
    # with a standard error. None and empty where they are fewer than two.
    joint: JointDifference | None
    joint_over: tuple[str, ...]
    # joint_corrected, corrected_over: the same of the corrected index
    joint_corrected: Difference | None
    corrected_over: tuple[str, ...]
    repeats_ri: bool  # whether both models are deterministic, so that the differences of both indices are the same

    @property
    def headline(self) -> Difference:
        """The difference that decides: of RI, jointly where there are several variants."""
        return self.joint or self.variants[0].comparison[INDEX]

    @property
    def corrected(self) -> Difference | None:
        """The difference of the corrected index; None where a run has no repeated draws."""
        return self.joint_corrected or (None if self.joint else self.variants[0].corrected)


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
    repeats = _repeats_ri(runs, options.variant)
    corrected = {} if repeats else _corrected(runs, matches, options.variant)
    compared = []
    for name, found in matches.items():
        comparison = compare_metrics(
            *found.matrix.arrays,
            penalty=options.penalty,
            truthfulness_weights=options.truthfulness_weights,
            **found.matrix.design,
        )
        of_corrected = compare_corrected(*corrected[name]) if name in corrected else None
        compared.append(VariantComparison(name, found, comparison, comparison[INDEX] if repeats else of_corrected))
    usable, drawn = _defined_everywhere(matches), _all_defined(corrected)
    arrays, design = _stacked(usable) if len(usable) > 1 else ((), {})
    joint = compare_joint(*arrays, **design) if len(usable) > 1 else None
    over = tuple(usable) if joint else ()
    if repeats:
        return PairComparison(tuple(compared), joint, over, joint, over, repeats)
    joint_corrected = compare_corrected(*_jointly(drawn)) if len(drawn) > 1 else None
    corrected_over = tuple(drawn) if joint_corrected else ()
    return PairComparison(tuple(compared), joint, over, joint_corrected, corrected_over, repeats)


def rank(runs: Sequence[ComparedRun], options: CompareOptions) -> RunRanking:
    """Rank three runs or more.

    Raises OutcomeTableError if they share no variant, or not the one asked for, or share several and the metric has no
    joint estimate.
    """
    matches = matched_variants(runs, options.variant)
    if len(matches) > 1 and options.metric not in (INDEX, CORRECTED):
        raise OutcomeTableError(
            f"metric: only {INDEX} and {CORRECTED} have a joint estimate over several variants, got "
            f"{options.metric!r}; name one variant, out of {', '.join(matches)}"
        )
    repeats = options.metric == CORRECTED and _repeats_ri(runs, options.variant)
    if options.metric == CORRECTED and not repeats:
        return _rank_corrected(runs, matches, options)
    usable = (_defined_everywhere(matches) or dict(list(matches.items())[:1])) if len(matches) > 1 else matches
    left_out = tuple(name for name in matches if name not in usable)
    found = next(iter(usable.values()))
    if len(usable) == 1:
        ranking = rank_runs(
            *found.matrix.arrays,
            metric=INDEX if repeats else options.metric,
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
    return RunRanking(tuple(usable), left_out, found, replace(ranking, metric=CORRECTED) if repeats else ranking)


def _rank_corrected(runs: Sequence[ComparedRun], matches: Mapping[str, Match], options: CompareOptions) -> RunRanking:
    corrected = _corrected(runs, matches, options.variant)
    if not corrected:
        raise OutcomeTableError(
            f"metric: expected questions sampled more than once in every run for {CORRECTED} (run --draws 2), got none "
            f"of {', '.join(_without_draws(runs))}; rank by {INDEX}"
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


def _repeats_ri(runs: Sequence[ComparedRun], variant: str | None) -> bool:
    """Whether the corrected index of every run, under each variant that is compared, is RI."""
    chosen = _variants_compared(runs, variant).values()
    tables = [run.variants[one] for names in chosen for run, one in zip(runs, names, strict=True)]
    return repeats_ri(tables, is_deterministic=all(is_deterministic(run.settings) for run in runs))


def _without_draws(runs: Sequence[ComparedRun]) -> list[str]:
    return [
        run.label
        for run in runs
        if not is_deterministic(run.settings) and not any(map(is_defined, corrected_indices([*run.variants.values()])))
    ] or ["some run under the same variant"]


_Corrected = Mapping[str, tuple[CorrectedRefusalIndexResult, ...]]
"""The corrected index of each run, by variant, all over the same columns."""


def _corrected(runs: Sequence[ComparedRun], matches: Mapping[str, Match], variant: str | None) -> _Corrected:
    """Estimate the corrected index of every run, under each variant in which all have repeated draws."""
    chosen = _variants_compared(runs, variant)
    tables = {
        name: [_matched(run.variants[one], matches[name]) for run, one in zip(runs, chosen[name], strict=True)]
        for name in matches
    }
    alike = [is_deterministic(run.settings) for run in runs]
    results = iter(corrected_indices([one for each in tables.values() for one in each], alike * len(tables)))
    found = {name: tuple(next(results) for _ in runs) for name in tables}
    return {name: each for name, each in found.items() if all(map(is_defined, each))}


def _matched(outcomes: pl.DataFrame, found: Match) -> pl.DataFrame:
    """Keep the questions that the comparison rests on."""
    return outcomes.filter(pl.col("question_id").is_in(found.matrix.question_ids)) if found.paired else outcomes


def _all_defined(corrected: _Corrected) -> _Corrected:
    return {name: each for name, each in corrected.items() if all(one.estimate is not None for one in each)}


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
