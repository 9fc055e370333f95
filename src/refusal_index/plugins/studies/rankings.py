"""Rankings of models: their stability over settings for every metric, and by the Refusal Index with ties.

`ranking_stability` shows whether a metric ranks models alike in all settings, beyond the effects of correct rate and
refusal rate. A setting is a dataset and a prompt variant. The models and settings are those of the largest complete
block, where every metric is defined. If it lacks a dataset, the largest block with a setting of every dataset is shown
as well: with many models on SimpleQA and a few on all datasets, it has the eight settings of the paper. The frame is
the paper's table in long form, one row per metric and removed effect; `paper_layout` converts it to the paper's layout.
Where the paper is ambiguous, both readings are given: W with and without the correction for ties, and isotonic
functions for all models together or, as in the wording of its appendix, for each model separately.

`ranking_with_ties` shows the ranking of `refusal-index compare` for three or more runs, by the joint index over the
largest complete block of models and variants.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from refusal_index import stats
from refusal_index.data.analysis import Analysis
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.matching import shared_variants
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, precision, stability, style
from refusal_index.plugins.studies.inputs import COMPARED, CompleteBlock, largest_complete_block
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import UNDEFINED, abridged, number, reason_text

REMOVED_LABELS: Mapping[str, str] = {
    "nothing": "Default",
    "correct_rate": "-Correct",
    "refusal_rate": "-Refusal",
    "both": "-Both",
}
FIT_OVER: tuple[stability.FitOver, ...] = get_args(stability.FitOver)
N_RESAMPLES = 500

FloatMatrix = NDArray[np.float64]


MOST_CELLS = "most_cells"
EVERY_DATASET = "every_dataset"
"""Values of the column `block`: the largest complete block, and the largest with a setting of every dataset."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One model in one setting."""

    run: RunResults
    variant: str | None
    metrics: Mapping[str, float | None]  # by name; None where undefined or at the boundary

    @property
    def undefined(self) -> tuple[str, ...]:
        """The labels of the metrics that are undefined or at the boundary."""
        return tuple(METRICS[name].label for name, value in self.metrics.items() if value is None)


Cells = Mapping[str, Mapping[str, Cell]]
"""The cells of a grid by setting and model."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Every metric of several models under the same settings."""

    block: str  # `MOST_CELLS` or `EVERY_DATASET`
    # names of models and settings
    models: tuple[str, ...]
    settings: tuple[str, ...]
    scores: Mapping[str, FloatMatrix]  # values by metric, shape (settings, models)
    sources: tuple[tuple[tuple[RunResults, str | None], ...], ...]  # run and variant of each model, by setting


