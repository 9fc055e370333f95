from __future__ import annotations

import csv

import polars as pl

from refusal_index.plugins.trackers.tracker import export_runs


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_metric_is_a_row_with_its_unrounded_interval(run, summary, tmp_path):
    (said,) = export_runs([run.path], "csv", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert said == f"{tmp_path / 'out.csv'}: {len(rows)} rows"
    found = {(row["variant"], row["metric"]): row for row in rows}
    for variant in summary["variants"]:
        for name, value in variant["metrics"].items():
            row = found[variant["variant"], name]
            for end in ("estimate", "low", "high"):
                assert (float(row[end]) if row[end] else None) == value[end]
            assert (row["status"], row["reason"] or None) == (value["status"], value["reason"])
            assert int(row["n"]) == variant["n"]


def test_what_is_undefined_is_an_empty_cell_with_its_reason(run, tmp_path):
    export_runs([run.path], "csv", tmp_path / "out.csv")
    wanted = ("low", "corrected_refusal_index")
    (row,) = (one for one in rows_of(tmp_path / "out.csv") if (one["variant"], one["metric"]) == wanted)
    assert (row["estimate"], row["low"], row["high"]) == ("", "", "")
    assert (row["status"], row["reason"]) == ("undefined", "no_repeated_questions")


def test_numbers_of_an_incomplete_variant_have_that_status_and_how_much_is_missing(incomplete, tmp_path):
    said = export_runs([incomplete], "csv", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert said[1:] == [f"{incomplete}: incomplete: high, 10 of 40 questions not scored"]
    assert {(row["variant"], row["n"], row["missing"]) for row in rows} == {
        ("low", "40", "0"), ("high", "30", "10"), ("pooled", "", "10"),
    }  # fmt: skip
    status = {(row["variant"], row["metric"]): row["status"] for row in rows}
    assert status["high", "correct_rate"] == status["pooled", "refusal_index"] == "incomplete"
    assert (status["low", "correct_rate"], status["high", "corrected_refusal_index"]) == ("ok", "undefined")


def test_no_cell_is_a_formula(run, tmp_path):
    risky = run.outcomes.with_columns(model=pl.lit('=HYPERLINK("http://127.0.0.1")'), dataset=pl.lit("@SUM(1)"))
    risky.with_columns(variant=pl.concat_str(pl.lit("+"), pl.col("variant"))).write_parquet(tmp_path / "risky.parquet")
    export_runs([tmp_path / "risky.parquet"], "csv", tmp_path / "out.csv")
    cells = {cell for row in rows_of(tmp_path / "out.csv") for cell in (row["model"], row["dataset"], row["variant"])}
    assert cells == {'\'=HYPERLINK("http://127.0.0.1")', "'@SUM(1)", "'+low", "'+high", "pooled"}


def test_no_key_comes_into_a_cell(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77")
    run.outcomes.with_columns(model=pl.lit("m swordfish-77")).write_parquet(tmp_path / "told.parquet")
    export_runs([tmp_path / "told.parquet"], "csv", tmp_path / "out.csv")
    assert "swordfish-77" not in (tmp_path / "out.csv").read_text()
    assert {row["model"] for row in rows_of(tmp_path / "out.csv")} == {"m [key]"}
