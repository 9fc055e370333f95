"""The main job as a newcomer meets it: the embedded model, its questions, all four variants."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.rates import contingency_table
from refusal_index.protocol import read_reply
from refusal_index.stats import refusal_index

VARIANTS = ["low", "normal", "high", "highest"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("main") / "run"
    result = CliRunner().invoke(app, ["run", "--limit", "800", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.slow
def test_every_variant_scores_every_question_and_fills_every_cell(run):
    table = pl.read_parquet(run / "outcomes.parquet")
    for variant in VARIANTS:
        counts = contingency_table(table.filter(pl.col("variant") == variant, draw=0))
        assert counts.n >= 799
        assert min(counts.counts) > 0, (variant, counts)


@pytest.mark.slow
def test_refusal_rates_rise_from_low_to_highest(run):
    table = pl.read_parquet(run / "outcomes.parquet")
    rates = [table.filter(pl.col("variant") == variant)["refused"].mean() for variant in VARIANTS]
    assert rates == sorted(rates)
    assert rates[-1] - rates[0] > 0.3


@pytest.mark.slow
def test_the_forced_pass_forces_and_replies_are_well_formed(run):
    summary = json.loads((run / "summary.json").read_text())
    assert all(variant["forced_refusals"]["share"] < 0.05 for variant in summary["variants"])
    table = pl.read_parquet(run / "outcomes.parquet")
    replies = [*table["first_reply"], *table["forced_reply"].drop_nulls()]
    assert sum(read_reply(reply).well_formed for reply in replies) > 0.99 * len(replies)


@pytest.mark.slow
def test_the_summary_is_what_the_statistics_say_of_the_outcomes(run):
    table = pl.read_parquet(run / "outcomes.parquet").filter(draw=0).drop_nulls(["refused", "wrong"])
    for variant in json.loads((run / "summary.json").read_text())["variants"]:
        rows = table.filter(pl.col("variant") == variant["variant"])
        result = refusal_index(refused=rows["refused"].to_numpy(), wrong=rows["wrong"].to_numpy())
        low, high = result.confidence_interval()
        shown = variant["metrics"]["refusal_index"]
        assert (shown["estimate"], shown["low"], shown["high"]) == (result.estimate, low, high)
        assert shown["status"] == "ok"


@pytest.mark.slow
def test_base_knows_what_it_does_not_know_better_than_chance(run):
    summary = json.loads((run / "summary.json").read_text())
    assert all(variant["metrics"]["refusal_index"]["low"] > 0 for variant in summary["variants"])
    assert all(variant["draws"] is None for variant in summary["variants"]), "every question is asked once"
