"""Effects of prompts: how much each metric varies as prompts change a model's caution, and which answers change.

`score_variability` also compares the relative variation of RI over prompts with that of the other metrics. A
coefficient of variation includes sampling errors, and resampling adds them again: in simulations with a true value of
.08 and an observed one of .13, percentile intervals cover in .00 to .79 of cases. On the scale of squares errors are
additive, and the basic interval, which reflects the resamples at the estimate, removes them: it covers in .88 to .98
(1, 3 and 8 models, 600 replicates), and in more if there is no true variation.

`prompt_agreement` shows whether two prompts, including the forced one, get the same questions right.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome import Grade
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, precision, style
from refusal_index.plugins.studies.stability import coefficient_of_variation, normalized_difference
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import number, signed, with_interval
from refusal_index.stats import weighted_score
from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.intervals import normal_quantile, wilson_interval

HEURISTIC = ("correct_given_attempted", "f_score", "weighted_score")
"""The metrics that the paper calls heuristic."""

ALL_HEURISTIC = "heuristic"
"""Value of the column `metric` for the three together."""

RATIO = "ratio"
"""Value of the column `model` in rows with ratios."""


def ratio_rows(
    values: Mapping[str, FloatArray], draws: Sequence[Mapping[str, FloatArray]], analysis: Analysis
) -> Iterator[dict[str, Any]]:
    """Yield the ratio of RI's coefficient of variation to that of each heuristic metric, over models.

    - `values`: values by metric, shape (models, variants).
    - `draws`: metrics of each model on resampled questions, which are the same for all models.
    - returned: `ratio` of the coefficients averaged over the models, as in the paper, and an interval for the ratio of
      root mean square coefficients, corrected for sampling errors. It begins at 0 if sampling errors may explain all
      variation; both ends are None if they exceed it.
    """
    observed = {name: _cv(values[name]) for name in (INDEX, *HEURISTIC)}
    resampled = {
        name: np.stack([_cv(precision.metric_draws(sample, name, inputs.PAPER_P)) for sample in draws])
        for name in observed
    }
    observed[ALL_HEURISTIC] = np.stack([observed[name] for name in HEURISTIC])
    resampled[ALL_HEURISTIC] = np.stack([resampled[name] for name in HEURISTIC])
    for name in (*HEURISTIC, ALL_HEURISTIC):
        if observed[name].mean() > 0:
            square = float(np.mean(observed[INDEX] ** 2) / np.mean(observed[name] ** 2))
            squares = _mean_square(resampled[name])
            # undefined where the metric does not vary in a resample
            undefined = np.full(squares.shape, np.nan)
            ratios = np.divide(_mean_square(resampled[INDEX]), squares, out=undefined, where=squares > 0)
            low, high = _basic(square, ratios, analysis)
            yield {
                "model": RATIO,
                "metric": name,
                "p": inputs.PAPER_P if name == WEIGHTED else None,
                "ratio": float(observed[INDEX].mean() / observed[name].mean()),
                "ratio_low": low,
                "ratio_high": high,
            }


def _basic(square: float, draws: FloatArray, analysis: Analysis) -> tuple[float | None, float | None]:
    """Return the square roots of the ends of the basic interval of a square."""
    lowest, highest = precision.percentile_interval(draws, analysis)
    if lowest is None or highest is None:
        return None, None
    low = 2 * square - highest
    high = 2 * square - lowest
    return (None, None) if high < 0 else (math.sqrt(max(low, 0.0)), math.sqrt(high))


def _mean_square(draws: FloatArray) -> FloatArray:
    """Return the mean square over all axes except the last one, the resamples."""
    return np.asarray(np.mean(draws.reshape(-1, draws.shape[-1]) ** 2, axis=0))


def _cv(values: FloatArray) -> FloatArray:
    """Return the population coefficient of variation along the last axis."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(values.std(axis=-1) / abs(values.mean(axis=-1)))


