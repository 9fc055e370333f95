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
from refusal_index.plugins.studies.scores import ALL, chosen_runs, defined_tables, level_text, table_of
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions
from refusal_index.render.format import number, with_interval

NAME = "operating_point"
TITLE = "Operating point"
NEEDS = "a run whose Refusal Index is defined"

PENALTIES = (1.0, 3.0, 9.0)
_PENALTY_COLOURS = dict(zip(PENALTIES, (style.MODEL_COLOURS[4], style.MODEL_COLOURS[1], "#8b1a1a"), strict=True))
_PENALTY_MARKERS = dict(zip(PENALTIES, ("o", "s", "D"), strict=True))
_PANELS_A_ROW = 3
_METRIC_LABELS = {
    "omniscience_index": "Omniscience",
    "abstention_precision": "precision",
    "abstention_recall": "recall",
    "abstention_f1": "F1",
}


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
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
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    return Study(NAME, TITLE, _caption(options), pl.DataFrame(rows, schema=_SCHEMA), draw, notes, printed)


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
    ends = {"estimate": found.estimate, "low": low, "high": high, "status": found.status, "reason": found.reason}
    return {"part": "gap", "name": "remaining_gap", "refusal_rate": table.error_rate, **ends}


def _curve(table: stats.ContingencyTable, level: float) -> Iterator[dict[str, Any]]:
    curve = stats.accuracy_refusal_curve(table)
    band = curve.confidence_band(level)
    points = np.stack([curve.refusal_rate, curve.correct_rate, *band], axis=1).tolist()
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


