"""The store of prompt beginnings: nobody declares them, they are found by comparing prompts as these arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from refusal_index.almanac.cache import Prefix, compute_prefix
from refusal_index.almanac.llama import IntArray, Llama

# Tokens that a longer prefix must spare a request before it is worth a cohort of its own.
_MIN_GAIN = 64
_REMEMBERED_PROMPTS = 8


class PrefixStore:
    """Prefixes of recent prompts, the least recently used given up first.

    Parameters
    ----------
    capacity
        Most tokens to hold, summed over the prefixes.
    """

    def __init__(self, model: Llama, capacity: int = 8192) -> None:
        self._model = model
        self._capacity = capacity
        self._stored: list[Prefix] = []
        self._recent: deque[IntArray] = deque(maxlen=_REMEMBERED_PROMPTS)

    def __len__(self) -> int:
        return len(self._stored)

    def prefix_of(self, prompt: IntArray, *, repeated: bool = False) -> Prefix | None:
        """Return the prefix that a request for `prompt` should start from; at least one token is left after it.

        - `repeated`: whether several replies to this very prompt are wanted, so that it is worth sharing as a whole.
        """
        best = max((p for p in self._stored if _begins(prompt, p)), key=len, default=None)
        shared = len(prompt) - 1 if repeated else self._longest_shared(prompt)
        self._recent.append(prompt)
        if shared - (len(best) if best else 0) >= (1 if repeated else _MIN_GAIN):
            best = self._make(prompt[:shared], best)
        if best:
            self._touch(best)
        return best

    def _longest_shared(self, prompt: IntArray) -> int:
        # the last token is left out of the comparison, as a request has to run at least one
        known = (*self._recent, *(prefix.tokens for prefix in self._stored))
        return max((shared_length(prompt[:-1], tokens) for tokens in known), default=0)

    def _make(self, tokens: IntArray, base: Prefix | None) -> Prefix:
        longer = next((p for p in self._stored if len(p) > len(tokens) and _same_beginning(p.tokens, tokens)), None)
        made = longer.cut(len(tokens)) if longer else compute_prefix(self._model, tokens, base)
        # a prefix that says little more than the new one would only split batches
        self._stored = [p for p in self._stored if len(p) - len(made) >= _MIN_GAIN or not _begins(p.tokens, made)]
        return made

    def _touch(self, prefix: Prefix) -> None:
        others = [p for p in self._stored if p is not prefix]
        self._stored = list(_within(self._capacity, [prefix, *others]))


def shared_length(one: IntArray, other: IntArray) -> int:
    """Return how many tokens two texts have in common from the start."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def _begins(prompt: IntArray, prefix: Prefix) -> bool:
    return len(prompt) > len(prefix) and _same_beginning(prompt, prefix.tokens)


def _same_beginning(longer: IntArray, shorter: IntArray) -> bool:
    return bool(np.array_equal(longer[: len(shorter)], shorter))


def _within(capacity: int, prefixes: list[Prefix]) -> Iterator[Prefix]:
    for prefix in prefixes:
        capacity -= len(prefix)
        if capacity < 0:
            return
        yield prefix
