"""Tables of results: every metric of every run and prompt variant, and the index of models on several datasets.

`results_table` has one row per model over its prompts, as in the paper: the combined index, and of the other metrics
the mean over the prompts. Means explain why C/A of Qwen3-32B and F of Qwen3-235B in the paper's table differ from
those of the rates printed beside them. Questions are resampled with all their answers, so that the intervals of the
means account for the questions that prompts share.

`hallucination_table` shows how far the datasets agree on the ranking of the models, over the largest complete block of
models and datasets. Averages are over its models, so that they are of the same models for all datasets. Unanswerable
and inconsistent questions have no right answer and are mixed with others. The index of a mix partly measures telling
its sources apart, so the index within the sources is shown as well. The contrast is the difference in a model's index
between datasets where the truth is available, in the context or from training, and others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from scipy.special import stdtrit

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.published import hallucination_rows
from refusal_index.data.rates import first_draws
from refusal_index.findings.comparison import COMBINED
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, precision, stability, style
from refusal_index.plugins.studies.inputs import CompleteBlock, largest_complete_block
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import UNDEFINED, number, with_interval
from refusal_index.stats.arguments import FloatArray

RESULTS_SCHEMA = schema(
    "model dataset variant variants source n unscored metric estimate low high bootstrap_low bootstrap_high status "
    "reason"
)
"""`variants`: the number of prompts that an estimate combines, in rows of the variant ``combined``."""
MAX_LINES = 60
"""Maximum number of lines of the figure that show single prompts; with more, each run has one line."""


@study
def results_table(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Tabulate every metric; raises NotPossibleError if there are no runs."""
    if not runs:
        raise NotPossibleError
    rows = [*(row for run in runs for row in _run_rows(run, options)), *_paper_rows(runs, options)]
    frame = pl.DataFrame(rows, schema=RESULTS_SCHEMA)
    return Study(
        frame,
        _draw_results,
        _printed_results,
        tuple(_fewer_notes(frame)),
        values={
            **inputs.data_values(runs),
            "runs": len(runs),
            "resamples": f"{precision.RESAMPLES:,}",
            "combined": COMBINED in frame["variant"],
            "many": frame.select("model", "variant", "source").n_unique() > MAX_LINES,
            "single": any(len(run.tables) == 1 for run in runs),
            "fewer": with_prompts(frame).filter(HAS_FEWER).height > 0,
            "paper": inputs.PAPER in frame["source"],
        },
    )


PROMPTS = "prompts"
"""Column with the number of prompts of a run."""
HAS_FEWER = (pl.col("variant") == COMBINED) & (pl.col("variants") < pl.col(PROMPTS))
"""Selects values over fewer prompts than the run has."""


