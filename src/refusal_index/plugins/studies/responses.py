"""How models respond to a stated cost of errors, and to thinking.

`response_to_penalty` plots the refusal rate against confidence targets and compares it with the optimal one. A prompt
with target t says that a wrong answer costs t / (1 - t) right ones, so answering pays above a confidence of t. The
optimal refusal rate follows from the model's own accuracy-refusal curve, that is, from the correlation of its refusals
with its errors and its error rate under forced answering.

`thinking` compares runs that differ only by a switch for thinking, or by the requested effort.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.rates import outcome_matrix
from refusal_index.findings.matching import shared_variants
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import curves, inputs, precision, style
from refusal_index.plugins.studies.scores import label, method_colours, scored_run
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import number, pvalue, reason_text, with_interval
from refusal_index.stats.comparison import difference_pvalue

TOO_MUCH = "too much"
TOO_LITTLE = "too little"
NOT_TOLD = "no difference shown"
UNKNOWN = "not known"
"""Verdicts on the refusal rate relative to the optimal one, by the interval of the difference."""

_NAMED = re.compile(r"t(\d{1,2})")
_OWN = style.INK
_BEST = style.MODEL_COLOURS[1]

RESPONSE_SCHEMA = schema(
    "model dataset part variant method target penalty questions refusal_rate refusal_rate_low "
    "refusal_rate_high best_refusal_rate best_refusal_rate_low best_refusal_rate_high excess excess_low "
    "excess_high utility utility_low utility_high best_utility best_utility_low best_utility_high rho "
    "error_rate verdict status reason"
)
"""`part` is ``target``, ``threshold`` (best_utility by the cut of a score) or ``move`` (rates: highest less lowest)."""


@study
def response_to_penalty(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has prompts with two targets."""
    stating = [run for run in runs if len(targets_of(run)) > 1]
    if not stating:
        raise NotPossibleError
    chosen, left_out = inputs.chosen_runs(stating)
    rows: list[dict[str, Any]] = []
    notes = list(left_out)
    for run, name in zip(chosen, inputs.display_names(chosen), strict=True):
        new_rows = [*_response_rows(run, options), *_threshold_rows(run)]
        repeated = [variant for variant in _stated(run) if variant not in targets_of(run)]
        notes.append(
            study_text("response_to_penalty", "response", name=name, repeated=repeated, **_response_values(new_rows))
        )
        rows += new_rows
    frame = pl.DataFrame(rows, schema=RESPONSE_SCHEMA)
    counts = sorted(frame.filter(part="target")["questions"].to_list())
    questions = " to ".join(dict.fromkeys(f"{count:,}" for count in (counts[0], counts[-1])))
    return Study(
        frame,
        _draw_response,
        printed_response,
        notes,
        values={"questions": questions, "scores": "threshold" in frame["part"]},
    )


def targets_of(run: RunResults) -> dict[str, float]:
    """Return the first variant that states each confidence target."""
    first: dict[float, str] = {}
    for name, target in _stated(run).items():
        first.setdefault(target, name)
    return {name: target for target, name in first.items()}


def _stated(run: RunResults) -> dict[str, float]:
    """Return the confidence targets of variants that state one, from the run's settings or the variants' names."""
    prompts = run.settings.get("prompts")
    stated = prompts.get("targets") if isinstance(prompts, Mapping) else None
    if not isinstance(stated, Mapping):
        named = {name: _NAMED.fullmatch(name) for name in run.tables if name}
        stated = {name: int(match[1]) / 100 for name, match in named.items() if match}
    targets = {name: stated[name] for name in run.tables if name in stated and type(stated[name]) in {int, float}}
    return {name: float(target) for name, target in targets.items() if name and 0 <= target < 1}


