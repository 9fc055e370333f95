"""Choosing the next token, with randomness that belongs to one reply alone.

A reply draws one number a token, all fixed by its seed and its number among the choices of its request before the
first token is chosen. So it does not depend on what else the model is busy with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refusal_index.plugins.almanac.checkpoint import FloatArray
from refusal_index.plugins.almanac.errors import RequestError

# Below this temperature the most likely token wins anyway, and dividing by it only invites overflow.
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True)
class Settings:
    """How to generate."""

    temperature: float = 1.0  # 0 always takes the most likely token
    top_p: float = 1.0  # sample from the fewest tokens whose probability reaches this share
    max_tokens: int | None = None  # longest reply in tokens; None fills the context
    stop: tuple[str, ...] = ()  # texts that end the reply, themselves left out
    seed: int | None = None  # makes the reply reproducible; None draws anew each time
    n: int = 1  # number of replies
    # number of likeliest tokens to report in each place, 0 for the chosen one only, None for no report
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "a number from 0", self)
        _require(0 < self.top_p <= 1, "top_p", "a number above 0 and at most 1", self)
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "a whole number from 1, or None", self)
        _require(all(self.stop), "stop", "texts that are not empty", self)
        _require(self.n >= 1, "n", "a whole number from 1", self)
        _require(self.top_logprobs is None or self.top_logprobs >= 0, "top_logprobs", "a number from 0, or None", self)


def _require(condition: bool, name: str, expected: str, settings: Settings) -> None:
    if not condition:
        raise RequestError(f"'{name}' must be {expected}; got {getattr(settings, name)!r}", param=name)


def uniforms(seed: int | None, choice: int, count: int) -> NDArray[np.float64]:
    """Return the `count` random numbers in [0, 1) that make the reply number `choice` of a request with `seed`.

    >>> bool((uniforms(7, 1, 3) == uniforms(7, 1, 5)[:3]).all())
    True
    """
    entropy = None if seed is None else [seed % 2**64, choice]
    return np.random.default_rng(entropy).random(count)


def sample(
    logits: FloatArray, temperature: NDArray[np.float64], top_p: NDArray[np.float64], uniform: NDArray[np.float64]
) -> list[int]:
    """Return the next token of each row of `logits` (rows, vocabulary); the other arguments have one value a row."""
    tokens: list[int] = logits.argmax(axis=1).tolist()
    for row in np.flatnonzero(temperature >= _GREEDY_BELOW).tolist():
        scores = logits[row]
        weights = np.exp((scores - scores[tokens[row]]) / np.float32(temperature[row]))
        tokens[row] = draw(weights, top_p[row], uniform[row])
    return tokens


def draw(weights: FloatArray, top_p: float, uniform: float) -> int:
    """Return the index that `uniform` in [0, 1) picks from `weights`, limited to the likeliest `top_p` of their sum.

    >>> draw(np.array([1, 2, 1], dtype=np.float32), top_p=1.0, uniform=0.5)
    1
    >>> draw(np.array([1, 2, 1], dtype=np.float32), top_p=0.5, uniform=0.99)
    1
    """
    if top_p >= 1:
        mass = np.cumsum(weights, dtype=np.float64)
        return _position(mass, uniform)
    kept, mass = _nucleus(weights, top_p)
    return int(kept[_position(mass, uniform)])


def _nucleus(weights: FloatArray, top_p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    total = weights.sum(dtype=np.float64)
    # Tokens this light weigh less than 1 - top_p even all together, so none is in the nucleus and few are left to sort.
    # Halved against rounding: near top_p = 1 the bound is as small as the rounding of the sum.
    kept = np.flatnonzero(weights >= (1 - top_p) * total / len(weights) / 2)
    kept = kept[np.argsort(-weights[kept], kind="stable")]
    mass = np.cumsum(weights[kept], dtype=np.float64)
    size = int(np.searchsorted(mass, top_p * total)) + 1
    return kept[:size], mass[:size]


def _position(mass: NDArray[np.float64], uniform: float) -> int:
    return min(int(np.searchsorted(mass, uniform * mass[-1], side="right")), len(mass) - 1)


def log_probabilities(logits: FloatArray) -> NDArray[np.float64]:
    """Return the logarithms of the model's own probabilities, before temperature and top_p, for one row of logits."""
    shifted = logits.astype(np.float64) - logits.max()
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logs
