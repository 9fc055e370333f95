"""What the commands say of themselves: `--help` in groups, and `ls`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from refusal_index import __version__
from refusal_index.cli import GROUPS, app
from refusal_index.data.analysis import DEFAULT_CONFIDENCE_LEVEL
from refusal_index.data.datasets import dataset_names, dataset_source, default_limit, load_dataset
from refusal_index.models.settings import Setting
from refusal_index.plugins.almanac.models import MODEL_NAMES
from refusal_index.plugins.almanac.provider import PROVIDER
from refusal_index.protocol import load_prompt_set, prompt_set_names
from refusal_index.protocol.grading import RULES
from refusal_index.runs.settings import DEFAULT_GRADER, SETTINGS
from refusal_index.stats.baseline import DEFAULT_PAYOFFS

# --- Help texts


def help_text(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


def test_ls_lists_everything_that_can_be_run():
    lines = CliRunner().invoke(app, ["ls"], catch_exceptions=False).stdout.splitlines()
    first = {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}
    models = {f"almanac/{name}" for name in MODEL_NAMES}
    assert first == {*dataset_names(), "hf:ORG/NAME", *prompt_set_names(), *models, *RULES}
    assert any(", ".join(load_prompt_set("default").variants) in line for line in lines)


def test_ls_task_files_prints_only_their_folder():
    folder = Path(CliRunner().invoke(app, ["ls", "--task-files"], catch_exceptions=False).stdout.removesuffix("\n"))
    assert {path.name for path in folder.glob("*.yaml")} == {"refusal_index_first.yaml", "refusal_index_forced.yaml"}


def test_ls_notes_are_complete_and_their_numbers_correct():
    assert all(dataset_source(name).note for name in dataset_names())
    assert set(PROVIDER.notes) == set(MODEL_NAMES)
    assert f"{len(load_dataset('almanac').questions):,}" in dataset_source("almanac").note
    listed = help_text("ls")
    assert all(dataset_source(name).note in listed for name in dataset_names())
    assert all(note in listed for note in PROVIDER.notes.values())


def test_version():
    assert help_text("--version") == f"refusal-index {__version__}"


def test_help_names_every_command():
    assert all(command in help_text("--help") for command in ("run", "score", "serve", "ls"))


def test_run_help_shows_every_default():
    output = help_text("run", "--help-all")
    for default in (
        *("almanac/base", "'all'", "default", "user", DEFAULT_GRADER, f"{default_limit('almanac')} for the almanac"),
        *("0.7", "0.95", "4096", "runs/NAME", "Exit status: 0 done, 1 incomplete or failed, 2 bad input"),
    ):
        assert default in output, default


@pytest.mark.parametrize("name", ["score", "serve"])
def test_help_of_other_commands_shows_their_defaults(name):
    output = help_text(name, "--help")
    expected = {"score": ["[default: 0.95", "that of the run, else 1"], "serve": ["127.0.0.1", "8000"]}
    assert all(default in output for default in expected[name])


def test_every_setting_has_a_described_run_option():
    options = {name for param in get_command(app).commands["run"].params for name in param.opts}
    assert {f"--{name.replace('_', '-')}" for name in SETTINGS} <= options
    assert all(setting.description.strip() for setting in SETTINGS.values())


def has_one_default(setting: Setting) -> bool:
    """Whether a setting has a single default, which is in the settings and in the help."""
    return not setting.optional and setting.kind is not bool and setting.default not in ((), "")


@pytest.mark.parametrize("name", [name for name in SETTINGS if has_one_default(SETTINGS[name])])
@pytest.mark.parametrize("command", ["run", "force", "regrade"])
def test_settings_defaults_match_the_help(command, name):
    of = {option: param for param in get_command(app).commands[command].params for option in param.opts}
    option = of.get(f"--{name.replace('_', '-')}")
    if option is None or option.required or (command, name) == ("force", "refusal"):  # its default comes from the file
        assert command != "run"
        return
    default = SETTINGS[name].default
    printed = ",".join(default) if type(default) is tuple else str(default)
    assert option.help.endswith(f"[default: {printed}]")
    assert option.default is None, "what is not given is not a setting"


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.low is not None])
def test_out_of_range_settings_are_rejected_by_option_name(name):
    option, below = f"--{name.replace('_', '-')}", SETTINGS[name].low - 1
    result = CliRunner().invoke(app, ["run", option, f"{below:g}"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert option in result.stderr
    assert f"{SETTINGS[name].low:g}" in result.stderr


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        ("run --n 5", "--limit"),
        ("run --samples 5", "--draws"),
        ("gate --epochs 5", "--draws"),
        ("runs --limt 5", None),
        ("plan --n 5", None),
        ("run --limt 5", "--limit"),
    ],
)
def test_an_option_of_another_tool_suggests_the_one_that_does_the_same(line, suggested):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2
    assert f"No such option: {line.split()[1]}" in result.stderr
    assert (f"(Possible options: {suggested})" in result.stderr) == (suggested is not None)


def test_weighted_score_p_and_confidence_level_defaults_match_the_summary():
    assert SETTINGS["weighted_score_p"].default == DEFAULT_PAYOFFS.weighted_score_p
    assert DEFAULT_CONFIDENCE_LEVEL == 0.95


# --- Grouped help

TOLD = {name: told for group in GROUPS.values() for name, told in group.items()}
NAMES = {
    *("run", "score", "report", "study", "compare", "import", "force", "regrade", "sensitivity", "audit"),
    *("plan", "serve", "ls", "validate", "prompts", "build", "confidence", "run-batch"),
    *("requests", "replies", "export", "gate", "watch", "show", "runs"),
}
HEAVY = ("polars", "scipy", "matplotlib", "inspect_ai", "jinja2", "openai")


def test_command_names_match_the_list():
    assert set(TOLD) == set(get_command(app).commands) == NAMES


def test_help_lists_every_command_under_its_group_in_80_columns():
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line.removesuffix(":") for line in lines if line.removesuffix(":") in GROUPS] == list(GROUPS)
    width = max(map(len, NAMES))
    assert [line for line in lines if line.startswith("  ") and line.split()[0] in NAMES] == [
        f"  {name:<{width}}  {told}" for name, told in TOLD.items()
    ]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", sorted(NAMES))
def test_command_help_matches_its_line_in_the_overview(name):
    first = get_command(app).commands[name].help.split("\n\n")[0]
    assert " ".join(first.split()).startswith(TOLD[name].removesuffix("."))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})


def options_in(text: str) -> list[str]:
    return re.findall(r"^  (--[\w-]+)", text.partition("\nOptions:")[2], re.MULTILINE)


@pytest.mark.parametrize("name", sorted(NAMES - {"build"}))
def test_every_help_screen_fits_80_columns_and_help_all_has_every_option(name):
    command = get_command(app).commands[name]
    has_more = any(param.name == "help_all" for param in command.params)
    screens = [run(name, option).stdout for option in ("--help", *(["--help-all"] if has_more else []))]
    assert max(len(line) for screen in screens for line in screen.splitlines()) <= 80
    options = [param for param in command.params if param.param_type_name == "option"]
    assert all(any(written in screens[-1] for written in option.opts) for option in options)


def test_run_shows_eighteen_options_and_the_rest_in_groups():
    common = {f"--{name.replace('_', '-')}" for name, setting in SETTINGS.items() if setting.is_common}
    output = options_in(run("run", "--help").stdout)
    assert set(output) == {*common, "--config", "--out", "--dry-run", "--json", "--help-all", "--help"}
    assert len(output) == 18 + 2
    assert len(options_in(run("run", "--help-all").stdout)) == len(SETTINGS) + 6


@pytest.mark.parametrize("name", ["gate", "watch"])
def test_gate_and_watch_show_their_own_options(name):
    output = run(name, "--help").stdout
    assert output.endswith("\nand all options of 'refusal-index run'\n")
    assert not {"--model", "--engine", "--limit"} & set(options_in(output))
    assert {"--engine", "--limit"} <= set(options_in(run(name, "--help-all").stdout))


def test_option_names_are_consistent_across_commands():
    params = [param for command in get_command(app).commands.values() for param in command.params]
    assert all(param.is_flag for param in params if "--json" in param.opts)


def test_unknown_command_suggests_the_nearest():
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


def test_help_never_loads_heavy_modules():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    loaded = [line.split() for line in done.stderr.splitlines()]
    assert loaded == [[name] for name in sorted(NAMES)], "the first line with more shows which command loaded it"
