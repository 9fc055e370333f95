"""Inputs of studies: runs, their reference variants and metrics, complete blocks, and information about their models.

The paper's 16 rows [1]_ are shown with runs on SimpleQA, rounded to two digits as printed. They have two
inconsistencies: the interval of Gemma-3-12B does not contain its Refusal Index, and the weighted scores are those
with p = 1, whereas the text states 0.2.

**Complete blocks.** Rankings of models under several settings need a value of every model in every setting. A complete
block is a set of models and a set of settings without a missing cell. Among all of them the one with the most cells is
used; of several, the one with the most models; of these, the first by name. A block that no setting can be added to has
the settings that some of the models share. These are found by intersecting the settings of one model after the other.
They are at most 2^16 if there are 16 models or 16 settings, and in practice few, since models usually miss the same
settings. Only if there are more, the sets that begin the largest blocks are kept at each step, and the block found may
not be the largest.

References
----------
.. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal
   in Factual Tasks. Table "Results on SimpleQA with 95% CI".
"""

from __future__ import annotations

import heapq
import io
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import polars as pl

from refusal_index.data.published import paper_rows, published_results
from refusal_index.data.rates import contingency_table, first_draws, never_forced, variant_metrics
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.draws import joint_index
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions, study_text
from refusal_index.render.format import abridged, reason_text
from refusal_index.stats import ContingencyTable, Estimate, refusal_index

COMPARED = ("correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score", INDEX)
"""The metrics of the paper's tables, in their order."""

ALL = "all"
"""Name of the only variant of outcomes without variants."""


@dataclass(frozen=True)
class VariantScores:
    """One variant of a run."""

    variant: str
    table: ContingencyTable  # counts of scored questions, first draws only
    metrics: Mapping[str, Estimate]  # by name
    unscored: int  # number of questions without a grade


@dataclass(frozen=True)
class RunIndex:
    """The Refusal Index of a run over all its variants: the joint estimate, or that of its only variant."""

    index: Estimate
    mean: float | None  # mean of the variants' indices, as in the paper; None if none is defined
    variants: int  # number of variants included


def variant_scores(run: RunResults, options: StudyOptions) -> tuple[VariantScores, ...]:
    """Return every metric of every variant, in the order of the run."""
    scores = []
    for variant, outcomes in run.tables.items():
        first = first_draws(outcomes)
        metrics = variant_metrics(first, options.analysis)
        table = contingency_table(first)
        by_name = {metric.name: metric for metric in metrics}
        scores.append(VariantScores(variant or ALL, table, by_name, first.height - table.n))
    return tuple(scores)


def run_index(run: RunResults, options: StudyOptions) -> RunIndex:
    """Estimate the Refusal Index of a run over all its variants."""
    scores = variant_scores(run, options)
    mean = mean_of(scores, INDEX)
    joint = joint_index(list(run.tables.values()), options.analysis)
    if joint is None:  # there is one variant
        return RunIndex(scores[0].metrics[INDEX], mean, int(mean is not None))
    index, result = joint
    return RunIndex(index, mean, len(scores) - len(result.left_out))


def mean_of(scores: Sequence[VariantScores], name: str) -> float | None:
    """Return the mean of a metric over the variants in which it is defined, None if there are none."""
    values = [item.metrics[name].estimate for item in scores]
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined else None


def of_one_dataset(runs: Sequence[RunResults]) -> tuple[tuple[RunResults, ...], tuple[str, ...]]:
    """Return the runs on the most frequent dataset, the first of several, and notes on the runs left out.

    Since all remaining runs are on one dataset, they are labelled by their models if these are distinct. Raises
    NotPossibleError if there are no runs.
    """
    if not runs:
        raise NotPossibleError("It needs one run or more.")
    counted = Counter(run.dataset for run in runs)
    chosen = max(counted, key=lambda dataset: counted[dataset])
    left_out = [run.label for run in runs if run.dataset != chosen]
    note = study_text("shared", "one_dataset", dataset=dataset_name(chosen), left_out=abridged(left_out))
    on_dataset = [run for run in runs if run.dataset == chosen]
    models = Counter(run.model for run in on_dataset)
    named = (replace(run, label=run.model) if run.model and models[run.model] == 1 else run for run in on_dataset)
    return tuple(named), (note,) if left_out else ()


