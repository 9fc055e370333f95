"""Where a model stands on its accuracy-refusal curve, and where it would be worth most for a stated penalty.

The curve is fitted to one prompt variant; the other variants of the model are drawn beside it, since the curve says
where they should lie. The penalty is the price of a wrong answer in right answers: 1, 3 and 9 make an answer worth
giving from a confidence of a half, three quarters and nine tenths on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.plugins.studies import curves, style
from refusal_index.plugins.studies.curves import remaining_gap
from refusal_index.plugins.studies.runs import ALL, chosen_runs, defined_tables, table_of, with_ends
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import ranged
from refusal_index.render.format import number

PENALTIES = (1.0, 3.0, 9.0)
_PENALTY_COLOURS = dict(zip(PENALTIES, (style.MODEL_COLOURS[4], style.MODEL_COLOURS[1], "#8b1a1a"), strict=True))
_PENALTY_MARKERS = dict(zip(PENALTIES, ("o", "s", "D"), strict=True))
_PANELS_A_ROW = 3
_METRIC_LABELS = {
    "omniscience_index": "Omniscience",
    "refusal_precision": "precision",
    "refusal_recall": "recall",
    "abstention_f1": "F1",
}


@study
def operating_point(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has a defined index."""
    chosen, notes = chosen_runs(runs)
    defined, undefined = defined_tables(chosen, only_reference=True)
    notes = (*notes, *undefined)
    rows: list[dict[str, Any]] = []
    for one in defined:
        rows += ({**one.where, **row} for row in point_rows(one.table, options))
        for other in one.run.variants:
            if other != one.variant and table_of(one.run, other).n:
                point = _observed("other_variant", table_of(one.run, other), options.confidence_level)
                rows.append({**one.where, "variant": other or ALL, **point})
    if not rows:
        raise NotPossibleError(notes=notes)
    return Study(pl.DataFrame(rows, schema=_SCHEMA), draw, printed, notes)


_SCHEMA = {
    **dict.fromkeys(("model", "dataset", "variant", "part", "name"), pl.String),
    **dict.fromkeys(("penalty", "refusal_rate", "refusal_rate_low", "refusal_rate_high", "correct_rate"), pl.Float64),
    **dict.fromkeys(("correct_rate_low", "correct_rate_high", "estimate", "low", "high"), pl.Float64),
    "utility_at_best": pl.Float64,
    "utility_today": pl.Float64,
    "status": pl.String,
    "reason": pl.String,
}


