from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app
from tests.cli import some_pipeline
from tests.cli.making import LOW
from tests.cli.serving import server  # noqa: F401 - a fixture
from tests.served import with_addresses

Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tables whole: an 80-column terminal splits wide ones."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs a command in an empty folder, with models as `with_addresses` says."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, with_addresses(arguments), catch_exceptions=False)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of the embedded model; tests must not change it."""
    out = tmp_path_factory.mktemp("finished") / "r"
    assert CliRunner().invoke(app, [*LOW, "--out", str(out)], catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture
def run_folder(finished_run: Path, command: Command) -> Path:
    """Put a finished run of `LOW` into the working folder, as ``r``."""
    return Path(shutil.copytree(finished_run, "r"))


@pytest.fixture
def pipeline() -> Iterator[some_pipeline.State]:
    """Return the state of the pipeline: what it was asked, and its settings."""
    some_pipeline.state.__init__()
    yield some_pipeline.state
    some_pipeline.state.__init__()
