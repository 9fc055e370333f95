"""How the scores of confidence relate to right answers, and to the Refusal Index: reliability diagrams and ROC curves.

As in the paper's comparison with external calibration methods, all methods of a run are shown on the same questions.
A run without scores of its own but with repeated draws has P(Answering): the share of the further draws in which the
model answered. The first draw is left out of it, since its forced answer is what is predicted.

The figure of the comparison of calibrators: a panel a method for one run, a pair of panels a run for several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from refusal_index.data.rates import contingency_table
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws
from refusal_index.findings.draws import corrected_indices, is_defined
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.calibration_interval import calibration_error_interval
from refusal_index.plugins.studies.scores import (
    ALL,
    TOPIC,
    ScoredMethod,
    ScoredRun,
    display_names,
    drawn_run,
    label,
    level_text,
    line_style,
    method_colours,
    model_name,
    scored_run,
    short_labels,
)
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions
from refusal_index.render.format import abridged, number, reason_text, with_interval
from refusal_index.stats import Estimate, auroc, expected_calibration_error, refusal_index, reliability_table
from refusal_index.stats.calibration.auroc import roc_counts
from refusal_index.stats.intervals import normal_quantile, wilson_interval

INDICES = {name: METRICS[name].label for name in (INDEX, CORRECTED)}
"""What the two indices are called."""

WIDTH = style.WIDTH * 1.15
MOST_IN_ROW = 3
"""So many methods have their reliability in one row with the ROC curves, more of them in a grid above."""
COLUMNS = 4
ROW = 0.2
"""Inches of a line of numbers."""


@dataclass(frozen=True)
class _Looks:
    """How the methods of a frame are drawn."""

    colours: Mapping[str, str]
    labels: Mapping[str, str]
    markers: Mapping[str, str]
    trained: Mapping[str, bool]

    def line(self, method: str) -> str:
        return line_style(method, is_trained=self.trained[method])

    def face(self, method: str) -> str:
        return style.PAPER if self.trained[method] else self.colours[method]


def _looks_of(curves: pl.DataFrame) -> _Looks:
    methods = curves["method"].unique(maintain_order=True).to_list()
    trained = dict(curves.group_by("method").agg(pl.col("trained").any()).iter_rows())
    return _Looks(method_colours(methods), short_labels(methods), style.model_markers(methods), trained)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw reliability diagrams and ROC curves, and below them the numbers beside the Refusal Index."""
    if frame["model"].n_unique() == 1:
        _draw_run(figure, frame)
    else:
        _draw_runs(figure, frame)


def _draw_run(figure: Figure, frame: pl.DataFrame) -> None:
    curves, index = frame.filter(pl.col("part") != "index"), frame.filter(part="index")
    looks, methods = _looks_of(curves), curves["method"].unique(maintain_order=True).to_list()
    variants = index["variant"].n_unique()
    if len(methods) <= MOST_IN_ROW:
        side = WIDTH / (len(methods) + 1)
        numbers = 0.85 + ROW * max(len(methods), variants)
        figure.set_size_inches(WIDTH, side + 0.25 + numbers)
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[side + 0.25, numbers])[:, 0]
        *diagrams, roc = above.subplots(1, len(methods) + 1, squeeze=False)[0]
        area, error, indices = below.subplots(1, 3, width_ratios=(1.2, 1, 1))
    else:
        rows = math.ceil(len(methods) / COLUMNS)
        grid, numbers = 0.35 + 1.5 * rows, max(3.0, 1.5 + ROW * (len(methods) + variants))
        figure.set_size_inches(WIDTH, grid + numbers)
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[grid, numbers])[:, 0]
        panels = above.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
        style.switch_off_rest(panels, len(methods))
        diagrams = list(panels.flat)[: len(methods)]
        left, right = below.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
        roc = left.subplots()
        heights = [0.6 + ROW * len(methods), 0.75 + ROW * variants]
        upper, lower = right.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        area, error = upper.subplots(1, 2, sharey=True)
        indices = lower.subplots()
    _draw_diagrams(diagrams, curves, looks)
    _draw_roc(roc, curves, looks)
    roc.set(title="ROC", xlabel="Wrong answers passed", ylabel="Right answers passed")
    _draw_numbers(area, error, curves, looks)
    _draw_indices(indices, index)