def _response_rows(run: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    names, stated = zip(*sorted(targets_of(run).items(), key=itemgetter(1)), strict=True)
    refused, wrong, scored = outcome_matrix([run.tables[name] for name in names]).arrays
    level = options.analysis.confidence_level
    response = curves.response_to_penalty(
        refused, wrong, stated, scored, confidence_level=level, rng=options.analysis.seed
    )
    where = {
        "model": inputs.model_name(run),
        "dataset": run.dataset,
        "rho": response.rho,
        "error_rate": response.error_rate,
    }
    for name, point in zip(names, response.points, strict=True):
        yield {
            **where,
            "part": "target",
            "variant": name,
            **{column: getattr(point, column) for column in ("target", "penalty")},
            "questions": point.table.n,
            **inputs.with_ends(
                {
                    column: getattr(point, column)
                    for column in ("refusal_rate", "best_refusal_rate", "excess", "utility", "best_utility")
                }
            ),
            "verdict": verdict(point.excess),
            **{column: getattr(point.best_refusal_rate, column) for column in ("status", "reason")},
        }
    yield {
        **where,
        "part": "move",
        **inputs.with_ends(
            {"refusal_rate": response.move, "best_refusal_rate": response.best_move, "excess": response.move_excess}
        ),
        "verdict": verdict(response.move_excess),
        "status": response.move_excess.status,
        "reason": response.move_excess.reason,
    }


def _threshold_rows(run: RunResults) -> Iterator[dict[str, Any]]:
    """Yield the utility of the best cut of each confidence score, on the same questions on which it is chosen."""
    scored, _ = scored_run(run, inputs.model_name(run))
    for method in scored.methods if scored else ():
        for name, target in targets_of(run).items():
            penalty = float(stats.penalty_from_confidence(target))
            threshold = stats.utility_threshold(method.score, method.right, penalty)
            yield {
                "model": inputs.model_name(run),
                "dataset": run.dataset,
                "part": "threshold",
                "method": method.method,
                "variant": name,
                "target": target,
                "penalty": penalty,
                "questions": method.right.size,
                "best_refusal_rate": None if threshold.coverage is None else 1 - threshold.coverage,
                "best_utility": threshold.utility,
                "status": threshold.status,
                "reason": threshold.reason,
            }


def verdict(excess: stats.Estimate) -> str:
    """Return whether a model refuses too much or too little, by the interval of the difference from the optimum.

    >>> verdict(stats.Estimate(-0.3, -0.4, -0.2)), verdict(stats.Estimate(0.1, -0.1, 0.3))
    ('too little', 'no difference shown')
    """
    if excess.low is None or excess.high is None:
        return UNKNOWN
    return TOO_MUCH if excess.low > 0 else TOO_LITTLE if excess.high < 0 else NOT_TOLD


def _response_values(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values for a run's note: its change in refusal rate and its utility, actual and optimal."""
    stated = [row for row in rows if row["part"] == "target"]
    move = next(row for row in rows if row["part"] == "move")
    low = move["refusal_rate_low"]
    high = move["refusal_rate_high"]
    moves = {"own": (move["refusal_rate"], low, high)}
    moves["best"] = tuple(move[f"best_refusal_rate{end}"] for end in ("", "_low", "_high"))
    return {
        **{name: with_interval(*numbers, None, 2) for name, numbers in moves.items()},
        "first": f"{stated[0]['target']:g}",
        "last": f"{stated[-1]['target']:g}",
        "excess": move["excess"],
        "why": reason_text(move["reason"] or "no_questions"),
        "verdict": move["verdict"],
        "still": low is not None and low <= 0 <= high,
        "each": [f"{row['verdict']} at {row['target']:g}" for row in stated],
        "earned": [f"{number(row['utility'], 2)} at {row['target']:g}" for row in stated],
        "could": [number(row["best_utility"], 2) for row in stated if row["best_utility"] is not None],
    }


def printed_response(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model, dataset and target: refusal rate and points earned, actual and optimal."""
    rows = []
    has_several = frame["dataset"].n_unique() > 1
    for row in frame.filter(part="target").iter_rows(named=True):
        same = pl.col("dataset").eq_missing(row["dataset"])
        scores = frame.filter(same, model=row["model"], part="threshold", target=row["target"])
        printed_row = {
            "model": row["model"],
            **({"dataset": inputs.dataset_name(row["dataset"])} if has_several else {}),
            **{heading: cell(row) for heading, cell in PRINTED_RESPONSE.items()},
        }
        for cut in scores.iter_rows(named=True):
            printed_row[f"{label(cut['method'])}: best"] = number(cut["best_utility"], 2)
        rows.append(printed_row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _draw_response(figure: Figure, frame: pl.DataFrame) -> None:
    """Plot the actual and the optimal refusal rate against the targets, and below them the points earned."""
    keys = frame.select("model", "dataset").unique(maintain_order=True)
    columns = min(keys.height, style.PANELS_A_ROW)
    bands = math.ceil(keys.height / columns)
    axes = style.subplots(
        figure,
        style.WIDTH * max(0.55, 0.36 * columns),
        3.6 * bands,
        2 * bands,
        columns,
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    names = style.short_names(keys["model"].to_list(), 22)
    datasets = style.short_names(
        [inputs.dataset_name(dataset) for dataset in keys["dataset"].unique(maintain_order=True)], 22
    )
    methods = frame.filter(part="threshold")["method"].unique(maintain_order=True).to_list()
    colours = method_colours(methods)
    for index, part in enumerate(frame.partition_by("model", "dataset", maintain_order=True)):
        band, column = divmod(index, columns)
        model, dataset = keys.row(index)
        above = axes[2 * band, column]
        below = axes[2 * band + 1, column]
        stated = part.filter(part="target")
        _draw_pair(above, stated, "refusal_rate", "best_refusal_rate")
        _draw_pair(below, stated, "utility", "best_utility")
        for (method,), cuts in part.filter(part="threshold").group_by("method", maintain_order=True):
            defined = cuts.drop_nulls("best_utility").sort("target")
            below.plot(defined["target"], defined["best_utility"], ":", color=colours[str(method)], linewidth=1)
        title = [names[model], datasets[inputs.dataset_name(dataset)]] if len(datasets) > 1 else [names[model]]
        above.set_title("\n".join(title), fontsize=7.5)
        above.set_ylim(-0.03, 1.03)
        below.axhline(0, color=style.PALE, linewidth=0.8, zorder=1)
    for spare in range(keys.height, bands * columns):
        for row in (2 * (spare // columns), 2 * (spare // columns) + 1):
            axes[row, spare % columns].set_axis_off()
    for band in range(bands):
        axes[2 * band, 0].set_ylabel("share refused")
        axes[2 * band + 1, 0].set_ylabel("earned per question")
    axes[0, 0].set_xlim(-0.05, 1.0)
    for lowest in range(keys.height - columns, keys.height):
        below = axes[2 * (lowest // columns) + 1, lowest % columns]
        below.set_xlabel("stated target t")
        below.tick_params(labelbottom=True)
    line: dict[str, Any] = {"line": "-", "linewidth": 0.8}
    handles = [
        style.handle("the model", _OWN, "o", **line),
        style.handle("best on its curve", _BEST, "D", face=style.PAPER, **line),
        *(style.handle(f"best cut of {label(method)}", colours[method], line=":", linewidth=1) for method in methods),
    ]
    style.outside_legend(figure, handles)


PRINTED_RESPONSE: Mapping[str, style.Cell] = {
    "t": lambda row: f"{row['target']:g}",
    "refused": style.ranged("refusal_rate", 2),
    "best": style.ranged("best_refusal_rate", 2),
    "difference": style.ranged("excess", 2),
    "refuses": itemgetter("verdict"),
    "earns": style.ranged("utility", 2),
    "best earns": style.ranged("best_utility", 2),
}


def _draw_pair(axes: Axes, stated: pl.DataFrame, observed: str, best: str) -> None:
    """Draw the actual and the optimal value side by side at each target."""
    for name, colour, marker, shift in ((best, _BEST, "D", 0.012), (observed, _OWN, "o", -0.012)):
        rows = stated.drop_nulls(name).with_columns(place=pl.col("target") + shift)
        axes.plot(rows["place"], rows[name], color=colour, linewidth=0.8, zorder=3)
        for row in rows.iter_rows(named=True):
            style.mark(
                axes,
                row["place"],
                row[name],
                colour,
                marker,
                ys=style.ends(row, name),
                face=_OWN if name == observed else style.PAPER,
                width=0.9,
            )


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


@study
def thinking(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: every run of a model is compared with its run that thinks least.

    Raises NotPossibleError if no two runs differ only in thinking.
    """
    pairs = list(_pairs(runs))
    if not pairs:
        raise NotPossibleError("; these hold no such pair")
    rows = [row for pair in pairs for row in _thinking_rows(*pair, options)]
    frame = pl.DataFrame(
        rows,
        schema=schema(
            "model other_model dataset less more metric questions value_less value_more estimate low high pvalue reason"
        ),
    )
    return Study(frame, _draw_thinking, style.table(PRINTED_THINKING), values={"pairs": len(pairs)})


def thinking_of(run: RunResults) -> tuple[int, int, str]:
    """Return the rank of a run by how much the model is to think, and a name for it.

    - returned: the rank of the effort from 0; the switch, 0 for off, 1 for none and 2 for on; and both as text.
    """
    effort = (run.settings.get("decoding") or {}).get("reasoning_effort")
    switch = run.settings.get("think") or ""
    against = any(word in switch.lower() for word in ("no_think", "nothink", "no-think", "no think"))
    rank = EFFORTS.index(effort) + 1 if effort in EFFORTS else 0
    named = [*([switch] if switch else []), *([f"effort {effort}"] if effort else [])]
    return rank, 0 if against else 2 if switch else 1, ", ".join(named) or "as it is"


def _pairs(runs: Sequence[RunResults]) -> Iterator[tuple[RunResults, RunResults]]:
    """Pair each run with the one that thinks least among the runs that are otherwise comparable."""
    groups: dict[tuple[str, ...], list[RunResults]] = {}
    for run in runs:
        if run.settings and run.model_id:
            groups.setdefault(_shared_settings(run), []).append(run)
    for members in groups.values():
        ordered = sorted(members, key=lambda run: thinking_of(run)[:2])
        for run in ordered[1:]:
            if thinking_of(run) != thinking_of(ordered[0]) and shared_variants((ordered[0], run)):
                yield ordered[0], run


def _shared_settings(run: RunResults) -> tuple[str, ...]:
    """Return a key of the settings that two runs must share to be compared."""
    decoding = {key: value for key, value in (run.settings.get("decoding") or {}).items() if key != "reasoning_effort"}
    # A model that thinks writes more, so the limit on tokens is usually raised with it.
    decoding.pop("max_tokens", None)
    parts = (
        run.model_id,
        run.dataset_id,
        sorted(decoding.items()),
        *(run.settings.get(key) for key in ("dataset", "grader", "prompts", "placement", "comparability_version")),
    )
    return tuple(map(repr, parts))


def _thinking_rows(less: RunResults, more: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    variants = shared_variants((less, more))
    pair = [run.with_tables({name: run.tables[name] for name in variants}) for run in (less, more)]
    errors = precision.RunErrors(pair, options, ("less", "more"))
    question_ids = [
        {question_id for rows in run.tables.values() for question_id in rows["question_id"]} for run in pair
    ]
    where: dict[str, Any] = {
        "model": inputs.model_name(more),
        "other_model": inputs.model_name(less),
        "dataset": inputs.dataset_name(more.dataset),
        "less": thinking_of(less)[2],
        "more": thinking_of(more)[2],
    }
    for metric in inputs.COMPARED:
        if metric == INDEX:
            first, second = (inputs.run_index(run, options).index.estimate for run in pair)
        else:
            first, second = (inputs.mean_of(inputs.variant_scores(run, options), metric) for run in pair)
        values: dict[str, Any] = {
            "questions": len(question_ids[0] & question_ids[1]),
            "value_less": first,
            "value_more": second,
        }
        if first is None or second is None:
            yield {**where, "metric": metric, **values, "reason": "undefined"}
            continue
        less_errors, other = errors.of_runs(("less", "more"), metric)
        estimate = second - first
        reach = precision.half_width(other - less_errors, options.analysis)
        values["estimate"] = estimate
        if reach is None:
            values["reason"] = "no_standard_error" if np.isnan(other - less_errors).any() else "constant_difference"
        else:
            error = float(np.linalg.norm(other - less_errors))
            values |= {"low": estimate - reach, "high": estimate + reach}
            values["pvalue"] = difference_pvalue(estimate, error, values["questions"])
        yield {**where, "metric": metric, **values}


def _draw_thinking(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per metric and a line per pair: the increase of the metric with more thinking."""
    keys = ["model", "other_model", "dataset", "less", "more"]
    pairs = frame.select(keys).unique(maintain_order=True).rows()
    panels = style.subplots(figure, 7.0, 1.0 + 0.42 * len(pairs), 1, len(inputs.COMPARED), sharey=True)
    colours = style.model_colours([pair[0] for pair in pairs])
    names = style.short_names([name for pair in pairs for name in pair[:2]], 28)
    for axes, metric in zip(panels, inputs.COMPARED, strict=True):
        axes.axvline(0, color=style.GREY, linewidth=0.7)
        for row in frame.filter(metric=metric).drop_nulls("estimate").iter_rows(named=True):
            y = pairs.index(tuple(row[key] for key in keys))
            style.mark(axes, row["estimate"], y, colours[row["model"]], xs=style.ends(row))
        axes.set_title(METRICS[metric].label, loc="center")
        axes.margins(x=0.15)
        style.few_ticks(axes.xaxis, 2)
    labels = []
    for model, other, _, less, more in pairs:
        shown = names[model] if model == other else f"{names[other]} to\n{names[model]}"
        labels.append(f"{shown}\n{style.safe_text(less, 16)} to {style.safe_text(more, 16)}")
    style.name_rows(panels, labels, 6.5)
    figure.supxlabel("value with more thinking \N{MINUS SIGN} value with less", fontsize=8)


PRINTED_THINKING: Mapping[str, str | style.Cell] = {
    "Model": lambda row: (
        row["model"] if row["model"] == row["other_model"] else f"{row['other_model']}, {row['model']}"
    ),
    "Dataset": "dataset",
    "Less": "less",
    "More": "more",
    "Metric": lambda row: METRICS[row["metric"]].label,
    "with less": style.fixed("value_less"),
    "with more": style.fixed("value_more"),
    "difference": style.ranged("estimate"),
    "p": lambda row: pvalue(row["pvalue"]),
    "questions": "questions",
}
