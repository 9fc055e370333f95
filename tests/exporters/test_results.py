from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

from refusal_index.data.folder import RUN_ID, RunFolder
from refusal_index.errors import RunFolderError
from refusal_index.plugins.trackers.results import key_of, read_exported


def test_a_folder_says_what_its_summary_says(run, summary):
    (found,) = read_exported([run.path])
    low = summary["variants"][0]["metrics"]
    assert found.metrics["variant"].unique(maintain_order=True).to_list() == ["low", "high", "pooled"]
    estimates = found.metrics.filter(variant="low").select("metric", "estimate")
    assert dict(estimates.iter_rows()) == {name: value["estimate"] for name, value in low.items()}
    assert (found.model, found.dataset) == ("python:team/sums", "sums")
    assert found.document == summary
    assert found.settings["decoding"]["temperature"] == 0.7


def test_a_table_comes_to_the_same_numbers_as_its_folder(run):
    (folder,), (table,) = read_exported([run.path]), read_exported([run.folder.outcomes])
    assert table.metrics.equals(folder.metrics)
    assert table.outcomes.equals(folder.outcomes)


def test_a_set_stands_for_its_runs_and_a_table_for_its_models(run, tmp_path):
    both = pl.concat([run.outcomes, run.outcomes.with_columns(model=pl.lit("another"))])
    both.write_parquet(tmp_path / "both.parquet")
    found = read_exported([tmp_path / "both.parquet"])
    assert [one.model for one in found] == ["python:team/sums", "another"]
    assert found[0].key != found[1].key


def test_a_key_stays_the_same_wherever_a_folder_is_moved_and_however_far_it_has_come(run, tmp_path):
    moved = RunFolder(shutil.copytree(run.path, tmp_path / "moved"))
    moved.change_about({"stopped": {"asked": 8, "of": 40, "look": 1, "looks": 5, "why": "narrow"}})
    moved.change_settings({"comparability_version": 99})
    table = shutil.copy(run.folder.outcomes, tmp_path / "table.parquet")
    assert read_exported([moved.path])[0].key == read_exported([run.path])[0].key
    assert read_exported([table])[0].key == read_exported([run.folder.outcomes])[0].key


def test_a_key_tells_two_runs_of_the_same_settings_apart(tmp_path):
    keys = set()
    for name in ("one", "two"):
        RunFolder(tmp_path / name).create_or_resume({"seed": 1}, about={RUN_ID: "handed on"})
        keys.add(key_of(RunFolder(tmp_path / name)))
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("summary_version",), 99, "expected summary_version"),
        (("summary_version",), 2, "expected summary_version 3, got 2"),
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
def test_a_summary_that_was_tampered_with_is_named_with_what_makes_it_anew(run, tmp_path, place, value, said):
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
    assert said in str(raised.value)
    assert f"'refusal-index score {folder}' rebuilds it" in str(raised.value)


def test_a_number_that_is_not_identified_is_read_with_its_interval(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    document = json.loads((folder / "summary.json").read_text())
    document["variants"][0]["metrics"]["corrected_refusal_index"] |= {"status": "not_identified", "low": -1, "high": 1}
    (folder / "summary.json").write_text(json.dumps(document))
    (found,) = read_exported([folder])
    corrected = found.metrics.row(
        by_predicate=(pl.col("variant") == "low") & (pl.col("metric") == "corrected_refusal_index"), named=True
    )
    assert [corrected[name] for name in ("status", "estimate", "low", "high")] == ["not_identified", None, -1, 1]


def test_a_folder_without_results_says_what_makes_them(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    (folder / "summary.json").unlink()
    with pytest.raises(RunFolderError, match="has no results yet; finish the run"):
        read_exported([folder])


def test_no_key_of_a_folder_is_handed_on(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77")
    folder = shutil.copytree(run.path, tmp_path / "run")
    text = (folder / "run.json").read_text().replace("part of the package", "x").replace('"user"', '"swordfish-77"')
    (folder / "run.json").write_text(text)
    (found,) = read_exported([folder])
    assert found.settings["placement"] == "[key]"