def _draw_diagrams(panels: Sequence[Axes], curves: pl.DataFrame, looks: _Looks) -> None:
    """Draw the reliability of each method in a panel of its own."""
    for panel, (method, part) in zip(panels, _by_method(curves), strict=True):
        _prepare(panel)
        _draw_bins(panel, part.filter(part="reliability"), method, looks)
        panel.set_title(looks.labels[method], fontsize=7.5)
        _write_error(panel, part.filter(part="reliability"))
    for place, panel in enumerate(panels):
        grid = panel.get_subplotspec()
        if grid is not None and grid.is_first_col():
            panel.set_ylabel("Share right")
        if len(panels) <= MOST_IN_ROW or place + COLUMNS >= len(panels):
            panel.set_xlabel("Score")


def _write_error(panel: Axes, bins: pl.DataFrame) -> None:
    """Write the calibration error into the corner that the points leave free."""
    taken = bins.filter((pl.col("x") > 0.5) & (pl.col("low") < 0.2)).height
    corner: dict[str, Any] = {"ha": "left", "va": "top"} if taken else {"ha": "right", "va": "bottom"}
    x, y = (0, 1) if taken else (1, 0)
    panel.text(x, y, f"ECE {bins['ece'][0]:.2f}", fontsize=6.5, color=style.GREY, **corner)


def _prepare(panel: Axes) -> None:
    panel.plot([0, 1], [0, 1], color=style.PALE, linewidth=1, zorder=1)
    panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def _draw_bins(panel: Axes, bins: pl.DataFrame, method: str, looks: _Looks, *, alone: bool = True) -> None:
    colour = looks.colours[method]
    panel.plot(bins["x"], bins["y"], color=colour, linewidth=0.9, linestyle=looks.line(method), zorder=2)
    if alone:
        panel.vlines(bins["x"], bins["low"], bins["high"], color=colour, linewidth=0.9, zorder=2)
        areas = 8 + 50 * bins["count"] / bins["questions"]
        panel.scatter(
            *(bins["x"], bins["y"]),
            s=areas,
            marker=looks.markers[method],
            color=looks.face(method),
            edgecolors=colour,
            zorder=3,
            clip_on=False,
        )


def _draw_roc(panel: Axes, curves: pl.DataFrame, looks: _Looks) -> None:
    _prepare(panel)
    several = curves["method"].n_unique() > 1
    for method, part in _by_method(curves):
        roc, colour = part.filter(part="roc"), looks.colours[method]
        if not several:
            panel.fill_between(roc["x"], roc["low"], roc["high"], color=colour, alpha=0.12, linewidth=0)
        panel.plot(roc["x"], roc["y"], color=colour, linestyle=looks.line(method), linewidth=1.2)


def _draw_numbers(area: Axes, error: Axes, curves: pl.DataFrame, looks: _Looks) -> None:
    """Draw AUROC and ECE with their intervals, a line a method."""
    methods = [method for method, _ in _by_method(curves)]
    for panel, name, title in ((area, "auroc", "AUROC"), (error, "ece", "ECE")):
        for place, (method, part) in enumerate(_by_method(curves)):
            _draw_number(panel, place, part.row(0, named=True), name, method, looks)
        style.name_rows(panel, [looks.labels[method] for method in methods], 6.5)
        panel.set_title(title)
    area.axvline(0.5, color=style.PALE, linewidth=1, zorder=1)
    error.set_xlim(left=0)
    error.tick_params(labelleft=False)
    for text, method in zip(area.get_yticklabels(), methods, strict=True):
        text.set_color(style.GREY if method == TOPIC else looks.colours[method])


def _draw_number(panel: Axes, place: float, row: dict[str, Any], name: str, method: str, looks: _Looks) -> None:
    colour = looks.colours[method]
    style.interval_along_x(panel, place, row[f"{name}_low"], row[f"{name}_high"], colour, 1.1)
    panel.plot(row[name], place, looks.markers[method], color=colour, markerfacecolor=looks.face(method), markersize=4)


def _draw_indices(panel: Axes, index: pl.DataFrame) -> None:
    """Draw RI of each variant, and below it corrected RI."""
    variants = index["variant"].unique(maintain_order=True).to_list()
    for row in index.drop_nulls("y").iter_rows(named=True):
        place = variants.index(row["variant"]) + (0.16 if row["method"] == CORRECTED else -0.16)
        _draw_index(panel, place, row, style.INK)
    panel.axvline(0, color=style.PALE, zorder=1)
    style.name_rows(panel, [style.safe_text(variant, 12) for variant in variants], 6.5)
    looks = {"RI": ("o", style.INK, style.INK), "corrected": ("s", style.INK, style.PAPER)}
    style.title_with_key(panel, "Refusal Index", looks)


