"""The files and batches of the server, and its request log; all of them end with the server.

Each batch is a task of the server's own, which goes on after the client has disconnected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from refusal_index.plugins.almanac.batch_lines import (
    AT_ONCE,
    ENDPOINT,
    Answer,
    BatchLine,
    Checked,
    ModelPool,
    answer,
    check_lines,
    in_order,
    read_lines,
    result_line,
)
from refusal_index.plugins.almanac.chat_api import Json
from refusal_index.plugins.almanac.errors import BatchLineError, RequestError

# What the request that is being answered adds to its line.
_fields: ContextVar[dict[str, Any]] = ContextVar("_fields")


class RequestLog:
    """Appends to the file at `path`; without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def write(self, **fields: Any) -> None:
        """Append a line with the time and `fields`."""
        if self._file:
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._file.write(json.dumps({"time": time, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def begin_fields() -> dict[str, Any]:
    """Return what the handler of the request that begins is going to note."""
    fields: dict[str, Any] = {}
    _fields.set(fields)
    return fields


def noted() -> dict[str, Any]:
    """Return the fields of the request that is being answered, for its handler to add to."""
    return _fields.get()


@dataclass(frozen=True)
class StoredFile:
    """A file that a client brought, or that a batch made."""

    id: str
    name: str
    purpose: str
    size: int
    created_at: int
    path: Path

    def document(self) -> Json:
        """Return the file as the API shows it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_at,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "expires_at": None,
            "status_details": None,
        }


class FileStore:
    """The files; its folder is made for the first of them and removed by `close`."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[str, StoredFile] = {}

    def new_path(self) -> Path:
        """Return a path at which a file can be written."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="refusal-index-serve-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / uuid.uuid4().hex

    def add(self, path: Path, name: str, purpose: str) -> StoredFile:
        """Take the file at a path of this store, under a new id."""
        size, now = path.stat().st_size, int(time.time())
        stored = StoredFile(f"file-{uuid.uuid4().hex}", name, purpose, size, now, path)
        self._files[stored.id] = stored
        return stored

    def get(self, identity: str) -> StoredFile:
        """Return a file; raises RequestError if there is none of that id."""
        if identity not in self._files:
            raise RequestError(f"No such File object: {identity}", param="id", code="not_found", status=404)
        return self._files[identity]

    def delete(self, identity: str) -> None:
        """Forget a file; raises RequestError if there is none of that id."""
        stored = self.get(identity)
        del self._files[identity]
        with suppress(OSError):  # somebody reads it still, where open files cannot be removed: `close` removes it
            stored.path.unlink()

    def __iter__(self) -> Iterator[StoredFile]:
        """Go through the files, the oldest first."""
        return iter(self._files.values())

    def close(self) -> None:
        """Remove every file."""
        if self._folder is not None:
            self._folder.cleanup()


WINDOW, WINDOW_SECONDS = "24h", 24 * 60 * 60

_MOST_METADATA, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512


class Status(StrEnum):
    """Where a batch is."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


NEXT: Mapping[Status, frozenset[Status]] = {
    Status.VALIDATING: frozenset({Status.IN_PROGRESS, Status.FAILED, Status.CANCELLING}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.FAILED, Status.CANCELLING}),
    Status.FINALIZING: frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLING}),
    Status.CANCELLING: frozenset({Status.CANCELLED, Status.FAILED}),
}
"""The states after each; one that is not here is the last."""


