"""A model of any of Inspect's providers, from its name."""

from __future__ import annotations

import os
from typing import Any

from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.registry import registry_find, registry_unqualified_name
from inspect_ai.model import GenerateConfig, Model, ModelAPI, get_model
from openai import DefaultAioHttpClient

from refusal_index import entry_points
from refusal_index.data.errors import nearest
from refusal_index.models.accounts import OPENAI
from refusal_index.models.inspect.guard import guard, unstyled
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import Decoding

HUGGING_FACE = "hf"


def to_config(decoding: Decoding) -> GenerateConfig:
    """Return how a model generates as Inspect's configuration."""
    return GenerateConfig(
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        max_tokens=decoding.max_tokens,
        reasoning_effort=decoding.reasoning_effort,
    )


def resolve_model(name: str, config: GenerateConfig | None = None, *, greedy: bool = False) -> Model:
    """Return the model `name`, not shared with anyone, so that whoever asked for it can close it.

    It may be costly: a provider that runs weights on this machine loads them here.

    Parameters
    ----------
    name, config
        The model, and how it generates unless told otherwise.
    greedy
        Whether it will be asked at temperature 0, which some providers have to be told when they load a model.

    Raises
    ------
    ModelError
        If the provider is unknown, its key or its package is missing, or the name is not well formed.
    """
    provider, _, rest = name.partition("/")
    if not provider or not rest:
        raise ModelError(f"model {name!r}: expected PROVIDER/NAME, for instance almanac/base or openai/gpt-4.1")
    known = provider_names()
    if provider not in known:
        near = nearest(provider, known)
        hint = f"; did you mean {near}/{rest}?" if near else f"; expected one of {', '.join(known)}"
        raise ModelError(f"model {name!r}: no provider is called {provider!r}{hint}")
    arguments: dict[str, Any] = {}
    if provider == OPENAI:  # this transport takes half the processor time of the client's default one
        arguments = {"http_client": DefaultAioHttpClient()}
    if provider == HUGGING_FACE and greedy:
        arguments = {"do_sample": False}  # transformers takes no temperature of 0
    try:
        model = get_model(name, config=config or GenerateConfig(), memoize=False, **arguments)
    except Exception as error:  # whatever the provider or its package raises for a missing key or an unknown name
        raise ModelError(f"model {name!r}: {_line(error) or type(error).__name__}") from error
    guard(model.api)
    client: Any = getattr(model.api, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # the engine sends failed requests again, for every client by the same rules
    _check_account(name, model.api)
    return model


def _check_account(name: str, api: ModelAPI) -> None:
    """Raise ModelError for a key or an address that no request can be sent with: each would fail, and say little."""
    key, address = api.api_key, getattr(getattr(api, "client", None), "base_url", None)
    if key and not (key.isascii() and key.isprintable()):
        where = next((one for one in api.api_key_vars if os.environ.get(one)), "its key")
        raise ModelError(f"model {name!r}: {where} holds a line break or a character that no key has; set it anew")
    if address and not str(address).startswith(("http://", "https://")):
        raise ModelError(f"model {name!r}: expected a base URL that begins with http:// or https://, got '{address}'")


def provider_names() -> list[str]:
    """Return the names of the providers that Inspect or a plugin has.

    Inspect publishes no list of them, hence the look into its registry.
    """
    found = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in found} | entry_points.installed("models").keys())


def _line(error: Exception) -> str:
    return " ".join((unstyled(error) if isinstance(error, PrerequisiteError) else str(error)).split())
