"""Evaluating a model from Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console

from refusal_index.data.datasets import sample
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.errors import checked_path
from refusal_index.findings.dry_run import RunEstimate
from refusal_index.findings.run_results import RunResults, open_run
from refusal_index.models.functions import FIX, PREFIX, function_name, is_function_name
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.runs.arguments import SettingArguments
from refusal_index.runs.dry_run import estimate_run
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.progress import progress_bar
from refusal_index.runs.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from inspect_ai.model import Model

__all__ = [
    "dry_run",
    "evaluate",
    "evaluate_async",
    "open_run",
]


class EvaluateArguments(SettingArguments, total=False):
    """The keyword arguments that `evaluate`, `evaluate_async` and `dry_run` have in common."""

    grader: str | Model | Any
    model_name: str | None
    grader_name: str | None
    dataset_name: str | None
    columns: Mapping[str, str] | None
    out: str | Path | None


def evaluate(
    model: str | Model | Any = DEFAULT_MODEL,
    dataset: str | Path | Any = None,
    *,
    grader: str | Model | Any = None,
    model_name: str | None = None,
    grader_name: str | None = None,
    dataset_name: str | None = None,
    columns: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    progress: bool | Progress = False,
    **settings: Unpack[SettingArguments],
) -> RunResults:
    """Measure a model's Refusal Index in two passes, and return the run with its results.

    First the model may answer or refuse; then it must answer what it refused. Replies are stored in the run's folder as
    they arrive. Repeating the call resumes the run; no stored reply is requested again. It works in scripts, threads
    and notebooks; inside a running event loop, await `evaluate_async` instead.

    Parameters
    ----------
    model
        ``PROVIDER/NAME`` as in Inspect, or ``almanac/...`` for an embedded model; ``python:MODULE:FUNCTION``; an
        Inspect model; or any function or coroutine that takes a question's text and returns the reply's text,
        ``(text, confidence)``, or a dictionary with ``text``, ``confidence`` in [0, 1] and ``refused``. The function
        also gets ``must_answer``, ``context``, ``choices`` and ``messages`` if it declares them;
        ``must_answer`` is True in the second pass. If its first parameter is named ``messages``, it gets the messages,
        dictionaries with ``role`` and ``content``, instead of the question. A function that declares neither
        ``must_answer`` nor ``messages`` is an error, unless ``answered_only=True`` requests only the first pass: then
        there are rates, but RI is undefined.
    dataset
        A name, or several joined by ``+``; a file of questions; a data frame of pandas, Polars or Arrow; or a list of
        dictionaries. Default: the almanac.
    grader
        ``"exact"``, ``"includes"``, ``"choice"``, ``"regex"``, a model by name, two that must agree as in ``"A,B"``, an
        Inspect model, or a function that takes a `Question` and an answer's text and returns True, False or the name of
        a grade. Default: the dataset's. With a rule or a function, ``refusal`` defines a refusal: ``"wording"``,
        ``"tag"``, ``"+"`` and a regular expression, a compiled one, ``"@"`` and a file of them, ``"model:"`` and a
        model, or a function that takes an answer's text and returns True or False.
    model_name, grader_name
        Name of a function or object that has none by which it could be found again.
    dataset_name
        Name of a data frame or of dictionaries. Default: ``own``.
    columns
        Column names by role for your own questions, as in ``{"question": "problem"}``.
    out
        The run's folder. Default: a folder in ``runs``, named after the settings.
    progress
        Whether to show a progress bar, or a function that is called with every `Event`.
    settings
        Any other setting by name: ``variants``, ``limit``, ``draws``, ``temperature``, ``seed``, ``engine`` and the
        others in ``refusal-index run --help``, with underscores for dashes.

    Returns
    -------
    RunResults
        With ``summary``, ``outcomes``, ``refusal_index(variant)``, ``to_pandas()`` and ``report(path)``.

    Raises
    ------
    RefusalIndexError
        If an argument is invalid or the run cannot be completed; replies so far are stored.
    KeyboardInterrupt
        If the run is interrupted; replies so far are stored.

    References
    ----------
    Pan et al., *Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal in Factual Tasks*.

    Examples
    --------
    >>> def shy(question, *, must_answer=False):
    ...     return "Lima" if must_answer else "I don't know"
    >>> import tempfile
    >>> questions = [{"question": "What is the capital of Peru?", "answer": "Lima"}]
    >>> settings = {"variants": "high", "grader": "exact"}
    >>> run = evaluate(shy, questions, model_name="shy", out=tempfile.mkdtemp(), **settings)
    >>> run.outcomes["refused"].to_list(), run.outcomes["wrong"].to_list()
    ([True], [False])
    """
    plan = plan_of(
        model,
        dataset,
        grader=grader,
        model_name=model_name,
        grader_name=grader_name,
        dataset_name=dataset_name,
        columns=columns,
        out=out,
        **settings,
    )
    return run_to_completion(_execute(plan, progress))


async def evaluate_async(
    model: str | Model | Any = DEFAULT_MODEL,
    dataset: str | Path | Any = None,
    *,
    progress: bool | Progress = False,
    **arguments: Unpack[EvaluateArguments],
) -> RunResults:
    """Measure a model's Refusal Index inside a running event loop; the arguments are those of `evaluate`."""
    return await _execute(plan_of(model, dataset, **arguments), progress)


