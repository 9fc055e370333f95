"""Rankings of models: their stability over settings for every metric, and by the Refusal Index with ties.

`ranking_stability` shows whether a metric ranks models alike in all settings, beyond the effects of correct rate and
refusal rate. A setting is a dataset and a prompt variant. The frame is the paper's table in long form, one row per
metric and removed effect; `paper_layout` converts it to the paper's layout. Where the paper is ambiguous, both readings
are given: W with and without the correction for ties, and isotonic functions for all models together or, as in the
wording of its appendix, for each model separately.

`ranking_with_ties` shows the ranking of `refusal-index compare` for three or more runs, by the joint index over all
variants that the models share.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study
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


@dataclass(frozen=True, eq=False)
class Grid:
    """Every metric of several models under the same settings."""

    # names of models and settings
    models: tuple[str, ...]
    settings: tuple[str, ...]
    scores: Mapping[str, FloatMatrix]  # values by metric, shape (settings, models)
    sources: tuple[tuple[tuple[RunResults, str | None], ...], ...]  # run and variant of each model, by setting
    notes: tuple[str, ...]  # what was left out


@study
def ranking_stability(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if fewer than two models share two settings."""
    grid = grid_of(runs, options.analysis)
    frame = with_ceiling(stability_frame(grid.scores, options.analysis.seed), grid, options)
    values = {
        "settings": grid.settings,
        "models": grid.models,
        "shown_settings": abridged(grid.settings),
        "shown_models": abridged(grid.models),
        "shuffles": N_RESAMPLES,
    }
    return Study(frame, _draw_stability, paper_layout, grid.notes, values)


def grid_of(runs: Sequence[RunResults], analysis: Analysis) -> Grid:
    """Return every metric of all models under the settings that they share.

    Raises NotPossibleError if fewer than two models share two settings in which all metrics are defined.
    """
    chosen, notes = inputs.chosen_runs(runs)
    by_setting: dict[tuple[str | None, str | None], dict[str, tuple[RunResults, str | None]]] = {}
    for run in chosen:
        for variant in run.tables:
            by_setting.setdefault((run.dataset, variant), {})[inputs.model_name(run)] = run, variant
    models = tuple(dict.fromkeys(map(inputs.model_name, chosen)))
    rows: dict[str, list[dict[str, float | None]]] = {}
    sources = []
    for setting, by_model in by_setting.items():
        named = ", ".join(part for part in setting if part) or inputs.ALL
        scores: dict[str, dict[str, float | None]] = {}
        for model, source in by_model.items():
            metrics = {
                metric.name: metric.estimate
                for metric in stats.metrics(
                    inputs.table_of(*source), weighted_score_p=analysis.payoffs.weighted_score_p
                )
            }
            scores[model] = {name: metrics[name] for name in inputs.COMPARED}
        missing = [model for model in models if model not in scores]
        undefined = [
            f"{METRICS[name].label} of {model}"
            for model, values in scores.items()
            for name, value in values.items()
            if value is None
        ]
        if missing or undefined:
            problem = f"it is missing for {abridged(missing)}" if missing else f"{abridged(undefined)} is undefined"
            notes = (*notes, f"The setting {named} is left out: {problem}.")
        else:
            rows[named] = [scores[model] for model in models]
            sources.append(tuple(by_model[model] for model in models))
    if len(models) < 2 or len(rows) < 2:
        shared = abridged(list(rows)) or "none"
        counted = f"{len(models)} ({abridged(models)}) and the settings that they share {shared}"
        raise NotPossibleError(f"; the models are {counted}", notes)
    matrices = {
        name: np.array([[scores[name] for scores in row] for row in rows.values()], float) for name in inputs.COMPARED
    }
    return Grid(models, tuple(rows), matrices, tuple(sources), notes)


