"""How much sampling noise hides: the Refusal Index by the number of samples that it is made of.

Noise that is independent between refusal and answer pulls the index of one draw towards 0. With two draws or more the
reliability of a draw is estimated and divided out. Noise that the refusal and the answer of one draw share moves the
index away from 0; the refusal of one draw with the answer of another is free of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import DrawnOutcomes, drawn_outcomes
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import ALL, display_names
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import fixed, ranged
from refusal_index.stats import Estimate, corrected_refusal_index, refusal_index

COUNTS = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
FEW_DRAWS = 3
"""Up to so many there is nothing to see in how the index changes with them."""
SINGLE, CROSSED, CORRECTED = "one_sample", "crossed_samples", "corrected"


@study
def attenuation(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has repeated draws."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for run, name in zip(runs, display_names(runs), strict=True):
        for variant, outcomes in run.variants.items():
            where = {"model": name, "dataset": run.dataset, "variant": variant or ALL}
            (drawn,) = drawn_outcomes([outcomes])
            if len(drawn.repeated.refused) < 2:
                notes.append(f"{name}, {variant or ALL} is left out: no question has two forced answers.")
                continue
            found = list(draws_rows(drawn, options))
            rows += ({**where, **row} for row in found)
            if found[-1]["estimate"] is None:
                notes.append(f"{name}, {variant or ALL}: the corrected index is undefined ({found[-1]['reason']}).")
    if not rows:
        raise NotPossibleError(notes=notes)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return Study(frame, draw, printed, notes, {"most": max(frame["draws"]), "left_out": _left_out(frame)})


def draws_rows(drawn: DrawnOutcomes, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the index of one draw, of two draws crossed, and corrected from more and more draws.

    - `drawn`: draws of the questions that were drawn more than once, all forced, and a single draw of all questions,
      which the corrected index takes in.
    - `options`: level and seed of the intervals.
    """
    refused, wrong, scored = drawn.repeated.arrays
    single = [row[0] for row in drawn.single.arrays]
    both = scored[0] & scored[1]
    for kind, answers in ((SINGLE, wrong[0]), (CROSSED, wrong[1])):
        found = refusal_index(refused=refused[0][both], wrong=answers[both])
        index = Estimate.of(found, found.confidence_interval(options.confidence_level))
        yield _row(kind, 1 if kind == SINGLE else 2, int(both.sum()), index)
    most = len(refused)
    for count in sorted({*(count for count in COUNTS if count < most), most}):
        corrected = corrected_refusal_index(refused[:count], wrong[:count], scored[:count], single=single)
        index = Estimate.of(corrected, corrected.confidence_interval(options.confidence_level))
        yield {
            **_row(CORRECTED, count, corrected.n_repeated, index),
            "uncorrected": corrected.uncorrected,
            "refusal_reliability": corrected.refusal_reliability,
            "error_reliability": corrected.error_reliability,
        }


def _row(kind: str, draws: int, questions: int, found: Estimate) -> dict[str, Any]:
    return {"kind": kind, "draws": draws, "questions": questions, **found.to_document()}


