"""Hidden states of a run's questions before the answer, computed once and cached in the run's folder.

Embedded models compute their own; transformers computes those of ``hf/...``. torch is imported only when needed.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from refusal_index.data.files import check_folder, read_plain, write_atomically
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.models.requests import provider_of
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Message

FILE = Path("confidence", "states.npz")
"""Path of the cached hidden states, relative to the run's folder."""

EXTRA = "transformers"
"""The extra that the hidden states of ``hf/...`` need."""

PACKAGES = ("torch", "transformers")
"""Packages of that extra."""

BATCH_SIZE = 16  # larger batches are hardly faster, and need memory for every token in every layer

HUB_SECONDS = 10
"""Timeout in seconds for the first response of the Hugging Face Hub."""

Loaded = TypeVar("Loaded")
States = NDArray[np.float32]
Conversations = Mapping[str, Sequence[Message]]
"""The messages before the answer, by question id."""


class WeightsError(RefusalIndexError, ValueError):
    """Weights that transformers cannot run, or that need a missing package; the message says what to do."""


TRANSFORMERS = "hf"
"""The provider whose hidden states are computed locally, with transformers."""


def has_states(model: str) -> bool:
    """Whether the hidden states of a model can be computed on this machine, by its name.

    Examples
    --------
    >>> has_states("almanac/base"), has_states("hf/org/name"), has_states("openai/gpt-4.1")
    (True, True, False)
    """
    provider, name = provider_of(model)
    if provider is None:
        return model.startswith(f"{TRANSFORMERS}/") and bool(name)
    return provider.layers(name) is not None


def check_weights(weights: str) -> None:
    """Raise SettingError if a name is not that of a model whose hidden states can be computed on this machine."""
    if not has_states(weights):
        raise SettingError(
            f"{{weights}}: expected weights on this machine or the Hub as hf/NAME, NAME being a repository or a "
            f"folder, got {weights!r}"
        )


def check_layer(model: str, layer: int | None) -> None:
    """Raise SettingError if a plugin's model has no such layer; other models are checked when they are loaded."""
    provider, name = provider_of(model)
    last = None if provider is None else provider.layers(name)
    if layer is not None and last is not None and not 0 <= layer <= last:
        raise SettingError(f"{{layer}}: expected 0, before the first layer, to {last}, after the last, got {layer}")


def states_of(model: str, conversations: Conversations, path: Path, ids: Sequence[str]) -> States:
    """Return the hidden states of questions, shape (n, layers + 1, size).

    They are read from the file if it was written for the same model and messages. Otherwise the states of all questions
    are computed and written. The file contains no pickles, since run folders may come from others.

    Parameters
    ----------
    model
        Name of the model, ``almanac/...`` or ``hf/...``.
    conversations
        Conversations of all questions of the run.
    path
        Path of the file.
    ids
        Ids of the requested questions, in the order of the result.

    Raises
    ------
    RefusalIndexError
        If the model cannot be used, or the file cannot be written.
    """
    provider, name = provider_of(model)
    key = _key(model, conversations)
    stored = _read(path, key)
    if stored is None:
        compute = hidden_states if provider is None else provider.hidden_states
        states = compute(name, list(conversations.values()))
        with np.errstate(over="ignore"):
            half = states.astype(np.float16)
        stored = half if np.isfinite(half).all() else states  # half precision is enough for probes
        _write(path, key, stored)
    positions = {question_id: position for position, question_id in enumerate(conversations)}
    return stored[[positions[question_id] for question_id in ids]].astype(np.float32)


def are_stored(model: str, conversations: Conversations, path: Path) -> bool:
    """Whether a file has the hidden states that `states_of` would return, so that no weights are loaded."""
    return _read(path, _key(model, conversations)) is not None


def _key(model: str, conversations: Conversations) -> str:
    """Return a hash of a model, its weights and messages."""
    messages_by_id = {
        question_id: [astuple(message) for message in messages] for question_id, messages in conversations.items()
    }
    provider, name = provider_of(model)
    if provider is not None:
        weights = provider.weights_sha256(name)
    else:  # weights on the Hub are identified by their name alone
        files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
        weights = repr([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files])
    return hashlib.sha256(json.dumps([model, weights, messages_by_id]).encode()).hexdigest()


