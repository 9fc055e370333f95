"""Several runs as input: the same exit statuses and the same words of every command that takes them."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.folder import SET_VERSION
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.plugins.studies import study
from refusal_index.plugins.studies.study import study_spec
from tests.data.test_run_sets import make_run
from tests.studies.made import made_run

COMMANDS = {
    "compare": ("--variants", "normal"),
    "study results_table": ("--format", "csv", "--out", "made"),
    "study --all": ("--format", "csv", "--out", "made"),
    "report": ("--out", "made.html"),
}


@pytest.fixture
def invoke(command, monkeypatch):
    """Return what runs one of the commands on some inputs; of all studies, there are two."""
    few = tuple(study_spec(name) for name in ("results_table", "ranking_with_ties"))
    monkeypatch.setattr(study, "study_specs", lambda: few)
    for model in "ab":
        write_outcomes(pl.concat(list(made_run(model, n=60).variants.values())), Path(f"{model}.parquet"))
    Path("empty.csv").touch()
    return lambda name, *inputs: command(*name.split(), *inputs, *COMMANDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_0_where_every_run_is_read_1_where_one_is_left_out_2_where_none_is_read(invoke, name):
    assert invoke(name, "a.parquet", "b.parquet").exit_code == 0
    partly = invoke(name, "a.parquet", "empty.csv", "b.parquet")
    assert (partly.exit_code, partly.stderr.count("left out: empty.csv")) == (1, 1)
    assert partly.stdout == invoke(name, "a.parquet", "b.parquet").stdout, "the others as if it had not been named"
    nothing = invoke(name, "empty.csv")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("error: empty.csv")


@pytest.mark.parametrize("name", COMMANDS)
def test_2_before_any_work_where_a_path_is_not_there(invoke, name):
    result = invoke(name, "a.parquet", "b.parquet", "typo.parquet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == ("error: typo.parquet cannot be read: there is no such file or folder; check the path\n")
    assert not Path("made").exists()
    assert not Path("made.html").exists()


def test_2_where_one_model_is_left_to_compare(invoke):
    result = invoke("compare", "a.parquet", "empty.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "left out: empty.csv" in result.stderr
    assert "expected two models or more, got a alone" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_so(command, name):
    said = " ".join(command(*name.split(), "--help").stdout.split())
    assert "Exit status: 0 done" in said
    assert "1 done without a run that could not be read" in said
    assert "folders of sets" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_set_is_shown_under_its_names_and_what_is_not_begun_is_left_out(invoke, name):
    names = {"one": "Large, thinking", "two": "Small", "three": "Next"}
    for folder in ("one", "two"):
        make_run(Path("set", folder), "acme/same")
    runs = [{"folder": folder, "model": model, "dataset": "Ours"} for folder, model in names.items()]
    Path("set/summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": runs}))
    result = invoke(name, "set")
    assert result.exit_code == 1
    assert result.stderr.startswith("left out: set/three has not started yet")
    made = [Path(f) for f in ("made/results_table.csv", "made.html") if Path(f).exists()]
    shown = result.stdout + "".join(path.read_text(encoding="utf-8") for path in made)
    assert "Large, thinking" in shown
    assert "Small" in shown


def test_the_report_of_a_set_lies_in_its_folder(command):
    make_run(Path("set/one"), "acme/one")
    runs = [{"folder": "one", "model": "Large", "dataset": "Ours"}]
    Path("set/summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": runs}))
    assert command("report", "set").exit_code == 0
    page = Path("set/report.html").read_text(encoding="utf-8")
    assert "<title>Refusal Index of Large on Ours</title>" in page
