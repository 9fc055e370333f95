"""Generation with continuous batching: requests join and leave the running batch between two tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from refusal_index.plugins.almanac.llama import (
    GenerationRequest,
    Llama,
    Observe,
    Projection,
    Sequence,
    sample,
    unobserved,
)
from refusal_index.plugins.almanac.models import FloatArray, IntArray, LlamaConfig


class Partial(NamedTuple):
    """Attention over part of the keys, which can be combined with attention over the others."""

    values: FloatArray  # the values, summed with the weights exp(score - peak)
    total: FloatArray  # the sum of those weights, last axis of length 1
    peak: FloatArray  # the largest score, last axis of length 1

    def finish(self) -> FloatArray:
        """Return the attention if there are no other keys."""
        return self.values / self.total

    def join(self, other: Partial) -> FloatArray:
        """Return the attention over both sets of keys."""
        peak = np.maximum(self.peak, other.peak)
        own_weight = np.exp(self.peak - peak)
        other_weight = np.exp(other.peak - peak)
        return (self.values * own_weight + other.values * other_weight) / (
            self.total * own_weight + other.total * other_weight
        )


def weigh(scores: FloatArray, values: FloatArray) -> Partial:
    """Return the partial of `values` (..., keys, size) under `scores` (..., queries, keys), which are overwritten."""
    peak = scores.max(axis=-1, keepdims=True)
    scores -= peak
    np.exp(scores, out=scores)
    return Partial(scores @ values, scores.sum(axis=-1, keepdims=True), peak)


def attend_shared(queries: FloatArray, keys: FloatArray, values: FloatArray) -> Partial:
    """Attend from every query to all shared keys.

    - `queries`: shape (n, key heads, group, size).
    - `keys`, `values`: shape (key heads, shared tokens, size).
    """
    n, heads, group, size = queries.shape
    stacked = queries.transpose(1, 0, 2, 3).reshape(heads, n * group, size)
    partial = weigh(stacked @ keys.swapaxes(-1, -2), values)
    return Partial(*(array.reshape(heads, n, group, -1).transpose(1, 0, 2, 3) for array in partial))


def attend_rows(queries: FloatArray, keys: FloatArray, values: FloatArray, mask: FloatArray) -> Partial:
    """Attend within each row of a padded batch; return arrays of shape (rows, steps, key heads, group, ...).

    - `queries`: shape (rows, steps, key heads, group, size).
    - `keys`, `values`: shape (rows, key heads, width, size).
    - `mask`: shape (rows, steps, width), 0 where a query may attend and -inf elsewhere.
    """
    rows, steps, heads, group, size = queries.shape
    stacked = queries.transpose(0, 2, 1, 3, 4).reshape(rows, heads, steps * group, size)
    scores = (stacked @ keys.swapaxes(-1, -2)).reshape(rows, heads, steps, group, -1)
    scores += mask[:, None, :, None, :]
    partial = weigh(scores.reshape(rows, heads, steps * group, -1), values)
    return Partial(*(array.reshape(rows, heads, steps, group, -1).transpose(0, 2, 1, 3, 4) for array in partial))


# Columns for a short reply, so that most caches are never reallocated.
_HEADROOM = 16


@dataclass(frozen=True, eq=False)
class Prefix:
    """A shared prefix of prompts with its keys and values, each of shape (layers, key heads, tokens, size)."""

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
    """The tokens that one step processes for the rows of a cohort, as flat arrays."""

    # shape (n,)
    tokens: IntArray
    positions: IntArray
    # each token's row, index within the step and index within the row; shape (n,)
    rows: IntArray
    offsets: IntArray
    columns: IntArray
    # the columns to which each token of a row may attend: 0 or -inf, shape (rows, steps, width)
    mask: FloatArray

    @property
    def last(self) -> IntArray:
        """Index of each row's last token."""
        return np.append(np.flatnonzero(np.diff(self.rows)), len(self.rows) - 1)