def with_prompts(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the number of prompts of each run, without the row that combines them."""
    own = pl.col("variant").filter(pl.col("variant") != COMBINED)
    return frame.with_columns(own.n_unique().over("model", "dataset", "source").alias(PROMPTS))


def _fewer_notes(frame: pl.DataFrame) -> Iterator[str]:
    """Yield a note on each metric of a run that is over fewer prompts than the run has."""
    rows = with_prompts(frame).filter(HAS_FEWER, pl.col("variants") > 0)
    for key, part in rows.group_by("metric", "variants", PROMPTS, maintain_order=True):
        metric, variants, prompts = key
        yield study_text(
            "results_table",
            "fewer",
            metric=METRICS[str(metric)].label,
            variants=variants,
            prompts=prompts,
            models=part["model"].to_list(),
        )


def _draw_results(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel per metric and one line per variant."""
    if frame.select("model", "variant", "source").n_unique() > MAX_LINES:
        frame = with_prompts(frame).filter((pl.col("variant") == COMBINED) | (pl.col(PROMPTS) <= 1))
    is_alone = frame.select("model", "source").n_unique() == frame.select("model", "variant", "source").n_unique()
    lines = frame.select("model", "variant", "source").unique(maintain_order=True).rows()
    heights, headings = _places(lines, is_alone=is_alone)
    height = 0.9 + 0.17 * (len(lines) + len(headings))
    panels = style.subplots(figure, 7.0, height, 1, len(inputs.COMPARED), sharey=True)
    colours = style.variant_colours(frame["variant"].to_list())
    for axes, metric in zip(panels, inputs.COMPARED, strict=True):
        for row in frame.filter(pl.col("metric") == metric).iter_rows(named=True):
            y = heights[row["model"], row["variant"], row["source"]]
            is_combined = row["variant"] == COMBINED
            if row["estimate"] is None:
                axes.text(
                    0.5,
                    y,
                    "undefined",
                    fontsize=6,
                    color=style.GREY,
                    transform=axes.get_yaxis_transform(),
                    ha="center",
                    va="center",
                )
                continue
            colour = (
                style.PALE if row["source"] == inputs.PAPER else style.INK if is_combined else colours[row["variant"]]
            )
            face = None if row["status"] == "ok" else style.PAPER
            marker = "D" if is_combined else "o"
            style.mark(axes, row["estimate"], y, colour, marker, xs=style.ends(row), face=face)
        axes.set_title(METRICS[metric].label, loc="center")
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=6.5)
        axes.margins(x=0.12)
        style.few_ticks(axes.xaxis, 2)
        style.ticks_above_too(axes)
    first = panels[0]
    names = style.short_names(list(headings), 36)
    short = style.short_names([model for model, *_ in heights], 46)
    labels = [
        short[model] if is_alone or variant is None else style.safe_text(variant, 28) for model, variant, _ in heights
    ]
    style.name_rows(panels, labels, 6.5, heights=list(heights.values()), pad=0.7)
    for heading, y in headings.items():
        first.annotate(
            names[heading],
            xy=(0, y),
            xytext=(-4, 0),
            xycoords=first.get_yaxis_transform(),
            fontsize=7.5,
            textcoords="offset points",
            ha="right",
            va="center",
            weight="bold",
        )


