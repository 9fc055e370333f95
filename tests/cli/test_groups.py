"""Help in groups, whole on a narrow terminal, and there before anything heavy is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.cli.groups import GROUPS

TOLD = {name: told for group in GROUPS.values() for name, (_, told) in group.items()}
NAMES = {
    *("run", "score", "report", "study", "paper", "compare", "import", "force", "regrade", "sensitivity", "audit"),
    *("plan", "serve", "ls", "validate", "prompts", "build"),
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


def test_a_name_that_is_none_gets_the_nearest():
    done = CliRunner().invoke(app, ["comprae"], env={"COLUMNS": "80"})
    assert done.exit_code == 2
    assert "'compare'" in done.stderr


def loaded(*arguments: str) -> tuple[str, ...]:
    """Run the command line in a process of its own: what it had loaded of `HEAVY`, and its seconds of CPU."""
    script = (
        "import sys, time\nfrom refusal_index.cli import app\n"
        f"app({list(arguments)!r}, standalone_mode=False)\n"
        f"print([n for n in {HEAVY!r} if n in sys.modules], time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return tuple(done.stderr.splitlines()[-1].rsplit(" ", 1))


def test_help_takes_less_than_half_a_second_and_nothing_heavy():
    heavy, seconds = loaded("--help")
    assert heavy == "[]"
    assert float(seconds) < 0.5


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_of_a_command_loads_nothing_heavy(name):
    assert loaded(name, "--help")[0] == "[]"
