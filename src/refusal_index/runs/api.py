"""Evaluating a model from Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rich.console import Console

from refusal_index.data.datasets import DatasetError, sample
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.errors import checked_path
from refusal_index.models.functions import FIX, PREFIX, function_name, is_function_name
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import ReasoningEffort, SettingError
from refusal_index.runs.dry_run import RunEstimate, estimate_run
from refusal_index.runs.engine import Progress, RunFailedError, unwatched
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.progress import progress_bar
from refusal_index.runs.settings import Settings
from refusal_index.runs.writing import Run, open_run, run_to_completion

if TYPE_CHECKING:
    from inspect_ai.model import Model

__all__ = [
    "dry_run",
    "evaluate",
    "evaluate_async",
    "open_run",
]


class SettingArguments(TypedDict, total=False):
    """The settings of `refusal_index.runs.settings`, which describes them, as typed keyword arguments."""

    refusal: str | re.Pattern[str] | Callable[[str], bool]
    log_to: str | Sequence[str]
    seed: int
    data: str | Path | Sequence[str | Path]
    column: Mapping[str, str] | str | Sequence[str]
    limit: int | None
    draws: int | None
    answered_only: bool
    repeat_questions: int | None
    prompts: str
    variants: str | Sequence[str]
    placement: str
    think: str
    temperature: float
    top_p: float
    max_tokens: int
    reasoning_effort: ReasoningEffort | None
    engine: str
    max_connections: int | None
    max_retries: int
    attempt_timeout: int
    max_choices: int
    logprobs: bool
    retry: str | Sequence[str]
    detach: bool
    command: str | None
    ray_address: str | None
    engine_option: Mapping[str, str] | str | Sequence[str]
    max_requests: int | None
    max_cost: float | None
    max_time: float | None
    half_width: float | None
    looks: int
    price: str | None
    grader_price: str | None
    batch_rate: float | None
    penalty: float
    truthfulness_weights: str
    assume_refusal: float | None
    reply_tokens: int | None
    seconds_per_request: float


class EvaluateArguments(SettingArguments, total=False):
    """The keyword arguments that `evaluate`, `evaluate_async` and `dry_run` have in common."""

    grader: str | Model | Any
    model_name: str | None
    grader_name: str | None
    dataset_name: str | None
    columns: Mapping[str, str] | None
    out: str | Path | None


def evaluate(
    model: str | Model | Any = "almanac/base",
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
) -> Run:
    """Measure a model's Refusal Index in two passes, and return the run with its results.

    First the model may answer or refuse, then it must answer what it refused. Every reply is kept in the run's folder
    as it comes: the same call again resumes, and asks nothing twice. It may be called in a script, in a thread and in a
    notebook; where a loop runs, `evaluate_async` does the same to await.

    Parameters
    ----------
    model
        ``PROVIDER/NAME`` as Inspect names it, or ``almanac/...`` for an embedded one; ``python:MODULE:FUNCTION``; a
        model of Inspect's; or any function or coroutine from a question's text to the reply's text. The function also
        gets ``must_answer``, ``context``, ``choices`` and ``messages`` where it declares them: ``must_answer`` is True
        in the second pass. A function whose first parameter is named ``messages`` gets the messages, dictionaries with
        ``role`` and ``content``, in place of the question. One that declares neither ``must_answer`` nor ``messages``
        is an error, unless ``answered_only=True`` asks the first pass alone: then there are rates, but RI is undefined.
    dataset
        A name, or several joined by ``+``; a file of questions; a data frame of pandas, Polars or Arrow; or a list of
        dictionaries. The almanac where there is none.
    grader
        ``"exact"``, ``"choice"``, ``"regex"``, a model by name, two that must agree as in ``"A,B"``, a model of
        Inspect's, or a function from a `Question` and an answer's text to True, False or a grade's name. The dataset's
        own unless given. Beside a rule, ``refusal`` says what a refusal is: ``"wording"``, ``"tag"``, a regular
        expression, or a function from a reply's text to True or False.
    model_name, grader_name
        What to call a function or object that has no name to be found again by.
    dataset_name
        What to call a data frame or dictionaries; ``own`` unless given.
    columns
        Column names by role, as in ``{"question": "problem"}``, for questions of one's own.
    out
        The run's folder; without it, one below ``runs`` that is named after the settings.
    progress
        Whether to show a bar, or a function that is told every `Event`.
    settings
        Any other setting by its name: ``variants``, ``limit``, ``draws``, ``temperature``, ``seed``, ``engine`` and all
        others that ``refusal-index run --help`` lists, with an underscore for each dash.

    Returns
    -------
    Run
        With ``summary``, ``outcomes``, ``refusal_index(variant)``, ``to_pandas()`` and ``report(path)``.

    Raises
    ------
    RefusalIndexError
        If anything about the input cannot be used, or the run could not be brought to its end: what was answered is
        kept.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.

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
    model: str | Model | Any = "almanac/base",
    dataset: str | Path | Any = None,
    *,
    progress: bool | Progress = False,
    **arguments: Unpack[EvaluateArguments],
) -> Run:
    """Measure a model's Refusal Index inside a running event loop; the arguments are those of `evaluate`."""
    return await _execute(plan_of(model, dataset, **arguments), progress)


def dry_run(
    model: str | Model | Any = "almanac/base",
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
        settings["refusal"] = settings["refusal"].pattern
    elif callable(settings.get("refusal")):
        settings["refusal"] = _name_of(settings["refusal"], None, "refusal", objects)
    in_memory = False
    if isinstance(dataset, Path) or (isinstance(dataset, str) and Path(dataset).suffix in TABLES):
        settings["data"] = [dataset]
    elif isinstance(dataset, str):
        settings["dataset"] = dataset
    else:
        in_memory = dataset is not None
    if dataset is None and dataset_name is not None:
        raise SettingError("{dataset}: expected questions, since dataset_name is given, got None")
    if columns and not in_memory:
        settings["column"] = columns
    try:
        questions = questions_from(dataset, columns, dataset_name or "own") if in_memory else None
        chosen = Settings.from_values(**settings)
        if questions is not None and chosen.questions.limit is not None:
            questions = sample(questions, chosen.questions.limit, chosen.seed)
        folder = None if out is None else checked_path(out, "out")
        return prepare(chosen, out=folder, dataset=questions, objects=objects)
    except DatasetError as error:
        error.is_for_python = True
        raise


NOTEBOOK_WIDTH = 80
"""Width of a progress bar in a notebook, in characters."""

TABLES = {".csv", ".jsonl", ".ndjson", ".parquet"}
"""Suffixes of files that can hold questions."""


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


async def _execute(plan: Plan, progress: bool | Progress) -> Run:
    if progress is True:
        size = sum(len(draws) for draws in plan.draws.values())
        console = Console(stderr=True)
        if console.is_jupyter:  # Rich would need ipywidgets to show a bar there; plain text needs nothing
            console = Console(stderr=True, force_jupyter=False, force_terminal=True, width=NOTEBOOK_WIDTH)
        with progress_bar(console, size, plan.prices) as bar:
            run = await execute(plan, bar)
    else:
        run = await execute(plan, unwatched if progress is False else progress)
    errors = {failure.error for failure in run.missing}
    error = next(iter(errors), None) if len(errors) == 1 and len(run.missing) == run.outcomes.height else None
    if error is not None and is_function_name(plan.settings.model) and error.startswith(f"{plan.settings.model} "):
        raise RunFailedError(f"{error}, for every question; {FIX}")
    return run
