"""Workbooks of spreadsheets (``.xlsx``), read with the extra ``xlsx``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import date, time
from importlib import import_module
from typing import Any, BinaryIO

from refusal_index.data.archives import check_unpacked_size
from refusal_index.errors import listed

MAX_UNPACKED = 256 << 20
"""Maximum uncompressed bytes of a workbook."""


def workbook_rows(file: BinaryIO, chosen: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of a sheet that are not empty, with their numbers from 1, beginning with its header.

    A cell holds text, a number, a truth value or None; a date is text. A row with one cell above others is a title.
    Raises ValueError if the file cannot be read, unpacks to more than `MAX_UNPACKED` bytes or holds a formula without
    its value, or if a sheet has to be chosen: its arguments are then the message and the name of a sheet with rows.

    - `chosen`: name of the sheet; None for the only visible one with rows.
    """
    try:
        openpyxl = import_module("openpyxl")
    except ImportError as error:
        raise ValueError("run pip install 'refusal-index[xlsx]', or save it as CSV") from error
    try:
        with zipfile.ZipFile(file) as archive:
            check_unpacked_size(archive, MAX_UNPACKED, MAX_UNPACKED)
        values = openpyxl.load_workbook(file, read_only=True, data_only=True)
        visible = [sheet for sheet in values.worksheets if sheet.sheet_state == "visible"]
        sheets = {sheet.title: _rows(sheet) for sheet in visible}
        tables = [name for name, rows in sheets.items() if sum(not _is_empty(cells) for cells in rows) > 1]
        read = chosen if chosen is not None else tables[0] if len(tables) == 1 else None
        rows = sheets.get(read or "", [])
        has_gaps = any(None in cells for cells in rows)
        written = _rows(openpyxl.load_workbook(file, read_only=True)[read]) if has_gaps else rows
    except (OSError, KeyError, ValueError, SyntaxError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{error}; save it again, or as CSV") from error
    if chosen is None and len(tables) > 1:
        raise ValueError(
            f"it has rows in the sheets {listed(tables)}; hide all but one, or choose one",
            max(tables, key=lambda name: len(sheets[name])),
        )
    if chosen is not None and chosen not in sheets:
        raise ValueError(f"expected a visible sheet out of {listed(sheets)}, got {chosen!r}; choose one", *tables[:1])
    sizes = [sum(cell is not None for cell in cells) for cells in rows]
    header = next((index for index, size in enumerate(sizes) if size > 1), 0)
    for number, (cells, formulas) in enumerate(zip(rows, written, strict=True), start=1):
        if any(cell is None and formula is not None for cell, formula in zip(cells, formulas, strict=True)):
            raise ValueError(f"row {number} holds a formula without its value; open and save it in a spreadsheet")
        if number > header and not _is_empty(cells):
            yield number, [str(cell) if isinstance(cell, date | time) else cell for cell in cells]


def _rows(sheet: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a sheet; the size that a file declares is not trusted."""
    sheet.reset_dimensions()
    return list(sheet.iter_rows(values_only=True))


def _is_empty(cells: Sequence[Any]) -> bool:
    return all(cell is None for cell in cells)