def _overview(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep of the corrected indices of each variant the one from the most draws."""
    most = pl.col("draws").max().over("model", "dataset", "variant")
    return frame.filter((pl.col("kind") != CORRECTED) | (pl.col("draws") == most))


SCHEMA = {
    **dict.fromkeys(("model", "dataset", "variant", "kind"), pl.String),
    **dict.fromkeys(("draws", "questions"), pl.Int64),
    **dict.fromkeys(("estimate", "low", "high"), pl.Float64),
    **dict.fromkeys(("uncorrected", "refusal_reliability", "error_reliability"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a model and variant: the three indices and the two reliabilities."""
    rows, index, reliability = [], ranged("estimate", 2), fixed
    for _, part in _overview(frame).group_by("model", "dataset", "variant", maintain_order=True):
        single, crossed, corrected = part.iter_rows(named=True)
        first = {"model": single["model"], "variant": single["variant"], "draws": corrected["draws"]}
        indices = {"one sample": index(single), "crossed": index(crossed), "corrected": index(corrected)}
        names = {name.replace("_", " "): reliability(name, 2)(corrected) for name in _RELIABILITIES}
        rows.append({**first, **indices, **names})
    return pl.DataFrame(rows)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw each variant's three indices and reliabilities, and below them the index by the number of draws."""
    keys, long = frame.select(*_KEY).unique(maintain_order=True), _drawn_by_counts(frame)
    height = 0.9 + 0.27 * keys.height
    figure.set_size_inches(style.WIDTH * 1.2, height + (2.3 if long.height else 0))
    rows = 2 if long.height else 1
    axes = figure.subplots(rows, 2, squeeze=False, height_ratios=[height, 2.3][:rows], width_ratios=[2, 1.1])
    _draw_overview(axes[0, 0], axes[0, 1], _overview(frame), keys)
    if long.height:
        labels = _labels(long.select(*_KEY).unique(maintain_order=True))
        _draw_counts(axes[1, 0], axes[1, 1], long, labels)
        style.model_legend(figure, list(labels.values()), {label: label for label in labels.values()})


_KEY = ("model", "dataset", "variant")


def _drawn_by_counts(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep what has more than a few draws; of many variants the one of each model that stands for it."""
    long = frame.filter(pl.col("draws").max().over(_KEY) > FEW_DRAWS)
    if long.select(*_KEY).n_unique() <= style.MOST_LABELS:
        return long
    normal = pl.col("variant") == "normal"
    stands = pl.when(normal.any().over("model", "dataset")).then(normal)
    return long.filter(stands.otherwise(pl.col("variant") == pl.col("variant").first().over("model", "dataset")))


def _labels(keys: pl.DataFrame) -> dict[tuple[Any, ...], str]:
    """Name each variant of a model."""
    names = style.short_names(keys["model"].to_list(), 26)
    return {key: f"{names[key[0]]}, {style.safe_text(key[2], 10)}" for key in keys.select(*_KEY).iter_rows()}


def _draw_overview(left: Axes, right: Axes, frame: pl.DataFrame, keys: pl.DataFrame) -> None:
    corrected = style.MODEL_COLOURS[0]
    looks = {SINGLE: (style.GREY, style.PAPER), CROSSED: (style.GREY, style.GREY), CORRECTED: (corrected, corrected)}
    shifts = style.shifts(list(looks), 0.25)
    places = {tuple(key): place for place, key in enumerate(keys.iter_rows())}
    left.axvline(0, color=style.PALE)
    for row in frame.iter_rows(named=True):
        y = places[row["model"], row["dataset"], row["variant"]]
        colour, face = looks[row["kind"]]
        style.mark(left, row["estimate"], y + shifts[row["kind"]], colour, xs=style.ends(row), face=face, width=1)
        for name, (marker, colour, face) in _RELIABILITIES.items():
            shift = 0.14 if face == style.PAPER else -0.14
            style.mark(right, row[name], y + shift, colour, marker, face=face)
    style.name_rows(left, list(_labels(keys).values()), 6.5)
    style.name_rows(right, [""] * keys.height)
    style.title_with_key(left, "Refusal Index", {kind.replace("_", " "): ("o", *look) for kind, look in looks.items()})
    style.title_with_key(right, "Reliability", {name.partition("_")[0]: look for name, look in _RELIABILITIES.items()})
    right.set_xlim(min(0.0, right.get_xlim()[0]), 1.02)


_RELIABILITIES = {
    "refusal_reliability": ("o", style.INK, style.INK),
    "error_reliability": ("s", style.INK, style.PAPER),
}


def _draw_counts(left: Axes, right: Axes, frame: pl.DataFrame, labels: dict[tuple[Any, ...], str]) -> None:
    """Draw what more draws change, for the variants that have more than a few."""
    left.axhline(0, color=style.PALE)
    names = list(labels.values())
    colours, markers = style.model_colours(names), style.model_markers(names)
    for key, part in frame.filter(kind=CORRECTED).group_by(*_KEY, maintain_order=True):
        colour, marker = colours[labels[key]], markers[labels[key]]
        known = part.drop_nulls("estimate")
        bounded = known.drop_nulls("low")
        if len(names) <= style.MOST_BANDS:
            left.fill_between(bounded["draws"], bounded["low"], bounded["high"], color=colour, alpha=0.15, linewidth=0)
        left.plot(known["draws"], known["estimate"], marker=marker, color=colour, markersize=3.5)
        left.plot(part["draws"], part["uncorrected"], "--", color=colour, linewidth=1)
        for name, line in (("refusal_reliability", "-"), ("error_reliability", "--")):
            right.plot(part["draws"], part[name], line, marker=marker, color=colour, markersize=3, linewidth=1)
    for panel in (left, right):
        panel.set_xscale("log")
        style.round_ticks(panel.xaxis, (2, 5, 10, 20, 50, 100, 500), max(frame["draws"]))
        panel.set_xlabel("draws")
    left.set_title("Corrected RI by draws; dashed: uncorrected", fontsize=7.5)
    right.set_title("dashed: error reliability", fontsize=7, fontweight="normal")
    right.set_ylim(0, 1.02)


def _left_out(frame: pl.DataFrame) -> list[str]:
    """Say what of the frame is not drawn by the number of draws."""
    long, drawn = frame.filter(pl.col("draws").max().over(_KEY) > FEW_DRAWS), _drawn_by_counts(frame)
    parts = ["one variant a model"] if drawn.height < long.height else []
    parts += ["no intervals"] if drawn.select(*_KEY).n_unique() > style.MOST_BANDS else []
    return parts