def _draw_index(panel: Axes, place: float, row: dict[str, Any], colour: str) -> None:
    corrected = row["method"] == CORRECTED
    style.interval_along_x(panel, place, row["low"], row["high"], colour, 0.7 if corrected else 1.1)
    face = style.PAPER if corrected else colour
    panel.plot(row["y"], place, "s" if corrected else "o", color=colour, markerfacecolor=face, markersize=3.5)


def _draw_runs(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a pair of panels a run, and below the numbers of all runs, a band a run."""
    curves, index = frame.filter(pl.col("part") != "index"), frame.filter(part="index")
    looks, models = _looks_of(curves), frame["model"].unique(maintain_order=True).to_list()
    rows = math.ceil(len(models) / 2)
    methods, variants = curves["method"].n_unique(), index["variant"].n_unique()
    band = max(0.24, 0.1 * max(methods, 2 * variants))
    grid, numbers = 0.3 + 1.72 * rows, 0.75 + band * len(models)
    figure.set_size_inches(WIDTH, grid + numbers)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[grid, numbers])[:, 0]
    panels = above.subplots(rows, 4, sharex=True, sharey=True, squeeze=False)
    names = style.short_names(models, 30)
    for place, model in enumerate(models):
        left, right = panels.flat[2 * place], panels.flat[2 * place + 1]
        part = curves.filter(model=model)
        _prepare(left)
        for method, rows_of in _by_method(part):
            bins = rows_of.filter(part="reliability")
            _draw_bins(left, bins, method, looks, alone=part["method"].n_unique() == 1)
        _draw_roc(right, part, looks)
        left.set_title(names[model], fontsize=7.5)
    style.switch_off_rest(panels, 2 * len(models))
    above.supxlabel("Score; wrong answers passed", fontsize=8)
    above.supylabel("Share right; right passed", fontsize=8)
    _draw_bands(below, curves, index, looks, models)
    style.outside_legend(figure, [*_method_handles(looks), *_index_handles(index)])


def _method_handles(looks: _Looks) -> Iterator[Line2D]:
    for method, name in looks.labels.items():
        look: dict[str, Any] = {"linestyle": looks.line(method), "marker": looks.markers[method], "markersize": 4}
        face = looks.face(method)
        yield Line2D([], [], color=looks.colours[method], markerfacecolor=face, label=name, **look)


def _index_handles(index: pl.DataFrame) -> Iterator[Line2D]:
    look: dict[str, Any] = {"linestyle": "none", "markersize": 4}
    for variant, colour in style.variant_colours(index["variant"].unique(maintain_order=True).to_list()).items():
        yield Line2D([], [], color=colour, marker="o", label=f"RI, {style.safe_text(variant, 12)}", **look)
    yield Line2D([], [], color=style.GREY, marker="s", markerfacecolor=style.PAPER, label="corrected RI", **look)


def _draw_bands(
    below: SubFigure, curves: pl.DataFrame, index: pl.DataFrame, looks: _Looks, models: Sequence[str]
) -> None:
    area, error, indices = below.subplots(1, 3, sharey=True)
    variants = index["variant"].unique(maintain_order=True).to_list()
    colours = style.variant_colours(variants)
    for place, model in enumerate(models):
        found = [(method, part.row(0, named=True)) for method, part in _by_method(curves.filter(model=model))]
        for height, (method, row) in zip(_spread(place, len(found)), found, strict=True):
            _draw_number(area, height, row, "auroc", method, looks)
            _draw_number(error, height, row, "ece", method, looks)
        of_model = index.filter(model=model).drop_nulls("y")
        for height, row in zip(_spread(place, of_model.height), of_model.iter_rows(named=True), strict=True):
            _draw_index(indices, height, row, colours[row["variant"]])
    names = style.short_names(models, 22)
    style.name_rows(area, [names[model] for model in models], 6.5)
    for panel, title in ((area, "AUROC"), (error, "ECE"), (indices, "RI")):
        panel.set_title(title)
        panel.grid(visible=False, axis="y")
    area.axvline(0.5, color=style.PALE, zorder=1)
    indices.axvline(0, color=style.PALE, zorder=1)
    error.set_xlim(left=0)


def _spread(place: int, count: int) -> list[float]:
    """Return the heights of so many marks within a band."""
    return [place + 0.7 * ((one + 0.5) / count - 0.5) for one in range(count)]


def _by_method(curves: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for (method,), part in curves.group_by("method", maintain_order=True):
        yield str(method), part


NAME = "calibrator_comparison"
TITLE = "Comparison of calibrators"
NEEDS = (
    "a run with scores of confidence ('refusal-index confidence' makes them), or with repeated draws whose every "
    "answer was forced too, with right and wrong answers"
)
N_BINS = 10
FEW_VALUES = 10
SCHEMA = {
    **dict.fromkeys(("model", "dataset", "part", "method", "variant"), pl.String),
    "trained": pl.Boolean,
    **dict.fromkeys(("questions", "left_out"), pl.Int64),
    **dict.fromkeys(("accuracy", "x", "y", "low", "high"), pl.Float64),
    "count": pl.Int64,
    **dict.fromkeys(("bin_low", "bin_high", "threshold", "ece", "ece_low", "ece_high"), pl.Float64),
    **dict.fromkeys(("auroc", "auroc_low", "auroc_high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
"""`part` is ``reliability``, ``roc`` or ``index``: of the last `method` is the index, and `y` its estimate."""


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has scores with right and wrong answers."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    coarse: list[str] = []
    for scored in _scored(runs, notes):
        found = [row for one in scored.methods for row in _method_rows(scored, one, options, notes)]
        if found:
            rows += [*found, *_index_rows(scored, options)]
            coarse += _coarse(scored)
    if not rows:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    if coarse:
        notes.append(f"Few values, which bins and curves show as they are: {abridged(coarse)}.")
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return Study(NAME, TITLE, _caption(frame, options), frame, draw, tuple(notes), printed)


def _scored(runs: Sequence[ComparedRun], notes: list[str]) -> Iterator[ScoredRun]:
    """Yield every run with scores and, of each other model and dataset, the run with the most draws."""
    names = display_names(runs)
    has_scores = {(model_name(run), run.dataset) for run in runs if run.confidence is not None}
    drawn: dict[tuple[str, str | None], ScoredRun] = {}
    for run, name in zip(runs, names, strict=True):
        key = model_name(run), run.dataset
        if run.confidence is not None:
            scored, said = scored_run(run, name)
            notes += said
            if scored is not None:
                yield scored
        elif key not in has_scores:
            found = drawn_run(run, name)
            if found is not None and (key not in drawn or _draws(found) > _draws(drawn[key])):
                drawn[key] = found
    yield from drawn.values()


def _draws(scored: ScoredRun) -> int:
    return int(scored.run.variants[scored.methods[0].variant]["draw"].n_unique())


def _method_rows(
    scored: ScoredRun, one: ScoredMethod, options: StudyOptions, notes: list[str]
) -> Iterator[dict[str, Any]]:
    area = auroc(one.score, one.right)
    if area.estimate is None:
        notes.append(
            f"{scored.name}: {label(one.method)} is left out: the AUROC is undefined ({reason_text(area.reason)})."
        )
        return
    where = {**_where(scored), "method": one.method, "variant": one.variant, "trained": one.is_trained}
    for row in curve_rows(one.score, one.right, options):
        yield {**where, "left_out": scored.left_out, **row}


def _where(scored: ScoredRun) -> dict[str, Any]:
    return {"model": scored.name, "dataset": scored.run.dataset}


def curve_rows(score: NDArray[np.float64], right: NDArray[np.bool_], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the points of the reliability diagram and of the ROC curve, each with the summary of its curve.

    `x` and `y` are mean score and share of right answers in a bin, or false and true positive rate where questions
    that score at least `threshold` are called right; `low` and `high` are the Wilson interval of `y`.

    - `score`, `right`: of the same questions, with right and wrong answers among them.
    """
    summary = _summary(score, right, options)
    for bin_ in reliability_table(score, right, n_bins=N_BINS, confidence_level=options.confidence_level):
        if bin_.count:
            point = {"x": bin_.mean_score, "y": bin_.outcome_rate}
            ends = {"low": bin_.outcome_rate_low, "high": bin_.outcome_rate_high}
            place = {"count": bin_.count, "bin_low": bin_.low, "bin_high": bin_.high}
            yield {"part": "reliability", **point, **ends, **place, **summary}
    quantile = normal_quantile(options.confidence_level)
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    counts = zip(*(one.tolist() for one in roc_counts(score, right)), strict=True)
    for threshold, hits, count in ((None, 0, 0), *counts):
        low, high = wilson_interval(hits, n_right, quantile)
        point = {"x": (count - hits) / n_wrong, "y": hits / n_right, "low": low, "high": high}
        yield {"part": "roc", **point, "count": count, "threshold": threshold, **summary}


def _summary(score: NDArray[np.float64], right: NDArray[np.bool_], options: StudyOptions) -> dict[str, Any]:
    area, level = auroc(score, right), options.confidence_level
    low, high = area.confidence_interval(level).or_none()
    error = calibration_error_interval(score, right, n_bins=N_BINS, confidence_level=level, rng=options.seed).or_none()
    return {
        "questions": right.size,
        "accuracy": float(right.mean()),
        "ece": expected_calibration_error(score, right, n_bins=N_BINS).estimate,
        **dict(zip(("ece_low", "ece_high"), error, strict=True)),
        "auroc": area.estimate,
        "auroc_low": low,
        "auroc_high": high,
        "status": area.status,
        "reason": area.reason,
    }


def _index_rows(scored: ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield RI of each variant on the same questions, and corrected RI where there is one."""
    at_zero = is_deterministic(scored.run.settings)
    for variant, every in scored.run.variants.items():
        outcomes = every.filter(pl.col("question_id").is_in(scored.question_ids))
        table = contingency_table(first_draws(outcomes))
        (corrected,) = corrected_indices([outcomes], [at_zero])
        found, level = refusal_index(table), options.confidence_level
        indices = {INDEX: Estimate.of(found, found.confidence_interval(level))}
        if is_defined(corrected):
            indices[CORRECTED] = Estimate.of(corrected, corrected.confidence_interval(level))
        for method, index in indices.items():
            yield {
                **_where(scored),
                "part": "index",
                "method": method,
                "variant": variant or ALL,
                "questions": table.n,
                "left_out": scored.left_out,
                "y": index.estimate,
                "low": index.low,
                "high": index.high,
                "status": index.status,
                "reason": index.reason,
            }


def _coarse(scored: ScoredRun) -> Iterator[str]:
    values = [(one, np.unique(one.score).size) for one in scored.methods if one.method != TOPIC]
    few = [f"{label(one.method)} {count}" for one, count in values if count < FEW_VALUES]
    if few:
        yield f"{scored.name} ({', '.join(few)})"


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print calibration error and AUROC, one row a method, and below them the index, one row a variant."""
    rows = []
    for (model, _), part in frame.group_by("model", "dataset", maintain_order=True):
        curves = part.filter(pl.col("part") != "index").group_by("method", maintain_order=True).first()
        rows += [_printed_method(str(model), row) for row in curves.iter_rows(named=True)]
        for (variant,), index in part.filter(part="index").group_by("variant", maintain_order=True):
            rows.append(_printed_index(str(model), str(variant), index))
    return pl.DataFrame(rows)


def _printed_method(model: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": model,
        "score": label(row["method"]) + (f", {row['variant']}" if row["variant"] else ""),
        "of": "trained" if row["trained"] else "the model",
        "questions": row["questions"],
        "ECE": with_interval(row["ece"], row["ece_low"], row["ece_high"]),
        "AUROC": with_interval(row["auroc"], row["auroc_low"], row["auroc_high"]),
        **dict.fromkeys(INDICES.values(), number(None)),
    }


def _printed_index(model: str, variant: str, index: pl.DataFrame) -> dict[str, Any]:
    found = {row["method"]: row for row in index.iter_rows(named=True)}
    return {
        "model": model,
        "score": f"refusals, {variant}",
        "of": "the model",
        "questions": index["questions"][0],
        **dict.fromkeys(("ECE", "AUROC"), number(None)),
        **{
            title: with_interval(*(found[name][column] for column in ("y", "low", "high", "reason")))
            if name in found
            else number(None)
            for name, title in INDICES.items()
        },
    }


def _caption(frame: pl.DataFrame, options: StudyOptions) -> str:
    level, curves = level_text(options), frame.filter(pl.col("part") != "index")
    keys = curves.group_by("model", "dataset", maintain_order=True).agg(pl.col("questions").first())
    each = abridged([f"{model}, {questions:,} questions" for model, _, questions in keys.iter_rows()])
    whose = curves.drop_nulls("variant").unique(["model", "method"], maintain_order=True)
    prompts = abridged([f"{label(row['method'])} {row['variant']}" for row in whose.iter_rows(named=True)])
    return (
        f"Scores of how likely an answer is right, against right answers under forced answering ({each}; of each run "
        f"the same questions for all methods). Reliability: share right in {N_BINS} bins of equal width with {level} "
        "Wilson intervals, areas by the number of questions; on the diagonal as many are right as the score says. ROC: "
        "calling right what scores at least a threshold. ECE, the expected calibration error, which sampling keeps "
        f"above 0, and AUROC have {level} intervals, that of ECE by inverting a test. Solid and filled: the model's "
        "own scores; dashed and open: those of a predictor trained on its graded answers, each given by one that did "
        "not see its fold; dotted: what the topic alone tells, by the mean of the other folds. Beside them the Refusal "
        "Index of each prompt on the same questions, and the corrected one where there is one: both are of the "
        "refusals, and need no score."
        + (f" Scores that differ between prompts are those of one: {prompts}." if prompts else "")
    )
