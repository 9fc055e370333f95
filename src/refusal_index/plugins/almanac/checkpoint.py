"""Reading a Llama checkpoint: the folder that transformers, vLLM and llama.cpp's converter read too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from refusal_index.plugins.almanac.errors import ModelFileError

FloatArray = NDArray[np.float32]

# Settings under which the forward pass of this package is the right one, with what a missing field means.
_SUPPORTED: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a Llama and the numbers its forward pass needs."""

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
    """One layer's matrices as (inputs, outputs), the gain of the norm before them folded in."""

    attention_in: FloatArray
    attention_out: FloatArray
    feed_forward_in: FloatArray
    feed_forward_out: FloatArray


@dataclass(frozen=True)
class Weights:
    """Everything learned: the embedding (vocabulary, hidden), the layers, the head (hidden, vocabulary)."""

    embedding: FloatArray
    layers: tuple[Layer, ...]
    head: FloatArray
    gain: FloatArray  # of the norm before the head, in which it is folded; shape (hidden,)


def read_config(folder: Path) -> LlamaConfig:
    """Read ``config.json``, and ``generation_config.json`` for the tokens that end a reply.

    Raises ModelFileError if a file is missing or unreadable, or describes a model that this runtime would run wrongly.
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
    """Read ``model.safetensors`` into float32 matrices, laid out for multiplication from the left.

    Raises ModelFileError if the file is missing or damaged, or a tensor is missing or has another shape than `config`
    says.
    """
    path = folder / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from error
    reader = _Reader(path, tensors)
    hidden = config.hidden_size
    embedding = reader.take("model.embed_tokens", None, hidden)
    head = reader.take("lm_head", len(embedding), hidden) if "lm_head.weight" in tensors else embedding
    gain = reader.take("model.norm", hidden)
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(reader, f"model.layers.{number}", config) for number in range(config.n_layers)),
        head=_folded([head], gain),
        gain=gain,
    )


class _Reader:
    """Hands out tensors by name, checked."""

    def __init__(self, path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._path, self._tensors = path, tensors

    def take(self, name: str, *shape: int | None) -> FloatArray:
        """Return the weight `name` as float32; ``None`` in `shape` stands for any size."""
        tensor = self._tensors.get(f"{name}.weight")
        if tensor is None:
            raise ModelFileError(f"{self._path}: tensor '{name}.weight' is missing")
        if len(tensor.shape) != len(shape) or any(w not in (None, f) for w, f in zip(shape, tensor.shape, strict=True)):
            raise ModelFileError(f"{self._path}: tensor '{name}.weight' has shape {tensor.shape}, expected {shape}")
        return tensor.astype(np.float32)


def _layer(reader: _Reader, name: str, config: LlamaConfig) -> Layer:
    hidden, queries = config.hidden_size, config.n_heads * config.head_size
    keys = config.n_key_heads * config.head_size
    gate = reader.take(f"{name}.mlp.gate_proj", None, hidden)
    scale = np.float32(1 / np.sqrt(config.head_size))
    return Layer(
        attention_in=_folded(
            [
                # scaling the queries here spares scaling every score later
                reader.take(f"{name}.self_attn.q_proj", queries, hidden) * scale,
                reader.take(f"{name}.self_attn.k_proj", keys, hidden),
                reader.take(f"{name}.self_attn.v_proj", keys, hidden),
            ],
            reader.take(f"{name}.input_layernorm", hidden),
        ),
        attention_out=np.ascontiguousarray(reader.take(f"{name}.self_attn.o_proj", hidden, queries).T),
        feed_forward_in=_folded(
            [gate, reader.take(f"{name}.mlp.up_proj", len(gate), hidden)],
            reader.take(f"{name}.post_attention_layernorm", hidden),
        ),
        feed_forward_out=np.ascontiguousarray(reader.take(f"{name}.mlp.down_proj", hidden, len(gate)).T),
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
    # padding never belongs to a reply: a model that samples it has nothing more to say
    return frozenset(token for token in (*ids, config.get("pad_token_id")) if token is not None)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content
