"""The plugin shown on a page is installed from another folder, and its model, study and command are used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index import entry_points
from refusal_index.cli import app
from refusal_index.findings.sections import registered_sections, with_sections
from refusal_index.findings.summary import summarise
from refusal_index.render.format import to_text
from refusal_index.render.report import write_report
from refusal_index.render.summary import summary_blocks, summary_document
from tests.docs.blocks import blocks
from tests.render.making import report_run, rows

PAGE = {block.title or block.language: block.text for block in blocks("docs/how-to/plugins.md")}
LINES = PAGE["bash"].splitlines()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as left by an installer: the plugin's module and its distribution metadata."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "parrot.py").write_text(PAGE["parrot.py"])
    project = tomllib.loads(PAGE["pyproject.toml"])["project"]
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in plugins.items())
        for group, plugins in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    return folder


def run(line: str, folder: Path, installed: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from refusal_index.cli import main; main()", *line.split()[1:]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))}
    return subprocess.run(command, check=False, cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def outputs(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of the page's commands, in order."""
    folder = tmp_path_factory.mktemp("page")
    ran = [run(line, folder, installed) for line in LINES]
    assert [result.returncode for result in ran] == [0] * len(ran), [one.stderr for one in ran]
    return [one.stdout for one in ran]


def test_example_plugin_has_at_most_thirty_lines():
    assert len([line for line in PAGE["parrot.py"].splitlines() if line.strip()]) <= 30


@pytest.mark.slow
def test_plugin_model_is_evaluated(outputs):
    assert "5" in outputs[0]
    assert "runs/polly/report.html" in outputs[0]


@pytest.mark.slow
def test_plugin_study_is_made(outputs):
    assert outputs[1].startswith("refusal_counts: studies/refusal_counts.csv")


@pytest.mark.slow
def test_plugin_command_runs(outputs):
    assert outputs[2].endswith(": 5 questions\n")


@pytest.mark.slow
def test_plugin_model_is_listed(installed, tmp_path):
    assert "parrot/polly" in run("refusal-index ls", tmp_path, installed).stdout


@pytest.mark.parametrize("line", LINES)
def test_plugin_names_are_unknown_when_not_installed(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, line.split()[1:])
    assert ran.exit_code == 2
    assert any(name in ran.stderr for name in ("parrot", "refusal_counts", "count"))


@pytest.mark.slow
def test_broken_plugin_is_named_with_advice(installed, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for metadata in installed.glob("*.dist-info"):
        (broken / metadata.name).symlink_to(metadata)
    (broken / "parrot.py").write_text("import a_module_that_is_not_there\n")
    ran = run(LINES[2], tmp_path, broken)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: parrot: ")
    assert "uninstall parrot" in ran.stderr


def test_plugin_section_is_in_summaries_and_the_report(tmp_path, monkeypatch):
    (tmp_path / "reply_length.py").write_text(PAGE["reply_length.py"])
    monkeypatch.syspath_prepend(tmp_path)
    plugin = EntryPoint("reply_length", "reply_length:section", "refusal_index.report_sections")
    monkeypatch.setattr(entry_points, "installed", lambda kind: {**entry_points.own_plugins(kind), plugin.name: plugin})
    registered_sections.cache_clear()
    try:
        table = rows(20).with_columns(first_reply=pl.lit("four"))
        summary = with_sections(summarise(table), table)
        assert summary_document(summary)["reply_length"] == 4
        assert to_text(summary_blocks(summary)).endswith("Mean length of a reply: 4.0 characters")
        run = replace(report_run(table).run, computed=summary)
        page = write_report([run], tmp_path / "report.html").path.read_text(encoding="utf-8")
        assert '<a href="#run-1-length">Length</a>' in page
        assert '<section id="run-1-length"><h2>Length of replies</h2><p>4.0 characters</p></section>' in page
    finally:
        registered_sections.cache_clear()


@pytest.fixture
def capitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the dataset and the grader of the page registered."""
    (tmp_path / "capitals.py").write_text(PAGE["capitals.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    registered = tomllib.loads(PAGE["capitals.toml"])["project"]["entry-points"]
    found = entry_points.installed

    def installed(kind: str) -> dict[str, EntryPoint]:
        group = f"refusal_index.{kind}"
        return {
            **found(kind),
            **{key: EntryPoint(key, value, group) for key, value in registered.get(group, {}).items()},
        }

    monkeypatch.setattr(entry_points, "installed", installed)
    return tmp_path


def test_example_of_a_dataset_has_ten_lines():
    assert len([line for line in PAGE["capitals.py"].splitlines() if line.strip()]) <= 10


def test_plugin_dataset_and_grader_are_listed_with_their_descriptions(capitals):
    listed = CliRunner().invoke(app, ["ls"]).stdout
    assert re.search(r"^  capitals +two capitals$", listed, re.MULTILINE)
    assert re.search(r"^  begins_right +The answer begins with the gold answer.$", listed, re.MULTILINE)


def test_plugin_dataset_is_graded_by_the_grader_that_it_names(capitals):
    def answers(question, *, must_answer=False):
        return "Lima, I think."

    run = ri.evaluate(answers, "capitals", model_name="answers")
    assert run.settings["grader"]["name"] == "python:capitals:begins_right"
    assert sorted(run.outcomes["wrong"]) == [False, True]
