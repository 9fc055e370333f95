"""From a model's name to a model that can be asked, or one clear line why not."""

from __future__ import annotations

import difflib
import re
from typing import Any

from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.registry import registry_find, registry_unqualified_name
from inspect_ai.model import GenerateConfig, Model, get_model
from openai import DefaultAioHttpClient

from refusal_index.almanac.errors import AlmanacError
from refusal_index.engines.inspect import provider as own_provider
from refusal_index.engines.inspect.guard import guard

# Providers that speak through the openai client: its aiohttp transport takes half the processor time of the default.
AIOHTTP_PROVIDERS = ("openai-api", "openai")


class ModelError(ValueError):
    """A model that cannot be asked; the message says what is missing and what to do."""


def resolve_model(name: str, config: GenerateConfig | None = None) -> Model:
    """Return the model `name`, fresh, so that its connections belong to the run that uses it.

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
        near = difflib.get_close_matches(provider, known, n=1)
        hint = f"; did you mean {near[0]}/{rest}?" if near else f"; expected one of {', '.join(known)}"
        raise ModelError(f"model {name!r}: no provider is called {provider!r}{hint}")
    arguments: dict[str, Any] = {"http_client": DefaultAioHttpClient()} if provider in AIOHTTP_PROVIDERS else {}
    try:
        model = get_model(name, config=config or GenerateConfig(), memoize=False, **arguments)
    except PrerequisiteError as error:
        raise ModelError(f"model {name!r}: {_plain(str(error.message))}") from error
    except (ValueError, ImportError, AlmanacError) as error:
        raise ModelError(f"model {name!r}: {_plain(str(error))}") from error
    guard(model.api)
    return model


def provider_names() -> list[str]:
    """Return the names of the providers that Inspect knows, this package's own among them."""
    found = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in found} | {own_provider.NAME})


def _plain(message: str) -> str:
    """Return a message of Inspect's in one line, without markup."""
    return " ".join(re.sub(r"\[/?[a-z]*\]", "", message).replace("ERROR:", "").split())
