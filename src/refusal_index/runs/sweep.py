"""Sets of runs: every model of a configuration on every dataset, resumable as a whole.

All runs are checked before the first request. Each model and dataset has a run's folder of its own, named after its
settings, so a set can grow and entries can be renamed without paying for anything twice. A run that fails does not stop
the others.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from refusal_index.data.datasets import Dataset
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import addresses_in, as_json, default_run_name
from refusal_index.data.run_sets import SUMMARY, set_document
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.models.accounts import address_of
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import FORGET, Servers
from refusal_index.protocol import Role
from refusal_index.runs.budget import Budget
from refusal_index.runs.config import Config, ConfigError, Entry, merged, prefixing_errors, read_config
from refusal_index.runs.engine import MAX_WAIT, Poll
from refusal_index.runs.engines import engine_of
from refusal_index.runs.events import Progress, Underway
from refusal_index.runs.execute import execute
from refusal_index.runs.outstanding import batches_of, check_forgotten
from refusal_index.runs.plan import RUNS, Plan, in_folder, load_questions, prepare
from refusal_index.runs.run_set import SetRun, set_summary, write_set_summary
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.store import open_store

Watched = Callable[[int, Plan], AbstractContextManager[Progress]]
"""Returns the progress callback of a run, given its position in the set."""

DATASET_GIVEN = ("dataset", "data", "column")
"""Settings that replace all datasets of a file."""


@dataclass(frozen=True)
class Sweep:
    """A set of runs, with its folder and its configuration.

    Attributes
    ----------
    path, config
        The folder and the configuration.
    plans
        Its runs, model by model.
    """

    path: Path
    config: Config
    plans: tuple[Plan, ...]

    def to_document(self, results: Sequence[SetRun]) -> dict[str, Any]:
        """Return the set's summary as a JSON-serialisable dictionary."""
        source = {"source": self.config.source, "sha256": self.config.sha256}
        return set_summary(self.config.name, [result.to_document() for result in results], config=source)


def prepare_sweep(
    source: str, values: Mapping[str, Any] | None = None, out: Path | None = None, *, imports: bool = True
) -> Sweep:
    """Plan every model of a configuration on every dataset, and check all plans.

    Parameters
    ----------
    source
        The configuration, by path or name.
    values
        Settings by name that override the file.
    out
        The set's folder; by default one below `runs`, named after the configuration.
    imports
        As for `prepare`.

    Raises
    ------
    RefusalIndexError
        If the configuration is invalid, two runs are the same, or the folder is not a set's.
    """
    config = read_config(source)
    values = values or {}
    path = out or RUNS / config.name
    if (path / "run.json").exists():
        raise RunFolderError(f"{path} is the folder of a single run; choose another one for the set")
    if (path / SUMMARY).exists() and "set_version" not in set_document(path):
        raise RunFolderError(f"{path / SUMMARY} is not the summary of a set; choose another folder")
    given = (Entry("the command line", None, {}),) if any(name in values for name in DATASET_GIVEN) else None
    datasets: dict[str, Dataset] = {}
    plans = []
    for model in config.models:
        for entry in given or config.datasets_of(model):
            if entry.place not in datasets:
                with prefixing_errors(entry.place):
                    chosen = Settings.from_values(**merged(config.defaults, entry.values, values))
                    datasets[entry.place] = load_questions(chosen)
            dataset = datasets[entry.place]
            with prefixing_errors(f"{model.place} on {entry.place}"):
                chosen = Settings.from_values(**merged(config.defaults, entry.values, model.values, values))
                plan = prepare(chosen, dataset=dataset, runs=path, imports=imports)
            title = (model.name or plan.title[0], entry.name or plan.title[1])
            plans.append(replace(plan, title=title))
    plans = _with_own_folders(path, plans)
    _refuse_doubles(config.source, plans)
    return Sweep(path, config, tuple(plans))


def _with_own_folders(path: Path, plans: Sequence[Plan]) -> list[Plan]:
    """Give runs that only their addresses tell apart a folder of their own, which has the model's display name.

    A folder that a run has from before is kept, so that a set can grow and shrink without paying for anything twice.
    """
    identities = Counter(map(_identity, plans))
    found = []
    for plan in plans:
        url = plan.settings.servers.base_url
        own = RunFolder(path / default_run_name(plan.title[0], plan.dataset.name, plan.identity))
        is_one_of_several = identities[_identity(plan)] > 1 and not _was_asked_at(plan.folder, url)
        if url is not None and (own.run_json.exists() or is_one_of_several):
            found.append(in_folder(plan, own))
        else:
            found.append(plan)
    return found


def _identity(plan: Plan) -> str:
    return json.dumps(as_json(plan.identity), sort_keys=True)


def _was_asked_at(folder: RunFolder, url: str | None) -> bool:
    """Whether a run asked its model at this address and no other."""
    if url is None or not folder.run_json.exists():
        return False
    return addresses_in(folder.read_about()).get(Role.MODEL) == [address_of(url)]


async def check_models(plans: Sequence[Plan]) -> None:
    """Raise if a model with pending requests lacks its API key or its package.

    Raises
    ------
    ModelError
        The message says what is missing, and names all models that cannot be asked.
    """
    failed: dict[str, ModelError] = {}
    names_seen = set()
    opened = set()
    for plan in plans:
        with open_store(plan.folder, made=False) as store:
            if not plan.pending(store):
                continue
        for role, name in plan.names.items():
            servers = Servers(*plan.settings.servers.of_role(role))
            if (name, servers) in names_seen:
                continue
            names_seen.add((name, servers))
            only = {Role.MODEL: name}  # graders too, otherwise they would be asked
            own = plan.settings if role is Role.MODEL else plan.settings.changed(model_args=())
            sending = own.sending
            try:
                kind = engine_of(sending.engine)
                engine = kind.make(replace(own, servers=servers), only, plan.objects)
                if kind.opens_alike and sending in opened:
                    continue
                async with engine.open():
                    opened.add(sending)
            except ModelError as error:
                failed.setdefault(name, error if role is Role.MODEL else _of_grader(error))
    if failed:
        first, *others = failed
        more = f"; nor can these be asked: {', '.join(others)}" if others else ""
        raise ModelError(f"{failed[first]}{more}")


