"""Plugins are found by name: ours without a scan, those of other distributions through one."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusal_index import entry_points
from refusal_index.cli import CORE, GROUPS, app
from refusal_index.data.datasets import (
    DatasetError,
    dataset_names,
    dataset_source,
    default_limit,
    load_dataset,
    usual_grader,
)
from refusal_index.data.imports import ReadOptions
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.data.run_json import Price
from refusal_index.models.requests import provider_of
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence import plan, scores
from refusal_index.plugins.confidence.scores import confidence_scores
from refusal_index.plugins.trackers.tracker import ExportError, export_runs
from refusal_index.protocol import GraderKind
from refusal_index.runs.api import evaluate
from refusal_index.runs.engines import check_engines_own, check_limits, check_sends, note_on, prices_as_sent
from refusal_index.runs.graders import grader_of
from refusal_index.runs.reuse import import_file
from refusal_index.runs.settings import Settings
from tests import registered

PREFIX = "refusal_index."
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REGISTERED = {
    group.removeprefix(PREFIX): plugins
    for group, plugins in PROJECT["entry-points"].items()
    if group.startswith(PREFIX)
}


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clear the caches of installed distributions before and after."""
    for lookup in (entry_points.own_plugins, entry_points.installed):
        lookup.cache_clear()
    yield
    for lookup in (entry_points.own_plugins, entry_points.installed):
        lookup.cache_clear()


@pytest.mark.parametrize("kind", REGISTERED)
def test_registered_entry_points_are_installed_and_importable(kind):
    assert {name: one.value for name, one in entry_points.own_plugins(kind).items()} == REGISTERED[kind]
    loaded = {name: entry_points.load(plugin) for name, plugin in entry_points.own_plugins(kind).items()}
    if kind != "task_files":
        assert registered.REGISTERED[kind] == loaded, "mypy checks these against their interfaces"


def test_every_command_is_either_core_or_registered():
    listed = [name for group in GROUPS.values() for name in group]
    assert sorted(listed) == sorted([*CORE, *REGISTERED["commands"]])


SCRIPT = """
import importlib.metadata, sys
def scanned(**_): raise SystemExit("all distributions were scanned")
importlib.metadata.entry_points = scanned
import refusal_index as ri
from refusal_index.cli import app
app(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize("line", [("--help",), ("study", "--help"), ("ls", "--help"), ("serve", "--help")])
def test_own_plugins_load_without_scanning_distributions(line):
    done = subprocess.run([sys.executable, "-c", SCRIPT, *line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def grades(question, answer):
    """Grade by the first letter."""


class Grader:
    """Grade in some way."""

    def __call__(self, question, answer):
        """Grade by the last letter."""


@pytest.mark.parametrize(
    ("plugin", "described"),
    [
        (grades, "Grade by the first letter."),
        (partial(grades, answer=""), "Grade by the first letter."),
        (Grader, "Grade in some way."),
        (Grader(), "Grade by the last letter."),
        (lambda question, answer: True, ""),
    ],
)
def test_a_plugin_is_described_by_its_own_docstring_not_by_that_of_its_type(plugin, described):
    assert entry_points.first_line(plugin) == described


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("plugins", [None, "[console_scripts]\nrefusal-index = refusal_index.cli:main\n"])
def test_uninstalled_or_outdated_package_gives_a_one_line_error(plugins, monkeypatch, tmp_path):
    def distribution(name):
        if plugins is None:
            raise importlib.metadata.PackageNotFoundError(name)
        (tmp_path / "entry_points.txt").write_text(plugins)
        return importlib.metadata.Distribution.at(tmp_path)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    done = CliRunner().invoke(app, ["study"])
    assert done.exit_code == 2
    assert "reinstall" in done.stderr
    assert len(done.stderr.splitlines()) == 1


PLUGIN = """
from refusal_index.data.datasets import DatasetSource
from refusal_index.data.datasets.dataset import Dataset
from refusal_index.data.first_pass import FirstPass, FirstPasses
from refusal_index.data.outcome import Grade, Question
from refusal_index.plugins.confidence.method import Method, score_each
from refusal_index.runs.engine import EngineKind

