"""A small package of somebody else, with public names only, gives the same outcomes as `two_pass`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import refusal_index as ri

SOURCE = Path(__file__).with_name("third_party")

SCRIPT = """
import json
from asked_twice import asked_twice
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate
from refusal_index.inspect import two_pass
from tests.models.test_two_pass import questions, scripted

found = {}
for name, solver in (("theirs", asked_twice(generate())), ("ours", two_pass(generate()))):
    task = Task(dataset=questions(), solver=solver, scorer=match(), name=name)
    (log,) = eval(task, model=scripted(), log_dir=name, display="none")
    metrics = {key: metric.value for key, metric in log.results.scores[-1].metrics.items()}
    found[name] = {"location": log.location, "index": metrics.get("index", metrics.get("refusal_index"))}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("installed") / "site-packages"  # where Inspect looks for packages
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(SOURCE)], check=True)
    return folder


def test_the_package_uses_public_names_only():
    tree = ast.parse((SOURCE / "asked_twice" / "__init__.py").read_text())
    imported = [
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert [name for name in imported if name.startswith("refusal_index")] == ["refusal_index"]
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ri"
    }
    assert used == {"load_prompt_set", "read_reply", "refusal_index"}
    assert used <= set(ri.__all__)


@pytest.mark.slow
def test_end_to_end_the_installed_package_gives_the_outcomes_of_two_pass(installed, tmp_path):
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed), root))}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["theirs"]["index"] == found["ours"]["index"]
    shown = {}
    for name in found:
        command = [str(Path(sys.executable).with_name("refusal-index")), "score", found[name]["location"], "--json"]
        scored = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        (variant,) = json.loads(scored.stdout)["variants"]
        shown[name] = {key: variant[key] for key in ("table", "metrics") if key in variant}
        assert shown[name]
    assert shown["theirs"] == shown["ours"]
