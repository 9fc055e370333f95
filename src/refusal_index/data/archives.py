"""Archives whose size is counted while they are unpacked."""

from __future__ import annotations

import zipfile

BLOCK = 1 << 20
"""Bytes that are unpacked at a time."""


def check_unpacked_size(archive: zipfile.ZipFile, max_entry: int, max_total: int) -> None:
    """Raise ValueError if an archive is too large when unpacked, regardless of the sizes that it declares.

    - `max_entry`, `max_total`: maximum number of bytes of an entry, and of all.
    """
    total = 0
    for entry in archive.infolist():
        size = 0
        with archive.open(entry) as part:
            while block := part.read(BLOCK):
                size += len(block)
                if size > max_entry or total + size > max_total:
                    limits = f"{max_entry:,} bytes in {entry.filename} and {max_total:,} in all"
                    raise ValueError(f"expected at most {limits} when unpacked")
        total += size
