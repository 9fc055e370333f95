"""What the two passes took, in requests and tokens as measured, beside what sampling takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws
from refusal_index.findings.summary import recorded_usage
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import ALL
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, counts, fixed, printed_table
from refusal_index.render.format import abridged

SAMPLES = 100
"""Answers to each question that P(Answering) takes in the paper."""
TOTAL = "total"
SCHEMA = {
    "model": pl.String,
    "dataset": pl.String,
    "variant": pl.String,
    **dict.fromkeys(("questions", "draws", "first_answers", "forced_answers", "two_pass_answers"), pl.Int64),
    **dict.fromkeys(("twice_all_answers", "sampling_answers", "requests", "input_tokens", "output_tokens"), pl.Int64),
    **dict.fromkeys(("cost_usd", "requests_per_question", "tokens_per_question", "sampling_tokens"), pl.Float64),
}
_MEASURED = ("requests", "input_tokens", "output_tokens", "cost")


@study
def cost_table(runs: Sequence[ComparedRun], _options: StudyOptions) -> Study:
    """Add up what each run took; raises NotPossibleError if there are no runs."""
    if not runs:
        raise NotPossibleError
    rows = [row for run in runs for row in _run_rows(run)]
    frame = with_rates(pl.DataFrame(rows, schema=list(SCHEMA)[:14], orient="row", infer_schema_length=None))
    unmeasured = frame.filter(pl.col("requests").is_null())["model"].unique(maintain_order=True).to_list()
    note = f"Requests and tokens are not known of {abridged(unmeasured)}: only a run's folder keeps them."
    return Study(frame, draw, printed, (note,) if unmeasured else (), {"samples": SAMPLES})


def with_rates(counts: pl.DataFrame) -> pl.DataFrame:
    """Add the totals of each run, and what follows from the counts."""
    sums = [name for name, kind in SCHEMA.items() if name in counts.columns and kind != pl.String]
    several = pl.len().over("model", "dataset") > 1
    # A sum that leaves out what is not known would pass for the whole.
    whole = [pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name) for name in sums]
    totals = (
        counts.filter(several)
        .group_by("model", "dataset", maintain_order=True)
        .agg(*whole)
        .with_columns(pl.lit(TOTAL).alias("variant"))
    )
    both = pl.concat([counts.cast({name: SCHEMA[name] for name in counts.columns}), totals], how="diagonal_relaxed")
    tokens, requests = pl.col("input_tokens") + pl.col("output_tokens"), pl.col("requests")
    rated = both.with_columns(
        (requests / pl.col("questions")).alias("requests_per_question"),
        (tokens / pl.col("questions")).alias("tokens_per_question"),
        (pl.col("sampling_answers") * tokens / pl.when(requests > 0).then(requests)).alias("sampling_tokens"),
    )
    places = {model: place for place, model in enumerate(counts["model"].unique(maintain_order=True))}
    return rated.cast(SCHEMA).sort(pl.col("model").replace_strict(places), maintain_order=True)  # type: ignore[arg-type]


COUNTS = {
    "questions": "Questions",
    "first_answers": "First answers",
    "forced_answers": "Forced answers",
    "requests": "Requests",
    "input_tokens": "Tokens in",
    "output_tokens": "Tokens out",
    "two_pass_answers": "Two passes",
    "twice_all_answers": "2N",
    "sampling_answers": f"{SAMPLES}N",
}


PRINTED: Mapping[str, str | Cell] = {
    "Model": "model",
    "Variant": "variant",
    **{heading: counts(name) for name, heading in COUNTS.items()},
    "USD": fixed("cost_usd", 2),
}


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw answers a question on the left, tokens a question on the right, one line a variant."""
    lines = frame.filter(pl.col("variant") != TOTAL)
    figure.set_size_inches(style.WIDTH, 1.1 + 0.2 * lines.height)
    measured = lines["requests"].is_not_null().any()
    panels = figure.subplots(1, 2 if measured else 1, sharey=True, squeeze=False, width_ratios=(3, 2)[: 1 + measured])
    left, right = panels[0, 0], panels[0, -1]
    for place, row in enumerate(lines.iter_rows(named=True)):
        _draw_answers(left, place, row)
        style.draw_tokens(right, place, row, row["questions"])
    left.set_xscale("log")
    names = style.short_names(lines["model"].to_list())
    labels = [f"{names[row['model']]}, {style.safe_text(row['variant'], 10)}" for row in lines.iter_rows(named=True)]
    left.set_yticks(range(lines.height), labels)
    left.set_ylim(lines.height - 0.4, -0.6)
    left.set_xticks([1, 2, 5, 10, 100], ["1", "2", "5", "10", "100"])
    left.minorticks_off()
    for axes in panels.flat:
        axes.grid(visible=False, axis="y")
        style.ticks_above_too(axes)
    right.set_xlabel("Tokens a question")
    left.set_xlabel("Answers or requests a question")
    first, second, *_ = style.MODEL_COLOURS
    handles = [
        style.handle("two passes: first answers + refused", first, "o"),
        style.handle(f"P(Answering): {SAMPLES} answers", second, "s"),
    ]
    if measured:
        handles.append(style.handle("requests, as run", style.INK, "|", markersize=8, markeredgewidth=1.4))
        handles += style.token_handles()
    figure.legend(handles=handles, loc="outside upper center", ncols=3, labelcolor=style.INK, handletextpad=0.3)


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print counts with separators, and what is not known as a dash."""
    return printed_table(frame, PRINTED)


def _run_rows(run: ComparedRun) -> Iterator[tuple[Any, ...]]:
    usage = recorded_usage(run)
    for variant, outcomes in run.variants.items():
        first = first_draws(outcomes)
        questions = first.height
        two_passes = questions + int(first["refused"].fill_null(value=False).sum())
        measured = usage.get(variant)
        yield (
            *(run.label, run.dataset, variant or ALL, questions, outcomes["draw"].n_unique()),
            *(outcomes.height, outcomes["forced_grade"].count(), two_passes, 2 * questions, SAMPLES * questions),
            *(getattr(measured, name, None) for name in _MEASURED),
        )


def _draw_answers(axes: Axes, place: int, row: dict[str, Any]) -> None:
    two_passes, sampling = (row[name] / row["questions"] for name in ("two_pass_answers", "sampling_answers"))
    axes.plot([two_passes, sampling], [place] * 2, color=style.PALE, linewidth=0.8)
    style.mark(axes, two_passes, place, style.MODEL_COLOURS[0], size=4.5)
    style.mark(axes, sampling, place, style.MODEL_COLOURS[1], "s")
    style.mark(axes, row["requests_per_question"], place, style.INK, "|", size=8, markeredgewidth=1.4)
