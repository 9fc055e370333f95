"""Sets of runs: every model of a configuration on every dataset, resumable as a whole.

All runs are checked before the first request. Each model and dataset has a run's folder of its own, named after its
settings, so a set can grow and entries can be renamed without paying for anything twice. A run that fails does not stop
the others.

A configuration file has a table for each model and each dataset, whose keys are settings of a run.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from refusal_index.data.files import write_atomically
from refusal_index.data.folder import SET_VERSION, SUMMARY, set_document
from refusal_index.errors import RefusalIndexError, RunFolderError, shortened, suggestion
from refusal_index.findings.conclusions import doubts
from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.summary import INCOMPLETE
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Role
from refusal_index.render.format import (
    UNDEFINED,
    Block,
    Table,
    abbreviated,
    count,
    interval_of,
    number,
    percent,
    reason_text,
)
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import used_blocks
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import FILES, RAY, Progress, Underway, WaitingError, engine_of
from refusal_index.runs.execute import MAX_WAIT, HasResults, execute, outstanding
from refusal_index.runs.plan import RUNS, Plan, load_questions, open_store, prepare
from refusal_index.runs.settings import REMOVED, SETTINGS, Limits, Settings, not_a_setting
from refusal_index.runs.writing import Run, as_json

FOLDER = "configs"
SUFFIX = ".toml"
NAME = "name"

MODEL_KEYS, DATASET_KEYS, SET_KEYS = (
    tuple(name for name, setting in SETTINGS.items() if setting.scope == kind) for kind in ("model", "dataset", "set")
)
"""Settings of each model, of each dataset, and of the whole set."""

IDENTITY_KEYS = ("model", "dataset", "data", "column")
"""Keys that identify an entry, and have no default."""

DEFAULT_KEYS = tuple(key for key in (*MODEL_KEYS, *DATASET_KEYS, *SET_KEYS) if key not in IDENTITY_KEYS)
TABLES = {"[[models]]": MODEL_KEYS, "[[datasets]]": DATASET_KEYS, "[defaults]": DEFAULT_KEYS}


class ConfigError(SettingError):
    """A configuration that cannot be used; the message names the file, the table and the key."""


@dataclass(frozen=True)
class Entry:
    """One model or one dataset of a configuration.

    Attributes
    ----------
    place
        The file and the table, for messages.
    name
        Its display name; None for its own name.
    values
        Checked settings by name.
    """

    place: str
    name: str | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """A parsed configuration.

    Attributes
    ----------
    name
        The name of the set, and of its folder.
    source, sha256
        The path of the file, and the hash of its content.
    defaults
        Settings of all entries that do not set their own.
    models, datasets
        Entries; each model answers each dataset.
    """

    name: str
    source: str
    sha256: str
    defaults: Mapping[str, Any]
    models: tuple[Entry, ...]
    datasets: tuple[Entry, ...]


def config_names() -> tuple[str, ...]:
    """Return the names of the configurations that come with the package.

    Examples
    --------
    >>> config_names()[0]
    'paper/all'
    """
    return tuple(sorted(_names(resources.files("refusal_index") / FOLDER)))


def read_config(source: str) -> Config:
    """Read a configuration by path, or by name if it comes with the package.

    A file takes precedence. Otherwise ``paper/all``, ``paper/all.toml`` and ``configs/paper/all.toml`` name the same
    one.

    Raises
    ------
    ConfigError
        If there is no such configuration, or it is invalid.

    Examples
    --------
    >>> read_config("paper/gpt-4.1").name
    'paper-gpt-4.1'
    """
    path = Path(source)
    if path.is_file():
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"config: {path} cannot be read ({error.strerror})") from error
        return _parse(content, source, path.name.removesuffix(SUFFIX))
    name = source.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    if name not in config_names():
        raise ConfigError(
            f"config: {source!r} is neither a file nor a built-in configuration, which are {', '.join(config_names())}"
            f"{suggestion(name, config_names())}"
        )
    content = (resources.files("refusal_index") / FOLDER).joinpath(*f"{name}{SUFFIX}".split("/")).read_bytes()
    return _parse(content, f"{name}{SUFFIX}", name)


def _names(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name.removesuffix(SUFFIX)


def _parse(content: bytes, source: str, name: str) -> Config:
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    if "preamble" in document:
        raise ConfigError(
            f"{source}: expected a configuration of models and datasets, got a prompt set; 'refusal-index prompts "
            f"{source}' shows it, and --prompts {source} uses it"
        )
    for key in document:
        if key not in (NAME, "defaults", "models", "datasets"):
            tables = (NAME, "[defaults]", "[[models]]", "[[datasets]]")
            guess = _guess(key, tuple(table.strip("[]") for table in tables))
            raise ConfigError(f"{source}: expected {', '.join(tables)}, got {key!r}{guess}")
    defaults = document.get("defaults", {})
    if not isinstance(defaults, dict):
        raise ConfigError(f"{source}: expected a table [defaults], got {shortened(defaults)}")
    called = document.get(NAME, name)
    if not isinstance(called, str) or not called.strip():
        raise ConfigError(f"{source}: expected a text as {NAME!r}, got {shortened(called)}")
    return Config(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", called).strip("-._") or "unnamed",
        source=source,
        sha256=hashlib.sha256(content).hexdigest(),
        defaults=_values(defaults, f"{source}, [defaults]", DEFAULT_KEYS),
        models=tuple(_entries(document, "models", MODEL_KEYS, ("model",), source)),
        datasets=tuple(_entries(document, "datasets", DATASET_KEYS, ("dataset", "data"), source)),
    )


def _entries(
    document: Mapping[str, Any], key: str, options: tuple[str, ...], needed: tuple[str, ...], source: str
) -> Iterator[Entry]:
    tables = document.get(key)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        actual = "nothing" if tables is None else shortened(tables)
        raise ConfigError(f"{source}: expected at least one table [[{key}]], got {actual}")
    for position, table in enumerate(tables, 1):
        location, name = f"{source}, [[{key}]] {position}", table.get(NAME)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"{location}, {NAME}: expected text, got {shortened(name)}")
        values = _values({key: value for key, value in table.items() if key != NAME}, location, options)
        if values.keys().isdisjoint(needed):
            listed = ", ".join(map(repr, table)) or "nothing"
            raise ConfigError(f"{location}: expected {' or '.join(map(repr, needed))}, got {listed}")
        yield Entry(location if name is None else f"{location} ({name})", name, values)


def _values(table: Mapping[str, Any], location: str, options: tuple[str, ...]) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        if key not in options:
            raise ConfigError(f"{location}: {_unknown(key, options)}")
        try:
            values[key] = SETTINGS[key].read(value)
        except SettingError as error:
            raise ConfigError(f"{location}, {error}") from error
    return values


def _unknown(key: str, options: tuple[str, ...]) -> str:
    if key in REMOVED:
        return str(not_a_setting(key))
    tables = [table for table, keys in TABLES.items() if key in keys]
    if tables:
        return f"{key!r} belongs in {' or '.join(tables)}"
    return f"no option is called {key!r}{_guess(key, (*options, NAME))}; 'refusal-index run --help' lists them"


def _guess(key: str, options: tuple[str, ...]) -> str:
    return suggestion(key, options) or suggestion(key, [key for keys in TABLES.values() for key in keys])


Watched = Callable[[int, Plan], AbstractContextManager[Progress]]
"""Returns the progress callback of a run, given its position in the set."""

DATASET_GIVEN = ("dataset", "data", "column")
"""Settings that replace all datasets of a file."""


@dataclass(frozen=True)
class CellResult:
    """The result of one run of a set.

    Attributes
    ----------
    plan
        The run.
    run
        Its results; None if there are none yet.
    error
        The error that stopped it.
    waits
        What it is waiting for, if it has no results yet.
    """

    plan: Plan
    run: Run | None = None
    error: str | None = None
    waits: str | None = None

    @property
    def status(self) -> str:
        """``complete``, ``incomplete`` (too many questions are unscored), ``failed``, ``waiting`` or ``pending``."""
        if self.run is None:
            return "failed" if self.error is not None else "waiting" if self.waits is not None else "pending"
        return "complete" if self.run.is_complete else "incomplete"

    @property
    def is_waiting(self) -> bool:
        """Whether it ended early as planned."""
        return self.waits is not None or (self.run is not None and self.run.ended is not None)


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

    def write(self, results: Sequence[CellResult]) -> None:
        """Replace the set's summary."""
        write_atomically(self.path / SUMMARY, as_json(self.to_document(results)).encode())

    def to_document(self, results: Sequence[CellResult]) -> dict[str, Any]:
        """Return the set's summary as a JSON-serialisable dictionary."""
        return {
            "set_version": SET_VERSION,
            "name": self.config.name,
            "config": {"source": self.config.source, "sha256": self.config.sha256},
            "complete": all(result.status == "complete" for result in results),
            "runs": [run_document(result) for result in results],
        }


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
    config, values = read_config(source), values or {}
    path = out or RUNS / config.name
    if (path / "run.json").exists():
        raise RunFolderError(f"{path} is the folder of a single run; choose another one for the set")
    if (path / SUMMARY).exists() and "set_version" not in set_document(path):
        raise RunFolderError(f"{path / SUMMARY} is not the summary of a set; choose another folder")
    entries = config.datasets
    if any(name in values for name in DATASET_GIVEN):
        entries = (Entry("the command line", None, {}),)
    datasets = []
    for entry in entries:
        with prefixing_errors(entry.place):
            datasets.append(
                (entry, load_questions(Settings.from_values(**{**config.defaults, **entry.values, **values})))
            )
    plans = []
    for model in config.models:
        for entry, dataset in datasets:
            with prefixing_errors(f"{model.place} on {entry.place}"):
                chosen = Settings.from_values(**{**config.defaults, **entry.values, **model.values, **values})
                plan = prepare(chosen, dataset=dataset, runs=path, imports=imports)
            title = (model.name or plan.title[0], entry.name or plan.title[1])
            plans.append(replace(plan, title=title))
    _refuse_doubles(config.source, plans)
    return Sweep(path, config, tuple(plans))


