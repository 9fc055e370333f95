"""One reply in the making."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from refusal_index.almanac.checkpoint import FloatArray
from refusal_index.almanac.llama import IntArray
from refusal_index.almanac.sampling import Settings, log_probabilities, uniforms

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenLogprob:
    """The model's own probability of a token in its place, before temperature and top_p, as a logarithm."""

    token: str
    logprob: float
    # the likeliest tokens in this place, likeliest first, as (text, logarithm)
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Completion:
    """A finished reply."""

    text: str
    # ``stop`` if the model ended its turn or a stop text came up, ``length`` if it ran out of tokens
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int  # tokens generated, the one that ended the turn included
    # one entry a token of the text, or None if they were not asked for
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt in tokens and how to continue it."""

    prompt: IntArray
    settings: Settings
    room: int  # longest reply in tokens
    end_tokens: frozenset[int]
    decode: Callable[[Iterable[int]], str]  # turns tokens into text


class Sequence:
    """The reply number `choice` to a request, token by token."""

    def __init__(self, request: Request, choice: int) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.abandoned = False
        self._uniforms = uniforms(request.settings.seed, choice, request.room)
        self._logprobs: list[TokenLogprob] = []

    @property
    def over(self) -> bool:
        """Whether no further token is wanted."""
        return self.abandoned or self.finish_reason is not None

    @property
    def next_uniform(self) -> float:
        """The random number that chooses the next token."""
        return float(self._uniforms[len(self.tokens)])

    def accept(self, token: int, logits: FloatArray) -> None:
        """Append `token`, chosen from `logits`, and note whether the reply is finished."""
        self.tokens.append(token)
        if token in self.request.end_tokens:
            self.finish_reason = "stop"
            return
        if self.request.settings.top_logprobs is not None:
            self._logprobs.append(self._report(token, logits, self.request.settings.top_logprobs))
        if self.request.settings.stop and self._stop_position() is not None:
            self.finish_reason = "stop"
        elif len(self.tokens) == self.request.room:
            self.finish_reason = "length"

    def completion(self) -> Completion:
        """Return the finished reply."""
        assert self.finish_reason is not None, "the reply is not finished"  # noqa: S101 - misuse within this package
        return Completion(
            text=self._text()[: self._stop_position()],
            finish_reason=self.finish_reason,
            prompt_tokens=len(self.request.prompt),
            completion_tokens=len(self.tokens),
            logprobs=None if self.request.settings.top_logprobs is None else tuple(self._logprobs),
        )

    def _text(self) -> str:
        return self.request.decode(token for token in self.tokens if token not in self.request.end_tokens)

    def _stop_position(self) -> int | None:
        text = self._text() if self.request.settings.stop else ""
        found = (text.find(stop) for stop in self.request.settings.stop)
        return min((position for position in found if position >= 0), default=None)

    def _report(self, token: int, logits: FloatArray, count: int) -> TokenLogprob:
        logs, decode = log_probabilities(logits), self.request.decode
        likeliest = np.argsort(-logs, kind="stable")[:count].tolist() if count else ()
        return TokenLogprob(
            decode([token]), float(logs[token]), tuple((decode([other]), float(logs[other])) for other in likeliest)
        )
