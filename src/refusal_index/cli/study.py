"""``refusal-index study``: one table or figure of the paper, or beyond it, made of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, OptionError, one_of, tells_bad_input
from refusal_index.cli.harmless import harmless
from refusal_index.cli.inputs import RUNS_HELP, readable_runs

if TYPE_CHECKING:
    from refusal_index.studies.study import Study

FORMATS = "csv,tex,svg,pdf,png"

Formats = Annotated[str, typer.Option("--format", help="Which files, separated by commas.")]
Penalty = Annotated[float, typer.Option(help="Penalty of the Weighted score.", min=0)]
ConfidenceLevel = Annotated[float, typer.Option(help="Of every interval.", min=0.5, max=0.9999)]
Seed = Annotated[int, typer.Option(help="Of everything that is simulated or resampled.", min=0)]
Models = Annotated[
    Path | None,
    typer.Option(help="A CSV table of models: columns model, family, parameters_billion.", metavar="FILE"),
]


@tells_bad_input
def study(
    name: Annotated[
        str | None, typer.Argument(help="Which study; without a name all are listed.", metavar="NAME")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help=RUNS_HELP, metavar="RUN..."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.", metavar="DIR")] = Path("studies"),
    formats: Formats = FORMATS,
    penalty: Penalty = 1.0,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Make one study of the paper, or beyond it: table, LaTeX and figure.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, no run that could be read, or not
    possible with these runs.
    """
    from refusal_index.studies.registry import STUDY_NAMES, study_spec
    from refusal_index.studies.study import StudyOptions
    from refusal_index.studies.writing import write_study

    if name is None:
        print_studies()
        return
    if Path(name).exists():
        raise OptionError(
            f"study: expected the study's name before the runs, got {name}; for instance study results_table {name}; "
            "'refusal-index paper' makes all of them"
        )
    spec = study_spec(one_of("study", name, STUDY_NAMES))
    kinds = chosen_formats(formats)
    if not runs:
        raise OptionError(f"study {name}: expected runs, sets or outcome tables, got none; it needs {spec.needs}")
    found = readable_runs(runs)
    options = StudyOptions(penalty, confidence_level, seed, models)
    made = spec.make(found.runs, options)
    print_made(made, write_study(made, out, kinds))
    if found.left_out:
        raise typer.Exit(INCOMPLETE)


def print_studies() -> None:
    """List all studies with what they need."""
    from refusal_index.cli.show import PROSE_WIDTH
    from refusal_index.studies.registry import study_specs

    indent = " " * 4
    for spec in study_specs():
        typer.echo(spec.name)
        text = f"{spec.title}. Needs {spec.needs}."
        typer.echo(fill(text, PROSE_WIDTH, initial_indent=indent, subsequent_indent=indent))


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


def print_made(made: Study, paths: Sequence[Path]) -> None:
    """Say where a study was written, and what must be said beside it."""
    from refusal_index.cli.show import prose

    folder = paths[0].parent if paths else Path()
    typer.echo(f"{made.name}: {harmless(str(folder))}/ {', '.join(path.name for path in paths) or 'nothing to write'}")
    for note in made.notes:
        prose(f"  {harmless(note)}")
