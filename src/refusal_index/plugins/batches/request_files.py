"""Request files and result files: write pending requests for an external batch API, and load its results."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from refusal_index.data.files import replacing
from refusal_index.data.folder import RunFolder
from refusal_index.data.text import sound_text
from refusal_index.errors import RefusalIndexError, shortened
from refusal_index.findings.run_results import RunResults
from refusal_index.models.accounts import asked_as
from refusal_index.models.failures import Failure
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import Response
from refusal_index.models.sent import Sent
from refusal_index.models.settings import Servers, SettingError, unknown
from refusal_index.plugins.batches.formats import (
    FORMATS,
    MAX_LINE,
    Format,
    RequestResult,
    ResultError,
    format_of,
    in_batch,
    is_singly,
    read_result,
    to_line,
)
from refusal_index.plugins.batches.journal import describe_in_flight, in_flight
from refusal_index.plugins.batches.rounds import MergeCounts, Pending, QuestionState, ResultMerger
from refusal_index.protocol import FORCED, Conversation, Placement, Procedure, Protocol, Role, StopReason
from refusal_index.redaction import remember_environment
from refusal_index.runs.made_with import grader_before, grader_prompt_before, prompts_before
from refusal_index.runs.outstanding import refuse_outstanding
from refusal_index.runs.results import procedure_of
from refusal_index.runs.sent import SentRecorder
from refusal_index.runs.servers import as_in_folder
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, open_store
from refusal_index.runs.writing import write_results

MAX_NAMED = 5  # problems of each kind that are listed

TABLE = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE results (
    custom_id TEXT PRIMARY KEY, failed INTEGER, content TEXT, file TEXT, row INTEGER, is_used INTEGER DEFAULT 0);
"""
INSERT = "INSERT OR IGNORE INTO results (custom_id, failed, content, file, row) VALUES (?, ?, ?, ?, ?)"


class ResultFileError(RefusalIndexError, ValueError):
    """A result file that cannot be read."""


