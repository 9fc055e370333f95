"""Runs in the accuracy-refusal plane, with contours of constant metrics.

`iso_refusal_index` has a panel per model, with its points over curves of constant Refusal Index.

`operating_point` shows a model's point on its accuracy-refusal curve and the points of maximum utility for given
penalties. The curve is fitted to one prompt variant; the model's other variants are also drawn, since the curve
predicts where they lie. The penalty is the cost of a wrong answer in right answers: with 1, 3 and 9 an answer is worth
giving from a confidence of 1/2, 3/4 and 9/10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import curves, inputs, style
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study
from refusal_index.render.format import number, with_interval

PLANE_SCHEMA = schema(
    "kind panel model variant level refusal_rate refusal_low refusal_high correct_rate correct_low correct_high"
)
"""`kind` is ``point``, ``context``, ``contour`` or ``curve``; `level` is the constant score of a contour or curve."""

RATES = np.linspace(0, 1, 51)


def point_rows(run: RunResults, options: StudyOptions, panel: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield one point per variant, with the intervals of both rates."""
    for scores in inputs.variant_scores(run, options):
        refused = scores.metrics["refusal_rate"]
        correct = scores.metrics["correct_rate"]
        if refused.estimate is not None:
            yield {
                "kind": "point",
                "panel": panel,
                "model": run.label,
                "variant": scores.variant,
                "refusal_rate": refused.estimate,
                "refusal_low": refused.low,
                "refusal_high": refused.high,
                "correct_rate": correct.estimate,
                "correct_low": correct.low,
                "correct_high": correct.high,
            }


def curve_rows(run: RunResults, options: StudyOptions, panel: str) -> Iterator[dict[str, Any]]:
    """Yield the curves of a run's joint index and of the ends of its interval, at its mean error rate."""
    index = inputs.run_index(run, options).index
    error_rate = mean_error_rate(run, options)
    if index.estimate is None or error_rate is None:
        return
    curve = {
        name: [None] * len(RATES) if level is None else np.asarray(stats.iso_refusal_index(RATES, level, error_rate))
        for name, level in (("correct_rate", index.estimate), ("correct_low", index.low), ("correct_high", index.high))
    }
    points = pl.DataFrame({"refusal_rate": RATES, **curve}).iter_rows(named=True)
    yield from ({"kind": "curve", "panel": panel, "model": run.label, "level": index.estimate, **row} for row in points)


