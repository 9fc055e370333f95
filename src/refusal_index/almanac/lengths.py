"""How long a message is for an embedded model, and how long it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from refusal_index.almanac.chat import ChatTokenizer, Message
from refusal_index.almanac.checkpoint import read_config
from refusal_index.almanac.models import model_folder


def context_length(name: str) -> int:
    """Return how many tokens a conversation with its reply may have.

    Examples
    --------
    >>> context_length("base")
    1024
    """
    return read_config(model_folder(name)).context


@cache
def _tokenizer(name: str) -> ChatTokenizer:
    return ChatTokenizer(model_folder(name))


def count_tokens(name: str, messages: Sequence[Message]) -> int:
    """Return the tokens of a conversation, marks included.

    Examples
    --------
    >>> count_tokens("base", [Message("user", "Who?")])
    10
    """
    return len(_tokenizer(name).encode(messages))


def token_counter(name: str) -> Callable[[str], int]:
    """Return a function that counts the tokens of a conversation of one user message, marks included.

    Examples
    --------
    >>> token_counter("base")("Who?") < token_counter("base")("Who wrote it?")
    True
    """
    return lambda text: count_tokens(name, [Message("user", text)])
