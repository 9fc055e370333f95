"""Confidence scores compared with right answers and with the Refusal Index: reliability diagrams and ROC curves.

As in the paper's comparison with external calibration methods, all methods of a run are shown on the same questions. A
run without scores but with repeated draws is scored by P(Answering): the share of the further draws in which the model
answered. The first draw is excluded, since its forced answer is to be predicted.

The figure has a panel per method for one run, or a pair of panels per run for several. The calibration error of a
perfectly calibrated score is positive by chance, which its interval takes into account.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from refusal_index.data.rates import contingency_table, first_draws
from refusal_index.findings.draws import corrected_indices, is_defined
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, scores, style
from refusal_index.plugins.studies.scores import label
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import UNDEFINED, abridged, with_interval
from refusal_index.stats import Estimate, auroc, expected_calibration_error, refusal_index
from refusal_index.stats.calibration import calibration_error_interval, reliability_table, roc_counts
from refusal_index.stats.intervals import normal_quantile, wilson_interval

INDICES = {name: METRICS[name].label for name in (INDEX, CORRECTED)}
"""Names of the two indices."""

WIDTH = style.WIDTH * 1.15
COLUMNS = 4
ROW = 0.2
"""Height of a line of numbers in inches."""


Looks = Mapping[str, scores.MethodLook]
"""Appearance of each method in figures."""


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw reliability diagrams and ROC curves, and below them their statistics and the Refusal Index."""
    curves = frame.filter(pl.col("part") != "index")
    index = frame.filter(part="index")
    if frame["model"].n_unique() == 1:
        _draw_run(figure, curves, index)
    else:
        _draw_runs(figure, curves, index)


def _draw_run(figure: Figure, curves: pl.DataFrame, index: pl.DataFrame) -> None:
    """Draw a panel per method, and below them the ROC curves and the statistics."""
    looks = scores.method_looks(curves)
    variants = index["variant"].unique(maintain_order=True).to_list()
    labels = [look.label for look in looks.values()]
    columns = min(COLUMNS, len(looks))
    grid = 0.5 + math.ceil(len(looks) / columns) * WIDTH / max(3, columns)
    # Where the last row is not full, the row above it has labels, too.
    grid += 0.35 if len(looks) % columns else 0.0
    numbers = max(3.0, 1.5 + ROW * (len(looks) + len(variants)))
    above, below = style.stacked(figure, WIDTH, grid, numbers)
    panels = style.panel_grid(above, labels, columns, ("Score", "Share right"), sharex=True, sharey=True)
    for panel, (method, look) in zip(panels, looks.items(), strict=True):
        bins = curves.filter(part="reliability", method=method)
        _prepare(panel)
        _draw_bins(panel, bins, look)
        # In the corner that is free of points.
        taken = bins.filter((pl.col("x") > 0.5) & (pl.col("low") < 0.2)).height
        corner: dict[str, Any] = {"x": 0, "y": 1, "va": "top"} if taken else {"x": 1, "y": 0, "ha": "right"}
        panel.text(s=f"ECE {bins['ece'][0]:.2f}", fontsize=6.5, color=style.GREY, **corner)
    left, right = below.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    roc = left.subplots()
    _draw_roc(roc, curves, looks)
    roc.set(title="ROC", xlabel="Wrong answers passed", ylabel="Right answers passed")
    heights = [0.6 + ROW * len(looks), 0.75 + ROW * len(variants)]
    upper, lower = right.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    area, error = upper.subplots(1, 2, sharey=True)
    _draw_numbers(area, error, enumerate(_first_rows(curves)), looks)
    style.name_rows((area, error), labels, 6.5)
    area.axvline(0.5, color=style.PALE, linewidth=1, zorder=1)
    error.tick_params(labelleft=False)
    for text, (method, look) in zip(area.get_yticklabels(), looks.items(), strict=True):
        text.set_color(style.GREY if method == scores.TOPIC else look.colour)
    # RI of each variant, with corrected RI below it.
    indices = lower.subplots()
    for row in index.drop_nulls("y").iter_rows(named=True):
        y = variants.index(row["variant"]) + (0.16 if row["method"] == CORRECTED else -0.16)
        _draw_index(indices, y, row, style.INK)
    indices.axvline(0, color=style.PALE, zorder=1)
    style.name_rows([indices], [style.safe_text(variant, 12) for variant in variants], 6.5)
    style.title_with_key(
        indices, "Refusal Index", {"RI": ("o", style.INK, style.INK), "corrected": ("s", style.INK, style.PAPER)}
    )


