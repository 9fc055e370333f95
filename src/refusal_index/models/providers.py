"""Providers that plugins add: who serves the models whose names begin alike, as ``almanac/base`` and ``almanac/small``.

A plugin registers a provider in the group ``refusal_index.models``, under the part of the names before the slash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from refusal_index import entry_points
from refusal_index.models.requests import Client
from refusal_index.models.settings import RequestSettings
from refusal_index.protocol import Message, Role, about_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ModelProvider(Protocol):
    """What a provider does; a subclass needs `client` alone. A model goes by the part of its name after the slash.

    Attributes
    ----------
    names
        Of its models, where they are known: `refusal-index ls` lists them.
    is_embedded
        Whether its models run in this process, reply the same when asked again, and give as many choices as asked for:
        a dry run asks them for their first passes.
    concurrency, reply_tokens
        Requests in flight, and the length of a reply, as a dry run assumes them.
    """

    names: Sequence[str] = ()
    is_embedded: bool = False
    concurrency: int = 10
    reply_tokens: int = 50

    def client(self, model: str, settings: RequestSettings) -> Client:
        """Return what sends requests to a model.

        Raises
        ------
        ModelError
            If the model cannot be asked.
        """

    def check(self, model: str) -> None:
        """Raise ModelError if there is no such model: before anything is asked, and without a key."""

    def context_length(self, model: str) -> int | None:  # noqa: ARG002 - of the interface
        """Return how many tokens a conversation with its reply may have; None where that is not known."""
        return None

    def count_tokens(self, model: str, messages: Sequence[Message]) -> int:  # noqa: ARG002 - of the interface
        """Count the tokens of a conversation, exactly if the provider can."""
        return sum(about_tokens(one.content) for one in messages)

    async def answer(self, model: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Answer a request of OpenAI's chat API with the status and body of a response; for Ray, by embedded models."""
        raise NotImplementedError(f"{model} answers no requests of OpenAI's chat API")

    def layers(self, model: str) -> int | None:  # noqa: ARG002 - of the interface
        """Return how many layers a model has whose hidden states can be read; None where they cannot."""
        return None

    def weights_sha256(self, model: str) -> str:  # noqa: ARG002 - of the interface
        """Return the hash of a model's weights, which tells whether stored hidden states are still its own."""
        return ""

    def hidden_states(self, model: str, conversations: Sequence[Sequence[Message]]) -> NDArray[np.float32]:
        """Return the hidden states at the end of each conversation, shape (n, layers + 1, size)."""
        raise NotImplementedError(f"{model} shows no hidden states of {len(conversations)} conversations")


class OtherModels(Protocol):
    """Provides every model that no other client serves, such as ``openai/gpt-4.1``; the hook ``other_models``."""

    def check_name(self, name: str) -> None:
        """Raise ModelError if there is no such model: before anything is asked, and without a key."""

    def make_client(self, role: Role, name: str, given: object, settings: RequestSettings) -> Client:
        """Return what sends requests to a model of that name, or to `given`, a model in memory.

        Raises
        ------
        ModelError
            If the model cannot be asked.
        """


def other_models() -> OtherModels:
    """Return the provider of all other models. Its import takes a second."""
    found: OtherModels = entry_points.hook("other_models")
    return found


def provider_of(name: str) -> tuple[ModelProvider | None, str]:
    """Find the provider of a model among the plugins, and what it calls the model.

    Returns
    -------
    provider
        None for the models of all other providers, which OpenAI's client or `other_models` asks.
    model
        The part of the name after the slash.
    """
    prefix, _, model = name.partition("/")
    plugin = entry_points.find("models", prefix) if model else None
    return (None if plugin is None else entry_points.load(plugin)), model
