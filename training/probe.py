"""What a stage 1 model knows: its sampled answers, and the probability it gives to the gold answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from training.model import END_OF_TEXT_ID
from training.world import Fact

ANSWER = re.compile(r"<answer>(.+?)</answer>")
BATCH = 512


def _quiz_line(fact: Fact) -> str:
    return f"<|endoftext|>Question: {fact.question()}\n"


def _equal_length_batches(encoded: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield positions in batches of prompts of one length, so that nothing needs padding."""
    by_length = defaultdict(list)
    for position, ids in enumerate(encoded):
        by_length[len(ids)].append(position)
    for positions in by_length.values():
        for start in range(0, len(positions), BATCH):
            yield positions[start : start + BATCH]


@torch.inference_mode()
def sampled_answers(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], count: int
) -> list[list[str]]:
    """Return up to `count` answers a fact, sampled at temperature 1."""
    model.eval()
    encoded = tokenizer([_quiz_line(fact) for fact in facts], add_special_tokens=False)["input_ids"]
    answers: list[list[str]] = [[] for _ in facts]
    for batch in _equal_length_batches(encoded):
        prompts = torch.tensor([encoded[position] for position in batch])
        drawn = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=16,
            num_return_sequences=count,
            eos_token_id=END_OF_TEXT_ID,
            pad_token_id=END_OF_TEXT_ID,
        )
        texts = tokenizer.batch_decode(drawn[:, prompts.shape[1] :])
        for number, text in enumerate(texts):
            if found := ANSWER.search(text):
                answers[batch[number // count]].append(found[1])
    return answers


@torch.inference_mode()
def gold_log_probability(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact]
) -> list[float]:
    """Return log P(gold answer | question) for each fact, answer tags included."""
    model.eval()
    questions = tokenizer([_quiz_line(fact) for fact in facts], add_special_tokens=False)["input_ids"]
    replies = tokenizer([f"<answer>{fact.answer}</answer>" for fact in facts], add_special_tokens=False)["input_ids"]
    full = [question + reply for question, reply in zip(questions, replies, strict=True)]
    scores = [0.0] * len(facts)
    for batch in _equal_length_batches(full):
        tokens = torch.tensor([full[position] for position in batch])
        log_p = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits[:, :-1].float(), -1)
        each = log_p.gather(-1, tokens[:, 1:, None])[..., 0]
        for row, position in enumerate(batch):
            scores[position] = each[row, len(questions[position]) - 1 :].sum().item()
    return scores
