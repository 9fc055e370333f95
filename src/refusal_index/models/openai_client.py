"""The client of OpenAI-compatible servers: OpenAI's own library.

Bodies are sent and read as plain JSON: the library's response types would double the time per request.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2
from openai import AsyncOpenAI, BadRequestError, Omit

from refusal_index.models.accounts import Account, account_for, host_of, is_openai
from refusal_index.models.chat_api import BODY, chat_body, read_chat, read_refused_prompt, receive
from refusal_index.models.connections import http_client
from refusal_index.models.failures import classify_error, describe_error
from refusal_index.models.requests import Client, ModelError, ModelRequest, Response, check_certificates
from refusal_index.models.sent import sent_in
from refusal_index.models.settings import RequestSettings
from refusal_index.protocol import Role
from refusal_index.redaction import remember_headers

CHAT = "/chat/completions"
NO_KEY = "none"
"""A key that is not sent: the client needs one."""

OF_OPENAI = ("OpenAI-Organization", "OpenAI-Project")
"""Headers that the client sends from the environment, and only OpenAI should receive."""


def client_of(account: Account, at_once: int) -> AsyncOpenAI:
    """Return the client of an account; it neither retries nor times out by itself.

    A login in the URL becomes a header, since aiohttp accepts none in a URL, and a query follows the path of each
    request. Without a key, no ``Authorization`` is sent.

    Raises
    ------
    ModelError
        If the certificates that the environment names cannot be read.
    """
    check_certificates()
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    parts = urlsplit(account.base_url)
    headers = headers_of(account)
    login, _, host = parts.netloc.rpartition("@")
    if login:
        given = {name.lower() for name, _ in account.headers}
        if "authorization" not in given:
            headers["Authorization"] = f"Basic {base64.b64encode(unquote(login).encode()).decode()}"
    client = AsyncOpenAI(
        api_key=account.api_key or NO_KEY,
        base_url=parts._replace(netloc=host, query="", fragment="").geturl(),
        default_headers=headers,
        default_query=dict(parse_qsl(parts.query)),
        http_client=http_client(limits=limits, event_hooks={"request": [leave_out_no_key], "response": [receive]}),
        max_retries=0,
        timeout=None,
    )
    remember_headers(client._custom_headers)
    return client


def headers_of(account: Account) -> dict[str, Any]:
    """Return the headers of each request of OpenAI's client in place of its own; an `Omit` leaves one out."""
    return {**({} if is_openai(account.base_url) else dict.fromkeys(OF_OPENAI, Omit())), **dict(account.headers)}


async def leave_out_no_key(request: Any) -> None:
    """Remove the stand-in for a key from a request: a hook of the HTTP client."""
    if request.headers.get("authorization") == f"Bearer {NO_KEY}":
        del request.headers["authorization"]


def with_headers(account: Account, settings: RequestSettings, environment: Mapping[str, str] = os.environ) -> Account:
    """Return an account with the headers of the settings, if it is on the host of the model under evaluation.

    Raises
    ------
    ModelError
        If the environment variable of a header is not set, or its value cannot be sent.
    """
    url = settings.servers.base_url
    if not settings.sending.header or not url or host_of(account.base_url) != host_of(url):
        return account
    headers: list[tuple[str, str]] = []
    for name, variable in settings.sending.header:
        value = environment.get(variable, "")
        if not value or not (value.isascii() and value.isprintable()):
            found = "a line break or an invalid character" if value else "none"
            raise ModelError(f"{{header}} {name}: expected its value in {variable}, found {found}; set it again")
        headers.append((name, value))
    return replace(account, headers=tuple(headers))


async def post_chat(client: AsyncOpenAI, content: bytes, attempt_timeout: float) -> Any:
    """Send the body of a chat request, and return the normalised body of the response.

    Raises
    ------
    TimeoutError
        If the response is incomplete after that many seconds.
    """
    try:
        async with asyncio.timeout(attempt_timeout):
            response = await client.post(CHAT, cast_to=httpx2.Response, content=content)
    except TimeoutError:
        raise TimeoutError(f"no response within {attempt_timeout:g} seconds") from None
    return response.extensions[BODY] if BODY in response.extensions else json.loads(response.content)


CONCURRENCY = 100
"""Default number of concurrent requests."""


def openai_client(role: Role, name: str, settings: RequestSettings) -> Client:
    """Return the client of a model on an OpenAI-compatible server.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    settings
        The settings of the run.

    Raises
    ------
    ModelError
        If its base URL, key or a header is missing or malformed.
    """
    sending = settings.sending
    account = with_headers(account_for(role, name, settings), settings)
    extra: dict[str, Any] = json.loads(sending.extra_body or "{}")
    connection = client_of(account, sending.max_connections or CONCURRENCY)

    async def send(request: ModelRequest) -> Response:
        started = time.monotonic()
        asked = chat_body(request, account.model, account.provider)
        if request.decoding is not None:  # not of a grader
            asked |= extra
        content = json.dumps(asked).encode()
        try:
            body = await post_chat(connection, content, sending.attempt_timeout)
        except BadRequestError as error:
            refused = read_refused_prompt(error.body, time.monotonic() - started)
            if refused is None:
                raise
            return replace(refused, sent=sent_in(asked))
        return replace(read_chat(body, time.monotonic() - started), sent=sent_in(asked))

    return Client(
        send,
        lambda error: classify_error(error, describe_error(error), name, account.key_advice),
        CONCURRENCY,
        connection=connection,
    )
