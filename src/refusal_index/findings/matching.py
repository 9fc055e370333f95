"""Runs to be compared, and what their comparison or ranking rests on: variants, questions, and the two indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.folder import (
    ComparedRun,
    Match,
    check_same_refusals,
    chosen_variant,
    differing_settings,
    match,
    shared_variants,
)
from refusal_index.data.outcome_table import OWN_COLUMNS, Sampling
from refusal_index.data.rates import describe, first_draws, never_forced, too_many_missing
from refusal_index.data.run_json import is_deterministic
from refusal_index.findings.draws import corrected_indices, is_defined, repeats_ri
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.sensitivity import missing_ranges
from refusal_index.findings.shown import Shown
from refusal_index.findings.statement import Statement
from refusal_index.stats.baseline import Weights
from refusal_index.stats.contingency import FEW_CLUSTERS, tables_of_rows


@dataclass(frozen=True)
class CompareOptions:
    """How to compare."""

    variant: str | None = None  # the only variant to compare; None for every variant that the runs share
    metric: str = INDEX  # what to rank by
    adjustment: stats.Adjustment = "max-t"  # how a ranking allows for many comparisons
    # penalty, truthfulness_weights: of the weighted and of the truthfulness score
    penalty: float = 1.0
    truthfulness_weights: Weights = stats.TRUTHFULNESS_WEIGHTS
    confidence_level: float = 0.95  # of every interval
    seed: int = 0  # of the simulation behind max-t
    sampling: Sampling = OWN_COLUMNS  # what the columns that say how questions were sampled are called


@dataclass(frozen=True, repr=False)
class MatchedRuns(Shown):
    """Runs and the questions that they share, by variant: what a comparison and a ranking rest on."""

    runs: tuple[ComparedRun, ...]
    options: CompareOptions  # how they are compared

    @property
    def labels(self) -> list[str]:
        """The labels of the runs."""
        return [run.label for run in self.runs]

    @cached_property
    def variants_compared(self) -> Mapping[str, tuple[str | None, ...]]:
        """The variant of each run, by the name under which they are compared."""
        return _variants_compared(self.runs, self.options.variant)

    @cached_property
    def matches(self) -> Mapping[str, Match]:
        """The questions of each variant to compare."""
        return matched_variants(self.runs, self.options.variant)

    @cached_property
    def matches_with_index(self) -> Mapping[str, Match]:
        """Those in which every run has an index with a standard error: a joint index of each run rests on these."""
        return {name: match for name, match in self.matches.items() if all(_statuses(match) == "ok")}

    @cached_property
    def is_ri_corrected(self) -> bool:
        """Whether the corrected index of every run, under each variant that is compared, is RI."""
        chosen = self.variants_compared.values()
        tables = [run.variants[name] for names in chosen for run, name in zip(self.runs, names, strict=True)]
        return repeats_ri(tables, is_deterministic=all(is_deterministic(run.settings) for run in self.runs))

    @cached_property
    def corrected_indices(self) -> Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]]:
        """The corrected index of each run, by variant, of the variants in which every run has repeated samples."""
        tables = [
            _matched(run.variants[variant], match)
            for name, match in self.matches.items()
            for run, variant in zip(self.runs, self.variants_compared[name], strict=True)
        ]
        deterministic = [is_deterministic(run.settings) for run in self.runs] * len(self.matches)
        results = iter(corrected_indices(tables, deterministic))
        by_variant = {name: tuple(next(results) for _ in self.runs) for name in self.matches}
        return {name: each for name, each in by_variant.items() if all(map(is_defined, each))}

    @property
    def estimated_indices(self) -> Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]]:
        """Those of the corrected indices that every run has."""
        return {
            name: each
            for name, each in self.corrected_indices.items()
            if all(index.estimate is not None for index in each)
        }

    def match_document(self, match: Match) -> dict[str, Any]:
        """Return on which questions a comparison rests, and how they were sampled, as JSON holds it."""
        return {
            "paired": match.paired,
            "questions": len(match.matrix.question_ids),
            "left_out": dict(zip(self.labels, match.left_out, strict=True)),
            "sampling": describe(match.matrix.design, self.options.sampling),
        }

    def shared_document(self) -> dict[str, Any]:
        """Return in which settings the runs differ, and which range of the index missing questions leave, as JSON."""
        missing = {
            run.label: {variant or "all": asdict(one) for variant, one in missing_ranges(run.variants).items()}
            for run in self.runs
        }
        return {"settings_that_differ": differing_settings(self.runs), "missing": missing}

    def match_statement(self, match: Match, variant: str | None) -> Statement:
        """State on which questions a comparison rests; of one variant, where there are several."""
        if match.paired:
            left_out = [(label, count) for label, count in zip(self.labels, match.left_out, strict=True) if count]
            values = {"variant": variant, "questions": len(match.matrix.question_ids), "left_out": left_out}
            return Statement("matched", "scope", values)
        own = list(zip(self.labels, match.matrix.scored.sum(axis=1).tolist(), strict=True))
        shared = int(match.matrix.shared.sum())
        values = {"variant": variant, "shared": shared, "own": own}
        return Statement("partly_shared" if len(self.runs) > 2 or shared else "unpaired", "grave", values)

    def sampling_statements(self, match: Match) -> Iterator[Statement]:
        """State which clusters and weights intervals and p-values allow for."""
        sampling = describe(match.matrix.design, self.options.sampling)
        if sampling is not None and sampling["cluster"] is not None:
            few = sampling["clusters"] < FEW_CLUSTERS
            values = {"clusters": sampling["clusters"], "column": sampling["cluster"]}
            yield Statement("clusters", "grave" if few else "scope", {**values, "limit": FEW_CLUSTERS, "few": few})
        if sampling is not None and sampling["weight"] is not None:
            values = {"column": sampling["weight"], "worth": sampling["effective_by_weight"]}
            yield Statement("weights", "scope", values)


def _matched(outcomes: pl.DataFrame, match: Match) -> pl.DataFrame:
    """Keep the questions that the comparison rests on."""
    return outcomes.filter(pl.col("question_id").is_in(match.matrix.question_ids)) if match.paired else outcomes


def _statuses(match: Match) -> np.ndarray:
    design = stats.SamplingDesign.of(len(match.matrix.question_ids), **match.matrix.design)
    arrays = match.matrix.arrays if design is None else design.taking_part(match.matrix.arrays)
    return np.array([stats.refusal_index(table).status for table in tables_of_rows(arrays, design)])


def joint_corrected_indices(
    corrected: Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]],
) -> list[stats.CorrectedRefusalIndexResult]:
    """Return one corrected index of each run over all variants."""
    return [stats.joint_corrected_refusal_index(each) for each in zip(*corrected.values(), strict=True)]


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
    matrices = [match.matrix for match in matches.values()]
    questions = dict.fromkeys(question for matrix in matrices for question in matrix.question_ids)
    ids = {question: column for column, question in enumerate(questions)}
    stacked = [np.zeros((len(matrices[0].refused), len(matrices), len(ids)), bool) for _ in range(3)]
    design: dict[str, Any] = {}
    for row, matrix in enumerate(matrices):
        columns = [ids[question] for question in matrix.question_ids]
        for whole, part in zip(stacked, matrix.arrays, strict=True):
            whole[:, row, columns] = part
        for name, values in matrix.design.items():
            design.setdefault(name, np.zeros(len(ids), values.dtype))[columns] = values
    return tuple(stacked), design


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


def settings_statements(runs: Sequence[ComparedRun]) -> Iterator[Statement]:
    """Say in which settings other than the model the runs differ."""
    if differing := differing_settings(runs):
        yield Statement("settings_differ", "grave", {"settings": list(differing)})
