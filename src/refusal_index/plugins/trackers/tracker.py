"""Export runs to another tool's format, or to an experiment tracker such as W&B or MLflow.

A plugin registers what writes files under the entry-point group ``refusal_index.exporters``, and a tracker
class under ``refusal_index.trackers``.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol
from urllib.parse import urlsplit

import polars as pl

from refusal_index import entry_points
from refusal_index.data.folder import RunFolder, run_around
from refusal_index.data.run_sets import runs_below
from refusal_index.errors import NotWrittenError, RefusalIndexError, RunFolderError, checked_path, shortened, suggestion
from refusal_index.findings.run_results import RunResults, key_of, read_runs
from refusal_index.findings.tallies import RunSource, source_of
from refusal_index.models.settings import SettingError, unknown
from refusal_index.protocol import Conversation, completions_and_outcomes
from refusal_index.redaction import redacted, redacted_error, redacted_in
from refusal_index.render.summary import SUMMARY_VERSION
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.engine import WaitingError
from refusal_index.runs.events import Event, Finished, Progress, Replied, Underway, ignore_events
from refusal_index.runs.open_run import StoreWatcher
from refusal_index.runs.plan import Plan
from refusal_index.runs.store import ReplyStore

UNREACHABLE = re.compile(
    r"connection refused|connection reset|no such host|name resolution|name or service not known|nodename nor servname|"
    r"network is unreachable|no route to host|deadline exceeded|timed? ?out",
    re.IGNORECASE,
)
"""Matches errors of an unreachable server: clients raise different exceptions but quote the system's message."""

MAX_TITLE = 128
MAX_REASON = 300


class ExportError(RefusalIndexError, ValueError):
    """An invalid argument of an export; `message` does not name the argument."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument = argument
        self.message = message


class TrackerError(RefusalIndexError, RuntimeError):
    """A tracker did not accept a run; the run's results are unchanged."""


def read_exported(sources: Sequence[Path | RunResults]) -> tuple[RunResults, ...]:
    """Read the runs in run folders, set folders, outcome tables and memory: one for each model and dataset.

    The results of a folder are read from its `summary.json`; those of a table are computed. Raises RunFolderError if a
    folder is not that of a run or has no results yet, and OutcomeTableError if a table cannot be used.
    """
    exported: list[RunResults] = []
    for source in sources:
        runs: Sequence[Path | RunResults] = () if isinstance(source, RunResults) else runs_below(source)
        for run in runs or [source]:
            if isinstance(run, Path) and run.is_dir():
                exported.append(read_folder(run))
            else:
                exported += map(_redacted, read_runs([run]))
    return tuple(exported)


