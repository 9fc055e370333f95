"""What thinking does to a model: runs that differ by a switch for it, or by the effort asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun, shared_variants
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import COMPARED, dataset_name, mean_of, run_index, variant_scores
from refusal_index.plugins.studies.sampling_error import RunErrors
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, fixed, printed_table, ranged
from refusal_index.render.format import pvalue
from refusal_index.stats.comparison import difference_pvalue
from refusal_index.stats.intervals import normal_quantile

ROUNDING = 1e-12
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
ALIKE = ("dataset", "grader", "prompts", "placement", "comparability_version")
SCHEMA = {
    **dict.fromkeys(("model", "dataset", "less", "more", "metric"), pl.String),
    "questions": pl.Int64,
    **dict.fromkeys(("value_less", "value_more", "estimate", "low", "high", "pvalue"), pl.Float64),
    "reason": pl.String,
}


@study
def thinking(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Compare every run of a model with its run that thinks least.

    Raises NotPossibleError if no two runs differ in thinking only.
    """
    pairs = list(_pairs(runs))
    if not pairs:
        raise NotPossibleError("; these hold no such pair")
    rows = [row for pair in pairs for row in _rows(*pair, options)]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return Study(frame, draw, printed, values={"pairs": len(pairs)})


def thinking_of(run: ComparedRun) -> tuple[int, int, str]:
    """Return what orders a run by how much it is to think, and what to call that.

    - returned: the effort, from 0; the switch, 0 for one that says not to, 2 for one that says to; both in words.
    """
    effort = (run.settings.get("decoding") or {}).get("reasoning_effort")
    switch = run.settings.get("think") or ""
    against = any(word in switch.lower() for word in ("no_think", "nothink", "no-think", "no think"))
    rank = EFFORTS.index(effort) + 1 if effort in EFFORTS else 0
    named = [*([switch] if switch else []), *([f"effort {effort}"] if effort else [])]
    return rank, 0 if against else 2 if switch else 1, ", ".join(named) or "as it is"


def _pairs(runs: Sequence[ComparedRun]) -> Iterator[tuple[ComparedRun, ComparedRun]]:
    """Pair each run with the one that thinks least among those that are like it otherwise."""
    groups: dict[tuple[str, ...], list[ComparedRun]] = {}
    for run in runs:
        if run.settings and run.model_id:
            groups.setdefault(_alike(run), []).append(run)
    for members in groups.values():
        ordered = sorted(members, key=lambda run: thinking_of(run)[:2])
        for run in ordered[1:]:
            if thinking_of(run) != thinking_of(ordered[0]) and shared_variants((ordered[0], run)):
                yield ordered[0], run


def _alike(run: ComparedRun) -> tuple[str, ...]:
    """Return what two runs must have in common to be compared."""
    decoding = {key: value for key, value in (run.settings.get("decoding") or {}).items() if key != "reasoning_effort"}
    # What thinks writes more: the limit on tokens is raised with it.
    decoding.pop("max_tokens", None)
    parts = (run.model_id, run.dataset_id, sorted(decoding.items()), *(run.settings.get(key) for key in ALIKE))
    return tuple(map(repr, parts))


def _rows(less: ComparedRun, more: ComparedRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    variants = shared_variants((less, more))
    pair = [replace(run, variants={name: run.variants[name] for name in variants}) for run in (less, more)]
    errors = RunErrors(pair, options, ("less", "more"))
    asked = [{one for rows in run.variants.values() for one in rows["question_id"]} for run in pair]
    where = {"model": more.model_id, "dataset": dataset_name(more.dataset)}
    where |= {"less": thinking_of(less)[2], "more": thinking_of(more)[2]}
    for metric in COMPARED:
        first, second = (_value(run, metric, options) for run in pair)
        found: dict[str, Any] = {"questions": len(asked[0] & asked[1]), "value_less": first, "value_more": second}
        if first is None or second is None:
            yield {**where, "metric": metric, **found, "reason": "undefined"}
            continue
        one, other = errors.of(("less", "more"), metric)
        found |= _difference(second - first, float(np.linalg.norm(other - one)), found["questions"], options)
        yield {**where, "metric": metric, **found}


def _value(run: ComparedRun, metric: str, options: StudyOptions) -> float | None:
    return run_index(run, options).index.estimate if metric == INDEX else mean_of(variant_scores(run, options), metric)


def _difference(estimate: float, error: float, shared: int, options: StudyOptions) -> dict[str, Any]:
    if not np.isfinite(error) or error <= ROUNDING:
        # An interval of no width would claim certainty.
        return {"estimate": estimate, "reason": "constant_difference" if error <= ROUNDING else "no_standard_error"}
    reach = normal_quantile(options.confidence_level) * error
    ends = {"low": estimate - reach, "high": estimate + reach}
    return {"estimate": estimate, **ends, "pvalue": difference_pvalue(estimate, error, shared)}


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a metric and a line a pair: by how much the metric is higher with more thinking."""
    pairs = frame.select("model", "dataset", "less", "more").unique(maintain_order=True).rows()
    figure.set_size_inches(7.0, 1.0 + 0.32 * len(pairs))
    panels = figure.subplots(1, len(COMPARED), sharey=True)
    colours = style.model_colours([pair[0] for pair in pairs])
    names = style.short_names([pair[0] for pair in pairs], 28)
    for axes, metric in zip(panels, COMPARED, strict=True):
        axes.axvline(0, color=style.GREY, linewidth=0.7)
        for row in frame.filter(metric=metric).drop_nulls("estimate").iter_rows(named=True):
            place = pairs.index((row["model"], row["dataset"], row["less"], row["more"]))
            style.mark(axes, row["estimate"], place, colours[row["model"]], xs=style.ends(row))
        axes.set_title(METRICS[metric].label, loc="center")
        axes.margins(x=0.15)
        style.few_ticks(axes.xaxis, 2)
    what = (f"{style.safe_text(less, 16)} to {style.safe_text(more, 16)}" for _, _, less, more in pairs)
    style.name_rows(panels[0], [f"{names[pair[0]]}\n{said}" for pair, said in zip(pairs, what, strict=True)], 6.5)
    for axes in panels[1:]:
        axes.grid(visible=False, axis="y")
    figure.supxlabel("value with more thinking \N{MINUS SIGN} value with less", fontsize=8)


PRINTED: Mapping[str, str | Cell] = {
    "Model": "model",
    "Dataset": "dataset",
    "Less": "less",
    "More": "more",
    "Metric": lambda row: METRICS[row["metric"]].label,
    "with less": fixed("value_less"),
    "with more": fixed("value_more"),
    "difference": ranged("estimate"),
    "p": lambda row: pvalue(row["pvalue"]),
    "questions": "questions",
}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a pair and metric."""
    return printed_table(frame, PRINTED)
