"""Whether a metric ranks models alike in all settings, beyond what correct rate and refusal rate say already.

A setting is a dataset and a prompt variant. The frame has the paper's table in long form, one row a metric and a
removed effect; `paper_layout` puts it into the paper's shape. Where the paper leaves a choice, both are given: W with
and without the correction for ties, and isotonic functions over all models together or, as its appendix words it, for
each model by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import stability
from refusal_index.plugins.studies.runs import ALL, COMPARED, chosen_runs, model_name, table_of
from refusal_index.plugins.studies.sampling_error import RunErrors
from refusal_index.plugins.studies.stability import kendall_w_ceiling
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.style import GREY, INK, MODEL_COLOURS, PALE, WIDTH
from refusal_index.render.format import UNDEFINED, abridged, number

REMOVED_LABELS: Mapping[str, str] = {
    "nothing": "Default",
    "correct_rate": "-Correct",
    "refusal_rate": "-Refusal",
    "both": "-Both",
}
FIT_OVER = ("all", "model")
CEILING_COLUMNS = ("kendall_w_ceiling", "kendall_w_ceiling_low", "kendall_w_ceiling_high", "ceiling_reason")
AT_BOUNDARY = stats.Estimate(None, status="undefined", reason="index_at_boundary")
N_RESAMPLES = 500

FloatMatrix = NDArray[np.float64]
Setting = tuple[str | None, str | None]


@dataclass(frozen=True, eq=False)
class Grid:
    """Every metric of some models under the same settings."""

    # models, settings: their names
    models: tuple[str, ...]
    settings: tuple[str, ...]
    scores: Mapping[str, FloatMatrix]  # by metric, shape (settings, models)
    sources: tuple[tuple[tuple[ComparedRun, str | None], ...], ...]  # the run and its variant, setting by setting
    notes: tuple[str, ...]  # what was left out


@study
def ranking_stability(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if fewer than two models share two settings."""
    grid = grid_of(runs, options.penalty)
    frame = with_ceiling(stability_frame(grid.scores, options.seed), grid, options)
    values = {
        "settings": grid.settings,
        "models": grid.models,
        "shown_settings": abridged(grid.settings),
        "shown_models": abridged(grid.models),
        "shuffles": N_RESAMPLES,
    }
    return Study(frame, draw, paper_layout, grid.notes, values)


def setting_name(setting: Setting) -> str:
    """Return what to call a setting."""
    return ", ".join(part for part in setting if part) or ALL


def grid_of(runs: Sequence[ComparedRun], penalty: float) -> Grid:
    """Compute every metric of all models under the settings that they share.

    Raises NotPossibleError if fewer than two models share two settings in which all metrics are defined.
    """
    chosen, notes = chosen_runs(runs)
    found: dict[Setting, dict[str, tuple[ComparedRun, str | None]]] = {}
    for run in chosen:
        for variant in run.variants:
            found.setdefault((run.dataset, variant), {})[model_name(run)] = run, variant
    models = tuple(dict.fromkeys(map(model_name, chosen)))
    rows: dict[str, list[dict[str, float]]] = {}
    sources = []
    for setting, by_model in found.items():
        scores = {model: _scores(table_of(*source), penalty) for model, source in by_model.items()}
        problem = _why_left_out(models, scores)
        if problem:
            notes = (*notes, f"The setting {setting_name(setting)} is left out: {problem}.")
        else:
            rows[setting_name(setting)] = [_defined(scores[model]) for model in models]
            sources.append(tuple(by_model[model] for model in models))
    if len(models) < 2 or len(rows) < 2:
        raise NotPossibleError(_why_not_possible(models, rows), notes)
    matrices = {name: np.array([[scores[name] for scores in row] for row in rows.values()]) for name in COMPARED}
    return Grid(models, tuple(rows), matrices, tuple(sources), notes)


def _scores(table: stats.ContingencyTable, penalty: float) -> dict[str, float | None]:
    found = {metric.name: metric.estimate for metric in stats.metrics(table, penalty=penalty)}
    return {name: found[name] for name in COMPARED}