def read_folder(path: Path) -> RunResults:
    """Read the results in a run's folder; raises the same errors as `read_exported`."""
    folder = RunFolder(path)
    settings = folder.read_settings()
    about = folder.read_about()
    document = folder.read_summary()
    if document is None:
        raise RunFolderError(
            f"{path} has no results yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    advice = f"'refusal-index score {folder.path}' rebuilds it"
    version = document.get("summary_version")
    if version != SUMMARY_VERSION:
        raise RunFolderError(
            f"{folder.summary}: expected summary_version {SUMMARY_VERSION}, got {shortened(version)}; {advice}"
        )
    try:  # the folder may be untrusted
        level = document["confidence_level"]
        if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"confidence_level is {shortened(level)}")
        document = redacted_in(document)
        first: Mapping[str, Any] = next(iter(document["variants"]), {})
        run = RunResults(
            str(first.get("model")),
            path,
            first.get("model"),
            first.get("dataset"),
            None,
            redacted_in(settings),
            about=redacted_in(about),
            written=document,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
        why = shortened(str(error).partition("\n")[0], 160)
        raise RunFolderError(
            f"{folder.summary}: expected the metrics of each variant, got something else ({why}); {advice}"
        ) from error
    _ = run.metrics  # so that errors are raised here
    return run


def _redacted(run: RunResults) -> RunResults:
    """Return a run of a table without keys in its summary and its names."""
    document = redacted_in(dict(run.document))
    first: Mapping[str, Any] = next(iter(document["variants"]), {})
    return replace(run, model=first.get("model"), dataset=first.get("dataset"), written=document)


@dataclass(frozen=True)
class Subject:
    """Description of a run that is passed to a tracker at the start."""

    key: str  # stable identifier of the run
    title: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Tracker(Protocol):
    """A run in a tracker; every method may raise any exception of the tracker's client."""

    def count(self, counts: Mapping[str, float]) -> None:
        """Log the progress of the run."""

    def log(self, run: RunResults) -> str:
        """Log all results of a run, end the tracker's run and return its address."""

    def abandon(self) -> None:
        """End the run as failed."""

    def wait(self) -> None:
        """Leave the run without results, to be resumed by the same command."""


class TrackerClass(Protocol):
    """The class of a tracker; calling it starts a run in the tracker.

    - `package`: the package that the tracker imports.
    - `address`: the environment variable with the address of the tracker's server.
    """

    package: str
    address: str

    def __call__(self, subject: Subject) -> Tracker:
        """Start a run; may raise any exception of the tracker's client."""


def tracker_class(name: str) -> TrackerClass:
    """Return the class of the named tracker; raises SettingError if the name is unknown."""
    plugin = entry_points.find("trackers", name)
    if plugin is None:
        raise unknown("log_to", name, sorted(entry_points.installed("trackers")))
    loaded: TrackerClass = entry_points.load(plugin)
    return loaded


def check_trackers(names: Sequence[str]) -> None:
    """Raise SettingError if a tracker is unknown or its package is not installed.

    >>> check_trackers(["wandbb"])
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: log_to: expected one of mlflow, wandb, got 'wandbb'; did you mean ...
    """
    for name in names:
        package = tracker_class(name).package
        if find_spec(package) is None:
            raise SettingError(f"{{log_to}}: {package} is not installed; pip install 'refusal-index[{name}]'")


def subject_of(key: str, title: str, settings: Mapping[str, Any], about: Mapping[str, Any]) -> Subject:
    """Return the description of a run for trackers, given its key, its title, and both parts of its `run.json`."""
    config = redacted_in({**settings, **({"about": dict(about)} if about else {})})
    return Subject(key, " ".join(title.split())[:MAX_TITLE], config)


def error_line(name: str, error: BaseException) -> str:
    """Return a tracker's error message on one line, with API keys redacted."""
    message = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, RefusalIndexError):
        return redacted_error(message)
    unreachable = UNREACHABLE.search(message)
    if unreachable is not None:
        address = urlsplit(os.environ.get(tracker_class(name).address, ""))
        is_server = address.scheme.startswith("http")
        server = f"{address.scheme}://{address.netloc.rpartition('@')[2]}" if is_server else "its server"
        return f"{server} cannot be reached ({unreachable[0].lower()})"
    return shorten(redacted_error(f"{type(error).__name__}: {message}").rstrip("."), MAX_REASON, placeholder=" ...")


def export_to(name: str, runs: Sequence[RunResults]) -> list[str]:
    """Log every run to a tracker and return the address of each; raises TrackerError on failure."""
    try:
        check_trackers([name])
    except SettingError as error:
        raise ExportError("to", str(error).removeprefix("log_to: ")) from error
    lines = []
    for run in runs:
        settings = run.settings or {"model": run.model, "dataset": run.dataset, "source": run.source.name}
        try:
            tracker = tracker_class(name)(subject_of(run.key, run.title, settings, run.about))
            try:
                lines.append(f"{name}: {tracker.log(run)}")
            except BaseException:
                with suppress(Exception):
                    tracker.abandon()
                raise
        except Exception as error:
            raise TrackerError(f"{name}: {error_line(name, error)}") from error
    return lines


class Exporter(Protocol):
    """A class or a module that writes runs in another tool's format, registered under ``refusal_index.exporters``.

    - `SUFFIX`: suffix of the output file; empty if the output is a folder.
    """

    SUFFIX: str

    def export(self, runs: Sequence[RunResults], out: Path) -> list[str]:
        """Write the runs and return a line about each file."""


