"""Every model of a configuration on every dataset of it, as one resumable set.

Everything is checked for all of them before the first request. Each model and dataset has a run's folder of its own,
named after its settings, so that a set may grow and a name may change without anything being paid for twice. What one
run of the set cannot do keeps none of the others from being done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import ModelError, WaitingError
from refusal_index.engines.events import Progress, Underway
from refusal_index.engines.registry import RAY, engine_of
from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Limits, Settings
from refusal_index.engines.waves.in_flight import check_forgotten, journal_of
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.configuration import Config, ConfigError, Entry, read_config
from refusal_index.evaluation.looks import bring_to_end
from refusal_index.evaluation.passes import (
    News,
    first_wait,
    is_over,
    longer,
    pause,
    settings_alone,
    waits_for_batches,
)
from refusal_index.evaluation.plan import RUNS, Plan, load_questions, prepare
from refusal_index.evaluation.run import Run
from refusal_index.evaluation.stores import open_store
from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.run_sets import SET_VERSION, SUMMARY, set_document
from refusal_index.outcomes.summary import Summary
from refusal_index.protocol import Asked

Watched = Callable[[int, Plan], AbstractContextManager[Progress]]
"""Gives what is told of a run's progress, for its place in a set."""

DATASET_GIVEN = ("dataset", "data", "column")
"""Settings that take the place of all datasets of a file."""


@dataclass(frozen=True)
class CellResult:
    """What became of one run of a set.

    Attributes
    ----------
    plan
        The run.
    run
        Its results; None where there are none yet.
    error
        What kept it from its end.
    waits
        What it waits for, where there are no results yet.
    """

    plan: Plan
    run: Run | None = None
    error: str | None = None
    waits: str | None = None

    @property
    def status(self) -> str:
        """``complete``, ``incomplete`` (too much is unscored), ``failed``, ``waiting`` or ``pending``."""
        if self.run is None:
            return "failed" if self.error is not None else "waiting" if self.waits is not None else "pending"
        return "complete" if self.run.is_complete else "incomplete"

    @property
    def is_waiting(self) -> bool:
        """Whether it ended as it was told to, before all was asked."""
        return self.waits is not None or (self.run is not None and self.run.ended is not None)

    @property
    def labelled(self) -> Summary | None:
        """The summary with the names that the set has for model and dataset."""
        if self.run is None:
            return None
        model, dataset = self.plan.title
        summary = self.run.summary
        return replace(
            summary,
            variants=tuple(replace(variant, model=model, dataset=dataset) for variant in summary.variants),
            pooled=tuple(replace(pooled, model=model, dataset=dataset) for pooled in summary.pooled),
        )


