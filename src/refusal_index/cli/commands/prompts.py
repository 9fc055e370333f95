"""``refusal-index prompts``: check a prompt set and show its prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from refusal_index.cli import console
from refusal_index.cli.console import one_of

if TYPE_CHECKING:
    from refusal_index.protocol import PromptSet

EXAMPLE_QUESTION = "Who wrote the novel Emma?"
SHORT_HASH = 12


def prompts(
    name: str | None = None,
    /,
    variants: str | None = None,
    question: str = EXAMPLE_QUESTION,
) -> None:
    """Check a prompt set and show its prompts.

    Shows every variant. Without a set, lists the prompt sets of the package.

    Exit status: 0 valid, 2 a set that cannot be used.

    - `name` SET: Prompt set: a name, or a TOML file.
    - `variants` NAME: Show only this variant, or 'forced'. [default: all]
    - `question`: Question to show in the prompts.
    """
    from refusal_index.protocol import FORCED, load_prompt_set, prompt_set_names

    if name is None:
        for known in prompt_set_names():
            console.say(_in_one_line(load_prompt_set(known)))
        return
    prompt_set = load_prompt_set(name)
    known_variants = [*prompt_set.variants, FORCED]
    shown = [one_of("--variants", variants, known_variants)] if variants is not None else known_variants
    for line in _differences(prompt_set):
        console.say(line)
    for each in shown:
        console.say()
        console.say(f"---- {each} " + "-" * max(4, 70 - len(each)))
        console.say()
        for line in "\n\n".join(prompt_set.render(each, question)).split("\n"):
            console.say(line)


def _in_one_line(prompt_set: PromptSet) -> str:
    named = ", ".join(prompt_set.variants)
    return f"{prompt_set.name:<18} {prompt_set.hash[:SHORT_HASH]}  {named}"


def _differences(prompt_set: PromptSet) -> Iterator[str]:
    """Yield what tells the variants of a set apart: the instruction, and how many of the examples refuse."""
    from refusal_index.protocol import FORCED

    count = len(prompt_set.examples)
    yield f"prompt set {prompt_set.name!r}, sha256 {prompt_set.hash}"
    yield f"{len(prompt_set.variants)} variants and the forced pass; {count} worked examples"
    for name in (*prompt_set.variants, FORCED):
        variant = prompt_set.variant(name)
        family = f"; a paraphrase of {variant.paraphrase_of}" if variant.paraphrase_of else ""
        yield ""
        target = f"; answering pays above a confidence of {variant.target:g}" if variant.target is not None else ""
        yield f"{name}: {len(variant.unanswered)} of {count} examples refuse{family}{target}"
        yield from (f"  {line}" for line in variant.instruction.split("\n"))
