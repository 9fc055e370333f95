r"""Tables written to files: Parquet, JSON Lines, and CSV that is safe to open and is read back exactly.

A CSV file is safe to open in a spreadsheet. A text cell that a spreadsheet could take for a formula (it begins with
``=``, ``+``, ``-``, ``@``, one of their full-width forms, a tab or a line break) is written with an apostrophe before
it. So that reading can take exactly that apostrophe away, text that itself begins with an apostrophe gets another one,
and text of no characters is written as a single apostrophe, whereas an empty cell is null. It is safe to print as well:
a control character other than a tab or a line break is written as an escape (``\x1b``), and a backslash before what
looks like one is doubled. Both are undone only in files that carry the column `schema_version`: other tools' files are
read as they are, with every empty cell null.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from refusal_index.data.files import write_atomically
from refusal_index.data.tables import file_format

# Spreadsheets of some languages take the full-width forms of the first four for formulas too.
_DEFUSED = "[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n']"


def csv_text(table: pl.DataFrame) -> str:
    r"""Return a table as CSV that neither a spreadsheet nor a terminal obeys; `undo_safe` reads its cells back.

    >>> csv_text(pl.DataFrame({"reply": ["=1+1", "\x1b[2J"]})).split()
    ['reply', "'=1+1", '\\x1b[2J']
    """
    cell = pl.col(pl.String).map_batches(_escaped, return_dtype=pl.String)
    risky = cell.str.contains(f"^($|{_DEFUSED})")
    quoted = pl.when(risky).then(pl.lit("'") + cell).otherwise(cell)
    return table.with_columns(quoted.name.keep()).write_csv()


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table, replacing the file at once or not at all; its suffix says whether Parquet, CSV or JSON Lines."""
    kind = file_format(path)
    if kind == "parquet":
        whole = io.BytesIO()
        table.write_parquet(whole)
        content = whole.getvalue()
    else:
        content = (csv_text(table) if kind == "csv" else table.write_ndjson()).encode()
        if path.name.lower().endswith(".gz"):
            content = gzip.compress(content, mtime=0)  # the same table gives the same bytes
    write_atomically(path, content)


def undo_safe(cells: pl.DataFrame) -> pl.DataFrame:
    """Take away the apostrophes and the escapes that `csv_text` has put into text."""
    cell = pl.col(pl.String)
    bare = pl.when(cell.str.contains(f"^'($|{_DEFUSED})")).then(cell.str.slice(1)).otherwise(cell)
    return cells.with_columns(bare.map_batches(_unescaped, return_dtype=pl.String))


def _escaped(cells: pl.Series) -> pl.Series:
    return _substituted(cells, _TO_ESCAPE, lambda found: found[1] * 2 + (_escape(ord(found[2])) if found[2] else ""))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _unescaped(cells: pl.Series) -> pl.Series:
    def undone(found: re.Match[str]) -> str:
        times, odd = divmod(len(found[1]), 2)
        return "\\" * times + (chr(int(found[2][1:], 16)) if odd else found[2])

    return _substituted(cells, _ESCAPED, undone)


def _substituted(cells: pl.Series, pattern: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> pl.Series:
    if not cells.str.contains(rf"[{_CONTROLS}\r]|\\[xu]").any():
        return cells
    return pl.Series(cells.name, [text and pattern.sub(instead, text) for text in cells], pl.String)


_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What a terminal obeys, and what turns the direction of text; breaks of lines and tabs are text."""
_CODE = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])|u(?:061c|200[ef]|202[89a-e]|206[6-9])"
# Backslashes before a code, or before what becomes one, are doubled, so that reading tells one from the other.
_TO_ESCAPE = re.compile(rf"(?<!\\)(\\*+)([{_CONTROLS}]|\r(?!\n)|(?={_CODE}))")
_ESCAPED = re.compile(rf"(?<!\\)(\\++)({_CODE})")
