"""Outcome tables for the tests, and reports of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.outcome_table import SCHEMA, SCHEMA_VERSION
from refusal_index.findings.run_results import RunResults
from refusal_index.render.report import WrittenReport, write_report
from refusal_index.render.run_view import RunView

VARIANTS = ("low", "normal", "high", "highest")

HOSTILE = (
    "</script><script>document.documentElement.dataset.owned='yes'</script>",
    "<img src=x onerror=\"document.documentElement.dataset.owned='yes'\">",
    "\x1b]0;owned\x07\x1b[31mred\x1b[0m",
    '=HYPERLINK("http://127.0.0.1:9/","click")',
    "safe\u202egnp.exe\u2066\u2069",
    "line\u2028and\u2029paragraph\x00end",
    "{{ 7 * 7 }}{% raw %}<!--",
    "\u0645\u0631\u062d\u0628\u0627 right to left",
    "'; DROP TABLE outcomes; --\\",
)
"""Texts that could be taken for markup, control codes, formulas or templates."""


def rows(
    n: int,
    *,
    model: str = "m",
    dataset: str = "d",
    variants: Sequence[str] = VARIANTS,
    draws: int = 1,
    rho: float = 0.5,
    length: int = 40,
    seed: int = 0,
) -> pl.DataFrame:
    """Make an outcome table of a model whose refusals correlate with its errors, with replies of a given length."""
    rng = np.random.default_rng(seed)
    tables = []
    for place, variant in enumerate(variants):
        for draw in range(draws):
            latent = np.random.default_rng((seed, draw)).multivariate_normal(
                (0, 0), ((1, rho), (rho, 1)), n, method="cholesky"
            )
            refused, wrong = latent[:, 0] > 1 - 0.6 * place, latent[:, 1] > 0.1
            tables.append(_table(refused, wrong, (model, dataset, variant), draw, length, rng))
    return pl.concat(tables)


def _table(
    refused: np.ndarray, wrong: np.ndarray, who: tuple[str, str, str], draw: int, length: int, rng: np.random.Generator
) -> pl.DataFrame:
    n, grade = len(refused), np.where(wrong, "incorrect", "correct")
    letters = rng.integers(97, 123, (2, n, length), dtype=np.uint8)
    first, forced = ([bytes(row).decode() for row in reply] for reply in letters)
    columns = {
        "model": [who[0]] * n,
        "dataset": [who[1]] * n,
        "variant": [who[2]] * n,
        "question_id": [f"q{number}" for number in range(n)],
        "draw": [draw] * n,
        "refused": refused,
        "wrong": wrong,
        "first_grade": np.where(refused, "refused", grade),
        "forced_grade": grade,
        "unscored_reason": [None] * n,
        "topic": [f"topic {number % 7}" for number in range(n)],
        "question": [f"What is the name of thing number {number}?" for number in range(n)],
        "gold": [f"thing {number}" for number in range(n)],
        "answerable": [True] * n,
        "reading": np.where(refused, "tag", "answer"),
        "first_reply": first,
        "forced_reply": forced,
        "cluster": [None] * n,
        "weight": [None] * n,
        "schema_version": [SCHEMA_VERSION] * n,
    }
    return pl.DataFrame(columns, schema=dict(SCHEMA))


def report_run(table: pl.DataFrame, *, label: str = "m", source: Path = Path("runs/m")) -> RunView:
    """Take a table of one model and dataset as a run, without a folder."""
    variants = {name: part for (name,), part in table.group_by("variant", maintain_order=True)}
    run = RunResults.of_tables(label, source, table["model"][0], table["dataset"][0], variants)
    return RunView(run, table)


def write_page(views: Sequence[RunView], path: Path, **options: Any) -> WrittenReport:
    """Write the report of runs that were made for a page."""
    return write_report([view.run for view in views], path, **options)


def counts_table(refused_wrong: int, refused_right: int, answered_wrong: int, answered_right: int) -> pl.DataFrame:
    """Make a table of one variant with these counts and little more than the two required columns."""
    n = refused_wrong + refused_right + answered_wrong + answered_right
    refused = [True] * (refused_wrong + refused_right) + [False] * (answered_wrong + answered_right)
    wrong = [True] * refused_wrong + [False] * refused_right + [True] * answered_wrong + [False] * answered_right
    bare = pl.DataFrame({"refused": refused, "wrong": wrong, "question_id": [str(i) for i in range(n)]})
    others = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in bare.columns]
    return bare.with_columns(others).with_columns(draw=pl.lit(0, pl.Int64)).select(list(SCHEMA))
