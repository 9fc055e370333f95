"""What runs on the nodes of a Ray cluster: actors that answer shards of requests, and the files of their results.

An actor writes the results of a shard before it returns them. A failure is a value there, so that none ends the round.
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
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import ray
from openai import BadRequestError
from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem

from refusal_index.data.errors import shortened
from refusal_index.data.files import check_folder, check_plain, write_atomically
from refusal_index.models.chat_api import read_chat, read_refused_prompt
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
from refusal_index.models.openai_client import client_of, posted
from refusal_index.models.requests import Account, ModelError, provider_of
from refusal_index.plugins.batches.formats import Result, ResultError, read_result
from refusal_index.redaction import redacted, redacted_in, remember, secrets_in_url

POLL = 1.0  # seconds between checks whether the run has ended
ENDING, MARK = ".jsonl", "driver"
"""The ending of a shard's name, and the file by which a process recognises its own folder."""

STORAGE_NAME, SAFE_NAME = "storage", re.compile(r"run-[0-9a-f]{32}")
"""The file in a run's folder that holds the name of its part of a storage, and what such a name looks like."""

Request = Mapping[str, str]
"""A row of a shard: its name, and the request's id, role, question and JSON body."""

SCHEMA = pa.schema(
    {"shard": pa.string(), "lines": pa.large_string(), "is_kept": pa.bool_(), "sent": pa.int64(), "ended": pa.string()}
)
"""A finished shard: its lines, whether they are kept, how many requests were sent, and why no more were."""


class Shards:
    r"""The files of results of a run's shards, each whole or not there, on a disk or in object storage.

    Parameters
    ----------
    place
        A folder: a path, or a URL of any kind that pyarrow or fsspec knows.
    mark
        What the driver has written into the folder, as `make` returns it.

    Raises
    ------
    ModelError
        If there is no such kind of storage here, or what reaches it is not installed.

    Examples
    --------
    >>> shards = Shards("memory://shards-of-an-example")
    >>> shards.write("a", "{}\n")
    >>> list(shards.read())
    [('a', ['{}'])]
    """

    def __init__(self, place: str, mark: str | None = None) -> None:
        self.place, self.mark = place, mark
        self._files, self._folder = _storage(place)
        self._is_remote = self._files.type_name != "local"

    def make(self) -> str:
        """Make the folder, leave a new mark in it, and return the mark."""
        try:
            self._files.create_dir(self._folder, recursive=True)
            self.mark = uuid.uuid4().hex
            self._put(MARK, self.mark)
        except OSError as error:
            raise ModelError(
                f"{{engine_option}}: storage {redacted(self.place)}: {redacted(str(error))[:300]}"
            ) from error
        return self.mark

    @property
    def is_here(self) -> bool:
        """Whether this is the driver's folder, and not one of the same name on another node's disk."""
        return self._is_remote or self.get(MARK) == self.mark

    def write(self, name: str, content: str) -> None:
        """Write a shard, whole or not at all."""
        self._put(name + ENDING, content)

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield every shard with its lines."""
        for file in self._files.get_file_info(FileSelector(self._folder, allow_not_found=True)):
            name = PurePosixPath(file.path).name
            if file.type == FileType.File and name.endswith(ENDING):
                yield name.removesuffix(ENDING), (self.get(name) or "").split("\n")[:-1]

    def remove(self, name: str) -> None:
        """Remove a shard."""
        self._delete(name + ENDING)

    def close(self) -> None:
        """Remove the mark; shards stay."""
        self._delete(MARK)

    def get(self, file: str) -> str | None:
        """Return the content of a file; None where there is none."""
        try:
            with self._files.open_input_stream(f"{self._folder}/{file}") as stream:
                return bytes(stream.read()).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def _delete(self, file: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._folder}/{file}")

    def _put(self, file: str, content: str) -> None:
        """Write a file; object storage shows none before all of it is there, and a disk none before it is renamed."""
        path = f"{self._folder}/{file}"
        written = path if self._is_remote else f"{path}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written) as stream:
            stream.write(content.encode())
        if written != path:
            self._files.move(written, path)


def _storage(place: str) -> tuple[Any, str]:
    """Return a file system and the path of a folder in it."""
    try:
        if "://" not in place:
            return LocalFileSystem(), place
        try:
            files, path = FileSystem.from_uri(place)
        except pa.ArrowInvalid:  # of a kind that pyarrow does not know
            filesystem, path = fsspec.core.url_to_fs(place)
            files = PyFileSystem(FSSpecHandler(filesystem))
    except (ValueError, ImportError, OSError) as error:
        raise ModelError(
            f"{{engine_option}}: expected the URL of a folder in storage, as in s3://bucket/path, got "
            f"{redacted(place)[:200]!r} ({redacted(str(error))[:200]})"
        ) from error
    return files, path.rstrip("/")


def own_name(folder: Path) -> str:
    """Return the name of a run's part of a storage: no other run has it, and it moves with the run's folder.

    Parameters
    ----------
    folder
        Where the name is kept; it is made where there is none.

    Raises
    ------
    ModelError
        If what is kept there is no such name, or none can be kept.
    """
    path = folder / STORAGE_NAME
    try:
        check_folder(folder).mkdir(exist_ok=True)
        if not os.path.lexists(path):
            write_atomically(path, f"run-{uuid.uuid4().hex}\n".encode())
        name = check_plain(path, most=100).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: the name of this run's shards cannot be kept ({error})") from error
    if not SAFE_NAME.fullmatch(name):
        raise ModelError(
            f"{path}: expected the name of this run's shards, got {shortened(name)}; restore it, or remove it to "
            "repeat the requests whose results are in the storage"
        )
    return name


def result_line(custom_id: str, status: int, body: Any) -> str:
    """Return the line of a result, in the format of OpenAI's batches."""
    return json.dumps({"custom_id": custom_id, "response": {"status_code": status, "body": body}, "error": None})


