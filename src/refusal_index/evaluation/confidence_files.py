"""Scores of others in a run's folder, and the folder's scores in a file of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.confidence.registry import METHODS
from refusal_index.datasets.imports.confidence import ReadScores, read_score_table
from refusal_index.evaluation.confidence import ALL
from refusal_index.evaluation.reopened import open_store
from refusal_index.evaluation.writing import write_results
from refusal_index.outcomes.confidence import (
    ConfidenceError,
    JoinedScores,
    join_outcomes,
    read_confidence,
    with_scores,
    write_confidence,
)
from refusal_index.outcomes.confidence_record import write_record
from refusal_index.outcomes.errors import RunFolderError, listed, shortened
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.presentation import Block, Table


@dataclass(frozen=True)
class AddedScores:
    """Scores that were put into a run's folder.

    Attributes
    ----------
    folder
        The run's.
    outcomes
        Its outcome table.
    joined
        The scores, and which of them are of no answer of the run.
    left_out
        Columns of the file with uncertainties of which no formula makes a confidence.
    replaced
        Methods whose earlier scores gave way to these.
    assumed
        How many scores say neither which answer they are of nor whether it is right.
    """

    folder: RunFolder
    outcomes: pl.DataFrame
    joined: JoinedScores
    left_out: tuple[str, ...]
    replaced: tuple[str, ...]
    assumed: int


def add_scores(
    run: Path, data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> AddedScores:
    """Put scores beside those that a run's folder holds, in the place of what it holds of the same methods.

    Parameters
    ----------
    run
        The folder of a finished run.
    data, method, columns
        As `read_score_table` takes them.

    Raises
    ------
    RefusalIndexError
        If the run or the scores cannot be used; then the folder stays as it is.
    """
    folder = RunFolder(run)
    folder.read_settings()
    if not folder.outcomes.exists():
        raise RunFolderError(f"{run} holds no outcomes yet; finish the run first")
    read = read_score_table(data, method=method, columns=columns)
    _refuse_our_names(read.scores)
    with folder.lock(), open_store(folder, made=False) as store:
        outcomes = folder.read_outcomes()
        joined = join_outcomes(read.scores, outcomes)
        before = folder.read_confidence()
        write_confidence(with_scores(before, joined.scores), folder.confidence)
        write_results(folder, store)
        write_record(folder, (), set(joined.scores["method"]))  # what their namesakes took says nothing of these
    return AddedScores(folder, outcomes, joined, read.left_out, _shared_methods(before, joined.scores), _assumed(read))


def _refuse_our_names(scores: pl.DataFrame) -> None:
    ours = sorted({*METHODS, ALL} & set(scores["method"]))
    if ours:
        raise ConfidenceError(
            f"method {ours[0]!r}: expected a name of its own, got that of a method of this package; name the scores "
            "otherwise (--name)"
        )


def _shared_methods(before: pl.DataFrame | None, table: pl.DataFrame) -> tuple[str, ...]:
    added = set(table["method"])
    earlier = [] if before is None else before["method"].unique(maintain_order=True).to_list()
    return tuple(one for one in earlier if one in added)


def _assumed(read: ReadScores) -> int:
    return read.scores.filter(pl.col("pass").is_null() & pl.col("wrong").is_null()).height


def export_scores(run: Path, out: Path) -> int:
    """Write all scores of a run's folder into a file, and return how many there are.

    Parameters
    ----------
    run
        The folder of a run.
    out
        The file; its suffix says whether Parquet, CSV or JSON Lines.

    Raises
    ------
    RefusalIndexError
        If the folder is none of a run or holds no scores, or the file cannot be written.
    """
    folder = RunFolder(run)
    folder.read_settings()
    if not folder.confidence.exists():
        raise RunFolderError(
            f"{run} holds no scores; 'refusal-index confidence {run}' makes them with --method, and takes yours with "
            "--add FILE"
        )
    table = read_confidence(folder.confidence)
    write_confidence(table, out)
    return table.height


def added_blocks(added: AddedScores) -> Iterator[Block]:
    """Yield how far the scores cover the run, and what is not among them."""
    rows = [(one.method, f"{one.questions:,}", f"{one.empty:,}", f"{one.of:,}") for one in added.joined.coverage]
    yield Table.of(("method", "questions with a score", "with an empty one", "of the run"), rows, left=("method",))
    for remark in _remarks(added):
        yield from ("", remark)


def _remarks(added: AddedScores) -> Iterator[str]:
    if added.joined.unknown.height:
        yield _unknown(added.joined)
    if added.joined.by_text:
        yield f"{added.joined.by_text:,} questions were found by their text."
    if added.left_out:
        yield (
            f"Left out: {listed(added.left_out)}, uncertainties that no formula makes scores of. Calibrate one on "
            "questions that are held out, and name its column with --column confidence=NAME."
        )
    if added.replaced:
        yield f"Earlier scores of the same methods are replaced: {', '.join(added.replaced)}."
    if added.assumed:
        yield (
            "A score without a pass is taken to be of the answer that counts: the first pass's where that answered, "
            "else the forced one. If it is of another answer, say whether that is right in a column 'correct'."
        )


def _unknown(joined: JoinedScores) -> str:
    row, count = joined.unknown.row(0, named=True), joined.unknown.height
    place = ", ".join(
        f"{name} {shortened(row[name])}" for name in ("question_id", "variant", "draw") if row[name] is not None
    )
    are = "1 score is of an answer" if count == 1 else f"{count:,} scores are of answers"
    return f"{are} that the run does not have, and left out (first: {place})."


def added_document(added: AddedScores) -> dict[str, Any]:
    """Give the same as JSON holds it."""
    return {
        "coverage": [asdict(one) for one in added.joined.coverage],
        "unknown": added.joined.unknown.height,
        "by_text": added.joined.by_text,
        "left_out": list(added.left_out),
        "replaced": list(added.replaced),
    }
