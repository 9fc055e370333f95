"""Responses that say 200 and are errors: each is given the status of one before a client looks at it.

The client of OpenAI takes them for replies that lack everything, so that nobody would read what the provider said.
"""

from __future__ import annotations

import json
from typing import Any

OK, NO_STATUS = 200, 502
REPLIES = {"choices": list, "output": list}
"""What the responses of OpenAI's two interfaces hold."""

SAID = "status_as_sent"


async def unmask(response: Any) -> None:
    """Give a response of httpx that says 200 and is no reply the status that it names, or that of a bad gateway.

    A response in pieces is left alone, as is any that comes from elsewhere than where replies do.
    """
    path, kind = response.request.url.path, response.headers.get("content-type", "")
    if response.status_code != OK or "event-stream" in kind or not path.endswith(("/completions", "/responses")):
        return
    body = _json(await response.aread())
    if not any(isinstance(body.get(name), held) for name, held in REPLIES.items()):
        response.extensions = {**response.extensions, SAID: OK}
        response.status_code = _status_in(body)


def _json(content: bytes) -> dict[str, Any]:
    """Return the object that a body holds; an empty one for whatever else it is."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _status_in(body: dict[str, Any]) -> int:
    error = body.get("error")
    named = [holder.get(name) for holder in (error, body) if isinstance(holder, dict) for name in ("code", "status")]
    return next((one for one in named if isinstance(one, int) and 400 <= one < 600), NO_STATUS)
