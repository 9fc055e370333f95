"""``refusal-index validate``: what is in a file of questions, or everything that is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli.bad_input import BAD_INPUT, one_of, tells_bad_input
from refusal_index.cli.columns import columns_of
from refusal_index.cli.harmless import harmless
from refusal_index.cli.shared_options import Prompts

if TYPE_CHECKING:
    from refusal_index.datasets.own import Checked
    from refusal_index.outcomes.errors import TableError
    from refusal_index.outcomes.question import Question

MOST_PROBLEMS = 20


@tells_bad_input
def validate(
    file: Annotated[Path, typer.Argument(help="Questions (.csv, .jsonl, .parquet).", metavar="FILE")],
    column: Annotated[
        list[str] | None, typer.Option(help="Name a column, as in question=problem; may be repeated.")
    ] = None,
    prompts: Prompts = "default",
    variant: Annotated[str, typer.Option(help="Variant to show the first question under.")] = "normal",
    max_context_tokens: Annotated[
        int | None,
        typer.Option(help="What the model takes: a question whose prompt is about longer is a problem.", min=1),
    ] = None,
) -> None:
    """Check a file of questions before anything is asked.

    Prints what is in it and the first question as it would be asked, or everything that is wrong, line by line. Exit
    status: 0 all is well, 2 problems or bad input.
    """
    from refusal_index.datasets.own import check
    from refusal_index.protocol import FORCED, load_prompt_set
    from refusal_index.protocol.lengths import longest_prompt, whole_prompt

    prompt_set = load_prompt_set(prompts)
    one_of("--variant", variant, [*prompt_set.variants, FORCED])
    checked = check(file, columns_of(column or []))
    longest = [longest_prompt(question, prompt_set) for question in checked.questions]
    problems = [str(problem) for problem in checked.problems]
    if max_context_tokens is not None:
        problems += map(str, _too_long(checked, longest, max_context_tokens))
    if problems:
        _print_problems(problems)
        raise typer.Exit(BAD_INPUT)
    for line in _summary(checked, max(longest)):
        typer.echo(harmless(line))
    typer.echo(f"\nthe first question, as variant {variant!r} asks it:\n")
    for line in whole_prompt(checked.questions[0], prompt_set, variant).split("\n"):
        typer.echo(f"  {harmless(line)}".rstrip())


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems[:MOST_PROBLEMS]:
        typer.echo(f"error: {harmless(problem)}", err=True)
    if len(problems) > MOST_PROBLEMS:
        typer.echo(f"and {len(problems) - MOST_PROBLEMS:,} more; mend these first", err=True)


def _summary(checked: Checked, longest: int) -> Iterator[str]:
    from refusal_index.protocol.lengths import CHARACTERS_PER_TOKEN

    questions = checked.questions
    counts = {
        "with a context": sum(question.context is not None for question in questions),
        "with choices": sum(bool(question.choices) for question in questions),
        "with aliases": sum(bool(question.aliases) for question in questions),
        "with a pattern": sum(question.pattern is not None for question in questions),
        "without a right answer": sum(question.gold is None for question in questions),
    }
    yield f"{len(questions):,} questions, {', '.join(f'{role} in {name!r}' for role, name in checked.columns.items())}"
    yield from (f"  {count:,} {name}" for name, count in counts.items() if count)
    if topics := Counter(question.topic for question in questions if question.topic is not None):
        most = ", ".join(f"{topic} ({count:,})" for topic, count in topics.most_common(3))
        yield f"  {len(topics):,} topics, most often {most}"
    if counts["with a context"]:
        yield f"  longest context: {max(len(question.context or '') for question in questions):,} characters"
    yield f"  longest prompt: {longest:,} characters, about {longest // CHARACTERS_PER_TOKEN:,} tokens"
    yield f"  {_repeated(questions):,} asked more than once in the same words"


def _repeated(questions: Sequence[Question]) -> int:
    counts = Counter((question.text, question.context, question.choices) for question in questions)
    return sum(count - 1 for count in counts.values())


def _too_long(checked: Checked, longest: Sequence[int], most: int) -> Iterator[TableError]:
    """Yield the questions whose prompt is too long by their lines, and by their ids where these are the file's own."""
    from refusal_index.protocol.lengths import CHARACTERS_PER_TOKEN

    for row, question, characters in zip(checked.rows, checked.questions, longest, strict=not checked.problems):
        if characters > most * CHARACTERS_PER_TOKEN:
            named = f"question_id {question.question_id!r}: " if "question_id" in checked.columns else ""
            said = (
                f"{named}expected a prompt of at most {most:,} tokens, got about "
                f"{characters // CHARACTERS_PER_TOKEN:,}; shorten its context, or leave the question out"
            )
            yield row.wrong(said)