def failure_line(custom_id: str, failure: Failure) -> str:
    """Return the line of a request that failed for good, however often it was sent."""
    fields = {"message": failure.message, "kind": failure.kind.name, "advice": failure.advice}
    return json.dumps({"custom_id": custom_id, "failure": fields})


def read_shard(lines: Iterable[str], model: str) -> dict[str, Result]:
    """Return the results in the lines of a shard, by id; a line that holds none is skipped.

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
                result = Result(str(document["custom_id"]), failure=failure)
            else:
                result = read_result(document, model)
        except (ResultError, ValueError, TypeError, KeyError, RecursionError):
            continue
        results[result.custom_id] = result
    return results


def finished(shards: Shards, name: str, lines: str, sent: int, ended: str | None = None) -> pa.Table:
    """Write a shard, where this node reaches the driver's folder, and return it as a row."""
    is_kept = shards.is_here
    if is_kept and lines:
        shards.write(name, lines)
    row = {"shard": name, "lines": lines, "is_kept": is_kept, "sent": sent, "ended": ended}
    return pa.Table.from_pylist([row], schema=SCHEMA)


class Desk:
    """What actors ask the driver for: accounts with their keys, and whether the run has ended.

    It runs in the driver's process. A key requested here goes straight from one process to another; as an argument of
    an actor it would be in the object store, which may be written to disk.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._ended: str | None = None

    def hold(self, account: Account) -> None:
        """Hold an account."""
        self._accounts[account.name] = account

    def account(self, name: str) -> Account:
        """Return the account of a model."""
        return self._accounts[name]

    def end(self, reason: str) -> None:
        """Let no further request be sent."""
        self._ended = reason

    def ended(self) -> str | None:
        """Return why no further request is to be sent; None while they are."""
        return self._ended


class Asker(ABC):
    """Answers shards, one after the other.

    Parameters
    ----------
    name
        The model's.
    desk
        The driver's.
    place, mark
        Where shards are kept, and the driver's mark there.
    """

    def __init__(self, name: str, desk: Any, place: str, mark: str) -> None:
        self._name, self._desk = name, desk
        self._shards = Shards(place, mark)
        self._runner = asyncio.Runner()  # one loop, and so one pool of connections, for all shards
        self._breaker = CircuitBreaker()
        self._sent = 0

    @abstractmethod
    async def answer(self, request: Request) -> str:
        """Return the line of a request's result."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Answer a shard, unless it was answered before; what was not asked is not in it."""
        requests = table.to_pylist()
        name, self._sent = requests[0]["shard"], 0
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
            if failure.kind.is_sent_again:  # it was, as often as it may be
                failure = replace(failure, kind=FailureKind.LASTING)
            return failure_line(request["custom_id"], failure)

    async def _watch(self) -> None:
        """Open the breaker when the run ends."""
        while True:
            reason = await self._desk.ended.remote()
            if reason is not None:
                self._breaker.open(reason, planned=True)
            await asyncio.sleep(POLL)


class EmbeddedAsker(Asker):
    """Holds an embedded model."""

    def __init__(self, name: str, desk: Any, place: str, mark: str) -> None:
        super().__init__(name, desk, place, mark)
        self._provider, self._model = provider_of(name)

    async def answer(self, request: Request) -> str:
        """Have the model answer."""
        self._sent += 1
        if self._provider is None:
            raise ModelError(f"model {self._name!r}: no plugin on this node provides it; install the same packages")
        status, body = await self._provider.answer(self._model, json.loads(request["body"]))
        return result_line(request["custom_id"], status, body)


class HttpAsker(Asker):
    """Asks a server over HTTP, many requests at a time, each again where that may help.

    Parameters
    ----------
    concurrency, max_retries, attempt_timeout
        Requests in flight, how often each is sent again at most, and the seconds to wait for a response.
    """

    def __init__(
        self, name: str, desk: Any, place: str, mark: str, concurrency: int, max_retries: int, attempt_timeout: float
    ) -> None:
        super().__init__(name, desk, place, mark)
        account = ray.get(desk.account.remote(name))
        remember(account.api_key, *secrets_in_url(account.base_url))
        self._account, self._client = account, client_of(account, concurrency)
        self._slots = asyncio.Semaphore(concurrency)
        self._max_retries, self._timeout = max_retries, attempt_timeout

    async def answer(self, request: Request) -> str:
        """Ask until there is an answer, or a failure that will not pass."""

        async def once() -> str:
            async with self._slots:
                return await self._send(request)

        return await send_with_retries(
            once,
            lambda error: classify_error(error, describe_error(error), self._name, self._account.key_name),
            self._breaker,
            role=request["role"],
            about=request["about"],
            max_retries=self._max_retries,
        )

    async def _send(self, request: Request) -> str:
        if self._breaker.reason is not None:
            raise EndedError
        self._sent += 1
        try:
            response = await posted(self._client, request["body"].encode(), self._timeout)
        except BadRequestError as error:
            if read_refused_prompt(error.body) is None:
                raise
            return result_line(request["custom_id"], error.status_code, redacted_in({"error": error.body}))
        body = json.loads(response.content)
        if all(reply is None for reply in read_chat(body).replies):
            raise NoAnswerError("the response holds no answer")
        return result_line(request["custom_id"], response.status_code, redacted_in(body))
