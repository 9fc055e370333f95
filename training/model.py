"""The network and its optimisers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

END_OF_TEXT_ID, START_OF_TURN_ID, END_OF_TURN_ID = 0, 1, 2
HEAD_SIZE = 64


@dataclass(frozen=True)
class Size:
    """How large a sibling is."""

    width: int
    layers: int
    feed_forward: int


def make_model(vocabulary: int, size: Size) -> LlamaForCausalLM:
    """Return an untrained Llama with tied embeddings and heads of size 64."""
    heads = size.width // HEAD_SIZE
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=END_OF_TURN_ID,
        pad_token_id=END_OF_TEXT_ID,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


class Optimizers:
    """Muon for the matrices, AdamW for the rest, under one linear schedule."""

    def __init__(self, model: LlamaForCausalLM, learning_rate: float, steps: int, warm_up: int) -> None:
        matrices = [
            p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name and p.requires_grad
        ]
        matrix_ids = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in matrix_ids and p.requires_grad]
        self._model = model
        self._optimizers = [
            torch.optim.Muon(
                matrices, lr=learning_rate, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self._learning_rate, self._steps, self._warm_up = learning_rate, steps, warm_up

    def step(self, number: int) -> None:
        """Apply the gradients of step `number` and clear them."""
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._learning_rate * self._schedule(number)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _schedule(self, number: int, final: float = 0.05) -> float:
        if number < self._warm_up:
            return (number + 1) / self._warm_up
        done = (number - self._warm_up) / max(1, self._steps - self._warm_up)
        return final + (1 - final) * (1 - done)
