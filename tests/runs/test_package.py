"""The face of the package: its public names, what importing it loads, and the one root of its errors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import refusal_index as ri

PUBLIC = [
    "ConfidenceInterval",
    "ContingencyTable",
    "RefusalIndexCallback",
    "RefusalIndexError",
    "RefusalIndexResult",
    "Run",
    "__version__",
    "compare",
    "confidence_scores",
    "dry_run",
    "evaluate",
    "evaluate_async",
    "export",
    "gate",
    "open_run",
    "rank",
    "refusal_index",
    "refusal_index_many",
    "stats",
    "study",
    "threshold",
]

ERRORS = """
cli.console.OptionError
data.datasets.dataset.DatasetError
data.first_pass.FirstPassError
data.outcome_table.ConfidenceError
data.text.PatternError
entry_points.PluginError
errors.NotWrittenError
errors.OutcomeTableError
errors.RefusalIndexError
errors.RunFolderError
errors.TableError
findings.gate_policy.PolicyError
models.failures.EndedError
models.failures.NoAnswerError
models.failures.RequestFailedError
models.failures.UnreadableReplyError
models.functions.FunctionError
models.requests.ModelError
models.settings.SettingError
plugins.almanac.AlmanacError
plugins.almanac.BatchLineError
plugins.almanac.ContextLengthError
plugins.almanac.ModelFileError
plugins.almanac.ModelNotFoundError
plugins.almanac.RequestError
plugins.batches.formats.ProviderError
plugins.batches.formats.ResultError
plugins.batches.journal.JournalError
plugins.batches.request_files.ResultFileError
plugins.confidence.hidden_states.WeightsError
plugins.confidence.method.TrainingError
plugins.inspect.IncompatibleError
plugins.studies.inputs.ModelTableError
plugins.studies.study.NotPossibleError
plugins.studies.study.WritingError
plugins.trackers.results.ExportError
plugins.trackers.results.TrackerError
plugins.training.watch.TemplateError
plugins.wiki.build.BuildError
plugins.wiki.builder.BuildStoppedError
protocol.grading.GraderError
protocol.prompts.PromptSetError
protocol.replies.PromptLengthError
runs.engine.RunFailedError
runs.engine.WaitingError
runs.results.UnfinishedError
runs.store.StoreGoneError
runs.store_check.StoreError
runs.sweep.ConfigError
runs.writing.ComparabilityError
"""
"""Pinned, so that one that goes or comes is seen; the reference lists them."""


def test_the_public_names_are_these_and_each_is_there():
    assert ri.__all__ == PUBLIC
    assert all(getattr(ri, name) is not None for name in PUBLIC)
    assert set(PUBLIC) <= set(dir(ri))
    with pytest.raises(AttributeError, match="module 'refusal_index' has no attribute 'evaluat'"):
        _ = ri.evaluat


HEAVY = ("inspect_ai", "matplotlib", "numpy", "openai", "polars", "rich", "scipy", "typer")


def test_importing_it_loads_nothing_of_what_it_may_need_later():
    told = f"import sys, refusal_index; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_evaluating_within_the_process_loads_no_inspect_and_no_matplotlib():
    told = """
import sys, refusal_index as ri
settings = {"variants": "high", "grader": "exact", "model_name": "own", "out": "run"}
ri.evaluate(lambda messages: "<answer>1</answer>", [{"question": "1?", "answer": "1"}], **settings)
print([name for name in ("inspect_ai", "matplotlib", "openai", "scipy.stats") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "[]\n"


OF_EXTRAS = {"ray"}


def errors() -> dict[str, type[BaseException]]:
    found = {}
    for module in pkgutil.walk_packages(ri.__path__, "refusal_index."):
        if module.name.endswith("__main__"):
            continue
        try:
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        except ModuleNotFoundError as error:
            if error.name not in OF_EXTRAS:
                raise
            continue
        for name, one in members:
            if issubclass(one, BaseException) and one.__module__.startswith("refusal_index"):
                found[f"{one.__module__.removeprefix('refusal_index.')}.{name}"] = one
    return found


def test_everything_that_can_reach_a_user_has_one_root():
    found = errors()
    assert not [name for name, one in found.items() if not issubclass(one, ri.RefusalIndexError)]
    assert sorted(found) == ERRORS.split()


def test_each_is_also_what_python_calls_it():
    for name, one in errors().items():
        if name not in {"errors.RefusalIndexError", "plugins.almanac.AlmanacError"}:
            assert issubclass(one, ValueError | RuntimeError | OSError), name