@dataclass(frozen=True)
class Sweep:
    """A set of runs, the folder that they lie in, and the configuration that it is of.

    Attributes
    ----------
    path, config
        Of the set.
    plans
        Its runs, model by model.
    """

    path: Path
    config: Config
    plans: tuple[Plan, ...]

    @property
    def summary(self) -> Path:
        """The summary of all runs."""
        return self.path / SUMMARY

    def write(self, results: Sequence[CellResult]) -> None:
        """Replace the set's summary."""
        write_atomically(self.summary, self.to_json(results).encode())

    def to_json(self, results: Sequence[CellResult]) -> str:
        """Give the set's summary as JSON text."""
        return json.dumps(self.to_document(results), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_document(self, results: Sequence[CellResult]) -> dict[str, Any]:
        """Give the set's summary as JSON holds it."""
        return {
            "set_version": SET_VERSION,
            "name": self.config.name,
            "config": {"source": self.config.source, "sha256": self.config.sha256},
            "complete": all(result.status == "complete" for result in results),
            "runs": [run_document(result) for result in results],
        }


def prepare_sweep(
    given: str, settings: Settings, values: Mapping[str, Any] | None = None, out: Path | None = None
) -> Sweep:
    """Check every model of a configuration with every dataset of it.

    Parameters
    ----------
    given
        The configuration, by path or name.
    settings
        Those that hold where neither `values` nor the file says otherwise.
    values
        Settings by name that go before what the file says.
    out
        The set's folder; without it, one below `runs` that is named after the configuration.

    Raises
    ------
    RefusalIndexError
        If anything in the configuration cannot be used, two runs are the same, or the folder is something else.
    """
    config, values = read_config(given), values or {}
    path = out or RUNS / config.name
    _check_folder(path)
    entries = config.datasets
    if any(name in values for name in DATASET_GIVEN):
        entries = (Entry("the command line", None, {}),)
    datasets = []
    for entry in entries:
        with telling(entry.place):
            datasets.append((entry, load_questions(settings.changed(**{**config.defaults, **entry.values, **values}))))
    plans = []
    for model in config.models:
        for entry, dataset in datasets:
            with telling(f"{model.place} on {entry.place}"):
                chosen = settings.changed(**{**config.defaults, **entry.values, **model.values, **values})
                plan = prepare(chosen, dataset=dataset, runs=path)
            title = (model.name or plan.title[0], entry.name or plan.title[1])
            plans.append(replace(plan, title=title))
    _refuse_doubles(config.source, plans)
    return Sweep(path, config, tuple(plans))


async def check_models(plans: Sequence[Plan]) -> None:
    """Raise if a model that is still to be asked has no key, or lacks its package.

    Raises
    ------
    ModelError
        The message says what is missing, and names all others that cannot be asked.
    """
    failed: dict[str, ModelError] = {}
    seen, clusters = set(), set()
    for plan in plans:
        with open_store(plan.folder, made=False) as store:
            if not plan.pending(store):
                continue
        for name in plan.names.values():
            if name in seen:
                continue
            seen.add(name)
            only, sending = {Asked.MODEL: name}, plan.settings.sending  # graders too, else they would be asked
            try:
                engine = engine_of(sending.engine)(plan.settings, only, plan.objects)
                if sending.engine == RAY and sending.ray_address in clusters:
                    continue  # to open it for each model would start a cluster for each
                async with engine.open():
                    clusters.add(sending.ray_address)
            except ModelError as error:
                failed.setdefault(name, error)
    if failed:
        first, *others = failed
        more = f"; nor can these be asked: {', '.join(others)}" if others else ""
        raise ModelError(f"{failed[first]}{more}")


async def carry_out_sweep(sweep: Sweep, watched: Watched, budget: Budget | None = None) -> AsyncIterator[CellResult]:
    """Carry out one run after the other; the set's summary is what is known so far, from the first on.

    Runs in batches are begun one after the other, so that the first waves of all are on their way together; whichever
    has something to collect goes on, until all have come to their end or are to be detached.

    Parameters
    ----------
    sweep
        The set, held by the caller.
    watched
        Gives, for each run and its place in the set, what is told of its progress.
    budget
        What they may use together; None for what their settings say.
    """
    results = [CellResult(plan) for plan in sweep.plans]
    budget = budget or Budget(sweep.plans[0].settings.limits)
    _count_earlier(sweep, budget)
    sweep.write(results)  # it has the names that the runs' own reports show
    places, wait = list(range(len(results))), 0.0

    def tell(plan: Plan, note: str) -> None:
        with watched(sweep.plans.index(plan), plan) as progress:
            progress(Underway(note, is_news=True))

    check_forgotten(sweep.plans[0].settings.sending.forget, [journal_of(one.folder) for one in sweep.plans])
    news = News(tell)
    while places:
        waiting = []
        for place in places:
            if budget.ended is not None:
                return
            plan = sweep.plans[place]
            is_asked_first = bool(wait) and not is_over(budget)
            found = await _cell(place, plan, watched, budget, news if is_asked_first else None)
            if found is None:
                waiting.append(place)
                continue
            results[place] = found
            sweep.write(results)
            if results[place].is_waiting and waits_for_batches(plan, budget):
                waiting.append(place)
            else:
                yield results[place]
        wait = longer(wait) if wait and waiting == places else first_wait(sweep.plans)
        places = waiting
        if places:
            await pause(wait, budget)


async def _cell(place: int, plan: Plan, watched: Watched, budget: Budget, news: News | None) -> CellResult | None:
    """Carry out one run, if it has news; one in batches only as far as it comes without waiting."""
    carried = replace(plan, settings=settings_alone(plan))
    try:
        if news is not None and not await news.of(plan):
            return None
        with watched(place, plan) as progress:
            return CellResult(plan, await bring_to_end(carried, progress, budget))
    except WaitingError as error:
        return CellResult(plan, waits=str(error))
    except RefusalIndexError as error:
        return CellResult(plan, error=str(error))


def _count_earlier(sweep: Sweep, budget: Budget) -> None:
    """Count what the runs of a set took earlier, also of those that need nothing more: the budget is the set's."""
    for plan in sweep.plans if sweep.plans[0].settings.limits != Limits() else ():
        with open_store(plan.folder, made=False) as store:
            budget.count_earlier(plan.folder.path, chain(store.replies(), store.retired()), plan.prices)


@contextmanager
def telling(place: str) -> Iterator[None]:
    """Put the place in a configuration before whatever is wrong with the input inside the block."""
    try:
        yield
    except RefusalIndexError as error:
        raise ConfigError(f"{place}: {error.message if isinstance(error, SettingError) else error}") from error


def _check_folder(path: Path) -> None:
    """Raise if the folder of a set is something else."""
    if (path / "run.json").exists():
        raise RunFolderError(f"{path} is the folder of a single run; choose another one for the set")
    if (path / SUMMARY).exists() and "set_version" not in set_document(path):
        raise RunFolderError(f"{path / SUMMARY} is not the summary of a set; choose another folder")


def _refuse_doubles(source: str, plans: Sequence[Plan]) -> None:
    """Raise where two runs of a set would share a folder, or could not be told apart in its table."""
    folders: dict[Path, str] = {}
    titles: set[str] = set()
    for one in plans:
        if one.folder.path in folders:
            raise ConfigError(
                f"{source}: {folders[one.folder.path]!r} and {one.called!r} are the same run: same model, questions "
                "and settings; remove one of them"
            )
        if one.called in titles:
            raise ConfigError(f"{source}: two runs are called {one.called!r}; tell them apart with 'name'")
        folders[one.folder.path] = one.called
        titles.add(one.called)


def index_of(summary: Summary) -> dict[str, Any] | None:
    """Return the Refusal Index of a run: jointly over its variants, or of its only one; None where it has none."""
    if not summary.variants:
        return None
    if summary.pooled:
        variants, index = summary.pooled[0].variants, summary.pooled[0].refusal_index
    else:
        variants, index = (str(summary.variants[0].variant),), summary.variants[0].index
    return {"variants": variants, **index.to_document()}


def run_document(result: CellResult) -> dict[str, Any]:
    """Give one run of a set as the summary of the set holds it."""
    index = index_of(result.run.summary) if result.run else None
    model, dataset = result.plan.title
    return {
        "model": model,
        "dataset": dataset,
        "folder": result.plan.folder.path.name,
        "status": result.status,
        "error": result.error,
        "waits": result.waits,
        "refusal_index": index,
        "summary": result.run.document if result.run else None,
    }
