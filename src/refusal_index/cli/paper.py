"""``refusal-index paper``: every study that the runs allow, and a page that shows them all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, tells_bad_input
from refusal_index.cli.harmless import harmless
from refusal_index.cli.inputs import RUNS_HELP, readable_runs
from refusal_index.cli.study import (
    FORMATS,
    ConfidenceLevel,
    Formats,
    Models,
    Penalty,
    Seed,
    chosen_formats,
    print_made,
)


@tells_bad_input
def paper(
    runs: Annotated[
        list[Path],
        typer.Argument(help=RUNS_HELP, metavar="RUN..."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write into.", metavar="DIR")] = Path("paper"),
    formats: Formats = FORMATS,
    penalty: Penalty = 1.0,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Make every study that the runs allow, with a page (README.md) that shows them.

    Studies that need other runs are listed with what they need. Exit status: 0 done, whatever these runs do not allow;
    1 done without a run that could not be read, or a study failed; 2 bad input, or no run that could be read.
    """
    from refusal_index.outcomes.files import write_atomically
    from refusal_index.studies.paper_figures import known_models
    from refusal_index.studies.registry import study_specs
    from refusal_index.studies.study import NotPossibleError, StudyOptions
    from refusal_index.studies.writing import index_text, write_study

    kinds = chosen_formats(formats)
    options = StudyOptions(penalty, confidence_level, seed, models)
    known_models(options)  # a table of models that cannot be used ends the command before any work
    found = readable_runs(runs)
    made, missing, failed = [], [], False
    for spec in study_specs():
        try:
            study = spec.make(found.runs, options)
        except NotPossibleError as error:
            missing.append((spec.name, spec.title, str(error)))
        except ValueError as error:
            # One study that cannot take these outcomes should not cost the others.
            missing.append((spec.name, spec.title, f"failed: {error}"))
            failed = True
        else:
            paths = write_study(study, out, kinds)
            made.append((study, paths))
            print_made(study, paths)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "README.md", index_text(made, missing, found.runs, found.left_out).encode())
    for name, _title, reason in missing:
        typer.echo(f"not made: {name}: {harmless(reason)}")
    typer.echo(f"\n{len(made)} studies of {len(made) + len(missing)}: {harmless(str(out / 'README.md'))}")
    if failed or found.left_out:
        raise typer.Exit(INCOMPLETE)
