"""Attention over two stretches of text: a beginning that many requests share, and what is a request's own.

Each stretch gives a `Partial`, and two partials join into what attention over both would have given (the softmax of a
concatenation, computed without concatenating). So a shared beginning is multiplied once for a whole batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refusal_index.almanac.checkpoint import FloatArray


class Partial(NamedTuple):
    """Attention over a part of the keys."""

    values: FloatArray  # the values, summed with the weights exp(score - peak)
    total: FloatArray  # the sum of those weights, last axis of length 1
    peak: FloatArray  # the largest score, last axis of length 1

    def finish(self) -> FloatArray:
        """Return attention as if there were no other keys."""
        return self.values / self.total

    def join(self, other: Partial) -> FloatArray:
        """Return attention over the keys of both."""
        peak = np.maximum(self.peak, other.peak)
        mine, theirs = np.exp(self.peak - peak), np.exp(other.peak - peak)
        return (self.values * mine + other.values * theirs) / (self.total * mine + other.total * theirs)


def weigh(scores: FloatArray, values: FloatArray) -> Partial:
    """Return the partial of `values` (..., keys, size) under `scores` (..., queries, keys), which are overwritten."""
    peak = scores.max(axis=-1, keepdims=True)
    scores -= peak
    np.exp(scores, out=scores)
    return Partial(scores @ values, scores.sum(axis=-1, keepdims=True), peak)


def attend_shared(queries: FloatArray, keys: FloatArray, values: FloatArray) -> Partial:
    """Attend from every query to every one of the shared keys.

    - `queries`: shape (n, key heads, group, size).
    - `keys`, `values`: shape (key heads, shared tokens, size).
    """
    n, heads, group, size = queries.shape
    stacked = queries.transpose(1, 0, 2, 3).reshape(heads, n * group, size)
    partial = weigh(stacked @ keys.swapaxes(-1, -2), values)
    return Partial(*(array.reshape(heads, n, group, -1).transpose(1, 0, 2, 3) for array in partial))


def attend_rows(queries: FloatArray, keys: FloatArray, values: FloatArray, mask: FloatArray) -> Partial:
    """Attend within each row of a padded batch.

    - `queries`: shape (rows, steps, key heads, group, size).
    - `keys`, `values`: shape (rows, key heads, width, size).
    - `mask`: shape (rows, steps, width), 0 where a query may look and -inf elsewhere.
    - returned: arrays of shape (rows, steps, key heads, group, ...).
    """
    rows, steps, heads, group, size = queries.shape
    stacked = queries.transpose(0, 2, 1, 3, 4).reshape(rows, heads, steps * group, size)
    scores = (stacked @ keys.swapaxes(-1, -2)).reshape(rows, heads, steps, group, -1)
    scores += mask[:, None, :, None, :]
    partial = weigh(scores.reshape(rows, heads, steps * group, -1), values)
    return Partial(*(array.reshape(rows, heads, steps, group, -1).transpose(0, 2, 1, 3, 4) for array in partial))
