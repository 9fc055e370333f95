"""The files of the embedded models: configuration, weights and tokenizer, checked against pinned checksums.

Each folder is a Llama checkpoint that transformers, vLLM and llama.cpp's converter can also read. ``models/SHA256SUMS``
pins every file, in the format of ``sha256sum``; to update it after a change of weights, run ``cd models && sha256sum
*/* > SHA256SUMS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from refusal_index.data.files import sha256_of
from refusal_index.errors import suggestion
from refusal_index.plugins.almanac import ModelFileError, ModelNotFoundError, RequestError
from refusal_index.protocol import Message

ROLES = ("system", "user", "assistant")


class ChatTokenizer:
    """The tokenizer of a model that reads conversations in ChatML.

    The ChatML markers are inserted as tokens. A marker in the text of a message is encoded as plain characters, so a
    message cannot pretend to be several.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception for a damaged file
            raise ModelFileError(f"{path}: cannot be read: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self._start = self._mark("<|im_start|>", path)
        self._end = self._mark("<|im_end|>", path)
        self._after_end = self._encode("\n")
        self._longest_token = max(map(len, self._tokenizer.get_vocab()))

    def encode(self, messages: Sequence[Message]) -> IntArray:
        """Encode a conversation, up to the start of the assistant's reply.

        Raises RequestError if there is no message, a role is unknown, or a message is not valid Unicode.
        """
        if not messages:
            raise RequestError("'messages' is empty; expected at least one message", param="messages")
        tokens: list[int] = []
        for message in messages:
            tokens += [self._start, *self._encode_message(message), self._end, *self._after_end]
        return np.array([*tokens, self._start, *self._encode("assistant\n")])

    def least_tokens(self, messages: Sequence[Message]) -> int:
        """Return a lower bound on the number of tokens of a conversation, without encoding it."""
        return sum(len(message.content) for message in messages) // self._longest_token

    def decode(self, tokens: Iterable[int]) -> str:
        """Decode tokens to text, without markers."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def _encode_message(self, message: Message) -> list[int]:
        if message.role not in ROLES:
            raise RequestError(f"unknown role {message.role!r}; expected one of {', '.join(ROLES)}", param="messages")
        try:
            message.content.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"a message holds half of a surrogate pair at character {error.start}; send valid Unicode",
                param="messages",
            ) from error
        return self._encode(f"{message.role}\n{message.content}")

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _mark(self, mark: str, path: Path) -> int:
        token: int | None = self._tokenizer.token_to_id(mark)
        if token is None:
            raise ModelFileError(f"{path}: token '{mark}' is missing; this runtime supports ChatML only")
        return token


FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

# The only supported values of these fields, which are also the defaults of missing fields.
_SUPPORTED: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}


@dataclass(frozen=True)
class LlamaConfig:
    """The dimensions and constants of a Llama model."""

    hidden_size: int
    n_layers: int
    n_heads: int
    n_key_heads: int
    head_size: int
    context: int
    norm_epsilon: float
    rope_theta: float
    end_tokens: frozenset[int]


@dataclass(frozen=True)
class Layer:
    """The matrices of a layer, of shape (inputs, outputs), with the gain of the preceding norm folded in."""

    attention_in: FloatArray
    attention_out: FloatArray
    feed_forward_in: FloatArray
    feed_forward_out: FloatArray


@dataclass(frozen=True)
class Weights:
    """The weights: the embedding (vocabulary, hidden), the layers and the head (hidden, vocabulary)."""

    embedding: FloatArray
    layers: tuple[Layer, ...]
    head: FloatArray
    gain: FloatArray  # of the norm before the head, shape (hidden,); the head includes it


def read_config(folder: Path) -> LlamaConfig:
    """Read ``config.json``, and ``generation_config.json`` for the tokens that end a reply.

    Raises ModelFileError if a file is missing or unreadable, or the kind of model is not supported.
    """
    config = _read_json(folder / "config.json")
    for name, supported in _SUPPORTED.items():
        if config.get(name, supported) != supported:
            raise ModelFileError(f"{folder}: {name} is {config[name]!r}; this runtime supports {supported!r} only")
    try:
        return LlamaConfig(
            hidden_size=config["hidden_size"],
            n_layers=config["num_hidden_layers"],
            n_heads=config["num_attention_heads"],
            n_key_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
            head_size=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            context=config["max_position_embeddings"],
            norm_epsilon=config["rms_norm_eps"],
            rope_theta=_rope_theta(config, folder),
            end_tokens=_end_tokens(config, folder),
        )
    except KeyError as error:
        raise ModelFileError(f"{folder / 'config.json'}: field {error} is missing") from error


def read_weights(folder: Path, config: LlamaConfig) -> Weights:
    """Read ``model.safetensors`` into float32 matrices that are multiplied by row vectors from the left.

    Raises ModelFileError if the file is missing or damaged, or a tensor is missing or has the wrong shape.
    """
    path = folder / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from error
    take = partial(_taken, path, tensors)
    hidden = config.hidden_size
    embedding = take("model.embed_tokens", None, hidden)
    head = take("lm_head", len(embedding), hidden) if "lm_head.weight" in tensors else embedding
    gain = take("model.norm", hidden)
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(take, f"model.layers.{number}", config) for number in range(config.n_layers)),
        head=_folded([head], gain),
        gain=gain,
    )


def _taken(path: Path, tensors: Mapping[str, NDArray[Any]], name: str, *shape: int | None) -> FloatArray:
    """Return the weight `name` as float32, after checking its shape, in which ``None`` stands for any size."""
    tensor = tensors.get(f"{name}.weight")
    if tensor is None:
        raise ModelFileError(f"{path}: tensor '{name}.weight' is missing")
    if len(tensor.shape) != len(shape) or any(w not in (None, f) for w, f in zip(shape, tensor.shape, strict=True)):
        raise ModelFileError(f"{path}: tensor '{name}.weight' has shape {tensor.shape}, expected {shape}")
    return tensor.astype(np.float32)


def _layer(take: Callable[..., FloatArray], name: str, config: LlamaConfig) -> Layer:
    hidden = config.hidden_size
    queries = config.n_heads * config.head_size
    keys = config.n_key_heads * config.head_size
    gate = take(f"{name}.mlp.gate_proj", None, hidden)
    scale = np.float32(1 / np.sqrt(config.head_size))
    return Layer(
        attention_in=_folded(
            [
                # scale the queries once instead of every attention score
                take(f"{name}.self_attn.q_proj", queries, hidden) * scale,
                take(f"{name}.self_attn.k_proj", keys, hidden),
                take(f"{name}.self_attn.v_proj", keys, hidden),
            ],
            take(f"{name}.input_layernorm", hidden),
        ),
        attention_out=np.ascontiguousarray(take(f"{name}.self_attn.o_proj", hidden, queries).T),
        feed_forward_in=_folded(
            [gate, take(f"{name}.mlp.up_proj", len(gate), hidden)],
            take(f"{name}.post_attention_layernorm", hidden),
        ),
        feed_forward_out=np.ascontiguousarray(take(f"{name}.mlp.down_proj", hidden, len(gate)).T),
    )


def _folded(matrices: list[FloatArray], gain: FloatArray) -> FloatArray:
    return np.ascontiguousarray((np.concatenate(matrices) * gain).T)


def _rope_theta(config: Mapping[str, Any], folder: Path) -> float:
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ModelFileError(f"{folder}: rope_type is {kind!r}; this runtime supports 'default' only")
    return float(parameters.get("rope_theta") or config["rope_theta"])


def _end_tokens(config: Mapping[str, Any], folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    generation = _read_json(path) if path.exists() else {}
    end = generation.get("eos_token_id", config.get("eos_token_id"))
    ids = list(end) if isinstance(end, list) else [end]
    # padding is never part of a reply, so sampling it ends the reply
    return frozenset(token for token in (*ids, config.get("pad_token_id")) if token is not None)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


MODEL_NAMES = ("base", "small", "rash")
"""The names of the embedded models, starting with the default."""

_CHECKSUMS = "SHA256SUMS"


def check_name(name: str) -> None:
    """Raise ModelNotFoundError if no embedded model has this name."""
    if name not in MODEL_NAMES:
        raise ModelNotFoundError(
            f"no embedded model {name!r}; the embedded models are {', '.join(MODEL_NAMES)}"
            f"{suggestion(name, MODEL_NAMES)}"
        )


def model_folder(name: str) -> Path:
    """Check the files of an embedded model against the pinned checksums, and return its folder.

    Raises ModelNotFoundError if there is no such model, and ModelFileError if a file is missing or changed.
    """
    check_name(name)
    return verified_folder(Path(str(files("refusal_index.plugins.almanac") / "models")), name)


@cache
def verified_folder(root: Path, name: str) -> Path:
    """Check the files of ``root / name`` against ``root / "SHA256SUMS"``, and return the folder.

    Raises ModelFileError if a file is missing or differs, or the list is missing or names no file of this model.
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
