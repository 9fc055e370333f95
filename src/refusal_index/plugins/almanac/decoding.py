"""Generation for many requests at once: they join and leave a running batch between two tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from refusal_index.plugins.almanac.cache import Cohort, Prefix, compute_prefix, run
from refusal_index.plugins.almanac.llama import Llama, Request, Sequence, sample
from refusal_index.plugins.almanac.models import FloatArray, IntArray

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
        latest_first = [prefix, *(p for p in self._stored if p is not prefix)]
        held = accumulate(map(len, latest_first))
        self._stored = [p for p, tokens in zip(latest_first, held, strict=True) if tokens <= self._capacity]


def shared_length(first: IntArray, second: IntArray) -> int:
    """Return how many tokens two texts have in common from the start."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(first[:length] != second[:length])
    return int(differing[0]) if len(differing) else length


def _begins(prompt: IntArray, prefix: Prefix) -> bool:
    return len(prompt) > len(prefix) and _same_beginning(prompt, prefix.tokens)


def _same_beginning(longer: IntArray, shorter: IntArray) -> bool:
    return bool(np.array_equal(longer[: len(shorter)], shorter))


# Bounds on memory: new tokens in one step, and tokens held for the rows that run.
_MAX_NEW_TOKENS = 2560
_MAX_HELD_TOKENS = 12288
# From this many choices on, a request shares its whole prompt among them.
_MANY_CHOICES = 4
# A row may be padded to about this many times its length, and a few tokens more.
_PADDING_FACTOR, _PADDING_TOKENS = 2, 16


@dataclass(eq=False)
class _Group:
    """Sequences that run as the rows of one cohort."""

    cohort: Cohort
    sequences: list[Sequence]
    pending: list[IntArray]

    def drop_finished(self) -> None:
        """Give up the rows of finished sequences once they are a quarter: moving the others costs a step or so."""
        alive = [row for row, sequence in enumerate(self.sequences) if not sequence.over]
        if len(alive) <= 0.75 * len(self.sequences):
            self.cohort.keep(alive)
            self.sequences = [self.sequences[row] for row in alive]
            self.pending = [self.pending[row] for row in alive]


class Decoder:
    """Generates for the sequences it was given, a token of each at a time.

    Parameters
    ----------
    max_rows
        Most sequences in progress; more wait their turn.
    """

    def __init__(self, model: Llama, *, max_rows: int = 128) -> None:
        self._model = model
        self._prefixes = PrefixStore(model)
        self._max_rows = max_rows
        self._waiting: deque[Sequence] = deque()
        self._groups: list[_Group] = []
        self._looked_up: tuple[Request, Prefix | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._waiting or self._groups)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue `sequences`."""
        self._waiting.extend(sequences)

    def step(self) -> None:
        """Generate one token of every sequence in progress."""
        self._drop_finished()
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
            if not sequence.over:
                sequence.accept(token, scores)
        rows = iter(np.array(tokens)[:, None])
        for group in self._groups:
            group.pending = [next(rows) for _ in group.sequences]

    def _drop_finished(self) -> None:
        for group in self._groups:
            group.drop_finished()
        self._groups = [group for group in self._groups if group.sequences]

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
        held, new = sum(group.cohort.held_tokens for group in self._groups), 0
        while self._waiting and rows + len(admitted) < self._max_rows:
            request = self._waiting[0].request
            prefix = self._prefix_of(request)
            new += len(request.prompt) - (len(prefix) if prefix else 0)
            if (rows or admitted) and (new > _MAX_NEW_TOKENS or held + new > _MAX_HELD_TOKENS):
                break
            admitted.append((self._waiting.popleft(), prefix))
        return [(sequence, prefix) for sequence, prefix in admitted if not sequence.over]

    def _prefix_of(self, request: Request) -> Prefix | None:
        # asked again for each choice, and at each step while there is no room: one question to the store is enough
        if self._looked_up is None or self._looked_up[0] is not request:
            repeated = request.settings.n >= _MANY_CHOICES
            self._looked_up = request, self._prefixes.prefix_of(request.prompt, repeated=repeated)
        return self._looked_up[1]


def _choose(sequences: list[Sequence], logits: FloatArray) -> list[int]:
    settings = [sequence.request.settings for sequence in sequences]
    return sample(
        logits,
        temperature=np.array([each.temperature for each in settings]),
        top_p=np.array([each.top_p for each in settings]),
        uniform=np.array([0.0 if sequence.over else sequence.next_uniform for sequence in sequences]),
    )


def _split_by_length(rests: list[tuple[Sequence, IntArray]]) -> list[list[tuple[Sequence, IntArray]]]:
    groups: list[list[tuple[Sequence, IntArray]]] = []
    for rest in rests:
        if not groups or len(rest[1]) > _PADDING_FACTOR * len(groups[-1][0][1]) + _PADDING_TOKENS:
            groups.append([])
        groups[-1].append(rest)
    return groups
