"""The cost of measurements, in requests and tokens as recorded.

`cost_table` compares the cost of the two passes with that of repeated sampling; `calibrator_cost` compares confidence
methods with the Refusal Index and with the paper's figures. The requests and tokens of a method are those of all
replies that its scores use, whether the run or the method sent them; replies that methods share count for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from refusal_index.data.outcome_table import scores_by_method
from refusal_index.data.rates import first_draws
from refusal_index.findings.confidence_record import MethodRecord, recorded_methods
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults, recorded_usage
from refusal_index.findings.summary import Usage
from refusal_index.plugins.studies import inputs, style
from refusal_index.plugins.studies.scores import label
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import UNDEFINED, abridged

SAMPLES = 100
"""Number of answers to each question that P(Answering) uses in the paper."""
TOTAL = "total"
COST_SCHEMA = schema(
    "model dataset variant questions draws first_answers forced_answers two_pass_answers full_two_pass_answers "
    "sampling_answers requests input_tokens output_tokens unpriced_tokens cost_usd requests_per_question "
    "tokens_per_question sampling_tokens"
)


@study
def cost_table(runs: Sequence[RunResults], _options: StudyOptions) -> Study:
    """Make the study: the cost of each run; raises NotPossibleError if there are no runs."""
    if not runs:
        raise NotPossibleError
    rows = [row for run in runs for row in _run_rows(run)]
    frame = with_rates(pl.DataFrame(rows, schema=COST_SCHEMA))
    unmeasured = frame.filter(pl.col("requests").is_null())["model"].unique(maintain_order=True).to_list()
    notes = []
    if unmeasured:
        notes.append(f"Requests and tokens are unknown for {abridged(unmeasured)}: only a run's folder records them.")
    partly = frame.filter(pl.col("cost_usd").is_not_null(), pl.col("unpriced_tokens") > 0)
    if partly.height:
        models = abridged(partly["model"].unique(maintain_order=True).to_list())
        notes.append(study_text("cost_table", "without_graders", models=models))
    return Study(frame, _draw_cost, _printed_cost, notes, values={"samples": SAMPLES, "many": frame.height > MAX_LINES})


def with_rates(counts: pl.DataFrame) -> pl.DataFrame:
    """Add the totals of each run, and the rates that follow from the counts."""
    is_repeated = pl.len().over("model", "dataset") > 1
    # A sum without the unknown parts would be mistaken for the total.
    sums = [name for name, kind in COST_SCHEMA.items() if kind != pl.String]
    totals = [pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name) for name in sums]
    grouped = counts.filter(is_repeated).group_by("model", "dataset", maintain_order=True)
    both = pl.concat([counts, grouped.agg(*totals, variant=pl.lit(TOTAL))], how="diagonal_relaxed")
    tokens = pl.col("input_tokens") + pl.col("output_tokens")
    requests = pl.col("requests")
    rated = both.with_columns(
        requests_per_question=requests / pl.col("questions"),
        tokens_per_question=tokens / pl.col("questions"),
        sampling_tokens=pl.col("sampling_answers") * tokens / pl.when(requests > 0).then(requests),
    )
    positions = {model: position for position, model in enumerate(counts["model"].unique(maintain_order=True))}
    return rated.cast(COST_SCHEMA).sort(pl.col("model").replace_strict(positions), maintain_order=True)  # type: ignore[arg-type]


PRINTED_COST: Mapping[str, str | style.Cell] = {
    "Model": "model",
    "Prompt": "variant",
    "Questions": style.counts("questions"),
    "First answers": style.counts("first_answers"),
    "Forced answers": style.counts("forced_answers"),
    "Requests": style.counts("requests"),
    "Tokens in": style.counts("input_tokens"),
    "Tokens out": style.counts("output_tokens"),
    "Two passes": style.counts("two_pass_answers"),
    "2N": style.counts("full_two_pass_answers"),
    f"{SAMPLES}N": style.counts("sampling_answers"),
    "USD": style.fixed("cost_usd", 2),
}


MAX_LINES = 40
"""Maximum number of lines that show single prompts; with more, each run has one line."""


def _of_runs(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run: its total, or that of its only prompt."""
    is_only = pl.len().over("model", "dataset") == 1
    return frame.filter((pl.col("variant") == TOTAL) | is_only)


