"""Which run stands for a model where there are several of it, which variant for a run, and what to call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.outcomes.counts import contingency_table
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import ContingencyTable, refusal_index
from refusal_index.studies.scores import ALL


@dataclass(frozen=True)
class DefinedTable:
    """One variant of a run whose Refusal Index is defined: what to call the run, the variant, and its counts."""

    run: ComparedRun
    name: str
    variant: str | None
    table: ContingencyTable

    @property
    def where(self) -> dict[str, str | None]:
        """The columns that say whose row it is."""
        return {"model": self.name, "dataset": self.run.dataset, "variant": self.variant or ALL}


def chosen_runs(runs: Sequence[ComparedRun]) -> tuple[tuple[ComparedRun, ...], tuple[str, ...]]:
    """Pick one run of each model and dataset, the one with the most graded questions, and say what is left out.

    - returned `chosen`: in the order of the runs.
    - returned `notes`: a sentence for each run left out.
    """
    best: dict[tuple[str, str | None], ComparedRun] = {}
    for run in runs:
        key = model_name(run), run.dataset
        if key not in best or _graded(run) > _graded(best[key]):
            best[key] = run
    notes = (
        f"{run.label} is left out: {best[model_name(run), run.dataset].label} has more graded questions of the same "
        "model and dataset."
        for run in runs
        if best[model_name(run), run.dataset] is not run
    )
    return tuple(run for run in runs if best[model_name(run), run.dataset] is run), tuple(notes)


def model_name(run: ComparedRun) -> str:
    """Return what to call a run's model."""
    return run.model or run.label


def display_names(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Return what to call each run: its model, where that says it, else its label."""
    names = [model_name(run) for run in runs]
    return tuple(run.label if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True))


def reference_variant(run: ComparedRun) -> str | None:
    """Return the variant that stands for a run where one has to: ``normal``, else the first."""
    return "normal" if "normal" in run.variants else next(iter(run.variants))


def table_of(run: ComparedRun, variant: str | None) -> ContingencyTable:
    """Count the first draws of one variant."""
    return contingency_table(first_draws(run.variants[variant]))


def defined_tables(
    runs: Sequence[ComparedRun], *, only_reference: bool = False
) -> tuple[list[DefinedTable], tuple[str, ...]]:
    """Count every variant of some runs, or the one that stands for each, and say which has no index.

    - returned `tables`: those whose Refusal Index is defined.
    - returned `notes`: a sentence for each of the others.
    """
    tables, notes = [], []
    for run, name in zip(runs, display_names(runs), strict=True):
        for variant in [reference_variant(run)] if only_reference else run.variants:
            table = table_of(run, variant)
            found = refusal_index(table)
            if found.status == "undefined":
                notes.append(f"{name}, {variant or ALL} is left out: its index is undefined ({found.reason}).")
            else:
                tables.append(DefinedTable(run, name, variant, table))
    return tables, tuple(notes)


def _graded(run: ComparedRun) -> int:
    return sum(table_of(run, variant).n for variant in run.variants)