def left_out(reason: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return a note that names what was left out and why; none if nothing was."""
    return (f"{reason}: {abridged(names)}.",) if names else ()


def left_out_since(names_by_reason: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a note on what was left out for each reason, which is a clause."""
    for reason, names in names_by_reason.items():
        yield from left_out(f"{len(names):,} left out, since {reason}", names)


def dataset_name(dataset: str | None) -> str:
    """Return the display name of a dataset, which may have no name."""
    return dataset or "a dataset without a name"


def data_values(runs: Sequence[RunResults]) -> dict[str, str]:
    """Return the caption values that describe the data of runs on one dataset."""
    counts = sorted({outcomes["question_id"].n_unique() for run in runs for outcomes in run.tables.values()})
    questions = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return {"dataset": dataset_name(runs[0].dataset), "questions": f"{questions} questions"}


@dataclass(frozen=True)
class DefinedTable:
    """A variant of a run with a defined Refusal Index: display name of the run, variant, and counts."""

    run: RunResults
    name: str
    variant: str | None
    table: ContingencyTable

    @property
    def where(self) -> dict[str, str | None]:
        """The columns that identify the variant."""
        return {"model": self.name, "dataset": self.run.dataset, "variant": self.variant or ALL}


def chosen_runs(runs: Sequence[RunResults]) -> tuple[tuple[RunResults, ...], tuple[str, ...]]:
    """Return one run for each model and dataset, the one with the most graded questions, and notes on the others.

    A run without a forced pass is chosen only if there is no other.

    - returned `chosen`: the selected runs, in their order.
    - returned `notes`: a sentence for each run left out.
    """
    best: dict[tuple[str, str | None], RunResults] = {}
    for run in runs:
        key = model_name(run), run.dataset
        best[key] = max(
            best.get(key, run),
            run,
            key=_graded_questions,
        )
    notes = (
        f"{run.label} is left out: {best[model_name(run), run.dataset].label} has no fewer graded questions of the "
        "same model and dataset."
        for run in runs
        if best[model_name(run), run.dataset] is not run
    )
    return tuple(run for run in runs if best[model_name(run), run.dataset] is run), tuple(notes)


def _graded_questions(run: RunResults) -> tuple[int, int]:
    """Return the number of questions graded in both passes, and in the first."""
    first = [first_draws(rows) for rows in run.tables.values()]
    graded = [contingency_table(rows).n for rows in first]
    return sum(n for n, rows in zip(graded, first, strict=True) if not never_forced(rows)), sum(graded)


def model_name(run: RunResults) -> str:
    """Return the display name of a run's model."""
    return run.model or run.label


def display_names(runs: Sequence[RunResults]) -> tuple[str, ...]:
    """Return the display name of each run: its model if that is unique, else its label."""
    names = [model_name(run) for run in runs]
    return tuple(run.label if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True))


def reference_variant(run: RunResults) -> str | None:
    """Return the variant that represents a run: ``normal``, else the first."""
    return "normal" if "normal" in run.tables else next(iter(run.tables))


def table_of(run: RunResults, variant: str | None) -> ContingencyTable:
    """Return the counts of the first draws of one variant."""
    return contingency_table(first_draws(run.tables[variant]))


def defined_tables(
    runs: Sequence[RunResults], *, only_reference: bool = False
) -> tuple[list[DefinedTable], tuple[str, ...]]:
    """Return the counts of every variant of `chosen_runs`, or of each run's reference variant, if the index is defined.

    - returned `tables`: variants with a defined Refusal Index.
    - returned `notes`: a sentence for each run left out, and one for each reason why other variants are.
    """
    tables = []
    chosen, left_out_runs = chosen_runs(runs)
    undefined: dict[str, list[str]] = {}
    for run, name in zip(chosen, display_names(chosen), strict=True):
        for variant in [reference_variant(run)] if only_reference else run.tables:
            table = table_of(run, variant)
            result = refusal_index(table)
            if result.status == "undefined":
                reason = f"RI is undefined ({reason_text(result.reason)})"
                undefined.setdefault(reason, []).append(f"{name}, {variant or ALL}")
            else:
                tables.append(DefinedTable(run, name, variant, table))
    return tables, (*left_out_runs, *left_out_since(undefined))