async def check_models(plans: Sequence[Plan]) -> None:
    """Raise if a model with pending requests lacks its API key or its package.

    Raises
    ------
    ModelError
        The message says what is missing, and names all models that cannot be asked.
    """
    failed: dict[str, ModelError] = {}
    names_seen, clusters = set(), set()
    for plan in plans:
        with open_store(plan.folder, made=False) as store:
            if not plan.pending(store):
                continue
        for name in plan.names.values():
            if name in names_seen:
                continue
            names_seen.add(name)
            only, sending = {Role.MODEL: name}, plan.settings.sending  # graders too, otherwise they would be asked
            try:
                engine = engine_of(sending.engine)(plan.settings, only, plan.objects)
                if sending.engine == RAY and sending.ray_address in clusters:
                    continue  # opening it for each model would start a cluster for each
                async with engine.open():
                    clusters.add(sending.ray_address)
            except ModelError as error:
                failed.setdefault(name, error)
    if failed:
        first, *others = failed
        more = f"; nor can these be asked: {', '.join(others)}" if others else ""
        raise ModelError(f"{failed[first]}{more}")


async def execute_sweep(sweep: Sweep, watched: Watched, budget: Budget | None = None) -> AsyncIterator[CellResult]:
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
    results = [CellResult(plan) for plan in sweep.plans]
    budget = budget or Budget(sweep.plans[0].settings.limits)
    for plan in sweep.plans if sweep.plans[0].settings.limits != Limits() else ():  # the budget is the set's
        with open_store(plan.folder, made=False) as store:
            budget.count_earlier(plan.folder.path, store.paid(), plan.prices)
    sweep.write(results)  # it has the display names of the runs' own reports
    indices, wait = list(range(len(results))), 0.0

    def tell(plan: Plan, note: str) -> None:
        with watched(sweep.plans.index(plan), plan) as progress:
            progress(Underway(note, is_news=True))

    in_flight = outstanding()
    in_flight.check_forgotten(sweep.plans)
    poll = in_flight.poller(tell)
    while indices:
        waiting = []
        for index in indices:
            if budget.ended is not None:
                return
            plan = sweep.plans[index]
            is_asked_first = bool(wait) and not budget.is_over
            result = await _cell(index, plan, watched, budget, poll if is_asked_first else None)
            if result is None:
                waiting.append(index)
                continue
            results[index] = result
            sweep.write(results)
            if results[index].is_waiting and in_flight.is_waited_for(plan, budget):
                waiting.append(index)
            else:
                yield results[index]
        wait = min(wait * 2, MAX_WAIT) if wait and waiting == indices else in_flight.first_wait(sweep.plans)
        indices = waiting
        if indices:
            await budget.sleep(wait)


