"""How the scores of confidence relate to right answers, and to the Refusal Index: reliability diagrams and ROC curves.

As in the paper's comparison with external calibration methods, all methods of a run are shown on the same questions.
A run without scores of its own but with repeated draws has P(Answering): the share of the further draws in which the
model answered. The first draw is left out of it, since its forced answer is what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.outcomes.counts import contingency_table
from refusal_index.outcomes.draws import CORRECTED, INDEX, corrected_indices, is_defined
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.presentation.blocks import worded
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.outcomes.settings import is_deterministic
from refusal_index.stats import Estimate, auroc, expected_calibration_error, refusal_index, reliability_table
from refusal_index.stats.calibration.auroc import roc_counts
from refusal_index.stats.calibration.calibration_interval import calibration_error_interval
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import wilson_interval
from refusal_index.studies.calibrator_drawing import INDICES, draw
from refusal_index.studies.cells import listed, number, with_interval
from refusal_index.studies.scored_questions import (
    TOPIC,
    ScoredMethod,
    ScoredRun,
    drawn_run,
    label,
    scored_run,
)
from refusal_index.studies.scores import ALL, display_names, level_text, model_name
from refusal_index.studies.study import NotPossibleError, Study, StudyOptions

NAME = "calibrator_comparison"
TITLE = "Comparison of calibrators"
NEEDS = (
    "a run with scores of confidence ('refusal-index confidence' makes them), or with repeated draws whose every "
    "answer was forced too, with right and wrong answers"
)
N_BINS = 10
FEW_VALUES = 10
SCHEMA = {
    **dict.fromkeys(("model", "dataset", "part", "method", "variant"), pl.String),
    "trained": pl.Boolean,
    **dict.fromkeys(("questions", "left_out"), pl.Int64),
    **dict.fromkeys(("accuracy", "x", "y", "low", "high"), pl.Float64),
    "count": pl.Int64,
    **dict.fromkeys(("bin_low", "bin_high", "threshold", "ece", "ece_low", "ece_high"), pl.Float64),
    **dict.fromkeys(("auroc", "auroc_low", "auroc_high"), pl.Float64),
    **dict.fromkeys(("status", "reason"), pl.String),
}
"""`part` is ``reliability``, ``roc`` or ``index``: of the last `method` is the index, and `y` its estimate."""


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has scores with right and wrong answers."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    coarse: list[str] = []
    for scored in _scored(runs, notes):
        found = [row for one in scored.methods for row in _method_rows(scored, one, options, notes)]
        if found:
            rows += [*found, *_index_rows(scored, options)]
            coarse += _coarse(scored)
    if not rows:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    if coarse:
        notes.append(f"Few values, which bins and curves show as they are: {listed(coarse)}.")
    frame = pl.DataFrame(rows, schema=SCHEMA)
    return Study(NAME, TITLE, _caption(frame, options), frame, draw, tuple(notes), printed)


def _scored(runs: Sequence[ComparedRun], notes: list[str]) -> Iterator[ScoredRun]:
    """Yield every run with scores and, of each other model and dataset, the run with the most draws."""
    names = display_names(runs)
    has_scores = {(model_name(run), run.dataset) for run in runs if run.confidence is not None}
    drawn: dict[tuple[str, str | None], ScoredRun] = {}
    for run, name in zip(runs, names, strict=True):
        key = model_name(run), run.dataset
        if run.confidence is not None:
            scored, said = scored_run(run, name)
            notes += said
            if scored is not None:
                yield scored
        elif key not in has_scores:
            found = drawn_run(run, name)
            if found is not None and (key not in drawn or _draws(found) > _draws(drawn[key])):
                drawn[key] = found
    yield from drawn.values()


def _draws(scored: ScoredRun) -> int:
    return int(scored.run.variants[scored.methods[0].variant]["draw"].n_unique())


def _method_rows(
    scored: ScoredRun, one: ScoredMethod, options: StudyOptions, notes: list[str]
) -> Iterator[dict[str, Any]]:
    area = auroc(one.score, one.right)
    if area.estimate is None:
        notes.append(f"{scored.name}: {label(one.method)} is left out: the AUROC is undefined ({worded(area.reason)}).")
        return
    where = {**_where(scored), "method": one.method, "variant": one.variant, "trained": one.is_trained}
    for row in curve_rows(one.score, one.right, options):
        yield {**where, "left_out": scored.left_out, **row}


def _where(scored: ScoredRun) -> dict[str, Any]:
    return {"model": scored.name, "dataset": scored.run.dataset}


def curve_rows(score: NDArray[np.float64], right: NDArray[np.bool_], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the points of the reliability diagram and of the ROC curve, each with the summary of its curve.

    `x` and `y` are mean score and share of right answers in a bin, or false and true positive rate where questions
    that score at least `threshold` are called right; `low` and `high` are the Wilson interval of `y`.

    - `score`, `right`: of the same questions, with right and wrong answers among them.
    """
    summary = _summary(score, right, options)
    for bin_ in reliability_table(score, right, n_bins=N_BINS, confidence_level=options.confidence_level):
        if bin_.count:
            point = {"x": bin_.mean_score, "y": bin_.outcome_rate}
            ends = {"low": bin_.outcome_rate_low, "high": bin_.outcome_rate_high}
            place = {"count": bin_.count, "bin_low": bin_.low, "bin_high": bin_.high}
            yield {"part": "reliability", **point, **ends, **place, **summary}
    quantile = normal_quantile(options.confidence_level)
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    counts = zip(*(one.tolist() for one in roc_counts(score, right)), strict=True)
    for threshold, hits, count in ((None, 0, 0), *counts):
        low, high = wilson_interval(hits, n_right, quantile)
        point = {"x": (count - hits) / n_wrong, "y": hits / n_right, "low": low, "high": high}
        yield {"part": "roc", **point, "count": count, "threshold": threshold, **summary}


