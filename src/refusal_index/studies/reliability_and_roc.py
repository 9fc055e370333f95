"""How P(Answering) relates to right answers: the reliability diagram with its error, and the ROC curve.

P(Answering) is the share of a question's draws in which the model answered. The first draw is left out of it, since its
forced answer is what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from refusal_index.outcomes.draws import p_answering
from refusal_index.outcomes.matching import OutcomeMatrix, draw_matrix
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import auroc, expected_calibration_error, reliability_table
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import wilson_interval
from refusal_index.studies import style
from refusal_index.studies.cells import listed, number, with_interval
from refusal_index.studies.scores import ALL, dataset_name, level_text, model_name
from refusal_index.studies.study import NotPossibleError, Study, StudyOptions

NAME = "reliability_and_roc"
TITLE = "Reliability and ROC of P(Answering)"
NEEDS = "a run with repeated draws whose every answer was forced too, with right and wrong answers"
N_BINS = 10
FEW_DRAWS = 10
MOST_IN_PANEL = 3
"""So many runs have their numbers in the corner below the curves, more of them below the panels."""
WIDEST_SHIFT = 0.012
"""Between two runs at the same score; of many runs it is less, so that all stay near it."""

Scores = tuple[NDArray[np.float64], NDArray[np.bool_]]


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has repeated draws of both kinds of answers."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    coarse: list[str] = []
    for run, variant, matrix in _most_drawn(runs):
        scores, named = p_answering(matrix), {"model": model_name(run), "variant": variant or ALL}
        where, draws = ", ".join(named.values()), len(matrix.refused)
        area = auroc(*scores)
        if area.estimate is None:
            notes.append(f"{where} is left out: the AUROC is undefined ({area.reason}).")
            continue
        if draws < FEW_DRAWS:
            coarse.append(f"{where} ({draws})")
        common = {**named, "dataset": run.dataset, "drawn_in": run.label, "draws": draws}
        rows += ({**common, **row} for row in curve_rows(*scores, confidence_level=options.confidence_level))
    if not rows:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    if coarse:
        notes.append(
            f"P(Answering) takes as few values as there are draws, here of {listed(coarse)}; the paper draws 100."
        )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Study(NAME, TITLE, _caption(frame, options), frame, draw, tuple(notes), printed, foot=None)


def _most_drawn(runs: Sequence[ComparedRun]) -> tuple[tuple[ComparedRun, str | None, OutcomeMatrix], ...]:
    """Find for every model and dataset the run and variant with the most draws; ``normal`` of several."""
    found: dict[tuple[str, str | None], tuple[tuple[int, bool], ComparedRun, str | None, OutcomeMatrix]] = {}
    for run in runs:
        for variant, outcomes in run.variants.items():
            key, matrix = (model_name(run), run.dataset), draw_matrix(outcomes)
            rank = len(matrix.refused), variant == "normal"
            if rank[0] > 1 and (key not in found or rank > found[key][0]):
                found[key] = rank, run, variant, matrix
    return tuple((run, variant, matrix) for _, run, variant, matrix in found.values())


def curve_rows(
    score: NDArray[np.float64], right: NDArray[np.bool_], *, confidence_level: float = 0.95
) -> Iterator[dict[str, Any]]:
    """Yield the points of the reliability diagram and of the ROC curve, each with the summary of its curve.

    `x` and `y` are mean score and share of right answers in a bin, or false and true positive rate where questions
    that score at least `threshold` are called right; `low` and `high` are the Wilson interval of `y`.
    """
    error = expected_calibration_error(score, right, n_bins=N_BINS)
    area = auroc(score, right)
    low, high = area.confidence_interval(confidence_level)
    summary = {
        "questions": right.size,
        "ece": error.estimate,
        "auroc": area.estimate,
        "auroc_low": low,
        "auroc_high": high,
    }
    for bin_ in reliability_table(score, right, n_bins=N_BINS, confidence_level=confidence_level):
        if bin_.count:
            point = {"x": bin_.mean_score, "y": bin_.outcome_rate}
            ends = {"low": bin_.outcome_rate_low, "high": bin_.outcome_rate_high}
            place = {"count": bin_.count, "bin_low": bin_.low, "bin_high": bin_.high, "threshold": None}
            yield {"part": "reliability", **point, **ends, **place, **summary}
    quantile, n_right, n_wrong = normal_quantile(confidence_level), int(right.sum()), int((~right).sum())
    for threshold in (None, *np.unique(score)[::-1].tolist()):
        called = np.zeros(right.size, bool) if threshold is None else score >= threshold
        hits, count = int((called & right).sum()), int(called.sum())
        ends = dict(zip(("low", "high"), wilson_interval(hits, n_right, quantile), strict=True))
        point = {"x": (count - hits) / n_wrong, "y": hits / n_right}
        yield {
            "part": "roc",
            **point,
            **ends,
            "count": count,
            "bin_low": None,
            "bin_high": None,
            "threshold": threshold,
            **summary,
        }


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print expected calibration error and AUROC, one row a run."""
    first = frame.group_by("model", "dataset", "variant", maintain_order=True).first()
    rows = [
        {
            "model": row["model"],
            "variant": row["variant"],
            "draws": row["draws"],
            "questions": row["questions"],
            "ECE": number(row["ece"]),
            "AUROC": with_interval(row["auroc"], row["auroc_low"], row["auroc_high"]),
        }
        for row in first.iter_rows(named=True)
    ]
    return pl.DataFrame(rows)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the reliability diagram at the left and the ROC curve at the right."""
    figure.set_size_inches(style.WIDTH * 1.15, 3.3)
    left, right = figure.subplots(1, 2)
    keys = frame.select("model", "dataset", "variant").unique(maintain_order=True)
    curves = _curve_names(keys)
    names, step = style.short_names(curves, 18), min(WIDEST_SHIFT, 0.06 / keys.height)
    colours, markers, labels = style.model_colours(curves), style.model_markers(curves), {}
    for panel in (left, right):
        panel.plot([0, 1], [0, 1], color=style.PALE, linewidth=1)
        panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    for place, (key, curve) in enumerate(zip(keys.iter_rows(named=True), curves, strict=True)):
        part = frame.join(pl.DataFrame([key], schema=keys.schema), on=keys.columns, nulls_equal=True)
        bins, roc = (part.filter(part=kind) for kind in ("reliability", "roc"))
        colour, marker = colours[curve], markers[curve]
        _draw_bins(left, bins, colour, marker, (place - (keys.height - 1) / 2) * step)
        if keys.height <= style.MOST_BANDS:
            right.fill_between(roc["x"], roc["low"], roc["high"], color=colour, alpha=0.12, linewidth=0)
        right.plot(roc["x"], roc["y"], color=colour, marker=marker if roc.height < 12 else None, markersize=3)
        labels[curve] = f"{names[curve]}: {_numbers(part.row(0, named=True))}"
        if keys.height <= MOST_IN_PANEL:
            _say(right, keys.height - place, labels[curve], colour)
    left.set(title="Reliability", xlabel="P(Answering)", ylabel="Share right under forced answering")
    right.set(title="ROC", xlabel="Wrong answers passed", ylabel="Right answers passed")
    if keys.height > MOST_IN_PANEL:
        style.model_legend(figure, curves, labels)


def _curve_names(keys: pl.DataFrame) -> list[str]:
    """Name each curve by its model, and by its dataset where a model has several."""
    several = keys["model"].is_duplicated()
    return [
        f"{row['model']}, {dataset_name(row['dataset'])}" if again else row["model"]
        for row, again in zip(keys.iter_rows(named=True), several, strict=True)
    ]


def _draw_bins(axes: Axes, bins: pl.DataFrame, colour: str, marker: str, shift: float) -> None:
    # Shifted a little, so that intervals of several models at the same score do not hide each other.
    x = bins["x"] + shift
    axes.vlines(x, bins["low"], bins["high"], color=colour, linewidth=0.9)
    axes.plot(x, bins["y"], color=colour, linewidth=0.8, alpha=0.6)
    areas = 12 + 60 * bins["count"] / bins["questions"]
    axes.scatter(x, bins["y"], s=areas, color=colour, marker=marker, zorder=3, clip_on=False)


def _numbers(row: dict[str, Any]) -> str:
    area = with_interval(row["auroc"], row["auroc_low"], row["auroc_high"], digits=2)
    return f"ECE {row['ece']:.2f}, AUROC {area}"


def _say(axes: Axes, line: int, text: str, colour: str) -> None:
    place = (0.98, 0.055 * line - 0.025)
    axes.annotate(text, place, xycoords="axes fraction", ha="right", va="bottom", fontsize=5.8, color=colour)


def _caption(frame: pl.DataFrame, options: StudyOptions) -> str:
    first = frame.group_by("model", "dataset", "variant", maintain_order=True).first()
    many = first.height > style.MOST_BANDS
    each = "{model}, {variant}, {draws} draws of {questions:,} questions"
    runs = listed([each.format(**row) for row in first.iter_rows(named=True)])
    return (
        f"P(Answering) against right answers under forced answering ({runs}; of each model the run with the most "
        "draws). P(Answering) is the share of the further draws that answered; the answer is that of the first draw. "
        f"Left: share right in {N_BINS} bins of equal width with {level_text(options)} Wilson intervals, areas by the "
        "number of questions, and the expected calibration error, which sampling keeps above 0 even where calibration "
        "is perfect. On the diagonal a model would answer as often as it is right. Right: ROC curve, calling right "
        f"what scores at least a threshold, with the pointwise {level_text(options)} Wilson interval of the share of "
        "right answers passed, and its area with an interval."
        + (f" Of more than {style.MOST_BANDS} models the intervals of the ROC are in the frame." if many else "")
    )