@dataclass(frozen=True)
class BatchRequest:
    """What the body of a request to ``/v1/batches`` asks for."""

    input_file_id: str
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Batch:
    """A batch at one moment."""

    id: str
    asked: BatchRequest
    created_at: int
    status: Status = Status.VALIDATING
    reached: Mapping[str, int] = field(default_factory=dict)
    model: str | None = None
    errors: tuple[BatchLineError, ...] = ()
    total: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None

    def moved(self, status: Status, now: int) -> Batch:
        """Return the batch in another state, reached `now`; raises ValueError if it does not follow."""
        if status not in NEXT.get(self.status, frozenset()):
            raise ValueError(f"a batch that is {self.status} cannot become {status}")
        return replace(self, status=status, reached={**self.reached, f"{status}_at": now})

    def counted(self, *, failed: bool, usage: Mapping[str, int]) -> Batch:
        """Return the batch with one more request answered."""
        return replace(
            self,
            completed=self.completed + (not failed),
            failed=self.failed + failed,
            input_tokens=self.input_tokens + usage.get("prompt_tokens", 0),
            output_tokens=self.output_tokens + usage.get("completion_tokens", 0),
        )

    def document(self) -> Json:
        """Return the batch as the API shows it."""
        times = {f"{status}_at": None for status in Status if status is not Status.VALIDATING}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": ENDPOINT,
            "errors": {"object": "list", "data": [_error(one) for one in self.errors]} if self.errors else None,
            "input_file_id": self.asked.input_file_id,
            "completion_window": WINDOW,
            "status": self.status,
            "model": self.model,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.created_at + WINDOW_SECONDS,
            **times,
            **self.reached,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": self._usage(),
            "metadata": self.asked.metadata,
        }

    def _usage(self) -> Json:
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


