"""The client of OpenAI-compatible servers: OpenAI's own library.

Bodies are sent and read as plain JSON: the library's response types would double the time per request.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
from openai import AsyncOpenAI, BadRequestError, DefaultAioHttpClient

from refusal_index.models.chat_api import BODY, chat_body, read_chat, read_refused_prompt, receive
from refusal_index.models.failures import classify_error, describe_error
from refusal_index.models.requests import Account, Client, ModelRequest, Response, account_of
from refusal_index.models.settings import RequestSettings

CHAT = "/chat/completions"


def client_of(account: Account, at_once: int) -> AsyncOpenAI:
    """Return the client of an account; it neither retries nor times out by itself.

    A login in the URL becomes a header: aiohttp accepts none in a URL.
    """
    limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    base_url, parts = account.base_url, urlsplit(account.base_url)
    headers: dict[str, str] = {}
    login, _, host = parts.netloc.rpartition("@")
    if login:
        base_url = parts._replace(netloc=host).geturl()
        headers = {"Authorization": f"Basic {base64.b64encode(unquote(login).encode()).decode()}"}
    return AsyncOpenAI(
        api_key=account.api_key,
        base_url=base_url,
        default_headers=headers,
        http_client=DefaultAioHttpClient(limits=limits, event_hooks={"response": [receive]}),
        max_retries=0,
        timeout=None,
    )


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


def openai_client(name: str, settings: RequestSettings) -> Client:
    """Return the client of a model on an OpenAI-compatible server.

    Raises
    ------
    ModelError
        If its base URL or key is missing or malformed.
    """
    account, sending = account_of(name), settings.sending
    connection = client_of(account, sending.max_connections or CONCURRENCY)

    async def send(request: ModelRequest) -> Response:
        started = time.monotonic()
        content = json.dumps(chat_body(request, account.model, account.provider)).encode()
        try:
            body = await post_chat(connection, content, sending.attempt_timeout)
        except BadRequestError as error:
            refused = read_refused_prompt(error.body, time.monotonic() - started)
            if refused is None:
                raise
            return refused
        return read_chat(body, time.monotonic() - started)

    return Client(
        send,
        lambda error: classify_error(error, describe_error(error), name, account.key_name),
        CONCURRENCY,
        connection=connection,
    )
