"""Models ranked by the Refusal Index, with the ties that the data leave drawn as letters.

The ranking is that of `refusal-index compare` over three runs or more: the joint index over all variants that the
models share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun, shared_variants
from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.ranking import RunRanking, rank
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import chosen_runs, dataset_name, model_name
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, printed_table, ranged
from refusal_index.render.format import UNDEFINED, reason_text
from refusal_index.stats import PairwiseDifference, RankedRun

MOST_PAIRS = 15
"""Up to so many pairs are all drawn; of more only those with the model that comes first."""


@study
def ranking_with_ties(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no dataset has two models with a variant in common."""
    chosen, notes = chosen_runs(runs)
    by_dataset: dict[str | None, list[ComparedRun]] = {}
    for run in chosen:
        by_dataset.setdefault(run.dataset, []).append(run)
    frames: list[pl.DataFrame] = []
    for dataset, members in by_dataset.items():
        try:
            frame, said = _ranked(members, options)
        except (NotPossibleError, OutcomeTableError) as problem:
            notes = (*notes, f"{dataset_name(dataset)} is left out: {problem}.")
            continue
        frames.append(frame)
        notes = (*notes, *said)
    if not frames:
        raise NotPossibleError(notes=notes)
    frame = pl.concat(frames)
    data = "; ".join(
        f"{dataset_name(part['dataset'][0])}, {part['questions'][0]:,} questions, variants {part['variants'][0]}"
        for part in frames
    )
    values = {"data": data, "all_drawn": frame["drawn"].all(), "most_pairs": MOST_PAIRS}
    return Study(frame, draw, printed, notes, values)


