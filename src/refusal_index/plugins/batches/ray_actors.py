"""Who answers a shard on a node of a cluster: an actor that asks a server, or holds an embedded model.

Each writes what came of a shard before it hands it on. A failure is a value there, so that none ends the whole wave.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import ray
from openai import BadRequestError

from refusal_index.models.accounts import Account
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
from refusal_index.models.providers import provider_of
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.ray_shards import Shards, failure_line
from refusal_index.redaction import redacted_in, remember, secrets_in_url

LOOK = 1.0  # seconds between looks whether the run has ended

Request = Mapping[str, str]
"""A row of a shard: its name, and the request's id, who is asked about which question, and the JSON of its body."""


FINISHED = pa.schema(
    {"shard": pa.string(), "lines": pa.large_string(), "is_kept": pa.bool_(), "sent": pa.int64(), "ended": pa.string()}
)
"""What comes back for a shard: its lines, whether they are kept, how many requests were sent, and why no more were."""


class Desk:
    """What actors ask the driver for: accounts with their keys, and whether the run has ended.

    It lives beside the driver. A key that is asked for here goes from one process to another; as an argument of an
    actor it would lie in the object store, which may be written to a disk.
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
        """Let nothing further be asked."""
        self._ended = reason

    def ended(self) -> str | None:
        """Return why nothing further is to be asked; None while it is."""
        return self._ended


class Asker(ABC):
    """Answers shards, one after the other.

    Parameters
    ----------
    name
        Of the model.
    desk
        The driver's.
    place, mark
        Where shards are kept, and what tells that folder from others of its name.
    """

    def __init__(self, name: str, desk: Any, place: str, mark: str) -> None:
        self._name, self._desk, self._mark = name, desk, mark
        self._shards = Shards(place)
        self._runner = asyncio.Runner()  # one loop, and so one pool of connections, for all shards
        self._breaker = CircuitBreaker()
        self._sent = 0

    @abstractmethod
    async def answer(self, request: Request) -> str:
        """Return the line of a request's result."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Answer a shard, unless it was answered before; what was not asked is not in it."""
        requests = table.to_pylist()
        title, self._sent = requests[0]["shard"], 0
        here = self._shards.is_remote or self._shards.has_mark(self._mark)
        lines = self._shards.held(title) if here else None
        if lines is None:
            lines = self._runner.run(self._answered(requests))
            if here and lines:
                self._shards.write(title, lines)
        row = {"shard": title, "lines": lines, "is_kept": here, "sent": self._sent, "ended": self._breaker.reason}
        return pa.Table.from_pylist([row], schema=FINISHED)

    async def _answered(self, requests: list[Request]) -> str:
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
            return failure_line(request["custom_id"], _final(error.failure))

    async def _watch(self) -> None:
        """End in order when the run does."""
        while True:
            reason = await self._desk.ended.remote()
            if reason is not None:
                self._breaker.open(reason, planned=True)
            await asyncio.sleep(LOOK)


class EmbeddedAsker(Asker):
    """Holds an embedded model."""

    def __init__(self, name: str, desk: Any, place: str, mark: str) -> None:
        super().__init__(name, desk, place, mark)
        self._provider, self._model = provider_of(name)

    async def answer(self, request: Request) -> str:
        """Have the model answer."""
        self._sent += 1
        if self._provider is None:
            raise ModelError(f"model {self._name!r}: no plugin on this node has it; install the same packages there")
        status, body = await self._provider.answer(self._model, json.loads(request["body"]))
        return result_line(request["custom_id"], status, body)


class HttpAsker(Asker):
    """Asks a server over HTTP, many requests at a time, each again where that may help.

    Parameters
    ----------
    at_once, max_retries, attempt_timeout
        Requests in flight, how often each is sent again at most, and the seconds to wait for a response.
    """

    def __init__(
        self, name: str, desk: Any, place: str, mark: str, at_once: int, max_retries: int, attempt_timeout: float
    ) -> None:
        super().__init__(name, desk, place, mark)
        account = ray.get(desk.account.remote(name))
        remember(account.api_key, *secrets_in_url(account.base_url))
        self._account, self._client = account, client_of(account, at_once)
        self._slots = asyncio.Semaphore(at_once)
        self._max_retries, self._timeout = max_retries, attempt_timeout

    async def answer(self, request: Request) -> str:
        """Ask until there is an answer, or what it fails for will not pass."""

        async def once() -> str:
            async with self._slots:
                return await self._asked(request)

        return await send_with_retries(
            once,
            lambda error: classify_error(error, describe_error(error), self._name, self._account.key_name),
            self._breaker,
            role=request["role"],
            about=request["about"],
            max_retries=self._max_retries,
        )

    async def _asked(self, request: Request) -> str:
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


def result_line(custom_id: str, status: int, body: Any) -> str:
    """Return the line of a result, as OpenAI's batches have it."""
    return json.dumps({"custom_id": custom_id, "response": {"status_code": status, "body": body}, "error": None})


def _final(failure: Failure) -> Failure:
    """Return a failure as one that is not to be sent again: it was, as often as it may be."""
    return replace(failure, kind=FailureKind.LASTING) if failure.kind.is_sent_again else failure
