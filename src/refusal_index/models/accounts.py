"""Where a model is asked over HTTP, under which name and with which key: from its name and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from refusal_index.models.requests import ModelError
from refusal_index.redaction import redacted, remember, secrets_in_url

OPENAI, COMPATIBLE = "openai", "openai-api"
OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # of a server that asks for none; the client wants one


@dataclass(frozen=True)
class Account:
    """Where a model is asked, of a server that speaks the OpenAI API.

    Attributes
    ----------
    name
        As the run knows the model.
    provider, model
        Who serves it, in lower case, and what it is called there.
    base_url, api_key
        Where, and with which key.
    key_name
        The variable that holds the key.
    """

    name: str
    provider: str
    model: str
    base_url: str = field(repr=False)
    api_key: str = field(repr=False, default=NO_KEY)
    key_name: str = "the key"

    @property
    def url_name(self) -> str:
        """The variable that holds the base URL."""
        return self.key_name.replace("API_KEY", "BASE_URL")


def called(name: str) -> tuple[str, str]:
    """Return the provider of a model, and what it calls it.

    Examples
    --------
    >>> called("openai/gpt-4.1"), called("openai-api/together/meta-llama/any")
    (('openai', 'gpt-4.1'), ('together', 'meta-llama/any'))
    """
    provider, _, model = name.removeprefix(f"{COMPATIBLE}/").partition("/")
    return provider, model


def account_of(name: str, environment: Mapping[str, str] = os.environ) -> Account:
    """Return where a model is asked.

    ``openai/MODEL`` is at OpenAI, unless OPENAI_BASE_URL says otherwise; ``PROVIDER/MODEL`` and
    ``openai-api/PROVIDER/MODEL`` are where PROVIDER_BASE_URL says, with the key PROVIDER_API_KEY.

    Parameters
    ----------
    name
        Of the model.
    environment
        Where base URL and key are looked up.

    Raises
    ------
    ModelError
        If the name is not of that form, or its base URL or key is missing or cannot be one.

    Examples
    --------
    >>> account_of("openai-api/almanac/base", {"ALMANAC_BASE_URL": "http://127.0.0.1:8000/v1"}).model
    'base'
    """
    provider, model = called(name)
    if not (provider and model):
        raise ModelError(f"model {name!r}: expected PROVIDER/MODEL, for instance openai/gpt-4.1")
    prefix = re.sub(r"\W", "_", provider).upper()
    url_name, key_name = f"{prefix}_BASE_URL", f"{prefix}_API_KEY"
    url = environment.get(url_name, OPENAI_URL if provider == OPENAI else "")
    if not url:
        hint = "; 'refusal-index serve' offers one" if provider == "almanac" else ""
        raise ModelError(
            f"model {name!r}: expected the address of a server that speaks the OpenAI API in {url_name}, as in "
            f"http://127.0.0.1:8000/v1, found none{hint}"
        )
    _check_url(name, url_name, url)
    key = environment.get(key_name, "")
    if not key and url.startswith(OPENAI_URL):
        raise ModelError(f"model {name!r}: expected a key in {key_name}, found none")
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"model {name!r}: {key_name} holds a line break or a character that no key has; set it again")
    remember(key, *secrets_in_url(url))
    return Account(name, provider.lower(), model, url, key or NO_KEY, key_name)


def _check_url(name: str, url_name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or url != url.strip() or not url.isprintable():
        raise ModelError(
            f"model {name!r}: expected a base URL in {url_name} that begins with http:// or https://, got "
            f"{redacted(url)[:80]!r}"
        )
