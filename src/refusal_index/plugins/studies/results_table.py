"""Every metric of every run under every prompt variant, with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.models import PAPER, RUN, SIMPLEQA, paper_context
from refusal_index.plugins.studies.runs import COMPARED, INDEX, data_values, run_index, variant_scores
from refusal_index.plugins.studies.sampling_error import RESAMPLES, metric_draws, percentile_interval, resampled_tables
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import widened
from refusal_index.render.format import with_interval

JOINT = "joint"
"""In the column `variant`: the index over all variants of a run."""
SCHEMA = {
    **dict.fromkeys(("model", "dataset", "variant", "source"), pl.String),
    "n": pl.Int64,
    "unscored": pl.Int64,
    "metric": pl.String,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "bootstrap_low": pl.Float64,
    "bootstrap_high": pl.Float64,
    "status": pl.String,
    "reason": pl.String,
}


@study
def results_table(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Tabulate every metric; raises NotPossibleError if there are no runs."""
    if not runs:
        raise NotPossibleError
    rows = [row for run in runs for row in (*_variant_rows(run, options), *_joint_rows(run, options))]
    frame = pl.DataFrame([*rows, *_paper_rows(runs)], schema=SCHEMA, orient="row")
    values = {
        **data_values(runs),
        "runs": len(runs),
        "resamples": f"{RESAMPLES:,}",
        "joint": JOINT in frame["variant"],
        "paper": PAPER in frame["source"],
    }
    return Study(frame, draw, printed, values=values)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel a metric and one line a variant."""
    lines = frame.select("model", "variant", "source").unique(maintain_order=True).rows()
    places, headings = _places(lines)
    figure.set_size_inches(7.0, 0.9 + 0.17 * (len(lines) + len(headings)))
    panels = figure.subplots(1, len(COMPARED), sharey=True)
    for axes, metric in zip(panels, COMPARED, strict=True):
        for row in frame.filter(pl.col("metric") == metric).iter_rows(named=True):
            _draw_estimate(axes, places[row["model"], row["variant"], row["source"]], row)
        axes.set_title(METRICS[metric].label, loc="center")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.12)
        style.few_ticks(axes.xaxis, 2)
        style.ticks_above_too(axes)
    _name_lines(panels[0], places, headings)


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Lay the table out as the paper does: one row a run and variant, one column a metric."""
    cells = [with_interval(*row) for row in frame.select("estimate", "low", "high", "reason").iter_rows()]
    named = frame.with_columns(
        pl.Series("cell", cells),
        pl.col("metric").replace_strict({name: one.label for name, one in METRICS.items()}).alias("heading"),
    )
    wide = widened(named, ["model", "dataset", "variant", "n"], "heading", "cell")
    return wide.rename({"model": "Model", "dataset": "Dataset", "variant": "Variant"})


def _variant_rows(run: ComparedRun, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    for scores in variant_scores(run, options):
        whose = (run.label, run.dataset, scores.variant, RUN, scores.table.n, scores.unscored)
        draws = resampled_tables(scores.table, options)
        for name in COMPARED:
            estimate, low, high, status, reason = scores.metrics[name].to_document().values()
            ends = percentile_interval(metric_draws(draws, name, options.penalty)[:, 0], options.confidence_level)
            yield (*whose, name, estimate, low, high, *(ends if estimate is not None else (None, None)), status, reason)


def _joint_rows(run: ComparedRun, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    if len(run.variants) > 1:
        index = run_index(run, options).index
        ends = (index.estimate, index.low, index.high, None, None)
        yield (run.label, run.dataset, JOINT, RUN, None, None, INDEX, *ends, index.status, index.reason)


def _paper_rows(runs: Sequence[ComparedRun]) -> Iterator[tuple[Any, ...]]:
    for row in paper_context(runs).iter_rows(named=True):
        for name in COMPARED:
            ends = (row[f"{name}_low"], row[f"{name}_high"])
            yield (row["model"], SIMPLEQA, None, PAPER, None, None, name, row[name], *ends, None, None, "ok", None)


def _places(
    lines: Sequence[tuple[str, str | None, str]],
) -> tuple[dict[tuple[str, str | None, str], float], dict[str, float]]:
    """Place each line from the top down, under a heading for its run; the paper's rows stand under one of their own."""
    places: dict[tuple[str, str | None, str], float] = {}
    headings: dict[str, float] = {}
    below = 0.0
    for model, variant, source in lines:
        heading = model if source == RUN else "The paper"
        if heading not in headings:
            below += 0.35 if headings else 0.0
            headings[heading] = below
            below += 1
        places[model, variant, source] = below
        below += 1
    return places, headings


def _draw_estimate(axes: Axes, place: float, row: dict[str, Any]) -> None:
    colour = style.PALE if row["source"] == PAPER else style.variant_colours([row["variant"]])[row["variant"]]
    if row["estimate"] is None:
        across: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "center", "va": "center"}
        axes.text(0.5, place, "undefined", fontsize=6, color=style.GREY, **across)
        return
    colour, marker = (style.INK, "D") if row["variant"] == JOINT else (colour, "o")
    face = None if row["status"] == "ok" else style.PAPER
    style.mark(axes, row["estimate"], place, colour, marker, xs=style.ends(row), face=face)


def _name_lines(axes: Axes, places: dict[tuple[str, str | None, str], float], headings: dict[str, float]) -> None:
    axes.set_yticks(list(places.values()), [style.safe_text(variant or model, 28) for model, variant, _ in places])
    names = style.short_names(list(headings), 36)
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center", "weight": "bold"}
    for heading, place in headings.items():
        at: dict[str, Any] = {"xy": (0, place), "xytext": (-4, 0), "xycoords": axes.get_yaxis_transform()}
        axes.annotate(names[heading], **at, fontsize=7.5, **look)
    axes.set_ylim(max(places.values()) + 0.7, -0.7)
