"""Help in groups, whole on a narrow terminal, and there before anything heavy is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.cli.groups import GROUPS

TOLD = {name: told for group in GROUPS.values() for name, told in group.items()}
NAMES = {
    *("run", "score", "report", "study", "paper", "compare", "import", "force", "regrade", "sensitivity", "audit"),
    *("plan", "serve", "ls", "validate", "prompts", "build", "confidence", "threshold", "run-batch"),
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


def test_a_name_that_is_none_gets_the_nearest():
    done = CliRunner().invoke(app, ["comprae"], env={"COLUMNS": "80"})
    assert done.exit_code == 2
    assert "'compare'" in done.stderr


SCRIPT = f"""
import sys, time
from refusal_index.cli import app
app(["--help"], standalone_mode=False)
print("--help", time.process_time(), file=sys.stderr)
for name in {sorted(NAMES)!r}:
    app([name, "--help"], standalone_mode=False)
    print(name, *(one for one in {HEAVY!r} if one in sys.modules), file=sys.stderr)
"""


def test_help_takes_less_than_half_a_second_and_loads_nothing_heavy_of_any_command():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    first, *others = (line.split() for line in done.stderr.splitlines())
    assert float(first[1]) < 0.5
    assert others == [[name] for name in sorted(NAMES)], "the first that has more brought it in"
