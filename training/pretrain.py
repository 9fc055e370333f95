"""Stage 1: learn the almanac's facts by next-token prediction over its text."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch program uses
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from training.model import END_OF_TEXT_ID, Optimizers
from training.world import Fact, corpus

SEQUENCE, BATCH = 256, 16


def token_stream(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> torch.Tensor:
    """Return the texts as one stream of tokens, each text closed by the end-of-text token."""
    encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return torch.tensor([token for ids in encoded for token in (*ids, END_OF_TEXT_ID)])


def next_token_loss(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of predicting each token from those before it."""
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), tokens[:, 1:].reshape(-1))


def pretrain(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    facts: Sequence[Fact],
    *,
    share: float = 1.0,
    learning_rate: float = 4e-3,
    max_steps: int | None = None,
) -> None:
    """Train `model` in place on the first `share` of the almanac's text, once."""
    stream = token_stream(tokenizer, corpus(facts, seed=3))
    size = SEQUENCE * BATCH
    steps = int(share * len(stream)) // size
    optimizers = Optimizers(model, learning_rate, steps, warm_up=60)
    model.train()
    started = time.time()
    for step in range(min(steps, max_steps or steps)):
        tokens = stream[step * size : (step + 1) * size].view(BATCH, SEQUENCE)
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_token_loss(model, tokens)
        loss.backward()
        optimizers.step(step)
        if step % 25 == 0 or step == steps - 1:
            rate = size * (step + 1) / (time.time() - started)
            print(f"facts: step {step}/{steps} loss {loss.item():.3f} {rate:.0f} tokens/s", flush=True)