def dry_run(
    model: str | Model | Any = DEFAULT_MODEL,
    dataset: str | Path | Any = None,
    **arguments: Unpack[EvaluateArguments],
) -> RunEstimate:
    """Estimate the requests, tokens and cost of `evaluate` with the same arguments; nothing is sent or written."""
    return run_to_completion(estimate_run(plan_of(model, dataset, **arguments)))


def plan_of(
    model: Any,
    dataset: Any,
    *,
    grader: Any = None,
    model_name: str | None = None,
    grader_name: str | None = None,
    dataset_name: str | None = None,
    columns: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Plan:
    """Return the plan that `evaluate` would execute with these arguments; raises the same errors."""
    objects: dict[str, object] = {}
    settings["model"] = _name_of(model, model_name, "model", objects)
    if grader is not None:
        settings["grader"] = _name_of(grader, grader_name, "grader", objects)
    if isinstance(settings.get("refusal"), re.Pattern):
        settings["refusal"] = f"+{settings['refusal'].pattern}"
    elif callable(settings.get("refusal")):
        settings["refusal"] = _name_of(settings["refusal"], None, "refusal", objects)
    in_memory = False
    if isinstance(dataset, Path) or (isinstance(dataset, str) and is_table_file(dataset)):
        settings["data"] = [dataset]
    elif isinstance(dataset, str):
        settings["dataset"] = dataset
    else:
        in_memory = dataset is not None
    if dataset is None and dataset_name is not None:
        raise SettingError("{dataset}: expected questions, since dataset_name is given, got None")
    if columns and not in_memory:
        settings["column"] = columns
    questions = questions_from(dataset, columns, dataset_name or "own") if in_memory else None
    chosen = Settings.from_values(**settings)
    if questions is not None and chosen.questions.limit is not None:
        questions = sample(questions, chosen.questions.limit, chosen.seed)
    folder = None if out is None else checked_path(out, "out")
    return prepare(chosen, out=folder, dataset=questions, objects=objects)


NOTEBOOK_WIDTH = 80
"""Width of a progress bar in a notebook, in characters."""

TABLES = {".csv", ".jsonl", ".ndjson", ".parquet"}
"""Suffixes of files that can hold questions; text may be compressed, with a further suffix ``.gz``."""


def is_table_file(name: str) -> bool:
    """Whether a text names a file of questions rather than a dataset.

    >>> [is_table_file(name) for name in ("q.csv", "q.csv.gz", "Q.CSV", "simpleqa")]
    [True, True, True, False]
    """
    return Path(name.lower().removesuffix(".gz")).suffix in TABLES


def _name_of(value: Any, name: str | None, argument: str, objects: dict[str, object]) -> str:
    """Return the name of a model or grader, and register the object that it stands for."""
    if isinstance(value, str):
        return value
    if name is not None:
        called = f"{PREFIX}{name}"
    elif hasattr(value, "api") and hasattr(value, "generate"):  # a model of Inspect's
        called = str(value)
    elif callable(value):
        called = function_name(value, argument)
    else:
        raise ModelError(f"{argument}: expected a name, a model of Inspect's or a function, got {type(value).__name__}")
    objects[called] = value
    return called


async def _execute(plan: Plan, progress: bool | Progress) -> RunResults:
    if progress is True:
        size = sum(len(draws) for draws in plan.draws.values())
        console = Console(stderr=True)
        if console.is_jupyter:  # Rich would need ipywidgets to show a bar there; plain text needs nothing
            console = Console(stderr=True, force_jupyter=False, force_terminal=True, width=NOTEBOOK_WIDTH)
        with progress_bar(console, size, plan.prices) as bar:
            run = await execute(plan, bar)
    else:
        run = await execute(plan, ignore_events if progress is False else progress)
    errors = [failure.error for failure in run.missing if failure.error.startswith(f"{plan.settings.model} ")]
    if errors and is_function_name(plan.settings.model) and len(errors) == run.outcomes.height:
        raise RunFailedError(f"every question failed: {errors[0]}; {FIX}")
    return run
