"""Interval of the calibration error, which is not 0 by chance even where a score is perfectly calibrated.

How the scores of confidence relate to right answers, and to the Refusal Index: reliability diagrams and ROC curves.

As in the paper's comparison with external calibration methods, all methods of a run are shown on the same questions.
A run without scores of its own but with repeated draws has P(Answering): the share of the further draws in which the
model answered. The first draw is left out of it, since its forced answer is what is predicted.

The figure of the comparison of calibrators: a panel a method for one run, a pair of panels a run for several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from refusal_index.data.rates import contingency_table
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws
from refusal_index.findings.draws import corrected_indices, is_defined
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.plugins.studies import inputs, scores, style
from refusal_index.plugins.studies.scores import label
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import abridged, number, with_interval
from refusal_index.stats import Estimate, auroc, expected_calibration_error, refusal_index
from refusal_index.stats.arguments import FloatArray, share
from refusal_index.stats.calibration import checked_probabilities, reliability_table, roc_counts
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, wilson_interval

CALIBRATION_RESAMPLES = 1_000
LARGEST_FACTOR = 1024.0
"""By which the observed gaps may be multiplied: beyond, they were nothing but noise."""


def calibration_error_interval(
    score: ArrayLike,
    outcome: ArrayLike,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = CALIBRATION_RESAMPLES,
    rng: Seed = None,
) -> ConfidenceInterval:
    """Interval of the calibration error that `expected_calibration_error` estimates with bins of equal width.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        In [0, 1].
    outcome : array_like of bool, shape (n,)
        Whether what the score claims came true.
    n_bins : int, default: 10
        Bins of equal width.
    confidence_level : float, default: 0.95
    n_resamples : int, default: 1000
    rng : int, Generator or None
        Seed of the resamples.

    Returns
    -------
    ConfidenceInterval
        Of the error in as many questions as one likes, with these bins. It reaches up to the estimate at least, and
        down to 0 where nothing speaks against perfect calibration. ``(nan, nan)`` where no question differs from the
        claim of its bin, as where all scores are 1 and all outcomes true, or there are no questions.

    Raises
    ------
    TypeError, ValueError
        As `expected_calibration_error`, or if the level is not a share.

    Examples
    --------
    >>> rng = np.random.default_rng(2)
    >>> score = rng.random(400)
    >>> right = rng.random(400) < score
    >>> for claim in (score, score**2):  # the second claims less than comes true, by 1/6 on average
    ...     low, high = calibration_error_interval(claim, right, rng=0)
    ...     print(f"[{low:.3f}, {high:.3f}]")
    [0.000, 0.070]
    [0.130, 0.209]
    """
    scores, truths = checked_probabilities(score, outcome)
    tail = (1 - share("confidence_level", confidence_level)) / 2
    n_resamples = checked_resamples(n_resamples)
    if not scores.size:
        return NO_INTERVAL
    gap, noise = _resampled(scores, truths, n_bins, n_resamples, rng)
    if not noise.any():
        return NO_INTERVAL
    observed, usual = float(np.abs(gap).sum()), float(np.median(np.abs(noise).sum(axis=1)))
    direction = np.where(gap < 0, -1, 1) * np.maximum(np.abs(gap), noise.std(axis=0))

    def quantile(factor: float, level: float) -> float:
        return float(np.quantile(np.abs(factor * direction + noise).sum(axis=1), level))

    low = _root(lambda factor: quantile(factor, 1 - tail) - observed)
    high = _root(lambda factor: quantile(factor, tail) - max(observed, usual))
    length = float(np.abs(direction).sum())
    return ConfidenceInterval(min(low * length, observed), min(max(high * length, observed), 1.0))


def _root(beyond: Callable[[float], float]) -> float:
    """Return the factor at which a rising function is 0; 0 where it is not below it there."""
    if beyond(0.0) >= 0:
        return 0.0  # the end of the range of factors
    end = 1.0
    while beyond(end) < 0 and end < LARGEST_FACTOR:
        end *= 2
    return float(brentq(beyond, 0.0, end)) if beyond(end) >= 0 else end


def _resampled(
    scores: FloatArray, truths: NDArray[np.bool_], n_bins: int, n_resamples: int, rng: Seed
) -> tuple[FloatArray, FloatArray]:
    """Return the gap of each bin, as a share of all questions, and the noise in it on resampled questions."""
    ends = [one.high for one in reliability_table(scores, truths, n_bins=n_bins)]
    # Rounded as the bins themselves are: a frequency at the end of a bin belongs to it.
    place, n = np.searchsorted(ends, np.round(scores, 10)), scores.size
    parts = np.zeros((n, n_bins))
    parts[np.arange(n), place] = (scores - truths) / n
    weights = np.random.default_rng(rng).multinomial(n, np.full(n, 1 / n), size=n_resamples)
    gap = parts.sum(axis=0)
    return gap, weights @ parts - gap


INDICES = {name: METRICS[name].label for name in (INDEX, CORRECTED)}
"""What the two indices are called."""

WIDTH = style.WIDTH * 1.15
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
        return scores.line_style(method, is_trained=self.trained[method])

    def mark(self, panel: Axes, height: float, row: dict[str, Any], name: str) -> None:
        """Draw a number of a method with its interval."""
        method = row["method"]
        face = style.PAPER if self.trained[method] else None
        look: dict[str, Any] = {"xs": style.ends(row, name), "face": face, "width": 1.1}
        style.mark(panel, row[name], height, self.colours[method], self.markers[method], **look)


def _looks_of(curves: pl.DataFrame) -> _Looks:
    methods = curves["method"].unique(maintain_order=True).to_list()
    trained = dict(curves.group_by("method").agg(pl.col("trained").any()).iter_rows())
    return _Looks(scores.method_colours(methods), scores.short_labels(methods), style.model_markers(methods), trained)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw reliability diagrams and ROC curves, and below them the numbers beside the Refusal Index."""
    curves, index = frame.filter(pl.col("part") != "index"), frame.filter(part="index")
    if frame["model"].n_unique() == 1:
        _draw_run(figure, curves, index)
    else:
        _draw_runs(figure, curves, index)


