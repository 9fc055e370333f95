"""Synthetic runs for the tests of studies, and their cells counted without the package."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.findings.run_results import RunResults

THRESHOLDS = {"low": 0.9, "normal": 0.3, "high": -0.2, "highest": -0.8}
HOSTILE = "$\\input{x}$<script>alert(1)</script>|_&%#\u202eevil\x1b[31m=cmd"


def made_run(
    model: str | None = "m",
    *,
    dataset: str | None = "d",
    rho: float = 0.5,
    right: float = 0.4,
    n: int = 300,
    seed: int = 0,
    variants: Sequence[str] = tuple(THRESHOLDS),
    draws: int = 1,
    unscored: int = 0,
    topic: str | None = None,
) -> RunResults:
    """Return a run whose refusals follow difficulty with `rho`; forced answers only where it refused or is repeated."""
    rng = np.random.default_rng(seed)
    difficulty = rng.standard_normal(n)
    reluctance = rho * difficulty + math.sqrt(1 - rho * rho) * rng.standard_normal(n)
    hard = difficulty > np.quantile(difficulty, right)
    tables = {}
    for variant in variants:
        rows = []
        for draw in range(draws):
            noise = rng.standard_normal((2, n)) * (0.3 if draws > 1 else 0.0)
            for i in range(n):
                refused = bool(reluctance[i] + noise[0, i] > THRESHOLDS.get(variant, 0.0))
                wrong = bool(hard[i]) != bool(noise[1, i] > 0.6)
                outcome = _outcome(refused, wrong, unscored=i < unscored, forced=refused or draws > 1)
                question = Question(f"q{i}", f"question {i}", "!", topic=topic or f"part{i % 2}")
                rows.append((Identification(model, dataset, variant, draw), question, outcome))
        tables[variant] = outcome_table(rows)
    return RunResults.of_tables(model or "file", Path(f"{model}.csv"), model, dataset, tables)


def _outcome(refused: bool, wrong: bool, *, unscored: bool, forced: bool) -> Outcome:
    if unscored:
        return Outcome(None, None, Grade.UNSCORED, None, "first_empty")
    grade = Grade.INCORRECT if wrong else Grade.CORRECT
    return Outcome(refused, wrong, Grade.REFUSED if refused else grade, grade if forced else None)


def cells(outcomes: pl.DataFrame) -> tuple[int, int, int, int]:
    """Count refused and wrong, refused and right, answered and wrong, answered and right in the first draws."""
    found = Counter(
        (row["refused"], row["wrong"])
        for row in outcomes.iter_rows(named=True)
        if row["draw"] == 0 and row["refused"] is not None and row["wrong"] is not None
    )
    return found[True, True], found[True, False], found[False, True], found[False, False]


def rates(outcomes: pl.DataFrame) -> dict[str, float]:
    """Compute every metric except RI by hand, the weighted score with p = 1."""
    n11, n10, n01, n00 = cells(outcomes)
    n = n11 + n10 + n01 + n00
    c, r = n00 / n, (n11 + n10) / n
    return {
        "correct_rate": c,
        "refusal_rate": r,
        "correct_given_attempted": n00 / (n01 + n00),
        "f_score": 2 * c / (2 - r),
        "weighted_score": c - (1 - r),
        "error_rate": (n11 + n01) / n,
    }
