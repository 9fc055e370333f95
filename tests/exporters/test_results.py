"""What exporters and trackers read of a summary, and the CSV table."""

from __future__ import annotations

import csv
import json
import posixpath
import shutil
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.folder import RUN_ID, RunFolder
from refusal_index.errors import RunFolderError
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.run_results import analysis_of, key_of
from refusal_index.plugins.trackers.tracker import export_runs, read_exported
from refusal_index.render.sentences import description
from refusal_index.render.summary import name_part, numbers
from refusal_index.stats.baseline import Payoffs
from tests.exporters.conftest import leaves


def test_exported_folder_matches_its_summary(run, summary):
    (found,) = read_exported([run.path])
    low = summary["variants"][0]["metrics"]
    assert found.metrics["variant"].unique(maintain_order=True).to_list() == ["low", "high", "pooled"]
    estimates = found.metrics.filter(variant="low").select("metric", "estimate")
    assert dict(estimates.iter_rows()) == {name: value["estimate"] for name, value in low.items()}
    assert (found.model, found.dataset) == ("python:team/sums", "sums")
    assert found.document == summary
    assert found.settings["decoding"]["temperature"] == 0.7


def test_table_gives_the_same_numbers_as_its_folder(run):
    (folder,), (table,) = read_exported([run.path]), read_exported([run.folder.outcomes])
    assert table.metrics.equals(folder.metrics)
    assert table.outcomes.equals(folder.outcomes)


def test_table_of_several_models_is_one_run_per_model(run, tmp_path):
    both = pl.concat([run.outcomes, run.outcomes.with_columns(model=pl.lit("another"))])
    both.write_parquet(tmp_path / "both.parquet")
    found = read_exported([tmp_path / "both.parquet"])
    assert [one.model for one in found] == ["python:team/sums", "another"]
    assert found[0].key != found[1].key


def test_key_is_unchanged_by_moving_or_continuing_a_run(run, tmp_path):
    moved = RunFolder(shutil.copytree(run.path, tmp_path / "moved"))
    moved.change_about({"stopped": {"asked": 8, "planned": 40, "look": 1, "looks": 5, "why": "narrow"}})
    moved.change_settings({"comparability_version": 99})
    table = shutil.copy(run.folder.outcomes, tmp_path / "table.parquet")
    assert read_exported([moved.path])[0].key == read_exported([run.path])[0].key
    assert read_exported([table])[0].key == read_exported([run.folder.outcomes])[0].key


def test_runs_with_the_same_settings_have_different_keys(tmp_path):
    keys = set()
    for name in ("one", "two"):
        RunFolder(tmp_path / name).create_or_resume({"seed": 1}, about={RUN_ID: "handed on"})
        keys.add(key_of(RunFolder(tmp_path / name)))
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("summary_version",), 99, "expected summary_version"),
        (("summary_version",), 3, "expected summary_version 4, got 3"),
        (("confidence_level",), "0.95", "confidence_level is '0.95'"),
        (("confidence_level",), 7.0, "confidence_level is 7.0"),
        (("variants",), "many", "expected the metrics of each variant"),
        (("variants", 0, "metrics"), [1, 2], "expected the metrics of each variant"),
        (("variants", 0, "variant"), 3, "of type Int64: 3"),
        (("variants", 0, "n"), "many", 'String: "many"'),
        (("variants", 0, "metrics", "correct_rate", "estimate"), "=1+1", 'of type String: "=1+1"'),
        (("variants", 0, "metrics", "correct_rate", "estimate"), True, "True is not a number"),
        (("variants", 0, "completeness", "unscored"), False, "False is not a number"),
        (("variants", 0, "metrics", "correct_rate", "status"), "fine", '["fine"]'),
        (("variants", 0, "metrics", "correct_rate", "method"), ["m"], 'List(String): ["m"]'),
        (("pooled",), {"a": 1}, "expected the metrics of each variant"),
    ],
)
def test_tampered_summary_is_named_with_the_command_that_rebuilds_it(run, tmp_path, place, value, message):
    folder = shutil.copytree(run.path, tmp_path / "run")
    document = json.loads((folder / "summary.json").read_text())
    *way, last = place
    within = document
    for part in way:
        within = within[part]
    within[last] = value
    (folder / "summary.json").write_text(json.dumps(document))
    with pytest.raises(RunFolderError) as raised:
        read_exported([folder])
    assert message in str(raised.value)
    assert f"'refusal-index score {folder}' rebuilds it" in str(raised.value)


