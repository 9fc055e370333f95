"""The tables of a store of replies: made, brought up to date from an earlier release, and checked when it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from refusal_index.engines.settings import MOST_DRAWS
from refusal_index.engines.store_check import ADVICE, StoreError, check_schema, check_texts, check_values
from refusal_index.outcomes.errors import shortened

STORE_VERSION = 4
"""Version of the tables; a store with a higher one comes from a newer release and is refused."""

IN_BATCH = "in_batch INTEGER NOT NULL DEFAULT 0"
"""The column that stores before this version lack."""

TABLES = f"""
CREATE TABLE IF NOT EXISTS questions (question_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    variant TEXT, question_id TEXT, draws INTEGER NOT NULL, PRIMARY KEY (variant, question_id));
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, {IN_BATCH},
    PRIMARY KEY (question_id, variant, pass, asked, draw, attempt));
CREATE TABLE IF NOT EXISTS retired (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT, {IN_BATCH});
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
    """Make the tables of a new store, bring those of an earlier release up to date, and check what lies in them.

    Raises
    ------
    StoreError
        If a newer release wrote it, it is damaged, or it holds what no run puts there.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > STORE_VERSION:
        raise StoreError(
            f"{path}: expected a store of version {STORE_VERSION}, got {version}; a newer release wrote it: upgrade "
            "refusal-index"
        )
    is_earlier = 0 < version < STORE_VERSION
    tables = TABLES.replace(f", {IN_BATCH}", "") if is_earlier else TABLES
    is_whole = check_schema(connection, tables, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # safe against the end of the process
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if version < STORE_VERSION or not is_whole:  # else whoever only reads changes nothing
        _bring_up(connection, tables, is_earlier=is_earlier)
    check_values(connection, TABLES, path)
    check_texts(connection, TABLES)
    _check_asked(connection, path)


def _bring_up(connection: sqlite3.Connection, tables: str, *, is_earlier: bool) -> None:
    connection.executescript(tables)
    connection.execute("BEGIN")  # whatever ends the process leaves all of it as it was, or as it will be
    for table in OF_REPLIES if is_earlier else ():
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {IN_BATCH}")
    connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
    connection.commit()


def _check_asked(connection: sqlite3.Connection, path: Path | None) -> None:
    lost = connection.execute(UNKNOWN_QUESTION).fetchone()
    if lost is not None:
        raise StoreError(f"{path}: question {shortened(lost[0])} is asked and not there; {ADVICE}")
    (most,) = connection.execute("SELECT max(draws) FROM asked").fetchone()
    if most is not None and most > MOST_DRAWS:
        raise StoreError(f"{path}: expected at most {MOST_DRAWS:,} draws of a question, got {most:,}; {ADVICE}")
