"""What tells the Refusal Index of a model beforehand: its family, its size, its accuracy, or how often it refuses.

Of many families each with few models any grouping explains much: shuffled over the models, the index shows how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import INDEX
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.models import PAPER, RUN
from refusal_index.plugins.studies.regression import model_rows, paper_model_rows
from refusal_index.plugins.studies.runs import data_values, of_one_dataset
from refusal_index.plugins.studies.sampling_error import FloatArray, RunErrors, printed_errors
from refusal_index.plugins.studies.stability import reliability
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study, study_text
from refusal_index.plugins.studies.tables import Cell, fixed, labelled, printed_table
from refusal_index.render.format import abridged, pvalue

FEWEST = 4
SHUFFLES = 9_999
SIZE = "parameters_billion"
PREDICTORS = {
    "family": "Family",
    SIZE: "Size (logarithm)",
    "correct_rate": "Correct answer rate",
    "correct_given_attempted": "C/A",
    "refusal_rate": "Refusal rate",
}
POINT_SCHEMA = {
    **dict.fromkeys(("source", "model", "family"), pl.String),
    **dict.fromkeys((*list(PREDICTORS)[1:], INDEX, "low", "high"), pl.Float64),
    "sparse": pl.Boolean,
}
SCHEMA = {
    **dict.fromkeys(("source", "predictor"), pl.String),
    **dict.fromkeys(("models", "degrees_of_freedom"), pl.Int64),
    **dict.fromkeys(("share", "shuffled", "shuffled_high", "pvalue", "share_beyond_chance", "ceiling"), pl.Float64),
    **dict.fromkeys(("reason", "ceiling_reason"), pl.String),
}


@study
def index_predictors(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Find the share of the variance of the index over models that each predictor explains.

    Raises NotPossibleError if fewer than four models have an index, and the paper's are not there to compare with.
    """
    chosen, notes = of_one_dataset(runs)
    every = [*paper_model_rows(chosen), *(row for _, row in model_rows(chosen, options))]
    points = pl.DataFrame(every, schema=POINT_SCHEMA)
    apart = points.filter("sparse")["model"].to_list()
    parts = {source: points.filter(~pl.col("sparse"), source=source) for source in (RUN, PAPER)}
    if parts[RUN].height < (1 if parts[PAPER].height else FEWEST):
        raise NotPossibleError(f"; {parts[RUN].height} of these have an index", notes)
    if apart:
        notes = (*notes, f"Left out, at the boundary or with fewer than five questions in a cell: {abridged(apart)}.")
    errors = RunErrors(chosen, options)
    rows = [row for source, own in parts.items() if own.height for row in shares(own, source, errors, options.seed)]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    notes = (*notes, *_notes(frame))
    values = {**data_values(chosen), "shuffles": f"{SHUFFLES:,}", "paper": PAPER in frame["source"]}
    return Study(frame, draw, printed, notes, values)