def parse_batch_request(body: object) -> BatchRequest:
    """Read the JSON `body` of a request for a batch.

    Raises RequestError if a field is missing, of the wrong type, or asks for something that is not supported.
    """
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    for name in body:
        if name not in _KNOWN and body[name] is not None:
            raise RequestError(f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")
    for name, only in (("endpoint", ENDPOINT), ("completion_window", WINDOW)):
        if body.get(name) != only:
            raise RequestError(f"'{name}' must be '{only}'", param=name)
    source = body.get("input_file_id")
    if not isinstance(source, str):
        raise RequestError("'input_file_id' must be the id of a file", param="input_file_id")
    return BatchRequest(source, _metadata(body.get("metadata")))


def _metadata(given: object) -> Mapping[str, str] | None:
    if given is None:
        return None
    fits = isinstance(given, dict) and len(given) <= _MOST_METADATA
    if not (fits and isinstance(given, dict) and all(_is_pair(name, value) for name, value in given.items())):
        raise RequestError(
            f"'metadata' must be an object of at most {_MOST_METADATA} strings of at most {_LONGEST_VALUE} characters, "
            f"under names of at most {_LONGEST_KEY}",
            param="metadata",
        )
    return given


def _is_pair(name: str, value: object) -> bool:
    return len(name) <= _LONGEST_KEY and isinstance(value, str) and len(value) <= _LONGEST_VALUE


def _error(error: BatchLineError) -> Json:
    return {"code": error.code, "line": error.line, "message": str(error), "param": error.param}


_KNOWN = frozenset({"input_file_id", "endpoint", "completion_window", "metadata"})


_logger = logging.getLogger(__name__)


MAX_REQUESTS, MAX_FILE_SIZE, MAX_KEPT = 50_000, 200_000_000, 2_000_000_000
"""Most requests and bytes in the file of a batch, as at OpenAI, and most bytes of all files that the server keeps."""


@dataclass
class _Run:
    """A batch under way, and what it writes."""

    batch: Batch

    @property
    def status(self) -> Status:
        return self.batch.status

    def move(self, status: Status, **changes: Any) -> None:
        self.batch = replace(self.batch.moved(status, int(time.time())), **changes)


@dataclass(frozen=True)
class _Results:
    """The output file and the error file while they are written."""

    output: BinaryIO
    errors: BinaryIO

    def write(self, custom_id: str, found: Answer) -> None:
        (self.errors if found.failed else self.output).write(result_line(custom_id, found))


class Batches:
    """The batches of a server.

    Parameters
    ----------
    pool
        The models that answer them.
    files
        Where their files are.
    log
        Has a line for each request that was answered.
    """

    def __init__(
        self,
        pool: ModelPool,
        files: FileStore,
        log: RequestLog,
    ) -> None:
        self._pool, self._files, self._log = pool, files, log
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)  # shared, so that a hundred batches do not drown the runtime

    def start(self, asked: BatchRequest) -> Batch:
        """Begin a batch; raises RequestError if there is no such file of requests."""
        source = self._files.get(asked.input_file_id)
        if source.purpose != "batch":
            message = f"{source.id} has the purpose '{source.purpose}'; expected a file of requests, of 'batch'"
            raise RequestError(message, param="input_file_id")
        batch = Batch(f"batch_{uuid.uuid4().hex}", asked, int(time.time()))
        run = _Run(batch)
        self._runs[batch.id] = run
        task = asyncio.create_task(self._carry(run, source.path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    def get(self, identity: str) -> Batch:
        """Return a batch as it stands; raises RequestError if there is none of that id."""
        return self._run(identity).batch

    def cancel(self, identity: str) -> Batch:
        """Let a batch end after what is under way; raises RequestError if it has ended already."""
        run = self._run(identity)
        if run.status not in NEXT:
            message = f"Cannot cancel a batch with status '{run.status}'."
            raise RequestError(message, code="invalid_status", status=409)
        if run.status is not Status.CANCELLING:
            run.move(Status.CANCELLING)
        return run.batch

    def __iter__(self) -> Iterator[Batch]:
        """Go through the batches, the oldest first."""
        return (run.batch for run in self._runs.values())

    async def close(self) -> None:
        """Drop what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, identity: str) -> _Run:
        if identity not in self._runs:
            raise RequestError(f"No batch found with id '{identity}'.", param="id", code="not_found", status=404)
        return self._runs[identity]

    async def _carry(self, run: _Run, source: Path) -> None:
        """Bring a batch to its end, whatever that is."""
        try:
            with source.open("rb") as file:
                checked = await asyncio.to_thread(self._check, file)
                if run.status is Status.VALIDATING and checked.errors:
                    run.move(Status.FAILED, errors=tuple(checked.errors))
                    return
                if run.status is Status.VALIDATING:
                    run.move(Status.IN_PROGRESS, model=checked.model, total=checked.total)
                await self._answer(run, file)
        except Exception:
            _logger.exception("%s failed", run.batch.id)
            told = BatchLineError("the server failed; its own output says why", code="server_error")
            run.move(Status.FAILED, errors=(told,))

    def _check(self, file: BinaryIO) -> Checked:
        checked = check_lines(file, ENDPOINT, MAX_REQUESTS, self._pool.name)
        file.seek(0)
        return checked

    async def _answer(self, run: _Run, file: BinaryIO) -> None:
        """Answer the requests of a batch, and show what came of them."""
        output, errors = self._files.new_path(), self._files.new_path()
        with output.open("xb") as output_file, errors.open("xb") as error_file:
            await self._write(run, file, _Results(output_file, error_file))
        run.move(
            Status.CANCELLED if run.status is Status.CANCELLING else Status.COMPLETED,
            output_file_id=self._shown(output, f"{run.batch.id}_output.jsonl"),
            error_file_id=self._shown(errors, f"{run.batch.id}_error.jsonl"),
        )

    async def _write(self, run: _Run, file: BinaryIO, results: _Results) -> None:
        """Ask the requests of a batch, unless it is cancelled before."""
        await self._ask_all(run, read_lines(file), results)
        if run.status is Status.IN_PROGRESS:
            run.move(Status.FINALIZING)

    async def _ask_all(self, run: _Run, lines: Iterator[BatchLine], results: _Results) -> None:
        async with aclosing(in_order(lines, lambda line: self._ask(run, line, results))) as asked:
            async for _ in asked:
                pass  # each is written as it comes: the order of the files is nobody's promise

    async def _ask(self, run: _Run, line: BatchLine, results: _Results) -> None:
        async with self._slots:
            if run.status is not Status.IN_PROGRESS:
                return
            started, noted = time.perf_counter(), dict[str, Any]()
            found = await answer(self._pool, line.body, noted)
        seconds = round(time.perf_counter() - started, 4)
        told = {"batch": run.batch.id, "custom_id": line.custom_id, **noted}
        self._log.write(method=line.method, path=line.url, status=found.status, seconds=seconds, **told)
        results.write(line.custom_id, found)
        run.batch = run.batch.counted(failed=found.failed, usage=found.body.get("usage", {}))

    def _shown(self, path: Path, name: str) -> str | None:
        """Return the id of a file that is written; none if nothing is in it."""
        if path.stat().st_size:
            return self._files.add(path, name, "batch_output").id
        path.unlink()
        return None