def _printed_cost(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per prompt and run, or one per run where these are many."""
    is_many = frame.height > MAX_LINES
    table = style.table(PRINTED_COST)(_of_runs(frame) if is_many else frame)
    return table.drop("Prompt") if is_many else table


def _draw_cost(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw answers per question on the left and tokens per question on the right, one line per variant or run."""
    is_many = frame.height > MAX_LINES
    lines = _of_runs(frame) if is_many else frame.filter(pl.col("variant") != TOTAL)
    measured = lines["requests"].is_not_null().any()
    panels = style.subplots(
        figure,
        style.WIDTH * 1.2,
        1.1 + min(0.2, 9 / lines.height) * lines.height,
        1,
        1 + measured,
        sharey=True,
        squeeze=False,
        width_ratios=(3, 2)[: 1 + measured],
    )[0]
    left = panels[0]
    right = panels[-1]
    for y, row in enumerate(lines.iter_rows(named=True)):
        two_passes, sampling = (row[name] / row["questions"] for name in ("two_pass_answers", "sampling_answers"))
        left.plot([two_passes, sampling], [y] * 2, color=style.PALE, linewidth=0.8)
        style.mark(left, two_passes, y, style.MODEL_COLOURS[0], size=4.5)
        style.mark(left, sampling, y, style.MODEL_COLOURS[1], "s")
        style.mark(left, row["requests_per_question"], y, style.INK, "|", size=8, markeredgewidth=1.4)
        style.draw_tokens(right, y, row, row["questions"])
    left.set_xscale("log")
    names = style.short_names(lines["model"].to_list(), 46)
    labels = [
        names[row["model"]] + ("" if is_many else f", {style.safe_text(row['variant'], 10)}")
        for row in lines.iter_rows(named=True)
    ]
    style.name_rows(panels, labels, 6, pad=0.6)
    left.set_xticks([1, 2, 5, 10, 100], ["1", "2", "5", "10", "100"])
    left.minorticks_off()
    for axes in panels:
        style.ticks_above_too(axes)
    right.set_xlabel("Tokens per question")
    left.set_xlabel("Answers or requests per question")
    first, second, *_ = style.MODEL_COLOURS
    handles = [
        style.handle("two passes: first answers + refused", first, "o"),
        style.handle(f"P(Answering): {SAMPLES} answers", second, "s"),
    ]
    if measured:
        handles.append(style.handle("requests, as run", style.INK, "|", markersize=8, markeredgewidth=1.4))
        handles += style.token_handles()
    figure.legend(handles=handles, loc="outside upper center", ncols=3, labelcolor=style.INK, handletextpad=0.3)


def _run_rows(run: RunResults) -> Iterator[dict[str, Any]]:
    usage = recorded_usage(run)
    for variant, outcomes in run.tables.items():
        first = first_draws(outcomes)
        questions = first.height
        measured = usage.get(variant)
        two_passes = questions + int(first["refused"].fill_null(value=False).sum())
        yield {
            "model": run.label,
            "dataset": run.dataset,
            "variant": variant or inputs.ALL,
            "questions": questions,
            "draws": outcomes["draw"].n_unique(),
            "first_answers": outcomes.height,
            "forced_answers": outcomes["forced_grade"].count(),
            "two_pass_answers": two_passes,
            "full_two_pass_answers": 2 * questions,
            "sampling_answers": SAMPLES * questions,
            **({**_usage(measured), "unpriced_tokens": measured.unpriced_tokens} if measured else {}),
        }


MODEL = "the model"
TRAINED = "the model, by a trained predictor"
PREDICTOR = "an auxiliary predictor"
"""The kinds of estimates that a score can be."""

_FROM_RECORD = (
    *("questions", "draws", "own_replies", "generations", "own_requests", "seconds", "training_examples", "n_folds"),
    *("groups", "grouped_by", "states", "state_size"),
)
ROW = 0.19
"""Height of a line in inches."""


@study
def calibrator_cost(runs: Sequence[RunResults], _options: StudyOptions) -> Study:
    """Make the study: the cost of each run's scores; raises NotPossibleError if none was recorded."""
    rows: list[dict[str, Any]] = []
    unmeasured: list[str] = []
    for run, name in zip(runs, inputs.display_names(runs), strict=True):
        records = recorded_methods(run)
        if run.confidence is None or not records:
            continue
        where = {"model": name, "dataset": run.dataset}
        rows += ({**where, **row} for row in _index_rows(run))
        for method, variant, _ in scores_by_method(run.confidence):
            row: dict[str, Any] = {**where, "method": method, "variant": variant}
            record = records.get((method, variant))
            if record is None:
                unmeasured.append(f"{name}, {label(method)}")
            else:
                row |= {column: getattr(record, column) for column in _FROM_RECORD} | _usage(record.usage)
                row |= {"estimate_of": estimate_of(record), "cost": cost_in_words(record)}
            rows.append(row)
    if not rows:
        raise NotPossibleError
    frame = pl.DataFrame(
        rows,
        schema=schema(
            "model dataset method variant estimate_of cost questions draws own_replies generations requests "
            "own_requests input_tokens output_tokens seconds cost_usd training_examples n_folds groups grouped_by "
            "states state_size"
        ),
    )
    note = study_text("calibrator_cost", "unmeasured", methods=abridged(unmeasured))
    return Study(frame, _draw_methods, style.table(PRINTED_METHODS), (note,) if unmeasured else ())


def _index_rows(run: RunResults) -> Iterator[dict[str, Any]]:
    """Yield the cost of two passes for one prompt and draw, and that of the run with all its prompts and draws."""
    usage = recorded_usage(run)
    outcomes = pl.concat(run.tables.values())
    prompts = len(run.tables)
    draws = outcomes["draw"].n_unique()
    reference = inputs.reference_variant(run)
    measured = _usage(Usage.total(usage.values())) if len(usage) == prompts else {}
    alone = {"method": INDEX, "estimate_of": MODEL, "own_replies": 0, "questions": outcomes["question_id"].n_unique()}
    once = first_draws(run.tables[reference])
    two_passes = once.height + int(once["refused"].fill_null(value=False).sum())
    is_sampled = prompts > 1 or draws > 1
    yield {
        **alone,
        "variant": reference,
        "cost": "at most 2 N generations",
        "draws": 1,
        "generations": two_passes,
        **({} if is_sampled else measured),
    }
    if is_sampled:
        # Variants share forced answers: each draw of a question has one, however many variants refused.
        forced = outcomes.drop_nulls("forced_grade").unique(["question_id", "draw"]).height
        all_of = f"{prompts} prompt{'s' if prompts > 1 else ''}, {draws} draw{'s' if draws > 1 else ''}"
        cost = f"at most {prompts + 1} {'S ' if draws > 1 else ''}N generations"
        generations = outcomes.height + forced
        yield {**alone, "variant": all_of, "cost": cost, "draws": draws, "generations": generations, **measured}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost,
    }