def _draw_run(figure: Figure, curves: pl.DataFrame, index: pl.DataFrame) -> None:
    """Draw a panel a method, and below the ROC curves and the numbers."""
    looks, variants = _looks_of(curves), index["variant"].n_unique()
    methods = list(looks.labels)
    columns = min(COLUMNS, len(methods))
    grid = 0.5 + math.ceil(len(methods) / columns) * WIDTH / max(3, columns)
    numbers = max(3.0, 1.5 + ROW * (len(methods) + variants))
    figure.set_size_inches(WIDTH, grid + numbers)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[grid, numbers])[:, 0]
    panels = style.panel_grid(above, list(looks.labels.values()), columns, sharex=True, sharey=True)
    for panel, method in zip(panels, methods, strict=True):
        bins = curves.filter(part="reliability", method=method)
        _prepare(panel)
        _draw_bins(panel, bins, method, looks)
        # Into the corner that the points leave free.
        taken = bins.filter((pl.col("x") > 0.5) & (pl.col("low") < 0.2)).height
        corner: dict[str, Any] = {"x": 0, "y": 1, "va": "top"} if taken else {"x": 1, "y": 0, "ha": "right"}
        panel.text(s=f"ECE {bins['ece'][0]:.2f}", fontsize=6.5, color=style.GREY, **corner)
    for panel in panels[::columns]:
        panel.set_ylabel("Share right")
    for panel in panels[-columns:]:
        panel.set_xlabel("Score")
    left, right = below.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.25))[0]
    roc = left.subplots()
    _draw_roc(roc, curves, looks)
    roc.set(title="ROC", xlabel="Wrong answers passed", ylabel="Right answers passed")
    heights = [0.6 + ROW * len(methods), 0.75 + ROW * variants]
    upper, lower = right.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    _draw_numbers(upper.subplots(1, 2, sharey=True), curves, looks)
    _draw_indices(lower.subplots(), index)


