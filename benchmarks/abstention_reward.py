"""What `abstention_reward` changes in an embedded model: `python -m benchmarks.abstention_reward`.

It needs the extras `transformers` and `trl`. GRPO trains on one half of the almanac's questions, drawn with the seed.
The model answers the other half before and after, greedily, with the prompt `normal`, first with permission to refuse
and then forced. The table shows the mean reward under the target, RI and rates, with 95% intervals.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import refusal_index as ri
from datasets import Dataset
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.plugins.almanac.chat_api import ModelPool, answer
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
from refusal_index.protocol import load_prompt_set

VARIANT = "normal"
BATCH = 16
GENERATIONS = 4
TOKENS = 24
COLUMNS = (
    "refusal_index",
    "refusal_rate",
    "refusal_precision",
    "over_refusal",
    "correct_given_attempted",
    "error_rate",
)


def main() -> None:
    """Train and print what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base", choices=MODEL_NAMES)
    parser.add_argument("--target", type=float, default=0.75)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    everything = load_dataset("almanac").questions
    half = len(everything) // 2
    shuffled = sample(load_dataset("almanac"), len(everything), options.seed).questions
    lessons, held_out = shuffled[:half], shuffled[half:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panel = folder / "held_out.csv"
        pl.DataFrame(
            {
                "question_id": [question.question_id for question in held_out],
                "question": [question.text for question in held_out],
                "answer": [question.gold for question in held_out],
            }
        ).write_csv(panel)
        trainer, tokenizer = _trainer(options, lessons, folder)
        before = _measured(model_folder(options.model), panel, folder / "before")
        started = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - started
        trained = folder / "trained"
        trainer.model.save_pretrained(trained)
        tokenizer.save_pretrained(trained)
        after = _measured(trained, panel, folder / "after")
    print(f"{options.model}, GRPO, {options.steps} steps of {BATCH} completions, {GENERATIONS} for each question;")
    print(f"learning rate {options.learning_rate:g}, target {options.target:g}, seed {options.seed}; {seconds:,.0f} s")
    print(f"{len(lessons):,} questions in the training, {len(held_out):,} others before and after, prompt '{VARIANT}'")
    for title, run in (("before", before), ("after", after)):
        print(title, f"reward={_reward(run, options.target):.3f}", *(_shown(run, column) for column in COLUMNS))


def _trainer(options: argparse.Namespace, lessons: Any, folder: Path) -> tuple[Any, Any]:
    source = model_folder(options.model)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    prompts = load_prompt_set("default")
    rows = [
        {
            "prompt": [{"role": "user", "content": "\n\n".join(prompts.render(VARIANT, question.text))}],
            "question": question.text,
            "answer": question.gold,
        }
        for question in lessons
    ]
    config = GRPOConfig(
        output_dir=str(folder / "trained"),
        max_steps=options.steps,
        per_device_train_batch_size=BATCH,
        num_generations=GENERATIONS,
        max_completion_length=TOKENS,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        seed=options.seed,
        use_cpu=True,
        bf16=False,
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_steps=25,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=ri.abstention_reward(options.target),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    return trainer, tokenizer


def _measured(weights: Path, panel: Path, out: Path) -> ri.RunResults:
    pool = ModelPool([out.name], lambda _name: weights)

    async def reply(messages: list[dict[str, str]]) -> str:
        body = {"model": out.name, "messages": messages, "temperature": 0, "max_tokens": TOKENS}
        response = await answer(pool, body, {})
        if response.failed:
            raise RuntimeError(str(response.body))
        text: str = response.body["choices"][0]["message"]["content"]
        return text

    return ri.evaluate(
        reply, panel, model_name=out.name, out=out, variants=VARIANT, grader="exact", temperature=0, max_tokens=TOKENS
    )


def _shown(run: ri.RunResults, column: str) -> str:
    metric = run.document["variants"][0]["metrics"][column]
    if metric["estimate"] is None:
        return f"{column}=undefined ({metric['reason']})"
    return f"{column}={metric['estimate']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


def _reward(run: ri.RunResults, target: float) -> float:
    grades = run.outcomes["first_grade"]
    return (grades.eq("correct").sum() - grades.eq("incorrect").sum() * target / (1 - target)) / len(grades)


if __name__ == "__main__":
    main()
