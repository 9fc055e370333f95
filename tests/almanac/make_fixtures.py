"""Makes ``data/``: two tiny untrained Llamas and what transformers computes with them.

Run by hand, with torch and transformers installed: ``python tests/almanac/make_fixtures.py``. The tests need neither.
``tied`` has one embedding for input and output, and ``rope_theta`` at the top level as older checkpoints do;
``grouped`` has a separate output head, three query heads per key head, and heads not adding up to the hidden size.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = [
    "the mayor of the town of Bramwick was born in the year 1871",
    "<answer>UNANSWERED</answer> Question: who wrote the book about the river",
    "system user assistant",
]
CONVERSATIONS = [
    [{"role": "user", "content": "Who wrote the book?"}],
    [{"role": "user", "content": "Who wrote the book about the river in 1871?"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Žlutý kůň\tand\n\n two  spaces"},
        {"role": "assistant", "content": "<answer>Bramwick</answer>"},
        {"role": "user", "content": ""},
    ],
]
SHAPES = {
    "tied": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "grouped": {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": False},
}


def make_tokenizer():
    """Train a byte-level BPE of 320 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=list(MARKS), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXT * 2, trainer)
    dressed = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=MARKS[2], pad_token=MARKS[0])
    dressed.chat_template = TEMPLATE
    return dressed


def make_model(shape, seed):
    """Return an untrained model whose next tokens are far from equally likely."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=320,
        intermediate_size=40,
        num_hidden_layers=2,
        head_dim=8,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        **shape,
    )
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():
        if "norm" in name:  # an untrained gain is 1, so a misplaced one would go unnoticed
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model.half()


def reference(folder):
    """Return token ids and next-token logits of the conversations, as transformers gives them."""
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    arrays = {}
    for number, conversation in enumerate(CONVERSATIONS):
        ids = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        arrays |= {f"tokens_{number}": np.array(ids), f"logits_{number}": logits.numpy()}
    return arrays


def states(folder):
    """Return the hidden states of every layer at the end of the conversations, as transformers gives them."""
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for conversation in CONVERSATIONS:
        ids = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            layers = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        found.append([layer[0, -1].numpy() for layer in layers])
    return np.array(found)


def main() -> None:
    """Write everything."""
    tokenizer = make_tokenizer()
    for seed, (name, shape) in enumerate(SHAPES.items()):
        folder = DATA / name
        make_model(shape, seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if name == "tied":
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
            path.write_text(json.dumps(config, indent=2) + "\n")
        np.savez_compressed(folder / "reference.npz", **reference(folder))
        np.save(folder / "states.npy", states(folder))


if __name__ == "__main__":
    main()
