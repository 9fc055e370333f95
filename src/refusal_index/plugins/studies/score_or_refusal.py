"""Which prompts a threshold beats: the refusals of every prompt in the accuracy-refusal curve of each score.

Refusing the questions with the lowest scores gives a point for every share refused. A prompt's own refusals are one
such point, on the same questions and the same forced answers: below a curve, the threshold leaves more right answers
among as many refusals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.curves import empirical_accuracy_refusal_curve
from refusal_index.plugins.studies.scores import (
    ALL,
    ScoredMethod,
    ScoredRun,
    display_names,
    label,
    level_text,
    line_style,
    method_colours,
    same_answers,
    scored_run,
    short_labels,
)
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions
from refusal_index.render.format import abridged, number, with_interval
from refusal_index.stats import Estimate, ScoreDifference, compare_with_refusals
from refusal_index.stats.intervals import normal_quantile, wilson_interval

NAME = "score_or_refusal"
TITLE = "Score or refusal"
NEEDS = (
    "a run with scores of confidence, which 'refusal-index confidence' makes, with right and wrong answers and a "
    "prompt that refuses some questions"
)

BEATEN, BEATS, NOT_TOLD = "beaten", "beats the score", "not told"
"""What becomes of a prompt's refusals beside a score."""

POINTS = 200
"""Of a curve with more questions, so many points are kept besides its ends."""

SCHEMA = {
    **dict.fromkeys(("model", "dataset", "part", "method", "scores_of", "variant"), pl.String),
    "trained": pl.Boolean,
    "questions": pl.Int64,
    **dict.fromkeys(("accuracy", "refusal_rate", "correct_rate", "low", "high", "by_score"), pl.Float64),
    **dict.fromkeys(("difference", "difference_low", "difference_high", "cut"), pl.Float64),
    **dict.fromkeys(("verdict", "status", "reason"), pl.String),
}
"""`part` is ``curve``, ``refusals`` or ``comparison``; `correct_rate` is by the score in a curve, else by refusals."""


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has scores and refusals to be compared."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for run, name in zip(runs, display_names(runs), strict=True):
        if run.confidence is None:
            continue
        found, said = scored_run(run, name)
        notes += said
        if found is None:
            continue
        scored, others = same_answers(found)
        notes += others
        made = list(run_rows(scored, options))
        silent = [row["variant"] for row in made if row["part"] == "refusals" and row["refusal_rate"] in {0, 1}]
        if silent:
            notes.append(f"{name}: nothing to compare under {abridged(silent)}, which refused no question or all.")
        if any(row["part"] == "comparison" for row in made):
            rows += made
    if not rows:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return Study(NAME, TITLE, _caption(frame, options), frame, draw, tuple(notes), printed)


