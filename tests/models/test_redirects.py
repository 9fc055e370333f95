"""A redirect to another server takes neither questions nor credentials there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from refusal_index.models.failures import FailureKind, UnreadableReplyError, classify_error
from refusal_index.models.redirects import check_redirect

KEYS = {"Authorization": "Bearer k", "x-api-key": "k", "api-key": "k", "X-Gateway": "k"}
BODY = b"the questions"


def requests_sent(method: str, url: str, location: str, status: int) -> list[Any]:
    """Return the requests that arrive if a server redirects the first one."""
    arrived: list[Any] = []

    def serve(request: Any) -> Any:
        arrived.append(SimpleNamespace(content=request.content, headers=dict(request.headers)))
        return httpx2.Response(status, headers={"Location": location}) if len(arrived) == 1 else httpx2.Response(200)

    async def send() -> None:
        hooks: Any = {"response": [check_redirect]}
        transport = httpx2.MockTransport(serve)
        async with httpx2.AsyncClient(transport=transport, event_hooks=hooks, follow_redirects=True) as client:
            await client.request(method, url, headers=KEYS, content=BODY if method == "POST" else None)

    try:
        asyncio.run(send())
    except UnreadableReplyError as error:
        arrived.append(error)
    return arrived


ELSEWHERE = [
    ("http://a.example/v1/x", "http://b.example/v1/x"),
    ("http://a.example/v1/x", "//b.example/v1/x"),
    ("http://a.example/v1/x", "http://a.example:8080/v1/x"),
    ("https://a.example/v1/x", "http://a.example/v1/x"),
    ("http://a.example:8080/v1/x", "https://a.example/v1/x"),
    ("http://a.example/v1/x", "http://a.example@b.example/v1/x"),
]
SAME = [
    ("http://a.example/v1/x", "/v2/x"),
    ("http://a.example/v1/x", "http://a.example:80/v2/x"),
    ("http://a.example/v1/x", "https://a.example/v1/x"),
    ("https://a.example:8443/v1/x", "https://a.example:8443/v2/x"),
]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(("url", "location"), ELSEWHERE)
def test_questions_are_not_redirected_to_another_server(url, location, status):
    first, error = requests_sent("POST", url, location, status)
    assert first.content == BODY
    assert str(error).startswith("a.example redirects to another server, http")
    assert "a.example@" not in str(error)
    assert classify_error(error, str(error), "openai/any").kind is FailureKind.REQUEST


@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize(("url", "location"), ELSEWHERE)
def test_download_is_redirected_to_another_server_without_credentials(url, location, status):
    first, second = requests_sent("GET", url, location, status)
    assert {name.lower() for name in KEYS} <= {*first.headers}
    assert not {name.lower() for name in KEYS} & {*second.headers}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("url", "location"), SAME)
def test_redirect_within_a_server_takes_everything_along(url, location, method):
    first, second = requests_sent(method, url, location, 307)
    assert second.content == first.content
    assert {name.lower() for name in KEYS} <= {*second.headers}
