"""One configuration and one command reproduce the paper's tables and figures; needs files beside this repository."""

from __future__ import annotations

import math
import subprocess
import sys

import polars as pl
import pytest

from tests.paper.stand_in import MODELS, SERVER, stand_in_server, write_set

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
PAPERS = (
    "results_table",
    "accuracy_refusal_plane",
    "iso_refusal_index",
    "score_variability",
    "auroc_correlation",
    "ranking_stability",
    "index_and_accuracy",
    "hallucination_table",
    "copula_comparison",
    "sample_size",
    "prompt_agreement",
    "calibrator_comparison",
    "cost_table",
)
"""The studies that are tables and figures of the paper."""

RHO = {
    "Gemma-3-12B": 0.42,
    "Qwen2.5-72B": 0.52,
    "Qwen3-32B": 0.36,
    "Qwen3-32B-Think": 0.36,
    "Mistral-123B": 0.41,
    "Llama-3.1-70B": 0.40,
    "GPT-4.1": 0.29,
    "Claude-Sonnet-4": 0.54,
}
"""Correlations of refusing and being wrong with which the server answers."""

QUESTIONS = 300


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not SERVER.exists(), reason="needs the stand-in server of the paper's models")
def test_end_to_end_one_configuration_and_one_command_reproduce_the_paper(tmp_path):
    with stand_in_server(tmp_path / "server") as url:
        config = write_set(tmp_path, url, QUESTIONS)
        command = [*COMMAND, "study", "--all", "--config", str(config), "--out", "out", "--format", "csv,tex,svg"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for name in PAPERS:
        assert f"{name}.svg" in page, name
    combined = pl.read_csv(tmp_path / "out" / "results_table.csv").filter(
        (pl.col("metric") == "refusal_index")
        & (pl.col("variant") == "combined")
        & (pl.col("dataset") == "simpleqa")
        & (pl.col("source") != "paper")
    )
    planted = {f"{name}, simpleqa": 6 / math.pi * math.asin(rho / 2) for name, rho in RHO.items()}
    assert set(combined["model"]) == {f"{name}, simpleqa" for name, *_ in MODELS} == set(planted)
    inside = [row["low"] <= planted[row["model"]] <= row["high"] for row in combined.iter_rows(named=True)]
    assert sum(inside) >= len(inside) - 2, combined


@pytest.mark.nightly
def test_end_to_end_calibrators_of_a_model_that_loads_here_are_compared_and_missing_ones_named(tmp_path):
    """P(IK) reads hidden states, which the stand-in server does not send; the embedded model shows its own."""
    commands = (
        "run --model almanac/base --limit 200 --variants normal --draws 11 --temperature 1 --out run",
        "confidence run --method p-answering,p-ik",
        "study calibrator_comparison run --out out --format csv,tex",
    )
    for command in commands:
        done = subprocess.run([*COMMAND, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    assert "APRICOT, which the paper compares, is missing for" in " ".join(done.stdout.split())
    assert "P(IK), which the paper" not in " ".join(done.stdout.split())
    rows = pl.read_csv(tmp_path / "out" / "calibrator_comparison.csv").filter(pl.col("part") == "roc")
    first = rows.unique("method", keep="first", maintain_order=True)
    assert set(first["method"]) == {"p-answering", "p-ik", "topic"}
    assert first["auroc_low"].null_count() == first["ece_low"].null_count() == 0
    assert (first["auroc_low"] < first["auroc"]).all()
    assert first.filter(method="p-ik")["trained"].to_list() == [True]