@dataclass
class Problems:
    """Results that were skipped for the same reason.

    Attributes
    ----------
    count
        Number of results.
    named
        Short descriptions of the first ones.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, description: str) -> None:
        """Add a result."""
        self.count += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(description)


class StagedResults(AbstractContextManager["StagedResults"]):
    """Results in a temporary SQLite table, looked up by id; a context manager that removes the table on exit.

    Attributes
    ----------
    unreadable
        Lines that hold no result.
    contradicting
        Results whose request has a different reply in an earlier line.
    empty
        Files without any lines.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("")  # a temporary file
        self._connection.executescript(TABLE)
        self.unreadable = Problems()
        self.contradicting = Problems()
        self.empty: list[Path] = []

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self, path: Path) -> None:
        """Read a result file in any of the formats; lines that hold no result are skipped and counted.

        Raises
        ------
        ResultFileError
            If the file cannot be read, or begins with a request.
        """
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise ResultFileError(f"{path}: expected a file of results, got something else")
        is_empty = True
        try:
            with path.open("rb") as file:
                for number, raw in enumerate(_lines(file), start=1):
                    if raw.strip():
                        self._read_line(raw, path, number, is_first=is_empty)
                        is_empty = False
        except OSError as error:
            raise ResultFileError(
                f"{path}: expected a file of results, it cannot be read ({error.strerror})"
            ) from error
        except sqlite3.Error as error:
            raise ResultFileError(
                f"{path}: its results cannot be written to the folder for temporary files ({error}); free some space "
                "there"
            ) from error
        if is_empty:
            self.empty.append(path)

    def _read_line(self, raw: bytes, path: Path, number: int, *, is_first: bool) -> None:
        location = f"{path}, line {number}"
        try:
            if len(raw) > MAX_LINE:
                raise ResultError(f"expected a line of at most {MAX_LINE:,} bytes, it is longer")
            line = raw.decode("utf-8-sig")
            document = json.loads(line)
            if is_first and is_request(document):
                raise ResultFileError(
                    f"{path}: expected results, got requests: run this file as a batch, and pass the file of results"
                )
            result = in_batch(read_result(document))  # result files mostly come from batches
        except ResultFileError:
            raise
        except ResultError as error:
            self.unreadable.add(f"{location}: {error}")
        except (ValueError, RecursionError) as error:
            reason = shortened(str(error) or type(error).__name__)
            self.unreadable.add(f"{location}: expected a line of JSON, it cannot be read ({reason})")
        else:
            response = result.response
            name = sound_text(result.custom_id)
            # the parsed response is much smaller than its line
            content = line if response is None else json.dumps(list(vars(response).values()))
            self._put((name, response is None, content, str(path), number))

    def _put(self, row: tuple[str, bool, str, str, int]) -> None:
        """Insert a result; a reply replaces a failure, and of two replies the first is kept."""
        if self._connection.execute(INSERT, row).rowcount:
            return
        name, is_failure, content, path, number = row
        if is_failure:
            return
        query = "SELECT failed, content, file, row FROM results WHERE custom_id = ?"
        failed, content_held, first, first_number = self._connection.execute(query, (name,)).fetchone()
        if failed:
            self._connection.execute(
                "INSERT OR REPLACE INTO results (custom_id, failed, content, file, row) VALUES (?, ?, ?, ?, ?)", row
            )
        elif _response(content_held).replies != _response(content).replies:
            problem = f"{shortened(name)} has a different reply in {first}, line {first_number}"
            self.contradicting.add(f"{path}, line {number}: {problem}")

    def get(self, custom_id: str) -> RequestResult | None:
        """Return the result of a request, or None, and mark it as used."""
        query = "SELECT failed, content FROM results WHERE custom_id = ?"
        row = self._connection.execute(query, (custom_id,)).fetchone()
        if row is None:
            return None
        self._connection.execute("UPDATE results SET is_used = 1 WHERE custom_id = ?", (custom_id,))
        failed, content = row
        if not failed:
            return RequestResult(custom_id, _response(content))
        try:
            return read_result(json.loads(content))
        except RecursionError:  # nested too deep for the current stack
            return None

    def unused(self, *, failures: bool = False) -> Problems:
        """Return the replies, or the failures, that were never looked up: they belong to no request of the run."""
        problems = Problems()
        query = "SELECT custom_id, file, row FROM results WHERE failed = ? AND NOT is_used ORDER BY rowid"
        for name, path, row in self._connection.execute(query, (failures,)):
            problems.add(f"{path}, line {row}: {shortened(name)}")
        return problems


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; a line longer than `MAX_LINE` is cut to one byte more than that."""
    while raw := file.readline(MAX_LINE + 1):
        yield raw
        while len(raw) > MAX_LINE and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE + 1)


def _response(content: str) -> Response:
    replies, *rest = json.loads(content)
    return Response([reply and (reply[0], StopReason(reply[1])) for reply in replies], *rest)


def is_request(document: Any) -> bool:
    """Whether the JSON of a line is a request, in any of the formats.

    Examples
    --------
    >>> is_request({"custom_id": "ri-1", "params": {}}), is_request({"custom_id": "ri-1", "result": {}})
    (True, False)
    """
    if not isinstance(document, Mapping):
        return False
    # fields by which a line is recognised as a request or as a result, in any of the formats
    return any(name in document for name in ("body", "params", "request")) and not any(
        name in document for name in ("response", "result", "error")
    )


@dataclass(frozen=True)
class Reopened:
    """An existing run, loaded from its folder.

    Attributes
    ----------
    folder, settings
        The folder, and the settings of the run with the current settings for sending requests.
    procedures
        The procedure of each prompt variant.
    names
        The model names, by role, the model under test first.
    """

    folder: RunFolder
    settings: Settings
    procedures: Mapping[str, Procedure]
    names: Mapping[Role, str]

    def states(self, store: ReplyStore) -> Iterator[QuestionState]:
        """Yield the state of each question in the order of ids, even if the store changes meanwhile."""
        for record in store.each_question():
            conversations = [
                Conversation(record.question, variant, procedure, record.draws[variant])
                for variant, procedure in self.procedures.items()
                if variant in record.draws and (procedure.asks_model or record.completions(variant))
            ]
            yield QuestionState(conversations, self.settings, self.names, record.replies, record.retired)


def reopened(path: Path, settings: Settings, prompts: str | None = None) -> Reopened:
    """Load an existing run from its folder.

    Parameters
    ----------
    path
        The folder.
    settings
        Settings for sending requests; all other settings come from the run.
    prompts
        The file of the run's prompt set, if it is not one of the package's.

    Raises
    ------
    RefusalIndexError
        If the folder holds no run, or the prompt set is not that of the run.
    """
    folder = RunFolder(path)
    before = folder.read_complete_settings()
    kind, graders = grader_before(before)
    names = dict(zip((Role.GRADER, Role.SECOND_GRADER), graders, strict=False))
    settings = as_in_folder(settings.restored(before), before)
    procedure = replace(procedure_of(before), grader_prompt=grader_prompt_before(before, folder.read_about(), path))
    if not procedure.asks_model:
        return Reopened(folder, settings, dict.fromkeys(before["prompts"]["variants"], procedure), names)
    chosen = prompts_before(before, prompts, path)
    placement = Placement(settings.prompting.placement)
    think = settings.prompting.think
    procedures: dict[str, Procedure] = {
        name: replace(procedure, wording=Protocol(chosen, name, kind, placement, think)) for name in chosen.variants
    }
    if not procedure.asks_first:
        procedures = {FORCED: next(iter(procedures.values()))}
    return Reopened(folder, settings, procedures, {Role.MODEL: settings.model, **names})


@dataclass
class RequestFile:
    """A file of requests to one model.

    Attributes
    ----------
    path, model, style
        Path, name of the model, and format.
    requests, size
        Number of requests and bytes.
    """

    path: Path
    model: str
    style: Format
    requests: int = 0
    size: int = 0


class RequestFiles:
    """Writes requests to files, separately for each model.

    Attributes
    ----------
    files
        The files, complete once the exit stack is closed.
    functions
        Number of requests to each function, by name; they cannot be sent through a file.
    """

    def __init__(self, out: Path, style: str | None, stack: ExitStack, servers: Servers) -> None:
        self._out = out
        self._style = style
        self._stack = stack
        self._servers = servers
        self._open: dict[str, tuple[RequestFile, IO[bytes]]] = {}
        self.files: list[RequestFile] = []
        self.functions: Counter[str] = Counter()

    def write(self, pending: Pending, name: str) -> Sent | None:
        """Write a request to a model, and return the decoding settings in it; None for a function."""
        if is_function_name(name):
            self.functions[name] += 1
            return None
        provider, model = asked_as(self._servers, pending.ask.request.role, name)
        style = FORMATS[self._style] if self._style else format_of(provider)
        line = to_line(pending.custom_id, pending.ask, style, model).encode() + b"\n"
        request_file, file = self._file(name, style, len(line))
        file.write(line)
        request_file.requests += 1
        request_file.size += len(line)
        return style.sent(pending.ask, model)

    def _file(self, name: str, style: Format, more: int) -> tuple[RequestFile, IO[bytes]]:
        """Return the open file for a line of `more` bytes; start a new one if the current file is full."""
        if name in self._open:
            request_file, file = self._open[name]
            if style.takes(request_file.requests + 1, request_file.size + more):
                return request_file, file
            file.close()
        number = len(self.files) + 1
        path = self._out if number == 1 else self._out.with_name(f"{self._out.stem}-{number}{self._out.suffix}")
        if path.exists() or path.is_symlink():
            raise SettingError(f"{{out}}: {path} already exists; choose another name, or remove it")
        self.files.append(RequestFile(path, name, style))
        temporary = self._stack.enter_context(replacing(path))
        self._open[name] = self.files[-1], self._stack.enter_context(temporary.open("xb"))
        return self._open[name]


def write_requests(run: Reopened, out: Path, style: str | None = None) -> RequestFiles:
    """Write all pending requests to files, separately for each model.

    Parameters
    ----------
    run
        The run, as returned by `reopened`.
    out
        The first file. A number is added to the names of further files, which are needed for each further model and
        where a file reaches the limit of its format.
    style
        The name of a format in `FORMATS`; None for that of each model's provider.

    Raises
    ------
    SettingError
        If the format is unknown, or a file exists already.
    NotWrittenError
        If a file cannot be written; no file is left behind then.
    """
    if style is not None and style not in FORMATS:
        raise unknown("format", style, list(FORMATS))
    with run.folder.lock(), open_store(run.folder, made=False) as store, ExitStack() as stack:
        refuse_outstanding(run.folder, store, "files")
        files = RequestFiles(out, style, stack, run.settings.servers)
        singly = is_singly(run.settings.servers, run.names, style)
        recorder = SentRecorder(run.folder)
        for state in run.states(store):
            for pending in state.all_pending(singly=singly):
                recorder.note(pending.ask, files.write(pending, run.names[pending.ask.request.role]))
    return files


@dataclass(frozen=True)
class Received:
    """The outcome of loading result files.

    Attributes
    ----------
    counts
        Number of new replies, of replies stored before, and so on.
    left_out
        Skipped results, by reason.
    failures, unknown_failures
        Number of failed requests by message, and of failures whose request is not or no longer pending in this run.
    empty
        Files without any lines.
    in_flight
        A description of the batches in flight; None if there are none.
    run
        The run with its results, once no request is pending.
    """

    counts: MergeCounts
    left_out: Mapping[str, Problems]
    failures: Counter[str]
    unknown_failures: int
    empty: list[Path]
    in_flight: str | None
    run: RunResults | None


def take_replies(run: Reopened, files: Iterable[Path]) -> Received:
    """Load result files into the store; once no request is pending, write the results of the run.

    Files may be loaded in any order, and more than once.

    Parameters
    ----------
    run
        The run, as returned by `reopened`.
    files
        Result files, in any of the formats.

    Raises
    ------
    ResultFileError
        If a file cannot be read or holds requests; nothing is stored then.
    StoreError
        If replies cannot be stored.
    """
    remember_environment()  # whoever sent the requests had a key there, and a result may repeat it
    differing = Problems()
    failures = Counter[str]()
    shared = set[str]()

    def record_failure(pending: Pending, failure: Failure) -> None:
        conversation = pending.ask.conversation
        store.record_failure(conversation.variant, conversation.question.question_id, failure.message)
        if pending.custom_id not in shared:  # otherwise another variant has counted it
            failures[failure.message] += 1
        if pending.ask.request.pass_.is_shared:
            shared.add(pending.custom_id)

    with StagedResults() as staged, run.folder.lock(), open_store(run.folder) as store:
        for path in files:
            staged.read(path)
        merger = ResultMerger(staged, store, failed=record_failure, differs=differing.add)
        singly = is_singly(run.settings.servers, run.names)  # counts what `requests` would write
        counts = merger.merge(run.states(store), singly=singly)
        entries = in_flight(run.folder, store)
        left_out = {
            "hold no result": staged.unreadable,
            "contradict an earlier result": staged.contradicting,
            "differ from the stored reply": differing,
            "belong to no request of this run": staged.unused(),
        }
        return Received(
            counts,
            {kind: problems for kind, problems in left_out.items() if problems.count},
            failures,
            staged.unused(failures=True).count,
            staged.empty,
            describe_in_flight(entries) if entries else None,
            None if counts.pending else write_results(run.folder, store),
        )
