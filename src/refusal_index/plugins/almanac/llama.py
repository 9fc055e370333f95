"""Llama in NumPy: the forward pass, sampling of the next token, and the reply built from the tokens.

Requests of different lengths run together: every matrix multiplies the tokens of all requests as one flat array, and
only attention, which is passed in as a function, knows which token belongs to which request. A reply uses one random
number per token, determined by the seed and the index of the choice, so it does not depend on the other requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refusal_index.plugins.almanac import RequestError
from refusal_index.plugins.almanac.models import (
    FloatArray,
    IntArray,
    Layer,
    LlamaConfig,
    Weights,
    read_config,
    read_weights,
)
from refusal_index.protocol import TokenLogprob

# Below this temperature the most likely token is always chosen; dividing by the temperature could overflow.
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True)
class GenerationSettings:
    """Generation settings."""

    temperature: float = 1.0  # 0 always chooses the most likely token
    top_p: float = 1.0  # sample from the smallest set of most likely tokens with this total probability
    max_tokens: int | None = None  # maximum length of the reply; None for the rest of the context
    stop: tuple[str, ...] = ()  # strings that end the reply and are not part of it
    seed: int | None = None  # makes the reply reproducible; None for a random seed
    n: int = 1  # number of replies
    # number of most likely tokens to report per position, 0 for the chosen token only, None for no report
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "a number from 0", self)
        _require(0 < self.top_p <= 1, "top_p", "a number above 0 and at most 1", self)
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "a whole number from 1, or None", self)
        _require(all(self.stop), "stop", "strings that are not empty", self)
        _require(self.n >= 1, "n", "a whole number from 1", self)
        _require(self.top_logprobs is None or self.top_logprobs >= 0, "top_logprobs", "a number from 0, or None", self)


def _require(condition: bool, name: str, expected: str, settings: GenerationSettings) -> None:
    if not condition:
        raise RequestError(f"'{name}' must be {expected}; got {getattr(settings, name)!r}", param=name)


def uniforms(seed: int | None, choice: int, count: int) -> NDArray[np.float64]:
    """Return the `count` random numbers in [0, 1) for choice number `choice` of a request with `seed`.

    >>> bool((uniforms(7, 1, 3) == uniforms(7, 1, 5)[:3]).all())
    True
    """
    entropy = None if seed is None else [seed % 2**64, choice]
    return np.random.default_rng(entropy).random(count)


def sample(
    logits: FloatArray, temperature: NDArray[np.float64], top_p: NDArray[np.float64], uniform: NDArray[np.float64]
) -> list[int]:
    """Sample the next token of each row of `logits` (rows, vocabulary); the other arguments hold one value per row."""
    tokens: list[int] = logits.argmax(axis=1).tolist()
    for row in np.flatnonzero(temperature >= _GREEDY_BELOW).tolist():
        scores = logits[row]
        weights = np.exp((scores - scores[tokens[row]]) / np.float32(temperature[row]))
        tokens[row] = draw(weights, top_p[row], uniform[row])
    return tokens


def draw(weights: FloatArray, top_p: float, uniform: float) -> int:
    """Return the index that `uniform` in [0, 1) selects from `weights`, limited to the largest by `top_p`.

    >>> draw(np.array([1, 2, 1], dtype=np.float32), top_p=1.0, uniform=0.5)
    1
    >>> draw(np.array([1, 2, 1], dtype=np.float32), top_p=0.5, uniform=0.99)
    1
    """
    if top_p >= 1:
        mass = np.cumsum(weights, dtype=np.float64)
        return _position(mass, uniform)
    tokens, mass = _nucleus(weights, top_p)
    return int(tokens[_position(mass, uniform)])


def _nucleus(weights: FloatArray, top_p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    total = weights.sum(dtype=np.float64)
    # Tokens below this weight sum to less than 1 - top_p, so none is in the nucleus and few remain to be sorted.
    # The bound is halved because near top_p = 1 it is as small as the rounding error of the sum.
    tokens = np.flatnonzero(weights >= (1 - top_p) * total / len(weights) / 2)
    tokens = tokens[np.argsort(-weights[tokens], kind="stable")]
    mass = np.cumsum(weights[tokens], dtype=np.float64)
    size = int(np.searchsorted(mass, top_p * total)) + 1
    return tokens[:size], mass[:size]


def _position(mass: NDArray[np.float64], uniform: float) -> int:
    return min(int(np.searchsorted(mass, uniform * mass[-1], side="right")), len(mass) - 1)


def log_probabilities(logits: FloatArray) -> NDArray[np.float64]:
    """Return the log probabilities of one row of logits, before temperature and top_p."""
    shifted = logits.astype(np.float64) - logits.max()
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logs


class Projection(NamedTuple):
    """The inputs of attention for n tokens."""

    # shape (n, key heads, query heads per key head, head size), divided by the square root of the head size
    queries: FloatArray
    # keys, values: shape (n, key heads, head size)
    keys: FloatArray
    values: FloatArray


Attend = Callable[[int, Projection], FloatArray]
"""A function that computes attention from a layer's index and projection, in the shape of the queries."""

Observe = Callable[[FloatArray], None]
"""A function that is called with the residual stream, shape (n, hidden), which the next layer overwrites."""


