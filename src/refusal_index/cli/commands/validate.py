"""``refusal-index validate``: the contents of a file of questions, or its problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import BAD_INPUT, one_of
from refusal_index.cli.shared_options import columns_of

MOST_PROBLEMS = 20


def validate(
    file: Path,
    /,
    column: list[str] | None = None,
    prompts: str = "default",
    variants: str = "normal",
    max_context_tokens: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Check a file of questions before a run.

    Prints its contents and the first question in its prompt, or all problems by line.

    Exit status: 0 valid, 2 problems or bad input.

    - `file` FILE: Questions (.csv, .jsonl, .parquet).
    - `column` ROLE=NAME: Name a column, as in question=problem. Repeatable.
    - `variants` NAME: Prompt variant of the first question.
    - `max_context_tokens`: Context length of the model; longer prompts are problems.
    """
    from refusal_index.data.datasets.own import Survey, reading
    from refusal_index.protocol import FORCED, load_prompt_set
    from refusal_index.protocol.replies import CHARACTERS_PER_TOKEN, longest_in_characters, whole_prompt

    prompt_set = load_prompt_set(prompts)
    one_of("--variants", variants, [*prompt_set.variants, FORCED])
    questions = reading(file, columns_of(column or []))
    found = Survey(questions, longest_in_characters(prompt_set), CHARACTERS_PER_TOKEN, max_context_tokens)
    if found.problems or found.first is None:
        _print_problems([str(problem) for problem in found.problems])
        raise typer.Exit(BAD_INPUT)
    for line in found.described():
        console.say(line)
    console.say()
    console.say(f"the first question, with the prompt variant {variants!r}:")
    console.say()
    for line in whole_prompt(found.first, prompt_set, variants).split("\n"):
        console.say(f"  {line}".rstrip())


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems[:MOST_PROBLEMS]:
        console.error(problem)
    if len(problems) > MOST_PROBLEMS:
        console.note(f"and {len(problems) - MOST_PROBLEMS:,} more; fix these first")
