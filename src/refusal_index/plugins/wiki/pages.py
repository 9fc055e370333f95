"""The pages that questions are written about: an index of them, and their texts on demand.

A dump of Wikipedia holds more text than a machine may have to spare, and a build needs few of its pages. So the texts
stay in the columns of one frame, as compact as the file has them, and only an index of the pages is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from refusal_index.data.datasets.dataset import DatasetError
from refusal_index.data.errors import suggestion
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import TextTable, read_text

USUAL_NAMES: Mapping[str, tuple[str, ...]] = {
    "title": ("title",),
    "text": ("text", "markdown", "document", "content"),
    "section": ("section", "heading"),
    "page": ("pageid", "page_id"),
    "revision": ("revid", "revision"),
    "topic": ("topic", "category", "categories"),
    "difficulty": ("difficulty", "h_score_cat"),
}
"""What a column may be called, by what it holds; the first that is there counts. Title and text are needed."""

MAX_LEVELS = 50
"""More different values than this are measurements, not levels."""


@dataclass(frozen=True)
class Page:
    """One page of the index."""

    key: str  # its id in Wikipedia, or its title where the file has no ids
    # title, difficulty, topic, revision: as the file has them; a topic is the first of several
    title: str
    difficulty: str | None
    topic: str | None
    revision: str | None
    rows: tuple[int, ...]  # where its texts stand in the frame


@dataclass(frozen=True)
class Pages:
    """All pages of a file."""

    # path, sha256: the file, and its checksum
    path: Path
    sha256: str
    entries: tuple[Page, ...]  # the pages
    columns: Mapping[str, str]  # column of the file by what it holds
    left_out: Mapping[str, int]  # how many rows were left out, by reason: ``"no text"`` and ``"no difficulty"``
    frame: pl.DataFrame = field(repr=False)

    @property
    def in_markdown(self) -> bool:
        """Whether each row is a whole page that must be cut at its headings."""
        return "section" not in self.columns

    def texts(self, page: Page) -> list[tuple[str, str]]:
        """Return heading and text of every row of a page."""
        rows = self.frame[list(page.rows)]
        return list(zip(rows["section"].fill_null("").to_list(), rows["text"].to_list(), strict=True))


def read_pages(path: Path, difficulty: str | None = None) -> Pages:
    """Read a file of pages and make an index of them.

    Raises DatasetError if the file cannot be used as it is.

    - `path`: a .parquet, .jsonl, .ndjson or .csv file; the latter three perhaps with .gz. The columns `title` and a
      text are needed. With a column `section` each row is a section; otherwise each row is a page in Markdown, as in
      GoodWiki.
    - `difficulty`: the column of the difficulty; None looks for one under its usual names.
    """
    wanted = [*(name for names in USUAL_NAMES.values() for name in names), *filter(None, [difficulty])]
    table = read_text(path, wanted, "page", DatasetError, first_of_lists=True)
    columns = _columns(table, difficulty)
    rows = table.frame.select(
        pl.col(columns[role]).alias(role) if role in columns else pl.lit(None, pl.String).alias(role)
        for role in USUAL_NAMES
    ).with_columns(table.lines.alias("place"))
    has_text = rows["text"].fill_null("").str.contains(r"\S")
    untitled = rows.filter(has_text & ~rows["title"].fill_null("").str.contains(r"\S"))
    if not untitled.is_empty():
        what = "expected the title of the page, got an empty cell; a question must name its subject: add the title, "
        raise table.source.wrong(f"{what}or remove the row", [untitled["place"][0]])
    has_level = (
        rows["difficulty"].is_not_null() if "difficulty" in columns else pl.repeat(True, rows.height, eager=True)
    )
    left_out = {"no text": int((~has_text).sum()), "no difficulty": int((has_text & ~has_level).sum())}
    kept = rows.filter(has_text & has_level)
    if kept.is_empty():
        raise table.source.wrong(
            f"expected pages with a text in {columns['text']!r}, got {rows.height:,} rows without one "
            f"{'or without a difficulty ' if left_out['no difficulty'] else ''}; check that it is the right file"
        )
    levels = kept["difficulty"].n_unique()
    if levels > MAX_LEVELS:
        raise table.source.wrong(
            f"expected at most {MAX_LEVELS} levels of difficulty in {columns['difficulty']!r}, got "
            f"{levels:,} different values; sort them into levels first, for instance into ten of equal size"
        )
    return Pages(path, sha256_of(path), _index(kept), columns, left_out, kept)


def _columns(table: TextTable, difficulty: str | None) -> dict[str, str]:
    """Find the column of everything that has one."""
    usual = {**USUAL_NAMES, **({"difficulty": (difficulty,)} if difficulty else {})}
    columns = {}
    for role, names in usual.items():
        if name := next((name for name in names if name in table.columns), None):
            columns[role] = name
        elif role in ("title", "text", *(["difficulty"] if difficulty else [])):
            expected = f"a column {' or '.join(map(repr, names))} with the {role} of each page"
            near = next(filter(None, (suggestion(name, table.columns) for name in names)), "")
            raise table.source.lacks(expected, table.columns, near)
    return columns


def _index(rows: pl.DataFrame) -> tuple[Page, ...]:
    """Group rows by page; where they disagree about it, the least value counts, whatever their order."""
    page = pl.coalesce("page", "title").str.strip_chars()
    known = (pl.col(name).str.strip_chars().min() for name in ("title", "difficulty", "topic", "revision"))
    grouped = rows.with_row_index("row").group_by(page.alias("key")).agg(*known, pl.col("row"))
    return tuple(
        Page(key, title, difficulty, topic, revision, tuple(row_numbers))
        for key, title, difficulty, topic, revision, row_numbers in grouped.sort("key").iter_rows()
    )
