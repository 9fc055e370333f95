"""Hidden states of a run's questions before the answer: computed once and kept in the run's folder.

Embedded models compute their own, and transformers those of ``hf/...``; torch is imported only when it is needed.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refusal_index.data.errors import RunFolderError
from refusal_index.data.files import check_folder, read_plain, write_atomically
from refusal_index.errors import RefusalIndexError
from refusal_index.models.requests import provider_of
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Message

FILE = Path("confidence", "states.npz")
"""Where hidden states lie in a run's folder."""

EXTRA, PACKAGES = "transformers", ("torch", "transformers")
"""What reads the hidden states of ``hf/...``."""

BATCH_SIZE = 16  # prompts; more gain little, and take memory for every token in every layer

States = NDArray[np.float32]
Conversations = Mapping[str, Sequence[Message]]
"""The messages before the answer by question id."""


class WeightsError(RefusalIndexError, ValueError):
    """Weights that transformers cannot run, or for which a package is missing; the message says what to do."""


def check_layer(model: str, layer: int | None) -> None:
    """Raise SettingError where a plugin's model has no such layer; others show when they are loaded."""
    provider, name = provider_of(model)
    most = None if provider is None else provider.layers(name)
    if layer is not None and most is not None and not 0 <= layer <= most:
        raise SettingError(f"{{layer}}: expected 0, before the first layer, to {most}, after the last, got {layer}")


def states_of(model: str, conversations: Conversations, path: Path, ids: Sequence[str]) -> States:
    """Return the hidden states of questions, shape (n, layers + 1, size).

    They are read from the file where it was made of the same model and messages. Otherwise those of all questions are
    computed and written. The file holds no pickles, since folders are passed on.

    Parameters
    ----------
    model
        As a run names it, ``almanac/...`` or ``hf/...``.
    conversations
        Of all questions of the run.
    path
        Of the file.
    ids
        Of the questions that are wanted, in their order.

    Raises
    ------
    RefusalIndexError
        If the model cannot be used, or the file cannot be written.
    """
    said = {one: [astuple(message) for message in messages] for one, messages in conversations.items()}
    key = hashlib.sha256(json.dumps([model, _weights(model), said]).encode()).hexdigest()
    found = _read(path, key)
    if found is None:
        provider, name = provider_of(model)
        compute = hidden_states if provider is None else provider.hidden_states
        found = _halved(compute(name, list(conversations.values())))
        _write(path, key, found)
    places = {one: place for place, one in enumerate(conversations)}
    return found[[places[one] for one in ids]].astype(np.float32)


def _weights(model: str) -> str:
    """Return what tells a model's weights from others of its name; those of the hub are known by their name alone."""
    provider, name = provider_of(model)
    if provider is not None:
        return provider.weights_sha256(name)
    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    return repr([(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files])


def _halved(states: States) -> NDArray[np.floating]:
    """Return states in half precision, which probes cannot tell from full, unless a number is too large for it."""
    with np.errstate(over="ignore"):
        half = states.astype(np.float16)
    return half if np.isfinite(half).all() else states


def _read(path: Path, key: str) -> NDArray[np.floating] | None:
    """Return the states in a file; None where there is none, it cannot be read, or was made of something else."""
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as held:
            return held["states"] if str(held["key"]) == key else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _write(path: Path, key: str, states: NDArray[np.floating]) -> None:
    whole = io.BytesIO()
    np.savez(whole, key=np.array(key), states=states)
    try:
        check_folder(path.parent).mkdir(exist_ok=True)  # a link would have the file written elsewhere
    except OSError as error:
        raise RunFolderError(f"{path.parent} cannot be used ({error.strerror}); remove it, and run again") from error
    write_atomically(path, whole.getvalue())


def hidden_states(
    name: str, conversations: Sequence[Sequence[Message]], *, batch_size: int = BATCH_SIZE
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
    batch_size
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
    import torch  # noqa: PLC0415 - of an extra

    prompts, config = [_tokens(name, tokenizer, one) for one in conversations], model.config.get_text_config()
    longest = max(map(len, prompts), default=0)
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and longest > most:
        raise WeightsError(f"hf/{name}: a conversation takes {longest} tokens and the model reads at most {most}")
    states = np.empty((len(prompts), config.num_hidden_layers + 1, config.hidden_size), np.float32)
    for places in _of_one_length(prompts, batch_size):
        tokens = torch.tensor([prompts[place] for place in places], device=model.device)
        asked = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        with torch.inference_mode():
            layers = model(**asked, output_hidden_states=True, use_cache=False).hidden_states
        states[places] = torch.stack([layer[:, -1] for layer in layers], dim=1).cpu().numpy()
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
        raise WeightsError(f"hf/{name}: transformers cannot load it: {_reason(error)}") from error
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
        raise WeightsError(f"hf/{name}: its chat template cannot word a conversation: {_reason(error)}") from error
    return found


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _of_one_length(prompts: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
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
        yield from (same[start : start + batch_size] for start in range(0, len(same), batch_size))