def stability_frame(scores: Mapping[str, FloatMatrix], seed: int) -> pl.DataFrame:
    """Return the ranking stability of every metric, with and without effects removed.

    - `scores`: values by metric, shape (settings, models), including `correct_rate` and `refusal_rate`.
    - `seed`: seed of the random rankings.
    """
    effects = scores["correct_rate"], scores["refusal_rate"]
    rows: list[dict[str, Any]] = []
    for (name, matrix), fit_over in itertools.product(scores.items(), FIT_OVER):
        new_rows = stability.ranking_stability(matrix, *effects, fit_over=fit_over, n_resamples=N_RESAMPLES, rng=seed)
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

    The first row contains the means for random rankings, adjusted by the regressions of the last metric, the index; the
    frame contains the baseline of every cell.
    """
    rows = frame.filter(pl.col("fit_over").is_null() | (pl.col("fit_over") == FIT_OVER[0]))
    random = rows.filter(metric=rows["metric"][-1])
    table = [{"metric": "Random", **_printed_cells(random, "random_"), "W ceiling": UNDEFINED}]
    for (metric,), part in rows.group_by("metric", maintain_order=True):
        ceiling = number(part["kendall_w_ceiling"][0], 2)
        table.append({"metric": METRICS[str(metric)].label, **_printed_cells(part), "W ceiling": ceiling})
    return pl.DataFrame(table)


def _printed_cells(rows: pl.DataFrame, prefix: str = "") -> dict[str, str]:
    return {
        f"{label}{REMOVED_LABELS[row['removed']]}".strip(): number(row[f"{prefix}{statistic}"], 2)
        for statistic, label in (("kendall_w", "W "), ("winner_entropy", "H "))
        for row in rows.iter_rows(named=True)
    }


def _draw_stability(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one row of panels for W and one for winner entropy, with a column per removed effect."""
    axes = style.subplots(figure, style.WIDTH * 1.25, 4.3, 2, len(REMOVED_LABELS), sharex=True, sharey=True)
    statistics = {
        "kendall_w": "Kendall's W: 1 where all settings rank alike",
        "winner_entropy": "Winner entropy: 0 where one model always wins",
    }
    names = frame["metric"].unique(maintain_order=True).to_list()
    for panels, statistic in zip(axes, statistics, strict=True):
        for panel, removed in zip(panels, REMOVED_LABELS, strict=True):
            for row in frame.filter(removed=removed).iter_rows(named=True):
                _draw_statistic(panel, names.index(row["metric"]), row, statistic)
    for panel, label in zip(axes[0], REMOVED_LABELS.values(), strict=True):
        panel.set_title(label.replace("-", "\u2212 "))
    axes[0, 0].set(xlim=(-0.04, 1.04), xticks=[0, 0.5, 1])
    style.name_rows(axes.ravel(), [METRICS[name].label for name in names])
    for panels, label in zip(axes, statistics.values(), strict=True):
        panels[0].set_xlabel(label, loc="left")


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
"""Maximum number of pairs to draw; beyond it only those with the first-ranked model are drawn."""


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
            new_rows, further = _ranked(members, options)
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
    frame = pl.DataFrame(rows, schema=TIES_SCHEMA)
    values = {"data": "; ".join(data), "all_drawn": frame["drawn"].all(), "most_pairs": MAX_PAIRS}
    return Study(frame, _draw_ties, style.table(PRINTED_TIES, part="model"), notes, values)


def _ranked(runs: Sequence[RunResults], options: StudyOptions) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the rows of the ranking of the runs on one dataset, and notes on it."""
    if len(runs) < 2:
        raise NotPossibleError(f"it has the model {inputs.model_name(runs[0])} only")
    ranked = rank(runs, options.analysis)
    names = [inputs.model_name(run) for run in runs]
    unranked = (
        f"{names[run.row]} is not ranked: its index is {run.status} ({reason_text(run.reason)})."
        for run in ranked.ranking.unranked
    )
    unpaired = (
        () if ranked.match.paired else ("The models were asked different questions, so they are compared unpaired.",)
    )
    common = {
        "dataset": runs[0].dataset,
        "variants": ", ".join(map(str, [ranked.variant] if ranked.variant else shared_variants(runs))),
        "questions": int(ranked.match.matrix.scored.any(axis=0).sum()),
    }
    members = [*enumerate(ranked.ranking.runs, 1), *((None, run) for run in ranked.ranking.unranked)]
    rows: list[dict[str, Any]] = []
    for position, run in members:
        columns = {name: getattr(run, name) for name in ("estimate", "low", "high", "letters", "status", "reason")}
        rows.append(
            {"part": "model", "place": position, "run": run.row, "model": names[run.row], "drawn": True, **columns}
        )
    best = ranked.ranking.runs[0].row if ranked.ranking.runs else None
    pairs = ranked.ranking.pairs
    for pair in pairs:
        low, high = pair.simultaneous_interval
        labels = {"part": "difference", "model": names[pair.first], "other_model": names[pair.second]}
        is_drawn = len(pairs) <= MAX_PAIRS or best in (pair.first, pair.second)
        numbers = {"estimate": pair.estimate, "low": low, "high": high}
        numbers |= {"pvalue": pair.pvalue, "pvalue_max_t": pair.pvalue_max_t}
        rows.append({**labels, **numbers, "letters": "", "drawn": is_drawn, "status": "ok"})
    return [{**common, **row} for row in rows], (*unranked, *unpaired)


TIES_SCHEMA = schema(
    "dataset variants questions part place run model other_model estimate low high letters pvalue pvalue_max_t "
    "drawn status reason",
    variants=pl.String,
)


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
    height = 0.8 + 0.24 * sum(heights) + 0.4 * len(parts)
    ratios: dict[str, Any] = {"squeeze": False, "height_ratios": heights, "width_ratios": [1.3, 1]}
    axes = style.subplots(figure, style.WIDTH * 1.25, height, len(parts), 2, **ratios)
    for (left, right), part in zip(axes, parts, strict=True):
        models, pairs = (part.filter(part=kind, drawn=True) for kind in ("model", "difference"))
        _draw_models(left, models)
        _draw_pairs(right, pairs)
        suffix = f", {style.safe_text(part['dataset'][0])}" if len(parts) > 1 else ""
        left.set_title(f"Refusal Index{suffix}")
        right.set_title("Differences")


def _draw_models(axes: Axes, models: pl.DataFrame) -> None:
    # In the order of the runs, so that a model has the same colour in all figures.
    colours = style.model_colours(models.sort("run")["model"].to_list())
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
        axes.annotate(f"{row['status']}: {row['reason']}", (0, y), fontsize=6.5, color=style.GREY, va="center")
