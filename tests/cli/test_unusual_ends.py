"""Commands that end in unusual ways: internal errors, exiting code, closed or full output, links without a target."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from refusal_index import cli, entry_points
from refusal_index.cli.console import ignore_width_of_zero, replace_closed_streams
from tests.cli.test_gate import write

COMMAND = Path(sys.executable).parent / "refusal-index"
FULL = Path("/dev/full")


@pytest.fixture
def failing(monkeypatch, capsys):
    """Return a function that runs `main` with a command that raises, and returns the exit status and what it said."""

    def run(error: BaseException) -> tuple[object, str]:
        def raises() -> None:
            raise error

        monkeypatch.setattr(cli, "app", raises)
        monkeypatch.setattr(cli, "filter_streams", lambda: None)
        monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("error", [ValueError("own"), AssertionError(), RecursionError(), MemoryError()])
def test_internal_error_ends_with_2_and_a_traceback(failing, error):
    status, said = failing(error)
    assert status == 2
    assert said.startswith("Traceback")
    assert f"error: internal error ({type(error).__name__})" in said


def test_output_that_cannot_be_written_is_one_line(failing, monkeypatch):
    monkeypatch.setattr(cli, "print_no_more", lambda: None)
    status, said = failing(OSError(28, "No space left on device"))
    assert status == 1
    assert said.splitlines() == [
        "error: cannot read or write (No space left on device); check the disk, and where the output goes"
    ]


def test_gate_without_a_verdict_is_not_a_fail(command, tmp_path):
    write("base", 0.2)
    (tmp_path / "q.csv").write_text("question,answer\nWho?,Ann\nWhere?,Bern\n")
    (tmp_path / "failing_model.py").write_text(
        "def answer(question, *, must_answer=False):\n    raise ValueError('no')\n"
    )
    asked = ("--model", "python:failing_model:answer", "--data", "q.csv", "--grader", "exact", "--max-retries", "0")
    done = command("gate", "c", "--run", "--at-least", "correct_rate=0.1", "--variants", "low", *asked)
    assert done.exit_code in (2, 3), done.output


@pytest.mark.parametrize("code", ["import sys; sys.exit()", "import sys; sys.exit(1)", "raise SystemExit('no')"])
def test_plugin_that_exits_is_named(command, tmp_path, monkeypatch, code):
    (tmp_path / "exiting_plugin.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = EntryPoint("own", "exiting_plugin:main", "refusal_index.commands")
    find = entry_points.find
    monkeypatch.setattr(entry_points, "find", lambda kind, name: plugin if name == "own" else find(kind, name))
    done = command("own")
    assert done.exit_code == 2
    assert "its plugin 'own' (exiting_plugin:main) cannot be loaded (SystemExit" in done.stderr


def test_command_of_a_plugin_that_exits_is_an_error(command, monkeypatch):
    def exits() -> None:
        sys.exit(0)

    plugin = EntryPoint("own", "any:main", "refusal_index.commands")
    find = entry_points.find
    monkeypatch.setattr(entry_points, "find", lambda kind, name: plugin if name == "own" else find(kind, name))
    monkeypatch.setattr(entry_points, "load", lambda _plugin: exits)
    done = command("own")
    assert done.exit_code == 2
    assert "called sys.exit(0)" in done.stderr


NESTED = {"arrays": "[" * 20_000 + "]" * 20_000, "tables": "{a=" * 20_000 + "1" + "}" * 20_000}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize(
    "arguments", [("run", "--config"), ("run", "--limit", "30", "--prompts"), ("gate", "base.parquet", "--policy")]
)
def test_nested_toml_is_one_line(command, tmp_path, nested, arguments):
    write("base", 0.2)
    (tmp_path / "deep.toml").write_text(f"a = {nested}\n")
    done = command(*arguments, "./deep.toml")
    assert done.exit_code == 2
    assert done.stderr.removeprefix("error: ./").removeprefix("error: ") == (
        "deep.toml: not valid TOML: its values are nested too deeply\n"
    )


@pytest.mark.parametrize("arguments", [("run", "--limit", "30", "--out", "loop"), ("show", "loop"), ("score", "loop")])
def test_link_to_itself_is_one_line(command, tmp_path, arguments):
    (tmp_path / "loop").symlink_to("loop")
    done = command(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("width", "is_kept"), [("0", False), ("00", False), ("1", True), ("", True), ("wide", True)])
def test_width_of_zero_is_ignored(monkeypatch, width, is_kept):
    monkeypatch.setenv("COLUMNS", width)
    ignore_width_of_zero()
    assert ("COLUMNS" in os.environ) == is_kept


def test_closed_streams_discard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    replace_closed_streams()
    replaced = sys.stdout
    assert replaced.write("lost") == 4
    replaced.close()


@pytest.mark.slow
@pytest.mark.parametrize(("redirection", "status"), [(">&-", 0), ("2>&-", 0), (">&- 2>&- <&-", 0), (">/dev/full", 1)])
def test_closed_or_full_output_ends_without_a_traceback(run_folder, redirection, status):
    if "full" in redirection and not FULL.exists():
        pytest.skip("needs /dev/full")
    done = subprocess.run(
        ["bash", "-c", f'"$0" show r {redirection}', str(COMMAND)], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == bool(status)