def shares(points: pl.DataFrame, source: str, errors: RunErrors, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the share of each predictor among the models of which it is known.

    - `points`: of one source.
    - `source`: ``run`` or ``paper``.
    - `errors`: of the runs; those of the paper come from its intervals.
    - `seed`: of the shuffling.
    """
    for predictor in PREDICTORS:
        rows = points.drop_nulls(predictor)
        share = explained(rows[INDEX].to_numpy(), design(rows[predictor], predictor == SIZE), seed)
        covariance = _covariance(rows, source, errors)
        found = reliability(rows[INDEX].to_numpy(), covariance)
        ceiling = {"ceiling": found.estimate, "ceiling_reason": found.reason}
        yield {"source": source, "predictor": predictor, "models": rows.height, **share, **ceiling}


def _covariance(rows: pl.DataFrame, source: str, errors: RunErrors) -> FloatArray:
    if source == PAPER:
        return printed_errors(rows["low"], rows["high"])
    held = errors.of(rows["model"].to_list(), INDEX)
    return np.asarray(held @ held.T)


def design(values: pl.Series, logarithmic: bool = False) -> FloatArray:
    """Return the columns to regress on, shape (models, m): one a group for words, else the values themselves."""
    if values.dtype == pl.String:
        return np.asarray(values.to_dummies().to_numpy(), float)
    return np.asarray((values.log10() if logarithmic else values).to_numpy(), float).reshape(-1, 1)


def explained(y: FloatArray, columns: FloatArray, seed: int) -> dict[str, Any]:
    """Return the share of the variance of y that columns explain, and that of y shuffled.

    - `y`: shape (k,).
    - `columns`: shape (k, m), an intercept being understood.

    >>> found = explained(np.array([1.0, 1.1, 3.0, 3.1]), np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]), 0)
    >>> round(found["share"], 3), round(found["pvalue"], 2)
    (0.998, 0.33)
    """
    centred = columns - columns.mean(axis=0) if len(columns) else columns
    freedom = int(np.linalg.matrix_rank(centred)) if len(columns) else 0
    reason = _why_not(y, freedom)
    if reason:
        return {"degrees_of_freedom": freedom, "reason": reason}
    basis = np.linalg.svd(centred, full_matrices=False)[0][:, :freedom]
    deviations = y - y.mean()
    total = float(deviations @ deviations)
    share = float(np.sum((deviations @ basis) ** 2) / total)
    shuffled = np.random.default_rng(seed).permuted(np.tile(deviations, (SHUFFLES, 1)), axis=1)
    random = np.sum((shuffled @ basis) ** 2, axis=1) / total
    expected = freedom / (len(y) - 1)
    return {
        "degrees_of_freedom": freedom,
        "share": share,
        # The mean over all permutations is known.
        "shuffled": expected,
        "shuffled_high": float(np.quantile(random, 0.95)),
        "pvalue": (1 + int(np.count_nonzero(random >= share - ROUNDING))) / (1 + SHUFFLES),
        "share_beyond_chance": (share - expected) / (1 - expected),
    }


ROUNDING = 1e-12


def _why_not(y: FloatArray, freedom: int) -> str | None:
    if len(y) < FEWEST:
        return "fewer_than_four_models"
    if np.ptp(y) == 0:
        return "no_variation"
    if freedom == 0:
        return "all_alike"
    return "each_model_by_itself" if freedom >= len(y) - 1 else None


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a source: the share of each predictor over what shuffling leaves."""
    sources = frame["source"].unique(maintain_order=True).to_list()
    figure.set_size_inches(style.WIDTH if len(sources) > 1 else 4.2, 2.4)
    panels = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for axes, source in zip(panels, sources, strict=True):
        rows = frame.filter(source=source)
        for place, row in enumerate(rows.iter_rows(named=True)):
            if row["share"] is None:
                text = row["reason"].replace("_", " ")
                axes.annotate(text, (0.02, place), va="center", fontsize=6, color=style.GREY)
                continue
            axes.plot([0, row["shuffled_high"]], [place] * 2, color=style.PALE, linewidth=5, solid_capstyle="butt")
            axes.plot(row["shuffled"], place, "|", color=style.GREY, markersize=6)
            axes.plot(row["share"], place, "o", color=style.MODEL_COLOURS[0], markersize=5)
            axes.annotate(f"{row['models']}", (1.0, place), va="center", ha="right", fontsize=6, color=style.GREY)
        axes.set(xlim=(-0.02, 1.02), xlabel="share of the variance of RI")
        axes.set_title("The runs" if source == RUN else "The paper's models")
    style.name_rows(panels[0], list(PREDICTORS.values()))


PRINTED: Mapping[str, str | Cell] = {
    "Of": labelled({RUN: "runs", PAPER: "paper"}, "source"),
    "Predictor": labelled(PREDICTORS, "predictor"),
    "Models": "models",
    "Share": fixed("share", 2),
    "Shuffled": fixed("shuffled", 2),
    "up to": fixed("shuffled_high", 2),
    "p": lambda row: pvalue(row["pvalue"]),
    "Beyond chance": fixed("share_beyond_chance", 2),
    "Ceiling": fixed("ceiling", 2),
}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a predictor."""
    return printed_table(frame, PRINTED)


def _notes(frame: pl.DataFrame) -> Iterator[str]:
    """Say of each source which predictor is beyond chance the most, and whether that is sure."""
    for _, rows in frame.drop_nulls("share").group_by("source", maintain_order=True):
        best = rows.sort("share_beyond_chance", descending=True).row(0, named=True)
        adjusted = min(1.0, best["pvalue"] * rows.height)
        label = PREDICTORS[best["predictor"]]
        yield study_text("index_predictors", "best", **best, label=label, adjusted=adjusted, predictors=rows.height)
