"""Models of Inspect's providers: a name becomes a model, which is asked by its own `generate`.

The plugin is registered as the hook ``other_models``: the core asks it about every model that no other client serves.
"""

from __future__ import annotations

import os
import time
from copy import copy
from itertools import count
from logging import getLogger
from typing import Any

from inspect_ai.event import ModelEvent
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, Model, ModelAPI, get_model
from openai import DefaultAioHttpClient

from refusal_index import entry_points
from refusal_index.data.errors import nearest
from refusal_index.models.accounts import OPENAI
from refusal_index.models.failures import RESUMES, Failure, FailureKind, classify_error, describe_error
from refusal_index.models.requests import Client, ModelError, ModelRequest, Response
from refusal_index.models.settings import Decoding, RequestSettings
from refusal_index.plugins.inspect import (
    PrerequisiteError,
    registry_find,
    registry_unqualified_name,
    use_model_event_sink,
)
from refusal_index.plugins.inspect.guard import guard, guarded, unstyled
from refusal_index.plugins.inspect.multi_choice import choices_of, logprobs_of
from refusal_index.protocol import Request, Role

HUGGING_FACE = "hf"

CONCURRENCY = 100
"""Questions in flight, unless the settings say otherwise; Inspect adapts its connections to the provider's limits."""

_pools = count()


class NoTranscript:
    """Drops the events that Inspect would keep of each request for as long as the process runs."""

    def on_pending(self, event: ModelEvent) -> None:
        """Drop a request that begins."""

    def on_complete(self, event: ModelEvent) -> None:
        """Drop a request that has ended."""


def check_name(name: str) -> None:
    """Raise ModelError if no provider has such a model; no key is needed."""
    provider, _, rest = name.partition("/")
    if not rest or provider not in provider_names():
        resolve_model(name)  # its error says what is wrong with the name


def make_client(role: Role, name: str, given: object, settings: RequestSettings) -> Client:
    """Return the client of a model of Inspect's.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    given
        A model of Inspect in memory, which stays open at the end; None for the model of that name.
    settings
        Those of the run.

    Raises
    ------
    ModelError
        If there is no such provider, or its key or package is missing.
    """
    sending = settings.sending
    getLogger("inspect_ai").setLevel("ERROR")  # providers warn of each setting that they do not support
    if isinstance(given, Model):
        model = guarded(given)
    elif given is not None:
        raise ModelError(f"model {name!r}: expected a function or a model of Inspect, got {type(given).__name__}")
    else:
        model = resolve_model(name, greedy=role is Role.MODEL and settings.decoding.temperature == 0)
    # A pool of connections belongs to one event loop, and a model that was handed over may be asked in several.
    pool, model = f"refusal-index {next(_pools)}", copy(model)
    model.api = copy(model.api)
    setattr(model.api, "connection_key", lambda: pool)  # noqa: B010 - a plain assignment to a method is an error to mypy
    own = GenerateConfig(
        max_retries=0,  # every client is retried by the same rules, outside of Inspect
        attempt_timeout=sending.attempt_timeout,
        max_connections=sending.max_connections,
    )
    if role is Role.MODEL:
        own = to_config(settings.decoding).merge(own)

    async def send(ask: ModelRequest) -> Response:
        with use_model_event_sink(NoTranscript()):
            return await generate(model, ask, own)

    return Client(send, lambda error: classify(error, model), CONCURRENCY, connection=None if given else model)


async def generate(model: Model, ask: ModelRequest, config: GenerateConfig) -> Response:
    """Send a request to a model of Inspect, and return its response."""
    started = time.monotonic()
    own = GenerateConfig(
        seed=ask.seed,
        num_choices=ask.n if ask.n > 1 else None,
        logprobs=None if ask.top_logprobs is None else True,
        top_logprobs=ask.top_logprobs or None,
    )
    output = await model.generate(chat_messages(ask.request), config=config.merge(own))
    usage = output.usage
    return Response(
        choices_of(output),
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        time.monotonic() - started,
        () if ask.top_logprobs is None else logprobs_of(output),
    )


KINDS = {True: ChatMessageSystem, False: ChatMessageUser}


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of a request as Inspect takes them."""
    return [KINDS[message.role == "system"](content=message.content) for message in request.messages]


def classify(error: Exception, model: Model) -> Failure:
    """Classify the error that a request to a model of Inspect ended in."""
    if isinstance(error, PrerequisiteError):  # a package that is not installed, a key that is not set
        return Failure(describe_error(error), str(model), FailureKind.LASTING, f"provide what it names; {RESUMES}")
    names = model.api.api_key_vars
    known = [name for name in names if os.environ.get(name)] or names
    return classify_error(error, describe_error(error), str(model), " or ".join(known) or "the key")


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
        where = next((variable for variable in api.api_key_vars if os.environ.get(variable)), "its key")
        raise ModelError(f"model {name!r}: {where} holds a line break or a character that no key has; set it again")
    if address and not str(address).startswith(("http://", "https://")):
        raise ModelError(f"model {name!r}: expected a base URL that begins with http:// or https://, got '{address}'")


def provider_names() -> list[str]:
    """Return the names of the providers that Inspect or a plugin has.

    Inspect publishes no list of them, hence the look into its registry.
    """
    apis = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in apis} | entry_points.installed("models").keys())


def _line(error: Exception) -> str:
    return " ".join((unstyled(error) if isinstance(error, PrerequisiteError) else str(error)).split())