def _summary(score: NDArray[np.float64], right: NDArray[np.bool_], options: StudyOptions) -> dict[str, Any]:
    area, level = auroc(score, right), options.confidence_level
    low, high = area.confidence_interval(level).or_none()
    error = calibration_error_interval(score, right, n_bins=N_BINS, confidence_level=level, rng=options.seed).or_none()
    return {
        "questions": right.size,
        "accuracy": float(right.mean()),
        "ece": expected_calibration_error(score, right, n_bins=N_BINS).estimate,
        **dict(zip(("ece_low", "ece_high"), error, strict=True)),
        "auroc": area.estimate,
        "auroc_low": low,
        "auroc_high": high,
        "status": area.status,
        "reason": area.reason,
    }


def _index_rows(scored: ScoredRun, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield RI of each variant on the same questions, and corrected RI where there is one."""
    at_zero = is_deterministic(scored.run.settings)
    for variant, every in scored.run.variants.items():
        outcomes = every.filter(pl.col("question_id").is_in(scored.question_ids))
        table = contingency_table(first_draws(outcomes))
        (corrected,) = corrected_indices([outcomes], [at_zero])
        found, level = refusal_index(table), options.confidence_level
        indices = {INDEX: Estimate.of(found, found.confidence_interval(level))}
        if is_defined(corrected):
            indices[CORRECTED] = Estimate.of(corrected, corrected.confidence_interval(level))
        for method, index in indices.items():
            yield {
                **_where(scored),
                "part": "index",
                "method": method,
                "variant": variant or ALL,
                "questions": table.n,
                "left_out": scored.left_out,
                "y": index.estimate,
                "low": index.low,
                "high": index.high,
                "status": index.status,
                "reason": index.reason,
            }


def _coarse(scored: ScoredRun) -> Iterator[str]:
    values = [(one, np.unique(one.score).size) for one in scored.methods if one.method != TOPIC]
    few = [f"{label(one.method)} {count}" for one, count in values if count < FEW_VALUES]
    if few:
        yield f"{scored.name} ({', '.join(few)})"


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print calibration error and AUROC, one row a method, and below them the index, one row a variant."""
    rows = []
    for (model, _), part in frame.group_by("model", "dataset", maintain_order=True):
        curves = part.filter(pl.col("part") != "index").group_by("method", maintain_order=True).first()
        rows += [_printed_method(str(model), row) for row in curves.iter_rows(named=True)]
        for (variant,), index in part.filter(part="index").group_by("variant", maintain_order=True):
            rows.append(_printed_index(str(model), str(variant), index))
    return pl.DataFrame(rows)


def _printed_method(model: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": model,
        "score": label(row["method"]) + (f", {row['variant']}" if row["variant"] else ""),
        "of": "trained" if row["trained"] else "the model",
        "questions": row["questions"],
        "ECE": with_interval(row["ece"], row["ece_low"], row["ece_high"]),
        "AUROC": with_interval(row["auroc"], row["auroc_low"], row["auroc_high"]),
        **dict.fromkeys(INDICES.values(), number(None)),
    }


def _printed_index(model: str, variant: str, index: pl.DataFrame) -> dict[str, Any]:
    found = {row["method"]: row for row in index.iter_rows(named=True)}
    return {
        "model": model,
        "score": f"refusals, {variant}",
        "of": "the model",
        "questions": index["questions"][0],
        **dict.fromkeys(("ECE", "AUROC"), number(None)),
        **{
            title: with_interval(*(found[name][column] for column in ("y", "low", "high", "reason")))
            if name in found
            else number(None)
            for name, title in INDICES.items()
        },
    }


def _caption(frame: pl.DataFrame, options: StudyOptions) -> str:
    level, curves = level_text(options), frame.filter(pl.col("part") != "index")
    keys = curves.group_by("model", "dataset", maintain_order=True).agg(pl.col("questions").first())
    each = listed([f"{model}, {questions:,} questions" for model, _, questions in keys.iter_rows()])
    whose = curves.drop_nulls("variant").unique(["model", "method"], maintain_order=True)
    prompts = listed([f"{label(row['method'])} {row['variant']}" for row in whose.iter_rows(named=True)])
    return (
        f"Scores of how likely an answer is right, against right answers under forced answering ({each}; of each run "
        f"the same questions for all methods). Reliability: share right in {N_BINS} bins of equal width with {level} "
        "Wilson intervals, areas by the number of questions; on the diagonal as many are right as the score says. ROC: "
        "calling right what scores at least a threshold. ECE, the expected calibration error, which sampling keeps "
        f"above 0, and AUROC have {level} intervals, that of ECE by inverting a test. Solid and filled: the model's "
        "own scores; dashed and open: those of a predictor trained on its graded answers, each given by one that did "
        "not see its fold; dotted: what the topic alone tells, by the mean of the other folds. Beside them the Refusal "
        "Index of each prompt on the same questions, and the corrected one where there is one: both are of the "
        "refusals, and need no score."
        + (f" Scores that differ between prompts are those of one: {prompts}." if prompts else "")
    )
