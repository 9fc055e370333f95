"""What each score of confidence takes, measured in a run's folder, beside the Refusal Index and what the paper states.

A method's requests and tokens are those of all replies that its scores rest on, whether the run asked for them or the
method did: what several methods share counts for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from refusal_index.data.confidence import scores_by_method
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import first_draws
from refusal_index.findings.confidence_record import MethodRecord, recorded_methods
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.summary import Usage, recorded_usage
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import display_names, reference_variant
from refusal_index.plugins.studies.scores import label
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study, study_text
from refusal_index.plugins.studies.tables import Cell, counts, fixed, printed_table
from refusal_index.render.format import UNDEFINED, abridged

MODEL, TRAINED, PREDICTOR = "the model", "the model, by a trained predictor", "an auxiliary predictor"
"""What a score is an estimate of."""

SCHEMA = {
    **dict.fromkeys(("model", "dataset", "method", "variant", "estimate_of", "cost"), pl.String),
    **dict.fromkeys(("questions", "draws", "own_replies", "generations", "requests", "own_requests"), pl.Int64),
    **dict.fromkeys(("input_tokens", "output_tokens"), pl.Int64),
    **dict.fromkeys(("seconds", "cost_usd"), pl.Float64),
    **dict.fromkeys(("training_examples", "n_folds", "groups"), pl.Int64),
    "grouped_by": pl.String,
    **dict.fromkeys(("states", "state_size"), pl.Int64),
}
_FROM_RECORD = (
    *("questions", "draws", "own_replies", "generations", "own_requests", "seconds", "training_examples", "n_folds"),
    *("groups", "grouped_by", "states", "state_size"),
)
ROW = 0.19
"""Inches of a line."""


@study
def calibrator_cost(runs: Sequence[ComparedRun], _options: StudyOptions) -> Study:
    """Add up what the scores of each run took; raises NotPossibleError if that was measured of none."""
    rows: list[dict[str, Any]] = []
    unmeasured: list[str] = []
    for run, name in zip(runs, display_names(runs), strict=True):
        records = recorded_methods(run)
        if run.confidence is None or not records:
            continue
        where = {"model": name, "dataset": run.dataset}
        rows += ({**where, **row} for row in _index_rows(run))
        for method, variant, _ in scores_by_method(run.confidence):
            record = records.get((method, variant))
            rows.append({**where, "method": method, "variant": variant, **(_method_row(record) if record else {})})
            unmeasured += [] if record else [f"{name}, {label(method)}"]
    if not rows:
        raise NotPossibleError
    frame = pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in rows], schema=SCHEMA)
    note = study_text("calibrator_cost", "unmeasured", methods=abridged(unmeasured))
    return Study(frame, draw, printed, (note,) if unmeasured else ())


def _index_rows(run: ComparedRun) -> Iterator[dict[str, Any]]:
    """Yield what two passes take for one prompt and draw, and what those of the run took, over all that it asked."""
    usage, outcomes, prompts = recorded_usage(run), pl.concat(run.variants.values()), len(run.variants)
    draws, stands = outcomes["draw"].n_unique(), reference_variant(run)
    measured = _usage(Usage.total(usage.values())) if len(usage) == prompts else {}
    alone = {"method": INDEX, "estimate_of": MODEL, "own_replies": 0, "questions": outcomes["question_id"].n_unique()}
    once = first_draws(run.variants[stands])
    two_passes = once.height + int(once["refused"].fill_null(value=False).sum())
    several = prompts > 1 or draws > 1
    yield {
        **alone,
        "variant": stands,
        "cost": "at most 2 N generations",
        "draws": 1,
        "generations": two_passes,
        **({} if several else measured),
    }
    if several:
        # A forced answer is shared by the variants: each draw of a question has one, however many of them refused.
        forced = outcomes.drop_nulls("forced_grade").unique(["question_id", "draw"]).height
        all_of = f"{prompts} prompt{'s' if prompts > 1 else ''}, {draws} draw{'s' if draws > 1 else ''}"
        cost = f"at most {prompts + 1} {'S ' if draws > 1 else ''}N generations"
        generations = outcomes.height + forced
        yield {**alone, "variant": all_of, "cost": cost, "draws": draws, "generations": generations, **measured}


def _method_row(record: MethodRecord) -> dict[str, Any]:
    found = {name: getattr(record, name) for name in _FROM_RECORD}
    return {"estimate_of": estimate_of(record), "cost": cost_in_words(record), **found, **_usage(record.usage)}


def _usage(usage: Usage) -> dict[str, Any]:
    read, written = usage.input_tokens, usage.output_tokens
    return {"requests": usage.requests, "input_tokens": read, "output_tokens": written, "cost_usd": usage.cost}


def estimate_of(record: MethodRecord) -> str:
    """Say whether a score is an estimate of the model or of a predictor that was trained on its answers."""
    if not record.is_of_model:
        return PREDICTOR
    return MODEL if record.training_examples is None else TRAINED


def cost_in_words(record: MethodRecord) -> str:
    """Return what a method costs as the paper counts: for N questions, S draws, N_train answers, states of d numbers.

    >>> from refusal_index.findings.summary import Usage
    >>> cost_in_words(MethodRecord("p-true", None, 9, 18, Usage(1, 1, 18), 18, None, 1, 10, is_of_model=True))
    'N generations + S N judgements of the answer'
    """
    parts = []
    if record.draws:
        parts.append(f"{_times(record.draws)} generations")
    if record.own_replies:
        what = "judgements of the answer" if record.draws else "generations with a confidence"
        parts.append(f"{_times(record.own_replies)} {what}")
    if record.states is not None:
        parts.append("N states of d numbers")
    if record.training_examples is not None:
        parts.append("training on N_train answers + N predictions")
    return " + ".join(parts)


def _times(replies: int) -> str:
    return "S N" if replies > 1 else "N"


def _name(row: Mapping[str, Any]) -> str:
    name = METRICS[INDEX].label if row["method"] == INDEX else label(row["method"])
    return f"{name}, {row['variant']}" if row["variant"] else name


COUNTS = {
    "questions": "N",
    "generations": "Generations",
    "requests": "Requests",
    "input_tokens": "Tokens in",
    "output_tokens": "Tokens out",
    "training_examples": "N_train",
    "states": "States",
}


PRINTED: Mapping[str, str | Cell] = {
    "Model": "model",
    "Method": _name,
    "Estimate of": "estimate_of",
    "Cost": "cost",
    **{heading: counts(name) for name, heading in COUNTS.items()},
    "Seconds": lambda row: UNDEFINED if row["seconds"] is None else f"{row['seconds']:,.0f}",
    "USD": fixed("cost_usd", 2),
}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print counts with separators, and what is not known as a dash."""
    return printed_table(frame, PRINTED)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw generations a question on the left and tokens a question on the right, a line a method."""
    lines = frame.drop_nulls("generations")
    several = lines["model"].n_unique() > 1
    places, labels, heads = _places(lines, several=several)
    figure.set_size_inches(style.WIDTH * 1.05, 0.8 + ROW * (places[-1] + 1))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, row in zip(places, lines.iter_rows(named=True), strict=True):
        _draw_line(left, right, place, row)
    left.set_yticks(places, labels, fontsize=6.5)
    left.set_ylim(places[-1] + 0.6, -0.6)
    left.set_xlim(left=0)
    for place, model in heads:
        left.text(0, place, f" {model}", fontsize=6.5, fontweight="bold", va="center")
    left.set_xlabel("Generations a question")
    right.set_xlabel("Tokens a question")
    right.tick_params(left=False)
    for panel in (left, right):
        panel.grid(visible=False, axis="y")
        style.ticks_above_too(panel)
    style.outside_legend(figure, _handles())


def _places(lines: pl.DataFrame, *, several: bool) -> tuple[list[float], list[str], list[tuple[float, str]]]:
    """Return the height of each line, its label, and the heights at which runs begin with their names."""
    names = style.short_names(lines["model"].to_list(), 40)
    places, labels, heads, at = [], [], [], 0.0
    for place, row in enumerate(lines.iter_rows(named=True)):
        if several and (place == 0 or row["model"] != lines["model"][place - 1]):
            heads.append((at, names[row["model"]]))
            at += 1
        places.append(at)
        labels.append(style.safe_text(_name(row), 30))
        at += 1
    return places, labels, heads


def _draw_line(left: Axes, right: Axes, place: float, row: dict[str, Any]) -> None:
    n, own = max(1, row["questions"]), row["estimate_of"] == MODEL
    colour = style.INK if row["method"] == INDEX else style.MODEL_COLOURS[0 if own else 1]
    generations = row["generations"] / n
    left.plot([0, generations], [place, place], color=style.PALE, linewidth=0.9, zorder=1)
    style.mark(left, generations, place, colour, face=None if own else style.PAPER, size=4.5)
    if row["training_examples"] is not None:
        text = f"  trained on {row['training_examples']:,}"
        left.text(generations, place, text, fontsize=6, color=style.GREY, va="center")
    style.draw_tokens(right, place, row, n)


def _handles() -> list[Line2D]:
    own, trained, *_ = style.MODEL_COLOURS
    return [
        style.handle(METRICS[INDEX].label, style.INK, "o"),
        style.handle("score of the model", own, "o"),
        style.handle("score of what was trained", trained, "o", face=style.PAPER),
        *style.token_handles(),
    ]
