"""What an error comes down to, in one line: the last words of whoever was asked, shortened and harmless."""

from __future__ import annotations

import re
from typing import Any

from refusal_index.engines.error_bodies import SAID
from refusal_index.engines.failures import own_status
from refusal_index.redaction import redacted

LONGEST, LONGEST_BODY = 300, 200
"""Characters of a line, and those that are shown of what is no message."""

READ, DEEPEST = 5_000, 20  # characters of an error that are looked at, and errors behind it
WRAPPERS = ("RetryError", "ModelGenerateError")
"""What retries, and what Inspect, wrap an error in; each holds the one that counts."""

NO_CONNECTION = ("APIConnectionError", "APITimeoutError")
"""What clients wrap whatever befell a connection in: also one that was refused is told as out of time."""

MARKUP = re.compile(r"(?is)<(script|style)\b.*?</\1\s*>|<[^<>]*>|\x1b\[[0-?]*[ -/]*[@-~]")
CODE_FIRST = re.compile(r"^Error code: \d+(?: - |$)")
SHOWN_ERROR = re.compile(r"([A-Z]\w*(?:Error|Exception))\(")
OPENING_QUOTE, CLOSING_QUOTES = re.compile(r"^\\*['\"]"), re.compile(r"(?:\\*['\"]\)+)+$")


def told(error: BaseException) -> str:
    r"""Return what an error comes down to: its class, the status where there is one, and the provider's own words.

    Parameters
    ----------
    error
        As it was raised, however often it was wrapped.

    Examples
    --------
    >>> told(ValueError("the key sk-proj-3fGh8jKl2mNp5qRs is wrong\n"))
    'ValueError: the key [key] is wrong'
    >>> told(ConnectionError())
    'ConnectionError'
    """
    error = _unwrapped(error)
    status, words = _status(error), _message_in(getattr(error, "body", None))
    parts = [type(error).__name__]
    if status is not None:
        parts.append(str(status) if words else f"{status} {_content_type(error)}".strip())
    parts.append(_harmless(words) if words else _shown(error, LONGEST_BODY if status else LONGEST))
    root = _root(error)
    if status is None and root is not error:  # a connection that failed is told by what it failed for
        if parts[0] in NO_CONNECTION and not isinstance(root, TimeoutError):
            parts.clear()
        parts += [type(root).__name__, _shown(root, LONGEST)]
    return ": ".join(filter(None, (*(part.removesuffix(".") for part in parts[:-1]), *parts[-1:])))[:LONGEST]


def _unwrapped(error: BaseException) -> BaseException:
    while type(error).__name__ in WRAPPERS:
        attempt = getattr(error, "last_attempt", None)
        held = (attempt.exception() if attempt else None) or error.__cause__ or error.__context__
        if held is None:
            break
        error = held
    return error


def _root(error: BaseException) -> BaseException:
    """Return the first of the errors of which each was raised from the one before."""
    for _ in range(DEEPEST):  # errors may have led to each other
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _status(error: BaseException) -> int | None:
    """Return the status as it was sent."""
    said: int | None = getattr(getattr(error, "response", None), "extensions", {}).get(SAID)
    return own_status(error) if said is None else said


def _content_type(error: BaseException) -> str:
    headers = getattr(getattr(error, "response", None), "headers", {})
    return str(headers.get("content-type", "")).partition(";")[0]


def _message_in(body: Any) -> str:
    """Return the message within an error's body; nothing where there is none."""
    if isinstance(body, list):
        return next(filter(None, map(_message_in, body)), "")
    if not isinstance(body, dict):
        return ""
    for name in ("error", "message", "detail", "msg"):
        found = body.get(name)
        if words := found if isinstance(found, str) else _message_in(found):
            return words
    return ""


def _shown(error: BaseException, longest: int) -> str:
    """Show an error in which there is no message: its body where that is a text, or what it says itself."""
    body, own = getattr(error, "body", None), CODE_FIRST.sub("", str(error))
    if not isinstance(body, str):
        body = own or getattr(getattr(error, "response", None), "text", "")
    return _harmless(body, longest)


def _harmless(text: str, longest: int = LONGEST) -> str:
    """Return a text in one line without keys, markup and whatever a terminal would obey."""
    plain = MARKUP.sub(" ", redacted(text)[:READ])
    line = " ".join("".join(one if one.isprintable() else " " for one in plain).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def error_line(shown: str) -> str:
    r"""Return the innermost error and its message, of an error that only a log still holds.

    Parameters
    ----------
    shown
        The error as `repr` shows it. Inspect wraps the provider's in its own, behind the whole request.

    Examples
    --------
    >>> error_line(r"ModelGenerateError('\nRequest:\n{...}\n\nBadRequestError(\'Error code: 400 - too long\')')")
    'BadRequestError: Error code: 400 - too long'
    """
    line = " ".join(shown.split())
    errors = list(SHOWN_ERROR.finditer(line))
    if not errors:
        return line
    message = CLOSING_QUOTES.sub("", OPENING_QUOTE.sub("", line[errors[-1].end() :]))
    return f"{errors[-1][1]}: {message}"
