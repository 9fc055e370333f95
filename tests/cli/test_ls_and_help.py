"""What the commands say of themselves is what they do."""

from __future__ import annotations

import inspect

import pytest
from refusal_index.cli.run import run
from refusal_index.engines.inspect.run import MAX_RETRIES
from refusal_index.engines.inspect.solver import DEFAULT_GRADER
from typer.testing import CliRunner

from refusal_index import __version__
from refusal_index.almanac.models import model_names
from refusal_index.cli import app, job
from refusal_index.cli.commands.ls import DATASET_NOTES, MODEL_NOTES
from refusal_index.datasets import dataset_names, load_dataset
from refusal_index.engines.inspect.task import Asking, Decoding
from refusal_index.outcomes.summary import DEFAULT_CONFIDENCE_LEVEL, DEFAULT_PENALTY
from refusal_index.protocol import load_prompt_set, prompt_set_names


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


def test_ls_names_what_can_be_run():
    lines = CliRunner().invoke(app, ["ls"], catch_exceptions=False).stdout.splitlines()
    first = {line.split()[0] for line in lines if line.startswith("  ")}
    models = {f"almanac/{name}" for name in model_names()}
    assert first == {*dataset_names(), *prompt_set_names(), *models}
    assert any(", ".join(load_prompt_set("default").variants) in line for line in lines)


def test_ls_has_a_note_on_each_and_no_wrong_number():
    assert set(DATASET_NOTES) == set(dataset_names())
    assert set(MODEL_NOTES) >= set(model_names())
    assert f"{len(load_dataset('almanac').questions):,}" in DATASET_NOTES["almanac"]


def test_version():
    assert said("--version") == f"refusal-index {__version__}"


def test_help_names_every_command():
    assert all(command in said("--help") for command in ("run", "score", "serve", "ls"))


def test_help_of_run_tells_every_default():
    told = said("run", "--help")
    for default in (
        *("almanac/base", "'all'", "default", "user", DEFAULT_GRADER, f"{job.ALMANAC_LIMIT} of the almanac"),
        *("0.7", "0.95", "4096", "runs/NAME", "Exit status: 0 done, 1 incomplete or failed, 2 bad input"),
    ):
        assert default in told, default


@pytest.mark.parametrize("name", ["score", "serve"])
def test_help_of_the_others_tells_their_defaults(name):
    told = said(name, "--help")
    expected = {"score": ["[default: 0.95", "the run's own, else 1"], "serve": ["127.0.0.1", "8000"]}
    assert all(default in told for default in expected[name])


def test_defaults_of_run_are_those_of_the_engine():
    """Commands import the engine only when they run, so that its defaults stand there a second time."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(run).parameters.items()}
    decoding, asking = Decoding(), Asking()
    assert defaults["temperature"] == decoding.temperature
    assert defaults["top_p"] == decoding.top_p
    assert defaults["max_tokens"] == decoding.max_tokens
    assert defaults["seed"] == asking.seed
    assert defaults["prompts"] == asking.prompts
    assert defaults["placement"] == asking.placement
    assert defaults["attempt_timeout"] == asking.attempt_timeout
    assert defaults["max_retries"] == MAX_RETRIES
    assert defaults["penalty"] == DEFAULT_PENALTY
    assert DEFAULT_CONFIDENCE_LEVEL == 0.95