def run_rows(scored: ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the curve of each score, the point of each variant's refusals, and each score against each variant.

    - `scored`: whose methods all score the same answers.
    - `options`: level of the intervals.
    """
    where = {"model": scored.name, "dataset": scored.run.dataset, "accuracy": float(scored.methods[0].right.mean())}
    for one in scored.methods:
        yield from ({**where, **_of(one), **row} for row in _curve(one))
    for variant, outcomes in scored.run.variants.items():
        refused, known = _refusals(scored, outcomes)
        if not known.any():
            continue
        named = {**where, "variant": variant or ALL, "questions": int(known.sum())}
        yield {**named, **_point(refused[known], scored.methods[0].right[known], options)}
        for one in scored.methods:
            compared = _compared(one.score[known], refused[known], one.right[known], options)
            yield from ({**named, **_of(one), **row} for row in compared)


def _of(one: ScoredMethod) -> dict[str, Any]:
    return {"method": one.method, "scores_of": one.variant, "trained": one.is_trained}


def _refusals(scored: ScoredRun, outcomes: pl.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which questions of a run the first draw of a variant refused, and of which that is known."""
    first = first_draws(outcomes).select("question_id", "refused")
    ids = pl.DataFrame({"question_id": scored.question_ids})
    refused = ids.join(first, on="question_id", how="left", maintain_order="left")["refused"]
    return refused.fill_null(value=False).to_numpy(), refused.is_not_null().to_numpy()


def _curve(one: ScoredMethod) -> Iterator[dict[str, Any]]:
    refused, correct = empirical_accuracy_refusal_curve(one.score, one.right)
    kept = np.unique(np.linspace(0, refused.size - 1, min(refused.size, POINTS + 2)).round().astype(int))
    for place in kept:
        rates = {"refusal_rate": float(refused[place]), "correct_rate": float(correct[place])}
        yield {"part": "curve", "questions": one.right.size, **rates}


def _point(refused: NDArray[np.bool_], right: NDArray[np.bool_], options: StudyOptions) -> dict[str, Any]:
    n, hits = refused.size, int((right & ~refused).sum())
    low, high = wilson_interval(hits, n, normal_quantile(options.confidence_level))
    rates = {"refusal_rate": float(refused.mean()), "correct_rate": hits / n}
    return {"part": "refusals", **rates, "low": low, "high": high}


def _compared(
    score: NDArray[np.float64], refused: NDArray[np.bool_], right: NDArray[np.bool_], options: StudyOptions
) -> Iterator[dict[str, Any]]:
    """Yield a score against the refusals of one variant, where it refused some questions and not all."""
    found = compare_with_refusals(score, refused, ~right)
    if found.cut is None:
        return
    difference = found.correct_rate
    estimate = Estimate.of(difference, difference.confidence_interval(options.confidence_level))
    yield {
        "part": "comparison",
        "refusal_rate": float(refused.mean()),
        "correct_rate": difference.refusals,
        "by_score": difference.score,
        "difference": estimate.estimate,
        "difference_low": estimate.low,
        "difference_high": estimate.high,
        "cut": found.cut,
        "verdict": verdict(difference, options.confidence_level),
        "status": estimate.status,
        "reason": estimate.reason,
    }


def verdict(difference: ScoreDifference, confidence_level: float) -> str:
    """Say by the interval of the difference in right answers whether a threshold beats the refusals."""
    low, high = difference.confidence_interval(confidence_level).or_none()
    if low is None or high is None:
        return NOT_TOLD
    return BEATEN if low > 0 else BEATS if high < 0 else NOT_TOLD


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a score and variant: right answers by the refusals and by the score, and what becomes of them."""
    rows = [
        {
            "model": row["model"],
            "variant": row["variant"],
            "score": label(row["method"]) + (f", {row['scores_of']}" if row["scores_of"] else ""),
            "questions": row["questions"],
            "refused": number(row["refusal_rate"]),
            "right by refusals": number(row["correct_rate"]),
            "right by score": number(row["by_score"]),
            "difference": with_interval(row["difference"], row["difference_low"], row["difference_high"]),
            "refusals are": row["verdict"],
        }
        for row in frame.filter(part="comparison").iter_rows(named=True)
    ]
    return pl.DataFrame(rows)


_PANELS_A_ROW = 3
MOST_INTERVALS = 40
"""Of more comparisons the picture has no intervals, which the frame has."""


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a plane a run with the curves and the refusals, and below what each score gains on each variant."""
    models = frame["model"].unique(maintain_order=True).to_list()
    compared = frame.filter(part="comparison")
    bands = compared.select("model", "variant").unique(maintain_order=True)
    methods = compared["method"].unique(maintain_order=True).to_list()
    alone = len(models) == 1
    rows = math.ceil(len(models) / _PANELS_A_ROW)
    planes = 3.1 if alone else 2.1 * rows
    band = max(0.3, 0.1 * len(methods)) if compared.height <= MOST_INTERVALS else 0.27
    below_height = 0.7 + band * bands.height
    figure.set_size_inches(style.WIDTH * (1 if alone else 1.2), planes + below_height)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[planes, below_height])[:, 0]
    columns = min(len(models), _PANELS_A_ROW)
    panels = above.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    colours, names = method_colours(methods), style.short_names(models, 22)
    for panel, model in zip(panels.flat, models, strict=False):
        _draw_plane(panel, frame.filter(model=model), colours)
        if not alone:
            panel.set_title(names[model], fontsize=7)
    panels[0, 0].set(xlim=(-0.02, 1.02), ylim=(0, None))
    style.switch_off_rest(panels, len(models))
    above.supxlabel("Refusal rate", fontsize=8)
    above.supylabel("Correct rate", fontsize=8)
    _draw_gains(below.subplots(), compared, bands, colours)
    style.outside_legend(figure, [*_method_handles(compared, methods, colours), *_variant_handles(frame)])


def _draw_plane(panel: Axes, part: pl.DataFrame, colours: dict[str, str]) -> None:
    accuracy = part["accuracy"][0]
    # No order of the questions is beyond these: errors first, right answers first, and in between any order at random.
    panel.plot([0, 1 - accuracy, 1], [accuracy, accuracy, 0], color=style.PALE, linewidth=0.9, zorder=1)
    panel.plot([0, 1], [accuracy, 0], color=style.PALE, linewidth=0.9, linestyle="--", zorder=1)
    for (method,), curve in part.filter(part="curve").group_by("method", maintain_order=True):
        look = line_style(str(method), is_trained=curve["trained"][0])
        panel.plot(curve["refusal_rate"], curve["correct_rate"], color=colours[str(method)], linestyle=look, lw=1.1)
    points = part.filter(part="refusals")
    variants = style.variant_colours(points["variant"].to_list())
    for row in points.iter_rows(named=True):
        style.interval_along_y(panel, row["refusal_rate"], row["low"], row["high"], style.INK, 0.9)
        face: dict[str, Any] = {"markerfacecolor": variants[row["variant"]], "markersize": 6.5}
        panel.plot(row["refusal_rate"], row["correct_rate"], "o", color=style.INK, zorder=5, **face)
    panel.grid(visible=False)


