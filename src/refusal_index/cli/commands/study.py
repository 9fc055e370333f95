"""``refusal-index study``: one table or figure of the paper, or beyond it, made of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, one_of
from refusal_index.cli.inputs import readable_runs, tell_missing
from refusal_index.cli.shared_options import RUNS_HELP, ConfidenceLevel, Penalty, output
from refusal_index.cli.study_files import FORMATS, Formats, Models, Seed, chosen_formats, print_made


def study(
    name: Annotated[
        str | None, typer.Argument(help="Which study; without a name all are listed.", metavar="NAME")
    ] = None,
    runs: Annotated[list[Path] | None, typer.Argument(help=RUNS_HELP, metavar="RUN...")] = None,
    out: Annotated[Path, output("Folder to write into.", metavar="DIR")] = Path("studies"),
    formats: Formats = FORMATS,
    penalty: Penalty = 1.0,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Make one study of the paper, or beyond it.

    Its table, also as LaTeX, and its figure; without a name, lists all of them. Exit status: 0 done, 1 done without a
    run that could not be read, 2 bad input, no run that could be read, or not possible with these runs.
    """
    from refusal_index.plugins.studies.study import STUDY_NAMES, StudyOptions, study_spec, write_study

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
    tell_missing(found.runs)
    options = StudyOptions(penalty, confidence_level, seed, models)
    made = spec.make(found.runs, options)
    print_made(made, write_study(made, out, kinds), made.notes)
    if found.left_out:
        raise typer.Exit(INCOMPLETE)


def print_studies() -> None:
    """List all studies with what they need."""
    from refusal_index.plugins.studies.study import study_specs

    for spec in study_specs():
        console.say(spec.name)
        console.prose(f"{spec.title}. Needs {spec.needs}.", indent=" " * 4)
