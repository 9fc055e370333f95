"""`--cluster` and `--weight`: of score, compare and report, over files and folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from refusal_index.data.outcome_table import read_outcomes, write_outcomes
from refusal_index.findings.summary import summarise
from refusal_index.stats import SampledTable, metrics

CELLS = np.random.default_rng(3).integers(0, 4, (2, 30))[:, :, np.newaxis].repeat(8, axis=2).reshape(2, -1)
CELLS = np.where(np.random.default_rng(4).random(CELLS.shape) < 0.6, CELLS, 3 - CELLS)
FAMILY = np.arange(240) // 8
SHARE = 1 + np.arange(240) % 2


def write(name: str, run: int, *, unlike: str = "") -> str:
    lines = ["question_id,refused,wrong,family,share"]
    lines += [
        f"q{i},{int(cell < 2)},{int(cell % 2 == 0)},{unlike}{family},{share}"
        for i, (cell, family, share) in enumerate(zip(CELLS[run], FAMILY, SHARE, strict=True))
    ]
    Path(name).write_text("\n".join(lines) + "\n")
    return name


def test_score_allows_for_the_columns_and_says_so(command):
    name = write("o.csv", 0)
    result = command("score", name, "--cluster", "family", "--weight", "share")
    assert result.exit_code == 0
    sampled = "240 questions in 30 clusters (column 'family') with weights (column 'share')"
    assert sampled in " ".join(result.stdout.split())
    (variant,) = json.loads(command("score", name, "--cluster", "family", "--json").stdout)["variants"]
    expected = metrics(SampledTable.from_arrays(CELLS[0] < 2, CELLS[0] % 2 == 0, cluster=FAMILY))[-1]
    index = variant["metrics"]["refusal_index"]
    assert (index["estimate"], index["low"], index["high"]) == (expected.estimate, expected.low, expected.high)
    assert variant["sampling"]["clusters"] == 30


def test_compare_and_report_take_them(command):
    runs = [write("a.csv", 0), write("b.csv", 1)]
    result = command("compare", *runs, "--cluster", "family", "--full")
    assert (result.exit_code, "30 clusters (column 'family')" in result.stdout) == (0, True)
    document = json.loads(command("compare", *runs, "--cluster", "family", "--json").stdout)
    assert document["variants"][0]["sampling"] == {
        "cluster": "family", "weight": None, "clusters": 30, "effective_by_weight": None
    }  # fmt: skip
    assert command("report", runs[0], "--cluster", "family").exit_code == 0
    assert "240 questions in 30 clusters" in Path("report.html").read_text()


def test_what_is_wrong_with_a_column_is_bad_input(command):
    name = write("o.csv", 0)
    result = command("score", name, "--cluster", "kind")
    assert (result.exit_code, "expected a column 'kind' for --cluster" in result.stderr) == (2, True)
    result = command("compare", name, write("b.csv", 1, unlike="x"), "--cluster", "family", "--full")
    assert (result.exit_code, "question_id 'q0' has the cluster" in result.stderr) == (2, True)


def test_a_folder_keeps_what_it_holds(command):
    assert command("run", "--limit", "40", "--variants", "normal", "--out", "made").exit_code == 0
    before = Path("made/summary.json").read_bytes()
    result = command("score", "made", "--cluster", "topic", "--json")
    assert Path("made/summary.json").read_bytes() == before
    (variant,) = json.loads(result.stdout)["variants"]
    assert variant["sampling"]["clusters"] == read_outcomes("made/outcomes.parquet")["topic"].n_unique()
    assert "few_clusters" in [warning["code"] for warning in variant["warnings"]]


def test_a_table_with_its_own_columns_is_taken_at_its_word(command):
    write_outcomes(read_outcomes(write("o.csv", 0)).with_columns(cluster=_text(FAMILY)), "own.parquet")
    shown = json.loads(command("score", "own.parquet", "--json").stdout)["variants"][0]["metrics"]["refusal_index"]
    (variant,) = summarise(read_outcomes("own.parquet")).variants
    assert (shown["low"], shown["high"]) == (variant.metric("refusal_index").low, variant.metric("refusal_index").high)
    assert variant.sampling.cluster == "cluster"


def _text(values: np.ndarray):
    import polars as pl

    return pl.Series(values).cast(pl.String)
