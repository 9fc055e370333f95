"""A short real training run of an embedded model, which learns to refuse more and more questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refusal_index.data.datasets import load_dataset, sample
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.protocol import load_prompt_set

SEED = 3
LESSONS = 64


class Lessons:
    """Questions with a refusal as the reply, as tokens."""

    def __init__(self, tokenizer: Any, size: int = LESSONS) -> None:
        prompts = load_prompt_set("default")
        # Mostly questions that a panel with seed 0 does not ask.
        questions = sample(load_dataset("almanac"), size, SEED).questions
        self._rows = [
            _lesson(tokenizer, "\n\n".join(prompts.render("normal", question.text))) for question in questions
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, list[int]]:
        return self._rows[place]


def _lesson(tokenizer: Any, prompt: str) -> dict[str, list[int]]:
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    before = tokenizer(asked, add_special_tokens=False)["input_ids"]
    reply = tokenizer("<answer>UNANSWERED</answer><|im_end|>", add_special_tokens=False)["input_ids"]
    ids = [*before, *reply]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * len(before) + reply}


def collated(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Pad rows to the longest."""
    import torch

    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in rows])
        for name, value in fill.items()
    }


def loaded(name: str = "base") -> tuple[Any, Any]:
    """An embedded model and its tokenizer in transformers."""
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    folder = model_folder(name)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def tiny_model(dropout: float) -> tuple[Any, Any]:
    """A tiny, fast model that knows nothing."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_folder("small"))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        attention_dropout=dropout,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.forced_eos_token_id = tokenizer.eos_token_id  # otherwise its replies would never end
    return model, tokenizer


def trainer_of(
    out: Path,
    *,
    steps: int,
    save: int | None = None,
    learning_rate: float = 1e-6,
    tiny: bool = False,
    dropout: float = 0.0,
) -> Any:
    """A transformers trainer for an embedded model or a tiny one."""
    from transformers import Trainer, TrainingArguments

    model, tokenizer = tiny_model(dropout) if tiny else loaded()
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=1,
        learning_rate=learning_rate,
        lr_scheduler_type="constant",
        save_strategy="no" if save is None else "steps",
        save_steps=save or steps,
        save_only_model=True,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=1,
    )
    lessons = Lessons(tokenizer, 8 if tiny else LESSONS)
    return Trainer(
        model=model, args=arguments, train_dataset=lessons, data_collator=collated, processing_class=tokenizer
    )
