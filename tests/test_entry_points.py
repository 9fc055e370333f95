"""Plugins are found by name: ours without a scan, those of other distributions through one."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusal_index import entry_points
from refusal_index.cli import app
from refusal_index.cli.groups import CORE, GROUPS

PREFIX = "refusal_index."
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REGISTERED = {
    group.removeprefix(PREFIX): plugins
    for group, plugins in PROJECT["entry-points"].items()
    if group.startswith(PREFIX)
}


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing is known of any distribution, neither before nor after."""
    for lookup in (entry_points.own, entry_points.installed):
        lookup.cache_clear()
    yield
    for lookup in (entry_points.own, entry_points.installed):
        lookup.cache_clear()


@pytest.mark.parametrize("kind", REGISTERED)
def test_what_pyproject_registers_is_installed_and_can_be_imported(kind):
    assert {name: one.value for name, one in entry_points.own(kind).items()} == REGISTERED[kind]
    assert all(entry_points.load(one) is not None for one in entry_points.own(kind).values())


def test_every_command_is_of_the_core_or_registered_and_none_is_both():
    listed = [name for group in GROUPS.values() for name in group]
    assert sorted(listed) == sorted([*CORE, *REGISTERED["commands"]])


SCRIPT = """
import importlib.metadata, sys
def scanned(**_): raise SystemExit("all distributions were scanned")
importlib.metadata.entry_points = scanned
import refusal_index as ri
from refusal_index.cli import app
app(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize("line", [("--help",), ("study", "--help"), ("ls", "--help"), ("serve", "--help")])
def test_our_own_names_need_no_scan(line):
    done = subprocess.run([sys.executable, "-c", SCRIPT, *line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("plugins", [None, "[console_scripts]\nrefusal-index = refusal_index.cli:main\n"])
def test_a_source_tree_or_an_older_installation_ends_in_one_line(plugins, monkeypatch, tmp_path):
    def found(name):
        if plugins is None:
            raise importlib.metadata.PackageNotFoundError(name)
        (tmp_path / "entry_points.txt").write_text(plugins)
        return importlib.metadata.Distribution.at(tmp_path)

    monkeypatch.setattr(importlib.metadata, "distribution", found)
    done = CliRunner().invoke(app, ["study"])
    assert done.exit_code == 2
    assert "reinstall" in done.stderr
    assert len(done.stderr.splitlines()) == 1
