"""Ray actors that send shards of requests, and the files that hold their results.

An actor writes the results of a shard before it returns them. Failed requests are results too, so a failure does not
end the round.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import ray
from openai import BadRequestError
from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem

from refusal_index.data.files import check_folder, check_plain, write_atomically
from refusal_index.errors import shortened
from refusal_index.models.accounts import Account
from refusal_index.models.chat_api import FILTERED_NOTE, OK, read_chat, read_refused_prompt
from refusal_index.models.failures import (
    CircuitBreaker,
    EndedError,
    Failure,
    FailureKind,
    NoAnswerError,
    RequestFailedError,
    classify_error,
    describe_error,
    send_with_retries,
)
from refusal_index.models.openai_client import client_of, post_chat
from refusal_index.models.requests import ModelError, provider_of
from refusal_index.plugins.batches.formats import RequestResult, ResultError, read_result
from refusal_index.redaction import redacted_error, redacted_in, remember, secrets_in_url, without_credentials

POLL = 1.0  # seconds between checks whether the run has ended
ENDING = ".jsonl"
"""Suffix of a shard's file."""

MARK = "driver"
"""Name of the marker file by which an actor recognises the driver's folder."""


SAFE_NAME = re.compile(r"run-[0-9a-f]{32}")
"""Pattern of such names."""

Request = Mapping[str, str]
"""A row of a shard: the shard's name, and the request's id, role, question and JSON body."""

SCHEMA = pa.schema(
    {"shard": pa.string(), "lines": pa.large_string(), "is_kept": pa.bool_(), "sent": pa.int64(), "ended": pa.string()}
)
"""A finished shard: its lines, whether they are in the driver's folder, the number of requests sent, and why the
actor stopped early, if it did."""


class Shards:
    r"""The result files of a run's shards, written atomically to a disk or to object storage.

    Parameters
    ----------
    location
        A folder: a path, or a URL with any scheme that pyarrow or fsspec supports.
    mark
        The content of the driver's marker file, as returned by `make`.

    Raises
    ------
    ModelError
        If the kind of storage is unknown, or its package is not installed.

    Examples
    --------
    >>> shards = Shards("memory://shards-of-an-example")
    >>> shards.write("a", "{}\n")
    >>> list(shards.read())
    [('a', ['{}'])]
    """

    def __init__(self, location: str, mark: str | None = None) -> None:
        self.place = location
        self.mark = mark
        self._files, self._folder = _storage(location)
        self._is_remote = self._files.type_name != "local"

    def make(self) -> str:
        """Create the folder, write a new marker file into it, and return the file's content."""
        try:
            self._files.create_dir(self._folder, recursive=True)
            self.mark = uuid.uuid4().hex
            self._put(MARK, self.mark)
        except OSError as error:
            raise ModelError(
                f"{{engine_option}}: storage {redacted_error(self.place)}: {redacted_error(str(error))[:300]}"
            ) from error
        return self.mark

    @property
    def is_here(self) -> bool:
        """Whether this is the driver's folder, not a folder of the same path on another node's disk."""
        return self._is_remote or self.get(MARK) == self.mark

    def write(self, name: str, content: str) -> None:
        """Write a shard atomically."""
        self._put(name + ENDING, content)

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the name and the lines of each shard."""
        for file in self._files.get_file_info(FileSelector(self._folder, allow_not_found=True)):
            name = PurePosixPath(file.path).name
            if file.type == FileType.File and name.endswith(ENDING):
                yield name.removesuffix(ENDING), (self.get(name) or "").split("\n")[:-1]

    def remove(self, name: str) -> None:
        """Remove a shard."""
        self._delete(name + ENDING)

    def close(self) -> None:
        """Remove the marker file; keep the shards."""
        self._delete(MARK)

    def get(self, file: str) -> str | None:
        """Return the content of a file; None if it does not exist."""
        try:
            with self._files.open_input_stream(f"{self._folder}/{file}") as stream:
                return bytes(stream.read()).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def _delete(self, file: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._folder}/{file}")

    def _put(self, file: str, content: str) -> None:
        """Write a file atomically: object storage does so itself, on a disk the file is renamed once complete."""
        path = f"{self._folder}/{file}"
        written = path if self._is_remote else f"{path}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written) as stream:
            stream.write(content.encode())
        if written != path:
            self._files.move(written, path)


def _storage(location: str) -> tuple[Any, str]:
    """Return the file system of a folder and the folder's path in it."""
    try:
        if "://" not in location:
            return LocalFileSystem(), location
        try:
            files, path = FileSystem.from_uri(location)
        except pa.ArrowInvalid:  # a scheme that pyarrow does not support
            filesystem, path = fsspec.core.url_to_fs(location)
            files = PyFileSystem(FSSpecHandler(filesystem))
    except (ValueError, ImportError, OSError) as error:
        raise ModelError(
            f"{{engine_option}}: expected the URL of a folder in storage, as in s3://bucket/path, got "
            f"{redacted_error(location)[:200]!r} ({redacted_error(str(error))[:200]})"
        ) from error
    return files, path.rstrip("/")