def _printed_results(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table in the paper's layout: one row per run, over its prompts, and the paper's rows below.

    The datasets and the paper's rows are blocks of their own. The number of prompts is given if runs differ in it.
    """
    counted = with_prompts(frame)
    every = counted.filter((pl.col("variant") == COMBINED) | (pl.col(PROMPTS) <= 1))
    differ = every.filter(source=inputs.RUN)[PROMPTS].n_unique() > 1
    rows = []
    for _, part in every.group_by("source", "dataset", "model", maintain_order=True):
        first = part.row(0, named=True)
        is_run = first["source"] == inputs.RUN
        heading = inputs.dataset_name(first["dataset"]) if is_run else inputs.PAPER_SOURCE
        # The heading has the dataset, which labels end with if there are several.
        row = {style.BLOCK: heading, "Model": first["model"].replace(f", {first['dataset']}", "")}
        if differ:
            row["Prompts"] = str(first[PROMPTS]) if is_run else UNDEFINED
        for cell in part.iter_rows(named=True):
            text = with_interval(cell["estimate"], *style.ends(cell), cell["reason"], style.DIGITS)
            is_fewer = cell["variant"] == COMBINED and 0 < cell["variants"] < cell[PROMPTS]
            # follows a value over fewer prompts than the run has
            row[METRICS[cell["metric"]].label] = text + (" *" if is_fewer else "")
        rows.append(row)
    return pl.concat(pl.DataFrame(rows).partition_by(style.BLOCK, maintain_order=True))


def _run_rows(run: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    labels = {"model": run.label, "dataset": run.dataset, "source": inputs.RUN}
    for scores in inputs.variant_scores(run, options):
        counts = {"variant": scores.variant, "n": scores.table.n, "unscored": scores.unscored}
        # Resampling the four counts has the same distribution as resampling questions, and is much faster.
        n = scores.table.n
        shares = np.array(scores.table.counts) / max(1, scores.table.n)
        resampled = np.random.default_rng(options.analysis.seed).multinomial(n, shares, size=precision.RESAMPLES)
        draws = precision.metrics_of_counts(resampled.astype(float))
        for name in inputs.COMPARED:
            row = {**labels, **counts, "metric": name, **scores.metrics[name].to_document()}
            if row["estimate"] is not None:
                values = precision.metric_draws(draws, name, options.analysis.payoffs.weighted_score_p)
                ends = precision.percentile_interval(values, options.analysis)
                row |= {"bootstrap_low": ends[0], "bootstrap_high": ends[1]}
            yield row
    if len(run.tables) > 1:
        for row in _combined_rows(run, options):
            yield {**labels, "variant": COMBINED, **row}


def _combined_rows(run: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield each metric over the prompts of a run: the combined index, the mean of the others."""
    every = inputs.variant_scores(run, options)
    resampled = precision.resampled_metrics(run, options)
    for name in inputs.COMPARED:
        if name == INDEX:
            index = inputs.run_index(run, options)
            yield {"metric": name, "variants": index.variants, **index.index.to_document()}
            continue
        defined = [place for place, scores in enumerate(every) if scores.metrics[name].estimate is not None]
        if not defined:
            undefined = every[0].metrics[name]
            yield {"metric": name, "variants": 0, "status": undefined.status, "reason": undefined.reason}
            continue
        draws = precision.metric_draws(resampled, name, options.analysis.payoffs.weighted_score_p)
        low, high = precision.percentile_interval(draws[:, defined].mean(axis=1), options.analysis)
        # An interval of zero width would suggest certainty.
        ends = {"low": None, "high": None} if low == high else {"low": low, "high": high}
        mean = inputs.mean_of(every, name)
        yield {"metric": name, "variants": len(defined), "estimate": mean, **ends, "status": "ok"}


def _paper_rows(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[dict[str, Any]]:
    on_simpleqa = [run for run in runs if run.dataset_id == inputs.SIMPLEQA]
    for row in inputs.paper_context(on_simpleqa, options).iter_rows(named=True):
        for name in inputs.COMPARED:
            yield {
                "model": row["model"],
                "dataset": inputs.SIMPLEQA,
                "source": inputs.PAPER,
                "metric": name,
                "estimate": row[name],
                "low": row[f"{name}_low"],
                "high": row[f"{name}_high"],
                "status": "ok",
            }


def _places(
    lines: Sequence[tuple[str, str | None, str]], *, is_alone: bool
) -> tuple[dict[tuple[str, str | None, str], float], dict[str, float]]:
    """Return the position of each line from the top, below a heading for its run; the paper's rows have their own.

    - `is_alone`: whether each run has one line, so that the runs share a heading.
    """
    heights: dict[tuple[str, str | None, str], float] = {}
    headings: dict[str, float] = {}
    below = 0.0
    for model, variant, source in lines:
        heading = "The paper" if source == inputs.PAPER else "Runs" if is_alone else model
        if heading not in headings:
            below += 0.35 if headings else 0.0
            headings[heading] = below
            below += 1
        heights[model, variant, source] = below
        below += 1
    return heights, headings


CONTRAST = "truth_contrast"
AVERAGE_CONTRAST = "truth_contrast_average"
HEADINGS = {"available": "Truth available", "unavailable": "Truth unavailable"}
MIN_MODELS = 3
"""Minimum number of models for an interval over models."""

Errors = Mapping[tuple[str, str], FloatArray]
"""Influence of each question on the index, by model and dataset; NaN if the index has no standard error."""


def contrast_rows(frame: pl.DataFrame, errors: Errors, analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield the contrast of every model that was run on both kinds of datasets, and their average.

    - `frame`: table with the columns `model`, `dataset`, `truth` and `estimate`.
    - `errors`: empty if unknown; the contrasts of single models then have no interval.
    - returned: a model's contrast has an interval over questions; the average has a t interval over models if there are
      at least three.
    """
    contrasts = []
    for (model,), rows in inside_range(frame).group_by("model", maintain_order=True):
        means = {truth: rows.filter(truth=truth)["estimate"].mean() for truth in HEADINGS}
        if None in means.values():
            continue
        contrasts.append(float(means["available"]) - float(means["unavailable"]))  # type: ignore[arg-type]
        parts = {truth: [(model, name) for name in rows.filter(truth=truth)["dataset"]] for truth in HEADINGS}
        reach = None
        if all(key in errors for keys in parts.values() for key in keys):
            first, other = (np.mean([errors[key] for key in keys], axis=0) for keys in parts.values())
            reach = precision.half_width(first - other, analysis)
        yield {"statistic": CONTRAST, "model": model, **_interval(contrasts[-1], reach)}
    if contrasts:
        k = len(contrasts)
        reach = None
        if k >= MIN_MODELS:
            quantile = float(stdtrit(k - 1, (1 + analysis.confidence_level) / 2))
            reach = quantile * float(np.std(contrasts, ddof=1)) / math.sqrt(k)
        yield {"statistic": AVERAGE_CONTRAST, "models": k, **_interval(float(np.mean(contrasts)), reach)}


def _interval(estimate: float, reach: float | None) -> dict[str, float | None]:
    ends = (None, None) if reach is None else (estimate - reach, estimate + reach)
    return {"estimate": estimate, "low": ends[0], "high": ends[1]}


AVERAGE = "average"
CEILING = "kendall_w_ceiling"
AGREEMENT = ("kendall_w", "kendall_w_ties", "kendall_w_random", "winner_entropy", "winner_entropy_random")
PUBLISHED = "published_index"
"""Value of the column `statistic` for RI as the paper prints it."""
PUBLISHED_AVERAGE = "published_average"
"""The same of their averages, which are the means of the printed values."""
PUBLISHED_HEADING = inputs.published_heading("precise_wiki")
OF_PAPER = (PUBLISHED, PUBLISHED_AVERAGE)
HALLUCINATION_SCHEMA = schema(
    "statistic model dataset truth estimate low high within_source within_low within_high variants models reason",
    statistic=pl.String,
)
"""`variants`: the number of prompts of an index; `models`: the number of models of an average."""


@study
def hallucination_table(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: the index of every model on every dataset.

    Raises NotPossibleError if there are runs on fewer than two datasets.
    """
    by_key: dict[tuple[str | None, str | None], RunResults] = {}
    for run in runs:
        by_key.setdefault((run.model, run.dataset), run)
    chosen = list(by_key.values())
    repeated = [run.label for run in runs if by_key[run.model, run.dataset] is not run]
    if len({run.dataset for run in chosen}) < 2:
        raise NotPossibleError
    rows = []
    for run in chosen:
        overall = inputs.run_index(run, options)
        labels: dict[str, Any] = {
            "statistic": INDEX,
            "model": run.model or run.label,
            "dataset": inputs.dataset_name(run.dataset),
            "truth": truth_of(run.dataset_id),
            "variants": overall.variants,
        }
        rows.append({**labels, **overall.index.to_document(), **_within_source(run, options)})
    names = [(row["model"], row["dataset"]) for row in rows]
    errors = dict(zip(names, precision.RunErrors(chosen, options, names).of_runs(names, INDEX), strict=True))
    frame = with_agreement(pl.DataFrame(rows, schema=HALLUCINATION_SCHEMA), errors, options.analysis)
    published = pl.DataFrame(list(_published_rows(chosen, options)), schema=HALLUCINATION_SCHEMA)
    frame = pl.concat([frame, published])
    left_out = inputs.left_out("Left out, since their model has another run on the same dataset", repeated)
    notes = [*left_out, *_block_notes(frame)]
    by_statistic = {
        row["statistic"]: row for row in frame.iter_rows(named=True) if row["statistic"] in (*AGREEMENT, CEILING)
    }
    if by_statistic["kendall_w"]["estimate"] is None:
        reason = by_statistic["kendall_w"]["reason"].replace("_", " ")
        notes.append(f"The agreement of the datasets' rankings is undefined ({reason}).")
    else:
        values = {name: by_statistic[name]["estimate"] for name in AGREEMENT}
        notes.append(study_text("hallucination_table", "agreement", **values))
        if CEILING in by_statistic:
            notes.append(study_text("hallucination_table", "ceiling", **by_statistic[CEILING]))
    notes += (
        study_text(
            "hallucination_table",
            "contrast",
            difference=with_interval(row["estimate"], *style.ends(row)),
            models=row["models"],
            has_interval=row["low"] is not None,
            fewest=MIN_MODELS,
        )
        for row in frame.filter(statistic=AVERAGE_CONTRAST).iter_rows(named=True)
    )
    # Headings for the two kinds of datasets, if both are there.
    truths = dict(frame.drop_nulls("truth").select("dataset", "truth").rows())
    groups = {name: HEADINGS[truth] for name, truth in truths.items()} if len(set(truths.values())) > 1 else {}
    return Study(
        frame,
        _draw_datasets,
        _printed_datasets,
        notes,
        values={
            "contrast": CONTRAST in frame["statistic"],
            "mixed": frame["within_source"].is_not_null().any(),
            "averages": AVERAGE in frame["statistic"],
            "paper": published.height > 0,
        },
        groups=groups,
    )


def _published_rows(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield RI of each model of the paper's table on hallucination benchmarks and its mean, for the runs' datasets."""
    printed = hallucination_rows()
    datasets = {run.dataset_id: inputs.dataset_name(run.dataset) for run in runs if run.dataset_id in printed.columns}
    for dataset, name in datasets.items() if not options.without_paper else ():
        labels = {"dataset": name, "truth": truth_of(dataset)}
        for model, estimate in printed.select("model", str(dataset)).rows():
            yield {**labels, "statistic": PUBLISHED, "model": model, "estimate": estimate}
        mean = printed[str(dataset)].mean()
        yield {**labels, "statistic": PUBLISHED_AVERAGE, "models": printed.height, "estimate": mean}


def with_agreement(
    frame: pl.DataFrame, errors: Errors = MappingProxyType({}), analysis: Analysis = DEFAULT_ANALYSIS
) -> pl.DataFrame:
    """Add the average of each dataset, the agreement of their rankings, and the contrast between kinds of datasets.

    - `frame`: rows of the statistic ``refusal_index`` with the columns `statistic`, `model`, `dataset` and `estimate`.
    - `errors`: sampling errors of the indices, for intervals; empty if unknown.
    - returned: the frame with further rows of ``average``, ``kendall_w`` (without and, as ``kendall_w_ties``, with the
      correction for ties), ``winner_entropy``, the expectations of both for random rankings, W if the rankings differed
      by sampling errors only (``kendall_w_ceiling``), and the contrasts of `contrast_rows`. Averages and agreement are
      of the models and datasets of `ranked_block`.
    """
    block = ranked_block(frame)
    rows: list[dict[str, Any]] = []
    if block is None:
        rows += ({"statistic": name, "reason": "no_two_models_on_two_datasets"} for name in AGREEMENT)
    else:
        defined = inside_range(frame)
        ranked = defined.filter(pl.col("model").is_in(block.models), pl.col("dataset").is_in(block.settings))
        means = ranked.group_by("dataset", "truth", maintain_order=True).agg(pl.col("estimate").mean())
        rows += ({"statistic": AVERAGE, "models": len(block.models), **row} for row in means.iter_rows(named=True))
        table = ranked.pivot("dataset", index="model", values="estimate", maintain_order=True)
        rows += [*_agreement_rows(table), *_ceiling_rows(table, errors, analysis.seed)]
    rows += contrast_rows(frame, errors, analysis)
    further = pl.DataFrame(rows, schema=HALLUCINATION_SCHEMA)
    return pl.concat([frame, further], how="diagonal_relaxed").select(frame.columns)


def inside_range(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with an index inside its range: at the boundary it says little, and would decide an average."""
    rows = frame.drop_nulls("estimate")
    return rows.filter(pl.col("reason").is_null()) if "reason" in rows.columns else rows


def ranked_block(frame: pl.DataFrame) -> CompleteBlock | None:
    """Return the largest complete block of models and datasets with an index, None if no two models share two."""
    defined = inside_range(frame.filter(statistic=INDEX))
    return largest_complete_block(
        {str(model): part["dataset"].to_list() for (model,), part in defined.group_by("model", maintain_order=True)}
    )


def _block_notes(frame: pl.DataFrame) -> Iterator[str]:
    """Yield a note on the models and datasets that are in neither the averages nor the agreement."""
    block = ranked_block(frame)
    shown = frame.filter(statistic=INDEX)
    if block is not None:
        values = {
            "models": [name for name in shown["model"].unique(maintain_order=True) if name not in block.models],
            "datasets": [name for name in shown["dataset"].unique(maintain_order=True) if name not in block.settings],
        }
        if values["models"] or values["datasets"]:
            yield study_text("hallucination_table", "block", **values, n_models=len(block.models))


def _draw_datasets(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a column of intervals per dataset; hollow markers are the index within the sources of a mix."""
    shown = frame.filter(pl.col("statistic") == INDEX)
    models = shown["model"].unique(maintain_order=True).to_list()
    datasets = shown["dataset"].unique(maintain_order=True).to_list()
    column = max(1.15, 0.14 * len(models))
    axes = style.subplots(figure, max(3.4, min(2 * style.WIDTH, 1.1 + column * len(datasets))), 2.8)
    looks = style.model_looks(models)
    shifts = style.shifts(models, 0.3)
    for row in shown.iter_rows(named=True):
        x = datasets.index(row["dataset"]) + shifts[row["model"]]
        style.mark(axes, x, row["estimate"], *looks[row["model"]], ys=style.ends(row), size=4.5)
        style.mark(
            axes,
            x + 0.05,
            row["within_source"],
            *looks[row["model"]],
            ys=style.ends(row, "within"),
            face=style.PAPER,
            width=0.7,
        )
    published = frame.filter(statistic=PUBLISHED)
    for row in published.iter_rows(named=True):
        style.mark(axes, datasets.index(row["dataset"]) + 0.4, row["estimate"], style.LIGHT, "_", size=6)
    for row in frame.filter(pl.col("statistic") == AVERAGE).iter_rows(named=True):
        x = datasets.index(row["dataset"])
        axes.plot([x - 0.36, x + 0.34], [row["estimate"]] * 2, color=style.GREY, linewidth=0.9, zorder=1)
    axes.axhline(0, color=style.GREY, linewidth=0.6)
    lines = {"faitheval_": "FaithEval\n", "+": "\n+ ", "_": " "}
    labels = [style.safe_text(name) for name in datasets]
    for old, new in lines.items():
        labels = [label.replace(old, new) for label in labels]
    axes.set_xticks(range(len(datasets)), labels)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.6, len(datasets) - 0.4)
    axes.set_ylabel("Refusal Index")
    handles = style.model_handles(models)
    if published.height:
        handles.append(style.handle("the paper's models", style.LIGHT, "_", markersize=6))
    style.outside_legend(figure, handles)


def _printed_datasets(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table in the paper's layout: one row per model, one column per dataset, averages below.

    The paper's rows are a block of their own. The average of the contrast is in the row of the other averages only if
    it is of the same models.
    """
    shown = frame.filter(pl.col("statistic").is_in([INDEX, AVERAGE, CONTRAST, AVERAGE_CONTRAST, *OF_PAPER]))
    shown = shown.filter((pl.col("statistic") != AVERAGE_CONTRAST) | (pl.col("models") > 1))
    order = pl.col("truth").replace_strict({"available": 0, "unavailable": 1}, default=2)
    block = ranked_block(frame)
    of_contrast = set(frame.filter(statistic=CONTRAST)["model"])
    differs = pl.lit(block is not None and of_contrast != set(block.models)) & (pl.col("statistic") == AVERAGE_CONTRAST)
    suffix = pl.when(differs).then(pl.lit(" with both kinds")).otherwise(pl.lit(""))
    averaged = pl.format("Average of {} models{}", "models", suffix)
    cells = shown.with_columns(
        pl.when(pl.col("statistic").is_in(OF_PAPER))
        .then(pl.lit(PUBLISHED_HEADING))
        .otherwise(pl.lit("Runs"))
        .alias(style.BLOCK),
        pl.col("model").fill_null(averaged),
        pl.col("dataset").fill_null("available less unavailable"),
    ).sort(order, maintain_order=True)
    texts = []
    for row in cells.iter_rows(named=True):
        text = with_interval(row["estimate"], *style.ends(row), row["reason"], style.DIGITS)
        within = row["within_source"]
        has_both = within is not None and text != UNDEFINED
        texts.append(f"{text} ({number(within, style.DIGITS)})" if has_both else text)
    # Models keep their order, with the averages below them.
    averages = cells.filter(pl.col("models").is_not_null())["model"].unique(maintain_order=True)
    models = [*shown["model"].drop_nulls().unique(maintain_order=True), *averages]
    positions = pl.col("model").replace_strict({name: position for position, name in enumerate(models)})
    cells = cells.with_columns(pl.Series("cell", texts))
    table = style.widened(cells, [style.BLOCK, "model"], "dataset", "cell")
    is_published = pl.col(style.BLOCK) == PUBLISHED_HEADING
    return table.sort(is_published, positions).rename({"model": "Model"})


def truth_of(dataset: str | None) -> str | None:
    """Return whether the truth is available, in the context or from training, None if unknown for the dataset."""
    name = dataset or ""
    if any(part in name for part in ("unanswerable", "inconsistent")):
        return "unavailable"
    return (
        "available" if any(part in name for part in ("counterfactual", "precise_wiki", "simpleqa", "almanac")) else None
    )


def _within_source(run: RunResults, options: StudyOptions) -> dict[str, float | None]:
    """Return the index within the sources of a mix, averaged over variants; with an interval for a single variant."""
    results = []
    for outcomes in run.tables.values() if "+" in (run.dataset_id or "") else ():
        rows = first_draws(outcomes).drop_nulls(["refused", "wrong", "topic"])
        if rows.height:
            refused = rows["refused"].to_numpy()
            wrong = rows["wrong"].to_numpy()
            results.append(stats.within_topic_refusal_index(refused, wrong, rows["topic"].to_numpy()))
    estimates = [result.estimate for result in results if result.estimate is not None]
    if len(run.tables) == 1 and estimates:
        low, high = results[0].confidence_interval(options.analysis.confidence_level)
        return {"within_source": estimates[0], "within_low": float(low), "within_high": float(high)}
    return {"within_source": fmean(estimates) if estimates else None}


def _agreement_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the agreement of the rankings of at least two models by at least two datasets, and that of random ones."""
    scores = table.drop("model").to_numpy().T
    w = stability.kendall_w(scores)
    entropy = stability.winner_entropy(scores)
    random_w = 1 / scores.shape[0]
    random_entropy = stability.expected_winner_entropy(*scores.shape)
    ties = stability.kendall_w(scores, correct_ties=True)
    statistics = zip(AGREEMENT, (w.estimate, ties.estimate, random_w, entropy.estimate, random_entropy), strict=True)
    return [{"statistic": name, "estimate": estimate, "reason": w.reason} for name, estimate in statistics]


def _ceiling_rows(table: pl.DataFrame, errors: Errors, seed: int) -> Iterator[dict[str, Any]]:
    """Yield W if the datasets ranked the models alike except for sampling errors."""
    keys = [(model, dataset) for dataset in table.columns[1:] for model in table["model"]]
    if any(key not in errors for key in keys):
        return
    ceiling = precision.w_ceiling(table.drop("model").to_numpy().T, np.array([errors[key] for key in keys]), seed)
    yield {"statistic": CEILING, **ceiling.to_document()}