def estimate_of(record: MethodRecord) -> str:
    """Return whether a score is an estimate by the model or by a predictor trained on its answers."""
    if not record.is_of_model:
        return PREDICTOR
    return MODEL if record.training_examples is None else TRAINED


def cost_in_words(record: MethodRecord) -> str:
    """Return the cost of a method as the paper counts: N questions, S draws, N_train answers, states of size d.

    >>> from refusal_index.findings.summary import Usage
    >>> cost_in_words(MethodRecord("p-true", None, 9, 18, Usage(1, 1, 18), 18, None, 1, 10, is_of_model=True))
    'N generations + S N judgements of the answer'
    """
    parts = []
    if record.draws:
        parts.append("S N generations" if record.draws > 1 else "N generations")
    if record.own_replies:
        content = "judgements of the answer" if record.draws else "generations with a confidence"
        parts.append(f"S N {content}" if record.own_replies > 1 else f"N {content}")
    if record.states is not None:
        parts.append("N states of d numbers")
    if record.training_examples is not None:
        parts.append("training on N_train answers + N predictions")
    return " + ".join(parts)


def _method_name(row: Mapping[str, Any]) -> str:
    name = METRICS[INDEX].label if row["method"] == INDEX else label(row["method"])
    return f"{name}, {row['variant']}" if row["variant"] else name


