"""Packages of another release are told in one line, and the list of what might be missing is the whole list."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import refusal_index
from refusal_index.models import inspect
from refusal_index.models.inspect import PRIVATE, IncompatibleError, check_names, range_of


def private_imports() -> set[str]:
    """Return every name that a module takes from a module of Inspect's whose name begins with an underscore."""
    found = set()
    for path in Path(refusal_index.__path__[0]).rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("inspect_ai"):
                names = [f"{one.module}:{each.name}" for each in one.names]
                found |= {name for name in names if "._" in name or ":_" in name}
    return found


@pytest.mark.slow
def test_every_private_name_of_inspects_is_looked_for_first():
    assert private_imports() == set(PRIVATE)


@pytest.mark.parametrize("name", ["inspect_ai._util.registry:gone", "inspect_ai._util.gone:registry_find"])
def test_a_name_that_is_not_there_is_told_with_what_is_installed_what_was_tested_and_what_to_do(name, monkeypatch):
    monkeypatch.setattr(inspect, "requires", lambda _: ["numpy>=2", "inspect-ai<0.4,>=0.3.285; extra == 'eval'"])
    monkeypatch.setattr(inspect, "version", lambda _: "0.3.999")
    with pytest.raises(IncompatibleError) as caught:
        check_names("inspect-ai", [*PRIVATE, name])
    assert str(caught.value) == (
        f"inspect-ai 0.3.999 has no {name}: this release was tested with inspect-ai >=0.3.285,<0.4; "
        "pip install 'inspect-ai>=0.3.285,<0.4'"
    )


def test_what_is_not_installed_at_all_is_said_to_be_missing():
    with pytest.raises(ModuleNotFoundError):
        check_names("no-such", ["no_such_package.module:name"])


def test_the_range_is_that_of_the_project():
    text = (Path(refusal_index.__path__[0]).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"inspect-ai{range_of("inspect-ai")}"' in text


@pytest.mark.slow
def test_a_command_that_needs_inspect_ends_with_that_line():
    code = (
        "import inspect_ai._util.registry as found; del found.registry_find\nfrom refusal_index.cli import main; main()"
    )
    command = ("run", "--model", "openai/gpt-4.1", "--limit", "1")
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "has no inspect_ai._util.registry:registry_find" in " ".join(ended.stderr.split())
    assert "pip install 'inspect-ai" in " ".join(ended.stderr.split())