def with_ends(estimates: Mapping[str, Estimate]) -> dict[str, float | None]:
    """Return the columns of some estimates: ``NAME``, ``NAME_low`` and ``NAME_high``."""
    columns: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        columns |= {name: estimate.estimate, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return columns


MAX_SETS = 2**16
"""Maximum number of sets of settings up to which the block is the largest."""


@dataclass(frozen=True)
class CompleteBlock:
    """Models and settings without a missing cell, in the order in which they were given."""

    models: tuple[str, ...]
    settings: tuple[str, ...]
    is_largest: bool = True  # whether all blocks were compared

    @property
    def cells(self) -> int:
        """The number of models times the number of settings."""
        return len(self.models) * len(self.settings)


def largest_complete_block(
    settings_of: Mapping[str, Collection[str]],
    *,
    least_models: int = 2,
    least_settings: int = 2,
    groups: Mapping[str, str] | None = None,
) -> CompleteBlock | None:
    """Return the complete block with the most cells, None if none is large enough.

    - `settings_of`: the settings in which each model has a value.
    - `least_models`, `least_settings`: minimum size of the block.
    - `groups`: the group of each setting; the block then has a setting of each group.

    >>> block = largest_complete_block({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["y"]})
    >>> block.models, block.settings
    (('a', 'b'), ('x', 'y'))
    """
    given = {model: frozenset(settings) for model, settings in settings_of.items()}
    order = list(dict.fromkeys(setting for settings in settings_of.values() for setting in settings))
    groups = groups or {}
    needed = set(groups.values())

    def block_of(settings: frozenset[str]) -> CompleteBlock:
        """Return the block of some settings and all models that have a value in each of them."""
        models = tuple(model for model, own in given.items() if settings <= own)
        return CompleteBlock(models, tuple(setting for setting in order if setting in settings))

    shared: set[frozenset[str]] = set()
    is_largest = True
    for own in given.values():
        shared |= {own, *(own & other for other in shared)}
        if len(shared) > MAX_SETS:
            is_largest = False
            shared = set(
                heapq.nlargest(MAX_SETS, shared, key=lambda settings: (block_of(settings).cells, sorted(settings)))
            )
    blocks = [
        block
        for block in map(block_of, shared)
        if len(block.models) >= least_models
        and len(block.settings) >= least_settings
        and needed <= {groups.get(setting) for setting in block.settings}
    ]
    if not blocks:
        return None
    most = max((block.cells, len(block.models)) for block in blocks)
    largest = [block for block in blocks if (block.cells, len(block.models)) == most]
    first = min(largest, key=lambda block: (sorted(block.models), sorted(block.settings)))
    return replace(first, is_largest=is_largest)


PAPER = "paper"
"""Value of the column `source` for the paper's rows; rows of runs have ``run``."""
RUN = "run"
SIMPLEQA = "simpleqa"
PAPER_P = 1.0
"""p of the weighted scores printed in the paper."""


def published_heading(dataset: str) -> str:
    """Return the heading of the paper's rows of the table that has a dataset."""
    return f'Published: Pan et al., table "{published_results()[dataset].caption}", as printed'


PAPER_SOURCE = published_heading(SIMPLEQA)
"""Heading of the paper's rows in tables."""

KNOWN_FAMILIES = ("claude", "gemini", "gemma", "qwen", "mistral", "llama", "gpt", "deepseek", "glm", "phi", "almanac")
_COLUMNS = {"model": pl.String, "family": pl.String, "parameters_billion": pl.Float64}
_ACTIVE = "active_parameters_billion"


class ModelTableError(RefusalIndexError, ValueError):
    """An invalid table of models."""


def paper_context(runs: Sequence[RunResults], options: StudyOptions) -> pl.DataFrame:
    """Return the paper's rows if they are wanted and all runs are on SimpleQA, else an empty table."""
    on_simpleqa = bool(runs) and not options.without_paper and all(run.dataset_id == SIMPLEQA for run in runs)
    return paper_rows() if on_simpleqa else paper_rows().clear()


def known_models(own_table: Path | None) -> pl.DataFrame:
    """Return the table of known models: the user's own first, then those of the paper and the embedded ones.

    Raises ModelTableError if the user's table cannot be read or lacks a column.
    """
    embedded = pl.read_csv((files("refusal_index.plugins.studies") / "data" / "models.csv").read_bytes())
    columns = [*_COLUMNS, _ACTIVE]
    own_models = [_read_models(own_table)] if own_table else []
    return pl.concat([table.select(columns) for table in (*own_models, embedded, paper_rows())], how="vertical_relaxed")


def find_model(model: str | None, models: pl.DataFrame) -> dict[str, object] | None:
    """Return a model's row by its name, with or without its provider: ``openai/gpt-4.1`` matches ``GPT-4.1``."""
    if model is None:
        return None
    names = {model.casefold(), model.rpartition("/")[2].casefold()}
    return next((row for row in models.iter_rows(named=True) if str(row["model"]).casefold() in names), None)


def family_of(model: str | None, models: pl.DataFrame) -> str:
    """Return a model's family: from the tables, else from a known family name in its name, else its provider.

    >>> [family_of(model, paper_rows()) for model in ("together/meta-llama-9", "acme/one", None)]
    ['Llama', 'acme', 'unknown']
    """
    row = find_model(model, models)
    if row is not None and row["family"]:
        return str(row["family"])
    if not model:
        return "unknown"
    spelt = {str(family).casefold(): str(family) for family in paper_rows()["family"]}
    within = next((name for name in KNOWN_FAMILIES if name in model.casefold()), None)
    return spelt.get(within, within) if within else model.partition("/")[0]


def _read_models(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(io.BytesIO(path.read_bytes()))
        missing = [name for name in _COLUMNS if name not in table.columns]
        if not missing:
            active = pl.col(_ACTIVE) if _ACTIVE in table.columns else pl.col("parameters_billion").alias(_ACTIVE)
            return table.select(*(pl.col(name).cast(kind) for name, kind in _COLUMNS.items()), active.cast(pl.Float64))
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ModelTableError(
            f"{path}: expected a CSV table of models, which could not be read ({reason}); give a file with the "
            f"columns {', '.join(_COLUMNS)}, numbers in the last"
        ) from error
    raise ModelTableError(
        f"{path}: expected the columns {', '.join(_COLUMNS)}, got {', '.join(table.columns)}; add {missing[0]!r}"
    )
