"""The filters that remove API keys from what is stored, written or printed.

There are three, since a filter that takes an ordinary word for a key changes what it filters:

- `without_credentials`, for replies and the documents of a run: only keys that the clients were given, see `remember`;
  a user's function is given the keys in the environment.
- `redacted`, for output and exports: also keys in the environment, and the formats of common providers.
- `redacted_error`, for errors and logs: also short keys and passwords.

Keys are found however they are escaped. Names, such as the keys of a document, are never filtered.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

SECRET_NAME = re.compile(
    r"(?:KEYS?|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?<![A-Z])AUTH(?:ORIZATION)?)(?![A-Z])", re.IGNORECASE
)
CUSTOM_HEADERS = "_CUSTOM_HEADERS"  # ends the names of the variables that clients read further headers from
SECRET_PARAMETER = r"(?:[\w.-]*[_.-])?(?:api_?key|key|token|secret|password|passwd|auth|sig|signature)"  # noqa: S105 - a name
NO_WORD = re.compile(r"(?s).{6,}")
"""What a key must look like to be filtered in an error: shorter values would remove ordinary text even there."""

CREDENTIAL = re.compile(r"(?s)(?=.*[^\W\d_])(?=.*\d).{16,}")
"""What a key must look like to be filtered outside of errors: a word of a language does not."""

KEY_IN_PATH = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?:sk-[\w-]{16,}|\w{20,})", re.ASCII)
"""What a part of a path must look like to be taken for a key; names of models hold dots or dashes, and are shorter."""

MAX_NAME_LENGTH = 16  # of a user name; a longer one without a password before the @ is a key
REDACTED = "[key]"

NO_SECRETS = re.compile(
    "(?:api|dummy|no)[-_]?key|no-key-required|not[-_]needed|anything|changeme|default|inspectai|llama-cpp-python|"
    "lm-studio|localhost|nothing|ollama|openai|password|placeholder|secret|unused",
    re.IGNORECASE,
)
"""Placeholder keys for servers that need none; without this list, ordinary words would be redacted."""

PATTERNS = (
    ("sk-", re.compile(r"(?<![\w-])sk-(?=[A-Za-z_-]*\d)[\w-]{16,}", re.ASCII), REDACTED),
    ("hf_", re.compile(r"(?<!\w)hf_[A-Za-z0-9]{30,}"), REDACTED),
    ("AIza", re.compile(r"(?<![\w-])AIza[\w-]{35}", re.ASCII), REDACTED),
    ("xai-", re.compile(r"(?<![\w-])xai-[A-Za-z0-9]{20,}"), REDACTED),
    ("gsk_", re.compile(r"(?<!\w)gsk_[A-Za-z0-9]{20,}"), REDACTED),
    ("gh", re.compile(r"(?<!\w)(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,})", re.ASCII), REDACTED),
    ("AKIA", re.compile(r"(?<!\w)AKIA[0-9A-Z]{16}(?!\w)"), REDACTED),
    ("earer ", re.compile(r"(?<!\w)([Bb]earer )(?=[A-Za-z._~+/=-]*\d)[\w.~+/=-]{16,}", re.ASCII), rf"\1{REDACTED}"),
    ("asic ", re.compile(r"(?<!\w)([Bb]asic )(?=[A-Za-z+/_-]*[\d=])[\w+/-]{8,}=*", re.ASCII), rf"\1{REDACTED}"),
    ("://", re.compile(r"(?<=://)[^\s/?#@\"'<>\\]+@"), f"{REDACTED}@"),
    ("=", re.compile(rf"([?&]{SECRET_PARAMETER}=)[^\s&#\"'<>\\\[]+", re.IGNORECASE | re.ASCII), rf"\1{REDACTED}"),
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


def remember_environment() -> None:
    """Add the keys in the environment, where a user's function finds its own."""
    remember(*chain.from_iterable(_secrets_of(*variable) for variable in os.environ.items()))


def remember_named(value: Any) -> None:
    """Add the values in a document, such as request headers, whose names look like those of keys."""
    for name, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            remember(*(part for secret in _secrets_of(str(name), item) for part in (secret, *secret.split()[1:])))
        remember_named(item)


def holds_secret(value: Any) -> bool:
    """Whether a document holds a text under a name that is that of a key or a password.

    Examples
    --------
    >>> holds_secret({"headers": {"Authorization": "x"}}), holds_secret({"max_tokens": 9, "tokenizer": "x"})
    (True, False)
    """
    if isinstance(value, dict):
        named = (isinstance(item, str) and item and SECRET_NAME.search(str(name)) for name, item in value.items())
        return any(named) or any(map(holds_secret, value.values()))
    return isinstance(value, list) and any(map(holds_secret, value))


def without_credentials(text: str) -> str:
    """Return a text with the keys that clients were given replaced by ``[key]``, and nothing else changed.

    Examples
    --------
    >>> without_credentials("sk-proj-3fGh8jKl2mNp5qRs is nobody's key here")
    "sk-proj-3fGh8jKl2mNp5qRs is nobody's key here"
    """
    return _replaced(text, _given(frozenset(_remembered)))