class Cohort:
    """Rows that share a prefix and run together, each with its own continuation."""

    def __init__(self, config: LlamaConfig, prefix: Prefix | None, n_rows: int) -> None:
        self.prefix = prefix
        self._context = config.context
        self._lengths = np.zeros(n_rows, dtype=np.int64)
        shape = (config.n_layers, n_rows, config.n_key_heads, 0, config.head_size)
        self._keys = np.empty(shape, np.float32)
        self._values = np.empty(shape, np.float32)
        self._feed: Feed | None = None

    @property
    def held_tokens(self) -> int:
        """Number of tokens for which the cohort has allocated memory."""
        return len(self._lengths) * self._keys.shape[3]

    def begin(self, pending: list[IntArray]) -> Feed:
        """Start a step that appends the tokens ``pending[i]``, at least one, to row i."""
        counts = np.array([len(tokens) for tokens in pending])
        before = self._lengths
        self._lengths = self._lengths + counts
        width = int(self._lengths.max())
        self._make_room(width)
        rows = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = before[rows] + offsets
        reach = before[:, None] + np.arange(counts.max())
        self._feed = Feed(
            tokens=np.concatenate(pending),
            # a finished row runs until it is dropped, possibly past the end of the context; its tokens are ignored
            positions=np.minimum(columns + (len(self.prefix) if self.prefix else 0), self._context - 1),
            rows=rows,
            offsets=offsets,
            columns=columns,
            mask=np.where(np.arange(width) <= reach[:, :, None], np.float32(0), np.float32(-np.inf)),
        )
        return self._feed

    def attend(self, layer: int, projection: Projection) -> FloatArray:
        """Store the step's keys and values for `layer`, and return the attention output."""
        assert self._feed is not None, "begin() comes first"  # noqa: S101 - misuse within this package
        feed = self._feed
        queries = projection.queries
        keys = self._keys[layer]
        values = self._values[layer]
        keys[feed.rows, :, feed.columns] = projection.keys
        values[feed.rows, :, feed.columns] = projection.values
        n_rows, steps, width = feed.mask.shape
        padded = np.zeros((n_rows, steps, *queries.shape[1:]), np.float32)
        padded[feed.rows, feed.offsets] = queries
        rows = attend_rows(padded, keys[:, :, :width], values[:, :, :width], feed.mask)
        partial = type(rows)(*(array[feed.rows, feed.offsets] for array in rows))
        if self.prefix is None:
            return partial.finish()
        return partial.join(attend_shared(queries, self.prefix.keys[layer], self.prefix.values[layer]))

    def keep(self, rows: list[int]) -> None:
        """Keep only these rows."""
        self._lengths = self._lengths[rows]
        self._keys = self._keys[:, rows]
        self._values = self._values[:, rows]

    def as_prefix(self) -> Prefix:
        """Return the only row, after one step, as a prefix that includes the cohort's own prefix."""
        assert self._feed is not None, "begin() comes first"  # noqa: S101 - misuse within this package
        length = int(self._lengths[0])
        own_prefix = Prefix(self._feed.tokens, self._keys[:, 0, :, :length], self._values[:, 0, :, :length])
        if self.prefix is None:
            return own_prefix.cut(length)
        return Prefix(
            np.concatenate([self.prefix.tokens, own_prefix.tokens]),
            np.concatenate([self.prefix.keys, own_prefix.keys], axis=2),
            np.concatenate([self.prefix.values, own_prefix.values], axis=2),
        )

    def _make_room(self, width: int) -> None:
        if width > self._keys.shape[3]:
            # proportional growth keeps the cost of copying long rows small
            width += max(_HEADROOM, width // 4)
            self._keys = _widened(self._keys, width)
            self._values = _widened(self._values, width)


def _widened(cache: FloatArray, width: int) -> FloatArray:
    # zeros, not uninitialised memory: a masked column has weight 0, but 0 times NaN is NaN
    wider = np.zeros((*cache.shape[:3], width, cache.shape[4]), np.float32)
    wider[:, :, :, : cache.shape[3]] = cache
    return wider


def run(model: Llama, cohorts: list[Cohort], feeds: list[Feed], observe: Observe = unobserved) -> FloatArray:
    """Run one step of all cohorts together, and return the hidden state of each token in the order of the feeds."""
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
    """Compute the prefix for `tokens`, which start with the tokens of `base`."""
    cohort = Cohort(model.config, base, n_rows=1)
    run(model, [cohort], [cohort.begin([tokens[len(base) if base else 0 :]])])
    return cohort.as_prefix()


# Tokens that a longer prefix must save a request to be worth a separate cohort.
_MIN_GAIN = 64
# Maximum number of tokens in all prefixes together.
_CAPACITY = 8192


class PrefixStore:
    """An LRU cache of prefixes of recent prompts."""

    def __init__(self, model: Llama) -> None:
        self._model = model
        self._stored: list[Prefix] = []
        self._recent: deque[IntArray] = deque(maxlen=8)

    def __len__(self) -> int:
        return len(self._stored)

    def prefix_of(self, prompt: IntArray, *, repeated: bool = False) -> Prefix | None:
        """Return the prefix from which a request for `prompt` should start; at least one token remains after it.

        - `repeated`: whether several replies to this prompt are requested, so that sharing all of it pays.
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
        # the last token is left out of the comparison, since a request has to run at least one
        texts = (*self._recent, *(prefix.tokens for prefix in self._stored))
        return max((shared_length(prompt[:-1], tokens) for tokens in texts), default=0)

    def _make(self, tokens: IntArray, base: Prefix | None) -> Prefix:
        longer = next((p for p in self._stored if len(p) > len(tokens) and _same_beginning(p.tokens, tokens)), None)
        made = longer.cut(len(tokens)) if longer else compute_prefix(self._model, tokens, base)
        # a prefix only slightly longer than the new one would only split batches
        self._stored = [p for p in self._stored if len(p) - len(made) >= _MIN_GAIN or not _begins(p.tokens, made)]
        return made

    def _touch(self, prefix: Prefix) -> None:
        latest_first = [prefix, *(p for p in self._stored if p is not prefix)]
        totals = accumulate(map(len, latest_first))
        self._stored = [p for p, tokens in zip(latest_first, totals, strict=True) if tokens <= _CAPACITY]


def shared_length(first: IntArray, second: IntArray) -> int:
    """Return the length of the common prefix of two token sequences."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(first[:length] != second[:length])
    return int(differing[0]) if len(differing) else length


def _begins(prompt: IntArray, prefix: Prefix) -> bool:
    return len(prompt) > len(prefix) and _same_beginning(prompt, prefix.tokens)


def _same_beginning(longer: IntArray, shorter: IntArray) -> bool:
    return bool(np.array_equal(longer[: len(shorter)], shorter))


# Maximum number of sequences in progress; further ones are queued.
_MAX_ROWS = 128
# Memory limits: new tokens in one step, and tokens in the caches of running rows.
_MAX_NEW_TOKENS = 2560
_MAX_HELD_TOKENS = 12288
# With at least this many choices, the choices of a request share the whole prompt as a prefix.
_MANY_CHOICES = 4
# A row may be padded to this multiple of its length plus this many tokens.
_PADDING_FACTOR = 2
_PADDING_TOKENS = 16


@dataclass(eq=False)
class _Group:
    """Sequences that run as the rows of one cohort."""

    cohort: Cohort
    sequences: list[Sequence]
    pending: list[IntArray]

    def drop_finished(self) -> None:
        """Drop finished sequences once they are a quarter of the rows: copying the others costs about a step."""
        alive = [row for row, sequence in enumerate(self.sequences) if not sequence.is_over]
        if len(alive) <= 0.75 * len(self.sequences):
            self.cohort.keep(alive)
            self.sequences = [self.sequences[row] for row in alive]
            self.pending = [self.pending[row] for row in alive]


class Decoder:
    """Generates one token per step for each of its sequences."""

    def __init__(self, model: Llama) -> None:
        self._model = model
        self._prefixes = PrefixStore(model)
        self._waiting: deque[Sequence] = deque()
        self._groups: list[_Group] = []
        self._looked_up: tuple[GenerationRequest, Prefix | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether any sequence is in progress or queued."""
        return bool(self._waiting or self._groups)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue `sequences`."""
        self._waiting.extend(sequences)

    def step(self) -> None:
        """Generate one token for each sequence in progress."""
        for group in self._groups:
            group.drop_finished()
        self._groups = [group for group in self._groups if group.sequences]
        self._join()
        if not self._groups:
            return
        feeds = [group.cohort.begin(group.pending) for group in self._groups]
        hidden = run(self._model, [group.cohort for group in self._groups], feeds)
        starts = np.cumsum([0, *(len(feed.tokens) for feed in feeds)])
        last = np.concatenate([feed.last + start for feed, start in zip(feeds, starts, strict=False)])
        self._extend(self._model.logits(hidden[last]))

    def _extend(self, logits: FloatArray) -> None:
        sequences = [sequence for group in self._groups for sequence in group.sequences]
        tokens = _choose(sequences, logits)
        for sequence, token, scores in zip(sequences, tokens, logits, strict=True):
            if not sequence.is_over:
                sequence.accept(token, scores)
        rows = iter(np.array(tokens)[:, None])
        for group in self._groups:
            group.pending = [next(rows) for _ in group.sequences]

    def _join(self) -> None:
        by_prefix: dict[Prefix | None, list[Sequence]] = {}
        for sequence, prefix in self._admit():
            by_prefix.setdefault(prefix, []).append(sequence)
        for prefix, sequences in by_prefix.items():
            start = len(prefix) if prefix else 0
            rests = sorted(((s, s.request.prompt[start:]) for s in sequences), key=lambda pair: len(pair[1]))
            for group in _split_by_length(rests):
                cohort = Cohort(self._model.config, prefix, len(group))
                self._groups.append(_Group(cohort, [s for s, _ in group], [rest for _, rest in group]))

    def _admit(self) -> list[tuple[Sequence, Prefix | None]]:
        admitted: list[tuple[Sequence, Prefix | None]] = []
        rows = sum(len(group.sequences) for group in self._groups)
        n_held = sum(group.cohort.held_tokens for group in self._groups)
        new = 0
        while self._waiting and rows + len(admitted) < _MAX_ROWS:
            request = self._waiting[0].request
            prefix = self._prefix_of(request)
            new += len(request.prompt) - (len(prefix) if prefix else 0)
            if (rows or admitted) and (new > _MAX_NEW_TOKENS or n_held + new > _MAX_HELD_TOKENS):
                break
            admitted.append((self._waiting.popleft(), prefix))
        return [(sequence, prefix) for sequence, prefix in admitted if not sequence.is_over]

    def _prefix_of(self, request: GenerationRequest) -> Prefix | None:
        # called for each choice, and in each step while the batch is full, so the last result is cached
        if self._looked_up is None or self._looked_up[0] is not request:
            repeated = request.settings.n >= _MANY_CHOICES
            self._looked_up = request, self._prefixes.prefix_of(request.prompt, repeated=repeated)
        return self._looked_up[1]


def _choose(sequences: list[Sequence], logits: FloatArray) -> list[int]:
    settings = [sequence.request.settings for sequence in sequences]
    return sample(
        logits,
        temperature=np.array([setting.temperature for setting in settings]),
        top_p=np.array([setting.top_p for setting in settings]),
        uniform=np.array([0.0 if sequence.is_over else sequence.next_uniform for sequence in sequences]),
    )


def _split_by_length(rests: list[tuple[Sequence, IntArray]]) -> list[list[tuple[Sequence, IntArray]]]:
    groups: list[list[tuple[Sequence, IntArray]]] = []
    for rest in rests:
        if not groups or len(rest[1]) > _PADDING_FACTOR * len(groups[-1][0][1]) + _PADDING_TOKENS:
            groups.append([])
        groups[-1].append(rest)
    return groups