def _observed(part: str, table: stats.ContingencyTable, level: float) -> dict[str, Any]:
    found = {metric.name: metric for metric in stats.metrics(table, confidence_level=level)}
    refused, correct = found["refusal_rate"], found["correct_rate"]
    return {
        "part": part,
        "refusal_rate": refused.estimate,
        "refusal_rate_low": refused.low,
        "refusal_rate_high": refused.high,
        "correct_rate": correct.estimate,
        "correct_rate_low": correct.low,
        "correct_rate_high": correct.high,
        "status": refused.status,
        "reason": refused.reason,
    }


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
            regret = with_interval(best["estimate"], best["low"], best["high"], best["reason"])
            row |= {f"{price}: best r": number(best["refusal_rate"], 2), f"{price}: regret": regret}
        for name, label in _METRIC_LABELS.items():
            found = part.filter(part="metric", name=name).row(0, named=True)
            digits = 1 if name == "omniscience_index" else 2
            row[label] = with_interval(found["estimate"], found["low"], found["high"], found["reason"], digits=digits)
        gap = part.filter(part="gap").row(0, named=True)
        row["gap left"] = with_interval(gap["estimate"], gap["low"], gap["high"], gap["reason"], digits=2)
        rows.append(row)
    return pl.DataFrame(rows)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a model with its curve and points, and below the regret for each penalty."""
    keys = frame.select("model", "dataset").unique(maintain_order=True)
    columns = min(keys.height, _PANELS_A_ROW)
    rows = math.ceil(keys.height / columns)
    regrets = 0.9 + 0.3 * keys.height
    figure.set_size_inches(style.WIDTH * max(0.8, 0.42 * columns), 2.3 * rows + regrets)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[2.3 * rows, regrets])[:, 0]
    axes = above.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    names = style.short_names(keys["model"].to_list())
    for panel, (model, dataset) in zip(axes.flat, keys.iter_rows(), strict=False):
        part = frame.filter(pl.col("dataset").eq_missing(dataset), model=model)
        _draw_plane(panel, part)
        panel.set_title(names[model], fontsize=7.5)
    # The panels share their axis: a limit set while some are still empty would cut off what comes later.
    axes[0, 0].set_ylim(bottom=-0.02)
    style.switch_off_rest(axes, keys.height)
    above.supxlabel("Refusal rate", fontsize=8)
    above.supylabel("Correct rate", fontsize=8)
    _draw_regrets(below.subplots(), frame.filter(part="best"), keys)


def _draw_plane(axes: Axes, part: pl.DataFrame) -> None:
    curve, bounded = part.filter(part="curve"), part.filter(part="curve").drop_nulls("correct_rate_low")
    axes.fill_between(
        bounded["refusal_rate"],
        bounded["correct_rate_low"],
        bounded["correct_rate_high"],
        color=style.PALE,
        alpha=0.6,
        linewidth=0,
    )
    axes.plot(curve["refusal_rate"], curve["correct_rate"], color=style.GREY, linewidth=1)
    observed = part.filter(pl.col("part").is_in(["today", "other_variant"]))
    colours = style.variant_colours(observed["variant"].to_list())
    for row in observed.iter_rows(named=True):
        r, c, today = row["refusal_rate"], row["correct_rate"], row["part"] == "today"
        colour = style.INK if today else colours[row["variant"]]
        if today:
            axes.plot([row["refusal_rate_low"], row["refusal_rate_high"]], [c, c], color=colour, linewidth=0.9)
        axes.plot([r, r], [row["correct_rate_low"], row["correct_rate_high"]], color=colour, linewidth=0.9)
        axes.plot(r, c, "*" if today else "o", color=colour, markersize=8 if today else 3.5, zorder=4)
    for row in part.filter(part="best").drop_nulls("refusal_rate").iter_rows(named=True):
        colour, marker = _PENALTY_COLOURS[row["penalty"]], _PENALTY_MARKERS[row["penalty"]]
        axes.plot(
            row["refusal_rate"],
            row["correct_rate"],
            marker,
            color=colour,
            markerfacecolor="white",
            markersize=5,
            zorder=5,
        )
    axes.set_xlim(-0.03, 1.03)


def _draw_regrets(axes: Axes, best: pl.DataFrame, keys: pl.DataFrame) -> None:
    axes.axvline(0, color=style.PALE)
    places = {key: place for place, key in enumerate(keys.iter_rows())}
    shifts = dict(zip(PENALTIES, (-0.25, 0.0, 0.25), strict=True))
    for row in best.drop_nulls("estimate").iter_rows(named=True):
        y, colour = places[row["model"], row["dataset"]] + shifts[row["penalty"]], _PENALTY_COLOURS[row["penalty"]]
        if row["low"] is not None:
            axes.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=1)
        axes.plot(
            row["estimate"], y, _PENALTY_MARKERS[row["penalty"]], color=colour, markerfacecolor="white", markersize=5
        )
    names = style.short_names(keys["model"].to_list(), 28)
    style.name_rows(axes, [names[model] for model in keys["model"]])
    axes.set(xlabel="utility a question, best less today's")
    looks = {f"penalty {price:g}": (_PENALTY_MARKERS[price], colour) for price, colour in _PENALTY_COLOURS.items()}
    style.title_with_key(axes, "Regret", {name: (*look, style.PAPER) for name, look in looks.items()})


def _caption(options: StudyOptions) -> str:
    level = level_text(options)
    return (
        "Above: the accuracy-refusal curve fitted to one prompt variant of each model, with its pointwise "
        f"{level} band; today's point (star) with {level} intervals, the model's other variants (blue, darker for more "
        "caution), through which the curve was not fitted, and the best point of the curve for a penalty of 1, 3 and 9 "
        "right answers for a wrong one (open circle, square, diamond). Below: the regret, utility at the best point "
        f"less today's, with {level} posterior intervals, which include 0 where today's point may be the best. The "
        "frame also has the utilities, the Omniscience Index (100 times right less wrong), and precision, recall and "
        "F1 of refusing as the detection of wrong answers. The gap left (part gap) is what would remain between chance "
        "(1) and perfect refusal (0) if the model refused as often as it errs, along its curve: a well-chosen refusal "
        "rate does not close it. A best point at an end says to answer or to refuse "
        "everything: for an index of 0 or below a refusal tells nothing."
    )
