"""No result of a folder gives way to one whose replies have gone."""

from __future__ import annotations

from contextlib import suppress

import polars as pl

from refusal_index.engines.store import StoreError
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.files import check_plain
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.outcome import NOT_FINISHED, REQUEST_FAILED
from refusal_index.outcomes.schema import SCHEMA

PLACE = ("variant", "question_id", "draw")
"""What tells the outcomes of one run apart."""


def check_nothing_lost(folder: RunFolder, table: pl.LazyFrame) -> None:
    """See to it that no outcome in a folder gives way to one that lacks its replies.

    Raises
    ------
    StoreError
        If a question that is scored in the folder's outcome table is not in `table`, or lacks a reply there.
    """
    try:
        scored = _read_before(folder).filter(pl.col("refused").is_not_null() & pl.col("wrong").is_not_null())
    except OutcomeTableError:
        return  # none yet, or one that nobody can read
    lacking = pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED])
    kept = table.filter(~lacking.fill_null(value=False)).select(PLACE)
    lost = [_lost(scored, kept, variant) for variant in _variants_of(scored)]
    count = sum(one.height for one in lost)
    if count:
        found = next(one for one in lost if one.height)
        first = ", ".join(str(found[name][0]) for name in ("variant", "question_id") if found[name][0] is not None)
        height = scored.select(pl.len()).collect().item()
        raise StoreError(
            f"{folder.replies}: expected the replies behind {folder.outcomes.name}, found none for {count:,} of "
            f"its {height:,} scored outcomes, the first {first}; restore the file, or move "
            f"{folder.outcomes.name} elsewhere to have what is left scored"
        )


def _read_before(folder: RunFolder) -> pl.LazyFrame:
    """Read the columns that say what is scored; of a table of our own, which may be large, no others, and late."""
    wanted = pl.Schema({name: SCHEMA[name] for name in (*PLACE, "refused", "wrong")})
    with suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        found = pl.scan_parquet(check_plain(folder.outcomes), glob=False).select(*wanted)
        if found.collect_schema() == wanted:
            # Read to its end once, whatever comes of it: only so it is found out that nothing in it is damaged.
            found.select(pl.all().hash().sum()).collect()
            if not found.select(pl.col("draw").has_nulls()).collect().item():
                return found
    return folder.read_outcomes().lazy()


def _variants_of(table: pl.LazyFrame) -> list[str | None]:
    return table.select(pl.col("variant").unique(maintain_order=True)).collect()["variant"].to_list()


def _lost(scored: pl.LazyFrame, kept: pl.LazyFrame, variant: str | None) -> pl.DataFrame:
    """Return the rows of one variant that are no longer there: one at a time, as a join holds all that it joins."""
    before, now = (table.filter(pl.col("variant").eq_missing(variant)) for table in (scored, kept))
    return before.join(now, on=PLACE, how="anti", nulls_equal=True, maintain_order="left").collect()