PRINTED_METHODS: Mapping[str, str | style.Cell] = {
    "Model": "model",
    "Method": _method_name,
    "Estimate of": "estimate_of",
    "Cost": "cost",
    "N": style.counts("questions"),
    "Generations": style.counts("generations"),
    "Requests": style.counts("requests"),
    "Tokens in": style.counts("input_tokens"),
    "Tokens out": style.counts("output_tokens"),
    "N_train": style.counts("training_examples"),
    "States": style.counts("states"),
    "Seconds": lambda row: UNDEFINED if row["seconds"] is None else f"{row['seconds']:,.0f}",
    "USD": style.fixed("cost_usd", 2),
}


def _draw_methods(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw generations per question on the left and tokens per question on the right, a line per method."""
    lines = frame.drop_nulls("generations")
    # The height of each line; with several runs, each begins with a line for its name.
    names = style.short_names(lines["model"].to_list(), 40)
    heights = []
    heads: dict[int, str] = {}
    has_several = lines["model"].n_unique() > 1
    for index, model in enumerate(lines["model"]):
        if has_several and (index == 0 or model != lines["model"][index - 1]):
            heads[index + len(heads)] = names[model]
        heights.append(index + len(heads))
    labels = [style.safe_text(_method_name(row), 30) for row in lines.iter_rows(named=True)]
    left, right = style.subplots(
        figure, style.WIDTH * 1.05, 0.8 + ROW * (heights[-1] + 1), 1, 2, sharey=True, width_ratios=(3, 2)
    )
    for y, row in zip(heights, lines.iter_rows(named=True), strict=True):
        n = max(1, row["questions"])
        is_own = row["estimate_of"] == MODEL
        colour = style.INK if row["method"] == INDEX else style.MODEL_COLOURS[0 if is_own else 1]
        generations = row["generations"] / n
        left.plot([0, generations], [y, y], color=style.PALE, linewidth=0.9, zorder=1)
        style.mark(left, generations, y, colour, face=None if is_own else style.PAPER, size=4.5)
        if row["training_examples"] is not None:
            text = f"  trained on {row['training_examples']:,}"
            left.text(generations, y, text, fontsize=6, color=style.GREY, va="center")
        style.draw_tokens(right, y, row, n)
    style.name_rows((left, right), labels, 6.5, heights=heights, pad=0.6)
    left.set_xlim(left=0)
    for y, model in heads.items():
        left.text(0, y, f" {model}", fontsize=6.5, fontweight="bold", va="center")
    left.set_xlabel("Generations per question")
    right.set_xlabel("Tokens per question")
    right.tick_params(left=False)
    for panel in (left, right):
        style.ticks_above_too(panel)
    first, second, *_ = style.MODEL_COLOURS
    handles = [
        style.handle(METRICS[INDEX].label, style.INK, "o"),
        style.handle("score of the model", first, "o"),
        style.handle("score of what was trained", second, "o", face=style.PAPER),
    ]
    style.outside_legend(figure, [*handles, *style.token_handles()])
