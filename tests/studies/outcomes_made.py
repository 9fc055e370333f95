"""Synthetic outcome tables and runs for the tests of studies, and checks for every study."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from refusal_index.data.outcome_table import SCHEMA
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies.study import Study, StudyOptions
from refusal_index.plugins.studies.style import house_style

OPTIONS = StudyOptions()
THRESHOLDS: Mapping[str, float] = {"low": 0.9, "normal": 0.2, "high": -0.5}

HOSTILE = "$\\frac{</svg><script>\x1b[31m=1+1\u202e"


def table_rows(refused, wrong, *, model="m", dataset="d", variant="normal", draw=0, forced=True) -> pl.DataFrame:
    """Rows of an outcome table; `wrong` is that of the forced answer, which counts for answered questions too."""
    refused, wrong = np.asarray(refused, bool), np.asarray(wrong, bool)
    answer = np.where(wrong, "incorrect", "correct")
    columns = {
        "model": model,
        "dataset": dataset,
        "variant": variant,
        "question_id": [f"q{i}" for i in range(refused.size)],
        "draw": draw,
        "refused": refused,
        "wrong": wrong,
        "first_grade": np.where(refused, "refused", answer),
        "forced_grade": answer if forced else np.where(refused, answer, None),
    }
    rows = {name: columns.get(name) for name in SCHEMA}
    return pl.DataFrame({name: values for name, values in rows.items() if values is not None}).select(
        (pl.col(name) if name in columns and columns[name] is not None else pl.lit(None)).cast(kind).alias(name)
        for name, kind in SCHEMA.items()
    )


def run_of(variants: Mapping[str | None, pl.DataFrame], *, model="m", dataset="d", label=None) -> RunResults:
    return RunResults.of_tables(label or str(model), Path(label or str(model)), model, dataset, variants)


def make_run(
    model="m",
    *,
    rho=0.5,
    n=400,
    draws=1,
    noise=0.5,
    error=0.2,
    seed=0,
    variants=tuple(THRESHOLDS),
    dataset="d",
    label=None,
) -> RunResults:
    """A model whose refusals follow its errors with a latent correlation, over questions that all models share."""
    rng = np.random.default_rng(seed)
    y = np.random.default_rng(99).standard_normal(n)
    x = rho * y + math.sqrt(1 - rho**2) * rng.standard_normal(n)
    frames: dict[str | None, list[pl.DataFrame]] = {variant: [] for variant in variants}
    for draw in range(draws):
        wrong = y + noise * rng.standard_normal(n) > -error
        for variant in variants:
            refused = x + noise * rng.standard_normal(n) > THRESHOLDS[variant]
            rows = table_rows(refused, wrong, model=model, dataset=dataset, variant=variant, draw=draw)
            frames[variant].append(rows)
    return run_of({v: pl.concat(f) for v, f in frames.items()}, model=model, dataset=dataset, label=label)


def counts_of(run: RunResults, variant: str | None) -> tuple[int, int, int, int]:
    """Count the first draws by hand, in the order of the cells."""
    cells = [0, 0, 0, 0]
    for refused, wrong, draw in run.tables[variant].select("refused", "wrong", "draw").iter_rows():
        if draw == 0 and refused is not None and wrong is not None:
            cells[2 * (not refused) + (not wrong)] += 1
    return tuple(cells)


def check_files(study: Study) -> None:
    """Draw the study and print its table, as when its files are written."""
    assert study.caption.endswith(".")
    assert all(note.endswith(".") for note in study.notes)
    figure = study.figure()
    with house_style():
        figure.savefig(buffer := io.BytesIO(), format="svg")  # as PNG and PDF it is drawn in test_writing
    assert buffer.tell() > 3000
    assert b"<script" not in buffer.getvalue()
    assert study.printed is not None
    assert study.printed(study.frame).height > 0
