"""The two passes of rows that come apart, joined by question: two files, or rows that say so by their variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from refusal_index.data.imports.first_pass import FirstPass, FirstPassError, forced_outcome
from refusal_index.data.imports.lm_eval import FORCED

Key = tuple[str | None, ...]


def with_forced(first: Sequence[FirstPass], forced: Sequence[FirstPass], source: str) -> tuple[FirstPass, ...]:
    """Return first passes with what became of the forced pass, as another file has it.

    Rows belong together by question id; also by model, variant and draw, wherever the other file tells all of those
    apart that the first does. A forced pass that several variants share is given to each. A row whose question is not
    in the other file is left as it is. Raises FirstPassError if the other file has a question twice, or none of those
    that were refused.

    - `first`: the first passes.
    - `forced`: the rows of the other file, read as if they were first passes: their grade is that of the forced answer.
    - `source`: the other file, for messages.
    """
    key = _key(first, forced)
    found: dict[Key, FirstPass] = {}
    for one in forced:
        if found.setdefault(key(one), one) is not one:
            raise FirstPassError(
                f"{source}: expected every question once, got {one.question.question_id!r} twice; keep the rows of one "
                "model in a file, or name the columns that tell them apart with --column model=NAME or draw=NAME"
            )
    joined = tuple(_together(one, found.get(key(one))) for one in first)
    refused = [one for one in first if one.needs_forcing]
    if refused and not any(key(one) in found for one in refused):
        raise FirstPassError(
            f"{source}: expected the forced answers to questions that were refused, got none of {len(refused):,} "
            f"(first: {refused[0].question.question_id!r}; this file begins with "
            f"{forced[0].question.question_id!r}); name the column of ids in both with --column question_id=NAME"
        )
    return joined


def check_order(first: Sequence[FirstPass], file: Path, forced: Path) -> None:
    """Raise FirstPassError if the file of the first pass says of all its rows that they are the forced pass."""
    if first and all(one.variant == FORCED for one in first):
        raise FirstPassError(
            f"{file}: expected the first pass, in which a model may refuse, got {len(first):,} rows of the forced "
            f"pass; the first pass comes first: import {forced} --forced {file}"
        )


def with_rows_of_forced(passes: Sequence[FirstPass]) -> tuple[FirstPass, ...]:
    """Join the rows of the variant ``forced``, which is the second pass wherever there is one, to the others.

    Raises FirstPassError as `with_forced`, or if there are no others.
    """
    first = [one for one in passes if one.variant != FORCED]
    forced = [one for one in passes if one.variant == FORCED]
    if not forced:
        return tuple(passes)
    if not first:
        raise FirstPassError(
            f"expected the first pass, in which a model may refuse, got {len(forced):,} rows of the forced pass alone; "
            "name the file of the first pass too"
        )
    return with_forced(first, forced, "the forced pass")


def _key(first: Sequence[FirstPass], forced: Sequence[FirstPass]) -> Callable[[FirstPass], Key]:
    """Return what tells rows apart: besides the question whatever both files say alike."""
    parts: tuple[Callable[[FirstPass], str | None], ...] = (
        lambda one: one.model,
        lambda one: one.variant,
        lambda one: str(one.draw),
    )
    told = [part for part in parts if {part(one) for one in first} <= {part(one) for one in forced}]
    return lambda one: (one.question.question_id, *(part(one) for part in told))


def _together(one: FirstPass, forced: FirstPass | None) -> FirstPass:
    if forced is None:
        return one
    return replace(one, beyond=replace(one.beyond, forced=forced_outcome(forced.grade, forced.reply), set_aside=None))