def _ranked(runs: Sequence[ComparedRun], options: StudyOptions) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Rank the runs of one dataset, and say what is to be known about it."""
    if len(runs) < 2:
        raise NotPossibleError(f"it has the model {model_name(runs[0])} only")
    settings = CompareOptions(penalty=options.penalty, confidence_level=options.confidence_level, seed=options.seed)
    found = rank(runs, settings)
    names = [model_name(run) for run in runs]
    unranked = (
        f"{names[run.row]} is not ranked: its index is {run.status} ({reason_text(run.reason)})."
        for run in found.ranking.unranked
    )
    unpaired = () if found.match.paired else ("The models were asked other questions and are compared as they are.",)
    common = {
        "dataset": runs[0].dataset,
        "variants": ", ".join(map(str, [found.variant] if found.variant else shared_variants(runs))),
        "questions": int(found.match.matrix.scored.any(axis=0).sum()),
    }
    rows = [
        *({**common, "place": place, **_run_row(run, names)} for place, run in enumerate(found.ranking.runs, 1)),
        *({**common, **_run_row(run, names)} for run in found.ranking.unranked),
        *({**common, **_pair_row(pair, found, names)} for pair in found.ranking.pairs),
    ]
    return pl.DataFrame(rows, schema=SCHEMA), (*unranked, *unpaired)


SCHEMA = {
    **dict.fromkeys(("dataset", "variants"), pl.String),
    "questions": pl.Int64,
    "part": pl.String,
    **dict.fromkeys(("place", "run"), pl.Int64),
    **dict.fromkeys(("model", "other_model"), pl.String),
    **dict.fromkeys(("estimate", "low", "high"), pl.Float64),
    "letters": pl.String,
    **dict.fromkeys(("pvalue", "pvalue_max_t"), pl.Float64),
    "drawn": pl.Boolean,
    **dict.fromkeys(("status", "reason"), pl.String),
}


def _run_row(run: RankedRun, names: Sequence[str]) -> dict[str, object]:
    columns = {name: getattr(run, name) for name in ("estimate", "low", "high", "letters", "status", "reason")}
    return {"part": "model", "run": run.row, "model": names[run.row], "drawn": True, **columns}


def _pair_row(pair: PairwiseDifference, found: RunRanking, names: Sequence[str]) -> dict[str, object]:
    best = found.ranking.runs[0].row
    return {
        "part": "difference",
        "model": names[pair.first],
        "other_model": names[pair.second],
        "estimate": pair.estimate,
        "low": pair.simultaneous_interval.low,
        "high": pair.simultaneous_interval.high,
        "letters": "",
        "pvalue": pair.pvalue,
        "pvalue_max_t": pair.pvalue_max_t,
        "drawn": len(found.ranking.pairs) <= MOST_PAIRS or best in (pair.first, pair.second),
        "status": "ok",
    }


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the models in order, each with its index and its letters."""
    columns: dict[str, str | Cell] = {
        "dataset": "dataset",
        "place": lambda row: str(row["place"] or UNDEFINED),
        "model": "model",
        "RI": ranged("estimate"),
        "letters": "letters",
    }
    return printed_table(frame.filter(part="model"), columns)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw for each dataset the models with their letters, and their differences with simultaneous intervals."""
    parts = [
        frame.filter(pl.col("dataset").eq_missing(dataset)) for dataset in frame["dataset"].unique(maintain_order=True)
    ]
    heights = [
        max(part.filter(part=kind, drawn=True).height for kind in ("model", "difference")) + 1.5 for part in parts
    ]
    figure.set_size_inches(style.WIDTH * 1.25, 0.8 + 0.24 * sum(heights) + 0.4 * len(parts))
    axes = figure.subplots(len(parts), 2, squeeze=False, height_ratios=heights, width_ratios=[1.3, 1])
    for (left, right), part in zip(axes, parts, strict=True):
        models, pairs = (part.filter(part=kind, drawn=True) for kind in ("model", "difference"))
        _draw_models(left, models)
        if pairs.height:
            _draw_pairs(right, pairs)
        else:
            right.set_axis_off()
        several = f", {style.safe_text(part['dataset'][0])}" if len(parts) > 1 else ""
        left.set_title(f"Refusal Index{several}")
        right.set_title("Differences")


def _draw_models(axes: Axes, models: pl.DataFrame) -> None:
    # By the order of the runs, so that a model has the colour that it has in every other figure.
    colours = style.model_colours(models.sort("run")["model"].to_list())
    for y, row in enumerate(models.iter_rows(named=True)):
        _draw_interval(axes, y, row, colours[row["model"]])
    ranked = models.filter(pl.col("place").is_not_null())
    reach = axes.get_xlim()
    style.few_ticks(axes.xaxis, 5)
    axes.set_xticks([tick for tick in axes.get_xticks() if reach[0] <= tick <= reach[1]])
    step = 0.12 * (reach[1] - reach[0])
    memberships = [row.split() if " " in row else list(row) for row in ranked["letters"]]
    for column, letter in enumerate(sorted({one for row in memberships for one in row}, key=lambda x: (len(x), x))):
        x, members = reach[1] + (column + 1) * step, [y for y, row in enumerate(memberships) if letter in row]
        axes.plot([x, x], [members[0], members[-1]], color=style.PALE, linewidth=7.5, solid_capstyle="round", zorder=0)
        for y in members:
            axes.annotate(letter, (x, y), ha="center", va="center", fontsize=6.5)
    style.name_rows(axes, list(style.short_names(models["model"].to_list()).values()))


def _draw_pairs(axes: Axes, pairs: pl.DataFrame) -> None:
    axes.axvline(0, color=style.GREY, linewidth=0.8)
    for y, row in enumerate(pairs.iter_rows(named=True)):
        tied = row["low"] <= 0 <= row["high"]
        _draw_interval(axes, y, row, style.GREY if tied else style.INK)
    compared = zip(pairs["model"], pairs["other_model"], strict=True)
    names = style.short_names([*pairs["model"], *pairs["other_model"]], 18)
    labels = [f"{names[one]} \u2212 {names[other]}" for one, other in compared]
    style.name_rows(axes, labels)
    axes.tick_params(axis="y", labelsize=6.5)


def _draw_interval(axes: Axes, y: float, row: dict[str, Any], colour: str) -> None:
    face = None if row["status"] == "ok" else style.PAPER
    style.mark(axes, row["estimate"], y, colour, xs=style.ends(row), face=face, size=5, width=1.4)
    if row["estimate"] is None:
        axes.annotate(f"{row['status']}: {row['reason']}", (0, y), fontsize=6.5, color=style.GREY, va="center")
