"""``refusal-index audit``: a sheet of grades for a person to label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.bad_input import OptionError


def audit(
    run: Annotated[Path, typer.Argument(help="A run's folder, or an outcome table with replies.", metavar="RUN")],
    out: Annotated[Path, typer.Option(help="The sheet to write, a CSV file.")],
    size: Annotated[int, typer.Option(help="How many answers to draw.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
) -> None:
    """Draw graded answers for a person to check.

    As many of each model, dataset, pass and grade, as far as there are. Fill in the column human_grade (correct,
    incorrect or refused), then run 'refusal-index sensitivity RUN --labels SHEET': the grader's errors are estimated
    from it and corrected for, with their uncertainty, for each model and dataset by its own labels.
    """
    from refusal_index.outcomes.labels import audit_sheet, write_sheet
    from refusal_index.outcomes.runs import read_outcomes_of

    if out.exists():
        raise OptionError(f"--out: {out} is there already and may hold labels; choose another name")
    if not out.parent.is_dir():
        raise OptionError(f"--out: expected a folder that exists, got {out.parent}; create it or choose another")
    sheet = audit_sheet(read_outcomes_of(run), size, seed)
    if not sheet.height:
        raise OptionError(f"audit: expected graded answers in {run}, got none")
    write_sheet(sheet, out)
    console.prose(
        f"{sheet.height:,} answers in {out}: fill in human_grade, then 'refusal-index sensitivity {run} --labels {out}'"
    )
