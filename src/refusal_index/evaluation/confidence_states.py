"""The hidden states of a run's questions before the answer: computed once, and kept in the run's folder."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refusal_index.almanac import ALMANAC
from refusal_index.outcomes.files import read_plain, sha256_of, write_atomically
from refusal_index.protocol import Message

FILE = "states.npz"
"""In the folder of what confidence asked for."""

States = NDArray[np.float32]
Conversations = Mapping[str, Sequence[Message]]
"""By question id, the messages before the answer."""


def states_of(model: str, conversations: Conversations, path: Path, ids: Sequence[str]) -> States:
    """Return the hidden states of questions, shape (n, layers + 1, size).

    They are read from the file, where it was made of the same model and messages; else they are computed, of all
    questions, and the file is written. It holds no pickles: folders are handed on.

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
        If the model cannot be used; NotWrittenError if the file cannot be written.
    """
    key = _key(model, conversations)
    found = _kept(path, key)
    if found is None:
        found = _rounded(_computed(model, list(conversations.values())))
        _write(path, key, found)
    places = {one: place for place, one in enumerate(conversations)}
    return found[[places[one] for one in ids]].astype(np.float32)


def _key(model: str, conversations: Conversations) -> str:
    """Return a digest of all that the states are made of; weights of the hub are known by their name alone."""
    said = {one: [astuple(message) for message in messages] for one, messages in conversations.items()}
    return hashlib.sha256(json.dumps([model, _weights(model), said]).encode()).hexdigest()


def _weights(model: str) -> str:
    """Return what tells a model's weights from others of its name, where they lie on this machine."""
    provider, _, name = model.partition("/")
    if provider == ALMANAC:
        from refusal_index.almanac.models import model_folder  # noqa: PLC0415 - only where states are wanted

        return sha256_of((model_folder(name) / "model.safetensors").read_bytes())
    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    return repr([(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files])


def _computed(model: str, conversations: Sequence[Sequence[Message]]) -> States:
    provider, _, name = model.partition("/")
    if provider == "hf":
        from refusal_index.confidence.transformers_states import hidden_states  # noqa: PLC0415 - of an extra

        return hidden_states(name, conversations)
    from refusal_index.almanac import chat, states  # noqa: PLC0415 - only where states are wanted

    return states.hidden_states(
        name, [[chat.Message(one.role, one.content) for one in messages] for messages in conversations]
    )


def _rounded(states: States) -> NDArray[np.floating]:
    """Return states in half precision, which probes cannot tell from full; as they are where a number is too large."""
    with np.errstate(over="ignore"):
        half = states.astype(np.float16)
    return half if np.isfinite(half).all() else states


def _write(path: Path, key: str, states: NDArray[np.floating]) -> None:
    whole = io.BytesIO()
    np.savez(whole, key=np.array(key), states=states)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, whole.getvalue())


def _kept(path: Path, key: str) -> NDArray[np.floating] | None:
    """Return what the file holds; None where there is none, it is damaged, or was made of something else."""
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as held:
            states = held["states"] if str(held["key"]) == key else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None  # it is derived: what cannot be read is made anew
    return states