def _prepare(panel: Axes) -> None:
    panel.plot([0, 1], [0, 1], color=style.PALE, linewidth=1, zorder=1)
    panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def _draw_bins(panel: Axes, bins: pl.DataFrame, method: str, looks: _Looks, *, alone: bool = True) -> None:
    colour = looks.colours[method]
    panel.plot(bins["x"], bins["y"], color=colour, linewidth=0.9, linestyle=looks.line(method), zorder=2)
    if alone:
        panel.vlines(bins["x"], bins["low"], bins["high"], color=colour, linewidth=0.9, zorder=2)
        face, areas = style.PAPER if looks.trained[method] else colour, 8 + 50 * bins["count"] / bins["questions"]
        look: dict[str, Any] = {"marker": looks.markers[method], "color": face, "edgecolors": colour}
        panel.scatter(bins["x"], bins["y"], s=areas, zorder=3, clip_on=False, **look)


def _draw_roc(panel: Axes, curves: pl.DataFrame, looks: _Looks) -> None:
    _prepare(panel)
    several = curves["method"].n_unique() > 1
    for method, part in _by_method(curves):
        roc, colour = part.filter(part="roc"), looks.colours[method]
        if not several:
            panel.fill_between(roc["x"], roc["low"], roc["high"], color=colour, alpha=0.12, linewidth=0)
        panel.plot(roc["x"], roc["y"], color=colour, linestyle=looks.line(method), linewidth=1.2)


def _draw_numbers(panels: Sequence[Axes], curves: pl.DataFrame, looks: _Looks) -> None:
    """Draw AUROC and ECE with their intervals, a line a method."""
    area, error = panels
    for place, row in enumerate(_first_rows(curves)):
        looks.mark(area, place, row, "auroc")
        looks.mark(error, place, row, "ece")
    for panel, title in ((area, "AUROC"), (error, "ECE")):
        style.name_rows(panel, list(looks.labels.values()), 6.5)
        panel.set_title(title)
    area.axvline(0.5, color=style.PALE, linewidth=1, zorder=1)
    error.set_xlim(left=0)
    error.tick_params(labelleft=False)
    for text, method in zip(area.get_yticklabels(), looks.labels, strict=True):
        text.set_color(style.GREY if method == scores.TOPIC else looks.colours[method])


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
    look: dict[str, Any] = {"face": style.PAPER, "width": 0.7} if corrected else {"width": 1.1}
    style.mark(panel, row["y"], place, colour, "s" if corrected else "o", xs=style.ends(row), size=3.5, **look)


def _draw_runs(figure: Figure, curves: pl.DataFrame, index: pl.DataFrame) -> None:
    """Draw a pair of panels a run, and below the numbers of all runs, a band a run."""
    looks, models = _looks_of(curves), curves["model"].unique(maintain_order=True).to_list()
    rows = math.ceil(len(models) / 2)
    methods, variants = curves["method"].n_unique(), index["variant"].n_unique()
    band = max(0.24, 0.1 * max(methods, 2 * variants))
    grid, numbers = 0.3 + 1.72 * rows, 0.75 + band * len(models)
    figure.set_size_inches(WIDTH, grid + numbers)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[grid, numbers])[:, 0]
    names = style.short_names(models, 30)
    titles = [title for model in models for title in (names[model], "")]
    panels = style.panel_grid(above, titles, 4, sharex=True, sharey=True)
    for model, left, right in zip(models, panels[::2], panels[1::2], strict=True):
        part = curves.filter(model=model)
        _prepare(left)
        for method, rows_of in _by_method(part):
            bins = rows_of.filter(part="reliability")
            _draw_bins(left, bins, method, looks, alone=part["method"].n_unique() == 1)
        _draw_roc(right, part, looks)
    above.supxlabel("Score; wrong answers passed", fontsize=8)
    above.supylabel("Share right; right passed", fontsize=8)
    colours = style.variant_colours(index["variant"].unique(maintain_order=True).to_list())
    _draw_bands(below, curves, index, looks, models, colours)
    figures = [style.handle(f"RI, {style.safe_text(name, 12)}", colour, "o") for name, colour in colours.items()]
    figures.append(style.handle("corrected RI", style.GREY, "s", face=style.PAPER))
    style.outside_legend(figure, [*scores.method_handles(curves), *figures])