WEIGHTED = "weighted_score"
VARIABILITY_SCHEMA = schema(
    "model models metric p variants mean mean_low mean_high delta_signed delta_absolute delta_low delta_high "
    "range_absolute cv cv_low cv_high cv_sample cv_chance ratio ratio_low ratio_high reason"
)
"""`models`: the number of models of an average, null in rows of a model."""
NEAR_ZERO = pl.col("mean_low").le(0) & pl.col("mean_high").ge(0)
"""Selects rows whose mean does not differ significantly from 0, so that ratios to it are meaningless."""
HAS_FEWER = pl.col("variants") < pl.col("variants").max().over("model")
"""Selects rows of a metric that is undefined under some of the model's prompts."""
IS_AVERAGED = ~(NEAR_ZERO.fill_null(value=False) | HAS_FEWER.fill_null(value=False) | pl.col("reason").is_not_null())
"""Selects the rows of models that enter averages."""
MIN_AVERAGED = 2
"""Minimum number of models of an average."""
MARK = " *"
"""Follows a value that is in no average."""
_SPREADS = ("delta_signed", "delta_absolute", "range_absolute", "cv", "cv_sample", "cv_chance")


@study
def score_variability(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: the variability of every metric over the variants of each run, and its average over the runs.

    Raises NotPossibleError if no run has two variants.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    repeated = [run for run in chosen if len(run.tables) > 1]
    if not repeated:
        raise NotPossibleError("; each of these has one prompt")
    single = [run.label for run in chosen if len(run.tables) == 1]
    notes += inputs.left_out("Left out, since under one prompt only", single)
    rows = [row for run in repeated for row in _variability_rows(run, options)]
    frame = with_averages(pl.DataFrame(rows, schema=VARIABILITY_SCHEMA))
    for code, chosen_rows in (("near_zero", NEAR_ZERO), ("fewer", HAS_FEWER)):
        for metric, p, models in (
            frame.filter(chosen_rows).group_by("metric", "p", maintain_order=True).agg("model").rows()
        ):
            named = _line_label(metric, p).replace("\n", " ")
            notes = (*notes, study_text("score_variability", code, metric=named, models=models))
    undefined = frame.drop_nulls("reason").group_by("metric", "reason", maintain_order=True).agg("model")
    for metric, reason, models in undefined.rows():
        why = f"The variability of {METRICS[metric].label} is undefined ({reason.replace('_', ' ')})"
        notes = (*notes, *inputs.left_out(why, list(dict.fromkeys(models))))
    ratios, compared = _ratios(repeated, frame, options)
    texts = []
    for row in ratios.iter_rows(named=True):
        label = "the three together" if row["metric"] == ALL_HEURISTIC else METRICS[row["metric"]].label
        ends = "no more than chance"
        if row["ratio_low"] is not None:
            ends = f"{number(row['ratio_low'], 2)}, {number(row['ratio_high'], 2)}"
        texts.append(f"{label} {number(row['ratio'], 2)} [{ends}]")
    if texts:
        others = [run.label for run in repeated if run.label not in compared]
        notes = (
            *notes,
            study_text("score_variability", "ratio", ratios="; ".join(texts), models=len(compared), others=others),
        )
    frame = pl.concat([frame, ratios], how="diagonal").select(frame.columns)
    marked = frame.filter(_IS_OF_MODEL, ~IS_AVERAGED).height > 0
    return Study(
        frame,
        _draw_variability,
        _printed_variability,
        notes,
        values={**inputs.data_values(repeated), "resamples": f"{precision.RESAMPLES:,}", "marked": marked},
    )


def with_averages(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the mean of every measure of variability over models, in rows with the number of these in `models`.

    An average is over the models of `IS_AVERAGED`. These can differ between metrics. So that metrics can be compared,
    the averages of one name are of the same models: for the models of each metric, and for those of all metrics, there
    is an average of every metric that all of them have.
    """
    averaged = frame.filter(IS_AVERAGED)
    models_of = {
        metric: frozenset(part["model"]) for metric, part in averaged.group_by("metric", "p", maintain_order=True)
    }
    common = frozenset.intersection(*models_of.values()) if models_of else frozenset[str]()
    sets = dict.fromkeys([*models_of.values(), common])
    kept = sorted((models for models in sets if len(models) >= MIN_AVERAGED), key=len, reverse=True)
    names = _average_names(kept, frame["model"].unique(maintain_order=True).to_list())
    parts = [frame]
    for models, name in zip(kept, names, strict=True):
        own = averaged.filter(pl.col("model").is_in(models))
        means = own.group_by("metric", "p", maintain_order=True).agg(pl.col(_SPREADS).mean(), models=pl.len())
        whole = means.filter(pl.col("models") == len(models))
        parts.append(whole.with_columns(pl.col("models").cast(pl.Int64), model=pl.lit(name)))
    return pl.concat(parts, how="diagonal").select(list(VARIABILITY_SCHEMA))


def _average_names(sets: Sequence[frozenset[str]], models: Sequence[str]) -> Iterator[str]:
    """Yield a distinct name for the average over each set of models."""
    names: Counter[str] = Counter()
    for included in sets:
        others = [model for model in models if model not in included]
        left_out = others[0] if len(others) == 1 else f"{len(others)} models"
        name = f"Average of {len(included)}" + (f", without {left_out}" if others else "")
        names[name] += 1
        yield name if names[name] == 1 else f"{name} ({names[name]})"


_IS_OF_MODEL = pl.col("models").is_null() & (pl.col("model") != RATIO)
"""Selects the rows of models."""


def _ratios(
    runs: Sequence[RunResults], frame: pl.DataFrame, options: StudyOptions
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the ratios of RI's variability to that of the heuristic metrics, over models with clear means of all.

    - returned `models`: the labels of these.
    """
    names = (INDEX, *HEURISTIC)
    relevant = frame.filter(pl.col("p").is_null() | (pl.col("p") == inputs.PAPER_P))
    near_zero = set(relevant.filter(NEAR_ZERO & pl.col("metric").is_in(names))["model"])
    by_model = {run.label: inputs.variant_scores(run, options) for run in runs}
    sound = [
        run.label
        for run in runs
        if run.label not in near_zero
        and all(scores.metrics[name].estimate is not None for name in names for scores in by_model[run.label])
    ]
    columns = ("model", "metric", "p", "ratio", "ratio_low", "ratio_high")
    if not sound or len({len(by_model[model]) for model in sound}) > 1:
        return pl.DataFrame(schema={name: VARIABILITY_SCHEMA[name] for name in columns}), ()
    values = {}
    for name in names:
        p = inputs.PAPER_P if name == WEIGHTED else None
        values[name] = np.array([[_value(scores, name, p) for scores in by_model[model]] for model in sound], float)
    draws = precision.resampled_together([run for run in runs if run.label in sound], options)
    rows = ratio_rows(values, draws, options.analysis)
    return pl.DataFrame(list(rows), schema={name: VARIABILITY_SCHEMA[name] for name in columns}), tuple(sound)


def _draw_variability(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the normalised difference on the left and the coefficient of variation on the right, a line per metric."""
    frame = frame.filter(pl.col("model") != RATIO)
    lines = frame.select("metric", "p").unique(maintain_order=True).rows()
    # Of the averages of a metric, the one over the most models is drawn.
    averages = frame.filter(~_IS_OF_MODEL).unique(["metric", "p"], keep="first", maintain_order=True)
    frame = pl.concat([frame.filter(_IS_OF_MODEL), averages]).with_columns(is_averaged=IS_AVERAGED)
    models = frame.filter(_IS_OF_MODEL)["model"].unique(maintain_order=True).to_list()
    height = 0.9 + len(lines) * max(0.3, 0.09 * len(models))
    left, right = style.subplots(figure, style.WIDTH, height, 1, 2, sharey=True)
    looks = style.model_looks(models)
    shifts = style.shifts(models, 0.27)
    sound = frame.filter(~NEAR_ZERO.fill_null(value=False))
    for axes, name, short in ((left, "delta_signed", "delta"), (right, "cv", "cv")):
        # The axis covers all values except ratios to a mean near 0.
        values = sound.select(name, f"{short}_low", f"{short}_high").to_numpy().ravel()
        shown = values[np.isfinite(values)].tolist() or [1.0]
        low = min(0.0, *shown)
        high = max(0.0, *shown)
        low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
        axes.set_xlim(low, high)
        for row in frame.drop_nulls(name).iter_rows(named=True):
            x = row[name]
            row_y = lines.index((row["metric"], row["p"]))
            if row["models"] is not None:
                axes.plot([x] * 2, [row_y - 0.36, row_y + 0.36], color=style.INK, linewidth=1.2, zorder=3)
                continue
            colour, marker = looks[row["model"]]
            y = row_y + shifts[row["model"]]
            xs = style.ends(row, short)
            inside = low <= x <= high
            face = None if row["is_averaged"] else style.PAPER
            style.mark(axes, x if inside else None, y, colour, marker, xs=xs, size=3.5, face=face)
            if not inside:  # an arrow at the end of the axis
                end, arrow = (low, "<") if x < low else (high, ">")
                style.mark(axes, end, y, colour, arrow, size=4.5, face=face, clip_on=False)
        axes.axvline(0, color=style.GREY, linewidth=0.7)
    style.name_rows((left, right), [_line_label(*line) for line in lines])
    left.set_xlabel("Difference over mean")
    right.set_xlabel("Coefficient of variation")
    style.outside_legend(figure, style.model_handles(models))


def _printed_variability(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table in the paper's layout: differences above coefficients of variation, one column per metric."""
    frame = frame.filter(pl.col("model") != RATIO).with_columns(is_marked=_IS_OF_MODEL & ~IS_AVERAGED)
    labels = [_line_label(*line).replace("\n", " ") for line in frame.select("metric", "p").rows()]
    parts = []
    for heading, cell in _PARTS.items():
        cells = [cell(row) + MARK * row["is_marked"] for row in frame.iter_rows(named=True)]
        named = frame.with_columns(
            pl.Series("cell", cells), pl.Series("heading", labels), pl.lit(heading).alias(style.BLOCK)
        )
        parts.append(style.widened(named, [style.BLOCK, "model"], "heading", "cell").rename({"model": "Model"}))
    return pl.concat(parts)


def _with_chance(row: Mapping[str, Any]) -> str:
    """Return a coefficient of variation, and in brackets what chance alone would give."""
    chance = "" if row["cv_chance"] is None else f" ({number(row['cv_chance'], 2)})"
    return number(row["cv"], 2) + chance


_PARTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "Normalized difference": lambda row: signed(row["delta_signed"], 2),
    "Coefficient of variation (that of chance alone)": _with_chance,
}


def _variability_rows(run: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    scores = inputs.variant_scores(run, options)
    resampled = precision.resampled_metrics(run, options)
    for metric in inputs.COMPARED:
        # p of the weighted score: that of the paper's table, and that in its text
        for p in (
            dict.fromkeys((options.analysis.payoffs.weighted_score_p, 1.0, 0.2)) if metric == WEIGHTED else (None,)
        ):
            values = [_value(score, metric, p) for score in scores]
            draws = precision.metric_draws(resampled, metric, p)
            yield {"model": run.label, "metric": metric, "p": p, **_spread(values, scores, draws, options)}


def _value(scores: inputs.VariantScores, metric: str, p: float | None) -> float | None:
    if p is None:
        return scores.metrics[metric].estimate
    correct, refused = (scores.metrics[name].estimate for name in ("correct_rate", "refusal_rate"))
    return None if correct is None or refused is None else float(weighted_score(correct, refused, p))


def _spread(
    values: Sequence[float | None], scores: Sequence[inputs.VariantScores], draws: FloatArray, options: StudyOptions
) -> dict[str, Any]:
    """Return the columns from `variants` on, computed over the variants in which the metric is defined."""
    defined = [index for index, value in enumerate(values) if value is not None]
    if not defined:
        return {"variants": 0, "reason": "undefined_under_every_variant"}
    metric = np.array([values[index] for index in defined], float)
    defined_draws = draws[:, defined]
    refused = np.array([scores[index].metrics["refusal_rate"].estimate for index in defined], float)
    delta = normalized_difference(metric, refused)
    cv = coefficient_of_variation(metric)
    sample = coefficient_of_variation(metric, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = defined_draws.mean(axis=1)
        at_highest = defined_draws[:, refused == refused.max()]
        at_lowest = defined_draws[:, refused == refused.min()]
        deltas = (at_highest.mean(axis=1) - at_lowest.mean(axis=1)) / means
        cvs = defined_draws.std(axis=1) / abs(means)
    # Without an estimate there is no interval. Resamples use the observed order of the refusal rates.
    resampled = {"mean": means, "delta": deltas, "cv": cvs}
    undefined = {"delta": delta.estimate is None, "cv": cv.estimate is None}
    intervals = {
        name: (None, None) if undefined.get(name) else precision.percentile_interval(resamples, options.analysis)
        for name, resamples in resampled.items()
    }
    chance = None
    if len(metric) > 1 and metric.mean() != 0 and np.isfinite(defined_draws).all():
        # The value from sampling errors alone, if the metric were constant.
        errors = defined_draws - defined_draws.mean(axis=0)
        chance = float(np.sqrt(np.mean(errors.var(axis=1))) / abs(metric.mean()))
    return {
        "variants": len(defined),
        "mean": float(metric.mean()),
        "delta_signed": None if delta.estimate is None else delta.estimate * float(np.sign(metric.mean())),
        "delta_absolute": delta.estimate,
        "range_absolute": None if cv.estimate is None else float(np.ptp(metric) / abs(metric.mean())),
        "cv": cv.estimate,
        "cv_sample": sample.estimate,
        "cv_chance": chance,
        **{f"{name}_low": low for name, (low, _) in intervals.items()},
        **{f"{name}_high": high for name, (_, high) in intervals.items()},
        "reason": delta.reason or cv.reason,
    }


def _line_label(metric: str, p: float | None) -> str:
    return METRICS[metric].label + (f"\n(p = {p:g})" if p is not None else "")


FORCED = "forced"
COLUMNS = 2
MANY_COLUMNS = 4
MANY = 6
"""Number of models from which the matrices are small, without intervals."""


@study
def prompt_agreement(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: the agreement of each pair of prompts of each run.

    Raises NotPossibleError if no two prompts of a run have answered a question in common.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    rows = [row for run in chosen for row in _agreement_rows(run, options)]
    frame = with_ceiling(
        pl.DataFrame(
            rows,
            schema=schema("model prompt other_prompt both_answered same agreement low high kappa kappa_ceiling reason"),
        )
    )
    if not frame.filter(pl.col("prompt") != pl.col("other_prompt"))["both_answered"].sum():
        raise NotPossibleError("; no two prompts of these answered a question in common")
    return Study(frame, _draw_agreement, _printed_agreement, notes, inputs.data_values(chosen))


def with_ceiling(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the maximum kappa between two prompts: the geometric mean of the kappas between two draws of each prompt.

    It is reached if every question is right equally often under both prompts. None if a prompt was drawn once, or if
    its own draws agree no better than by chance.
    """
    same_prompt = frame.filter(pl.col("prompt") == pl.col("other_prompt"), pl.col("kappa") > 0)
    joined = frame
    for side in ("prompt", "other_prompt"):
        kappas = same_prompt.select("model", pl.col("prompt").alias(side), pl.col("kappa").alias(f"{side}_kappa"))
        joined = joined.join(kappas, on=["model", side], how="left", maintain_order="left")
    ceiling = (pl.col("prompt_kappa") * pl.col("other_prompt_kappa")).sqrt()
    return joined.with_columns(kappa_ceiling=ceiling).select(frame.columns)


def _draw_agreement(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one matrix per model, two in a row; those of many models are small, four in a row."""
    models = frame["model"].unique(maintain_order=True).to_list()
    prompts = frame["prompt"].unique(maintain_order=True).to_list()
    is_small = len(models) >= MANY
    columns = MANY_COLUMNS if is_small else COLUMNS
    width = style.COLUMN_WIDTH if len(models) == 1 else style.WIDTH * (1.4 if is_small else 1)
    height = 0.45 + (0.32 if is_small else 0.42) * len(prompts)
    figure.set_size_inches(width, 0.2 + math.ceil(len(models) / columns) * height)
    names = style.short_names(models, 26 if is_small else 28)
    size = 6.5 if is_small else 7.5
    panels = style.panel_grid(figure, [names[model] for model in models], columns, size=size)
    for axes, model in zip(panels, models, strict=True):
        _draw_matrix(axes, frame.filter(pl.col("model") == model), prompts, is_small=is_small)


def _printed_agreement(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the matrices as a table, with the counts."""
    cells = [
        f"{with_interval(row[0], row[1], row[2], row[3], 2)}, n {row[4]:,}" if row[4] else "-"
        for row in frame.select("agreement", "low", "high", "reason", "both_answered").rows()
    ]
    wide = style.widened(frame.with_columns(pl.Series("cell", cells)), ["model", "other_prompt"], "prompt", "cell")
    return wide.rename({"model": "Model", "other_prompt": "Prompt"})


def _agreement_rows(run: RunResults, options: StudyOptions) -> Iterator[dict[str, Any]]:
    # The answers of each prompt and whether they are right; `place` 0 is a question's first draw.
    outcomes = {
        variant or inputs.ALL: rows.with_columns((pl.col("draw").rank("dense").over("question_id") - 1).alias("place"))
        for variant, rows in run.tables.items()
    }
    answers = {
        prompt: rows.filter(~pl.col("refused") & pl.col("wrong").is_not_null()).with_columns(right=~pl.col("wrong"))
        for prompt, rows in outcomes.items()
    }
    # The variants share forced answers; replies that refused again are none.
    forced = pl.concat(outcomes.values()).filter(
        pl.col("forced_grade").is_in([Grade.CORRECT.value, Grade.INCORRECT.value])
    )
    once = forced.unique(["question_id", "place"], keep="first", maintain_order=True)
    answers[FORCED] = once.with_columns(right=pl.col("forced_grade") == Grade.CORRECT.value)
    for prompt, other in itertools.combinations_with_replacement(answers, 2):
        # The first and the second draw of the same prompt.
        first, second = (
            answers[name].filter(place=draw).select("question_id", "right")
            for name, draw in ((prompt, 0), (other, int(other == prompt)))
        )
        pairs = first.join(second, on="question_id", suffix="_other", maintain_order="left")
        agreement = _agreement(pairs, options, same_prompt=prompt == other)
        yield {"model": run.label, "prompt": prompt, "other_prompt": other, **agreement}


def _agreement(pairs: pl.DataFrame, options: StudyOptions, *, same_prompt: bool) -> dict[str, Any]:
    """Return the columns from `both_answered` on."""
    n = pairs.height
    same = int((pairs["right"] == pairs["right_other"]).sum())
    if not n:
        reason = "no_second_draw" if same_prompt else "no_question_answered_by_both"
        return {"both_answered": 0, "same": 0, "reason": reason}
    low, high = wilson_interval(same, n, normal_quantile(options.analysis.confidence_level))
    right = float(pairs["right"].to_numpy().mean())
    right_other = float(pairs["right_other"].to_numpy().mean())
    chance = right * right_other + (1 - right) * (1 - right_other)
    kappa = (same / n - chance) / (1 - chance) if chance < 1 else None
    return {"both_answered": n, "same": same, "agreement": same / n, "low": low, "high": high, "kappa": kappa}


_SHADES = LinearSegmentedColormap.from_list("agreement", ["#ffffff", "#deebf7", "#74b3d8"])
_SCALE = Normalize(0.5, 1.0, clip=True)


def _draw_matrix(axes: Axes, frame: pl.DataFrame, prompts: Sequence[str], *, is_small: bool) -> None:
    for row in frame.iter_rows(named=True):
        x = prompts.index(row["prompt"])
        y = prompts.index(row["other_prompt"])
        shade = style.PAPER
        lines = [(0.0, "none", 5.5)]
        if row["agreement"] is not None:
            shade = _SHADES(_SCALE(row["agreement"]))
            interval = f"{row['low']:.2f}\u2013{row['high']:.2f}"
            value = f"{row['agreement']:.2f}"
            counted = f"n {row['both_answered']:,}"
            lines = [(-0.15, value, 6.5), (0.25, counted, 4.8)]
            if not is_small:
                lines = [(-0.2, value, 7.5), (0.1, interval, 4.8), (0.32, counted, 4.8)]
        cell = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=shade, edgecolor=style.PALE, linewidth=0.5)
        axes.add_patch(cell)
        for below, text, size in lines:
            axes.text(x, y + below, text, ha="center", va="center", fontsize=size, color=style.INK)
    names = [style.safe_text(name, 14) for name in prompts]
    font: dict[str, Any] = {"fontsize": 5.5} if is_small else {}
    axes.set_xticks(range(len(prompts)), names, **font)
    axes.set_yticks(range(len(prompts)), names, **font)
    axes.set(xlim=(-0.5, len(prompts) - 0.5), ylim=(len(prompts) - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
