"""``refusal-index report``: one HTML file about a run or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.inputs import tell_left_out
from refusal_index.cli.shared_options import ConfidenceLevel, output, weights_of

_PAGE = "report.html"


def report(
    runs: list[Path],
    /,
    out: Annotated[Path | None, output(own=_PAGE)] = None,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
) -> None:
    """Write an HTML report.

    One file with the index and its uncertainty, the prompts side by side, the effect of other decisions, the settings,
    and every question with both replies. It opens without a network connection.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or no readable run.

    - `runs` RUN: Folders of runs, folders of sets, or outcome tables (.csv, .jsonl, .parquet).
    - `out` FILE: File to write. [default: report.html in the folder of the run, or next to the table]
    - `penalty`: Penalty for a wrong answer in the weighted score. [default: that of the run, else 1]
    """
    from refusal_index.data.errors import NotWrittenError
    from refusal_index.data.sampling import Sampling
    from refusal_index.render.report import read_report_runs, write_report

    place = _place(runs) if out is None else out
    _refuse_foreign(place)
    sampling = Sampling(cluster, weight)
    found = read_report_runs(
        runs,
        penalty=penalty,
        truthfulness_weights=weights_of(truthfulness_weights),
        confidence_level=confidence_level,
        sampling=sampling,
    )
    tell_left_out(found.left_out)
    try:
        written = write_report(found.runs, place, left_out=found.left_out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise OptionError(f"--out: {place} cannot be written ({error.strerror}); choose another place") from error
    console.say(f"{written.path}: {written.size / 1e6:.1f} MB, {_kept(written.limit, written.n_cut)}")
    if found.left_out:
        raise typer.Exit(INCOMPLETE)


def _place(runs: list[Path]) -> Path:
    if len(runs) > 1:
        raise OptionError("report: expected --out FILE for a report of several runs, got none")
    return runs[0] / _PAGE if runs[0].is_dir() else runs[0].parent / _PAGE


def _refuse_foreign(place: Path) -> None:
    """Refuse to overwrite what is not a report: a mistyped ``--out`` must not destroy an outcome table."""
    from refusal_index.render.report import is_report

    if place.is_dir():
        raise OptionError(f"--out: expected a file, got the folder {place}; name a file in it, such as {place / _PAGE}")
    try:
        foreign = os.path.lexists(place) and not is_report(place)
    except OSError as error:
        raise OptionError(f"--out: {place}: {error.strerror}; name another file, or remove this one") from error
    if foreign:
        raise OptionError(f"--out: {place} exists and is not a report; name another file, or move it away")


def _kept(limit: int, n_cut: int) -> str:
    if limit == 0:
        return "without replies, which would make it too large"
    return f"{n_cut:,} texts cut to {limit:,} characters" if n_cut else "all texts in full"