def storage_name(folder: Path) -> str:
    """Return the unique name of a run's folder in shared storage; it is stored in the run's folder and moves with it.

    Parameters
    ----------
    folder
        The folder with the file that holds the name; the file is created if missing.

    Raises
    ------
    ModelError
        If the file holds an invalid name, or cannot be read or written.
    """
    # the file in a run's folder that holds the name of its folder in shared storage
    path = folder / "storage"
    try:
        check_folder(folder).mkdir(exist_ok=True)
        if not os.path.lexists(path):
            write_atomically(path, f"run-{uuid.uuid4().hex}\n".encode())
        name = check_plain(path, limit=100).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: the name of this run's shards cannot be read or written ({error})") from error
    if not SAFE_NAME.fullmatch(name):
        raise ModelError(
            f"{path}: expected the name of this run's shards, got {shortened(name)}; restore it, or remove it to "
            "repeat the requests whose results are in the storage"
        )
    return name


def result_line(custom_id: str, status: int, body: Any) -> str:
    """Return the line of a response, in the format of OpenAI's batch results."""
    return json.dumps({"custom_id": custom_id, "response": {"status_code": status, "body": body}, "error": None})


def failure_line(custom_id: str, failure: Failure) -> str:
    """Return the line of a request that failed permanently or after all retries."""
    fields = {"message": failure.message, "kind": failure.kind.name, "advice": failure.advice}
    return json.dumps({"custom_id": custom_id, "failure": fields})


def read_shard(lines: Iterable[str], model: str) -> dict[str, RequestResult]:
    """Parse the lines of a shard into results by id; invalid lines are skipped.

    Examples
    --------
    >>> line = failure_line("ri-1", Failure("no such model", "fake/any", FailureKind.LASTING))
    >>> read_shard([line], "fake/any")["ri-1"].failure.kind
    <FailureKind.LASTING: 2>
    """
    results = {}
    for line in lines:
        try:
            document = json.loads(line)
            if isinstance(document, dict) and isinstance(fields := document.get("failure"), dict):
                kind = FailureKind[fields["kind"]]
                failure = Failure(str(fields["message"]), model, kind, str(fields["advice"]))
                result = RequestResult(str(document["custom_id"]), failure=failure)
            else:
                result = read_result(document, model)
        except (ResultError, ValueError, TypeError, KeyError, RecursionError):
            continue
        results[result.custom_id] = result
    return results


def finished(shards: Shards, name: str, lines: str, sent: int, ended: str | None = None) -> pa.Table:
    """Write a shard if this node can access the driver's folder, and return it as a table of one row."""
    is_kept = shards.is_here
    if is_kept and lines:
        shards.write(name, lines)
    row = {"shard": name, "lines": lines, "is_kept": is_kept, "sent": sent, "ended": ended}
    return pa.Table.from_pylist([row], schema=SCHEMA)