def contour_rows(panel: str, model: str | None, level: float, correct_rates: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield one contour over `RATES`, without its impossible part."""
    labels = {"kind": "contour", "panel": panel, "model": model, "level": level}
    for rate, correct in zip(RATES.tolist(), correct_rates.tolist(), strict=True):
        if math.isfinite(correct):
            yield {**labels, "refusal_rate": rate, "correct_rate": correct}


def index_contour_rows(
    run: RunResults, options: StudyOptions, panel: str, model: str | None, levels: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Yield contours of the index at the mean error rate of a run."""
    error_rate = mean_error_rate(run, options)
    if error_rate is None:
        return
    for level in levels:
        yield from contour_rows(panel, model, level, np.asarray(stats.iso_refusal_index(RATES, level, error_rate)))


def mean_error_rate(run: RunResults, options: StudyOptions) -> float | None:
    """Return the mean of a run's error rates under forced answering, None if none is defined."""
    return inputs.mean_of(inputs.variant_scores(run, options), "error_rate")


def draw_contours(
    axes: Axes, contours: pl.DataFrame, obstacles: Sequence[tuple[float, float]], **options: float
) -> None:
    """Draw contours, each with its level; the limits of the axes must be set before.

    - `obstacles`, `options`: as in `style.label_contours`.
    """
    lines = {}
    for (level,), line in contours.group_by("level", maintain_order=True):
        axes.plot(line["refusal_rate"], line["correct_rate"], color=style.PALE, linewidth=0.8, zorder=1)
        lines[float(str(level))] = line.select("refusal_rate", "correct_rate").to_numpy()
    style.label_contours(axes, lines, obstacles, **options)


def drawn_positions(shown: pl.DataFrame) -> list[tuple[float, float]]:
    """Return positions on curves, and on points and their intervals."""
    x = pl.col("refusal_rate")
    y = pl.col("correct_rate")
    points = shown.filter(pl.col("kind").is_in(["point", "context"]))
    positions = [shown.select(x, y)]
    for end in ("low", "high"):
        for share in (0.5, 1.0):
            positions.append(points.select(x + share * (pl.col(f"refusal_{end}") - x), y))
            positions.append(points.select(x, y + share * (pl.col(f"correct_{end}") - y)))
    return [row for part in positions for row in part.drop_nulls().rows()]


def mark_point(axes: Axes, row: dict[str, Any], colour: str, marker: str = "o", size: float = 4.0) -> None:
    """Draw a point with the intervals of both rates."""
    style.mark(
        axes,
        row["refusal_rate"],
        row["correct_rate"],
        colour,
        marker,
        size=size,
        width=0.9,
        xs=style.ends(row, "refusal"),
        ys=style.ends(row, "correct"),
    )


def draw_curve(axes: Axes, curve: pl.DataFrame, colour: str) -> None:
    """Draw a run's curve with its confidence band."""
    style.shade(axes, curve, "refusal_rate", "correct", colour, alpha=0.16)
    axes.plot(curve["refusal_rate"], curve["correct_rate"], color=colour, linewidth=1.2, zorder=2)


def plane_top(frame: pl.DataFrame) -> float:
    """Return the upper limit of the correct rate: slightly above all points and curves."""
    shown = frame.filter(pl.col("kind") != "contour")
    highest = shown.select(pl.max_horizontal("correct_rate", "correct_high").max()).item()
    return min(1.0, 1.12 * highest) if highest else 1.0


SCORES: tuple[curves.ScoreName, ...] = get_args(curves.ScoreName)
MAX_CONTOURS = 7
"""Maximum number of contours in a panel."""
View = tuple[tuple[float, float], tuple[float, float]]
"""Limits of the refusal rate and of the correct answer rate."""


@study
def accuracy_refusal_plane(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has a graded answer."""
    chosen, notes = inputs.of_one_dataset(runs)
    points = [row for run in chosen for row in point_rows(run, options)]
    if not points:
        raise NotPossibleError("; no answer of these has a grade")
    lines = [row for run in chosen for row in curve_rows(run, options, INDEX)]
    shown = pl.DataFrame([*points, *_context_rows(chosen, options), *lines], schema=PLANE_SCHEMA)
    contours = [*_score_contours(view_of(shown), options)]
    # Contours of the index for several runs would need several error rates in one panel.
    if len(chosen) == 1:
        contours += index_contour_rows(chosen[0], options, INDEX, None, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    frame = pl.concat([shown, pl.DataFrame(contours, schema=PLANE_SCHEMA)])
    paper = frame["kind"].eq("context").any()
    return Study(
        frame,
        _draw_planes,
        style.table(PRINTED_POINTS, kind="point"),
        notes,
        values={**inputs.data_values(chosen), "several": len(chosen) > 1, "paper": paper},
    )


def view_of(frame: pl.DataFrame) -> View:
    """Return the limits of the panels: around the points if there is one model, else the whole plane."""
    points = frame.filter(pl.col("kind").is_in(["point", "context"]))
    if frame.filter(kind="point")["model"].n_unique() > 1:
        return (0.0, 1.0), (0.0, plane_top(frame))
    return _around(points, "refusal"), _around(points, "correct")


def _around(points: pl.DataFrame, name: str) -> tuple[float, float]:
    """Return limits of a rate around all points and their intervals."""
    columns = (f"{name}_rate", f"{name}_low", f"{name}_high")
    low = points.select(pl.min_horizontal(columns).min()).item()
    high = points.select(pl.max_horizontal(columns).max()).item()
    space = 0.1 * max(high - low, 0.1)
    return max(0.0, low - space), min(1.0, high + space)


def _draw_planes(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel per metric, with the same points in each."""
    figure.set_size_inches(style.WIDTH, 4.6)
    metrics = (INDEX, *SCORES)
    titles = [METRICS[metric].label for metric in metrics]
    # A single label for the whole figure would overlap the legend.
    labels = "Refusal rate", "Correct answer rate"
    panels = style.panel_grid(figure, titles, 2, labels, size=8.5, sharex=True, sharey=True)
    xlim, ylim = view_of(frame)
    panels[0].set(xlim=xlim, ylim=ylim)
    models = frame.filter(pl.col("kind") == "point")["model"].unique(maintain_order=True).to_list()
    looks = style.model_looks(models)
    shown = frame.filter(pl.col("kind") != "contour")
    obstacles: dict[str, list[tuple[float, float]]] = {INDEX: drawn_positions(shown)}
    for score in SCORES:
        obstacles[score] = drawn_positions(shown.filter(pl.col("kind") != "curve"))
    for axes, metric in zip(panels, metrics, strict=True):
        contours = frame.filter((pl.col("kind") == "contour") & (pl.col("panel") == metric))
        draw_contours(axes, contours, obstacles[metric])
        for row in frame.filter(kind="context").iter_rows(named=True):
            mark_point(axes, row, style.PALE, size=3)
        for row in frame.filter(kind="point").iter_rows(named=True):
            mark_point(axes, row, *looks[row["model"]])
        levels = [style.short_number(level) for level in contours["level"].unique().sort()]
        axes.set_title(f"grey at {', '.join(levels)}" * bool(levels), loc="right", fontsize=6.5, fontweight="normal")
        axes.grid(visible=False)
    for (model,), curve in frame.filter(pl.col("kind") == "curve").group_by("model", maintain_order=True):
        draw_curve(panels[0], curve, looks[str(model)][0])
    # The names of models include their index.
    indices = dict(frame.filter(kind="curve").select("model", "level").iter_rows())
    names = style.short_names(models, 32)
    names |= {model: f"{names[model]}, RI {number(level, 2)}" for model, level in indices.items()}
    handles = [*style.model_handles(models, names), style.handle("equal score", style.PALE, line="-")]
    if frame["kind"].eq("context").any():
        handles.append(style.handle("the paper's models", style.PALE, "o", markersize=3))
    style.outside_legend(figure, handles)


PRINTED_POINTS: Mapping[str, str | style.Cell] = {
    "Model": "model",
    "Prompt": "variant",
    "Refusal rate": lambda row: with_interval(row["refusal_rate"], *style.ends(row, "refusal")),
    "Correct answer rate": lambda row: with_interval(row["correct_rate"], *style.ends(row, "correct")),
}


def _context_rows(runs: Sequence[RunResults], options: StudyOptions) -> list[dict[str, Any]]:
    """Return the points of the paper's models."""
    ends = {
        f"{name}_{end}": f"{name.partition('_')[0]}_{end}"
        for name in ("refusal_rate", "correct_rate")
        for end in ("low", "high")
    }
    return inputs.paper_context(runs, options).rename(ends).with_columns(kind=pl.lit("context")).to_dicts()


def _score_contours(view: View, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the straight contours of the other metrics, at round levels across the visible area."""
    p = options.analysis.payoffs.weighted_score_p
    for score in SCORES:
        for level in _levels_in_view(score, view, p):
            yield from contour_rows(score, None, level, curves.iso_score(RATES, score, level, weighted_score_p=p))


def _levels_in_view(score: curves.ScoreName, view: View, p: float) -> list[float]:
    """Return the multiples of the smallest round step of which few have a contour in view."""
    (left, right), (bottom, top) = view
    rates = np.linspace(left, right, 200)
    levels: list[float] = []
    for step in (0.02, 0.05, 0.1, 0.2, 0.5):
        levels = []
        for level in (np.arange(round(-max(p, 1) / step), round(1 / step) + 1) * step).round(10).tolist():
            line = curves.iso_score(rates, score, level, weighted_score_p=p)
            # The contour of a score of 0 may be the axis.
            if np.any((line > bottom) & (line < top)):
                levels.append(level)
        if len(levels) <= MAX_CONTOURS:
            break
    return levels


LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


@study
def iso_refusal_index(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has a graded answer."""
    chosen, notes = inputs.of_one_dataset(runs)
    rows: list[dict[str, Any]] = []
    for run in chosen:
        rows += (*point_rows(run, options, run.label), *curve_rows(run, options, run.label))
        rows += index_contour_rows(run, options, run.label, run.label, LEVELS)
    frame = pl.DataFrame(rows, schema=PLANE_SCHEMA)
    if not frame["kind"].eq("point").any():
        raise NotPossibleError("; no answer of these has a grade")
    levels = ", ".join(f"{level:g}" for level in LEVELS)
    return Study(
        frame,
        _draw_iso_curves,
        style.table(PRINTED_POINTS, kind="point"),
        notes,
        values={**inputs.data_values(chosen), "levels": levels},
    )


def _draw_iso_curves(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the panels, three in a row, each with its own scale."""
    models = frame["panel"].unique(maintain_order=True).to_list()
    columns = style.panels_a_row(len(models))
    width = max(style.COLUMN_WIDTH, style.WIDTH * columns / style.PANELS_A_ROW)
    figure.set_size_inches(width, 0.35 + 2.1 * math.ceil(len(models) / columns))
    names = style.short_names(models, 21)
    levels = dict(frame.filter(kind="curve").select("panel", "level").iter_rows())
    indices = {model: number(level, 2) for model, level in levels.items()}
    titles = [f"{names[model]}\nRI {indices[model]}" if model in indices else names[model] for model in models]
    panels = style.panel_grid(figure, titles, columns, ("Refusal rate", "Correct answer rate"), sharex=True)
    variants = frame.filter(kind="point")["variant"].unique(maintain_order=True).to_list()
    for axes, model in zip(panels, models, strict=True):
        axes.title.set_fontsize(7)
        _draw_panel(axes, frame.filter(pl.col("panel") == model), variants)
    looks = style.variant_looks(variants)
    style.outside_legend(figure, [style.handle(style.safe_text(name, 24), *look) for name, look in looks.items()])


def _draw_panel(axes: Axes, frame: pl.DataFrame, variants: Sequence[str]) -> None:
    """Draw the points of a model over curves of equal index.

    - `variants`: the prompts of all models, which have the same colours and markers in every panel.
    """
    axes.set(xlim=(0, 1), ylim=(0, plane_top(frame)))
    style.few_ticks(axes.xaxis, 2)
    style.few_ticks(axes.yaxis, 4)
    curve = frame.filter(pl.col("kind") == "curve")
    points = frame.filter(pl.col("kind") == "point")
    contours = frame.filter(pl.col("kind") == "contour")
    draw_contours(axes, contours, drawn_positions(pl.concat([curve, points])), margin=0.05)
    draw_curve(axes, curve, style.INK)
    looks = style.variant_looks(variants)
    for row in points.iter_rows(named=True):
        mark_point(axes, row, *looks[row["variant"]], size=5)
    axes.grid(visible=False)


PENALTIES = (1.0, 3.0, 9.0)
_PENALTY_COLOURS = dict(zip(PENALTIES, (style.MODEL_COLOURS[4], style.MODEL_COLOURS[1], "#8b1a1a"), strict=True))
_PENALTY_MARKERS = dict(zip(PENALTIES, ("o", "s", "D"), strict=True))


@study
def operating_point(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has a defined index."""
    chosen, others = inputs.of_one_dataset(runs)
    defined, notes = inputs.defined_tables(chosen, only_reference=True)
    notes = (*others, *notes)
    rows: list[dict[str, Any]] = []
    for source in defined:
        rows += ({**source.where, **row} for row in operating_point_rows(source.table, options))
        for other in source.run.tables:
            if other != source.variant and inputs.table_of(source.run, other).n:
                point = _observed("other_variant", inputs.table_of(source.run, other), options)
                rows.append({**source.where, "variant": other or inputs.ALL, **point})
    if not rows:
        raise NotPossibleError(notes=notes)
    frame = pl.DataFrame(
        rows,
        schema=schema(
            "model dataset variant part name penalty refusal_rate refusal_rate_low refusal_rate_high correct_rate "
            "correct_rate_low correct_rate_high estimate low high utility_at_best utility_today status reason"
        ),
    )
    groups = {f"{name}, {price:g}": f"Penalty {price:g}" for price in PENALTIES for name in ("best", "regret")}
    values = inputs.data_values(chosen)
    return Study(frame, _draw_operating_points, _printed_operating_points, notes, values, groups)


def operating_point_rows(table: stats.ContingencyTable, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the fitted curve with its band, the actual point, the best points with their regret, and the metrics.

    - `table`: counts with a defined Refusal Index.
    - `options`: confidence level and seed of the intervals.
    """
    level = options.analysis.confidence_level
    curve = stats.accuracy_refusal_curve(table)
    points = np.stack([curve.refusal_rate, curve.correct_rate, *curve.confidence_band(level)], axis=1).tolist()
    for refused, correct, *ends in points:
        low, high = stats.ConfidenceInterval(*ends).or_none()
        yield {
            "part": "curve",
            "refusal_rate": refused,
            "correct_rate": correct,
            "correct_rate_low": low,
            "correct_rate_high": high,
            "status": curve.status,
            "reason": curve.reason,
        }
    yield _observed("today", table, options)
    for penalty in PENALTIES:
        yield _best(table, penalty, options)
    for penalty in PENALTIES:
        earned = stats.utility(table, penalty, confidence_level=level)
        yield {"part": "metric", "name": earned.name, "penalty": penalty, **earned.to_document()}
    index = stats.omniscience_index(table, confidence_level=level)
    for metric in (index, *curves.abstention_metrics(table, confidence_level=level)):
        yield {"part": "metric", "name": metric.name, **metric.to_document()}
    gap = curves.remaining_gap(table, confidence_level=level, rng=options.analysis.seed)
    yield {"part": "gap", "name": "remaining_gap", "refusal_rate": table.error_rate, **gap.to_document()}


def _observed(part: str, table: stats.ContingencyTable, options: StudyOptions) -> dict[str, Any]:
    estimates = stats.metrics(table, confidence_level=options.analysis.confidence_level)
    by_name = {metric.name: metric for metric in estimates}
    rates = inputs.with_ends({name: by_name[name] for name in ("refusal_rate", "correct_rate")})
    return {"part": part, **rates, "status": by_name["refusal_rate"].status, "reason": by_name["refusal_rate"].reason}


def _best(table: stats.ContingencyTable, penalty: float, options: StudyOptions) -> dict[str, Any]:
    point = curves.best_operating_point(table, penalty)
    rho = stats.refusal_index(table).rho
    regret = stats.Estimate.of(
        point, point.confidence_interval(options.analysis.confidence_level, rng=options.analysis.seed)
    )
    correct = None if rho is None else float(stats.correct_rate_at(point.refusal_rate or 0.0, rho, table.error_rate))
    columns = {name: getattr(point, name) for name in ("penalty", "refusal_rate", "utility_at_best", "utility_today")}
    return {"part": "best", "name": "regret", **columns, "correct_rate": correct, **regret.to_document()}


def _printed_operating_points(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model: best refusal rate and regret for each penalty, and the abstention metrics."""
    rows = []
    for _, part in frame.group_by("model", "dataset", maintain_order=True):
        today = part.filter(part="today").row(0, named=True)
        row = {"model": today["model"], "variant": today["variant"], "refused": number(today["refusal_rate"], 2)}
        for best in part.filter(part="best").iter_rows(named=True):
            price = f"{best['penalty']:g}"
            row |= {
                f"best, {price}": number(best["refusal_rate"], 2),
                f"regret, {price}": style.ranged("estimate", 2)(best),
            }
        row["gap left"] = style.ranged("estimate", 2)(part.filter(part="gap").row(0, named=True))
        rows.append(row)
    return pl.DataFrame(rows)


def _draw_operating_points(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per model with its curve and points, and below them the regret for each penalty."""
    keys = frame.select("model", "dataset").unique(maintain_order=True)
    columns = style.panels_a_row(keys.height)
    is_crowded = columns > style.PANELS_A_ROW
    planes = (1.7 if is_crowded else 2.3) * math.ceil(keys.height / columns)
    regrets = 0.9 + (0.2 if is_crowded else 0.3) * keys.height
    width = style.WIDTH * min(max(0.8, 0.42 * columns), 1.4)
    above, below = style.stacked(figure, width, planes, regrets, "Refusal rate", "Correct rate")
    names = style.short_names(keys["model"].to_list(), 28)
    titles = [names[model] for model in keys["model"]]
    panels = style.panel_grid(above, titles, columns, size=6.5, sharex=True, sharey=True)
    for panel, part in zip(panels, frame.partition_by("model", "dataset", maintain_order=True), strict=True):
        _draw_plane(panel, part)
    # The panels share an axis, so its limit must be set after all of them are drawn.
    panels[0].set_ylim(bottom=-0.02)
    _draw_regrets(below.subplots(), frame.filter(part="best"), keys)


def _draw_plane(axes: Axes, part: pl.DataFrame) -> None:
    curve = part.filter(part="curve")
    style.shade(axes, curve, "refusal_rate", "correct_rate", style.PALE, alpha=0.6)
    axes.plot(curve["refusal_rate"], curve["correct_rate"], color=style.GREY, linewidth=1)
    observed = part.filter(pl.col("part").is_in(["today", "other_variant"]))
    colours = style.variant_colours(observed["variant"].to_list())
    for row in observed.iter_rows(named=True):
        mark_options: dict[str, Any] = {"colour": colours[row["variant"]], "size": 3.5}
        if row["part"] == "today":
            mark_options = {"colour": style.INK, "marker": "*", "size": 8, "xs": style.ends(row, "refusal_rate")}
        ys = style.ends(row, "correct_rate")
        style.mark(axes, row["refusal_rate"], row["correct_rate"], ys=ys, width=0.9, zorder=4, **mark_options)
    for row in part.filter(part="best").iter_rows(named=True):
        _mark_best(axes, row["refusal_rate"], row["correct_rate"], row["penalty"])
    axes.set_xlim(-0.03, 1.03)


def _mark_best(axes: Axes, x: float | None, y: float | None, penalty: float, xs: style.Ends | None = None) -> None:
    style.mark(
        axes,
        x,
        y,
        _PENALTY_COLOURS[penalty],
        _PENALTY_MARKERS[penalty],
        xs=xs,
        face=style.PAPER,
        size=5,
        width=1,
        zorder=5,
    )


def _draw_regrets(axes: Axes, best: pl.DataFrame, keys: pl.DataFrame) -> None:
    axes.axvline(0, color=style.PALE)
    heights = {key: y for y, key in enumerate(keys.iter_rows())}
    for row in best.drop_nulls("estimate").iter_rows(named=True):
        y = heights[row["model"], row["dataset"]] + 0.25 * (PENALTIES.index(row["penalty"]) - 1)
        _mark_best(axes, row["estimate"], y, row["penalty"], style.ends(row))
    names = style.short_names(keys["model"].to_list(), 36)
    style.name_rows([axes], [names[model] for model in keys["model"]], 6.5)
    axes.set_xlabel("utility per question: best minus current")
    looks = {f"penalty {price:g}": (_PENALTY_MARKERS[price], colour) for price, colour in _PENALTY_COLOURS.items()}
    style.title_with_key(
        axes, "Regret", {name: (*colour_and_marker, style.PAPER) for name, colour_and_marker in looks.items()}
    )
