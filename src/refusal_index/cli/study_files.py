"""The files of studies: which to write, and what to say of those written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import OptionError, one_of

if TYPE_CHECKING:
    from refusal_index.plugins.studies.study import Study

FORMATS = "csv,tex,svg,pdf,png"

Formats = Annotated[str, typer.Option("--format", help="Which files, separated by commas.")]
Seed = Annotated[int, typer.Option(help="Of everything that is simulated or resampled.", min=0)]
Models = Annotated[
    Path | None,
    typer.Option(help="A CSV table of models: columns model, family, parameters_billion.", metavar="FILE"),
]


def chosen_formats(text: str) -> tuple[str, ...]:
    """Read the option ``--format``.

    Raises
    ------
    OptionError
        If it names a format that is not known, or none.
    """
    known = FORMATS.split(",")
    named = [one.strip().lower() for one in text.split(",") if one.strip()]
    if not named:
        raise OptionError(f"--format: expected one or more of {FORMATS}, got {text!r}")
    return tuple(one_of("--format", one, known) for one in named)


def print_made(made: Study, paths: Sequence[Path], notes: Sequence[str]) -> None:
    """Say where a study was written, and what must be said beside it."""
    console.say(f"{made.name}: {', '.join(map(str, paths)) or 'nothing to write'}")
    for note in notes:
        console.prose(f"  {note}")
