"""Runs to be compared, and what their comparison or ranking rests on: variants, questions, and the two indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.rates import never_forced, too_many_missing
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.runs import (
    ComparedRun,
    Match,
    check_same_refusals,
    chosen_variant,
    differing_settings,
    match,
    shared_variants,
)
from refusal_index.data.sampling import OWN_COLUMNS, Sampling, describe, first_draws
from refusal_index.findings.draws import corrected_indices, is_defined, repeats_ri
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.sensitivity import missing_ranges
from refusal_index.findings.statement import Statement
from refusal_index.stats import (
    TRUTHFULNESS_WEIGHTS,
    Adjustment,
    CorrectedRefusalIndexResult,
    SamplingDesign,
    joint_corrected_refusal_index,
    refusal_index,
)
from refusal_index.stats.baseline import Weights
from refusal_index.stats.design import FEW_CLUSTERS, tables_of_rows


@dataclass(frozen=True)
class CompareOptions:
    """How to compare."""

    variant: str | None = None  # the only variant to compare; None for every variant that the runs share
    metric: str = INDEX  # what to rank by
    adjustment: Adjustment = "max-t"  # how a ranking allows for many comparisons
    # penalty, truthfulness_weights: of the weighted and of the truthfulness score
    penalty: float = 1.0
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS
    confidence_level: float = 0.95  # of every interval
    seed: int = 0  # of the simulation behind max-t
    sampling: Sampling = OWN_COLUMNS  # what the columns that say how questions were sampled are called


def repeats_ri_of(runs: Sequence[ComparedRun], variant: str | None) -> bool:
    """Whether the corrected index of every run, under each variant that is compared, is RI."""
    chosen = _variants_compared(runs, variant).values()
    tables = [run.variants[one] for names in chosen for run, one in zip(runs, names, strict=True)]
    return repeats_ri(tables, is_deterministic=all(is_deterministic(run.settings) for run in runs))


CorrectedByVariant = Mapping[str, tuple[CorrectedRefusalIndexResult, ...]]
"""The corrected index of each run, by variant, all over the same columns."""


def corrected_by_variant(
    runs: Sequence[ComparedRun], matches: Mapping[str, Match], variant: str | None
) -> CorrectedByVariant:
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


def all_defined(corrected: CorrectedByVariant) -> CorrectedByVariant:
    """Keep the variants in which every run has a corrected index."""
    return {name: each for name, each in corrected.items() if all(one.estimate is not None for one in each)}


def jointly(corrected: CorrectedByVariant) -> list[CorrectedRefusalIndexResult]:
    """Return one index of each run over all variants."""
    return [joint_corrected_refusal_index(each) for each in zip(*corrected.values(), strict=True)]


def defined_everywhere(matches: Mapping[str, Match]) -> dict[str, Match]:
    """Keep the variants in which every run has an index with a standard error: joint indices then rest on the same."""
    return {name: found for name, found in matches.items() if all(_statuses(found) == "ok")}


def _statuses(found: Match) -> np.ndarray:
    design = SamplingDesign.of(len(found.matrix.question_ids), **found.matrix.design)
    arrays = found.matrix.arrays if design is None else design.taking_part(found.matrix.arrays)
    return np.array([refusal_index(table).status for table in tables_of_rows(arrays, design)])


def matched_variants(runs: Sequence[ComparedRun], variant: str | None) -> dict[str, Match]:
    """Match the questions of each variant to compare, by its name.

    Runs of one variant each are compared whatever these are called: to compare two prompts of one model, say. A run
    without variants, as one that answers by a score, stands beside each variant of the others. Raises OutcomeTableError
    if they share no variant, or their refusals were recognised in different ways.
    """
    check_same_refusals(runs)
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


def stacked(matches: Mapping[str, Match]) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
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


def missing_document(runs: Sequence[ComparedRun]) -> dict[str, dict[str, Any]]:
    """Give the range of the index that missing questions leave, by run and variant, where there are any."""
    return {
        run.label: {variant or "all": asdict(one) for variant, one in missing_ranges(run.variants).items()}
        for run in runs
    }


def match_document(runs: Sequence[ComparedRun], found: Match, options: CompareOptions) -> dict[str, Any]:
    """Say on which questions a comparison rests, and how they were sampled."""
    left_out = {run.label: count for run, count in zip(runs, found.left_out, strict=True)}
    return {
        "paired": found.paired,
        "questions": len(found.matrix.question_ids),
        "left_out": left_out,
        "sampling": describe(found.matrix.design, options.sampling),
    }


def missing_statements(runs: Sequence[ComparedRun]) -> Iterator[Statement]:
    """Say of each run which questions have no grade, and within which range they leave its index."""
    for run in runs:
        tables = {variant: first_draws(rows) for variant, rows in run.variants.items()}
        if any(map(never_forced, tables.values())):
            yield Statement("never_forced", "grave", {"run": run.label})
        missing: list[dict[str, Any]] = [
            {
                "variant": variant or "all",
                "questions": one.questions,
                "asked": tables[variant].height,
                "low": one.low,
                "high": one.high,
            }
            for variant, one in missing_ranges(run.variants).items()
        ]
        many = any(too_many_missing(one["questions"], one["asked"]) for one in missing)
        if missing:
            values = {"run": run.label, "missing": missing, "many": many}
            yield Statement("missing_grades", "grave" if many else "note", values)


def match_statement(runs: Sequence[ComparedRun], found: Match, variant: str | None) -> Statement:
    """Say on which questions a comparison rests; of one variant, where there are several."""
    labels = [run.label for run in runs]
    if found.paired:
        left_out = [(label, count) for label, count in zip(labels, found.left_out, strict=True) if count]
        questions = len(found.matrix.question_ids)
        return Statement("matched", "scope", {"variant": variant, "questions": questions, "left_out": left_out})
    own = list(zip(labels, found.matrix.scored.sum(axis=1).tolist(), strict=True))
    shared = int(found.matrix.shared.sum())
    values = {"variant": variant, "shared": shared, "own": own}
    return Statement("partly_shared" if len(runs) > 2 or shared else "unpaired", "grave", values)


def sampling_statements(found: Match, options: CompareOptions) -> Iterator[Statement]:
    """Say which clusters and weights intervals and p-values allow for."""
    sampling = describe(found.matrix.design, options.sampling)
    if sampling is not None and sampling["cluster"] is not None:
        few = sampling["clusters"] < FEW_CLUSTERS
        values = {"clusters": sampling["clusters"], "column": sampling["cluster"], "limit": FEW_CLUSTERS, "few": few}
        yield Statement("clusters", "grave" if few else "scope", values)
    if sampling is not None and sampling["weight"] is not None:
        yield Statement("weights", "scope", {"column": sampling["weight"], "worth": sampling["effective_by_weight"]})


def settings_statements(runs: Sequence[ComparedRun]) -> Iterator[Statement]:
    """Say in which settings other than the model the runs differ."""
    if differing := differing_settings(runs):
        yield Statement("settings_differ", "grave", {"settings": list(differing)})
