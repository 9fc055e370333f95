"""``refusal-index study``: tables and figures of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import ConfidenceLevel, output, readable_runs, report_missing

if TYPE_CHECKING:
    from refusal_index.plugins.studies.study import Study, StudyOptions

FORMATS = "csv,tex,svg,pdf,png"


def study(
    name: str | None = None,
    runs: list[Path] | None = None,
    /,
    all_: bool = False,
    out: Annotated[Path, output()] = Path("studies"),
    format_: str = FORMATS,
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
    confidence_level: ConfidenceLevel = 0.95,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    models: Path | None = None,
    without_paper: bool = False,
    config: str | None = None,
) -> None:
    """Reproduce the paper's tables and figures.

    Writes the data as CSV, the table as LaTeX and the figure. Without a name, lists all studies and what each needs.
    With --all, makes every study that the runs allow, and a page (README.md) that shows them; studies that need other
    runs are listed. With --config, first runs what is missing of a configuration, as 'refusal-index run --config' does.

    Exit status: 0 done, 1 done without a run that could not be read or is unfinished, or a study failed, 2 bad input,
    no readable run, or not possible with these runs.

    - `name` NAME: Name of the study; omitted with --all.
    - `runs` RUN: Folders of runs or of several runs, or outcome tables (.csv, .jsonl, .parquet).
    - `all_`: Make every study that the runs allow.
    - `out` DIR: Folder to write to.
    - `format_`: File formats, separated by commas.
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the runs if they agree, else 1]
    - `seed`: Random seed of simulations and resampling.
    - `models` FILE: Table of models, a CSV file with the columns model, family, parameters_billion.
    - `without_paper`: Leave out the models that the paper prints, which are otherwise shown with runs on SimpleQA.
    - `config` FILE: With --all: TOML file of models and datasets, or a built-in configuration, to run first.
    """
    from refusal_index.data.analysis import Analysis
    from refusal_index.plugins.studies.inputs import known_models
    from refusal_index.plugins.studies.study import (
        STUDY_NAMES,
        StudyOptions,
        study_names,
        study_spec,
        study_specs,
        write_study,
    )

    options = StudyOptions(Analysis(confidence_level, weighted_score_p, seed=seed), models, without_paper)
    if all_:
        if name is None and config is None:
            raise console.OptionError("study --all: expected runs, sets, outcome tables or --config FILE, got none")
        kinds = _chosen_formats(format_)
        known_models(options.models)  # checks the table of models before anything is sent
        given = [] if name is None else [Path(name), *(runs or [])]
        if config is not None:
            from refusal_index.cli.runs import run_config

            given = [run_config(config), *given]  # an unfinished run is left out of the studies, which says so
        _make_all(given, out, kinds, options)
        return
    if config is not None:
        raise console.OptionError("--config: requires --all, because one study may not need all of the runs; add it")
    if name is None:
        for spec in study_specs():
            console.say(spec.name)
            console.prose(f"{spec.title}. Needs {spec.needs}.", indent=" " * 4)
        return
    if Path(name).exists():
        raise console.OptionError(
            f"study: expected the name of a study before the runs, got {name}; for instance study results_table "
            f"{name}; add --all to make all of them"
        )
    spec = study_spec(name if name in STUDY_NAMES else console.one_of("study", name, study_names()))
    kinds = _chosen_formats(format_)
    if not runs:
        raise console.OptionError(
            f"study {name}: expected runs, sets or outcome tables, got none; it needs {spec.needs}"
        )
    readable = readable_runs(runs, options.analysis)
    report_missing(readable.runs)
    made = spec.make(readable.runs, options)
    _print_made(made, write_study(made, out, kinds), made.notes)
    if readable.left_out:
        raise typer.Exit(console.INCOMPLETE)


def _make_all(runs: Sequence[Path], out: Path, kinds: Sequence[str], options: StudyOptions) -> None:
    """Make every study that the runs allow, and a page that shows them."""
    from refusal_index.data.files import write_atomically
    from refusal_index.plugins.studies.study import (
        NotPossibleError,
        Study,
        each_study,
        few_notes,
        index_text,
        write_study,
    )
    from refusal_index.render.run_table import run_table

    readable = readable_runs(runs, options.analysis)
    report_missing(readable.runs)
    made = []
    missing = []
    failed = False
    for spec, study in each_study(readable.runs, options):
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
    write_atomically(page, index_text(made, missing, readable.runs, readable.left_out).encode())
    for name, _title, reason in missing:
        console.say(f"not made: {name}: {reason}")
    console.say()
    rows = [(run.label, run.summary, "complete" if run.is_complete else "incomplete") for run in readable.runs]
    console.show([run_table(options.analysis, rows), ""])
    console.prose(f"Made {len(made)} of {len(made) + len(missing)} studies of {len(rows)} runs, shown in {page}.")
    if missing:
        console.prose(f"Not made: {', '.join(name for name, *_ in missing)} (reasons above).")
    if failed or readable.left_out:
        raise typer.Exit(console.INCOMPLETE)


def _chosen_formats(text: str) -> tuple[str, ...]:
    """Parse the option ``--format``.

    Raises
    ------
    OptionError
        If it contains no format or an unknown one.
    """
    formats = FORMATS.split(",")
    named = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not named:
        raise console.OptionError(f"--format: expected one or more of {FORMATS}, got {text!r}")
    return tuple(console.one_of("--format", name, formats) for name in named)


def _print_made(made: Study, paths: Sequence[Path], notes: Sequence[str]) -> None:
    """Print the files of a study and its notes."""
    console.say(f"{made.name}: {', '.join(map(str, paths)) or 'nothing to write'}")
    for note in notes:
        console.prose(f"  {note}")
