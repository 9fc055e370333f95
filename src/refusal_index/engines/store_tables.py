"""The tables of a store of replies: made in a new file, and checked whenever it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from refusal_index.engines.settings import MOST_DRAWS
from refusal_index.engines.store_check import ADVICE, StoreError, check_schema, check_texts, check_values
from refusal_index.outcomes.errors import shortened

STORE_VERSION = 4
"""Version of the tables; a store with another one is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS questions (question_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    variant TEXT, question_id TEXT, draws INTEGER NOT NULL, PRIMARY KEY (variant, question_id));
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, in_batch INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (question_id, variant, pass, asked, draw, attempt));
CREATE TABLE IF NOT EXISTS retired (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, in_batch INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS failures (
    variant TEXT, question_id TEXT, error TEXT NOT NULL, PRIMARY KEY (variant, question_id));
CREATE INDEX IF NOT EXISTS retired_of ON retired (question_id);
"""

OF_REPLIES = "replies", "retired"
"""The tables that hold replies."""

UNKNOWN_QUESTION = "SELECT question_id FROM asked WHERE question_id NOT IN (SELECT question_id FROM questions) LIMIT 1"

CACHE_KIB = 64 << 10
"""Memory for pages of the file: replies that come in any order lie all over it."""


def open_tables(connection: sqlite3.Connection, path: Path | None) -> None:
    """Make the tables of a new store, or check those that are there and what lies in them.

    Raises
    ------
    StoreError
        If it has another version, is damaged, or holds what no run puts there.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, STORE_VERSION):
        raise StoreError(
            f"{path}: expected a store of version {STORE_VERSION}, got {version}; use the release that wrote it, or "
            "run into another folder"
        )
    is_whole = check_schema(connection, TABLES, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # safe against the end of the process
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if not version:  # else whoever only reads changes nothing
        connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {STORE_VERSION}; COMMIT;")
    elif not is_whole:
        raise StoreError(f"{path}: a table of the store of replies is missing; {ADVICE}")
    check_values(connection, TABLES, path)
    check_texts(connection, TABLES)
    _check_asked(connection, path)


def _check_asked(connection: sqlite3.Connection, path: Path | None) -> None:
    lost = connection.execute(UNKNOWN_QUESTION).fetchone()
    if lost is not None:
        raise StoreError(f"{path}: question {shortened(lost[0])} is asked and not there; {ADVICE}")
    (most,) = connection.execute("SELECT max(draws) FROM asked").fetchone()
    if most is not None and most > MOST_DRAWS:
        raise StoreError(f"{path}: expected at most {MOST_DRAWS:,} draws of a question, got {most:,}; {ADVICE}")
