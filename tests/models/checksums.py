"""Rows of a store with valid checksums that someone else wrote, as an attacker can."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from refusal_index.runs.store_check import checksum

STORED = ("questions", "asked", "replies", "retired", "failures")


def write_checksums(connection: sqlite3.Connection, tables: Iterable[str] = STORED) -> None:
    """Give every row of some tables the checksum of its current content."""
    connection.create_function("checksum_of", -1, lambda *values: checksum(values), deterministic=True)
    for table in tables:
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()[:-1])
        connection.execute(f"UPDATE {table} SET checksum = checksum_of({columns})")  # noqa: S608 - our own names
