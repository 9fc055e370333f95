"""``refusal-index paper``: every study that the runs allow, and a page that shows them all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE
from refusal_index.cli.inputs import readable_runs, tell_missing
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, Runs, output
from refusal_index.cli.study_files import FORMATS, Formats, Models, Seed, chosen_formats, print_made


def paper(
    runs: Runs,
    out: Annotated[Path, output("Folder to write into.", metavar="DIR")] = Path("paper"),
    formats: Formats = FORMATS,
    penalty: Penalty = 1.0,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Make every study that the runs allow.

    With a page (README.md) that shows them. Studies that need other runs are listed with what they need. Exit status: 0
    done, whatever these runs do not allow; 1 done without a run that could not be read, or a study failed; 2 bad input,
    or no run that could be read.
    """
    from refusal_index.data.files import write_atomically
    from refusal_index.plugins.studies.study import (
        NotPossibleError,
        Study,
        StudyOptions,
        each_study,
        few_notes,
        index_text,
        known_models,
        write_study,
    )

    kinds = chosen_formats(formats)
    options = StudyOptions(penalty, confidence_level, seed, models)
    known_models(options)  # a table of models that cannot be used ends the command before any work
    found = readable_runs(runs)
    tell_missing(found.runs)
    made, missing, failed = [], [], False
    for spec, study in each_study(found.runs, options):
        if isinstance(study, Study):
            made.append((study, write_study(study, out, kinds)))
            print_made(*made[-1], few_notes(study))
        elif isinstance(study, NotPossibleError):
            missing.append((spec.name, spec.title, study.short))
        else:
            failed = True
            missing.append((spec.name, spec.title, f"failed: {study}"))
    page = out / "README.md"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(page, index_text(made, missing, found.runs, found.left_out).encode())
    for name, _title, reason in missing:
        console.say(f"not made: {name}: {reason}")
    console.say()
    console.say(f"{len(made)} studies of {len(made) + len(missing)}: {page}")
    if failed or found.left_out:
        raise typer.Exit(INCOMPLETE)
