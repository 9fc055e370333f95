"""``runs``: the runs of a folder, with what is wrong in it, and the commands that take the folder of several runs."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data.folder import CREATED, RunFolder
from refusal_index.data.run_sets import folders_below, runs_below
from refusal_index.findings.run_list import listed_runs
from refusal_index.render.format import Table
from refusal_index.render.run_list import run_list_blocks

BROKEN = {"broken": "{", "foreign": None, "empty": None}


@pytest.fixture
def folder(run_folder: Path) -> Path:
    """Put a finished run into a folder ``runs``, as a run and one level below, among what is none."""
    runs = Path("runs")
    shutil.copytree(run_folder, runs / "one")
    shutil.copytree(run_folder, runs / "older" / "two")
    for name, text in BROKEN.items():
        (runs / name).mkdir()
        if text is not None:
            (runs / name / "run.json").write_text(text)
    (runs / "foreign" / "notes.txt").write_text("mine")
    (runs / "foreign.txt").write_text("mine")
    (runs / ".hidden").mkdir()
    return runs


def test_end_to_end_runs_are_listed_with_the_results_of_show(folder, command):
    result = command("runs", "--json")
    assert result.exit_code == 1, "one cannot be read"
    listed = {Path(run["folder"]).name: run for run in json.loads(result.stdout)["runs"]}
    assert {name: run["status"] for name, run in listed.items()} == {
        **dict.fromkeys(("one", "two"), "complete"),
        "broken": "unreadable",
        **dict.fromkeys(("empty", "foreign"), "no_run"),
    }
    run = ri.open_run(folder / "one")
    index = run.summary.index
    assert listed["one"]["refusal_index"]["estimate"] == pytest.approx(index.estimate)
    assert listed["one"]["refusal_index"]["low"] == pytest.approx(index.low)
    assert (listed["one"]["model"], listed["one"]["dataset"]) == (run.model, run.dataset)
    assert listed["one"]["n"] == listed["one"]["asked"] == run.summary.variants[0].table.n
    created = datetime.fromisoformat(listed["one"]["created"])
    assert abs((datetime.now(UTC) - created).total_seconds()) < 86_400


def test_end_to_end_each_folder_that_is_no_complete_run_has_one_line(folder, command):
    (folder / "older" / "two" / "summary.json").unlink()
    lines = command("runs").stdout.splitlines()
    for name in (*BROKEN, "older/two"):
        (line,) = (line for line in lines if line.startswith(f"  runs/{name}: "))
        assert line.count(f"runs/{name}") == 1 or name == "older/two"
    assert sum(line.startswith("one ") for line in lines) == 1
    assert not any("hidden" in line or "foreign.txt" in line for line in lines)


@pytest.mark.parametrize("name", ["nowhere", "runs/empty"])
def test_a_folder_without_runs_is_bad_input(folder, command, name):
    result = command("runs", name)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert name in result.output


def test_end_to_end_a_folder_of_runs_is_reported_in_one_page_without_the_broken_one(folder, command):
    result = command("report", "runs")
    assert result.exit_code == 1
    assert result.output.count("left out: ") == 1
    assert (folder / "report.html").stat().st_size > 0
    assert [path.name for path in runs_below(folder)] == ["broken", "two", "one"]


def test_theory_the_folder_of_a_run_stands_for_itself(folder):
    assert folders_below(folder / "one") == [folder / "one"]
    assert runs_below(folder / "one") == []
    assert [run["folder"] for run in listed_runs(folder / "one")] == [str(folder / "one")]


def test_theory_a_linked_run_is_listed_once(folder):
    (folder / "zlink").symlink_to("one", target_is_directory=True)
    names = [Path(run["folder"]).name for run in listed_runs(folder)]
    assert names.count("one") + names.count("zlink") == 1


def test_end_to_end_a_date_that_is_no_text_is_an_error_of_that_run(folder):
    path = RunFolder(folder / "one").run_json
    document = json.loads(path.read_text())
    document["about"][CREATED] = 7
    path.write_text(json.dumps(document))
    (run,) = listed_runs(folder / "one")
    assert run["status"] == "unreadable"
    assert "created" in run["error"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_property_a_row_fits_the_terminal_and_shows_missing_grades(width):
    name = "a-rather-long-name-of-a-model-and-its-settings-3f2a91bc"
    index = {"estimate": 0.4, "low": -0.1, "high": 0.5, "status": "ok", "reason": None}
    of_run = {"status": "incomplete", "lacks": "high, 26 of 4,326 questions not scored", "confidence_level": 0.95}
    names = {"folder": f"runs/{name}", "model": name, "dataset": name, "created": "2026-11-28T22:00:00+00:00"}
    run = {**names, **of_run, "asked": 4326, "n": 4300, "refusal_index": index}
    table, *lines = run_list_blocks(Path("runs"), [run], width)
    assert isinstance(table, Table)
    assert max(len(line) for part in table.parts(width) for line in part.lines()) <= width
    assert min(map(len, table.rows[0][:3])) >= (29 if width == 60 else 7)
    assert "4,300/4,326" in table.rows[0]
    assert table.rows[0][-1] == "2026-11-28"
    assert any("incomplete: high" in line for line in lines)


def test_theory_ri_is_that_over_all_prompts_and_none_if_that_is_unknown(folder):
    path = RunFolder(folder / "one").summary
    document = json.loads(path.read_text())
    first = document["variants"][0]
    second = {**first, "variant": "other", "n": first["n"] - 1}
    joint = {**document, "variants": [first, second], "pooled": []}
    path.write_text(json.dumps(joint))
    (run,) = listed_runs(folder / "one")
    assert run["refusal_index"]["estimate"] is None, "that of one prompt is not that of both"
    assert (run["n"], run["asked"]) == (first["n"] - 1, first["completeness"]["asked"])
    path.write_text(json.dumps({**document, "variants": [], "pooled": []}))
    (run,) = listed_runs(folder / "one")
    assert run["status"] == "unreadable"
