"""The one filter that whatever is written or printed passes through: no key is in what it returns.

It knows the values of keys: those of the environment, those in its URLs, and those that `remember` was told. It knows
as well how the keys of common providers look. Both hold in a reply, in an error and in a URL, however they are escaped.
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
SHORTEST = 6  # a shorter value would black out ordinary text
LONGEST_NAME = 16  # of a user; what is longer and stands before the @ alone is a key
BLACKED_OUT = "[key]"

NO_SECRETS = re.compile(
    "(?:api|dummy|no)[-_]?key|no-key-required|not[-_]needed|anything|changeme|default|inspectai|llama-cpp-python|"
    "lm-studio|localhost|nothing|ollama|openai|password|placeholder|secret|unused",
    re.IGNORECASE,
)
"""What servers without keys are given for one; without them here, ordinary words would be blacked out."""

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
"""How keys look: what each has in it, which is found faster than the pattern, and what is put in its place."""

PREFIXES = ("sk-", "hf_", "AIza", "xai-", "gsk_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "AKIA")
"""How the keys begin that are known by a provider's prefix."""

AT_ONCE = 200_000
"""Characters of texts to look through at once for a key."""

_remembered: set[str] = set()


def remember(*secrets: str | None) -> None:
    """Have the filter know keys that are not in the environment; a URL is looked through for those in it."""
    for secret in filter(None, secrets):
        _remembered.update(secrets_in_url(secret) if "://" in secret else [secret])


def remember_named(value: Any) -> None:
    """Have the filter know what is named like a key within a document, such as the headers of a request."""
    for name, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            remember(*(part for one in _secrets_of(str(name), item) for part in (one, *one.split()[1:])))
        remember_named(item)


def redacted(text: str) -> str:
    """Return a text without keys.

    Examples
    --------
    >>> redacted("Incorrect API key provided: sk-proj-3fGh8jKl2mNp5qRs")
    'Incorrect API key provided: [key]'
    >>> redacted("no answer from https://me:hush@127.0.0.1/v1?key=hush&n=1")
    'no answer from https://[key]@127.0.0.1/v1?key=[key]&n=1'
    """
    for form in _forms(tuple(os.environ.items()), frozenset(_remembered)):
        if form in text:
            text = text.replace(form, BLACKED_OUT)
    for sign, pattern, instead in PATTERNS:
        if sign in text:
            text = pattern.sub(instead, text)
    return text


class KeySearch:
    """Looks through many texts for the first with a key; `place` is where that is, None while there is none.

    It knows the keys that the filter knows, and those with a provider's prefix. What follows ``Bearer`` or ``?token=``
    is no sign: in questions it is often an example, or part of an address that a text quotes.
    """

    def __init__(self) -> None:
        self.place: Any = None
        self._held: list[tuple[Any, str]] = []
        self._length = 0
        forms = _forms(tuple(os.environ.items()), frozenset(_remembered))
        prefixed = [pattern.pattern for _, pattern, instead in PATTERNS if instead == BLACKED_OUT]
        self._key = re.compile("|".join((*map(re.escape, forms), *prefixed)), re.ASCII)
        # One search of Polars for all signs takes a hundredth of the time that `re` takes for the keys themselves.
        signs = "|".join(re.sub(r"[!-/:;=?@\[-`{-~]", r"\\\g<0>", sign) for sign in (*forms, *PREFIXES))
        self._signs = signs.encode(errors="ignore").decode()

    def add(self, place: Any, text: str) -> None:
        """Look through a text, when enough have come to look through."""
        if self.place is None:
            self._held.append((place, text))
            self._length += len(text)
            if self._length > AT_ONCE:
                self.finish()

    def finish(self) -> None:
        """Look through what has come."""
        import polars as pl  # noqa: PLC0415 - long to import, and most that is filtered needs none of it

        found = pl.Series([text for _, text in self._held], dtype=pl.String).str.contains(self._signs)
        pairs = zip(self._held, found, strict=True)
        self.place = self.place or next((place for (place, text), hit in pairs if hit and self._key.search(text)), None)
        self._held, self._length = [], 0


def redacted_in(value: Any) -> Any:
    """Return `value` with every text in it without keys, itself where there are none, as nearly always.

    Dictionaries, lists and tuples are gone through; whatever else is no text stays as it is.

    Examples
    --------
    >>> redacted_in({"url": "http://me:hush@127.0.0.1", "code": 401})
    {'url': 'http://[key]@127.0.0.1', 'code': 401}
    """
    whole = "\0".join(_texts(value))
    return value if redacted(whole) == whole else _cleaned(value)


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
    """Return the password and the secret arguments of a URL, or of any text that may be one.

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
    own = password or (user if len(user) >= LONGEST_NAME else "")
    named = (value for name, value in arguments if re.fullmatch(SECRET_PARAMETER, name, re.IGNORECASE))
    return [unquote(own), *named] if own else [*named]


@lru_cache(maxsize=1)
def _forms(environment: Iterable[tuple[str, str]], remembered: Iterable[str]) -> tuple[str, ...]:
    """Return every secret in every form that it may take in a text, the longest first."""
    secrets = {one.strip() for one in chain(remembered, *(_secrets_of(*one) for one in environment))}
    known = (one for one in secrets if len(one) >= SHORTEST and not NO_SECRETS.fullmatch(one))
    return tuple(sorted({form for one in known for form in _escaped(one)}, key=len, reverse=True))


def _secrets_of(name: str, value: str) -> Iterable[str]:
    if "://" in value:
        return secrets_in_url(value)
    if not SECRET_NAME.search(name) or os.path.exists(value):  # noqa: PTH110 - the path of a file with a key is none
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
