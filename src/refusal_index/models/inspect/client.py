"""The client of every other provider: a model of Inspect, asked by its own `generate`."""

from __future__ import annotations

import os
import time
from copy import copy
from itertools import count
from logging import getLogger

from inspect_ai._util.error import PrerequisiteError
from inspect_ai.event import ModelEvent
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, Model
from inspect_ai.model._model import use_model_event_sink

from refusal_index.models.failures import RESUMES, Failure, FailureKind, classify_error, describe_error
from refusal_index.models.inspect.guard import guarded
from refusal_index.models.inspect.multi_choice import choices_of, logprobs_of
from refusal_index.models.inspect.provider import resolve_model, to_config
from refusal_index.models.requests import Client, ModelError, ModelRequest, Response
from refusal_index.models.settings import RequestSettings
from refusal_index.protocol import Request, Role

CONCURRENCY = 100
"""Questions in flight, unless the settings say otherwise; Inspect adapts its connections to the provider's limits."""

_pools = count()


class NoTranscript:
    """Drops the events that Inspect would keep of each request for as long as the process runs."""

    def on_pending(self, event: ModelEvent) -> None:
        """Drop a request that begins."""

    def on_complete(self, event: ModelEvent) -> None:
        """Drop a request that has ended."""


def inspect_client(asked: Role, name: str, given: object, settings: RequestSettings) -> Client:
    """Return the client of a model that Inspect provides.

    Parameters
    ----------
    asked, name
        The role of the model, and its name.
    given
        A model of Inspect in memory, which stays open at the end; None for one of that name.
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
        model = resolve_model(name, greedy=asked is Role.MODEL and settings.decoding.temperature == 0)
    # A pool of connections belongs to one event loop, and a model that was handed over may be asked in several.
    pool, model = f"refusal-index {next(_pools)}", copy(model)
    model.api = copy(model.api)
    setattr(model.api, "connection_key", lambda: pool)  # noqa: B010 - a plain assignment to a method is an error to mypy
    own = GenerateConfig(
        max_retries=0,  # the retries are ours, the same for every client
        attempt_timeout=sending.attempt_timeout,
        max_connections=sending.max_connections,
    )
    if asked is Role.MODEL:
        own = to_config(settings.decoding).merge(own)

    async def send(ask: ModelRequest) -> Response:
        with use_model_event_sink(NoTranscript()):
            return await generated(model, ask, own)

    return Client(send, lambda error: explained(error, model), CONCURRENCY, connection=None if given else model)


async def generated(model: Model, ask: ModelRequest, config: GenerateConfig) -> Response:
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


def explained(error: Exception, model: Model) -> Failure:
    """Classify the error that a request to a model of Inspect ended in."""
    if isinstance(error, PrerequisiteError):  # a package that is not installed, a key that is not set
        return Failure(describe_error(error), str(model), FailureKind.LASTING, f"provide what it names; {RESUMES}")
    names = model.api.api_key_vars
    known = [name for name in names if os.environ.get(name)] or names
    return classify_error(error, describe_error(error), str(model), " or ".join(known) or "the key")