def _prepare(panel: Axes) -> None:
    panel.plot([0, 1], [0, 1], color=style.PALE, linewidth=1, zorder=1)
    panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def _draw_bins(panel: Axes, bins: pl.DataFrame, look: scores.MethodLook, *, alone: bool = True) -> None:
    panel.plot(bins["x"], bins["y"], color=look.colour, linewidth=0.9, linestyle=look.line, zorder=2)
    if alone:
        panel.vlines(bins["x"], bins["low"], bins["high"], color=look.colour, linewidth=0.9, zorder=2)
        areas = 8 + 50 * bins["count"] / bins["questions"]
        panel.scatter(
            bins["x"],
            bins["y"],
            s=areas,
            zorder=3,
            clip_on=False,
            marker=look.marker,
            color=look.face or look.colour,
            edgecolors=look.colour,
        )


def _draw_roc(panel: Axes, curves: pl.DataFrame, looks: Looks) -> None:
    _prepare(panel)
    has_several = curves["method"].n_unique() > 1
    for (method,), part in curves.group_by("method", maintain_order=True):
        roc = part.filter(part="roc")
        look = looks[str(method)]
        if not has_several:
            panel.fill_between(roc["x"], roc["low"], roc["high"], color=look.colour, alpha=0.12, linewidth=0)
        panel.plot(roc["x"], roc["y"], color=look.colour, linestyle=look.line, linewidth=1.2)


def _draw_numbers(area: Axes, error: Axes, rows: Iterable[tuple[float, dict[str, Any]]], looks: Looks) -> None:
    """Draw AUROC and ECE of the methods with their intervals, at the given heights."""
    for height, row in rows:
        look = looks[row["method"]]
        for panel, name in ((area, "auroc"), (error, "ece")):
            xs = style.ends(row, name)
            style.mark(panel, row[name], height, look.colour, look.marker, xs=xs, face=look.face, width=1.1)
    area.set_title("AUROC")
    error.set_title("ECE")
    error.set_xlim(left=0)


def _draw_index(panel: Axes, y: float, row: dict[str, Any], colour: str) -> None:
    corrected = row["method"] == CORRECTED
    style_options: dict[str, Any] = {"face": style.PAPER, "width": 0.7} if corrected else {"width": 1.1}
    style.mark(panel, row["y"], y, colour, "s" if corrected else "o", xs=style.ends(row), size=3.5, **style_options)


def _draw_runs(figure: Figure, curves: pl.DataFrame, index: pl.DataFrame) -> None:
    """Draw a pair of panels per run, and below them the statistics of all runs, in a band per run."""
    looks = scores.method_looks(curves)
    models = curves["model"].unique(maintain_order=True).to_list()
    rows = math.ceil(len(models) / 2)
    variants = index["variant"].unique(maintain_order=True).to_list()
    band = max(0.24, 0.1 * max(len(looks), 2 * len(variants)))
    grid = 0.3 + 1.85 * rows
    numbers = 0.75 + band * len(models)
    above, below = style.stacked(
        figure, WIDTH, grid, numbers, "Score; wrong answers passed", "Share right; right passed"
    )
    names = style.wrapped_names(models, 34)
    titles = [title for model in models for title in (names[model], "")]
    panels = style.panel_grid(above, titles, 4, sharex=True, sharey=True)
    area, error, indices = below.subplots(1, 3, sharey=True)
    colours = style.variant_colours(variants)
    numbered: list[tuple[float, dict[str, Any]]] = []
    for position, (model, left, right) in enumerate(zip(models, panels[::2], panels[1::2], strict=True)):
        part = curves.filter(model=model)
        indices_of_model = index.filter(model=model).drop_nulls("y")
        _prepare(left)
        for (method,), bins in part.filter(part="reliability").group_by("method", maintain_order=True):
            _draw_bins(left, bins, looks[str(method)], alone=part["method"].n_unique() == 1)
        _draw_roc(right, part, looks)
        first_rows = _first_rows(part)
        numbered += zip(_spread(position, len(first_rows)), first_rows, strict=True)
        for height, row in zip(
            _spread(position, indices_of_model.height), indices_of_model.iter_rows(named=True), strict=True
        ):
            _draw_index(indices, height, row, colours[row["variant"]])
    _draw_numbers(area, error, numbered, looks)
    short = style.wrapped_names(models, 28)
    style.name_rows((area, error, indices), [short[model] for model in models], 6)
    indices.set_title("RI")
    area.axvline(0.5, color=style.PALE, zorder=1)
    indices.axvline(0, color=style.PALE, zorder=1)
    figures = [style.handle(f"RI, {style.safe_text(name, 12)}", colour, "o") for name, colour in colours.items()]
    figures.append(style.handle("corrected RI", style.GREY, "s", face=style.PAPER))
    style.outside_legend(figure, [*scores.method_handles(curves), *figures])


