"""Confidence over HTTP, end to end: what the server was asked is counted there."""

from __future__ import annotations

import polars as pl
import pytest

MODEL = ("--model", "openai-api/almanac/base")
DRAWN = ("--limit", "12", "--variants", "low", "--draws", "3", "--logprobs")


@pytest.mark.nightly
def test_three_methods_of_one_run_take_one_set_of_draws(server, command, monkeypatch):
    monkeypatch.setenv("ALMANAC_BASE_URL", server.url)
    monkeypatch.setenv("ALMANAC_API_KEY", "sk-none-needed")
    assert command("run", *MODEL, *DRAWN, "--out", "r").exit_code == 0
    drawn = sum(int(entry["n"]) for entry in server.answered())
    assert drawn == 12 * 3 * 2, "each draw goes through both passes"
    before = len(server.answered())
    scored = command("confidence", "r", "--method", "p-answering,self-consistency,likelihood")
    assert scored.exit_code == 0, scored.output
    assert len(server.answered()) == before, "and all three methods rest on those"
    table = pl.read_parquet("r/confidence.parquet")
    counts = dict(table.drop_nulls("confidence").group_by("method").len().iter_rows())
    assert counts == {"p-answering": 12, "self-consistency": 12, "likelihood": 12}


@pytest.mark.slow
def test_methods_that_cost_requests_are_not_the_default_and_more_than_the_run_took_need_yes(
    server, command, monkeypatch
):
    monkeypatch.setenv("ALMANAC_BASE_URL", server.url)
    monkeypatch.setenv("ALMANAC_API_KEY", "sk-none-needed")
    assert command("run", *MODEL, "--limit", "4", "--variants", "low", "--out", "r").exit_code == 0
    before = len(server.answered())
    no_method = command("confidence", "r")
    assert no_method.exit_code == 2
    assert "likelihood (4)" in no_method.stderr
    several = ("confidence", "r", "--method", "likelihood,p-true,verbalised-number")
    too_many = command(*several)
    assert too_many.exit_code == 2
    assert f"more than the {before} of the run itself; add --yes" in " ".join(too_many.stderr.split())
    assert len(server.answered()) == before, "neither sent a request"
    assert command(*several, "--yes").exit_code == 0
    assert len(server.answered()) >= before + 12
    assert command("confidence", "r").exit_code == 0, "what is stored costs nothing"


@pytest.mark.slow
def test_log_probabilities_over_http_are_those_of_the_process(server, command, monkeypatch):
    monkeypatch.setenv("ALMANAC_BASE_URL", server.url)
    monkeypatch.setenv("ALMANAC_API_KEY", "sk-none-needed")
    found = []
    for model, out in ((MODEL, "over-http"), (("--model", "almanac/base"), "within")):
        assert command("run", *model, "--limit", "12", "--variants", "low", "--out", out).exit_code == 0
        before = len(server.answered())
        assert command("confidence", out, "--method", "likelihood").exit_code == 0
        assert len(server.answered()) - before == (12 if out == "over-http" else 0), "the run took none along"
        found.append(pl.read_parquet(f"{out}/confidence.parquet")["confidence"])
    assert (found[0] - found[1]).abs().max() < 1e-4


@pytest.mark.slow
def test_what_it_costs_is_said_before_and_after_where_a_price_says(command):
    assert command("run", "--model", "almanac/base", "--limit", "6", "--variants", "low", "--out", "r").exit_code == 0
    priced = ("confidence", "r", "--method", "likelihood", "--price", "1000,2000")
    dry = command(*priced, "--dry-run").stdout
    tokens = int(dry.split("total")[1].split()[1].replace(",", ""))
    assert f"about ${(1000 * tokens + 2000 * 50 * 6) / 1e6:,.2f}, at 50 tokens per reply" in dry
    said = command(*priced).stdout.split("Sent: 6 requests, ")[1]
    read, written = (int(said.split()[place].replace(",", "")) for place in (0, 3))
    assert read == tokens
    assert said.split()[5] == f"${(1000 * read + 2000 * written) / 1e6:,.2f}"