class Coordinator:
    """An actor that gives the others their accounts with API keys, and tells them when the run has ended.

    It runs on the driver's node. A key requested here goes directly from process to process; as a constructor argument
    it would enter the object store, which may be spilled to disk.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._ended: str | None = None

    def add_account(self, account: Account) -> None:
        """Add the account of a model."""
        self._accounts[account.name] = account

    def account(self, name: str) -> Account:
        """Return the account of a model."""
        return self._accounts[name]

    def end(self, reason: str) -> None:
        """Stop the sending of requests."""
        self._ended = reason

    def ended(self) -> str | None:
        """Return why the run has ended; None while it is going on."""
        return self._ended


class ShardWorker(ABC):
    """An actor that processes shards of requests to one model, one shard at a time.

    Parameters
    ----------
    name
        The name of the model.
    coordinator
        The handle of the run's `Coordinator`.
    location, mark
        The arguments of `Shards`.
    """

    def __init__(self, name: str, coordinator: Any, location: str, mark: str) -> None:
        self._name = name
        self._coordinator = coordinator
        self._shards = Shards(location, mark)
        self._runner = asyncio.Runner()  # one event loop, so that shards share connections
        self._breaker = CircuitBreaker()
        self._sent = 0

    @abstractmethod
    async def answer(self, request: Request) -> str:
        """Send a request and return the line of its result."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Process a shard unless its file exists; requests that were not sent are left out of the result."""
        requests = table.to_pylist()
        name = requests[0]["shard"]
        self._sent = 0
        lines = self._shards.get(name + ENDING) if self._shards.is_here else None
        if lines is None:
            lines = self._runner.run(self._answers(requests))
        return finished(self._shards, name, lines, self._sent, self._breaker.reason)

    async def _answers(self, requests: list[Request]) -> str:
        watching = asyncio.create_task(self._watch())
        try:
            lines = await asyncio.gather(*map(self._line, requests))
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        return "".join(f"{line}\n" for line in lines if line)

    async def _line(self, request: Request) -> str | None:
        if self._breaker.reason is not None:
            return None
        try:
            return await self.answer(request)
        except EndedError:
            return None
        except RequestFailedError as error:
            failure = error.failure
            if failure.kind.is_sent_again:  # all retries are used up
                failure = replace(failure, kind=FailureKind.LASTING)
            return failure_line(request["custom_id"], failure)

    async def _watch(self) -> None:
        """Open the circuit breaker when the run ends."""
        while True:
            reason = await self._coordinator.ended.remote()
            if reason is not None:
                self._breaker.open(reason, planned=True)
            await asyncio.sleep(POLL)


class EmbeddedWorker(ShardWorker):
    """An actor that runs an embedded model."""

    def __init__(self, **worker: Any) -> None:
        super().__init__(**worker)
        self._provider, self._model = provider_of(self._name)

    async def answer(self, request: Request) -> str:
        """Run the model on a request."""
        self._sent += 1
        if self._provider is None:
            raise ModelError(f"model {self._name!r}: no plugin on this node provides it; install the same packages")
        status, body = await self._provider.answer(self._model, json.loads(request["body"]))
        return result_line(request["custom_id"], status, body)


class HttpWorker(ShardWorker):
    """An actor that sends requests to a server over HTTP, concurrently and with retries.

    Parameters
    ----------
    concurrency, max_retries, attempt_timeout
        Maximum number of requests in flight, maximum number of retries, and timeout in seconds for each attempt.
    worker
        The arguments of `ShardWorker`.
    """

    def __init__(self, concurrency: int, max_retries: int, attempt_timeout: float, **worker: Any) -> None:
        super().__init__(**worker)
        account = ray.get(self._coordinator.account.remote(self._name))
        remember(account.api_key, *secrets_in_url(account.base_url))
        self._account = account
        self._client = client_of(account, concurrency)
        self._slots = asyncio.Semaphore(concurrency)
        self._max_retries = max_retries
        self._timeout = attempt_timeout

    async def answer(self, request: Request) -> str:
        """Send a request, and retry after temporary failures."""
        return await send_with_retries(
            partial(self._send, request),
            lambda error: classify_error(error, describe_error(error), self._name, self._account.key_advice),
            self._breaker,
            role=request["role"],
            subject=request["about"],
            max_retries=self._max_retries,
        )

    async def _send(self, request: Request) -> str:
        async with self._slots:
            if self._breaker.reason is not None:
                raise EndedError
            self._sent += 1
            try:
                body = await post_chat(self._client, request["body"].encode(), self._timeout)
            except BadRequestError as error:
                if read_refused_prompt(error.body) is None:
                    raise
                return result_line(
                    request["custom_id"], error.status_code, redacted_in({"error": error.body}, redacted_error)
                )
        if all(reply is None for reply in read_chat(body).replies):
            raise NoAnswerError("the response holds no answer")
        clean = redacted_in(body, without_credentials)
        return result_line(request["custom_id"], OK, body if clean is body else {**clean, FILTERED_NOTE: True})