async def _cell(index: int, plan: Plan, watched: Watched, budget: Budget, poll: HasResults | None) -> CellResult | None:
    """Execute one run, if it has anything to do; a run in batches goes only as far as it can without waiting."""
    carried = replace(plan, settings=outstanding().settings_alone(plan))
    try:
        if poll is not None and not await poll(plan):
            return None
        with watched(index, plan) as progress:
            return CellResult(plan, await execute(carried, progress, budget))
    except WaitingError as error:
        return CellResult(plan, waits=str(error))
    except RefusalIndexError as error:
        return CellResult(plan, error=str(error))


@contextmanager
def prefixing_errors(location: str) -> Iterator[None]:
    """Prefix input errors raised inside the block with the place in the configuration."""
    try:
        yield
    except RefusalIndexError as error:
        raise ConfigError(f"{location}: {error.message if isinstance(error, SettingError) else error}") from error


def _refuse_doubles(source: str, plans: Sequence[Plan]) -> None:
    """Raise if two runs of a set would share a folder or a name."""
    folders: dict[Path, str] = {}
    titles: set[str] = set()
    for plan in plans:
        if plan.folder.path in folders:
            raise ConfigError(
                f"{source}: {folders[plan.folder.path]!r} and {plan.called!r} are the same run: same model, questions "
                "and settings; remove one of them"
            )
        if plan.called in titles:
            raise ConfigError(f"{source}: two runs are called {plan.called!r}; tell them apart with 'name'")
        folders[plan.folder.path] = plan.called
        titles.add(plan.called)