def _why_left_out(models: Iterable[str], scores: Mapping[str, Mapping[str, float | None]]) -> str | None:
    missing = [model for model in models if model not in scores]
    if missing:
        return f"it is missing for {abridged(missing)}"
    undefined = [
        f"{METRICS[name].label} of {model}"
        for model, values in scores.items()
        for name, value in values.items()
        if value is None
    ]
    return f"{abridged(undefined)} is undefined" if undefined else None


def _defined(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None}


def _why_not_possible(models: Sequence[str], settings: Iterable[str]) -> str:
    found = f"{len(models)} ({abridged(models)}) and the settings that they share {abridged(list(settings)) or 'none'}"
    return f"; the models are {found}"


def stability_frame(scores: Mapping[str, FloatMatrix], seed: int) -> pl.DataFrame:
    """Measure the ranking stability of every metric, as it is and with effects removed.

    - `scores`: by metric, shape (settings, models), `correct_rate` and `refusal_rate` among them.
    - `seed`: of the random rankings.
    """
    effects = scores["correct_rate"], scores["refusal_rate"]
    rows = [
        _row(name, matrix, effects, found, fit_over)
        for name, matrix in scores.items()
        for fit_over in FIT_OVER
        for found in stability.ranking_stability(matrix, *effects, fit_over=fit_over, n_resamples=N_RESAMPLES, rng=seed)  # type: ignore[arg-type]
        # With nothing removed there is nothing to fit.
        if found.removed != "nothing" or fit_over == FIT_OVER[0]
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def with_ceiling(frame: pl.DataFrame, grid: Grid, options: StudyOptions) -> pl.DataFrame:
    """Add what W of each metric would be, nothing removed, if only sampling errors kept the settings apart."""
    runs = {(run.label, run.dataset): run for setting in grid.sources for run, _ in setting}
    errors = RunErrors(list(runs.values()), options, list(runs))
    ceilings = []
    for name, matrix in grid.scores.items():
        held = np.array(
            [
                errors.of_variants((run.label, run.dataset), name)[list(run.variants).index(variant)]
                for setting in grid.sources
                for run, variant in setting
            ]
        )
        found = kendall_w_ceiling(matrix, held @ held.T, rng=options.seed) if np.isfinite(held).all() else AT_BOUNDARY
        ceilings.append((name, "nothing", found.estimate, found.low, found.high, found.reason))
    columns = ["metric", "removed", *CEILING_COLUMNS]
    added = pl.DataFrame(ceilings, schema=columns, orient="row", infer_schema_length=None)
    return frame.join(added, on=["metric", "removed"], how="left", maintain_order="left")


def _row(
    name: str,
    matrix: FloatMatrix,
    effects: tuple[FloatMatrix, FloatMatrix],
    found: stability.RankingStability,
    fit_over: str,
) -> dict[str, object]:
    w, entropy = found.random_kendall_w, found.random_winner_entropy
    return {
        "metric": name,
        "removed": found.removed,
        "fit_over": fit_over if found.removed != "nothing" else None,
        "kendall_w": found.kendall_w,
        "kendall_w_tie_corrected": _tie_corrected(matrix, effects, found, fit_over),
        "random_kendall_w": w.mean,
        "random_kendall_w_low": w.low,
        "random_kendall_w_high": w.high,
        "winner_entropy": found.winner_entropy,
        "random_winner_entropy": entropy.mean,
        "random_winner_entropy_low": entropy.low,
        "random_winner_entropy_high": entropy.high,
        "n_settings": matrix.shape[0],
        "n_models": matrix.shape[1],
        "status": found.status,
        "reason": found.reason,
    }


def _tie_corrected(
    matrix: FloatMatrix, effects: tuple[FloatMatrix, FloatMatrix], found: stability.RankingStability, fit_over: str
) -> float | None:
    chosen = {"nothing": (), "correct_rate": effects[:1], "refusal_rate": effects[1:], "both": effects}[found.removed]
    if chosen:
        matrix = stability.isotonic_residuals(matrix, *chosen, increasing=found.increasing, fit_over=fit_over).residuals  # type: ignore[arg-type]
    return stability.kendall_w(matrix, correct_ties=True).estimate


def paper_layout(frame: pl.DataFrame, fit_over: str = FIT_OVER[0]) -> pl.DataFrame:
    """Put the frame into the shape of the paper's table: one row a metric, W and winner entropy side by side.

    The first row holds the means of random rankings put through the regressions of the last metric, the index; the
    frame has the baseline of every cell.
    """
    rows = frame.filter(pl.col("fit_over").is_null() | (pl.col("fit_over") == fit_over))
    random = rows.filter(metric=rows["metric"][-1])
    table = [{"metric": "Random", **_printed_cells(random, "random_")}]
    table[0] |= {"W ceiling": UNDEFINED} if CEILING_COLUMNS[0] in frame.columns else {}
    for (metric,), part in rows.group_by("metric", maintain_order=True):
        ceiling = {"W ceiling": number(part[CEILING_COLUMNS[0]][0], 2)} if CEILING_COLUMNS[0] in part.columns else {}
        table.append({"metric": METRICS[str(metric)].label, **_printed_cells(part), **ceiling})
    return pl.DataFrame(table)


def _printed_cells(rows: pl.DataFrame, prefix: str = "") -> dict[str, str]:
    return {
        f"{label}{REMOVED_LABELS[row['removed']]}".strip(): number(row[f"{prefix}{statistic}"], 2)
        for statistic, label in (("kendall_w", "W "), ("winner_entropy", "H "))
        for row in rows.iter_rows(named=True)
    }


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one row of panels for W and one for winner entropy, a column for each effect removed."""
    figure.set_size_inches(WIDTH * 1.25, 4.3)
    axes = figure.subplots(2, len(REMOVED_LABELS), sharex=True, sharey=True)
    statistics = {
        "kendall_w": "Kendall's W: 1 where all settings rank alike",
        "winner_entropy": "Winner entropy: 0 where one model always wins",
    }
    for panels, statistic in zip(axes, statistics, strict=True):
        for panel, removed in zip(panels, REMOVED_LABELS, strict=True):
            _draw_panel(panel, frame.filter(removed=removed), statistic)
    for panel, label in zip(axes[0], REMOVED_LABELS.values(), strict=True):
        panel.set_title(label.replace("-", "\u2212 "))
    names = list(dict.fromkeys(frame["metric"]))
    axes[0, 0].set(ylim=(len(names) - 0.5, -0.5), xlim=(-0.04, 1.04), xticks=[0, 0.5, 1])
    axes[0, 0].set_yticks(range(len(names)), [METRICS[name].label for name in names])
    for panels, label in zip(axes, statistics.values(), strict=True):
        panels[0].set_xlabel(label, loc="left")


def _draw_panel(axes: Axes, rows: pl.DataFrame, statistic: str) -> None:
    places = {name: place for place, name in enumerate(dict.fromkeys(rows["metric"]))}
    for row in rows.iter_rows(named=True):
        own = row["fit_over"] == "model"
        y = places[row["metric"]] + (0.0 if row["fit_over"] is None else 0.17 if own else -0.17)
        if row[statistic] is None:
            axes.annotate("nothing left", (0, y), va="center", fontsize=5.5, color=GREY)
            continue
        low, high = row[f"random_{statistic}_low"], row[f"random_{statistic}_high"]
        axes.plot([low, high], [y, y], color=PALE, linewidth=3.5, solid_capstyle="butt")
        axes.plot(row[f"random_{statistic}"], y, marker="|", color=GREY, markersize=5)
        if row.get(f"{statistic}_ceiling") is not None:
            axes.plot(row[f"{statistic}_ceiling"], y, marker="|", color=INK, markersize=7, markeredgewidth=1.2)
        colour = MODEL_COLOURS[1] if row["metric"] == "refusal_index" else INK
        axes.plot(row[statistic], y, "o", color=colour, markerfacecolor="white" if own else colour, markersize=4.5)
    axes.grid(visible=False, axis="y")
