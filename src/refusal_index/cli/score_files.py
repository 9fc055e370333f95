"""Scores from a file into a run's folder, and out of it into a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.bad_input import OptionError
from refusal_index.cli.shared_options import check_place, columns_of

Add = Annotated[
    Path | None,
    typer.Option(
        help="Add scores from a table (.csv, .jsonl, .json, .parquet; columns question_id and confidence are enough, "
        "or a table of UQLM or lm-polygraph); send nothing.",
        metavar="FILE",
    ),
]
ScoreColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--column", help="Name a column of that table, as in confidence=score; may be repeated.", metavar="ROLE=NAME"
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Write all scores of the run: .csv, .jsonl or .parquet; send nothing.", metavar="FILE"),
]
Name = Annotated[
    str | None, typer.Option(help="What to call the scores of that table. [default: its own, or its name]")
]


def carry_files(
    run: Path, add: Path | None, column: Sequence[str], name: str | None, out: Path | None, *, as_json: bool
) -> None:
    """Add scores to a run, then write all that it has, and say how far they cover it.

    Raises
    ------
    RefusalIndexError
        If the run, a file or an option cannot be used; then the run's folder stays as it is.
    """
    from refusal_index.evaluation import confidence_files
    from refusal_index.outcomes.confidence_summary import confidence_document, summarise_confidence
    from refusal_index.outcomes.presentation.confidence import confidence_blocks

    _check(add, column, name, out)
    if out is not None:
        check_place(out)  # told before anything is changed
    document: dict[str, Any] = {}
    if add is not None:
        added = confidence_files.add_scores(run, add, method=name, columns=columns_of(column))
        summary = summarise_confidence(added.joined.scores, added.outcomes)
        document = confidence_files.added_document(added) | {"methods": confidence_document(summary)}
        if not as_json:
            console.show(confidence_files.added_blocks(added))
            console.say()
            console.show(confidence_blocks(summary))
    if out is not None:
        rows = confidence_files.export_scores(run, out)
        document |= {"out": str(out), "rows": rows}
        if not as_json:
            console.say(f"{out}: {rows:,} scores")
    if as_json:
        console.document(document)


def _check(add: Path | None, column: Sequence[str], name: str | None, out: Path | None) -> None:
    if add is None:
        for option in (["--column"] if column else []) + (["--name"] if name is not None else []):
            raise OptionError(f"{option}: expected --add FILE beside it, whose scores it is about, got none")
    if name is not None and not name.strip():
        raise OptionError("--name: expected what to call the scores, got nothing")
    if add is not None and out is not None and add.resolve() == out.resolve():
        raise OptionError(f"--out: {out} is the file to add and would be lost; choose another name")
