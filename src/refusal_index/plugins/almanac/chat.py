"""From a conversation to tokens and from tokens to text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from refusal_index.plugins.almanac.errors import ModelFileError, RequestError
from refusal_index.plugins.almanac.llama import IntArray
from refusal_index.protocol import Message

ROLES = ("system", "user", "assistant")
_START, _END = "<|im_start|>", "<|im_end|>"


class ChatTokenizer:
    """The tokenizer of a model that reads conversations in ChatML.

    The marks between messages are set by token, never by text: what looks like a mark inside a message is read as
    plain characters, so that no message can pretend to be another.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception for a damaged file
            raise ModelFileError(f"{path}: cannot be read: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self._start, self._end = self._mark(_START, path), self._mark(_END, path)
        self._after_end = self._encode("\n")
        self._longest_token = max(map(len, self._tokenizer.get_vocab()))

    def encode(self, messages: Sequence[Message]) -> IntArray:
        """Return the conversation as tokens, up to where the assistant's reply begins.

        Raises RequestError if there is no message, a role is unknown, or a text is not valid Unicode.
        """
        if not messages:
            raise RequestError("'messages' is empty; expected at least one message", param="messages")
        tokens: list[int] = []
        for message in messages:
            tokens += [self._start, *self._encode_message(message), self._end, *self._after_end]
        return np.array([*tokens, self._start, *self._encode("assistant\n")])

    def least_tokens(self, messages: Sequence[Message]) -> int:
        """Return a number of tokens that the conversation takes at least, without encoding it."""
        return sum(len(message.content) for message in messages) // self._longest_token

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of `tokens`, marks left out."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def _encode_message(self, message: Message) -> list[int]:
        if message.role not in ROLES:
            raise RequestError(f"unknown role {message.role!r}; expected one of {', '.join(ROLES)}", param="messages")
        try:
            message.content.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"a message holds half of a surrogate pair at character {error.start}; send valid Unicode",
                param="messages",
            ) from error
        return self._encode(f"{message.role}\n{message.content}")

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _mark(self, mark: str, path: Path) -> int:
        token: int | None = self._tokenizer.token_to_id(mark)
        if token is None:
            raise ModelFileError(f"{path}: token '{mark}' is missing; this runtime speaks ChatML only")
        return token
