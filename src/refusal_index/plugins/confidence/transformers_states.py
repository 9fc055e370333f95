"""The residual stream at the end of a prompt, of weights that transformers runs; torch is imported only when asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refusal_index.errors import RefusalIndexError
from refusal_index.protocol import Message

EXTRA = "transformers"
AT_ONCE = 16  # prompts; more gain little, and take memory for every token in every layer


class WeightsError(RefusalIndexError, ValueError):
    """Weights that transformers cannot run, or for which a package is missing; the message says what to do."""


def hidden_states(
    name: str, conversations: Sequence[Sequence[Message]], *, at_once: int = AT_ONCE
) -> NDArray[np.float32]:
    """Return the hidden states at the last token of each prompt, which ends where the reply would begin.

    They are those of transformers' ``output_hidden_states``, in float32: index 0 is the embedding, index i the residual
    stream after block i, and the last one has gone through the final norm as well, where the model's class has it so,
    as nearly all do. Only prompts of the same length run together, so that none is padded: what a model makes of
    padding depends on its kind.

    Parameters
    ----------
    name
        What follows ``hf/`` in a model's name: that of a repository, or a folder. Code that comes with weights is not
        run.
    conversations
        Each as a request has it: the messages before the reply.
    at_once
        Most prompts of one pass.

    Returns
    -------
    ndarray of float32, shape (n, layers + 1, hidden)

    Raises
    ------
    WeightsError
        If a package is missing, the weights cannot be loaded, their chat template cannot put a conversation into words,
        or one is longer than the model reads.
    """
    tokenizer, model = _loaded(name)
    prompts = [_tokens(name, tokenizer, one) for one in conversations]
    _check_lengths(name, prompts, model)
    states = np.empty((len(prompts), *_shape(model)), np.float32)
    for places in _of_one_length(prompts, at_once):
        states[places] = _states_of(model, [prompts[place] for place in places])
    return states


def _loaded(name: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model without its head, which nothing here needs."""
    try:
        import torch  # noqa: PLC0415 - an extra, and slow to import
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise WeightsError(
            f"hidden states of hf/{name} need the package {error.name}: pip install 'refusal-index[{EXTRA}]'"
        ) from error
    try:
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # whatever it raises for a wrong name, a damaged file or a kind that it does not know
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise WeightsError(f"hf/{name}: transformers cannot load it: {said}") from error
    return tokenizer, model.base_model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from drawing bars."""
    from transformers.utils import logging  # noqa: PLC0415 - of an extra

    draws = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if draws:
            logging.enable_progress_bar()


def _tokens(name: str, tokenizer: Any, conversation: Sequence[Message]) -> list[int]:
    messages = [{"role": one.role, "content": one.content} for one in conversation]
    try:
        found: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # templates raise what they like, and a model without one has ValueError
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise WeightsError(f"hf/{name}: its chat template cannot word a conversation: {said}") from error
    return found


def _check_lengths(name: str, prompts: Sequence[Sequence[int]], model: Any) -> None:
    longest = max(map(len, prompts), default=0)
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most is not None and longest > most:
        raise WeightsError(f"hf/{name}: a conversation takes {longest} tokens and the model reads at most {most}")


def _shape(model: Any) -> tuple[int, int]:
    config = model.config.get_text_config()
    return config.num_hidden_layers + 1, config.hidden_size


def _of_one_length(prompts: Sequence[Sequence[int]], at_once: int) -> Iterator[list[int]]:
    """Yield places of prompts that have the same length, a few at a time.

    Examples
    --------
    >>> list(_of_one_length([[1, 2], [3], [4, 5], [6, 7]], 2))
    [[0, 2], [3], [1]]
    """
    places: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(len(prompt), []).append(place)
    for same in places.values():
        yield from (same[start : start + at_once] for start in range(0, len(same), at_once))


def _states_of(model: Any, prompts: list[list[int]]) -> NDArray[np.float32]:
    import torch  # noqa: PLC0415 - of an extra

    tokens = torch.tensor(prompts, device=model.device)
    with torch.inference_mode():
        layers = model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), output_hidden_states=True, use_cache=False
        ).hidden_states
    found: NDArray[np.float32] = torch.stack([layer[:, -1] for layer in layers], dim=1).cpu().numpy()
    return found
