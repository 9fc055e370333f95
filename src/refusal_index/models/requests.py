"""Requests to a model, their responses, and the providers that plugins add.

A plugin registers a provider in the group ``refusal_index.models`` under the prefix of its models' names, such as
``almanac`` of ``almanac/base`` and ``almanac/small``.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from refusal_index import entry_points
from refusal_index.models.failures import Failure, NoAnswerError
from refusal_index.models.sent import Sent
from refusal_index.models.settings import Decoding, RequestSettings, SettingError
from refusal_index.protocol import (
    Completion,
    Conversation,
    Message,
    Pass,
    PendingRequest,
    Reply,
    Request,
    Role,
    StopReason,
    about_tokens,
    forced_variant,
    request_seed,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 2**31
"""Maximum plausible token count of a response; larger and negative counts are errors of the provider."""

MAX_TOP_LOGPROBS = 20
"""Maximum number of tokens that providers report for each position of a reply."""


@dataclass(frozen=True)
class ModelRequest:
    """A request that is ready to be sent.

    Attributes
    ----------
    conversation, pending, request
        The conversation, the pending step in it, and the messages.
    seed, n
        Seed and number of choices, as sent to the provider.
    decoding
        Decoding parameters; None for a grader, which uses its model's defaults.
    top_logprobs
        Number of most likely tokens to report for each position of the reply, with their log probabilities: 0 for the
        chosen token only, None for no report. It does not affect replies, so it is not part of the hash.
    """

    conversation: Conversation
    pending: PendingRequest
    request: Request
    seed: int
    n: int
    decoding: Decoding | None
    top_logprobs: int | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of the request's content, unique within a run."""
        document = {
            "question_id": self.conversation.question.question_id,
            "variant": variant_of(self.conversation, self.request.pass_),
            "draw": self.pending.draw,
            "seed": self.seed,
            # equals `asdict`, which takes ten times as long
            "request": {
                "pass": self.request.pass_,
                "role": self.request.role,
                "messages": [vars(message) for message in self.request.messages],
                "attempt": self.request.attempt,
            },
            "decoding": self.decoding and vars(self.decoding),
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Response:
    """The response to a request: one or more choices, and their total usage.

    Attributes
    ----------
    replies
        Text and stop reason of each choice; None for a choice without an answer.
    input_tokens, output_tokens, seconds
        Usage and duration of the whole response.
    logprobs
        Log probabilities of each choice as JSON; None for a choice without them, empty if no choice has any.
    in_batch
        Whether it came from a provider's batch.
    is_filtered
        Whether a key of the run was removed from it.
    sent
        The decoding settings that the request told the model; None if they are unknown.
    answered_by
        The model's name in the response, untrusted; None if it has none.
    confidence
        The confidence in [0, 1] that a function returned beside its reply; None if there is none.
    """

    replies: Sequence[tuple[str, StopReason] | None]
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    logprobs: Sequence[str | None] = ()
    in_batch: bool = False
    is_filtered: bool = False
    sent: Sent | None = None
    answered_by: str | None = None
    confidence: float | None = None


Send = Callable[[ModelRequest], Awaitable[Response]]
"""Sends a request once; raises the provider's errors."""


def model_request(
    settings: RequestSettings, conversation: Conversation, pending: PendingRequest, retired: int = 0
) -> ModelRequest:
    """Build the request to a model: messages, seed and decoding.

    Parameters
    ----------
    settings, conversation, pending
        Settings of the run, the conversation, and its pending request.
    retired
        Number of replies to it that were set aside for a retry; every retry gets a seed of its own.
    """
    question = conversation.question
    request = conversation.procedure.request(pending.step, question)
    attempt = replace(request, attempt=request.attempt + retired) if retired else request
    seed = conversation.seed
    if seed is None:
        seed = request_seed(settings.seed, question.question_id, pending.draw, conversation.variant, attempt)
    is_model = request.role is Role.MODEL
    top_logprobs = None
    if settings.sending.logprobs and is_model:
        top_logprobs = MAX_TOP_LOGPROBS if request.pass_ is Pass.PROBE else 0
    decoding = settings.decoding if is_model else None
    n = min(pending.n, settings.sending.max_choices)
    return ModelRequest(conversation, pending, request, seed, n, decoding, top_logprobs)


def to_completions(request: ModelRequest, response: Response) -> list[Completion]:
    """Return a completion for each choice with an answer; the first one carries the response's usage.

    Raises
    ------
    NoAnswerError
        If no choice has an answer.
    """
    variant = variant_of(request.conversation, request.request.pass_)
    usage: dict[str, Any] = {
        "input_tokens": _believable(response.input_tokens),
        "output_tokens": _believable(response.output_tokens),
        "seconds": response.seconds,
    }
    completions: list[Completion] = []
    reported = chain(response.logprobs, repeat(None))
    for index, (choice, logprobs) in enumerate(zip(response.replies[: request.n], reported, strict=False)):
        if choice is not None:
            completion = Completion(
                request.conversation.question.question_id,
                variant,
                request.pending.draw + index,
                Reply(request.request.pass_, request.request.role, *choice),
                request.request.attempt,
                **usage,
                logprobs=logprobs,
                request_sha256=request.sha256,
                in_batch=response.in_batch,
                filtered=response.is_filtered,
                answered_by=model_in(response.answered_by),
                confidence=response.confidence,
            )
            completions.append(completion)
            usage = {"requests": 0}
    if not completions:
        raise NoAnswerError("the response holds no answer")
    return completions


MAX_NAME = 200
"""Longest name of a responding model that is kept, in characters."""


def model_in(name: object) -> str | None:
    """Return the name of a responding model as it is stored; None if it is no text, or empty.

    Examples
    --------
    >>> model_in(" gpt-4.1-2025-04-14 "), model_in(""), model_in(None)
    ('gpt-4.1-2025-04-14', None, None)
    """
    if not isinstance(name, str):
        return None
    shown = "".join(character for character in name if character.isprintable()).strip()
    return shown[:MAX_NAME] or None


def _believable(tokens: int) -> int:
    """Return a provider's token count, or 0 if it is implausible."""
    return tokens if 0 <= tokens <= MAX_TOKENS else 0


def variant_of(conversation: Conversation, pass_: Pass) -> str:
    """Return the variant that a reply is stored under."""
    return forced_variant(conversation.variant) if pass_.is_shared else conversation.variant


def to_metadata(completions: Iterable[Completion]) -> list[dict[str, Any]]:
    """Convert completions for a log: each distinct reply once, with its draws and total usage."""
    by_reply: dict[tuple[object, ...], dict[str, Any]] = {}
    for completion in completions:
        entry = {
            "pass": str(completion.reply.pass_),
            "role": str(completion.reply.role),
            "attempt": completion.attempt,
            "text": completion.reply.text,
            "stop_reason": str(completion.reply.stop_reason),
        }
        record = by_reply.setdefault(
            tuple(entry.values()), {**entry, "input_tokens": 0, "output_tokens": 0, "draws": [], "requests": 0}
        )
        for name in ("input_tokens", "output_tokens", "requests"):
            record[name] += getattr(completion, name)
        record["draws"].append(completion.draw)
    return list(by_reply.values())


class ModelError(SettingError):
    """A model or grader that is unavailable; the message says what is missing and what to do."""


@dataclass(frozen=True)
class Client:
    """Sends requests to one model.

    Attributes
    ----------
    send, classify_error
        A function that sends a request once, and one that classifies its error.
    concurrency
        Default number of concurrent requests.
    is_checked
        Whether a grader must judge plain cases before the first question.
    connection
        Kept open while requests are sent; None if there is nothing to close.
    """

    send: Send
    classify_error: Callable[[Exception], Failure]
    concurrency: int
    is_checked: bool = True
    connection: AbstractAsyncContextManager[object] | None = None


OPENAI = "openai"


def check_certificates(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ModelError if the certificates that the environment names cannot be read."""
    path = environment.get("SSL_CERT_FILE")
    if not path:
        return
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ModelError(
            f"SSL_CERT_FILE: expected a file of certificates, got {path!r} ({error.strerror or error}); correct it, "
            "or unset it"
        ) from error


class ModelProvider(Protocol):
    """Interface of a provider; a subclass must define `client`. Methods take the part of a name after the slash.

    Attributes
    ----------
    names, notes
        The names of its models, if known, and a line on each by name: `refusal-index ls` lists them.
    served_by
        A command that serves its models over OpenAI's chat API; empty if there is none.
    is_embedded
        Whether its models run in this process, give the same reply to the same request, and return as many choices as
        requested: a dry run asks them for the first pass.
    concurrency, reply_tokens
        Number of concurrent requests, and tokens per reply, that a dry run assumes.
    """

    names: Sequence[str] = ()
    notes: Mapping[str, str] = MappingProxyType({})
    served_by: str = ""
    is_embedded: bool = False
    concurrency: int = 10
    reply_tokens: int = 50

    def client(self, model: str, settings: RequestSettings) -> Client:
        """Return the client of a model.

        Raises
        ------
        ModelError
            If the model is unavailable.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no method client(model, settings)")

    def check(self, model: str) -> None:
        """Raise ModelError if there is no such model; called before the first request, and needs no key."""

    def context_length(self, model: str) -> int | None:  # noqa: ARG002 - of the interface
        """Return the maximum number of tokens of a conversation with its reply; None if it is unknown."""
        return None

    def count_tokens(self, model: str, messages: Sequence[Message]) -> int:  # noqa: ARG002 - of the interface
        """Count the tokens of a conversation, exactly if the provider can."""
        return sum(about_tokens(message.content) for message in messages)

    async def answer(self, model: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Answer a chat API request with a status and a body; called by Ray for embedded models."""
        raise NotImplementedError(f"{model} answers no requests of OpenAI's chat API")

    def layers(self, model: str) -> int | None:  # noqa: ARG002 - of the interface
        """Return the number of layers whose hidden states can be read; None if they cannot."""
        return None

    def weights_sha256(self, model: str) -> str:  # noqa: ARG002 - of the interface
        """Return the hash of a model's weights, to check whether stored hidden states are still valid."""
        return ""

    def hidden_states(self, model: str, conversations: Sequence[Sequence[Message]]) -> NDArray[np.float32]:
        """Return the hidden states at the end of each conversation, shape (n, layers + 1, size)."""
        raise NotImplementedError(f"{model} shows no hidden states of {len(conversations)} conversations")


class OtherModels(Protocol):
    """Provides all models that no other client serves, such as ``openai/gpt-4.1``; the hook ``other_models``."""

    def check_name(self, name: str) -> None:
        """Raise ModelError if there is no such model; called before the first request, and needs no key."""

    def is_provider(self, prefix: str) -> bool:
        """Whether names with this prefix are those of its models."""

    def make_client(self, role: Role, name: str, instance: object, settings: RequestSettings) -> Client:
        """Return the client of a model by name, or of `instance`, a model in memory.

        Raises
        ------
        ModelError
            If the model is unavailable.
        """


def other_models() -> OtherModels:
    """Return the provider of all other models; importing it takes a second."""
    models: OtherModels = entry_points.hook("other_models")
    return models


def provider_of(name: str) -> tuple[ModelProvider | None, str]:
    """Find a model's provider among the plugins, and the provider's name for the model.

    Returns
    -------
    provider
        None for the models of other providers, which OpenAI's client or `other_models` serves.
    model
        The part of the name after the slash.

    Raises
    ------
    PluginError
        If a plugin of another distribution takes the name of a provider, whose keys and questions it would receive.
    """
    prefix, _, model = name.partition("/")
    plugin = entry_points.find("models", prefix) if model else None
    if plugin is None:
        return None, model
    if prefix not in entry_points.own_plugins("models") and _is_taken(prefix):
        source = plugin.dist.name if plugin.dist else plugin.value
        raise entry_points.PluginError(
            f"{source}: it registers models named '{prefix}/...', which are those of a provider; update or uninstall "
            f"{source}"
        )
    return entry_points.load(plugin), model


def _is_taken(prefix: str) -> bool:
    if prefix == OPENAI:
        return True
    with suppress(ImportError):  # without the package of other clients, there are none
        return other_models().is_provider(prefix)
    return False
