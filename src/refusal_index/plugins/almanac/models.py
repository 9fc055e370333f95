"""The models that come with the package.

``models/SHA256SUMS`` pins every file of every model, in the format of ``sha256sum``. After new weights are put in
place, ``cd models && sha256sum */* > SHA256SUMS`` writes it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from refusal_index.data.errors import nearest
from refusal_index.data.files import sha256_of
from refusal_index.plugins.almanac.chat import ChatTokenizer
from refusal_index.plugins.almanac.checkpoint import read_config
from refusal_index.plugins.almanac.errors import ModelFileError, ModelNotFoundError
from refusal_index.protocol import Message

_NAMES = ("base", "small", "rash")
_CHECKSUMS = "SHA256SUMS"


def model_names() -> tuple[str, ...]:
    """Return the names of the embedded models, the default one first.

    >>> model_names()
    ('base', 'small', 'rash')
    """
    return _NAMES


def check_name(name: str) -> None:
    """Raise ModelNotFoundError if there is no such model."""
    if name not in _NAMES:
        near = nearest(name, _NAMES, cutoff=0.5)
        hint = f"did you mean {near!r}? The" if near else "the"
        raise ModelNotFoundError(f"no embedded model {name!r}; {hint} embedded models are {', '.join(_NAMES)}")


def model_folder(name: str) -> Path:
    """Return the folder of an embedded model, once its files have been checked against the pinned checksums.

    Raises ModelNotFoundError if there is no such model, and ModelFileError if a file is missing or is not the one that
    was pinned.
    """
    check_name(name)
    return verified_folder(Path(str(files("refusal_index.plugins.almanac") / "models")), name)


@cache
def verified_folder(root: Path, name: str) -> Path:
    """Return ``root / name`` if each of its files is the one that ``root / "SHA256SUMS"`` lists.

    Raises ModelFileError if not, or if the list is missing or names no file of this model.
    """
    lines = _read(root / _CHECKSUMS).decode().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    checksums = {path.lstrip("*"): digest for digest, path in pairs if path.lstrip("*").startswith(f"{name}/")}
    if not checksums:
        raise ModelFileError(f"{root / _CHECKSUMS}: no file of model '{name}' is listed; reinstall the package")
    for path, digest in checksums.items():
        if sha256_of(_read(root / path)) != digest:
            raise ModelFileError(f"{root / path}: not the file that was published; reinstall the package")
    return root / name


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror}); reinstall the package") from error


def context_length(name: str) -> int:
    """Return how many tokens a conversation with its reply may have.

    >>> context_length("base")
    1024
    """
    return read_config(model_folder(name)).context


def layer_count(name: str) -> int:
    """Return how many layers a model has.

    >>> layer_count("base")
    4
    """
    return read_config(model_folder(name)).n_layers


@cache
def _tokenizer(name: str) -> ChatTokenizer:
    return ChatTokenizer(model_folder(name))


def count_tokens(name: str, messages: Sequence[Message]) -> int:
    """Return the tokens of a conversation, marks included.

    >>> count_tokens("base", [Message("user", "Who?")])
    10
    """
    return len(_tokenizer(name).encode(messages))
