"""The check that no scored outcome is lost when an outcome table is replaced."""

from __future__ import annotations

from contextlib import suppress

import polars as pl

from refusal_index.data.files import check_plain
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.outcome_table import SCHEMA
from refusal_index.errors import OutcomeTableError
from refusal_index.runs.store import StoreError

PLACE = ("variant", "question_id", "draw")
"""Columns that identify an outcome within a run."""


def check_nothing_lost(folder: RunFolder, table: pl.LazyFrame, *, is_regraded: bool = False) -> None:
    """Check that every scored outcome in the folder still has its replies before the table is replaced.

    Under other rules, an answer may become a refusal that still needs its forced answer: only its first reply counts.

    Raises
    ------
    StoreError
        If a question scored in the folder's outcome table is missing from `table`, or lacks a reply there.
    """
    try:
        scored = _read_before(folder).filter(pl.col("refused").is_not_null() & pl.col("wrong").is_not_null())
    except OutcomeTableError:
        return  # missing or unreadable
    lacking = pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED])
    if is_regraded:
        lacking &= pl.col("first_reply").is_null()
    remaining = table.filter(~lacking.fill_null(value=False)).select(PLACE)
    variants = scored.select(pl.col("variant").unique(maintain_order=True)).collect()["variant"]
    lost = []
    for variant in variants:  # one at a time, because a join holds its tables in memory
        before, now = (table.filter(pl.col("variant").eq_missing(variant)) for table in (scored, remaining))
        lost.append(before.join(now, on=PLACE, how="anti", nulls_equal=True, maintain_order="left").collect())
    count = sum(rows.height for rows in lost)
    if count:
        rows_lost = next(rows for rows in lost if rows.height)
        first = ", ".join(
            str(rows_lost[name][0]) for name in ("variant", "question_id") if rows_lost[name][0] is not None
        )
        height = scored.select(pl.len()).collect().item()
        raise StoreError(
            f"{folder.replies}: expected the replies behind {folder.outcomes.name}, found none for {count:,} of "
            f"its {height:,} scored outcomes, the first {first}; restore the file, or move "
            f"{folder.outcomes.name} elsewhere to have what is left scored"
        )


def _read_before(folder: RunFolder) -> pl.LazyFrame:
    """Read the columns that show what is scored; lazily from a table of ours, since it may be large."""
    schema = pl.Schema({name: SCHEMA[name] for name in (*PLACE, "refused", "wrong")})
    with suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        outcomes = pl.scan_parquet(check_plain(folder.outcomes), glob=False).select(*schema)
        if outcomes.collect_schema() == schema:
            # Read to the end once: otherwise damage further down would go unnoticed.
            outcomes.select(pl.all().hash().sum()).collect()
            if not outcomes.select(pl.col("draw").has_nulls()).collect().item():
                return outcomes
    return folder.read_outcomes().lazy()
