"""Keys and values already computed: of a beginning that requests share, and of the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refusal_index.plugins.almanac.llama import Llama, Observe, Projection, unobserved
from refusal_index.plugins.almanac.models import FloatArray, IntArray, LlamaConfig


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


# Room for a short reply, so that most rows never have to move.
_HEADROOM = 16


@dataclass(frozen=True, eq=False)
class Prefix:
    """A beginning of prompts with its keys and values, each of shape (layers, key heads, tokens, size)."""

    tokens: IntArray
    keys: FloatArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, length: int) -> Prefix:
        """Return the first `length` tokens, copied so that the rest can be freed."""
        return Prefix(self.tokens[:length], self.keys[:, :, :length].copy(), self.values[:, :, :length].copy())


@dataclass(frozen=True)
class Feed:
    """The tokens that one step runs for the rows of a cohort, as a flat list."""

    # tokens, positions: shape (n,)
    tokens: IntArray
    positions: IntArray
    # rows, offsets, columns: of each token: its row, its place within the step and its place within the row, shape (n,)
    rows: IntArray
    offsets: IntArray
    columns: IntArray
    # which columns each row may look at in each place of the step: 0 or -inf, shape (rows, steps, width)
    mask: FloatArray

    @property
    def last(self) -> IntArray:
        """Index of each row's last token."""
        return np.append(np.flatnonzero(np.diff(self.rows)), len(self.rows) - 1)


class Cohort:
    """Rows that share a prefix and run together, each with a text of its own after it."""

    def __init__(self, config: LlamaConfig, prefix: Prefix | None, n_rows: int) -> None:
        self.prefix = prefix
        self._context = config.context
        self._lengths = np.zeros(n_rows, dtype=np.int64)
        shape = (config.n_layers, n_rows, config.n_key_heads, 0, config.head_size)
        self._keys, self._values = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._feed: Feed | None = None

    @property
    def held_tokens(self) -> int:
        """Tokens that the cohort holds memory for."""
        return len(self._lengths) * self._keys.shape[3]

    def begin(self, pending: list[IntArray]) -> Feed:
        """Start a step that appends ``pending[i]``, at least one token, to row i."""
        counts = np.array([len(tokens) for tokens in pending])
        before, self._lengths = self._lengths, self._lengths + counts
        width = int(self._lengths.max())
        self._make_room(width)
        rows = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = before[rows] + offsets
        reach = before[:, None] + np.arange(counts.max())
        self._feed = Feed(
            tokens=np.concatenate(pending),
            # a finished row runs on until it is dropped, perhaps past the end of the context, and nobody reads it
            positions=np.minimum(columns + (len(self.prefix) if self.prefix else 0), self._context - 1),
            rows=rows,
            offsets=offsets,
            columns=columns,
            mask=np.where(np.arange(width) <= reach[:, :, None], np.float32(0), np.float32(-np.inf)),
        )
        return self._feed

    def attend(self, layer: int, projection: Projection) -> FloatArray:
        """Store the step's keys and values of `layer` and return the attended values."""
        assert self._feed is not None, "begin() comes first"  # noqa: S101 - misuse within this package
        feed, queries = self._feed, projection.queries
        keys, values = self._keys[layer], self._values[layer]
        keys[feed.rows, :, feed.columns] = projection.keys
        values[feed.rows, :, feed.columns] = projection.values
        n_rows, steps, width = feed.mask.shape
        padded = np.zeros((n_rows, steps, *queries.shape[1:]), np.float32)
        padded[feed.rows, feed.offsets] = queries
        rows = attend_rows(padded, keys[:, :, :width], values[:, :, :width], feed.mask)
        own = type(rows)(*(array[feed.rows, feed.offsets] for array in rows))
        if self.prefix is None:
            return own.finish()
        return own.join(attend_shared(queries, self.prefix.keys[layer], self.prefix.values[layer]))

    def keep(self, rows: list[int]) -> None:
        """Forget all rows but these."""
        self._lengths = self._lengths[rows]
        self._keys, self._values = self._keys[:, rows], self._values[:, rows]

    def as_prefix(self) -> Prefix:
        """Return the text of a cohort's only row, which has run one step, as a prefix that includes its own."""
        assert self._feed is not None, "begin() comes first"  # noqa: S101 - misuse within this package
        length = int(self._lengths[0])
        own = Prefix(self._feed.tokens, self._keys[:, 0, :, :length], self._values[:, 0, :, :length])
        if self.prefix is None:
            return own.cut(length)
        return Prefix(
            np.concatenate([self.prefix.tokens, own.tokens]),
            np.concatenate([self.prefix.keys, own.keys], axis=2),
            np.concatenate([self.prefix.values, own.values], axis=2),
        )

    def _make_room(self, width: int) -> None:
        if width > self._keys.shape[3]:
            # proportional growth keeps the cost of moving a long text small
            width += max(_HEADROOM, width // 4)
            self._keys, self._values = _widened(self._keys, width), _widened(self._values, width)


def _widened(cache: FloatArray, width: int) -> FloatArray:
    # zeros, not whatever was in memory: a masked column weighs nothing, but nothing times NaN is NaN
    wider = np.zeros((*cache.shape[:3], width, cache.shape[4]), np.float32)
    wider[:, :, :, : cache.shape[3]] = cache
    return wider


def run(model: Llama, cohorts: list[Cohort], feeds: list[Feed], observe: Observe = unobserved) -> FloatArray:
    """Run one step of all cohorts at once and return the hidden state of every token, in the order of the feeds."""
    ends = np.cumsum([len(feed.tokens) for feed in feeds])
    parts = [slice(end - len(feed.tokens), end) for end, feed in zip(ends, feeds, strict=True)]

    def attend(layer: int, projection: Projection) -> FloatArray:
        attended = [
            cohort.attend(layer, Projection(*(array[part] for array in projection)))
            for cohort, part in zip(cohorts, parts, strict=True)
        ]
        return np.concatenate(attended)

    tokens = np.concatenate([feed.tokens for feed in feeds])
    positions = np.concatenate([feed.positions for feed in feeds])
    return model.forward(tokens, positions, attend, observe)


def compute_prefix(model: Llama, tokens: IntArray, base: Prefix | None) -> Prefix:
    """Return the prefix `tokens`, which begins with those of `base`."""
    cohort = Cohort(model.config, base, n_rows=1)
    run(model, [cohort], [cohort.begin([tokens[len(base) if base else 0 :]])])
    return cohort.as_prefix()
