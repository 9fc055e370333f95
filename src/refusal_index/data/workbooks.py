"""Workbooks of spreadsheets (``.xlsx``), read with the extra ``xlsx``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
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
        values, formulas = (openpyxl.load_workbook(file, read_only=True, data_only=only) for only in (True, False))
        visible = [sheet for sheet in values.worksheets if sheet.sheet_state == "visible"]
        sheets = {sheet.title: _rows(sheet, formulas[sheet.title]) for sheet in visible}
    except (OSError, KeyError, ValueError, SyntaxError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{error}; save it again, or as CSV") from error
    tables = [name for name, rows in sheets.items() if len(rows) > 1]
    if chosen is None and len(tables) > 1:
        raise ValueError(f"it has rows in the sheets {listed(tables)}; hide all but one, or choose one", tables[0])
    if chosen is not None and chosen not in sheets:
        raise ValueError(f"expected a visible sheet out of {listed(sheets)}, got {chosen!r}; choose one", *tables[:1])
    rows = sheets[chosen] if chosen is not None else sheets[tables[0]] if tables else []
    sizes = [sum(cell is not None for cell in written) for _, _, written in rows]
    n_titles = next((index for index, size in enumerate(sizes) if size > 1), 0)
    for number, cells, written in rows[n_titles:]:
        if any(cell is None and formula is not None for cell, formula in zip(cells, written, strict=True)):
            raise ValueError(f"row {number} holds a formula without its value; open and save it in a spreadsheet")
        yield number, [str(cell) if isinstance(cell, date | time) else cell for cell in cells]


def _rows(values: Any, formulas: Any) -> list[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """Return the rows of a sheet that are not empty: their numbers, their values, and what is written in them."""
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # the size that a file declares is not trusted
    pairs = zip(values.iter_rows(values_only=True), formulas.iter_rows(values_only=True), strict=True)
    rows = ((number, cells, written) for number, (cells, written) in enumerate(pairs, start=1))
    return [row for row in rows if any(cell is not None for cell in row[2])]
