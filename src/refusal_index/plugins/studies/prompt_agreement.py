"""Whether two prompts get the same questions right: the agreement of answers over the prompts, forced one included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from refusal_index.data.outcome import Grade
from refusal_index.data.runs import ComparedRun
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import ALL, data_values, of_one_dataset
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import widened
from refusal_index.render.format import with_interval
from refusal_index.stats.intervals import normal_quantile, wilson_interval

FORCED = "forced"
COLUMNS = 2
SCHEMA = {
    "model": pl.String,
    "prompt": pl.String,
    "other_prompt": pl.String,
    "both_answered": pl.Int64,
    "same": pl.Int64,
    **dict.fromkeys(("agreement", "low", "high", "kappa", "kappa_ceiling"), pl.Float64),
    "reason": pl.String,
}


@study
def prompt_agreement(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Compare the prompts of each run pair by pair.

    Raises NotPossibleError if no two prompts of a run have answered a question in common.
    """
    chosen, notes = of_one_dataset(runs)
    rows = [row for run in chosen for row in _run_rows(run, options)]
    columns = [name for name in SCHEMA if name != "kappa_ceiling"]
    frame = with_ceiling(pl.DataFrame(rows, schema={name: SCHEMA[name] for name in columns}, orient="row"))
    if not frame.filter(pl.col("prompt") != pl.col("other_prompt"))["both_answered"].sum():
        raise NotPossibleError("; no two prompts of these answered a question in common")
    return Study(frame, draw, printed, notes, data_values(chosen))


def with_ceiling(frame: pl.DataFrame) -> pl.DataFrame:
    """Add how large kappa could be between two prompts: the root of what two draws of each have with themselves.

    Two prompts under which every question is right equally often have it, where both are right equally often in all.
    None where either was drawn once, or where its own draws agree no better than chance.
    """
    own = frame.filter(pl.col("prompt") == pl.col("other_prompt"), pl.col("kappa") > 0)
    joined = frame
    for side in ("prompt", "other_prompt"):
        kappas = own.select("model", pl.col("prompt").alias(side), pl.col("kappa").alias(f"{side}_kappa"))
        joined = joined.join(kappas, on=["model", side], how="left", maintain_order="left")
    ceiling = (pl.col("prompt_kappa") * pl.col("other_prompt_kappa")).sqrt()
    return joined.with_columns(kappa_ceiling=ceiling).select(list(SCHEMA))


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one matrix a model, two in a row."""
    models = frame["model"].unique(maintain_order=True).to_list()
    prompts = frame["prompt"].unique(maintain_order=True).to_list()
    width = style.COLUMN_WIDTH if len(models) == 1 else style.WIDTH
    figure.set_size_inches(width, 0.2 + math.ceil(len(models) / COLUMNS) * (0.5 + 0.42 * len(prompts)))
    names = style.short_names(models, 28)
    panels = style.panel_grid(figure, [names[model] for model in models], COLUMNS)
    for axes, model in zip(panels, models, strict=True):
        _draw_matrix(axes, frame.filter(pl.col("model") == model), prompts)


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Lay the matrix out, with the counts."""
    cells = [
        f"{with_interval(row[0], row[1], row[2], row[3], 2)}, n {row[4]:,}" if row[4] else "-"
        for row in frame.select("agreement", "low", "high", "reason", "both_answered").rows()
    ]
    wide = widened(frame.with_columns(pl.Series("cell", cells)), ["model", "other_prompt"], "prompt", "cell")
    return wide.rename({"model": "Model", "other_prompt": "Prompt"})


def _run_rows(run: ComparedRun, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    answers = {variant or ALL: _first_answers(outcomes) for variant, outcomes in run.variants.items()}
    answers[FORCED] = _forced_answers(run)
    names = list(answers)
    for place, name in enumerate(names):
        for other in names[place:]:
            pairs = _paired(answers[name], answers[other], other_place=int(other == name))
            yield (run.label, name, other, *_agreement(pairs, options, same_prompt=other == name))


def _first_answers(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return what was answered in the first pass, and whether right; `place` 0 is a question's first draw."""
    answered = outcomes.with_columns(_PLACE).filter(~pl.col("refused") & pl.col("wrong").is_not_null())
    return answered.select("question_id", "place", right=~pl.col("wrong"))


def _forced_answers(run: ComparedRun) -> pl.DataFrame:
    """Return the forced answers, which the variants share: those that refused again are no answers."""
    grades = [Grade.CORRECT.value, Grade.INCORRECT.value]
    every = pl.concat([rows.with_columns(_PLACE) for rows in run.variants.values()])
    answered = every.filter(pl.col("forced_grade").is_in(grades))
    once = answered.unique(["question_id", "place"], keep="first", maintain_order=True)
    return once.select("question_id", "place", right=pl.col("forced_grade") == Grade.CORRECT.value)


_PLACE = (pl.col("draw").rank("dense").over("question_id") - 1).alias("place")


def _paired(one: pl.DataFrame, other: pl.DataFrame, *, other_place: int = 0) -> pl.DataFrame:
    """Return the questions that both answered, in the first draw of one and in some draw of the other."""
    first, second = one.filter(pl.col("place") == 0), other.filter(pl.col("place") == other_place)
    return first.join(second, on="question_id", suffix="_other", maintain_order="left")


def _agreement(pairs: pl.DataFrame, options: StudyOptions, *, same_prompt: bool) -> tuple[Any, ...]:
    """Return the columns from `both_answered` on."""
    n = pairs.height
    if n == 0:
        return (0, 0, None, None, None, None, "no_second_draw" if same_prompt else "no_question_answered_by_both")
    same = int((pairs["right"] == pairs["right_other"]).sum())
    low, high = wilson_interval(same, n, normal_quantile(options.confidence_level))
    right, right_other = float(pairs["right"].mean()), float(pairs["right_other"].mean())  # type: ignore[arg-type]
    chance = right * right_other + (1 - right) * (1 - right_other)
    kappa = (same / n - chance) / (1 - chance) if chance < 1 else None
    return (n, same, same / n, low, high, kappa, None)


_SHADES = LinearSegmentedColormap.from_list("agreement", ["#ffffff", "#deebf7", "#74b3d8"])
_SCALE = Normalize(0.5, 1.0, clip=True)


def _draw_matrix(axes: Axes, frame: pl.DataFrame, prompts: Sequence[str]) -> None:
    for row in frame.iter_rows(named=True):
        _draw_cell(axes, prompts.index(row["prompt"]), prompts.index(row["other_prompt"]), row)
    names = [style.safe_text(name, 14) for name in prompts]
    axes.set_xticks(range(len(prompts)), names)
    axes.set_yticks(range(len(prompts)), names)
    axes.set(xlim=(-0.5, len(prompts) - 0.5), ylim=(len(prompts) - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_cell(axes: Axes, x: int, y: int, row: Mapping[str, Any]) -> None:
    agreement = row["agreement"]
    shade = style.PAPER if agreement is None else _SHADES(_SCALE(agreement))
    axes.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=shade, edgecolor=style.PALE, linewidth=0.5))
    lines = [(0.0, "none", 5.5)]
    if agreement is not None:
        interval = f"{row['low']:.2f}\u2013{row['high']:.2f}"
        lines = [(-0.2, f"{agreement:.2f}", 7.5), (0.1, interval, 4.8), (0.32, f"n {row['both_answered']:,}", 4.8)]
    for below, text, size in lines:
        axes.text(x, y + below, text, ha="center", va="center", fontsize=size, color=style.INK)
