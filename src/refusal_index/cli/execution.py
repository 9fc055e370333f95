"""One run of a model on a dataset: prepared, so that everything wrong with it is told first, and then carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from refusal_index.almanac.models import model_names
from refusal_index.cli.job import RUNS, RunOptions, about, make_plan, settings_of
from refusal_index.cli.progress import progress_bar
from refusal_index.cli.results import RunResults, show_run, write_results
from refusal_index.datasets import Dataset
from refusal_index.engines.inspect.models import provider_names, resolve_model
from refusal_index.engines.inspect.progress import watched_by
from refusal_index.engines.inspect.run import (
    Models,
    RunFailedError,
    RunPlan,
    pending_variants,
    resolve_models,
    run_variants,
)
from refusal_index.engines.inspect.samples import Repetition
from refusal_index.outcomes.folder import RunFolder, default_run_name
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.price import Prices
from refusal_index.outcomes.settings import as_json, refuse_other_settings
from refusal_index.outcomes.summary import is_complete
from refusal_index.protocol import PromptSet, load_prompt_set

ALMANAC = "almanac"


@dataclass(frozen=True)
class Prepared:
    """A run that only needs to be carried out.

    Attributes
    ----------
    options
        As given.
    prompts, plan, prices
        What they come to.
    settings
        All that a reply or a grade depends on.
    folder
        Where the run lies, or will.
    model, dataset
        What to call them: a configuration may have names of its own for them.
    """

    options: RunOptions
    prompts: PromptSet
    plan: RunPlan
    prices: Prices
    settings: Mapping[str, Any]
    folder: RunFolder
    model: str
    dataset: str

    @property
    def title(self) -> str:
        """What to call the run."""
        return f"{self.model} on {self.dataset}"

    def pending(self) -> dict[str, Repetition]:
        """Return the variants that are still to be run."""
        return pending_variants(self.plan, self.folder)


def prepare(options: RunOptions, dataset: Dataset | None = None, runs: Path = RUNS) -> Prepared:
    """Check everything that can be checked before a model is named to its provider.

    Parameters
    ----------
    options
        As given.
    dataset
        The questions, where they were loaded before.
    runs
        Where the run's folder lies, unless the options name it.

    Raises
    ------
    ValueError
        One of this package's own, if an option, the dataset or the name of a model cannot be used, or the folder is
        that of another run.
    """
    prices = Prices.parse(options.price, options.grader_price)
    prompts = load_prompt_set(options.prompts)
    plan = make_plan(options, prompts, dataset)
    for name in models_of(plan):
        check_model_name(name)
    settings = settings_of(plan, prompts)
    folder = RunFolder(options.out or runs / default_run_name(plan.model, plan.dataset.name, settings))
    if folder.run_json.exists():
        refuse_other_settings(folder.path, folder.read_settings(), as_json(settings))
    return Prepared(options, prompts, plan, prices, settings, folder, plan.model, plan.dataset.name)


def models_of(plan: RunPlan) -> tuple[str, ...]:
    """Return the names of all models that a run asks."""
    return tuple(name for name in (plan.model, plan.grader, plan.second_grader) if name is not None)


def check_model_name(name: str) -> None:
    """Raise if no provider has such a name, or an embedded model that is none; no key is needed.

    Raises
    ------
    ModelError
        The message names the nearest.
    """
    provider, _, rest = name.partition("/")
    known = rest in model_names() if provider == ALMANAC else rest and provider in provider_names()
    if not known:
        resolve_model(name)  # says what is wrong with it


def carry_out(prepared: Prepared) -> RunResults:
    """Ask what is still to be asked, and write the results into the run's folder.

    Raises
    ------
    ValueError
        One of this package's own, if a model or the folder cannot be used.
    RunFailedError
        If the run could not be brought to its end; what was answered is kept.
    """
    plan, folder, prices = prepared.plan, prepared.folder, prepared.prices
    penalty, pending = prepared.options.penalty, prepared.pending()
    models = resolve_models(plan) if pending else None  # a wrong name or a missing key is told before a folder is made
    with folder.lock():
        folder.create_or_resume(prepared.settings, about=about(plan, prepared.prompts, prices, penalty))
        if models:
            _ask(prepared, models, pending)
        return write_results(folder, prices, penalty=penalty)


def measure(options: RunOptions, *, as_json: bool) -> bool:
    """Run what was asked, print it, and return whether enough of it is there.

    Raises
    ------
    ValueError
        One of this package's own, if an option, the dataset, a model or the folder cannot be used.
    """
    prepared = prepare(options)
    try:
        results = carry_out(prepared)
    except RunFailedError as error:
        typer.echo(f"error: {harmless(str(error))}", err=True)
        return False
    show_run(results, as_json=as_json)
    return is_complete(results.summary)


def _ask(prepared: Prepared, models: Models, pending: Mapping[str, Repetition]) -> None:
    plan = prepared.plan
    size = len(plan.dataset.questions)
    with progress_bar(Console(stderr=True), size * len(plan.variants), prepared.prices) as bar, watched_by(bar):
        bar.skip(size * (len(plan.variants) - len(pending)))
        run_variants(plan, models, prepared.folder, pending, begin=bar.begin)
