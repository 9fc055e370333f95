"""Workbooks of spreadsheets (``.xlsx``), read with the extra ``xlsx``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from datetime import date, time
from importlib import import_module
from typing import Any, BinaryIO

from refusal_index.data.archives import check_unpacked_size

MAX_UNPACKED = 256 << 20
"""Maximum uncompressed bytes of a workbook."""


def workbook_rows(file: BinaryIO) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of the first sheet that are not empty, with their numbers from 1.

    A cell holds text, a number, a truth value or None; a date is text. Raises ValueError if the file cannot be read, or
    unpacks to more than `MAX_UNPACKED` bytes.
    """
    try:
        openpyxl = import_module("openpyxl")
    except ImportError as error:
        raise ValueError("run pip install 'refusal-index[xlsx]', or save it as CSV") from error
    try:
        with zipfile.ZipFile(file) as archive:
            check_unpacked_size(archive, MAX_UNPACKED, MAX_UNPACKED)
        sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # the size that a file declares is not trusted
        for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
            if any(cell is not None for cell in cells):
                yield number, [str(cell) if isinstance(cell, date | time) else cell for cell in cells]
    except (OSError, KeyError, IndexError, ValueError, SyntaxError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{error}; save it again, or as CSV") from error