def test_unidentified_value_is_read_with_its_interval(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    document = json.loads((folder / "summary.json").read_text())
    document["variants"][0]["metrics"]["corrected_refusal_index"] |= {"status": "not_identified", "low": -1, "high": 1}
    (folder / "summary.json").write_text(json.dumps(document))
    (found,) = read_exported([folder])
    corrected = found.metrics.row(
        by_predicate=(pl.col("variant") == "low") & (pl.col("metric") == "corrected_refusal_index"), named=True
    )
    assert [corrected[name] for name in ("status", "estimate", "low", "high")] == ["not_identified", None, -1, 1]


def test_folder_without_results_says_how_to_get_them(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    (folder / "summary.json").unlink()
    with pytest.raises(RunFolderError, match="has no results yet; finish the run"):
        read_exported([folder])


def test_api_keys_are_redacted_from_exported_settings(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    folder = shutil.copytree(run.path, tmp_path / "run")
    text = (
        (folder / "run.json")
        .read_text()
        .replace("part of the package", "x")
        .replace('"user"', '"swordfish-77-of-mine"')
    )
    (folder / "run.json").write_text(text)
    (found,) = read_exported([folder])
    assert found.settings["placement"] == "[key]"


@pytest.mark.parametrize("name", ["run", "drawn"])
def test_every_summary_number_has_a_unique_name(name, request):
    document = json.loads(request.getfixturevalue(name).folder.summary.read_text())
    found = numbers(document)
    assert sorted(found.values()) == sorted(leaves(document))
    assert len(found) > 100


def test_metrics_are_named_by_variant_metric_and_bound(drawn):
    document = json.loads(drawn.folder.summary.read_text())
    found = numbers(document)
    for variant in document["variants"]:
        for metric, value in variant["metrics"].items():
            for end, name in (("estimate", ""), ("low", "/low"), ("high", "/high")):
                assert found.get(f"{variant['variant']}/{metric}{name}") == value[end]
    assert found["pooled/refusal_index"] == document["pooled"][0]["refusal_index"]["estimate"]


def test_undefined_metrics_have_no_number(run, summary):
    assert summary["variants"][0]["metrics"]["corrected_refusal_index"]["estimate"] is None
    assert not [name for name in numbers(summary) if name.startswith("low/corrected_refusal_index")]


def test_variants_with_the_same_normalised_name_stay_distinct():
    variants = [{"variant": name, "n": place} for place, name in enumerate(["a/b", "a\nb", "a_b", None])]
    assert numbers({"variants": variants}) == {"a_b/n": 0, "a_b/n_2": 1, "a_b/n_3": 2, "all/n": 3}


def test_values_that_are_not_finite_floats_are_left_out():
    assert numbers({"a": 10**400, "b": True, "c": None, "d": "5", "e": float("nan"), "f": 2}) == {"f": 2.0}


@given(st.text())
def test_any_text_becomes_a_plain_path_component_property(text):
    part = name_part(text)
    assert posixpath.normpath(f"{part}/y") == f"{part}/y"
    assert not part.startswith(".")
    assert part.isascii()
    assert part.isprintable()
    assert 0 < len(part) <= 60


# --- Payoffs in a summary


def test_weights_set_the_score_range_and_appear_in_the_description():
    analysis = analysis_of({"weighted_score_p": 3, "truthfulness_weights": [1.0, 0.25, 2]})
    assert analysis is not None
    assert analysis.payoffs == Payoffs(3, (1, 0.25, 2))
    assert METRICS["truthfulness_score"].range(analysis) == (-2, 1)
    assert METRICS["weighted_score"].range(analysis) == (-3, 0)
    assert "0.25 for a refusal" in description("truthfulness_score", analysis)
    assert "minus 3 times" in description("weighted_score", analysis)


@pytest.mark.parametrize(
    "weights", [None, "1,0,1", [1, 0], [1, 0, None], [1, 0, float("inf")], [1, 0, 10**400], [True] * 3]
)
def test_invalid_weights_leave_the_range_open(weights: Any):
    assert analysis_of({"weighted_score_p": 1, "truthfulness_weights": weights}) is None


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_metric_is_a_row_with_its_unrounded_interval(run, summary, tmp_path):
    (message,) = export_runs([run.path], "csv", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert message == f"{tmp_path / 'out.csv'}: {len(rows)} rows"
    found = {(row["variant"], row["metric"]): row for row in rows}
    for variant in summary["variants"]:
        for name, value in variant["metrics"].items():
            row = found[variant["variant"], name]
            for end in ("estimate", "low", "high"):
                assert (float(row[end]) if row[end] else None) == value[end]
            assert (row["status"], row["reason"] or None) == (value["status"], value["reason"])
            assert int(row["n"]) == variant["n"]


def test_undefined_metrics_are_empty_cells_with_a_reason(run, tmp_path):
    export_runs([run.path], "csv", tmp_path / "out.csv")
    wanted = ("low", "corrected_refusal_index")
    (row,) = (one for one in rows_of(tmp_path / "out.csv") if (one["variant"], one["metric"]) == wanted)
    assert (row["estimate"], row["low"], row["high"]) == ("", "", "")
    assert (row["status"], row["reason"]) == ("undefined", "no_repeated_questions")


def test_incomplete_variants_have_status_incomplete_and_a_missing_count(incomplete, tmp_path):
    message = export_runs([incomplete], "csv", tmp_path / "out.csv")
    rows = rows_of(tmp_path / "out.csv")
    assert message[1:] == [f"{incomplete}: incomplete: high, 10 of 40 questions not scored"]
    assert {(row["variant"], row["n"], row["missing"]) for row in rows} == {
        ("low", "40", "0"), ("high", "30", "10"), ("pooled", "", "10"),
    }  # fmt: skip
    status = {(row["variant"], row["metric"]): row["status"] for row in rows}
    assert status["high", "correct_rate"] == status["pooled", "refusal_index"] == "incomplete"
    assert (status["low", "correct_rate"], status["high", "corrected_refusal_index"]) == ("ok", "undefined")


def test_cells_are_never_formulas(run, tmp_path):
    risky = run.outcomes.with_columns(model=pl.lit('=HYPERLINK("http://127.0.0.1")'), dataset=pl.lit("@SUM(1)"))
    risky.with_columns(variant=pl.concat_str(pl.lit("+"), pl.col("variant"))).write_parquet(tmp_path / "risky.parquet")
    export_runs([tmp_path / "risky.parquet"], "csv", tmp_path / "out.csv")
    cells = {cell for row in rows_of(tmp_path / "out.csv") for cell in (row["model"], row["dataset"], row["variant"])}
    assert cells == {'\'=HYPERLINK("http://127.0.0.1")', "'@SUM(1)", "'+low", "'+high", "pooled"}


def test_api_keys_are_redacted_from_cells(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    run.outcomes.with_columns(model=pl.lit("m swordfish-77-of-mine")).write_parquet(tmp_path / "told.parquet")
    export_runs([tmp_path / "told.parquet"], "csv", tmp_path / "out.csv")
    assert "swordfish-77-of-mine" not in (tmp_path / "out.csv").read_text()
    assert {row["model"] for row in rows_of(tmp_path / "out.csv")} == {"m [key]"}


def test_api_keys_are_redacted_from_the_summary_of_a_folder(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    folder = shutil.copytree(run.path, tmp_path / "copy")
    text = (folder / "summary.json").read_text()
    model = json.loads(text)["variants"][0]["model"]
    (folder / "summary.json").write_text(text.replace(json.dumps(model), '"m swordfish-77-of-mine"'))
    (exported,) = read_exported([folder])
    assert "swordfish" not in str(exported.document)
    assert "swordfish" not in f"{exported.model} {exported.metrics.write_csv()}"
