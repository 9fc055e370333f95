"""The core names no engine, dataset or model provider of a plugin: what it needs of them is declared where they are.

Docstrings are not read: their examples use the models that come with the package.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = sorted(
    path for path in (ROOT / "src" / "refusal_index").rglob("*.py") if "plugins" not in path.relative_to(ROOT).parts
)
GROUPS = ("executors", "datasets", "models")
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
NAMES = frozenset(name for group in GROUPS for name in ENTRY_POINTS[f"refusal_index.{group}"])

WORDS = frozenset({"batch", "command", "files"})
"""Names that are words of any message; they count where they are a whole string or a whole constant."""

ALLOWED = {
    ("cli/evaluation.py", "almanac"): "the help of a default grader",
    ("cli/evaluation.py", "command"): "the name of a setting",
    ("data/datasets/__init__.py", "almanac"): "the default of --dataset",
    ("models/settings.py", "ray"): "the help of --engine, --ray-address and --engine-option",
    ("protocol/final_answer.py", "command"): "a command of TeX",
    ("runs/engines.py", "command"): "the name of a setting",
    ("runs/scoring.py", "files"): "the name of an argument",
    ("runs/settings.py", "almanac"): "the default of --model, which needs no key",
}
"""What the core may name, by module, and why."""


def names_in(text: str, *, is_constant: bool = False) -> Iterator[str]:
    """Yield the names in a string, or in the name of a constant."""
    words = re.findall(r"[A-Za-z_]+", text) if not is_constant else text.lower().split("_")
    for name in NAMES:
        if (text.lower() if is_constant else text) == name or (name in words and name not in WORDS):
            yield name


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Return the strings that stand alone, which describe what is around them."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def named(code: str) -> set[str]:
    """Return the names of engines, datasets and model providers in the strings and constants of a module."""
    tree = ast.parse(code)
    described = docstrings(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            found.update(names_in(node.value))
        elif isinstance(node, ast.alias | ast.Name | ast.Attribute):
            name = getattr(node, {ast.alias: "name", ast.Name: "id", ast.Attribute: "attr"}[type(node)])
            if name.isupper():
                found.update(names_in(name, is_constant=True))
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('engine == "batch"', {"batch"}),
        ('ONLY = {"detach": (BATCH,)}', {"batch"}),
        ("from refusal_index.runs.engine import FILES", {"files"}),
        ("plan.ALMANAC_LIMIT", {"almanac"}),
        ('f"the {kind} of the almanac"', {"almanac"}),
        ('model = "almanac/base"', {"almanac"}),
        ('"the requests of a batch"', set()),
        ('"""The almanac."""', set()),
        ('def f():\n    """Ask almanac/base."""\n    return in_batches', set()),
    ],
)
def test_names_are_found_in_strings_and_constants(code, expected):
    assert named(code) == expected


def test_core_names_nothing_that_plugins_register():
    package = ROOT / "src" / "refusal_index"
    found = {(str(path.relative_to(package)), name) for path in CORE for name in named(path.read_text())}
    assert found == set(ALLOWED), "declare it where it is registered: see EngineKind, DatasetSource and ModelProvider"
