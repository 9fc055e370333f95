"""The published distribution: built, checked, installed outside the checkout, and run there.

Nothing is fetched. The build is not isolated, and the fresh environment sees the dependencies that are installed
already, behind its own packages: of refusal-index it has the wheel's files and no others.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("build", "hatchling", "twine")),
        reason="the extra 'publish' is not installed; 'make dist' installs it",
    ),
]


@dataclass(frozen=True)
class Distribution:
    """The two files of a release."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True)
class Environment:
    """A fresh environment with the wheel installed, and an empty working folder."""

    folder: Path
    work: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the empty folder."""
        command = [self.folder / "bin" / words[0], *words[1:]]
        return subprocess.run(command, cwd=self.work, env=clean(), capture_output=True, text=True, check=False)


def clean() -> dict[str, str]:
    """Return the environment without variables that make Python find other modules."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    out = tmp_path_factory.mktemp("dist")
    # The wheel is built from the sdist, so a file missing from the sdist is missing from the wheel.
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return Distribution(*out.glob("*.whl"), *out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder, work = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--quiet", "--ignore-installed", distribution.wheel], check=True, env=clean())
    return Environment(folder, work)


def test_wheel_and_sdist_pass_the_checks_of_the_package_index(distribution):
    files = [distribution.wheel, distribution.sdist]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


def test_wheel_has_every_package_file_and_nothing_else(distribution):
    with zipfile.ZipFile(distribution.wheel) as wheel:
        held = set(wheel.namelist())
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "refusal_index").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # Weights, questions, prompt sets, price lists, templates, styles and scripts are files of the package.
    assert {".safetensors", ".toml", ".j2", ".js", ".css"} <= {Path(name).suffix for name in wanted}
    assert wanted - held == set()
    information = {name for name in held - wanted if ".dist-info/" in name}
    assert held - wanted - information == set()
    assert {Path(name).name for name in information} >= {"METADATA", "LICENSE", "NOTICE", "entry_points.txt"}


def test_sdist_has_files_needed_by_tests_and_no_build_output(distribution):
    with tarfile.open(distribution.sdist) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"README.md", "CITATION.cff", "constraints.txt", "Makefile", "tests/packaging/test_distribution.py"} <= held
    assert not [name for name in held if name.split("/")[0] in {".venv", "runs", "site", "dist", ".git"}]


def test_readme_main_job_runs_with_only_the_wheel_installed(installed):
    where = installed.run("python", "-c", "import refusal_index; print(refusal_index.__file__)")
    assert where.stdout.startswith(str(installed.folder)), where.stdout + where.stderr
    done = installed.run("refusal-index", "run", "--limit", "40")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (installed.work / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert [variant["variant"] for variant in summary["variants"]] == ["low", "normal", "high", "highest"]
    assert (run / "report.html").stat().st_size > 50_000
    again = installed.run("refusal-index", "score", str(run))
    assert again.returncode == 0, again.stderr
    assert "highest" in again.stdout


def test_the_wheel_states_its_version_and_inspect_finds_its_tasks(installed):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert installed.run("refusal-index", "--version").stdout.split()[-1] == version
    script = "from importlib.metadata import entry_points as e; (one,) = e(group='inspect_ai', name='refusal_index')"
    found = installed.run("python", "-c", f"{script}; print(one.load().__file__)")
    assert found.stdout.startswith(str(installed.folder)), found.stderr
