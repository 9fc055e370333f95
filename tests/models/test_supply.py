"""Inspect in another release, which lacks a name that this package uses, is one line that says what to install."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import refusal_index

PACKAGE = Path(refusal_index.__path__[0])


def private_imports(path: Path) -> set[str]:
    """Return every name that a module takes from a module of Inspect's whose name begins with an underscore."""
    found = set()
    for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("inspect_ai"):
            names = [f"{one.module}:{each.name}" for each in one.names]
            found |= {name for name in names if "._" in name or ":_" in name}
    return found


def test_private_names_of_inspect_are_imported_in_one_module():
    importing = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if private_imports(path)]
    assert importing == ["plugins/inspect/__init__.py"]


@pytest.mark.slow
def test_a_command_that_needs_inspect_ends_with_that_line():
    code = (
        "import inspect_ai._util.registry as found; del found.registry_find\nfrom refusal_index.cli import main; main()"
    )
    command = ("run", "--model", "openai/gpt-4.1", "--limit", "1")
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    line = " ".join(ended.stderr.split())
    assert "cannot import name 'registry_find' from 'inspect_ai._util.registry'" in line
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = next(one for one in project["optional-dependencies"]["eval"] if one.startswith("inspect-ai"))
    named = line.rpartition("pip install '")[2].partition("'")[0]
    assert sorted(named.removeprefix("inspect-ai").split(",")) == sorted(given.removeprefix("inspect-ai").split(","))


@pytest.mark.slow
def test_inspect_that_is_not_installed_is_no_wrong_release():
    code = "import sys; sys.modules['inspect_ai'] = None; import refusal_index.plugins.inspect"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: import of inspect_ai halted" in ended.stderr
