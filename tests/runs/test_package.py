"""The public interface of the package: its names, what importing it loads and the common base of its errors."""

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
    "RunResults",
    "__version__",
    "abstention_reward",
    "compare",
    "confidence_scores",
    "dry_run",
    "evaluate",
    "evaluate_async",
    "export",
    "gate",
    "grade_reply",
    "load_prompt_set",
    "load_rule",
    "open_run",
    "plan",
    "rank",
    "read_reply",
    "refusal_index",
    "refusal_index_many",
    "score",
    "sensitivity",
    "stats",
    "study",
    "threshold",
]

USED_ELSEWHERE = {"RefusalIndexCallback"}
"""Names that tests need not import to know that they exist: transformers takes seconds, and trainers use this one."""

ERRORS = """
cli.console.OptionError
data.analysis.AnalysisError
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
models.calls.FunctionError
models.calls.ReturnedTypeError
models.connections.UnsolicitedResponseError
models.failures.EndedError
models.failures.NoAnswerError
models.failures.RequestFailedError
models.failures.UnreadableReplyError
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
plugins.confidence.rule.RuleError
plugins.inspect.IncompatibleError
plugins.inspect.two_pass.TwoPassError
plugins.paper.latex.PaperError
plugins.studies.inputs.ModelTableError
plugins.studies.study.NotPossibleError
plugins.studies.study.WritingError
plugins.trackers.tracker.ExportError
plugins.trackers.tracker.TrackerError
plugins.training.reward.RewardError
plugins.training.watch.TemplateError
plugins.wiki.build.BuildError
plugins.wiki.builder.BuildStoppedError
protocol.grading.GraderError
protocol.prompt_length.PromptLengthError
protocol.prompts.PromptSetError
replies.ReplyError
runs.config.ConfigError
runs.engine.RunFailedError
runs.engine.WaitingError
runs.rebuild.ComparabilityError
runs.results.UnfinishedError
runs.store.StoreGoneError
runs.store.StoreSharedError runs.store_check.StoreError
"""
"""Pinned so that additions and removals are noticed; the reference lists them."""


def test_public_names_are_pinned_and_exist():
    assert ri.__all__ == PUBLIC
    assert all(getattr(ri, name) is not None for name in set(PUBLIC) - USED_ELSEWHERE)
    assert set(PUBLIC) <= set(dir(ri))
    with pytest.raises(AttributeError, match="module 'refusal_index' has no attribute 'evaluat'"):
        _ = ri.evaluat


HEAVY = ("inspect_ai", "matplotlib", "numpy", "openai", "polars", "rich", "scipy", "typer")


def test_importing_the_package_loads_no_heavy_dependency():
    text = f"import sys, refusal_index; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.slow
def test_in_process_evaluation_loads_neither_inspect_nor_matplotlib_nor_engines_of_plugins():
    text = """
import sys, refusal_index as ri
settings = {"variants": "high", "grader": "exact", "model_name": "own", "out": "run"}
ri.evaluate(lambda messages: "<answer>1</answer>", [{"question": "1?", "answer": "1"}], **settings)
unused = ("inspect_ai", "matplotlib", "openai", "scipy.stats", "refusal_index.plugins.batches")
print([name for name in unused if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"


OPTIONAL_PACKAGES = {"ray"}


def errors() -> dict[str, type[BaseException]]:
    found = {}
    for module in pkgutil.walk_packages(ri.__path__, "refusal_index."):
        if module.name.endswith("__main__"):
            continue
        try:
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL_PACKAGES:
                raise
            continue
        for name, one in members:
            is_error = issubclass(one, BaseException) and not issubclass(one, Warning)
            if is_error and one.__module__.startswith("refusal_index"):
                found[f"{one.__module__.removeprefix('refusal_index.')}.{name}"] = one
    return found


def test_all_errors_share_one_root():
    found = errors()
    assert not [name for name, one in found.items() if not issubclass(one, ri.RefusalIndexError)]
    assert sorted(found) == ERRORS.split()


def test_every_error_also_has_a_builtin_base():
    for name, one in errors().items():
        if name not in {"errors.RefusalIndexError", "plugins.almanac.AlmanacError"}:
            assert issubclass(one, ValueError | RuntimeError | OSError), name