def export(runs: RunSource | Sequence[RunSource], to: str, out: str | Path | None = None) -> list[str]:
    """Write runs in another tool's format, or log them to an experiment tracker.

    Parameters
    ----------
    runs
        Runs, run folders, set folders, outcome tables, or what `refusal_index.score` returned.
    to
        ``"csv"``, ``"every-eval-ever"``, ``"hf-eval-results"``, ``"inspect"``, ``"mlflow"`` or ``"wandb"``.
    out
        The file or folder to write; None for a tracker, whose own settings say where it logs.

    Returns
    -------
    list of str
        A line about each file or run that was written.

    Raises
    ------
    RefusalIndexError
        If the target is unknown or does not accept the runs, or the runs have no results.
    """
    given = [runs] if isinstance(runs, RunSource) else runs
    sources = [source_of(run, "runs") for run in given]
    return export_runs(sources, to, None if out is None else checked_path(out, "out"))


def export_runs(sources: Sequence[Path | RunResults], to: str, out: Path | None = None) -> list[str]:
    """Write runs in another tool's format, or log them to a tracker; return a line about each file or run.

    Raises ExportError if the target is unknown, a package is missing or `out` cannot be used, TrackerError if a tracker
    does not accept a run, NotWrittenError if files cannot be written, and the errors of `read_exported`.

    - `sources`: run folders, set folders and outcome tables, and runs in memory.
    - `to`: the name of an exporter or a tracker.
    - `out`: the file or folder to write; None for a tracker, whose own settings say where it logs.
    """
    if "," in to:
        raise ExportError("to", f"expected one target at a time, got {to!r}")
    plugin = entry_points.find("exporters", to)
    if plugin is None and entry_points.find("trackers", to) is None:
        names = sorted({*entry_points.installed("exporters"), *entry_points.installed("trackers")})
        raise ExportError("to", f"expected one of {', '.join(names)}, got {to!r}{suggestion(to, names)}")
    exporter: Exporter | None = None if plugin is None else entry_points.load(plugin)
    _check_place(exporter, to, out, [one.source if isinstance(one, RunResults) else one for one in sources])
    distinct: dict[str, RunResults] = {}
    exported = read_exported(sources)
    # Exported twice, a run would count twice in a mean.
    repeated = [run for run in exported if distinct.setdefault(run.key, run) is not run]
    runs = [*distinct.values()]
    try:
        lines = export_to(to, runs) if exporter is None or out is None else exporter.export(runs, out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise NotWrittenError(Path(error.filename or out or "."), error) from error
    lines += [f"{run.source}: the same run as {distinct[run.key].source}, counted once" for run in repeated]
    return lines + [f"{run.source}: incomplete: {run.lacks}" for run in runs if run.lacks]


def _check_place(exporter: Exporter | None, to: str, out: Path | None, paths: Sequence[Path]) -> None:
    """Raise ExportError if `out` is missing or not writable, is one of the runs, or lies in a run's folder."""
    if exporter is None:
        if out is not None:
            raise ExportError("out", f"expected nothing, got {out}; the settings of {to} say where it logs")
        return
    suffix = exporter.SUFFIX
    if out is None:
        raise ExportError("out", f"expected {'a file' if suffix else 'a folder'} to write, got nothing")
    if any(path.resolve() == out.resolve() for path in paths):
        raise ExportError("out", f"{out} is one of the runs; choose another place")
    if run_around(out) is not None:
        raise ExportError("out", f"{out} lies in the folder of a run; choose another place")
    if suffix and out.suffix.lower() != suffix:
        raise ExportError("out", f"expected a file that ends in {suffix}, got {out}")
    folder = out.parent if suffix else out
    if not folder.is_dir() and (suffix or os.path.lexists(folder)):
        raise ExportError(
            "out", f"{out} cannot be written, as {folder} is not a folder; create it, or choose another place"
        )


__all__ = ["Counts", "check_trackers", "tracked"]

INTERVAL = 5.0
"""Minimum number of seconds between two updates of the counts in a tracker."""

FINISH_TIMEOUT = 600.0
"""Seconds to wait for a tracker to log all results."""

FAILURE_TIMEOUT = 10.0
"""Seconds to wait for a tracker to end a run without results."""

SILENT_SECONDS = 2.0
"""Seconds to wait before telling the user, so that the run does not appear to hang."""

COUNTED = ("questions", "answered", "refused", "wrong", "unscored")
"""Counts of questions that are logged in addition to requests, tokens and cost."""


@contextmanager
def tracked(plan: Plan, progress: Progress) -> Iterator[tuple[Progress, StoreWatcher]]:
    """Log the progress of a run to its trackers while the block runs, and its results after the block."""
    tracking = Tracking(plan, progress)
    try:
        yield tracking, tracking.watch
    except BaseException as error:
        tracking.leave(waits=isinstance(error, WaitingError))
        raise
    tracking.finish()


class Tracking:
    """The trackers of a run: passes events on to `progress`, counts them and logs the counts."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._progress = progress
        self._followers = [_Follower(name, plan) for name in dict.fromkeys(plan.settings.log_to)]
        self._counts = Counts(plan)
        self._store: ReplyStore | None = None
        self._last_time = 0.0

    def watch(self, store: ReplyStore) -> None:
        """Count the replies in the store, and from now on those that are added to it."""
        self._store = store
        self._counts.begin(store)

    def __call__(self, event: Event) -> None:
        """Pass an event on to `progress`, and log the counts every few seconds."""
        self._progress(event)
        if self._store is None or not self._counts.add(event, self._store):
            return
        if time.monotonic() - self._last_time >= INTERVAL:
            self._last_time = time.monotonic()
            for follower in self._followers:
                follower.count(self._counts.to_log())
                self._report(follower)

    def finish(self) -> None:
        """Log the results in the run's folder to every tracker and report the address of each tracker's run.

        An interrupt stops the wait for the trackers and is then raised again.
        """
        for follower in self._followers:
            follower.finish(self._counts.to_log())
        try:
            with _interruptible():
                for follower in self._followers:
                    if not follower.done.wait(SILENT_SECONDS):
                        self._progress(Underway(follower.waiting, is_notice=True))
                    if not follower.done.wait(FINISH_TIMEOUT):
                        follower.give_up(f"it did not accept the results within {FINISH_TIMEOUT:g} seconds")
                    self._report(follower)
        except KeyboardInterrupt:
            for follower in (follower for follower in self._followers if not follower.done.is_set()):
                follower.give_up("it took too long")
                self._report(follower)
            signal.raise_signal(signal.SIGINT)

    def leave(self, *, waits: bool) -> None:
        """End the run in every tracker without results: as failed, or if it `waits`, to be resumed later."""
        for follower in self._followers:
            follower.leave(waits=waits)

    def _report(self, follower: _Follower) -> None:
        for line in follower.new_lines():
            self._progress(Underway(line, is_notice=True))
            if follower.failed and self._progress is ignore_events:
                warnings.warn(line, stacklevel=2)


class Counts:
    """The progress of a run: numbers of questions by the outcome of the first draw, and usage."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._questions = {question.question_id: question for draws in plan.draws.values() for question in draws}
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._counted: set[tuple[str, str]] = set()
        self._usage = UsageCounter()

    def begin(self, store: ReplyStore) -> None:
        """Count the questions and replies that are already in the store."""
        for variant in self._plan.procedures:
            for conversation in self._plan.conversations(variant, store):
                self._count(conversation, store)
        for completion in store.paid():
            self._usage.add(completion)

    def add(self, event: Event, store: ReplyStore) -> bool:
        """Count an event and return whether it changed the counts."""
        match event:
            case Replied(completion):
                self._usage.add(completion)
            case Finished(variant, question_id):
                question = self._questions[question_id]
                procedure = self._plan.procedures[variant]
                draws = self._plan.draws[variant][question]
                self._count(Conversation(question, variant, procedure, draws), store)
            case _:
                return False
        return True

    def to_log(self) -> dict[str, float]:
        """Return the counts by name, including the cost if it is known."""
        cost = self._usage.cost(self._plan.prices)
        (input_tokens, output_tokens) = self._usage.tokens
        counts = {
            **self._counts,
            "requests": self._usage.requests,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost": cost,
        }
        return {f"progress/{name}": float(value) for name, value in counts.items() if value is not None}

    def _count(self, conversation: Conversation, store: ReplyStore) -> None:
        """Count a question under a variant once: engines also report questions that were finished earlier."""
        key = conversation.variant, conversation.question.question_id
        if key in self._counted:
            return
        completions = store.completions(conversation.question.question_id, conversation.variant)
        for outcome in completions_and_outcomes(conversation, completions)[1][:1]:
            self._counted.add(key)
            self._counts["questions"] += 1
            self._counts["answered"] += outcome.refused is False
            self._counts["refused"] += outcome.refused is True
            self._counts["wrong"] += outcome.wrong is True
            self._counts["unscored"] += outcome.refused is None or outcome.wrong is None


class _Follower(threading.Thread):
    """Runs one tracker in its own thread, so that a slow server does not delay the run."""

    def __init__(self, name: str, plan: Plan) -> None:
        super().__init__(name=f"refusal-index {name}", daemon=True)
        self._tracker_name = name
        self._plan = plan
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tracker: Tracker | None = None
        self.failed = False
        self.done = threading.Event()
        self.waiting = f"{name}: waiting for it; the results are already in {plan.folder.path}"
        self._advice = f"the results are not lost: 'refusal-index export {plan.folder.path} --to {name}' logs them"

    def count(self, counts: dict[str, float]) -> None:
        """Log the progress of the run, unless earlier work is still queued."""
        if self._jobs.empty():
            self._submit(lambda: self._open().count(counts))

    def finish(self, counts: dict[str, float]) -> None:
        """Queue the last counts and all results; `done` is set when they are logged."""
        self._submit(lambda: self._open().count(counts), self._finish, None)

    def leave(self, *, waits: bool) -> None:
        """End the tracker's run without results, if one was started."""
        if self.is_alive():
            self._submit(lambda: self._leave(waits=waits), None)
            self.done.wait(FAILURE_TIMEOUT)

    def give_up(self, reason: str) -> None:
        """Mark the tracker as failed and report the reason."""
        self.failed = True
        self._lines.put(f"{self._tracker_name}: {reason}; {self._advice}")

    def new_lines(self) -> Iterator[str]:
        """Yield the lines that have not been reported yet."""
        while not self._lines.empty():
            yield self._lines.get()

    def run(self) -> None:
        """Do the submitted work in order, and none of it after a failure."""
        for work in iter(self._jobs.get, None):
            if not self.failed:
                try:
                    work()
                except BaseException as error:  # a client may even raise SystemExit
                    self.give_up(error_line(self._tracker_name, error))
                    with suppress(Exception):
                        self._leave(waits=False)
        self.done.set()

    def _open(self) -> Tracker:
        if self._tracker is None:
            folder = self._plan.folder
            title = redacted(self._plan.called)
            subject = subject_of(key_of(folder), title, folder.read_settings(), folder.read_about())
            self._tracker = tracker_class(self._tracker_name)(subject)
        return self._tracker

    def _finish(self) -> None:
        self._lines.put(f"{self._tracker_name}: {self._open().log(read_folder(self._plan.folder.path))}")

    def _leave(self, *, waits: bool) -> None:
        if self._tracker is not None:
            (self._tracker.wait if waits else self._tracker.abandon)()

    def _submit(self, *jobs: Callable[[], None] | None) -> None:
        """Queue work for the thread, which starts with the first and ends at None."""
        for job in jobs:
            self._jobs.put(job)
        if self.ident is None:
            self.start()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt while the event loop, which would handle it, is blocked."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