SUFFIX = ".txt"

ASKED = Question("q1", "What is the capital of Peru?", "Lima")

def questions(data):
    return Dataset("capitals", (ASKED,), "0" * 64, "memory", "exact", "none")

COUNTRIES = DatasetSource(questions, "one question", "choice", limit=7, takes_file=False)

def engine(settings, names, objects):
    raise NotImplementedError

DECLARED = EngineKind(
    engine, settings=frozenset({"ray_address"}), sends=False, tests_graders=False, in_batches=True
)

def passes(file, options):
    return FirstPasses((FirstPass(ASKED, None, None, Grade.CORRECT),))

def scores(evidence):
    return score_each(evidence.answers, lambda question_id, answer: 0.5)

PROVIDER = object()

COIN = Method("coin", "the toss of a coin", scores)

def export(runs, out):
    out.write_text("".join(run.title for run in runs))
    return [str(out)]
"""


@pytest.fixture
def another(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution, which registers one object of each of some kinds."""
    metadata = tmp_path / "another-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: another\nVersion: 1.0\n")
    executors = (
        "broken = no_such_module:engine",
        "declared = another_plugin:DECLARED",
        "plain = another_plugin:engine",
    )
    kinds = {
        "datasets": "capitals = another_plugin:questions\ncountries = another_plugin:COUNTRIES",
        "executors": "\n".join(executors),
        "importers": "atlas = another_plugin:passes",
        "graders": "lenient = another_plugin:grade",
        "exporters": "titles = another_plugin",
        "confidence_methods": "coin = another_plugin:COIN",
        "commands": "study = another_plugin:questions",
        "models": "\n".join(f"{name} = another_plugin:PROVIDER" for name in ("atlas", "together", "openai")),
    }
    lines = (f"[{PREFIX}{kind}]\n{line}\n" for kind, line in kinds.items())
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "another_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("another")
def test_a_dataset_of_a_plugin_is_loaded_and_listed():
    assert load_dataset("capitals").questions[0].gold == "Lima"
    assert "capitals" in dataset_names()
    assert len(load_dataset("capitals+almanac").questions) == 2


@pytest.mark.usefixtures("another")
def test_a_dataset_of_a_plugin_declares_its_defaults_or_has_none():
    assert (default_limit("capitals"), usual_grader("capitals"), dataset_source("capitals").note) == (None, None, "")
    assert (default_limit("countries"), usual_grader("countries")) == (7, "choice")
    assert dataset_source("countries").note in CliRunner().invoke(app, ["ls"]).stdout
    assert default_limit("capitals+countries") is None
    assert usual_grader("no such dataset") is None
    with pytest.raises(DatasetError, match=r"1 file \(capitals\)"):
        load_dataset("capitals+countries", data=["a.csv", "b.csv", "c.csv"])


@pytest.mark.usefixtures("another")
def test_an_engine_of_a_plugin_that_declares_nothing_checks_its_own_options():
    sending = Settings.from_values(engine="plain", engine_option=["poll=2"], detach=True).sending
    check_engines_own(sending)
    check_sends(sending)
    check_limits(Settings.from_values(engine="plain", max_requests=5))
    assert note_on(sending, ["openai/gpt-4.1"]) is None


