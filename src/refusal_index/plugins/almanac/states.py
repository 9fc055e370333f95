"""Hidden states at the end of a prompt: the residual stream of every layer before the reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from refusal_index.plugins.almanac import ContextLengthError
from refusal_index.plugins.almanac.cache import Cohort, Prefix, run
from refusal_index.plugins.almanac.decoding import PrefixStore
from refusal_index.plugins.almanac.llama import Llama
from refusal_index.plugins.almanac.models import FloatArray, IntArray
from refusal_index.plugins.almanac.runtime import Runtime, one_blas_thread, shared_runtime
from refusal_index.protocol import Message

# Bounds on memory: conversations that are looked at together, and tokens in one step, padding included.
_TOGETHER = 512
_MAX_TOKENS = 2560


def hidden_states(model: str | Runtime, conversations: Sequence[Sequence[Message]]) -> FloatArray:
    """Return the hidden states at the last token of each prompt, which ends where the reply would begin.

    They are counted as transformers counts its ``output_hidden_states``: index 0 is the embedding, index i the residual
    stream after block i; the last one has gone through the final norm as well, its gain included, as what the head is
    given. Beginnings that conversations share are computed once.

    Parameters
    ----------
    model
        Name of an embedded model, or a runtime.
    conversations
        Each as a request has it: the messages before the reply.

    Returns
    -------
    ndarray of float32, shape (n, layers + 1, hidden)

    Raises
    ------
    RequestError
        If a conversation cannot be read.
    ContextLengthError
        If one is longer than the model reads.

    Examples
    --------
    >>> hidden_states("base", [[Message("user", "Who?")], [Message("user", "When?")]]).shape
    (2, 5, 192)
    """
    runtime = shared_runtime(model) if isinstance(model, str) else model
    llama, config = runtime.model, runtime.model.config
    prompts = [_checked(runtime.tokenizer.encode(messages), config.context) for messages in conversations]
    states = np.empty((len(prompts), config.n_layers + 1, config.hidden_size), np.float32)
    prefixes = PrefixStore(llama)
    with one_blas_thread:
        for start in range(0, len(prompts), _TOGETHER):
            part = prompts[start : start + _TOGETHER]
            for prefix, places in _batches(part, [prefixes.prefix_of(prompt) for prompt in part]):
                rests = [part[place][len(prefix) if prefix else 0 :] for place in places]
                states[[start + place for place in places]] = _states_of(llama, prefix, rests)
    return states


def _checked(prompt: IntArray, context: int) -> IntArray:
    if len(prompt) > context:
        raise ContextLengthError(len(prompt), context)
    return prompt


def _batches(
    prompts: Sequence[IntArray], prefixes: Sequence[Prefix | None]
) -> Iterator[tuple[Prefix | None, list[int]]]:
    """Yield places of prompts that start from the same prefix, those of about the same length together."""

    def rank(place: int) -> tuple[int, int]:
        return id(prefixes[place]), len(prompts[place])

    for _, same in groupby(sorted(range(len(prompts)), key=rank), key=lambda place: id(prefixes[place])):
        places = list(same)
        prefix = prefixes[places[0]]
        while places:
            shared = len(prefix) if prefix else 0
            widths = (len(prompts[place]) - shared for place in places)  # ascending: the last is what all are padded to
            size = sum(rows * width <= _MAX_TOKENS for rows, width in enumerate(widths, 1)) or 1
            yield prefix, places[:size]
            places = places[size:]


def _states_of(model: Llama, prefix: Prefix | None, rests: list[IntArray]) -> FloatArray:
    cohort = Cohort(model.config, prefix, len(rests))
    feed = cohort.begin(rests)
    seen: list[FloatArray] = []
    final = run(model, [cohort], [feed], lambda stream: seen.append(stream[feed.last]))
    return np.stack([*seen[:-1], final[feed.last] * model.weights.gain], axis=1)
