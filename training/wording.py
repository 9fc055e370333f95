"""The prompts a model is tuned on: the project's own, and paraphrases that keep it from learning one wording by heart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from refusal_index.protocol.prompts import FORCED, Example, PromptSet, Variant, load_prompt_set
from training.world import Fact

PROJECT = load_prompt_set("default")
VARIANTS = tuple(PROJECT.variants)
MARKER = "\x00"  # stands where the question goes, to split a prompt into a shared prefix and the rest

PARAPHRASES = {
    "low": (
        "A reasonable idea is enough to answer; <answer>UNANSWERED</answer> is only for when you have none at all.",
        "Try to answer: any fair idea will do. Without the faintest idea, write <answer>UNANSWERED</answer>.",
    ),
    "normal": (
        "You may write <answer>UNANSWERED</answer> if you are not sure of the answer.",
        "When unsure, it is fine to write <answer>UNANSWERED</answer>.",
    ),
    "high": (
        "Answer only what you are quite confident of and do not speculate; otherwise write <answer>UNANSWERED</answer>.",
        "Speculation is not wanted. Write <answer>UNANSWERED</answer> unless you are quite confident.",
    ),
    "highest": (
        "A wrong answer is much worse than none. Be very cautious: if you doubt it at all, write <answer>UNANSWERED</answer>.",
        "Without good evidence do not answer. Be very cautious, and at the slightest doubt write <answer>UNANSWERED</answer>.",
    ),
    FORCED: (
        "You must answer: give your best answer, guessing if need be, and never leave the question open.",
        "Leaving the question open is not allowed. Give the best answer you can, even as a guess.",
    ),
}


def random_prompt(name: str, shown: Sequence[Fact], rng: random.Random, project_share: float = 0.7) -> tuple[str, str]:
    """Return the texts before and after the question of a prompt for variant `name`.

    With probability `project_share` it is the project's own prompt to the letter; otherwise the instruction is
    paraphrased and 0, 5 or 10 facts of the almanac stand as examples, as many left open as in the project's own.
    """
    prompts = PROJECT if rng.random() < project_share else _paraphrased(name, shown, rng)
    before, after = chat("\n\n".join(prompts.render(name, MARKER))).split(MARKER)
    return before, after


def chat(message: str) -> str:
    """Return a conversation of one user message in the model's chat layout, up to where the reply begins."""
    return f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def _paraphrased(name: str, shown: Sequence[Fact], rng: random.Random) -> PromptSet:
    own = PROJECT.variant(name)
    count = rng.choice((0, 5, 10))
    examples = tuple(Example(fact.question(), fact.answer) for fact in rng.sample(list(shown), count))
    open_ones = round(len(own.unanswered) * count / 10)
    changed = Variant(
        rng.choice((own.instruction, *PARAPHRASES[name])), tuple(rng.sample(range(1, count + 1), open_ones))
    )
    variants = {} if name == FORCED else {name: changed}
    return replace(PROJECT, examples=examples, variants=variants, forced=changed if name == FORCED else PROJECT.forced)
