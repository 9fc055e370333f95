"""Help in groups, whole on a narrow terminal, and there before anything heavy is loaded."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from refusal_index.cli import GROUPS, RENAMED_COMMANDS, RENAMED_OPTIONS, app
from refusal_index.runs.settings import SETTINGS

TOLD = {name: told for group in GROUPS.values() for name, told in group.items()}
NAMES = {
    *("run", "score", "report", "study", "compare", "import", "force", "regrade", "sensitivity", "audit"),
    *("plan", "serve", "ls", "validate", "prompts", "build", "confidence", "run-batch"),
    *("requests", "replies", "export", "gate", "watch", "show"),
}
HEAVY = ("polars", "scipy", "matplotlib", "inspect_ai", "jinja2", "openai")


def test_every_command_is_there_under_its_name():
    assert set(TOLD) == set(get_command(app).commands) == NAMES


def test_help_has_a_section_for_each_group_and_a_whole_line_for_each_command_at_80_columns():
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line.removesuffix(":") for line in lines if line.removesuffix(":") in GROUPS] == list(GROUPS)
    width = max(map(len, NAMES))
    assert [line for line in lines if line.split()[:1] and line.split()[0] in NAMES] == [
        f"  {name:<{width}}  {told}" for name, told in TOLD.items()
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_command_says_of_itself_what_the_help_of_all_says(name):
    first = get_command(app).commands[name].help.split("\n\n")[0]
    assert " ".join(first.split()).startswith(TOLD[name].removesuffix("."))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})


def options_in(text: str) -> list[str]:
    return re.findall(r"^  (--[\w-]+)", text.partition("\nOptions:")[2], re.MULTILINE)


@pytest.mark.parametrize("name", sorted(NAMES - {"build"}))
def test_every_help_screen_fits_80_columns_and_help_all_has_every_option(name):
    command = get_command(app).commands[name]
    has_more = any(one.name == "help_all" for one in command.params)
    screens = [run(name, option).stdout for option in ("--help", *(["--help-all"] if has_more else []))]
    assert max(len(line) for screen in screens for line in screen.splitlines()) <= 80
    options = [one for one in command.params if one.param_type_name == "option"]
    assert all(any(written in screens[-1] for written in one.opts) for one in options)


def test_run_shows_fifteen_options_and_the_rest_in_groups():
    common = {f"--{name.replace('_', '-')}" for name, setting in SETTINGS.items() if setting.is_common}
    shown = options_in(run("run", "--help").stdout)
    assert set(shown) == {*common, "--config", "--out", "--dry-run", "--json", "--help-all", "--help"}
    assert len(shown) == 15 + 2
    assert len(options_in(run("run", "--help-all").stdout)) == len(SETTINGS) + 6


@pytest.mark.parametrize("name", ["gate", "watch"])
def test_gate_and_watch_show_their_own_options(name):
    shown = run(name, "--help").stdout
    assert shown.endswith("\nand all options of 'refusal-index run'\n")
    assert not {"--model", "--engine", "--limit"} & set(options_in(shown))
    assert {"--engine", "--limit"} <= set(options_in(run(name, "--help-all").stdout))


def test_an_old_name_gives_the_new_one_in_one_line():
    commands = [([old], new) for old, new in RENAMED_COMMANDS.items()]
    options = [(["compare", "a", "b", old, "x"], new) for old, new in RENAMED_OPTIONS.items()]
    for arguments, new in commands + options:
        done = run(*arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert new in done.stderr


def test_an_option_means_the_same_everywhere():
    params = [one for command in get_command(app).commands.values() for one in command.params]
    assert not {name for one in params for name in one.opts} & set(RENAMED_OPTIONS)
    assert all(one.is_flag for one in params if "--json" in one.opts)


def test_a_name_that_is_none_gets_the_nearest():
    done = CliRunner().invoke(app, ["comprae"], env={"COLUMNS": "80"})
    assert done.exit_code == 2
    assert "'compare'" in done.stderr


SCRIPT = f"""
import sys
from refusal_index.cli import app
app(["--help"], standalone_mode=False)
for name in {sorted(NAMES)!r}:
    app([name, "--help"], standalone_mode=False)
    print(name, *(one for one in {HEAVY!r} if one in sys.modules), file=sys.stderr)
"""


def test_help_of_no_command_loads_anything_heavy():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    loaded = [line.split() for line in done.stderr.splitlines()]
    assert loaded == [[name] for name in sorted(NAMES)], "the first that has more brought it in"