def _read(path: Path, key: str) -> NDArray[np.floating] | None:
    """Return the states in a file; None if it does not exist, cannot be read, or has another key."""
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as archive:
            return archive["states"] if str(archive["key"]) == key else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _write(path: Path, key: str, states: NDArray[np.floating]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), states=states)
    try:
        check_folder(path.parent).mkdir(exist_ok=True)  # through a link, the file would be written elsewhere
    except OSError as error:
        raise RunFolderError(f"{path.parent} cannot be used ({error.strerror}); remove it and run again") from error
    write_atomically(path, buffer.getvalue())


def hidden_states(
    name: str, conversations: Sequence[Sequence[Message]], *, batch_size: int = BATCH_SIZE
) -> NDArray[np.float32]:
    """Return the hidden states at the last token of each prompt, after which the reply would begin.

    They are transformers' ``output_hidden_states`` in float32: index 0 is the embedding and index i the residual stream
    after block i. In nearly all model classes the last one also includes the final norm. Only prompts of the same
    length are batched, so that none is padded: models treat padding differently.

    Parameters
    ----------
    name
        The part after ``hf/`` in a model's name: a repository or a folder. Code in the repository is not run.
    conversations
        The messages before the reply, as in a request.
    batch_size
        Maximum number of prompts in one forward pass.

    Returns
    -------
    ndarray of float32, shape (n, layers + 1, hidden)

    Raises
    ------
    WeightsError
        If a package is missing, the weights cannot be loaded, the chat template cannot render a conversation, or a
        conversation exceeds the model's context length.
    """
    tokenizer, model = _loaded(name)
    import torch  # noqa: PLC0415 - an optional dependency

    prompts = [_tokens(name, tokenizer, conversation) for conversation in conversations]
    config = model.config.get_text_config()
    longest = max(map(len, prompts), default=0)
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise WeightsError(f"hf/{name}: a conversation takes {longest} tokens and the model reads at most {limit}")
    states = np.empty((len(prompts), config.num_hidden_layers + 1, config.hidden_size), np.float32)
    for indices in _of_one_length(prompts, batch_size):
        tokens = torch.tensor([prompts[index] for index in indices], device=model.device)
        with torch.inference_mode():
            layers = model(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), output_hidden_states=True, use_cache=False
            ).hidden_states
        states[indices] = torch.stack([layer[:, -1] for layer in layers], dim=1).cpu().numpy()
    return states


def _loaded(name: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model without its language-model head."""
    import torch  # noqa: PLC0415 - an optional dependency, and slow to import
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an optional dependency

    def load(**options: Any) -> tuple[Any, Any]:
        options["trust_remote_code"] = False
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        return tokenizer, AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)

    tokenizer, model = load_weights(f"hf/{name}", name, load)
    return tokenizer, model.base_model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def load_weights(user: str, name: str, load: Callable[..., Loaded]) -> Loaded:
    """Load weights from this machine, or else from the Hub after checking that it responds and has them.

    Parameters
    ----------
    user
        What needs the weights, for messages.
    name
        A repository on the Hub, or a folder.
    load
        Loads them; takes ``local_files_only``.

    Raises
    ------
    WeightsError
        If they cannot be loaded.
    """
    from huggingface_hub import model_info  # noqa: PLC0415 - an optional dependency

    try:
        with _quietly():
            try:
                return load(local_files_only=True)
            except OSError:
                if Path(name).exists():
                    raise
                model_info(name, timeout=HUB_SECONDS)  # the libraries themselves retry for more than a minute
                return load(local_files_only=False)
    except Exception as error:  # libraries raise many kinds, for wrong names, damaged files, unknown architectures
        raise WeightsError(
            f"{user}: the weights {name!r} cannot be loaded ({_reason(error)}); check the network, or name a local "
            "folder with the weights"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Disable the progress bars of transformers."""
    from transformers.utils import logging  # noqa: PLC0415 - an optional dependency

    draws = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if draws:
            logging.enable_progress_bar()


def _tokens(name: str, tokenizer: Any, conversation: Sequence[Message]) -> list[int]:
    messages = [{"role": message.role, "content": message.content} for message in conversation]
    try:
        token_ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # templates may raise anything, and without a template there is a ValueError
        raise WeightsError(f"hf/{name}: its chat template cannot render a conversation: {_reason(error)}") from error
    return token_ids


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _of_one_length(prompts: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Yield batches of positions of prompts that have the same length.

    Examples
    --------
    >>> list(_of_one_length([[1, 2], [3], [4, 5], [6, 7]], 2))
    [[0, 2], [3], [1]]
    """
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(index)
    for same in by_length.values():
        yield from (same[start : start + batch_size] for start in range(0, len(same), batch_size))
