"""Points of the AUROC correlation: a model on a dataset under a prompt, and what each question adds to its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from refusal_index.outcomes.draws import p_answering, usable_questions
from refusal_index.outcomes.matching import OutcomeMatrix, draw_matrix, outcome_matrix
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import AurocResult, Estimate, auroc, metric_influence
from refusal_index.stats.calibration.auroc import auroc_influence
from refusal_index.studies.cells import listed
from refusal_index.studies.resampling import FloatArray
from refusal_index.studies.sampling_error import is_sparse
from refusal_index.studies.scores import ALL, COMPARED, VariantScores, model_name, variant_scores
from refusal_index.studies.study import StudyOptions

Key = tuple[str, str | None, str | None]
AREA = "auroc"
Errors = Mapping[tuple[str | None, str], float]
"""By dataset and question, what it adds to the error of an estimate."""


@dataclass(frozen=True, eq=False)
class Point:
    """One model on one dataset under one prompt variant."""

    model: str
    dataset: str | None
    variant: str
    metrics: Mapping[str, Estimate]
    sparse: bool  # whether a cell holds fewer than five questions
    auroc: AurocResult
    draws: int
    questions: int  # of the area
    drawn_in: str  # the run that the draws come from
    errors: Mapping[str, Errors]  # of each metric, and of ``auroc``


def points_of(
    runs: Sequence[ComparedRun], every: Sequence[ComparedRun], options: StudyOptions
) -> tuple[list[Point], list[str]]:
    """Find the points of some runs.

    - `runs`: of which the metrics are taken.
    - `every`: of which the run with the most draws is taken for P(Answering).
    - returned `notes`: what was left out, and whose draws come from another run; a sentence each.
    """
    draws, points = _most_draws(every), []
    single, undefined, elsewhere = [], [], []
    for run in runs:
        matrix = outcome_matrix(list(run.variants.values()))
        for row, (variant, scores) in enumerate(zip(run.variants, variant_scores(run, options), strict=True)):
            where = f"{model_name(run)}, {run.dataset or ALL}, {variant or ALL}"
            key = model_name(run), run.dataset, variant
            if key not in draws:
                single.append(where)
                continue
            source, drawn = draws[key]
            point = _point(run, scores, matrix.of_rows([row]), source, drawn, options)
            if point.auroc.estimate is None:
                undefined.append(f"{where} ({point.auroc.reason})")
                continue
            elsewhere += [where] if source is not run else []
            points.append(point)
    return points, [*_notes(single, undefined, elsewhere, len(points))]


def _notes(single: Sequence[str], undefined: Sequence[str], elsewhere: Sequence[str], n: int) -> Iterator[str]:
    if single:
        yield f"{len(single):,} left out, since no question was drawn twice: {listed(single)}."
    if undefined:
        yield f"{len(undefined):,} left out, since the AUROC is undefined: {listed(undefined)}."
    if elsewhere:
        yield (
            f"P(Answering) of {len(elsewhere):,} of {n:,} points comes from another run of the same model, dataset and "
            f"variant (column drawn_in): {listed(elsewhere)}."
        )


def _most_draws(runs: Sequence[ComparedRun]) -> dict[Key, tuple[ComparedRun, OutcomeMatrix]]:
    """Find for every model, dataset and variant the run with the most draws, where there are two or more."""
    found: dict[Key, tuple[ComparedRun, OutcomeMatrix]] = {}
    for run in runs:
        for variant, outcomes in run.variants.items():
            key, matrix = (model_name(run), run.dataset, variant), draw_matrix(outcomes)
            if len(matrix.refused) > 1 and (key not in found or len(matrix.refused) > len(found[key][1].refused)):
                found[key] = run, matrix
    return found


def _point(
    run: ComparedRun,
    scores: VariantScores,
    row: OutcomeMatrix,
    source: ComparedRun,
    drawn: OutcomeMatrix,
    options: StudyOptions,
) -> Point:
    score, right = p_answering(drawn)
    ids = [one for one, usable in zip(drawn.question_ids, usable_questions(drawn), strict=True) if usable]
    errors = {AREA: _by_question(run.dataset, ids, auroc_influence(score, right))}
    for name in COMPARED:
        own = metric_influence(*row.arrays, metric=name, penalty=options.penalty)[0] / max(1, int(row.scored.sum()))
        errors[name] = _by_question(run.dataset, row.question_ids, own)
    return Point(
        model_name(run),
        run.dataset,
        scores.variant,
        scores.metrics,
        is_sparse([scores.table]),
        auroc(score, right),
        len(drawn.refused),
        len(drawn.question_ids),
        source.label,
        errors,
    )


def _by_question(dataset: str | None, ids: Sequence[str], influence: FloatArray) -> Errors:
    return {(dataset, one): float(value) for one, value in zip(ids, influence, strict=True)}


def errors_of(points: Sequence[Point], names: Sequence[str]) -> tuple[FloatArray, ...]:
    """Lay the errors of some estimates side by side over all questions, each of shape (points, n)."""
    every = {
        key: place for place, key in enumerate(dict.fromkeys(k for p in points for n in names for k in p.errors[n]))
    }
    laid = tuple(np.zeros((len(points), len(every))) for _ in names)
    for name, matrix in zip(names, laid, strict=True):
        for row, point in enumerate(points):
            held = point.errors[name]
            matrix[row, [every[key] for key in held]] = list(held.values())
    return laid