def _of_grader(error: ModelError) -> ModelError:
    """Return an error of a grader that was opened as a model, with the names of the grader's own settings."""
    return ModelError(re.sub(r"\{(base_url|api_key_env)\}", r"{grader_\1}", error.message))


async def execute_sweep(sweep: Sweep, watched: Watched, budget: Budget | None = None) -> AsyncIterator[SetRun]:
    """Execute the runs one after the other; the set's summary is written after each.

    Runs in batches are started one after the other, so that their first rounds are in flight together. Each continues
    when it has results to collect, until all are finished or detached.

    Parameters
    ----------
    sweep
        The set; the caller holds its lock.
    watched
        Returns the progress callback for each run and its position in the set.
    budget
        The budget of all runs together; None for the one in their settings.
    """
    results = [SetRun(plan) for plan in sweep.plans]
    budget = budget or Budget(sweep.plans[0].settings.limits)
    for plan in sweep.plans if sweep.plans[0].settings.limits != Limits() else ():  # the budget is the set's
        with open_store(plan.folder, made=False) as store:
            budget.count_earlier(plan.folder.path, store.paid(), plan.prices)
    write_set_summary(sweep.path, sweep.to_document(results))  # it has the display names of the runs' own reports
    indices = list(range(len(results)))
    wait = 0.0

    def tell(plan: Plan, note: str) -> None:
        with watched(sweep.plans.index(plan), plan) as progress:
            progress(Underway(note, is_notice=True))

    polls = [
        engine_of(plan.settings.sending.engine).poller(
            plan.folder, plan.settings, plan.names, plan.objects, partial(tell, plan)
        )
        for plan in sweep.plans
    ]
    if forget := sweep.plans[0].settings.sending.forget:
        check_forgotten(forget, {name: flag for plan in sweep.plans for name, flag in batches_of(plan.folder).items()})
    while indices:
        waiting = []
        for index in indices:
            if budget.ended is not None:
                return
            plan = sweep.plans[index]
            is_asked_first = bool(wait) and not budget.is_over
            result = await _cell(index, plan, watched, budget, polls[index] if is_asked_first else None)
            if result is None:
                waiting.append(index)
                continue
            results[index] = result
            write_set_summary(sweep.path, sweep.to_document(results))
            if results[index].is_waiting and _is_waited_for(plan, budget):
                waiting.append(index)
            else:
                yield results[index]
        settings_waiting = (sweep.plans[index].settings for index in waiting)
        first = min((engine_of(one.sending.engine).first_wait(one) for one in settings_waiting), default=MAX_WAIT)
        wait = min(wait * 2, MAX_WAIT) if wait and waiting == indices else first
        indices = waiting
        if indices:
            await budget.sleep(wait)


async def _cell(index: int, plan: Plan, watched: Watched, budget: Budget, poll: Poll | None) -> SetRun | None:
    """Execute one run, if it has anything to do; a run in batches goes only as far as it can without waiting."""
    try:
        if poll is not None and not await poll():
            return None
        with watched(index, plan) as progress:
            return SetRun(plan, await execute(replace(plan, settings=_settings_alone(plan)), progress, budget))
    except RefusalIndexError as error:
        return SetRun(plan, error)


def _settings_alone(plan: Plan) -> Settings:
    """Return the settings of one run of a set: it does not wait for batches, and gives up only its own."""
    settings = plan.settings
    if settings.sending.forget:
        own = batches_of(plan.folder)
        options = settings.sending.engine_option
        kept = [f"{name}={value}" for name, value in options if name != FORGET or value in own]
        settings = settings.changed(engine_option=kept)
    return settings.changed(detach=True) if engine_of(settings.sending.engine).outlives else settings


def _is_waited_for(plan: Plan, budget: Budget) -> bool:
    """Whether a run that ended early has batches in flight that this command waits for."""
    sending = plan.settings.sending
    engine = engine_of(sending.engine)
    if not engine.outlives or sending.detach or budget.is_over:
        return False
    return any(engine.batches(plan.folder).values())


def _refuse_doubles(source: str, plans: Sequence[Plan]) -> None:
    """Raise if two runs of a set would share a folder or a name."""
    folders: dict[Path, Plan] = {}
    runs: dict[tuple[str | None, str], Plan] = {}
    titles: set[str] = set()
    for plan in plans:
        address = plan.settings.servers.base_url
        run = (address, _identity(plan))
        other = folders.get(plan.folder.path) or runs.get(run)
        if other is not None:
            at_one = other.settings.servers.base_url == address
            advice = "remove one of them" if at_one else "give each a 'name', which tells models at two addresses apart"
            raise ConfigError(
                f"{source}: {other.called!r} and {plan.called!r} are the same run: same model, questions and "
                f"settings; {advice}"
            )
        if plan.called in titles:
            raise ConfigError(f"{source}: two runs are called {plan.called!r}; tell them apart with 'name'")
        folders[plan.folder.path] = plan
        runs[run] = plan
        titles.add(plan.called)
