"""Redirects to another server: it receives neither questions nor credentials."""

from __future__ import annotations

from typing import Any

from refusal_index.models.failures import UnreadableReplyError

PORTS = {"http": 80, "https": 443}
HARMLESS = frozenset({"accept", "accept-encoding", "connection", "host", "range", "user-agent"})
"""Headers that hold no credentials; HTTP clients remove only ``Authorization`` by themselves."""


async def check_redirect(response: Any) -> None:
    """Check where an HTTPX response redirects to, before its client follows: a hook for responses.

    A download may be redirected to another server, but without credentials.

    Raises
    ------
    UnreadableReplyError
        If a request with a body is redirected to another server.
    """
    if not response.has_redirect_location:
        return
    request = response.request
    target = request.url.join(response.headers["location"])
    if _is_same(request.url, target):
        return
    address = f"{target.scheme}://{target.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    if request.method not in ("GET", "HEAD"):
        raise UnreadableReplyError(
            f"{request.url.host} redirects to another server, {address[:80]}, which would receive the "
            "questions; correct the base URL if this is intended"
        )
    for name in {*request.headers} - HARMLESS:
        del request.headers[name]


def _is_same(asked: Any, target: Any) -> bool:
    """Whether two URLs are on one server; the same host may change from HTTP to HTTPS at their usual ports."""
    is_upgrade = (asked.scheme, target.scheme) == ("http", "https") and asked.port is None and target.port is None
    return bool(asked.host == target.host and (is_upgrade or _port(asked) == _port(target)))


def _port(url: Any) -> tuple[str, int | None]:
    return url.scheme, url.port or PORTS.get(url.scheme)
