"""Batches under way: each is a task of the server's own, which goes on whoever asked for it.

Nothing of them outlives the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from refusal_index.almanac.answers import Answer, answer
from refusal_index.almanac.asking import AT_ONCE, in_order
from refusal_index.almanac.batch_files import FileStore
from refusal_index.almanac.batch_lines import (
    ENDPOINT,
    BatchLine,
    Checked,
    check_lines,
    read_lines,
    result_line,
)
from refusal_index.almanac.batch_states import NEXT, Batch, BatchRequest, Status
from refusal_index.almanac.errors import BatchLineError, RequestError
from refusal_index.almanac.pool import ModelPool
from refusal_index.almanac.request_log import RequestLog

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchLimits:
    """How large the file of a batch may be."""

    requests: int = 50_000
    size: int = 200_000_000


LIMITS = BatchLimits()
"""Those of OpenAI."""


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
    limits
        How large a batch may be.
    """

    def __init__(
        self,
        pool: ModelPool,
        files: FileStore,
        log: RequestLog,
        limits: BatchLimits = LIMITS,
    ) -> None:
        self._pool, self._files, self._log, self._limits = pool, files, log, limits
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
        checked = check_lines(file, ENDPOINT, self._limits.requests, self._pool.name)
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