@study
def ranking_stability(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no two models share two settings."""
    grids, notes = grids_of(runs, options.analysis)
    frames = []
    for grid in grids:
        frame = with_ceiling(stability_frame(grid.scores, options.analysis.seed), grid, options)
        frames.append(frame.select(pl.lit(grid.block).alias("block"), pl.all()))
    described = [
        {
            "settings": len(grid.settings),
            "models": len(grid.models),
            "shown_settings": abridged(grid.settings, MAX_NAMED),
            "shown_models": abridged(grid.models, MAX_NAMED),
        }
        for grid in grids
    ]
    values = {"blocks": described, "shuffles": N_RESAMPLES, "left_out": bool(notes)}
    whole = pl.concat(frames, how="diagonal_relaxed")
    return Study(whole, _draw_stability, paper_layout, notes, values, _HEADINGS)


MAX_NAMED = 8
"""Maximum number of models or settings that a caption names."""


def grids_of(runs: Sequence[RunResults], analysis: Analysis) -> tuple[tuple[Grid, ...], tuple[str, ...]]:
    """Return every metric over the largest complete block of models and settings, and notes on what is left out.

    If that block lacks a dataset that two models share, a second grid is of the largest block with a setting of every
    such dataset, if there is one. Raises NotPossibleError if no two models share two settings in which all metrics are
    defined.
    """
    chosen, notes = inputs.chosen_runs(runs)
    cells = _cells(chosen, analysis)
    models = tuple(dict.fromkeys(map(inputs.model_name, chosen)))
    usable = {
        model: [setting for setting, row in cells.items() if model in row and not row[model].undefined]
        for model in models
    }
    block = largest_complete_block(usable)
    if block is None:
        shared = abridged([setting for setting, row in cells.items() if len(row) > 1]) or "none"
        counted = f"{len(models)} ({abridged(models)}) and the settings of more than one of them {shared}"
        problems = {setting: _why_left_out(row, models) for setting, row in cells.items()}
        undefined = (f"The setting {setting}: {problem}." for setting, problem in problems.items() if problem)
        raise NotPossibleError(f"; the models are {counted}", (*notes, *undefined))
    blocks = {MOST_CELLS: block}
    datasets = {
        setting: inputs.dataset_name(next(iter(row.values())).run.dataset)
        for setting, row in cells.items()
        if sum(setting in own for own in usable.values()) > 1
    }
    if set(datasets.values()) > {datasets[setting] for setting in block.settings}:
        wider = largest_complete_block(usable, groups=datasets)
        if wider is not None:
            blocks[EVERY_DATASET] = wider
    grids = []
    for name, found in blocks.items():
        notes = (*notes, *_block_notes(name, found, cells, models))
        rows = [[cells[setting][model] for model in found.models] for setting in found.settings]
        scores = {metric: np.array([[cell.metrics[metric] for cell in row] for row in rows]) for metric in COMPARED}
        sources = tuple(tuple((cell.run, cell.variant) for cell in row) for row in rows)
        grids.append(Grid(name, found.models, found.settings, scores, sources))
    return tuple(grids), notes


def _cells(runs: Sequence[RunResults], analysis: Analysis) -> Cells:
    """Return the metrics of every variant of every run, by setting and model."""
    cells: dict[str, dict[str, Cell]] = {}
    for run in runs:
        for variant in run.tables:
            setting = ", ".join(part for part in (run.dataset, variant) if part) or inputs.ALL
            table = inputs.table_of(run, variant)
            metrics = stats.metrics(table, weighted_score_p=analysis.payoffs.weighted_score_p)
            estimates = {metric.name: metric.estimate if metric.status == "ok" else None for metric in metrics}
            named = {name: estimates[name] for name in COMPARED}
            cells.setdefault(setting, {})[inputs.model_name(run)] = Cell(run, variant, named)
    return cells


def _block_notes(name: str, block: CompleteBlock, cells: Cells, models: Sequence[str]) -> Iterator[str]:
    """Yield notes on the size of a block, and on each setting and model that it leaves out."""
    settings = [setting for setting in cells if setting not in block.settings]
    others = [model for model in models if model not in block.models]
    if not settings and not others:
        return
    yield study_text(
        "ranking_stability",
        "block",
        models=len(block.models),
        settings=len(block.settings),
        is_largest=block.is_largest,
        all_models=len(models),
        all_settings=len(cells),
        every_dataset=name == EVERY_DATASET,
    )
    problems = {
        "setting": {setting: _why_left_out(cells[setting], block.models) for setting in settings},
        "model": {model: _why_model_is_left_out(model, cells, block.settings) for model in others},
    }
    for kind, of_kind in problems.items():
        for problem, names in _grouped(of_kind).items():
            yield study_text("ranking_stability", "left_out", kind=kind, names=names, problem=problem)


def _grouped(problems: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that have each problem."""
    grouped: dict[str, list[str]] = {}
    for name, problem in problems.items():
        grouped.setdefault(problem, []).append(name)
    return grouped


def _why_model_is_left_out(model: str, cells: Cells, settings: Sequence[str]) -> str:
    """Return in which of some settings a model has no value."""
    missing = [setting for setting in settings if model not in cells[setting]]
    undefined = [
        f"{abridged(cells[setting][model].undefined)} undefined or at the boundary in {setting}"
        for setting in settings
        if setting not in missing and cells[setting][model].undefined
    ]
    missing_text = [f"missing in {abridged(missing, MAX_NAMED)}"] if missing else []
    return "; ".join([*missing_text, *undefined[:MAX_NAMED]])


def _why_left_out(row: Mapping[str, Cell], models: Sequence[str]) -> str:
    """Return which of some models have no value in a setting; empty if all have one."""
    missing = [model for model in models if model not in row]
    undefined = [f"{label} of {model}" for model in models if model in row for label in row[model].undefined]
    problems = [f"missing for {abridged(missing, MAX_NAMED)}"] if missing else []
    problems += [f"{abridged(undefined)} undefined or at the boundary"] if undefined else []
    return "; ".join(problems)


def stability_frame(scores: Mapping[str, FloatMatrix], seed: int) -> pl.DataFrame:
    """Return the ranking stability of every metric, with and without effects removed.

    - `scores`: values by metric, shape (settings, models), including `correct_rate` and `refusal_rate`.
    - `seed`: seed of the random rankings.
    """
    rows: list[dict[str, Any]] = []
    for (name, matrix), fit_over in itertools.product(scores.items(), FIT_OVER):
        new_rows = stability.ranking_stability(
            matrix, scores["correct_rate"], scores["refusal_rate"], fit_over=fit_over, n_resamples=N_RESAMPLES, rng=seed
        )
        # Without removed effects there is no regression.
        rows += ({"metric": name, **row} for row in new_rows if row["fit_over"] or fit_over == FIT_OVER[0])
    return pl.DataFrame(rows, infer_schema_length=None)


def with_ceiling(frame: pl.DataFrame, grid: Grid, options: StudyOptions) -> pl.DataFrame:
    """Add W of each metric, without removed effects, if the settings differed only by sampling errors."""
    runs = {(run.label, run.dataset): run for setting in grid.sources for run, _ in setting}
    errors = precision.RunErrors(list(runs.values()), options, list(runs))
    ceilings = []
    for name, matrix in grid.scores.items():
        influences = np.array(
            [
                errors.of_variants((run.label, run.dataset), name)[list(run.tables).index(variant)]
                for setting in grid.sources
                for run, variant in setting
            ]
        )
        ceiling = precision.w_ceiling(matrix, influences, options.analysis.seed)
        columns = inputs.with_ends({"kendall_w_ceiling": ceiling})
        ceilings.append({"metric": name, "removed": "nothing", **columns, "ceiling_reason": ceiling.reason})
    added = pl.DataFrame(ceilings, infer_schema_length=None)
    return frame.join(added, on=["metric", "removed"], how="left", maintain_order="left")


def paper_layout(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table in the paper's layout: one row per metric, W and winner entropy side by side.

    The first row of a block contains the means for random rankings, adjusted by the regressions of the last metric, the
    index; the frame contains the baseline of every cell.
    """
    table = []
    for block in _each_block(frame):
        rows = block.filter(pl.col("fit_over").is_null() | (pl.col("fit_over") == FIT_OVER[0]))
        heading = {style.BLOCK: _size_text(block)}
        random = rows.filter(metric=rows["metric"][-1])
        table.append({**heading, "metric": "Random", **_printed_cells(random, "random_"), "W ceiling": UNDEFINED})
        for (metric,), part in rows.group_by("metric", maintain_order=True):
            ceiling = number(part["kendall_w_ceiling"][0], 2)
            label = METRICS[str(metric)].label
            table.append({**heading, "metric": label, **_printed_cells(part), "W ceiling": ceiling})
    return pl.DataFrame(table)


_HEADINGS = {
    f"{symbol} {label}": heading
    for symbol, heading in (("W", "Kendall's W"), ("H", "Winner entropy"))
    for label in REMOVED_LABELS.values()
}
"""Heading above each column of the paper's table."""


def _each_block(frame: pl.DataFrame) -> list[pl.DataFrame]:
    return frame.partition_by("block", maintain_order=True)


def _size_text(block: pl.DataFrame) -> str:
    """Return the numbers of models and settings of a block."""
    return f"{block['n_models'][0]} models, {block['n_settings'][0]} settings"


def _printed_cells(rows: pl.DataFrame, prefix: str = "") -> dict[str, str]:
    return {
        f"{symbol} {REMOVED_LABELS[row['removed']]}": number(row[f"{prefix}{statistic}"], 2)
        for statistic, symbol in {"kendall_w": "W", "winner_entropy": "H"}.items()
        for row in rows.iter_rows(named=True)
    }


_STATISTICS = {
    "kendall_w": "Kendall's W\n1: all settings rank alike",
    "winner_entropy": "Winner entropy\n0: one model always wins",
}


def _draw_stability(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw for each block a row of panels for W and one for winner entropy, with a column per removed effect."""
    blocks = _each_block(frame)
    rows = [(block, statistic) for block in blocks for statistic in _STATISTICS]
    axes = style.subplots(
        figure, style.WIDTH * 1.25, 2.15 * len(rows), len(rows), len(REMOVED_LABELS), sharex=True, sharey=True
    )
    names = frame["metric"].unique(maintain_order=True).to_list()
    for panels, (block, statistic) in zip(axes, rows, strict=True):
        for panel, removed in zip(panels, REMOVED_LABELS, strict=True):
            for row in block.filter(removed=removed).iter_rows(named=True):
                _draw_statistic(panel, names.index(row["metric"]), row, statistic)
        size = f"\n{_size_text(block)}" if len(blocks) > 1 else ""
        panels[0].set_ylabel(_STATISTICS[statistic] + size)
    for panel, label in zip(axes[0], REMOVED_LABELS.values(), strict=True):
        panel.set_title(label.replace("-", "\u2212 "))
    axes[0, 0].set(xlim=(-0.04, 1.04), xticks=[0, 0.5, 1])
    style.name_rows(axes.ravel(), [METRICS[name].label for name in names])


def _draw_statistic(axes: Axes, y_of_row: int, row: dict[str, Any], statistic: str) -> None:
    is_model = row["fit_over"] == "model"
    y = y_of_row + (0.0 if row["fit_over"] is None else 0.17 if is_model else -0.17)
    if row[statistic] is None:
        axes.annotate("nothing left", (0, y), va="center", fontsize=5.5, color=style.GREY)
        return
    xs = style.ends(row, f"random_{statistic}")
    axes.plot(xs, [y, y], color=style.PALE, linewidth=3.5, solid_capstyle="butt")
    axes.plot(row[f"random_{statistic}"], y, marker="|", color=style.GREY, markersize=5)
    if row.get(f"{statistic}_ceiling") is not None:
        axes.plot(row[f"{statistic}_ceiling"], y, marker="|", color=style.INK, markersize=7, markeredgewidth=1.2)
    colour = style.MODEL_COLOURS[1] if row["metric"] == "refusal_index" else style.INK
    axes.plot(row[statistic], y, "o", color=colour, markerfacecolor="white" if is_model else colour, markersize=4.5)


MAX_PAIRS = 15
"""Maximum number of pairs to draw over all datasets; with more only those with the first-ranked model are drawn."""


@study
def ranking_with_ties(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no dataset has two models with a variant in common."""
    chosen, notes = inputs.chosen_runs(runs)
    by_dataset: dict[str | None, list[RunResults]] = {}
    for run in chosen:
        by_dataset.setdefault(run.dataset, []).append(run)
    rows: list[dict[str, Any]] = []
    data = []
    for dataset, members in by_dataset.items():
        try:
            new_rows, further = _ranked(members, options, MAX_PAIRS // len(by_dataset))
        except (NotPossibleError, OutcomeTableError) as problem:
            notes = (*notes, f"{inputs.dataset_name(dataset)} is left out: {problem}.")
            continue
        rows += new_rows
        notes = (*notes, *further)
        n_asked = new_rows[0]["questions"]
        prompts = new_rows[0]["variants"]
        data.append(f"{inputs.dataset_name(dataset)}, {n_asked:,} questions, prompts {prompts}")
    if not rows:
        raise NotPossibleError(notes=notes)
    frame = pl.DataFrame(
        rows,
        schema=schema(
            "dataset variants questions part place run model other_model estimate low high letters pvalue pvalue_max_t "
            "drawn status reason",
            variants=pl.String,
        ),
    )
    return Study(
        frame,
        _draw_ties,
        style.table(PRINTED_TIES, part="model"),
        notes,
        values={"data": "; ".join(data), "all_drawn": frame["drawn"].all(), "most_pairs": MAX_PAIRS // len(by_dataset)},
    )


def _ranked(
    runs: Sequence[RunResults], options: StudyOptions, max_pairs: int
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the rows of the ranking of the runs on one dataset, and notes on it.

    - `max_pairs`: the maximum number of pairs of which all are drawn.
    """
    if len(runs) < 2:
        raise NotPossibleError(f"it has the model {inputs.model_name(runs[0])} only")
    whole = {inputs.model_name(run): run for run in runs}
    results = {
        name: {variant or inputs.ALL: stats.refusal_index(inputs.table_of(run, variant)) for variant in run.tables}
        for name, run in whole.items()
    }
    usable = {
        name: [variant for variant, result in of_model.items() if result.standard_error is not None]
        for name, of_model in results.items()
    }
    block = largest_complete_block(usable, least_settings=1)
    if block is None:
        raise NotPossibleError("no two models share a prompt under which the index of both has a standard error")
    chosen = [
        run.with_tables({name: rows for name, rows in run.tables.items() if (name or inputs.ALL) in block.settings})
        for run in map(whole.__getitem__, block.models)
    ]
    ranked = rank(chosen, options.analysis)
    names = list(block.models)
    notes = list(_ties_notes(block, results))
    if ranked.left_out:
        notes.append(study_text("ranking_with_ties", "unmatched", variants=ranked.left_out))
    notes += (
        f"{names[run.row]} is not ranked: its index is {run.status} ({reason_text(run.reason)})."
        for run in ranked.ranking.unranked
    )
    if not ranked.match.paired:
        notes.append("The models were asked different questions, so they are compared unpaired.")
    common = {
        "dataset": runs[0].dataset,
        "variants": ", ".join(map(str, [ranked.variant] if ranked.variant else shared_variants(chosen))),
        "questions": int(ranked.match.matrix.scored.any(axis=0).sum()),
    }
    rows: list[dict[str, Any]] = []
    places = {name: place for place, name in enumerate(whole)}
    for position, run in [*enumerate(ranked.ranking.runs, 1), *((None, run) for run in ranked.ranking.unranked)]:
        columns = {name: getattr(run, name) for name in ("estimate", "low", "high", "letters", "status", "reason")}
        model = names[run.row]
        rows.append(
            {"part": "model", "place": position, "run": places[model], "model": model, "drawn": True, **columns}
        )
    for name in whole:
        if name not in block.models:
            why = _why_unranked(results[name], block.settings)
            rows.append({"part": "model", "run": places[name], "model": name, "drawn": True, "letters": "", **why})
    best = ranked.ranking.runs[0].row if ranked.ranking.runs else None
    pairs = ranked.ranking.pairs
    for pair in pairs:
        low, high = pair.simultaneous_interval
        rows.append(
            {
                "part": "difference",
                "model": names[pair.first],
                "other_model": names[pair.second],
                "estimate": pair.estimate,
                "low": low,
                "high": high,
                "letters": "",
                "pvalue": pair.pvalue,
                "pvalue_max_t": pair.pvalue_max_t,
                "drawn": len(pairs) <= max_pairs or best in (pair.first, pair.second),
                "status": "ok",
            }
        )
    return [{**common, **row} for row in rows], tuple(notes)


Indices = Mapping[str, stats.RefusalIndexResult]
"""The index of a model by variant."""


def _why_unranked(indices: Indices, variants: Sequence[str]) -> dict[str, str | None]:
    """Return status and reason of a model without an index in some of the variants that are ranked."""
    for variant in variants:
        if variant in indices and indices[variant].standard_error is None:
            return {"status": indices[variant].status, "reason": indices[variant].reason}
    return {"status": "left_out", "reason": "not_asked_under_every_prompt"}


def _ties_notes(block: CompleteBlock, results: Mapping[str, Indices]) -> Iterator[str]:
    """Yield notes on the models and variants that are not in the block, and why."""
    for name, indices in results.items():
        if name not in block.models:
            missing = [variant for variant in block.settings if variant not in indices]
            texts = [
                f"its index under {variant} is {indices[variant].status} ({reason_text(indices[variant].reason)})"
                for variant in block.settings
                if variant in indices and indices[variant].standard_error is None
            ]
            texts += [f"it was not asked under {abridged(missing)}"] if missing else []
            yield f"{name} is not ranked: {'; '.join(texts)}."
    for variant in dict.fromkeys(variant for indices in results.values() for variant in indices):
        if variant not in block.settings:
            missing = [name for name in block.models if variant not in results[name]]
            texts = [
                f"the index of {name} is {results[name][variant].status} ({reason_text(results[name][variant].reason)})"
                for name in block.models
                if name not in missing and results[name][variant].standard_error is None
            ]
            texts += [f"missing for {abridged(missing, MAX_NAMED)}"] if missing else []
            yield f"The prompt {variant} is left out: {'; '.join(texts)}."


PRINTED_TIES: Mapping[str, str | style.Cell] = {
    "dataset": "dataset",
    "place": lambda row: str(row["place"] or UNDEFINED),
    "model": "model",
    "RI": style.ranged("estimate"),
    "letters": "letters",
}


def _draw_ties(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw for each dataset the models with their letters, and their differences with simultaneous intervals."""
    parts = frame.partition_by("dataset", maintain_order=True)
    heights = [
        max(part.filter(part=kind, drawn=True).height for kind in ("model", "difference")) + 1.5 for part in parts
    ]
    height = 0.8 + min(0.24, 8.0 / sum(heights)) * sum(heights) + 0.4 * len(parts)
    axes = style.subplots(
        figure, style.WIDTH * 1.25, height, len(parts), 2, squeeze=False, height_ratios=heights, width_ratios=[1.3, 1]
    )
    # In the order of the runs, so that a model has the same colour in all panels and figures.
    colours = style.model_colours([model for part in parts for model in part.filter(part="model").sort("run")["model"]])
    for (left, right), part in zip(axes, parts, strict=True):
        models, pairs = (part.filter(part=kind, drawn=True) for kind in ("model", "difference"))
        _draw_models(left, models, colours)
        _draw_pairs(right, pairs)
        suffix = f", {style.safe_text(part['dataset'][0])}" if len(parts) > 1 else ""
        left.set_title(f"Refusal Index{suffix}")
        right.set_title("Differences")


def _draw_models(axes: Axes, models: pl.DataFrame, colours: Mapping[str, str]) -> None:
    for y, row in enumerate(models.iter_rows(named=True)):
        _draw_interval(axes, y, row, colours[row["model"]])
    ranked = models.filter(pl.col("place").is_not_null())
    reach = axes.get_xlim()
    style.few_ticks(axes.xaxis, 5)
    axes.set_xticks([tick for tick in axes.get_xticks() if reach[0] <= tick <= reach[1]])
    step = 0.12 * (reach[1] - reach[0])
    memberships = [row.split() if " " in row else list(row) for row in ranked["letters"]]
    for column, letter in enumerate(
        sorted({character for row in memberships for character in row}, key=lambda x: (len(x), x))
    ):
        x = reach[1] + (column + 1) * step
        members = [y for y, row in enumerate(memberships) if letter in row]
        axes.plot([x, x], [members[0], members[-1]], color=style.PALE, linewidth=7.5, solid_capstyle="round", zorder=0)
        for y in members:
            axes.annotate(letter, (x, y), ha="center", va="center", fontsize=6.5)
    style.name_rows([axes], list(style.short_names(models["model"].to_list()).values()))


def _draw_pairs(axes: Axes, pairs: pl.DataFrame) -> None:
    if not pairs.height:
        axes.set_axis_off()
        return
    axes.axvline(0, color=style.GREY, linewidth=0.8)
    names = style.short_names([*pairs["model"], *pairs["other_model"]], 18)
    labels = []
    for y, row in enumerate(pairs.iter_rows(named=True)):
        tied = row["low"] <= 0 <= row["high"]
        _draw_interval(axes, y, row, style.GREY if tied else style.INK)
        labels.append(f"{names[row['model']]} \u2212 {names[row['other_model']]}")
    style.name_rows([axes], labels)
    axes.tick_params(axis="y", labelsize=6.5)


def _draw_interval(axes: Axes, y: float, row: dict[str, Any], colour: str) -> None:
    face = None if row["status"] == "ok" else style.PAPER
    style.mark(axes, row["estimate"], y, colour, xs=style.ends(row), face=face, size=5, width=1.4)
    if row["estimate"] is None:
        axes.annotate(
            f"{row['status']}: {reason_text(row['reason'])}", (0, y), fontsize=6.5, color=style.GREY, va="center"
        )