def _draw_gains(panel: Axes, compared: pl.DataFrame, bands: pl.DataFrame, colours: dict[str, str]) -> None:
    """Draw the difference in right answers, a band a variant: filled where its interval leaves 0 out."""
    panel.axvline(0, color=style.PALE, linewidth=1, zorder=1)
    markers, with_intervals = style.model_markers(list(colours)), compared.height <= MOST_INTERVALS
    spread = 0.8 if with_intervals else 0.4
    for place, (model, variant) in enumerate(bands.iter_rows()):
        part = compared.filter(model=model, variant=variant)
        for turn, row in enumerate(part.iter_rows(named=True)):
            height, colour = place + spread * ((turn + 0.5) / part.height - 0.5), colours[row["method"]]
            if with_intervals:
                style.interval_along_x(panel, height, row["difference_low"], row["difference_high"], colour, 1)
            face = style.PAPER if row["verdict"] == NOT_TOLD else colour
            look: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 4}
            panel.plot(row["difference"], height, markers[row["method"]], **look)
    models = style.short_names(bands["model"].to_list(), 22)
    alone = bands["model"].n_unique() == 1
    names = [
        style.safe_text(variant, 12) if alone else f"{models[model]}, {style.safe_text(variant, 12)}"
        for model, variant in bands.iter_rows()
    ]
    style.name_rows(panel, names, 6.5)
    for place in range(1, bands.height):
        panel.axhline(place - 0.5, color="#ececec", linewidth=0.6, zorder=0)
    panel.set_title("Right answers by the score, less those by the refusals")
    panel.set_xlabel("share of all questions, with as many refused")


def _method_handles(compared: pl.DataFrame, methods: Sequence[str], colours: dict[str, str]) -> Iterator[Line2D]:
    trained = dict(compared.group_by("method").agg(pl.col("trained").any()).iter_rows())
    names, markers = short_labels(methods), style.model_markers(methods)
    for method in methods:
        look: dict[str, Any] = {"linestyle": line_style(method, is_trained=trained[method]), "markersize": 4}
        look["marker"] = markers[method]
        yield Line2D([], [], color=colours[method], label=names[method], **look)


def _variant_handles(frame: pl.DataFrame) -> Iterator[Line2D]:
    variants = frame.filter(part="refusals")["variant"].unique(maintain_order=True).to_list()
    look: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": style.INK, "markersize": 5}
    for variant, colour in style.variant_colours(variants).items():
        yield Line2D([], [], markerfacecolor=colour, label=f"refusals, {style.safe_text(variant, 12)}", **look)


def _caption(frame: pl.DataFrame, options: StudyOptions) -> str:
    level, compared = level_text(options), frame.filter(part="comparison")
    keys = frame.filter(part="curve").unique("model", maintain_order=True).select("model", "questions")
    each = abridged([f"{model}, {questions:,} questions" for model, questions in keys.iter_rows()])
    whose = compared.drop_nulls("scores_of").unique(["model", "method"], maintain_order=True)
    prompts = abridged([f"{label(row['method'])} {row['scores_of']}" for row in whose.iter_rows(named=True)])
    beaten = compared.filter(verdict=BEATEN)
    return (
        f"Above: the share of all questions answered right when those with the lowest scores are refused ({each}), "
        "every answer the forced one; dashed lines are of predictors that were trained, dotted is the topic alone. "
        f"Circles: each prompt's own refusals, first draws, on the same questions and answers, with {level} Wilson "
        "intervals. Grey: what the best order and, dashed, a random one would give. A circle below a curve is beaten "
        "by a threshold. Below: right answers by the score less those by the refusals, as many refused, paired by "
        f"question, with {level} intervals, each by itself; filled where the interval leaves 0 out. So "
        f"{beaten.height:,} of {compared.height:,} comparisons have the refusals beaten, "
        f"{compared.filter(verdict=BEATS).height:,} the score."
        + (" The intervals of so many are in the frame." if compared.height > MOST_INTERVALS else "")
        + (f" Scores that differ between prompts are those of one: {prompts}." if prompts else "")
    )
