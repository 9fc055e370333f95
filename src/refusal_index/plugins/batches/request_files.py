"""A run by files: what is due is written as requests for any executor, and its results are taken in again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from refusal_index.data.files import replacing
from refusal_index.data.folder import RunFolder
from refusal_index.models.accounts import called
from refusal_index.models.failures import Failure
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.batches.formats import FORMATS, Format, format_of, is_singly, written
from refusal_index.plugins.batches.outstanding import refuse_in_flight
from refusal_index.plugins.batches.spool import Spool, Taken, Trouble, Watch, is_without_lines, refuse_left, take
from refusal_index.plugins.batches.wave import (
    Pending,
    QuestionState,
    describe_in_flight,
    in_flight,
    wave,
)
from refusal_index.protocol import FORCED, Conversation, Placement, Procedure, Protocol, Role
from refusal_index.runs.engine import FILES
from refusal_index.runs.plan import grader_before, open_store, prompts_before, settings_before
from refusal_index.runs.results import procedure_of
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.writing import Run, write_results


@dataclass(frozen=True)
class Reopened:
    """A run that was begun before.

    Attributes
    ----------
    folder, settings
        Where it lies, and what was asked; how it is sent is as given now.
    procedures
        What is asked in each variant.
    names
        Whom it asks, the model first.
    """

    folder: RunFolder
    settings: Settings
    procedures: Mapping[str, Procedure]
    names: Mapping[Role, str]

    def talks(self, store: ReplyStore) -> Iterator[QuestionState]:
        """Yield the talk about each question, in the order of ids, whatever is put into the store meanwhile."""
        for one in store.each_question():
            conversations = [
                Conversation(one.question, variant, procedure, one.draws[variant])
                for variant, procedure in self.procedures.items()
                if variant in one.draws and (procedure.asks_model or one.completions(variant))
            ]
            yield QuestionState(conversations, one.replies, one.retired)


def reopened(path: Path, settings: Settings, prompts: str | None = None) -> Reopened:
    """Read a run's folder.

    Parameters
    ----------
    path
        The folder.
    settings
        How requests are sent; all else is the run's.
    prompts
        The file of the run's prompt set, where it is none that is shipped.

    Raises
    ------
    RefusalIndexError
        If it is no run's folder, or the prompt set is not that of the run.
    """
    folder = RunFolder(path)
    before = folder.read_complete_settings()
    kind, graders = grader_before(before)
    names = dict(zip((Role.GRADER, Role.SECOND_GRADER), graders, strict=False))
    settings = settings_before(before, settings)
    procedure = procedure_of(before)
    if not procedure.asks_model:
        return Reopened(folder, settings, dict.fromkeys(before["prompts"]["variants"], procedure), names)
    chosen = prompts_before(before, prompts, path)
    how = Placement(settings.prompting.placement), settings.prompting.think
    words = {name: Protocol(chosen, name, kind, *how) for name in chosen.variants}
    procedures: dict[str, Procedure] = {name: replace(procedure, wording=one) for name, one in words.items()}
    if not procedure.asks_first:
        procedures = {FORCED: replace(procedure, wording=next(iter(words.values())))}
    return Reopened(folder, settings, procedures, {Role.MODEL: settings.model, **names})


@dataclass
class RequestFile:
    """A file of requests.

    Attributes
    ----------
    path, model, style
        Where it is, whom its requests ask, and in which format they stand.
    requests, size
        How many they are, and how many bytes.
    """

    path: Path
    model: str
    style: Format
    requests: int = 0
    size: int = 0


@dataclass(frozen=True)
class Written:
    """The wave that was written.

    Attributes
    ----------
    files
        Its files.
    functions
        How many requests are to functions, which no file can ask, by name.
    """

    files: tuple[RequestFile, ...]
    functions: Counter[str]


def write_requests(run: Reopened, out: Path, style: str | None = None) -> Written:
    """Write every request that is due, for the provider of each model in files of its own.

    Parameters
    ----------
    run
        As `reopened` returns it.
    out
        The first file; further ones are called alike, with numbers: a format takes so many requests in one file, and
        requests to one model.
    style
        One of `FORMATS`; None for what each model's provider takes.

    Raises
    ------
    SettingError
        If there is no such format, or a file is there already.
    NotWrittenError
        If a file cannot be written; then there is none.
    """
    if style is not None and style not in FORMATS:
        raise unknown("format", style, list(FORMATS))
    with run.folder.lock(), open_store(run.folder, made=False) as store, ExitStack() as stack:
        refuse_in_flight(run.folder, store)
        refuse_left(run.folder, FILES)
        sheets = _Sheets(out, style, stack)
        for pending in _due(run, store, style):
            sheets.write(pending, run.names[pending.ask.request.role])
    return Written(tuple(sheets.files), sheets.functions)


def _due(run: Reopened, store: ReplyStore, style: str | None) -> Iterator[Pending]:
    """Yield what is due, in as many requests as the format takes."""
    return wave(run.talks(store), run.settings, run.names, singly=is_singly(run.names, style))


class _Sheets:
    """Files that are being written, one for each model at a time; they are there once `stack` is closed."""

    def __init__(self, out: Path, style: str | None, stack: ExitStack) -> None:
        self._out, self._style, self._stack = out, style, stack
        self._open: dict[str, tuple[RequestFile, IO[bytes]]] = {}
        self.files: list[RequestFile] = []
        self.functions: Counter[str] = Counter()

    def write(self, pending: Pending, name: str) -> None:
        if is_function_name(name):
            self.functions[name] += 1
            return
        style = FORMATS[self._style] if self._style else format_of(name)
        line = written(pending, style, called(name)[1]).encode() + b"\n"
        sheet, file = self._sheet(name, style, len(line))
        file.write(line)
        sheet.requests += 1
        sheet.size += len(line)

    def _sheet(self, name: str, style: Format, more: int) -> tuple[RequestFile, IO[bytes]]:
        if name in self._open:
            sheet, file = self._open[name]
            if style.takes(sheet.requests + 1, sheet.size + more):
                return sheet, file
            file.close()
        number = len(self.files) + 1
        path = self._out if number == 1 else self._out.with_name(f"{self._out.stem}-{number}{self._out.suffix}")
        if path.exists() or path.is_symlink():
            raise SettingError(f"{{out}}: {path} is there already; choose another name, or remove it")
        sheet = RequestFile(path, name, style)
        self.files.append(sheet)
        temporary = self._stack.enter_context(replacing(path))
        self._open[name] = sheet, self._stack.enter_context(temporary.open("xb"))
        return self._open[name]


@dataclass(frozen=True)
class Received:
    """What became of files of results.

    Attributes
    ----------
    taken
        How many replies were new, and how many were there.
    unreadable, contradicting, differing, unknown
        What was left out: lines that hold no result, results that contradict an earlier one in the files or a reply in
        the store, and results of requests that are not this run's.
    empty
        Files without a line.
    in_flight
        What of it is in flight in batches, in words; None where nothing is.
    failures, stray
        What requests failed for, with how many; and failures of requests that the run does not or no longer have.
    run
        The run with its results, once nothing is due.
    """

    taken: Taken
    unreadable: Trouble
    contradicting: Trouble
    differing: Trouble
    unknown: Trouble
    failures: Counter[str]
    stray: Trouble
    empty: tuple[Path, ...] = ()
    in_flight: str | None = None
    run: Run | None = None

    @property
    def pending(self) -> int:
        """How many requests are due now."""
        return self.taken.pending

    @property
    def left_out(self) -> int:
        """How many results were left out."""
        return sum(one.count for one in (self.unreadable, self.contradicting, self.differing, self.unknown))


@dataclass
class _Failures:
    """Takes down what requests failed for."""

    store: ReplyStore
    told: Counter[str] = field(default_factory=Counter)
    _shared: set[str] = field(default_factory=set)

    def __call__(self, pending: Pending, failure: Failure) -> None:
        conversation = pending.ask.conversation
        self.store.record_failure(conversation.variant, conversation.question.question_id, failure.message)
        if pending.ask.request.pass_.is_shared:  # by all variants that wait for it
            if pending.custom_id in self._shared:
                return
            self._shared.add(pending.custom_id)
        self.told[failure.message] += 1


def take_replies(run: Reopened, files: Iterable[Path]) -> Received:
    """Take results in, in whatever order and however often; once nothing is due, the run's results are written.

    Parameters
    ----------
    run
        As `reopened` returns it.
    files
        Of results, in any of the formats.

    Raises
    ------
    ResultFileError
        If a file cannot be read at all, or holds requests; then nothing is taken in.
    StoreError
        If replies cannot be kept.
    """
    with Spool() as spool, run.folder.lock(), open_store(run.folder) as store:
        empty = []
        for path in files:
            if is_without_lines(path):
                empty.append(path)
            spool.read(path)
        failures, differing = _Failures(store), Trouble()
        watch = Watch(failed=failures, differs=differing.add)
        singly = is_singly(run.names)  # as many are due as would be written now
        taken = take(run.talks(store), spool, store, run.settings, run.names, watch, singly=singly)
        results = None if taken.pending else write_results(run.folder, store)
        return Received(
            taken,
            spool.unreadable,
            spool.contradicting,
            differing,
            spool.unknown(),
            failures.told,
            spool.unknown(failures=True),
            tuple(empty),
            describe_in_flight(entries) if (entries := in_flight(run.folder, store)) else None,
            results,
        )