@pytest.mark.usefixtures("another")
def test_an_engine_of_a_plugin_is_treated_as_it_declares():
    settings = Settings.from_values(engine="declared", price="2,8", batch_rate=0.5)
    check_engines_own(settings.changed(ray_address="auto").sending)
    with pytest.raises(SettingError, match="detach: requires engine batch, got declared"):
        check_engines_own(settings.changed(detach=True).sending)
    with pytest.raises(SettingError, match="ray_address: requires engine declared or ray, got direct"):
        check_engines_own(Settings.from_values(ray_address="auto").sending)
    with pytest.raises(SettingError, match=r"got declared; choose one of direct, batch, command, plain, ray$"):
        check_sends(settings.sending)
    with pytest.raises(SettingError, match="max_requests: engine declared sends nothing itself"):
        check_limits(settings.changed(max_requests=5))
    assert "does not first test the grader" in note_on(settings.sending, ["openai/gpt-4.1"])
    assert prices_as_sent(settings).model == Price(1, 4)
    assert prices_as_sent(settings.changed(engine="plain")).model == Price(2, 8)


@pytest.mark.usefixtures("another")
def test_a_format_of_a_plugin_is_imported(tmp_path):
    (tmp_path / "file.atlas").write_text("anything")
    found = import_file(tmp_path / "file.atlas", "atlas", ReadOptions(name="me"))
    assert [(one.model, one.question.question_id) for one in found.passes] == [("me", "q1")]


@pytest.mark.usefixtures("another")
def test_provider_of_a_plugin_is_found_by_its_prefix():
    provider, model = provider_of("atlas/large")
    assert provider is sys.modules["another_plugin"].PROVIDER
    assert model == "large"


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("name", ["together/any", "openai/any"])
def test_plugin_with_the_name_of_a_provider_is_refused_and_not_imported(monkeypatch, name):
    monkeypatch.delitem(sys.modules, "another_plugin", raising=False)
    with pytest.raises(entry_points.PluginError, match=r"another: it registers models named .* update or uninstall"):
        provider_of(name)
    assert "another_plugin" not in sys.modules


@pytest.mark.usefixtures("another")
def test_plugin_grader_resolves_to_its_function():
    assert grader_of("lenient") == (GraderKind.MODEL, ("python:another_plugin:grade",))
    assert grader_of("lenient,openai/a")[1] == ("python:another_plugin:grade", "openai/a")
    with pytest.raises(SettingError, match=r"expected one of .*lenient.*did you mean 'lenient'"):
        grader_of("lenien")


@pytest.mark.usefixtures("another")
def test_a_confidence_method_of_a_plugin_is_found(monkeypatch):
    monkeypatch.setattr(plan, "METHODS", dict(plan.METHODS))
    assert [one.name for one in plan.methods_of(["coin", "likelihood"])] == ["likelihood", "coin"]
    with pytest.raises(ConfidenceError, match="got 'coins'; did you mean 'coin'"):
        plan.methods_of(["coins"])


@pytest.mark.usefixtures("another")
def test_a_confidence_method_of_a_plugin_is_listed_and_scores(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "METHODS", dict(plan.METHODS))
    monkeypatch.setattr(scores, "METHODS", plan.METHODS)
    run = evaluate("almanac/small", limit=5, variants="high", out=tmp_path / "run")
    assert {method.name: reason for method, reason in scores.allowed(run.path, Settings.from_values()).items()}[
        "coin"
    ] is None
    table = confidence_scores(run, "coin")
    assert (table["method"].unique().to_list(), set(table["confidence"])) == (["coin"], {0.5})


@pytest.mark.usefixtures("another")
def test_an_exporter_of_a_plugin_writes(tmp_path):
    table = tmp_path / "outcomes.csv"
    table.write_text("question_id,model,refused,wrong\nq1,me,false,false\nq2,me,true,true\n")
    assert export_runs([table], "titles", tmp_path / "out.txt")[0] == str(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "me"
    with pytest.raises(ExportError, match=r"expected one of csv, .*, titles, wandb"):
        export_runs([table], "title", tmp_path / "out.txt")


@pytest.mark.usefixtures("another")
def test_plugins_cannot_override_own_names():
    for found in (entry_points.find("commands", "study"), entry_points.installed("commands")["study"]):
        assert found.value == REGISTERED["commands"]["study"]
