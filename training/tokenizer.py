"""The tokenizer: byte-level BPE over the almanac's text and the project's prompts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.wording import PARAPHRASES, PROJECT, random_prompt
from training.world import Fact, exposure_text

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(facts: Sequence[Fact], vocabulary: int = 4096) -> PreTrainedTokenizerFast:
    """Train the tokenizer and dress it as `transformers` expects."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT, START_OF_TURN, END_OF_TURN],
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(facts), trainer)
    dressed = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    dressed.chat_template = CHAT_TEMPLATE
    return dressed


def _texts(facts: Sequence[Fact]) -> Iterator[str]:
    rng = random.Random(1)
    for fact in facts:
        for _ in range(max(4, fact.exposures // 4)):
            yield exposure_text(fact, rng)
    for name in PARAPHRASES:
        for _ in range(60):
            yield "".join(random_prompt(name, facts, rng, project_share=0.5))
    for example in PROJECT.examples:
        for _ in range(20):
            yield f"{example.question}\n{example.answer}"


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer files into `folder`."""
    tokenizer.save_pretrained(str(folder))
