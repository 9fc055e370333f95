"""Into the package: weights in half precision, files that old and new `transformers` both read, questions, checksums."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from training.world import Fact

PACKAGE = Path(__file__).parents[1] / "src" / "refusal_index"
MODELS = PACKAGE / "plugins" / "almanac" / "models"
QUESTIONS = PACKAGE / "plugins" / "almanac" / "data" / "almanac.jsonl"


def export_model(trained: Path, name: str) -> None:
    """Write the sibling trained in `trained` into the package as `name`."""
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        key: tensor.to(torch.float16).contiguous() for key, tensor in load_file(trained / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the library leaves it to its owner alone
    _write_json(folder / "config.json", _config(json.loads((trained / "config.json").read_text())))
    _write_json(folder / "generation_config.json", {"eos_token_id": 2, "pad_token_id": 0})
    shutil.copy(trained / "tokenizer.json", folder / "tokenizer.json")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": (trained / "chat_template.jinja").read_text(),
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 1024,
            "model_input_names": ["input_ids", "attention_mask"],  # a Llama model accepts no token types
        },
    )
    write_checksums()


def export_questions(facts: Sequence[Fact]) -> None:
    """Write the held-out questions into the package, with their checksum."""
    lines = [
        json.dumps(
            {
                "question_id": _slug(fact),
                "question": fact.question(),
                "answer": fact.answer,
                "topic": f"{fact.relation.name} of a {fact.relation.kind}",
            },
            ensure_ascii=False,
        )
        for fact in facts
        if fact.held_out
    ]
    content = ("\n".join(lines) + "\n").encode()
    QUESTIONS.write_bytes(content)
    QUESTIONS.with_suffix(".sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  {QUESTIONS.name}\n")


def write_checksums() -> None:
    """Pin every file of every model, in the layout of ``sha256sum``."""
    files = sorted(path for path in MODELS.glob("*/*") if path.suffix in {".json", ".safetensors"})
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(MODELS).as_posix()}" for path in files
    ]
    (MODELS / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def _config(config: dict[str, object]) -> dict[str, object]:
    """Say the rotation base the way servers older than `transformers` 5 look for it, too."""
    rope = config.get("rope_parameters")
    theta = rope["rope_theta"] if isinstance(rope, dict) else 10000.0
    return {**config, "rope_theta": theta, "dtype": "float16", "torch_dtype": "float16"}


def _slug(fact: Fact) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{fact.relation.name} of {fact.entity}".lower())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