def _draw_bands(
    below: SubFigure,
    curves: pl.DataFrame,
    index: pl.DataFrame,
    looks: _Looks,
    models: Sequence[str],
    colours: Mapping[str | None, str],
) -> None:
    area, error, indices = below.subplots(1, 3, sharey=True)
    for place, model in enumerate(models):
        rows = _first_rows(curves.filter(model=model))
        for height, row in zip(_spread(place, len(rows)), rows, strict=True):
            looks.mark(area, height, row, "auroc")
            looks.mark(error, height, row, "ece")
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


N_BINS = 10
FEW_VALUES = 10
SCHEMA = schema(
    "model dataset part method variant trained questions left_out accuracy x y low high count bin_low bin_high "
    "threshold ece ece_low ece_high auroc auroc_low auroc_high status reason"
)
"""`part` is ``reliability``, ``roc`` or ``index``: of the last `method` is the index, and `y` its estimate."""


@study
def calibrator_comparison(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
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
        raise NotPossibleError(notes=notes)
    if coarse:
        notes.append(f"Few values, which bins and curves show as they are: {abridged(coarse)}.")
    frame = pl.DataFrame(rows, schema=SCHEMA)
    curves = frame.filter(pl.col("part") != "index")
    return Study(frame, draw, printed, notes, {"bins": N_BINS, **scores.score_texts(curves, "variant")})


def _scored(runs: Sequence[ComparedRun], notes: list[str]) -> Iterator[scores.ScoredRun]:
    """Yield every run with scores and, of each other model and dataset, the run with the most draws."""
    names = inputs.display_names(runs)
    has_scores = {(inputs.model_name(run), run.dataset) for run in runs if run.confidence is not None}
    drawn: dict[tuple[str, str | None], scores.ScoredRun] = {}
    for run, name in zip(runs, names, strict=True):
        key = inputs.model_name(run), run.dataset
        if run.confidence is not None:
            scored, said = scores.scored_run(run, name)
            notes += said
            if scored is not None:
                yield scored
        elif key not in has_scores:
            found = scores.drawn_run(run, name)
            if found is not None and (key not in drawn or _draws(found) > _draws(drawn[key])):
                drawn[key] = found
    yield from drawn.values()


def _draws(scored: scores.ScoredRun) -> int:
    return int(scored.run.variants[scored.methods[0].variant]["draw"].n_unique())


def _method_rows(
    scored: scores.ScoredRun, one: scores.ScoredMethod, options: StudyOptions, notes: list[str]
) -> Iterator[dict[str, Any]]:
    area = auroc(one.score, one.right)
    if area.estimate is None:
        notes.append(
            study_text(
                "calibrator_comparison", "undefined", name=scored.name, method=label(one.method), reason=area.reason
            )
        )
        return
    where = {**_where(scored), "method": one.method, "variant": one.variant, "trained": one.is_trained}
    for row in curve_rows(one.score, one.right, options):
        yield {**where, "left_out": scored.left_out, **row}


def _where(scored: scores.ScoredRun) -> dict[str, Any]:
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


def _index_rows(scored: scores.ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
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
                "variant": variant or inputs.ALL,
                "questions": table.n,
                "left_out": scored.left_out,
                "y": index.estimate,
                "low": index.low,
                "high": index.high,
                "status": index.status,
                "reason": index.reason,
            }


def _coarse(scored: scores.ScoredRun) -> Iterator[str]:
    values = [(one, np.unique(one.score).size) for one in scored.methods if one.method != scores.TOPIC]
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


def _first_rows(curves: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a row of each method, which has the numbers of its curves."""
    return curves.unique("method", keep="first", maintain_order=True).to_dicts()
