"""Opening a store from an untrusted source: files, schema and values are checked before use.

A SQLite file holds no code, but views and triggers run when used, a rollback journal can name another file to delete,
and a page that is linked twice makes a small file endless.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from zlib import crc32

from refusal_index.data.files import check_plain, opened_file, read_plain, working_folder
from refusal_index.errors import RefusalIndexError, shortened

TABLES = """
CREATE TABLE IF NOT EXISTS questions (question_id TEXT PRIMARY KEY, document TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    variant TEXT, question_id TEXT, draws INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (variant, question_id));
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT, variant TEXT, pass TEXT, role TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, in_batch INTEGER NOT NULL,
    model TEXT, filtered INTEGER NOT NULL, confidence REAL, checksum INTEGER NOT NULL,
    PRIMARY KEY (question_id, variant, pass, role, draw, attempt));
CREATE TABLE IF NOT EXISTS retired (
    question_id TEXT, variant TEXT, pass TEXT, role TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, in_batch INTEGER NOT NULL,
    model TEXT, filtered INTEGER NOT NULL, confidence REAL, checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS failures (
    variant TEXT, question_id TEXT, error TEXT NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (variant, question_id));
CREATE INDEX IF NOT EXISTS retired_of ON retired (question_id);
"""

MAX_VALUE_BYTES = 256 << 20
"""Largest value, such as a reply, in bytes."""

MAX_COUNT = 2**53
"""Largest count."""

WAL = "-wal"
SHARED = "-shm"
JOURNAL = "-journal"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""Ends a rollback journal that names another file, which SQLite may delete; our journals never do."""

UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
"""SQLite's error codes when nothing can be written, for example on a full disk or a read-only medium."""

STORED = {"TEXT": "text", "INTEGER": "integer", "REAL": "real"}
ADVICE = "restore the file from a copy, or choose another folder"


class StoreError(RefusalIndexError, ValueError):
    """Raised for a store that is unreadable, damaged or of another version; the message names the file."""


def connect(path: Path | None) -> tuple[sqlite3.Connection, bool]:
    """Open or create a store's file; also return whether it is a copy, which must not be written to.

    A read-only file is copied into memory. None opens a store in memory.

    Raises
    ------
    StoreError
        If it or a file that SQLite keeps beside it is a link, a pipe or another special file, or names other files.
    """
    if path is None:
        return sqlite3.connect(":memory:", check_same_thread=False), False
    _check_files(path)
    try:
        return _connected(path), False
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in UNWRITABLE or not path.exists():
            raise
        return _copied(path), True


def check_schema(connection: sqlite3.Connection, path: Path | None) -> bool:
    """Return whether all tables exist; raise StoreError if there is anything else."""
    expected = _schema()
    names = _table_names()
    schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    for kind, name, table, statement in schema:
        of_a_key = kind == "index" and statement is None and table in names
        if not of_a_key and _plain(statement) != expected.get((kind, name), ""):
            raise StoreError(
                f"{path}: expected the tables {', '.join(names)} as this release makes them, got the {kind} "
                f"{shortened(name)}; it is not a store of replies, or was tampered with: {ADVICE}"
            )
    return expected.keys() <= {(kind, name) for kind, name, _, _ in schema}


def check_values(connection: sqlite3.Connection, path: Path | None) -> None:
    """Raise StoreError if the file is damaged or a value has the wrong type; call after `check_schema`."""
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        raise StoreError(f"{path}: the store of replies is damaged ({' '.join(result.split())[:200]}); {ADVICE}")
    for name in _table_names():
        wrong = " OR ".join(_conditions(connection, name))
        row = connection.execute(f"SELECT rowid FROM {name} WHERE {wrong} LIMIT 1").fetchone()  # noqa: S608 - our own names
        if row:
            raise StoreError(f"{path}: table {name}, row {row[0]}: expected text and counts from 0; {ADVICE}")


def check_rows(connection: sqlite3.Connection, path: Path | None) -> None:
    """Raise StoreError if a row's checksum is wrong, and sqlite3.Error or UnicodeError if a text is invalid.

    One row is held in memory at a time.
    """
    for table in _table_names():
        for row in connection.execute(f"SELECT rowid, * FROM {table}"):  # noqa: S608 - our own names
            if checksum(row[1:-1]) != row[-1]:
                raise StoreError(f"{path}: table {table}, row {row[0]} is damaged: its checksum differs; {ADVICE}")


def checksum(values: tuple[object, ...]) -> int:
    """Return the checksum of a row, which its last column holds, from the values before it.

    Examples
    --------
    >>> checksum(("low", "q1", 1))
    1865433642
    """
    return crc32(ascii(values).encode())


def with_checksum(*values: object) -> tuple[object, ...]:
    """Return a row of values and their checksum."""
    return *values, checksum(values)


def _conditions(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """Yield SQL conditions that are true for invalid values of a table."""
    for _, name, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})").fetchall():
        wrong = f"typeof({name}) != '{STORED[kind]}'"
        yield wrong if required or key else f"({name} IS NOT NULL AND {wrong})"
        if kind != "TEXT":
            yield f"{name} NOT BETWEEN 0 AND {MAX_COUNT}"


def _table_names() -> list[str]:
    return [name for kind, name in _schema() if kind == "table"]


@cache
def _schema() -> dict[tuple[str, str], str | None]:
    """Return the CREATE statements of tables and indices as SQLite writes them, by type and name."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return {(kind, name): _plain(statement) for kind, name, statement in rows}


def _plain(statement: str | None) -> str | None:
    """Return a statement with whitespace normalised."""
    return None if statement is None else re.sub(r"\s*([(),])\s*|\s+", lambda match: match[1] or " ", statement)


def _check_files(path: Path) -> None:
    for suffix in ("", WAL, SHARED, JOURNAL):
        companion = path.with_name(path.name + suffix)
        try:
            check_plain(companion)
            if suffix == JOURNAL:
                _check_journal(companion)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                f"{companion}: the store of replies cannot be used ({error.strerror}); remove it, or {ADVICE}"
            ) from error


def _check_journal(path: Path) -> None:
    with opened_file(path) as file:
        if path.stat().st_size >= len(JOURNAL_MAGIC):
            file.seek(-len(JOURNAL_MAGIC), 2)
            if file.read() == JOURNAL_MAGIC:
                raise StoreError(f"{path}: this journal names other files, which that of a store never does; {ADVICE}")


def _connected(path: Path) -> sqlite3.Connection:
    # The store may be used in a thread of the caller's, but never in two at once.
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        _guard(connection)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # SQLite opens the file on first access
    except (sqlite3.Error, UnicodeError):
        connection.close()
        raise
    return connection


def _guard(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)


def _copied(path: Path) -> sqlite3.Connection:
    """Return a copy of the database in memory."""
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with working_folder() as folder:
        copy = folder / path.name
        for suffix in ("", WAL):
            companion = path.with_name(path.name + suffix)
            if companion.exists():
                copy.with_name(copy.name + suffix).write_bytes(read_plain(companion))
        with closing(_connected(copy)) as target:
            target.backup(memory)
    _guard(memory)
    return memory
