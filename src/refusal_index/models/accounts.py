"""Where a model is asked: the address and the key of its server.

A model is named in one of two ways: as ``PROVIDER/MODEL``, or by a server whose base URL the settings give. Then the
name is used as it is, even where it looks like that of a provider.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from refusal_index.models.requests import OPENAI, ModelError, ModelProvider, provider_of
from refusal_index.models.settings import ADDRESS_NOT_GIVEN, RequestSettings, Servers, SettingError, checked_base_url
from refusal_index.protocol import Role
from refusal_index.redaction import remember, secrets_in_url

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Account:
    """The address and key of a model on a server that speaks the OpenAI API.

    Attributes
    ----------
    name
        The model's name in the run.
    provider, model
        The provider, or the host of the server, and its name for the model.
    base_url, api_key
        The server's URL, and the key; empty for none.
    key_name
        The environment variable that holds the key; empty if none is named.
    url_setting, key_option
        What sets the address, for an error; and the command-line option that names the variable of the key, empty if
        the provider's name decides.
    headers
        Names and values of further HTTP headers.
    """

    name: str
    provider: str
    model: str
    base_url: str = field(repr=False)
    api_key: str = field(repr=False, default="")
    key_name: str = ""
    url_setting: str = ""
    key_option: str = ""
    headers: tuple[tuple[str, str], ...] = field(repr=False, default=())

    @property
    def key_advice(self) -> str:
        """What to do if the server rejects the key, or the lack of one."""
        if self.api_key or not self.key_option:
            return f"check {self.key_name or 'the key'}"
        return f"no key was sent: name the environment variable that holds it with {self.key_option}"


def split_name(name: str) -> tuple[str, str]:
    """Split a model's name into its provider and the provider's name for it.

    Examples
    --------
    >>> split_name("openai/gpt-4.1"), split_name("together/meta-llama/any")
    (('openai', 'gpt-4.1'), ('together', 'meta-llama/any'))
    """
    provider, _, model = name.partition("/")
    return provider, model


def asked_as(servers: Servers, role: Role, name: str) -> tuple[str, str]:
    """Return the provider of a model and its name there; a server of its own has no provider's name, except OpenAI's.

    Examples
    --------
    >>> asked_as(Servers(), Role.MODEL, "openai/gpt-4.1")
    ('openai', 'gpt-4.1')
    >>> asked_as(Servers(base_url="http://127.0.0.1:8000/v1"), Role.MODEL, "openai/gpt-4.1")
    ('', 'openai/gpt-4.1')
    """
    url = servers.of_role(role).base_url
    if url is None:
        return split_name(name)
    return (OPENAI if is_openai(url) else ""), name


def plugin_of(servers: Servers, role: Role, name: str) -> tuple[ModelProvider | None, str]:
    """Return what `provider_of` does, for a model in a role: no plugin has the models of a server."""
    return (None, name) if servers.of_role(role).base_url is not None else provider_of(name)


def is_openai(url: str) -> bool:
    """Whether a URL is one of OpenAI itself, over HTTPS, so that its key may be sent there.

    Examples
    --------
    >>> is_openai(OPENAI_URL), is_openai("http://api.openai.com/v1"), is_openai("https://api.openai.com.example/v1")
    (True, False, False)
    """
    parts = urlsplit(url)
    return (parts.scheme, parts.hostname, parts.port or 443) == ("https", "api.openai.com", 443)


def address_of(url: str) -> str:
    """Return a base URL without user name, password and query, so that it may be stored and shown.

    Examples
    --------
    >>> address_of("http://me:hush@127.0.0.1:8000/v1?key=hush")
    'http://127.0.0.1:8000/v1'
    """
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"


def host_of(url: str) -> str:
    """Return the host and the port of a URL.

    Examples
    --------
    >>> host_of("http://me:hush@127.0.0.1:8000/v1")
    '127.0.0.1:8000'
    """
    return urlsplit(url).netloc.rpartition("@")[2]


def account_for(
    role: Role, name: str, settings: RequestSettings, environment: Mapping[str, str] = os.environ
) -> Account:
    """Look up the address and key of a model.

    With a base URL in the settings, the key is in the variable that they name; without one, OPENAI_API_KEY is sent to
    OpenAI only, and no key anywhere else. ``openai/MODEL`` without a base URL is at OpenAI, or at OPENAI_BASE_URL.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    settings
        The settings.
    environment
        The environment variables.

    Raises
    ------
    ModelError
        If the address or the key is missing or malformed.

    Examples
    --------
    >>> settings = RequestSettings(servers=Servers(base_url="http://127.0.0.1:8000/v1"))
    >>> account_for(Role.MODEL, "almanac/base", settings, {}).model
    'almanac/base'
    """
    url, variable = settings.servers.of_role(role)
    prefix = "" if role is Role.MODEL else "grader_"
    if url is None:
        return _openai_account(name, environment, f"{prefix}base_url")
    if url == ADDRESS_NOT_GIVEN:
        raise ModelError(
            f"model {name!r}: it was asked at the address of a server, and no address is taken from a folder; name it "
            f"with {{{prefix}base_url}}"
        )
    at_openai = is_openai(url)
    option = f"{prefix}api_key_env"
    key_name = variable or (OPENAI_KEY if at_openai else "")
    key = environment.get(key_name, "") if key_name else ""
    if variable is not None and not key.strip():
        found = "an empty one" if variable in environment else "no such variable"
        raise ModelError(f"{{{option}}}: expected a key in the environment variable {variable}, found {found}; set it")
    if at_openai and not key:
        raise ModelError(
            f"model {name!r}: expected a key in {OPENAI_KEY}, found none; set it, or name another variable with "
            f"{{{option}}}"
        )
    provider = OPENAI if at_openai else host_of(url)
    url_setting = f"{{{prefix}base_url}} "
    key_option = f"--{option.replace('_', '-')}"
    return _checked(Account(name, provider, name, url, key, key_name, url_setting, key_option))


def _openai_account(name: str, environment: Mapping[str, str], option: str) -> Account:
    """Return the account of ``openai/MODEL``; raise ModelError for any other name."""
    provider, model = split_name(name)
    if provider != OPENAI or not model:
        plugin, _ = provider_of(name)
        hint = f"; '{plugin.served_by}' offers one" if plugin is not None and plugin.served_by else ""
        raise ModelError(
            f"model {name!r}: this engine needs the address of a server that speaks the OpenAI API, as in "
            f"http://127.0.0.1:8000/v1; name it with {{{option}}}{hint}"
        )
    return provider_account(name, OPENAI_URL, environment, option)


def provider_account(
    name: str, usual_url: str, environment: Mapping[str, str] = os.environ, option: str = "base_url"
) -> Account:
    """Return the account of a model that is named after its provider, such as ``openai/gpt-4.1``.

    Parameters
    ----------
    name
        The model's name.
    usual_url
        The provider's base URL; another one may be in PROVIDER_BASE_URL, where no key is required.
    environment
        The environment variables; the key is in PROVIDER_API_KEY.
    option
        The setting that names another server, for an error.

    Raises
    ------
    ModelError
        If the address or the key is missing or malformed.
    """
    provider, model = split_name(name)
    url_name, key_name = (f"{provider.upper()}_{kind}" for kind in ("BASE_URL", "API_KEY"))
    try:
        url = checked_base_url(environment.get(url_name) or usual_url, url_name)
    except SettingError as error:
        raise ModelError(f"model {name!r}: {error.message}") from error
    key = environment.get(key_name, "")
    if not key and url == usual_url:
        raise ModelError(
            f"model {name!r}: expected a key in {key_name}, found none; set it, or name another server with "
            f"{{{option}}}"
        )
    return _checked(Account(name, provider, model, url, key, key_name, f"{url_name}="))


def _checked(account: Account) -> Account:
    """Return an account; raise ModelError if its key cannot be sent. Its key is removed from all output from now on."""
    if not (account.api_key.isascii() and account.api_key.isprintable()):
        raise ModelError(
            f"model {account.name!r}: {account.key_name} contains a line break or an invalid character; set it again"
        )
    remember(account.api_key, *secrets_in_url(account.base_url))
    return account
