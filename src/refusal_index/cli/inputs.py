"""Several runs on the command line: those that can be read, and why the others are left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from refusal_index.cli import console
from refusal_index.cli.console import OptionError

if TYPE_CHECKING:
    from refusal_index.data.runs import ComparedRun, FoundRuns
    from refusal_index.data.sampling import Sampling
    from refusal_index.findings.summary import Summary


def readable_runs(paths: Sequence[Path], sampling: Sampling | None = None) -> FoundRuns:
    """Read the runs that can be read, and say of the others why not.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If a path is not there, or none can be read.
    """
    from refusal_index.data.runs import find_runs
    from refusal_index.data.sampling import OWN_COLUMNS

    found = find_runs(paths, sampling or OWN_COLUMNS)
    tell_left_out(found.left_out)
    return found


def only_folder(command: str, files: Sequence[Path]) -> Path | None:
    """Return the run's folder that a command was given, None where it was given files; raises OptionError for both."""
    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise OptionError(
            f"{command}: expected the folder of one run or any number of files, got {len(files)} with the folder "
            f"{folders[0]} among them; name its outcomes.parquet instead"
        )
    return folders[0] if folders else None


def summary_of(
    files: Sequence[Path],
    sampling: Sampling,
    payoffs: Mapping[str, Any],
    confidence_level: float,
    columns: Mapping[str, str] | None,
) -> Summary:
    """Summarise outcome tables, or the outcomes of a run, with the payoffs of the run where none are given."""
    from refusal_index.data.folder import RunFolder
    from refusal_index.data.outcome_table import read_tables
    from refusal_index.data.runs import read_outcomes_of
    from refusal_index.findings.summary import summarise
    from refusal_index.render.sections import with_sections

    if files[0].is_dir():
        if columns:
            raise OptionError(f"--column: names columns of outcome tables, and {files[0]} is a folder; leave it out")
        table, about = read_outcomes_of(files[0], sampling), RunFolder(files[0]).read_about()
        payoffs = {name: about[name] for name in ("penalty", "truthfulness_weights") if name in about} | dict(payoffs)
    else:
        table = read_tables(files, sampling, columns or {})
    summary = summarise(table, **payoffs, confidence_level=confidence_level, sampling=sampling)
    return with_sections(summary, table, files[0])


def how_to_show(files: Sequence[Path], options: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the line with the command that prints everything; an option may have a list of values."""
    given = [
        word
        for name, value in options.items()
        for one in (value if isinstance(value, list) else [value])
        if one is not None
        for word in (console.option(name), str(one))
    ]
    return f"all metrics and notes: {shlex.join(['refusal-index', 'show', *map(str, files), *given])}"


def tell_missing(runs: Sequence[ComparedRun]) -> None:
    """Say which runs lack grades, before what is made of them."""
    from refusal_index.render.comparison import missing_lines

    for line in missing_lines(runs):
        console.note(line)


def tell_left_out(sentences: Iterable[str]) -> None:
    """Say why runs are left out; a command that then ends well has the exit status `INCOMPLETE`."""
    for sentence in sentences:
        console.note(f"left out: {sentence}")