def redacted_error(text: str) -> str:
    """Return the text of an error or a log with every key and password replaced by ``[key]``, even a short one.

    Examples
    --------
    >>> remember("swordfish")
    >>> redacted_error("the password swordfish is wrong"), redacted("What is a swordfish?")
    ('the password [key] is wrong', 'What is a swordfish?')
    """
    return _by_format(_replaced(text, _forms(NO_WORD)))


def redacted(text: str) -> str:
    """Return a text with every key replaced by ``[key]``.

    Examples
    --------
    >>> redacted("Incorrect API key provided: sk-proj-3fGh8jKl2mNp5qRs")
    'Incorrect API key provided: [key]'
    >>> redacted("no answer from https://me:hush@127.0.0.1/v1?key=hush&n=1")
    'no answer from https://[key]@127.0.0.1/v1?key=[key]&n=1'
    """
    return _by_format(_replaced(text, _forms(CREDENTIAL)))


def _by_format(text: str) -> str:
    for sign, pattern, instead in PATTERNS:
        if sign in text:
            text = pattern.sub(instead, text)
    return text


def _replaced(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        if form in text:
            text = text.replace(form, REDACTED)
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
        forms = _forms(CREDENTIAL)
        prefixed = [pattern.pattern for _, pattern, instead in PATTERNS if instead == REDACTED]
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
        self._unsearched = []
        self._length = 0


def redacted_in(value: Any, redact: Callable[[str], str] = redacted) -> Any:
    """Return `value` with keys removed from every text in it; `value` itself if it holds none.

    Dictionaries, lists and tuples are searched recursively; their other values and the names in a dictionary are
    returned unchanged.

    Parameters
    ----------
    value
        The value.
    redact
        One of the filters of this module.

    Examples
    --------
    >>> redacted_in({"url": "http://me:hush@127.0.0.1", "code": 401})
    {'url': 'http://[key]@127.0.0.1', 'code': 401}
    """
    text = "\0".join(_texts(value))
    return value if redact(text) == text else _cleaned(value, redact)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _cleaned(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _cleaned(item, redact) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = (_cleaned(item, redact) for item in value)
        return list(items) if isinstance(value, list) else tuple(items)
    return value


def secrets_in_url(url: str) -> list[str]:
    """Return the password, the secret query parameters and the keys in the path of a URL, or of a text that may be one.

    Examples
    --------
    >>> secrets_in_url("https://me:swordfish@host/v1?api_key=123456&n=1")
    ['swordfish', '123456']
    >>> secrets_in_url("https://gateway/a8Kd02jLmQ7xYz41bNcV/openai/gpt-4o-mini-2024-07-18")
    ['a8Kd02jLmQ7xYz41bNcV']
    """
    try:
        parts = urlsplit(url)
        user = parts.username or ""
        password = parts.password
        arguments = parse_qsl(parts.query)
    except ValueError:
        return []
    credential = password or (user if len(user) >= MAX_NAME_LENGTH else "")
    named = [value for name, value in arguments if re.fullmatch(SECRET_PARAMETER, name, re.IGNORECASE)]
    in_path = [part for part in parts.path.split("/") if KEY_IN_PATH.fullmatch(part)]
    return [*([unquote(credential)] if credential else []), *named, *in_path]


def _forms(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return every secret that matches a pattern in each form in which it may occur in a text, the longest first."""
    # Decoding all variables for each text would take longer than the search.
    environment = tuple(getattr(os.environ, "_data", os.environ).items())
    return _forms_of(environment, frozenset(_remembered), pattern)


@lru_cache(maxsize=2)
def _forms_of(
    environment: Iterable[tuple[bytes, bytes]], remembered: Iterable[str], pattern: re.Pattern[str]
) -> tuple[str, ...]:
    named = (_secrets_of(*map(os.fsdecode, variable)) for variable in environment)
    return _in_each_form(chain(remembered, *named), pattern)


@lru_cache(maxsize=1)
def _given(remembered: frozenset[str]) -> tuple[str, ...]:
    return _in_each_form(remembered, CREDENTIAL)


def _in_each_form(secrets: Iterable[str], pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return the secrets that match a pattern, in each form, the longest first."""
    plain = {secret.strip() for secret in secrets}
    chosen = (secret for secret in plain if pattern.fullmatch(secret) and not NO_SECRETS.fullmatch(secret))
    return tuple(sorted({form for secret in chosen for form in _escaped(secret)}, key=len, reverse=True))


def _secrets_of(name: str, value: str) -> Iterable[str]:
    if name.endswith(CUSTOM_HEADERS):
        return [part for line in value.splitlines() for part in _parts_of(line.partition(":")[2])]
    if "://" in value:
        return secrets_in_url(value)
    if not SECRET_NAME.search(name) or os.path.exists(value):  # noqa: PTH110 - the path of a key file is not a key
        return ()
    return value, *value.split(",")


def remember_headers(headers: Mapping[str, Any]) -> None:
    """Add the values of custom headers to the filter: gateways take keys in headers of any name.

    Of a value such as ``Bearer KEY``, the part after the scheme is a key as well.
    """
    for value in headers.values():
        if isinstance(value, str):
            remember(*_parts_of(value))


def _parts_of(value: str) -> tuple[str, ...]:
    scheme, _, rest = value.strip().partition(" ")
    return (value, rest) if rest and scheme.isalpha() else (value,)


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
