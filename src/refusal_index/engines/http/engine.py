"""The engine for OpenAI-compatible servers, with OpenAI's own client.

Bodies are sent and read as they are: what the client's own types would add to that takes as long as all the rest.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import unquote, urlsplit

import httpx2
from openai import AsyncOpenAI, BadRequestError, DefaultAioHttpClient

from refusal_index.engines.accounts import Account, account_of
from refusal_index.engines.asks import Ask, Response, Send, chat_body, completed, read_chat, read_refused_prompt
from refusal_index.engines.engine import Assignment, ModelError, carry_concurrently
from refusal_index.engines.failures import CircuitBreaker, Failure, RequestFailedError, failure_of, told
from refusal_index.engines.functions import (
    RETRIES,
    FunctionError,
    asked_by_name,
    checked,
    function_failure,
    function_sender,
    plain_ask,
    unanswered,
)
from refusal_index.engines.received import receive
from refusal_index.engines.retrying import patiently
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.protocol import Asked, Completion

CHAT = "/chat/completions"


def client_of(account: Account, at_once: int) -> AsyncOpenAI:
    """Return the client of an account, which sends nothing again by itself and waits as long as it is let."""
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    base_url, headers = _without_login(account.base_url)
    return AsyncOpenAI(
        api_key=account.api_key,
        base_url=base_url,
        default_headers=headers,
        http_client=DefaultAioHttpClient(limits=limits, event_hooks={"response": [receive]}),
        max_retries=0,
        timeout=None,
    )


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without the name and password in it, and the header that tells them: aiohttp takes no such URL."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    if not login:
        return url, {}
    told = base64.b64encode(unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {told}"}


def sender(client: AsyncOpenAI, account: Account, attempt_timeout: float) -> Send:
    """Return what asks an account; a response that has not come whole in so many seconds is a TimeoutError."""

    async def send(ask: Ask) -> Response:
        started = time.monotonic()
        content = json.dumps(chat_body(ask, account.model, account.provider)).encode()
        try:
            response = await posted(client, content, attempt_timeout)
        except BadRequestError as error:
            refused = read_refused_prompt(error.body, time.monotonic() - started)
            if refused is None:
                raise
            return refused
        return read_chat(json.loads(response.content), time.monotonic() - started)

    return send


async def posted(client: AsyncOpenAI, content: bytes, attempt_timeout: float) -> httpx2.Response:
    """Send the body of a chat request, and return the response once it has come whole.

    Raises
    ------
    TimeoutError
        If it has not within so many seconds.
    """
    try:
        async with asyncio.timeout(attempt_timeout):
            return await client.post(CHAT, cast_to=httpx2.Response, content=content)
    except TimeoutError:
        raise TimeoutError(f"no response within {attempt_timeout:g} seconds") from None


AT_ONCE = 100
"""Requests in flight, unless the settings say otherwise."""


class HttpEngine:
    """Carries requests to servers that speak OpenAI's chat API; functions are asked in this process.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them.

    Raises
    ------
    ModelError
        If a model has no such server, or its address or key is missing.
    """

    together = False

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:
        self._settings, self._names = settings, names
        self._senders: dict[Asked, Send] = {}
        self._accounts: dict[Asked, Account] = {}
        for asked, name in names.items():
            function = function_sender(asked, name, objects.get(name))
            if function is not None:
                self._senders[asked] = function
        for asked, name in asked_by_name(names, objects).items():
            self._accounts[asked] = _account(asked, name)

    @property
    def _at_once(self) -> int:
        return self._settings.sending.max_connections or AT_ONCE

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Connect, check the graders that have not replied before, and close all connections at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plain case rightly.
        """
        async with AsyncExitStack() as stack:
            for asked, account in self._accounts.items():
                client = await stack.enter_async_context(client_of(account, self._at_once))
                self._senders[asked] = sender(client, account, self._settings.sending.attempt_timeout)
            for asked in self._accounts:
                if asked is not Asked.MODEL and (store is None or not store.has_heard(asked)):
                    verdict = await self._check_grader(asked)
                    if store is not None:
                        store.put([verdict])
            yield

    async def carry(self, assignment: Assignment) -> None:
        """Ask whatever is due, so many questions at a time."""
        await carry_concurrently(assignment, self._send, self._explain, self._at_once)

    async def _check_grader(self, asked: Asked) -> Completion:
        name, ask, explain = self._names[asked], plain_ask(asked), partial(self._explain, asked=asked)

        async def once() -> Completion:
            return completed(ask, await self._senders[asked](ask))[0]

        try:
            verdict = await patiently(once, explain, CircuitBreaker(), role=asked, about=name, max_retries=RETRIES)
        except RequestFailedError as error:
            raise unanswered(name, error.failure.message) from error
        return checked(name, asked, verdict.reply.text, verdict.input_tokens, verdict.output_tokens)

    async def _send(self, ask: Ask) -> Response:
        return await self._senders[ask.request.asked](ask)

    def _explain(self, error: Exception, asked: Asked) -> Failure:
        if isinstance(error, FunctionError):
            return function_failure(error)
        return failure_of(error, told(error), self._names[asked], self._accounts[asked].key_name)


def _account(asked: Asked, name: str) -> Account:
    try:
        return account_of(name)
    except ModelError as error:
        if asked is Asked.MODEL:
            raise
        raise ModelError(
            f"grader: {error.args[0]}; choose another one, or {{grader}} exact, which asks nobody"
        ) from error