def point_rows(table: stats.ContingencyTable, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the fitted curve with its band, today's point, the best points with their regret, and what it is worth.

    - `table`: whose Refusal Index is defined.
    - `options`: level and seed of the intervals.
    """
    level = options.confidence_level
    yield from _curve(table, level)
    yield _observed("today", table, level)
    for penalty in PENALTIES:
        yield _best(table, penalty, options)
    for penalty in PENALTIES:
        yield {**_metric(stats.utility(table, penalty, confidence_level=level)), "penalty": penalty}
    for metric in (
        stats.omniscience_index(table, confidence_level=level),
        *curves.abstention_metrics(table, confidence_level=level),
    ):
        yield _metric(metric)
    yield _gap(table, options)


def _gap(table: stats.ContingencyTable, options: StudyOptions) -> dict[str, Any]:
    found = remaining_gap(table)
    low, high = found.confidence_interval(options.confidence_level, rng=options.seed).or_none()
    own = {"estimate": found.estimate, "low": low, "high": high, "status": found.status, "reason": found.reason}
    return {"part": "gap", "name": "remaining_gap", "refusal_rate": table.error_rate, **own}


def _curve(table: stats.ContingencyTable, level: float) -> Iterator[dict[str, Any]]:
    curve = stats.accuracy_refusal_curve(table)
    shared = {"part": "curve", "status": curve.status, "reason": curve.reason}
    points = np.stack([curve.refusal_rate, curve.correct_rate, *curve.confidence_band(level)], axis=1).tolist()
    for refused, correct, *ends in points:
        low, high = stats.ConfidenceInterval(*ends).or_none()
        rates = {"refusal_rate": refused, "correct_rate": correct, "correct_rate_low": low, "correct_rate_high": high}
        yield {**shared, **rates}


def _observed(part: str, table: stats.ContingencyTable, level: float) -> dict[str, Any]:
    found = {metric.name: metric for metric in stats.metrics(table, confidence_level=level)}
    rates = with_ends({name: found[name] for name in ("refusal_rate", "correct_rate")})
    return {"part": part, **rates, "status": found["refusal_rate"].status, "reason": found["refusal_rate"].reason}


def _best(table: stats.ContingencyTable, penalty: float, options: StudyOptions) -> dict[str, Any]:
    point, rho = curves.best_operating_point(table, penalty), stats.refusal_index(table).rho
    low, high = point.confidence_interval(options.confidence_level, rng=options.seed).or_none()
    correct = None if rho is None else float(stats.correct_rate_at(point.refusal_rate or 0.0, rho, table.error_rate))
    return {
        "part": "best",
        "name": "regret",
        "penalty": penalty,
        "refusal_rate": point.refusal_rate,
        "correct_rate": correct,
        "estimate": point.regret,
        "low": low,
        "high": high,
        "utility_at_best": point.utility,
        "utility_today": point.utility_today,
        "status": point.status,
        "reason": point.reason,
    }


def _metric(metric: stats.Estimate) -> dict[str, Any]:
    return {"part": "metric", "name": metric.name, **metric.to_document()}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a model: the best refusal rate and the regret for each penalty, and the abstention metrics."""
    rows = []
    for _, part in frame.group_by("model", "dataset", maintain_order=True):
        today = part.filter(part="today").row(0, named=True)
        row = {"model": today["model"], "variant": today["variant"], "refused": number(today["refusal_rate"], 2)}
        for best in part.filter(part="best").iter_rows(named=True):
            price = f"penalty {best['penalty']:g}"
            row |= {f"{price}: best r": number(best["refusal_rate"], 2), f"{price}: regret": ranged("estimate")(best)}
        for name, label in _METRIC_LABELS.items():
            digits = 1 if name == "omniscience_index" else 2
            row[label] = ranged("estimate", digits)(part.filter(part="metric", name=name).row(0, named=True))
        row["gap left"] = ranged("estimate", 2)(part.filter(part="gap").row(0, named=True))
        rows.append(row)
    return pl.DataFrame(rows)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a model with its curve and points, and below the regret for each penalty."""
    keys = frame.select("model", "dataset").unique(maintain_order=True)
    columns = min(keys.height, _PANELS_A_ROW)
    planes, regrets = 2.3 * math.ceil(keys.height / columns), 0.9 + 0.3 * keys.height
    figure.set_size_inches(style.WIDTH * max(0.8, 0.42 * columns), planes + regrets)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[planes, regrets])[:, 0]
    names = style.short_names(keys["model"].to_list())
    titles = [names[model] for model in keys["model"]]
    panels = style.panel_grid(above, titles, columns, sharex=True, sharey=True)
    for panel, (model, dataset) in zip(panels, keys.iter_rows(), strict=True):
        _draw_plane(panel, frame.filter(pl.col("dataset").eq_missing(dataset), model=model))
    # The panels share their axis: a limit set while some are still empty would cut off what comes later.
    panels[0].set_ylim(bottom=-0.02)
    above.supxlabel("Refusal rate", fontsize=8)
    above.supylabel("Correct rate", fontsize=8)
    _draw_regrets(below.subplots(), frame.filter(part="best"), keys)


def _draw_plane(axes: Axes, part: pl.DataFrame) -> None:
    curve = part.filter(part="curve")
    band = curve.drop_nulls("correct_rate_low")
    limits = band["correct_rate_low"], band["correct_rate_high"]
    axes.fill_between(band["refusal_rate"], *limits, color=style.PALE, alpha=0.6, linewidth=0)
    axes.plot(curve["refusal_rate"], curve["correct_rate"], color=style.GREY, linewidth=1)
    observed = part.filter(pl.col("part").is_in(["today", "other_variant"]))
    colours = style.variant_colours(observed["variant"].to_list())
    for row in observed.iter_rows(named=True):
        look: dict[str, Any] = {"colour": colours[row["variant"]], "size": 3.5}
        if row["part"] == "today":
            look = {"colour": style.INK, "marker": "*", "size": 8, "xs": style.ends(row, "refusal_rate")}
        ys = style.ends(row, "correct_rate")
        style.mark(axes, row["refusal_rate"], row["correct_rate"], ys=ys, width=0.9, zorder=4, **look)
    for row in part.filter(part="best").iter_rows(named=True):
        _mark_best(axes, row["refusal_rate"], row["correct_rate"], row["penalty"])
    axes.set_xlim(-0.03, 1.03)


def _mark_best(axes: Axes, x: float | None, y: float | None, penalty: float, xs: style.Ends | None = None) -> None:
    look: dict[str, Any] = {"face": style.PAPER, "size": 5, "width": 1, "zorder": 5}
    style.mark(axes, x, y, _PENALTY_COLOURS[penalty], _PENALTY_MARKERS[penalty], xs=xs, **look)


def _draw_regrets(axes: Axes, best: pl.DataFrame, keys: pl.DataFrame) -> None:
    axes.axvline(0, color=style.PALE)
    places = {key: place for place, key in enumerate(keys.iter_rows())}
    for row in best.drop_nulls("estimate").iter_rows(named=True):
        y = places[row["model"], row["dataset"]] + 0.25 * (PENALTIES.index(row["penalty"]) - 1)
        _mark_best(axes, row["estimate"], y, row["penalty"], style.ends(row))
    names = style.short_names(keys["model"].to_list(), 28)
    style.name_rows(axes, [names[model] for model in keys["model"]])
    axes.set(xlabel="utility a question, best less today's")
    looks = {f"penalty {price:g}": (_PENALTY_MARKERS[price], colour) for price, colour in _PENALTY_COLOURS.items()}
    style.title_with_key(axes, "Regret", {name: (*look, style.PAPER) for name, look in looks.items()})
