"""``refusal-index run --config``: every model of a configuration on every dataset of it, as one resumable set.

Everything is checked for all of them before the first request. Each model and dataset has a run's folder of its own,
named after its settings, so that a set may grow and a name may change without anything being paid for twice. What one
run of the set cannot do keeps none of the others from being done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from refusal_index.cli.bad_input import OptionError
from refusal_index.cli.config_file import Config, ConfigError, Entry, read_config
from refusal_index.cli.dry_run_show import show_dry_run
from refusal_index.cli.execution import Prepared, carry_out, models_of, prepare
from refusal_index.cli.job import RUNS, RunOptions, load_questions
from refusal_index.cli.matrix_show import show_set
from refusal_index.cli.run_set import CellResult, RunSet
from refusal_index.cli.shared_options import columns_of
from refusal_index.engines.inspect.models import ModelError, resolve_model
from refusal_index.engines.inspect.run import RunFailedError
from refusal_index.outcomes.presentation import escape as harmless

ONE_MODELS_OWN = ("model", "think", "reasoning_effort", "price")
"""Options that say which model, and so cannot stand beside a file of models."""

DATASET_GIVEN = ("dataset", "data", "column")
"""Options that take the place of all datasets of a file."""


def run_config(given: str, options: RunOptions, named: frozenset[str], *, dry_run: bool, as_json: bool) -> bool:
    """Run a configuration, print its results, and return whether every run of it is complete.

    Parameters
    ----------
    given
        The configuration, by path or name.
    options
        Those of the command line, or their defaults.
    named
        The names of those that stand on the command line; they go before what the file says.
    dry_run
        Say what would be sent, and send nothing.
    as_json
        Print JSON and nothing else.

    Raises
    ------
    ValueError
        One of this package's own, if anything in the configuration cannot be used; nothing was asked then.
    """
    _refuse_options_of_one_model(named)
    config = read_config(given)
    runs = RunSet(options.out or RUNS / config.name, config)
    runs.check()
    prepared = prepare_all(config, options, named, runs.path)
    if dry_run:
        return show_dry_run(prepared, as_json=as_json)
    check_models(prepared)
    with runs.held():
        results = _carry_out_all(prepared, runs)
    show_set(runs, results, as_json=as_json)
    return all(result.is_complete for result in results)


def prepare_all(config: Config, options: RunOptions, named: frozenset[str], runs: Path) -> list[Prepared]:
    """Check every model with every dataset and return their runs below the folder `runs`, model by model.

    Raises
    ------
    ConfigError
        If one of them cannot be used, or two of them are the same; the message names the tables.
    """
    entries = config.datasets
    if any(name in named for name in DATASET_GIVEN):
        entries = (Entry("the command line", None, {}),)
    datasets = []
    for entry in entries:
        with telling(entry.place):
            datasets.append((entry, load_questions(cell_options(options, named, config.defaults, entry.values))))
    prepared = []
    for model in config.models:
        for entry, dataset in datasets:
            with telling(f"{model.place} on {entry.place}"):
                cell = cell_options(options, named, config.defaults, entry.values, model.values)
                one = prepare(replace(cell, out=None), dataset, runs)
            prepared.append(replace(one, model=model.name or one.model, dataset=entry.name or one.dataset))
    _refuse_doubles(config.source, prepared)
    return prepared


def cell_options(options: RunOptions, named: frozenset[str], *tables: Mapping[str, Any]) -> RunOptions:
    """Return the options of one run: those on the command line first, then those of the last table, and so on.

    Raises
    ------
    OptionError
        If an entry of `column` is not as it should be.
    """
    given = {key: value for table in tables for key, value in table.items() if key not in named}
    if "column" in given:
        given["columns"] = columns_of(given.pop("column"))
    if "data" in given:
        given["data"] = [Path(file) for file in given["data"]]
    return replace(options, **given)


@contextmanager
def telling(place: str) -> Iterator[None]:
    """Put the place in a configuration before whatever is wrong with the input inside the block."""
    try:
        yield
    except ValueError as error:
        if not _is_own(error):
            raise
        raise ConfigError(f"{place}: {error}") from error


def check_models(prepared: Sequence[Prepared]) -> None:
    """Raise if a model that is still to be asked has no key, or lacks its package.

    Raises
    ------
    ModelError
        The message says what is missing.
    """
    names = {name: None for one in prepared if one.pending() for name in models_of(one.plan)}
    asyncio.run(_try(list(names)))


async def _try(names: Sequence[str]) -> None:
    """Resolve every model and close it again; what is wrong with one is told with the names of all others."""
    failed: dict[str, ModelError] = {}
    async with AsyncExitStack() as stack:
        for name in names:
            try:
                await stack.enter_async_context(resolve_model(name))
            except ModelError as error:
                failed[name] = error
    if failed:
        first, *others = failed
        more = f"; nor can these be asked: {', '.join(others)}" if others else ""
        raise ModelError(f"{failed[first]}{more}")


def _carry_out_all(prepared: Sequence[Prepared], runs: RunSet) -> list[CellResult]:
    """Carry out one run after the other; the set's summary is what is known so far, from the first on."""
    results = [CellResult(one) for one in prepared]
    runs.write(results)  # it has the names that the runs' own reports show
    for place, one in enumerate(prepared):
        typer.echo(f"{place + 1} of {len(prepared)}: {harmless(one.title)}", err=True)
        results[place] = _carry_out(one)
        runs.write(results)
    return results


def _carry_out(prepared: Prepared) -> CellResult:
    try:
        results = carry_out(prepared)
    except (RunFailedError, ValueError) as error:
        if not _is_own(error):
            raise
        typer.echo(f"error: {harmless(f'{prepared.title}: {error}')}", err=True)
        return CellResult(prepared, error=str(error))
    return CellResult(prepared, results.summary, results.document)


def _is_own(error: Exception) -> bool:
    return type(error).__module__.startswith("refusal_index.")


def _refuse_options_of_one_model(named: frozenset[str]) -> None:
    for name in ONE_MODELS_OWN:
        if name in named:
            option = name.replace("_", "-")
            raise OptionError(f"--{option}: a configuration says so of each model; write {name} under [[models]]")


def _refuse_doubles(source: str, prepared: Sequence[Prepared]) -> None:
    """Raise where two runs of a set would share a folder, or could not be told apart in its table."""
    folders: dict[Path, str] = {}
    titles: set[str] = set()
    for one in prepared:
        if one.folder.path in folders:
            raise ConfigError(
                f"{source}: {folders[one.folder.path]!r} and {one.title!r} are the same run: same model, questions and "
                "settings; remove one of them"
            )
        if one.title in titles:
            raise ConfigError(f"{source}: two runs are called {one.title!r}; tell them apart with 'name'")
        folders[one.folder.path] = one.title
        titles.add(one.title)