def unobserved(_stream: FloatArray) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Llama:
    """A Llama model, ready to run."""

    config: LlamaConfig
    weights: Weights
    # the rotary embedding, shape (context, head size / 2)
    cosine: FloatArray
    sine: FloatArray

    @classmethod
    def load(cls, folder: Path) -> Llama:
        """Load the checkpoint in `folder`.

        Raises ModelFileError if a file is missing or damaged, or the kind of model is not supported.
        """
        config = read_config(folder)
        angles = _rotary_angles(config)
        return cls(config, read_weights(folder, config), np.cos(angles), np.sin(angles))

    def forward(
        self, tokens: IntArray, positions: IntArray, attend: Attend, observe: Observe = unobserved
    ) -> FloatArray:
        """Return the final hidden state of each token, shape (n, hidden), without the gain of the last norm.

        - `observe`: called with the residual stream after the embedding and after each layer.
        """
        cosine = self.cosine[positions][:, None]
        sine = self.sine[positions][:, None]
        stream = self.weights.embedding[tokens]
        observe(stream)
        for number, layer in enumerate(self.weights.layers):
            attended = attend(number, self._project(stream, layer, cosine, sine))
            stream += attended.reshape(len(tokens), -1) @ layer.attention_out
            stream += _feed_forward(self._normalised(stream), layer)
            observe(stream)
        return self._normalised(stream)

    def logits(self, hidden: FloatArray) -> FloatArray:
        """Return the logits of the next token, shape (n, vocabulary)."""
        return hidden @ self.weights.head

    def _project(self, stream: FloatArray, layer: Layer, cosine: FloatArray, sine: FloatArray) -> Projection:
        config = self.config
        heads = (self._normalised(stream) @ layer.attention_in).reshape(len(stream), -1, config.head_size)
        rotated = _rotate(heads[:, : -config.n_key_heads], cosine, sine)
        queries = rotated[:, : config.n_heads]
        return Projection(
            queries=queries.reshape(len(stream), config.n_key_heads, -1, config.head_size),
            keys=rotated[:, config.n_heads :],
            values=heads[:, -config.n_key_heads :],
        )

    def _normalised(self, stream: FloatArray) -> FloatArray:
        mean_square = np.einsum("nh,nh->n", stream, stream)[:, None] / np.float32(stream.shape[1])
        normalised: FloatArray = stream / np.sqrt(mean_square + np.float32(self.config.norm_epsilon))
        return normalised


def _rotary_angles(config: LlamaConfig) -> FloatArray:
    exponents = np.arange(0, config.head_size, 2, dtype=np.float32) / np.float32(config.head_size)
    frequencies = (1 / config.rope_theta**exponents).astype(np.float32)
    return np.arange(config.context, dtype=np.float32)[:, None] * frequencies


def _rotate(heads: FloatArray, cosine: FloatArray, sine: FloatArray) -> FloatArray:
    half = heads.shape[-1] // 2
    first = heads[..., :half]
    second = heads[..., half:]
    rotated = np.empty_like(heads)
    np.subtract(first * cosine, second * sine, out=rotated[..., :half])
    np.add(second * cosine, first * sine, out=rotated[..., half:])
    return rotated


def _feed_forward(stream: FloatArray, layer: Layer) -> FloatArray:
    both = stream @ layer.feed_forward_in
    size = both.shape[1] // 2
    gate = both[:, :size]
    up = both[:, size:]
    # x * sigmoid(x), computed with tanh, which cannot overflow
    activated = np.tanh(gate * np.float32(0.5))
    activated += 1
    activated *= gate
    activated *= up
    activated *= np.float32(0.5)
    result: FloatArray = activated @ layer.feed_forward_out
    return result


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class GenerationResult:
    """A finished reply."""

    text: str
    # ``stop`` if the model ended its turn or a stop string appeared, ``length`` if the token limit was reached
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int  # generated tokens, including the one that ended the turn
    # one entry per token of the text, before temperature and top_p; None if not requested
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, eq=False)
class GenerationRequest:
    """A tokenized prompt and how to continue it."""

    prompt: IntArray
    settings: GenerationSettings
    max_tokens: int  # maximum length of the reply in tokens
    end_tokens: frozenset[int]
    decode: Callable[[Iterable[int]], str]  # converts tokens to text


class Sequence:
    """The reply to a request for choice number `choice`, generated token by token."""

    def __init__(self, request: GenerationRequest, choice: int) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.abandoned = False
        self._uniforms = uniforms(request.settings.seed, choice, request.max_tokens)
        self._logprobs: list[TokenLogprob] = []

    @property
    def is_over(self) -> bool:
        """Whether the reply is finished or abandoned."""
        return self.abandoned or self.finish_reason is not None

    @property
    def next_uniform(self) -> float:
        """The random number that chooses the next token."""
        return float(self._uniforms[len(self.tokens)])

    def accept(self, token: int, logits: FloatArray) -> None:
        """Append `token`, sampled from `logits`, and check whether the reply is finished."""
        self.tokens.append(token)
        if token in self.request.end_tokens:
            self.finish_reason = "stop"
            return
        if self.request.settings.top_logprobs is not None:
            self._logprobs.append(self._report(token, logits, self.request.settings.top_logprobs))
        if self.request.settings.stop and self._stop_position() is not None:
            self.finish_reason = "stop"
        elif len(self.tokens) == self.request.max_tokens:
            self.finish_reason = "length"

    def completion(self) -> GenerationResult:
        """Return the finished reply."""
        assert self.finish_reason is not None, "the reply is not finished"  # noqa: S101 - misuse within this package
        return GenerationResult(
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
        positions = (text.find(stop) for stop in self.request.settings.stop)
        return min((position for position in positions if position >= 0), default=None)

    def _report(self, token: int, logits: FloatArray, count: int) -> TokenLogprob:
        logs = log_probabilities(logits)
        decode = self.request.decode
        likeliest = np.argsort(-logs, kind="stable")[:count].tolist() if count else ()
        return TokenLogprob(
            decode([token]), float(logs[token]), tuple((decode([other]), float(logs[other])) for other in likeliest)
        )