def run_document(result: CellResult) -> dict[str, Any]:
    """Return one run of a set as an entry of the set's summary."""
    model, dataset = result.plan.title
    index = None
    if result.run is not None and result.run.summary.index is not None:
        variants = [str(variant.variant) for variant in result.run.summary.variants]
        index = {"variants": variants, **result.run.summary.index.to_document()}
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


MAX_RUN_LENGTH = 32


def set_blocks(results: Sequence[CellResult]) -> Iterator[Block]:
    """Yield the results of a set, one row per run, and what is incomplete."""
    yield from result_blocks(results)
    unfinished = [result for result in results if result.status != "complete"]
    if unfinished:
        yield ""
        by_hand = all(result.is_waiting and result.plan.settings.sending.engine == FILES for result in unfinished)
        hint = "" if by_hand else "; run the same command again to complete them"
        yield f"{len(unfinished):,} of {len(results):,} runs are not complete{hint}:"
    for result in unfinished:
        yield f"  {result.plan.called}: {why_unfinished(result)}"


def result_blocks(results: Sequence[CellResult]) -> Iterator[Block]:
    """Yield one row per run: RI over its prompts, and the rates of its prompts."""
    summaries = [result.run.summary for result in results if result.run is not None]
    if not summaries:
        return
    level = f"{percent(summaries[0].confidence_level)} interval"
    columns = ("run", METRICS[INDEX].column, level, "refused %", "wrong %", "status")
    yield Table.from_rows(columns, map(_result_row, results), left=("run", "status"))
    yield from ("", sentence(Statement("results_explained", "scope")))
    serious = [summary for summary in summaries if any(doubt.severity == "serious" for doubt in doubts(summary))]
    if serious:
        yield sentence(Statement("serious_caveats", "serious", {"runs": len(serious)}))
    together = replace(summaries[0], variants=tuple(variant for summary in summaries for variant in summary.variants))
    yield from used_blocks(together)


def _result_row(result: CellResult) -> Iterator[str]:
    yield abbreviated(" on ".join(result.plan.title), MAX_RUN_LENGTH)
    summary = result.run.summary if result.run else None
    index = summary.index if summary else None
    if summary is None or index is None:
        yield from (UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, result.status)
        return
    yield from (number(index.estimate, 2), interval_of(index, 2))
    right = [variant.metric("correct_given_attempted").estimate for variant in summary.variants]
    yield _range([variant.metric("refusal_rate").estimate for variant in summary.variants])
    yield _range([None if value is None else 1 - value for value in right])
    unscored = sum(variant.completeness.unscored for variant in summary.variants)
    status = INCOMPLETE if result.status == INCOMPLETE else index.status
    reason = f" ({reason_text(index.reason)})" if index.reason else ""
    yield f"{status}{reason}" + (f", {count(unscored)} unscored" if unscored else "")


def _range(shares: Sequence[float | None]) -> str:
    """Format a range of shares in per cent."""
    defined = sorted(share for share in shares if share is not None)
    ends = dict.fromkeys(number(100 * share, 0) for share in (*defined[:1], *defined[-1:]))
    return " to ".join(ends) or UNDEFINED


def why_unfinished(result: CellResult) -> str:
    """Return why a run of a set has no results, or incomplete ones."""
    if result.error is not None:
        return result.error
    if result.run is not None and result.run.ended is not None:
        return result.run.ended
    if result.waits is not None:
        return result.waits
    return "too many questions could not be scored" if result.status == "incomplete" else "not started"
