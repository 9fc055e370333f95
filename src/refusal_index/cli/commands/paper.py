"""``refusal-index paper``: every study that the runs allow, and a page that shows them all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.bad_input import INCOMPLETE
from refusal_index.cli.inputs import readable_runs
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, Runs
from refusal_index.cli.study_files import FORMATS, Formats, Models, Seed, chosen_formats, print_made


def paper(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="Folder to write into.", metavar="DIR")] = Path("paper"),
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
    from refusal_index.studies.paper_figures import known_models
    from refusal_index.studies.study import StudyOptions
    from refusal_index.studies.writing import write_paper

    kinds = chosen_formats(formats)
    options = StudyOptions(penalty, confidence_level, seed, models)
    known_models(options)  # a table of models that cannot be used ends the command before any work
    found = readable_runs(runs)
    written = write_paper(found, out, kinds, options, print_made)
    for name, _title, reason in written.missing:
        console.say(f"not made: {name}: {reason}")
    console.say()
    console.say(f"{len(written.made)} studies of {len(written.made) + len(written.missing)}: {written.page}")
    if written.failed or found.left_out:
        raise typer.Exit(INCOMPLETE)
