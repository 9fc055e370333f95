"""``refusal-index study`` and ``paper``: one table or figure made of runs, or all that they allow with a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, one_of
from refusal_index.cli.inputs import readable_runs, tell_missing
from refusal_index.cli.shared_options import ConfidenceLevel, Penalty, Runs, output

if TYPE_CHECKING:
    from refusal_index.plugins.studies.study import Study

FORMATS = "csv,tex,svg,pdf,png"

Formats = Annotated[str, typer.Option("--format", help="Which files, separated by commas.")]
Seed = Annotated[int, typer.Option(help="Of everything that is simulated or resampled.", min=0)]
Models = Annotated[
    Path | None, typer.Option(help="A CSV table of models: columns model, family, parameters_billion.", metavar="FILE")
]


def study(
    name: str | None = None,
    runs: list[Path] | None = None,
    /,
    out: Annotated[Path, output()] = Path("studies"),
    formats: Formats = FORMATS,
    penalty: Penalty = 1.0,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Make one study of the paper, or beyond it.

    Its table, also as LaTeX, and its figure; without a name, lists all of them. Exit status: 0 done, 1 done without a
    run that could not be read, 2 bad input, no run that could be read, or not possible with these runs.

    - `name` NAME: Which study; without a name all are listed.
    - `runs` RUN...: Runs' folders, folders of sets, or outcome tables (.csv, .jsonl, .parquet).
    - `out` DIR: Folder to write into.
    """
    from refusal_index.plugins.studies.study import STUDY_NAMES, StudyOptions, study_names, study_spec, write_study

    if name is None:
        _print_studies()
        return
    if Path(name).exists():
        raise OptionError(
            f"study: expected the study's name before the runs, got {name}; for instance study results_table {name}; "
            "'refusal-index paper' makes all of them"
        )
    spec = study_spec(name if name in STUDY_NAMES else one_of("study", name, study_names()))
    kinds = _chosen_formats(formats)
    if not runs:
        raise OptionError(f"study {name}: expected runs, sets or outcome tables, got none; it needs {spec.needs}")
    found = readable_runs(runs)
    tell_missing(found.runs)
    options = StudyOptions(penalty, confidence_level, seed, models)
    made = spec.make(found.runs, options)
    _print_made(made, write_study(made, out, kinds), made.notes)
    if found.left_out:
        raise typer.Exit(INCOMPLETE)


def _print_studies() -> None:
    """List all studies with what they need."""
    from refusal_index.plugins.studies.study import study_specs

    for spec in study_specs():
        console.say(spec.name)
        console.prose(f"{spec.title}. Needs {spec.needs}.", indent=" " * 4)


def paper(
    runs: Runs,
    out: Annotated[Path, output()] = Path("paper"),
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

    - `out` DIR: Folder to write into.
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

    kinds = _chosen_formats(formats)
    options = StudyOptions(penalty, confidence_level, seed, models)
    known_models(options)  # a table of models that cannot be used ends the command before any work
    found = readable_runs(runs)
    tell_missing(found.runs)
    made, missing, failed = [], [], False
    for spec, study in each_study(found.runs, options):
        if isinstance(study, Study):
            made.append((study, write_study(study, out, kinds)))
            _print_made(*made[-1], few_notes(study))
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


def _chosen_formats(text: str) -> tuple[str, ...]:
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


def _print_made(made: Study, paths: Sequence[Path], notes: Sequence[str]) -> None:
    """Say where a study was written, and what must be said beside it."""
    console.say(f"{made.name}: {', '.join(map(str, paths)) or 'nothing to write'}")
    for note in notes:
        console.prose(f"  {note}")
