"""`refusal-index report`: where it writes, what it refuses, what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from refusal_index.cli import app
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import write_outcomes
from tests.render.making import rows


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = RunFolder(tmp_path / "run")
    with made.lock():
        made.create_or_resume({"model": "m"})
        write_outcomes(rows(40), made.outcomes)
    return made.path


def test_a_folder_gets_its_report_and_gets_it_again(folder: Path) -> None:
    for _ in range(2):
        result = _run(folder)
        assert result.exit_code == 0
        assert "report.html" in result.output
        assert "all texts in full" in result.output
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_table_gets_its_report_beside_it_or_where_it_is_wanted(tmp_path: Path) -> None:
    write_outcomes(rows(40), tmp_path / "outcomes.csv")
    assert _run(tmp_path / "outcomes.csv").exit_code == 0
    assert (tmp_path / "report.html").exists()
    assert _run(tmp_path / "outcomes.csv", "--out", tmp_path / "new" / "page.html").exit_code == 0
    assert (tmp_path / "new" / "page.html").exists()


def test_several_runs_need_a_place_and_the_unreadable_are_named(folder: Path, tmp_path: Path) -> None:
    write_outcomes(rows(40, model="other"), tmp_path / "other.parquet")
    refused = _run(folder, tmp_path / "other.parquet")
    assert refused.exit_code == 2
    assert "--out FILE" in refused.output
    (tmp_path / "empty.csv").touch()
    written = _run(folder, tmp_path / "other.parquet", tmp_path / "empty.csv", "--out", tmp_path / "all.html")
    assert written.exit_code == 1
    assert "left out: " in written.output
    assert "empty.csv" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_what_is_no_report_is_left_alone(folder: Path) -> None:
    before = (folder / "outcomes.parquet").read_bytes()
    for place in (folder / "outcomes.parquet", folder):
        result = _run(folder, "--out", place)
        assert result.exit_code == 2
        assert "--out" in result.output
    assert (folder / "outcomes.parquet").read_bytes() == before


def test_bad_input_is_one_line_and_status_2(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        result = _run(path, "--out", tmp_path / "a.html")
        assert result.exit_code == 2
        assert result.output.startswith("error: ")
        assert result.output.count("\n") == 1


def test_hostile_names_are_harmless_on_the_terminal(tmp_path: Path) -> None:
    place = tmp_path / "\x1b[31mrun"
    place.mkdir()
    write_outcomes(rows(5), place / "outcomes.csv")
    (place / "empty\x1b]0;x.csv").touch()
    result = _run(place / "outcomes.csv", place / "empty\x1b]0;x.csv", "--out", place / "a.html")
    assert result.exit_code == 1
    assert "\x1b" not in result.output