def _spread(centre: int, count: int) -> list[float]:
    """Return evenly spaced heights of markers within a band."""
    return [centre + 0.7 * ((i + 0.5) / count - 0.5) for i in range(count)]


OF_PAPER = frozenset({"p-ik", "apricot", scores.P_ANSWERING})
"""The methods that the paper compares; a run that lacks one has a note."""
N_BINS = 10
FEW_VALUES = 10
SCHEMA = schema(
    "model dataset part method variant trained questions left_out accuracy x y low high count bin_low bin_high "
    "threshold ece ece_low ece_high auroc auroc_low auroc_high status reason"
)
"""`part` is ``reliability``, ``roc`` or ``index``: for ``index``, `method` names the index and `y` is its estimate."""


@study
def calibrator_comparison(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has scores for both right and wrong answers."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    coarse: list[str] = []
    missing: dict[str, list[str]] = {}
    for scored in _scored(runs, notes):
        for name in OF_PAPER - {method.method for method in scored.methods}:
            missing.setdefault(name, []).append(scored.name)
        where = {"model": scored.name, "dataset": scored.run.dataset, "left_out": scored.left_out}
        method_rows: list[dict[str, Any]] = []
        for method in scored.methods:
            area = auroc(method.score, method.right)
            if area.estimate is None:
                notes.append(
                    study_text(
                        "calibrator_comparison",
                        "undefined",
                        name=scored.name,
                        method=label(method.method),
                        reason=area.reason,
                    )
                )
                continue
            labels = {"method": method.method, "variant": method.variant, "trained": method.is_trained}
            method_rows += ({**where, **labels, **row} for row in curve_rows(method.score, method.right, options))
        if method_rows:
            rows += [*method_rows, *({**where, **row} for row in _index_rows(scored, options))]
            counts = [
                (method.method, np.unique(method.score).size)
                for method in scored.methods
                if method.method != scores.TOPIC
            ]
            few = [f"{label(method)} {count}" for method, count in counts if count < FEW_VALUES]
            coarse += [f"{scored.name} ({', '.join(few)})"] if few else []
    if not rows:
        raise NotPossibleError(notes=notes)
    notes += (
        study_text("calibrator_comparison", "missing", method=label(name), models=abridged(missing[name]))
        for name in sorted(missing)
    )
    notes += inputs.left_out("Few values, which bins and curves show as they are", coarse)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    curves = frame.filter(pl.col("part") != "index")
    return Study(frame, draw, printed, notes, {"bins": N_BINS, **scores.score_texts(curves, "variant")})


def _scored(runs: Sequence[RunResults], notes: list[str]) -> Iterator[scores.ScoredRun]:
    """Yield every run with scores and, for other models and datasets, the run with the most draws."""
    names = inputs.display_names(runs)
    has_scores = {(inputs.model_name(run), run.dataset) for run in runs if run.confidence is not None}
    by_key: dict[tuple[str, str | None], scores.ScoredRun] = {}
    for run, name in zip(runs, names, strict=True):
        key = inputs.model_name(run), run.dataset
        if run.confidence is not None:
            scored, further = scores.scored_run(run, name)
            notes += further
            if scored is not None:
                yield scored
        elif key not in has_scores:
            scored_run = scores.drawn_run(run, name)
            if scored_run is not None and (key not in by_key or _draws(scored_run) > _draws(by_key[key])):
                by_key[key] = scored_run
    yield from by_key.values()


def _draws(scored: scores.ScoredRun) -> int:
    return int(scored.run.tables[scored.methods[0].variant]["draw"].n_unique())


def curve_rows(score: NDArray[np.float64], right: NDArray[np.bool_], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the points of the reliability diagram and of the ROC curve, with the statistics of each curve.

    `x` and `y` are the mean score and the share of right answers in a bin, or the false and true positive rates if
    answers that score at least `threshold` are predicted to be right; `low` and `high` are the Wilson interval of `y`.

    - `score`, `right`: scores and correctness of the same questions, with both right and wrong answers.
    """
    area = auroc(score, right)
    level = options.analysis.confidence_level
    gap = calibration_error_interval(score, right, n_bins=N_BINS, confidence_level=level, rng=options.analysis.seed)
    error = Estimate(expected_calibration_error(score, right, n_bins=N_BINS).estimate, *gap.or_none())
    summary = {
        "questions": right.size,
        "accuracy": float(right.mean()),
        **inputs.with_ends({"ece": error, "auroc": Estimate.of(area, area.confidence_interval(level))}),
        "status": area.status,
        "reason": area.reason,
    }
    for bin_ in reliability_table(score, right, n_bins=N_BINS, confidence_level=level):
        if bin_.count:
            yield {
                "part": "reliability",
                "x": bin_.mean_score,
                "y": bin_.outcome_rate,
                "low": bin_.outcome_rate_low,
                "high": bin_.outcome_rate_high,
                "count": bin_.count,
                "bin_low": bin_.low,
                "bin_high": bin_.high,
                **summary,
            }
    quantile = normal_quantile(level)
    n_right = int(right.sum())
    n_wrong = int((~right).sum())
    counts = zip(*(array.tolist() for array in roc_counts(score, right)), strict=True)
    for threshold, hits, count in ((None, 0, 0), *counts):
        low, high = wilson_interval(hits, n_right, quantile)
        yield {
            "part": "roc",
            "x": (count - hits) / n_wrong,
            "y": hits / n_right,
            "low": low,
            "high": high,
            "count": count,
            "threshold": threshold,
            **summary,
        }


def _index_rows(scored: scores.ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield RI of each variant on the same questions, and corrected RI if it is defined."""
    at_zero = scored.run.is_deterministic
    for variant, every in scored.run.tables.items():
        outcomes = every.filter(pl.col("question_id").is_in(scored.question_ids))
        table = contingency_table(first_draws(outcomes))
        (corrected,) = corrected_indices([outcomes], [at_zero])
        indices: dict[str, Any] = {INDEX: refusal_index(table)}
        if is_defined(corrected):
            indices[CORRECTED] = corrected
        for method, result in indices.items():
            index = Estimate.of(result, result.confidence_interval(options.analysis.confidence_level)).to_document()
            yield {
                "part": "index",
                "method": method,
                "variant": variant or inputs.ALL,
                "questions": table.n,
                "y": index.pop("estimate"),
                **index,
            }


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return calibration error and AUROC, one row per method, and below them the index, one row per variant."""
    rows = []
    for (model, _), part in frame.group_by("model", "dataset", maintain_order=True):
        for row in _first_rows(part.filter(pl.col("part") != "index")):
            score = label(row["method"]) + (f", {row['variant']}" if row["variant"] else "")
            labels = {"model": model, "score": score, "of": "trained" if row["trained"] else "the model"}
            numbers = {"ECE": style.ranged("ece")(row), "AUROC": style.ranged("auroc")(row)}
            rows.append({**labels, "questions": row["questions"], **numbers})
        for (variant,), index in part.filter(part="index").group_by("variant", maintain_order=True):
            labels = {"model": model, "score": f"refusals, {variant}", "of": "the model"}
            numbers = {
                INDICES[row["method"]]: with_interval(row["y"], *style.ends(row), row["reason"])
                for row in index.iter_rows(named=True)
            }
            rows.append({**labels, "questions": index["questions"][0], **numbers})
    columns = ("model", "score", "of", "questions", "ECE", "AUROC", *INDICES.values())
    return pl.DataFrame([{name: row.get(name, UNDEFINED) for name in columns} for row in rows])


def _first_rows(curves: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one row per method, with the statistics of its curves."""
    return curves.unique("method", keep="first", maintain_order=True).to_dicts()
