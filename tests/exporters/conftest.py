from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from refusal_index.findings.run_results import RunResults
from refusal_index.runs.api import evaluate
from tests.runs.models import LOCAL, reply_to

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(40)]


def answer(messages: list[dict[str, str]]) -> str:
    return reply_to(messages[-1]["content"])


def evaluated_run(folder: Path, **settings: Any) -> RunResults:
    """Measure a function under two variants, with a price."""
    chosen = {**LOCAL, "variants": "low,high", "price": "1,2", **settings}
    return evaluate(answer, ROWS, model_name="team/sums", dataset_name="sums", out=folder, **chosen)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> RunResults:
    """A finished run with one response per question, so that corrected RI is undefined; no test changes it."""
    return evaluated_run(tmp_path_factory.mktemp("exported") / "run", draws=1)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory) -> RunResults:
    """A finished run with repeated draws."""
    return evaluated_run(tmp_path_factory.mktemp("exported") / "drawn", draws=2)


@pytest.fixture
def summary(run) -> dict[str, Any]:
    return json.loads(run.folder.summary.read_text())


@pytest.fixture
def incomplete(run, tmp_path) -> Path:
    """Outcomes of a run with a quarter of the questions unscored under one variant."""
    place = tmp_path / "incomplete.parquet"
    gone = (pl.col("variant") == "high") & pl.col("question_id").is_in([f"q{n}" for n in range(10)])
    kept = {name: pl.when(~gone).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "forced_grade")}
    run.outcomes.with_columns(
        *kept.values(),
        pl.when(gone).then(pl.lit("unscored")).otherwise(pl.col("first_grade")).alias("first_grade"),
        pl.when(gone).then(pl.lit("not_finished")).alias("unscored_reason"),
    ).write_parquet(place)
    return place


def leaves(document: Any) -> list[float]:
    """Return every number in a document at any depth, except those repeated in caveats."""
    if isinstance(document, dict):
        return [leaf for key, item in document.items() if key != "caveats" for leaf in leaves(item)]
    if isinstance(document, list):
        return [leaf for item in document for leaf in leaves(item)]
    is_number = isinstance(document, int | float) and not isinstance(document, bool)
    return [float(document)] if is_number else []


@pytest.fixture
def no_trackers(monkeypatch):
    """Remove the user's tracker settings and those of earlier tests."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()
