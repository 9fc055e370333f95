"""The filter that removes API keys from everything that is written or printed.

It recognises keys by value (from environment variables, from URLs in them, and those passed to `remember`) and by the
formats of common providers. Both are found in replies, errors and URLs, however they are escaped.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

SECRET_NAME = re.compile(
    r"(?:KEYS?|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?<![A-Z])AUTH(?:ORIZATION)?)(?![A-Z])", re.IGNORECASE
)
SECRET_PARAMETER = r"(?:[\w.-]*[_.-])?(?:api_?key|key|token|secret|password|passwd|auth|sig|signature)"  # noqa: S105 - a name
SHORTEST = 6  # shorter values would redact ordinary text
MAX_NAME_LENGTH = 16  # of a user name; a longer one without a password before the @ is a key
BLACKED_OUT = "[key]"

NO_SECRETS = re.compile(
    "(?:api|dummy|no)[-_]?key|no-key-required|not[-_]needed|anything|changeme|default|inspectai|llama-cpp-python|"
    "lm-studio|localhost|nothing|ollama|openai|password|placeholder|secret|unused",
    re.IGNORECASE,
)
"""Placeholder keys for servers that need none; without this list, ordinary words would be redacted."""

PATTERNS = (
    ("sk-", re.compile(r"(?<![\w-])sk-(?=[A-Za-z_-]*\d)[\w-]{16,}", re.ASCII), BLACKED_OUT),
    ("hf_", re.compile(r"(?<!\w)hf_[A-Za-z0-9]{30,}"), BLACKED_OUT),
    ("AIza", re.compile(r"(?<![\w-])AIza[\w-]{35}", re.ASCII), BLACKED_OUT),
    ("xai-", re.compile(r"(?<![\w-])xai-[A-Za-z0-9]{20,}"), BLACKED_OUT),
    ("gsk_", re.compile(r"(?<!\w)gsk_[A-Za-z0-9]{20,}"), BLACKED_OUT),
    ("gh", re.compile(r"(?<!\w)(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,})", re.ASCII), BLACKED_OUT),
    ("AKIA", re.compile(r"(?<!\w)AKIA[0-9A-Z]{16}(?!\w)"), BLACKED_OUT),
    ("earer ", re.compile(r"(?<!\w)([Bb]earer )(?=[A-Za-z._~+/=-]*\d)[\w.~+/=-]{16,}", re.ASCII), rf"\1{BLACKED_OUT}"),
    ("asic ", re.compile(r"(?<!\w)([Bb]asic )(?=[A-Za-z+/_-]*[\d=])[\w+/-]{8,}=*", re.ASCII), rf"\1{BLACKED_OUT}"),
    ("://", re.compile(r"(?<=://)[^\s/?#@\"'<>\\]+@"), f"{BLACKED_OUT}@"),
    ("=", re.compile(rf"([?&]{SECRET_PARAMETER}=)[^\s&#\"'<>\\\[]+", re.IGNORECASE | re.ASCII), rf"\1{BLACKED_OUT}"),
)
"""Formats of keys: a fixed substring (which is found faster than the pattern), the pattern, and its replacement."""

PREFIXES = ("sk-", "hf_", "AIza", "xai-", "gsk_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "AKIA")
"""Prefixes of the keys of known providers."""

CHUNK_SIZE = 200_000
"""Number of characters to search at once for keys."""

_remembered: set[str] = set()


def remember(*secrets: str | None) -> None:
    """Add keys that are not in the environment to the filter; from a URL, the keys in it."""
    for secret in filter(None, secrets):
        _remembered.update(secrets_in_url(secret) if "://" in secret else [secret])


def remember_named(value: Any) -> None:
    """Add the values in a document, such as request headers, whose names look like those of keys."""
    for name, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            remember(*(part for secret in _secrets_of(str(name), item) for part in (secret, *secret.split()[1:])))
        remember_named(item)


def redacted(text: str) -> str:
    """Return a text with every key replaced by ``[key]``.

    Examples
    --------
    >>> redacted("Incorrect API key provided: sk-proj-3fGh8jKl2mNp5qRs")
    'Incorrect API key provided: [key]'
    >>> redacted("no answer from https://me:hush@127.0.0.1/v1?key=hush&n=1")
    'no answer from https://[key]@127.0.0.1/v1?key=[key]&n=1'
    """
    for form in _forms():
        if form in text:
            text = text.replace(form, BLACKED_OUT)
    for sign, pattern, instead in PATTERNS:
        if sign in text:
            text = pattern.sub(instead, text)
    return text


class KeySearch:
    """Searches many texts for a key; `place` is the place of the first text with one, or None.

    It finds the keys that the filter knows, and those with a provider's prefix. Text after ``Bearer`` or ``?token=``
    does not count: in questions it is often an example, or part of a quoted address.
    """

    def __init__(self) -> None:
        self.place: Any = None
        self._unsearched: list[tuple[Any, str]] = []
        self._length = 0
        forms = _forms()
        prefixed = [pattern.pattern for _, pattern, instead in PATTERNS if instead == BLACKED_OUT]
        self._key = re.compile("|".join((*map(re.escape, forms), *prefixed)), re.ASCII)
        # One Polars search for all these substrings takes 1% of the time that `re` takes for the keys themselves.
        signs = "|".join(re.sub(r"[!-/:;=?@\[-`{-~]", r"\\\g<0>", sign) for sign in (*forms, *PREFIXES))
        self._signs = signs.encode(errors="ignore").decode()

    def add(self, location: Any, text: str) -> None:
        """Add a text; texts are searched once enough have been added."""
        if self.place is None:
            self._unsearched.append((location, text))
            self._length += len(text)
            if self._length > CHUNK_SIZE:
                self.finish()

    def finish(self) -> None:
        """Search the texts that were added since the last search."""
        import polars as pl  # noqa: PLC0415 - slow to import, and most calls do not need it

        hits = pl.Series([text for _, text in self._unsearched], dtype=pl.String).str.contains(self._signs)
        pairs = zip(self._unsearched, hits, strict=True)
        self.place = self.place or next(
            (location for (location, text), hit in pairs if hit and self._key.search(text)), None
        )
        self._unsearched, self._length = [], 0


def redacted_in(value: Any) -> Any:
    """Return `value` with keys removed from every text in it; `value` itself if it holds none.

    Dictionaries, lists and tuples are searched recursively; other values are returned unchanged.

    Examples
    --------
    >>> redacted_in({"url": "http://me:hush@127.0.0.1", "code": 401})
    {'url': 'http://[key]@127.0.0.1', 'code': 401}
    """
    text = "\0".join(_texts(value))
    return value if redacted(text) == text else _cleaned(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in chain(value, value.values() if isinstance(value, dict) else ()):
            yield from _texts(item)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = map(_cleaned, value)
        return list(items) if isinstance(value, list) else tuple(items)
    return value


def secrets_in_url(url: str) -> list[str]:
    """Return the password and the secret query parameters of a URL, or of any text that may be one.

    Examples
    --------
    >>> secrets_in_url("https://me:swordfish@host/v1?api_key=123456&n=1")
    ['swordfish', '123456']
    """
    try:
        parts = urlsplit(url)
        user, password, arguments = parts.username or "", parts.password, parse_qsl(parts.query)
    except ValueError:
        return []
    credential = password or (user if len(user) >= MAX_NAME_LENGTH else "")
    named = (value for name, value in arguments if re.fullmatch(SECRET_PARAMETER, name, re.IGNORECASE))
    return [unquote(credential), *named] if credential else [*named]


def _forms() -> tuple[str, ...]:
    """Return every secret in each form in which it may occur in a text, the longest first."""
    # Decoding all variables for each reply would take longer than the search.
    return _forms_of(tuple(getattr(os.environ, "_data", os.environ).items()), frozenset(_remembered))


@lru_cache(maxsize=1)
def _forms_of(environment: Iterable[tuple[bytes, bytes]], remembered: Iterable[str]) -> tuple[str, ...]:
    secrets = {
        variable.strip()
        for variable in chain(remembered, *(_secrets_of(*map(os.fsdecode, secret)) for secret in environment))
    }
    candidates = (secret for secret in secrets if len(secret) >= SHORTEST and not NO_SECRETS.fullmatch(secret))
    return tuple(sorted({form for secret in candidates for form in _escaped(secret)}, key=len, reverse=True))


def _secrets_of(name: str, value: str) -> Iterable[str]:
    if "://" in value:
        return secrets_in_url(value)
    if not SECRET_NAME.search(name) or os.path.exists(value):  # noqa: PTH110 - the path of a key file is not a key
        return ()
    return value, *value.split(",")


def _escaped(secret: str) -> Iterator[str]:
    content = secret.encode(errors="surrogateescape")
    quoted = quote(content, safe="")
    yield from (
        secret,
        quoted,
        quote(content),
        quote_plus(content),
        re.sub("%..", lambda code: code[0].lower(), quoted),
    )
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(content).decode()
        yield from (encoded, encoded.rstrip("="))
