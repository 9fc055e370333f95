r"""Tables written to files.

`write_table` writes a table as Parquet, JSON Lines, or CSV that is safe to open in a spreadsheet and is read back
exactly. A text cell that a spreadsheet could take for a formula (it begins with ``=``, ``+``, ``-``, ``@``, one of
their full-width forms, a tab or a line break) is written with an apostrophe before it. To make this reversible, text
that begins with an apostrophe gets another one, and an empty text is written as a single apostrophe, whereas an empty
cell is null. It is safe to print as well: a control character other than a tab or a line break is written as an escape
(``\x1b``), and a backslash before what looks like one is doubled. Both are undone only in files with the column
`schema_version`: other tools' files are read unchanged, with empty cells as null.
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

# In some locales, spreadsheets treat the full-width forms of the first four as formulas too.
_DEFUSED = "[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n']"


def csv_text(table: pl.DataFrame) -> str:
    r"""Return a table as CSV that is safe in spreadsheets and terminals; `undo_safe` restores its cells.

    >>> csv_text(pl.DataFrame({"reply": ["=1+1", "\x1b[2J"]})).split()
    ['reply', "'=1+1", '\\x1b[2J']
    """
    cell = pl.col(pl.String).map_batches(_escaped, return_dtype=pl.String)
    risky = cell.str.contains(f"^($|{_DEFUSED})")
    quoted = pl.when(risky).then(pl.lit("'") + cell).otherwise(cell)
    return table.with_columns(quoted.name.keep()).write_csv()


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table as Parquet, CSV or JSON Lines, by the file's suffix; the file is replaced atomically."""
    kind = file_format(path)
    if kind == "parquet":
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        content = buffer.getvalue()
    else:
        content = (csv_text(table) if kind == "csv" else table.write_ndjson()).encode()
        if path.name.lower().endswith(".gz"):
            content = gzip.compress(content, mtime=0)  # so the same table gives the same bytes
    write_atomically(path, content)


def undo_safe(cells: pl.DataFrame) -> pl.DataFrame:
    """Remove the apostrophes and escapes that `csv_text` added."""
    cell = pl.col(pl.String)
    bare = pl.when(cell.str.contains(f"^'($|{_DEFUSED})")).then(cell.str.slice(1)).otherwise(cell)
    return cells.with_columns(bare.map_batches(_unescaped, return_dtype=pl.String))


def _escaped(cells: pl.Series) -> pl.Series:
    return _substituted(cells, _TO_ESCAPE, lambda match: match[1] * 2 + (_escape(ord(match[2])) if match[2] else ""))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _unescaped(cells: pl.Series) -> pl.Series:
    def undone(match: re.Match[str]) -> str:
        times, odd = divmod(len(match[1]), 2)
        return "\\" * times + (chr(int(match[2][1:], 16)) if odd else match[2])

    return _substituted(cells, _ESCAPED, undone)


def _substituted(cells: pl.Series, pattern: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> pl.Series:
    if not cells.str.contains(rf"[{_CONTROLS}\r]|\\[xu]").any():
        return cells
    return pl.Series(cells.name, [text and pattern.sub(instead, text) for text in cells], pl.String)


_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Control characters of terminals and of text direction, except line breaks and tabs."""
_CODE = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])|u(?:061c|200[ef]|202[89a-e]|206[6-9])"
# Backslashes before an escape code, or before a character that becomes one, are doubled, so that escapes can be undone.
_TO_ESCAPE = re.compile(rf"(?<!\\)(\\*+)([{_CONTROLS}]|\r(?!\n)|(?={_CODE}))")
_ESCAPED = re.compile(rf"(?<!\\)(\\++)({_CODE})")
