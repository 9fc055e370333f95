"""The store of replies: everything that a run paid for, in one SQLite file of its folder.

Each reply is committed as it comes, so that whatever ends the process loses none. The place of a request (question,
variant, pass, who is asked, draw, attempt) is the key: what is there is never asked again, and the first reply stays.
Beside the replies lie those that were set aside to be asked for again, the questions, which of them are asked under
which variant and how often, and what kept those that are not finished. Nothing in it is code.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refusal_index.engines.settings import MOST_DRAWS
from refusal_index.engines.store_check import ADVICE, StoreError, check_schema, check_values, connect
from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.question import LETTERS, Question
from refusal_index.outcomes.text import sound_text
from refusal_index.protocol import Asked, Completion, Pass, Reply, StopReason
from refusal_index.redaction import redacted, redacted_in

__all__ = ["STORE_VERSION", "TABLES", "ReplyStore", "StoreError", "StoreGoneError"]

STORE_VERSION = 2
"""Version of the tables; a store with a higher one comes from a newer release and is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS questions (question_id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS asked (
    variant TEXT, question_id TEXT, draws INTEGER NOT NULL, PRIMARY KEY (variant, question_id));
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT,
    PRIMARY KEY (question_id, variant, pass, asked, draw, attempt));
CREATE TABLE IF NOT EXISTS retired (
    question_id TEXT, variant TEXT, pass TEXT, asked TEXT, draw INTEGER, attempt INTEGER,
    text TEXT NOT NULL, stop_reason TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
    seconds REAL, logprobs TEXT, request_sha256 TEXT);
CREATE TABLE IF NOT EXISTS failures (
    variant TEXT, question_id TEXT, error TEXT NOT NULL, PRIMARY KEY (variant, question_id));
"""

UNKNOWN_QUESTION = "SELECT question_id FROM asked WHERE question_id NOT IN (SELECT question_id FROM questions) LIMIT 1"
INSERT_REPLY = "INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
AT_PLACE = "question_id = ? AND variant = ? AND pass = ? AND asked = ? AND draw = ? AND attempt = ?"


class StoreGoneError(StoreError):
    """A store whose file was taken away while it is open."""


class ReplyStore:
    """The replies of a run; a context manager that closes it.

    Parameters
    ----------
    path
        The file, made where there is none; None for a store in memory.

    Raises
    ------
    StoreError
        If the file cannot be opened, a newer release wrote it, it is damaged, or it holds what no run puts there.

    Examples
    --------
    >>> with ReplyStore(None) as store:
    ...     store.ask("low", {Question("q1", "What is the capital of Peru?", "Lima"): 1})
    ...     store.put([Completion("q1", "low", 0, Reply(Pass.FIRST, Asked.MODEL, "<answer>Lima</answer>"))])
    ...     len(store.said("q1", "low")), len(store.said("q1", "high"))
    (1, 0)
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        with self._telling():
            self._connection, is_copy = connect(path)
        # Absolute, as SQLite keeps it: whoever evaluates in a process of theirs may change its working directory.
        self._place = None if path is None or is_copy else path.absolute()
        try:
            with self._telling():
                self._file = self._place and _file_at(self._place)
                self._open()
                if is_copy:  # what is put there would be lost
                    self._connection.execute("PRAGMA query_only = ON")
            self._load()
        except StoreError:
            self._connection.close()
            raise

    def _load(self) -> None:
        self._said: dict[str, list[Completion]] = {}
        for one in self._read("replies"):
            self._said.setdefault(one.question_id, []).append(one)
        self._failures = set(self.failures())
        self._retired: dict[str, list[Completion]] = {}
        for one in self._read("retired"):
            self._retired.setdefault(one.question_id, []).append(one)
        self._places = {_place(one) for replies in self._said.values() for one in replies}

    def _open(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > STORE_VERSION:
            raise StoreError(
                f"{self.path}: expected a store of version {STORE_VERSION}, got {version}; a newer release wrote it: "
                "upgrade refusal-index"
            )
        is_whole = check_schema(self._connection, TABLES, self.path)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # safe against the end of the process
        if version < STORE_VERSION or not is_whole:  # else whoever only reads changes nothing
            self._connection.executescript(TABLES)
            self._connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
            self._connection.commit()
        check_values(self._connection, TABLES, self.path)
        lost = self._connection.execute(UNKNOWN_QUESTION).fetchone()
        if lost is not None:
            raise StoreError(f"{self.path}: question {shortened(lost[0])} is asked and not there; {ADVICE}")
        (most,) = self._connection.execute("SELECT max(draws) FROM asked").fetchone()
        if most is not None and most > MOST_DRAWS:
            raise StoreError(
                f"{self.path}: expected at most {MOST_DRAWS:,} draws of a question, got {most:,}; {ADVICE}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._connection.close()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked yet."""
        return not self._said and not self.asked()

    def ask(self, variant: str, draws: Mapping[Question, int]) -> None:
        """Take down that each question is asked so often under a variant; what was asked more often stays so."""
        with self._telling(), self._connection as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO questions VALUES (?, ?)",
                [(question.question_id, json.dumps(asdict(question))) for question in draws],
            )
            connection.executemany(
                "INSERT INTO asked VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET draws = max(draws, excluded.draws)",
                [(variant, question.question_id, count) for question, count in draws.items()],
            )

    def asked(self) -> dict[str, dict[str, int]]:
        """Return how often each question is asked, by variant and question id, in the order they were taken down."""
        found: dict[str, dict[str, int]] = {}
        for variant, question_id, draws in self._rows("SELECT variant, question_id, draws FROM asked ORDER BY rowid"):
            found.setdefault(variant, {})[question_id] = draws
        return found

    def questions(self) -> dict[str, Question]:
        """Return every question by its id, in the order they were taken down."""
        rows = self._rows("SELECT question_id, document FROM questions ORDER BY rowid")
        return {question_id: self._question(question_id, document) for question_id, document in rows}

    def _question(self, question_id: str, document: str) -> Question:
        try:
            return _question(question_id, document)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            said = f"{type(error).__name__}: {error}"[:200]
            raise StoreError(
                f"{self.path}: question {shortened(question_id)} cannot be read ({said}); {ADVICE}"
            ) from error

    def put(self, completions: Sequence[Completion]) -> None:
        """Keep replies, all of them or none; they are safe when this returns, and a place that is taken stays as it is.

        Raises
        ------
        StoreError
            If they cannot be written, as when the disk is full, or their file has gone: then nothing further should
            be paid for.
        """
        new = [_plain(one) for one in completions if _place(one) not in self._places]
        with self._telling(), self._connection as connection:
            connection.executemany(INSERT_REPLY, map(_row, new))
        for one in new:
            self._places.add(_place(one))
            self._said.setdefault(one.question_id, []).append(one)
        self._check_there()

    def _check_there(self) -> None:
        """Raise StoreError if the file is no longer where it was: SQLite goes on writing into what nobody finds."""
        if self._place is not None and _file_at(self._place) != self._file:
            raise StoreGoneError(
                f"{self.path}: the store of replies was removed, moved or replaced while a run writes to it; put it "
                "back"
            )

    def said(self, question_id: str, variant: str) -> list[Completion]:
        """Return every reply about a question: to first passes under the variant, and to its forced passes."""
        return [one for one in self._said.get(question_id, ()) if one.variant in (variant, "")]

    def standing(self, question_id: str, variant: str) -> list[Completion]:
        """Return all replies about a question that count: one that was set aside does until another takes its place."""
        said = self.said(question_id, variant)
        held = {_place(one)[:-1] for one in said}
        aside = (one for one in self._retired.get(question_id, ()) if one.variant in (variant, ""))
        return [*said, *{_place(one): one for one in aside if _place(one)[:-1] not in held}.values()]

    def has_heard(self, asked: Asked) -> bool:
        """Whether somebody has replied, be it that all of it was set aside."""
        return any(one.reply.asked is asked for one in (*self.replies(), *self.retired()))

    def replies(self) -> Iterator[Completion]:
        """Yield every reply."""
        for replies in self._said.values():
            yield from replies

    def retire(self, completions: Sequence[Completion]) -> None:
        """Set replies aside, so that they are asked for again; what they took still counts."""
        places = [tuple(map(str, _place(one)[:4])) + _place(one)[4:] for one in completions]
        with self._telling(), self._connection as connection:
            connection.executemany(f"INSERT INTO retired SELECT * FROM replies WHERE {AT_PLACE}", places)  # noqa: S608
            connection.executemany(f"DELETE FROM replies WHERE {AT_PLACE}", places)  # noqa: S608
        gone = {_place(one) for one in completions} & self._places
        self._places -= gone
        for question_id in {str(place[0]) for place in gone}:
            before = self._said[question_id]
            self._said[question_id] = [one for one in before if _place(one) not in gone]
            self._retired.setdefault(question_id, []).extend(one for one in before if _place(one) in gone)

    def retired(self) -> Iterator[Completion]:
        """Yield every reply that was set aside."""
        for replies in self._retired.values():
            yield from replies

    def times_retired(self, question_id: str, variant: str, of: Pass, asked: Asked, draw: int) -> int:
        """Return how many replies were set aside at a place."""
        place = (question_id, variant, of, asked, draw)
        return sum(_place(one)[:-1] == place for one in self._retired.get(question_id, ()))

    def fail(self, variant: str, question_id: str, error: str) -> None:
        """Take down what kept a question from being finished; `finish` takes it back."""
        told = redacted(sound_text(error))
        self._failures.add((variant, question_id))
        with self._telling(), self._connection as connection:
            connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", (variant, question_id, told))

    def finish(self, variant: str, question_id: str) -> None:
        """Forget what kept a question from being finished before."""
        if (variant, question_id) not in self._failures:
            return
        self._failures.remove((variant, question_id))
        with self._telling(), self._connection as connection:
            connection.execute("DELETE FROM failures WHERE variant = ? AND question_id = ?", (variant, question_id))

    def failures(self) -> dict[tuple[str, str], str]:
        """Return what kept questions from being finished, by variant and question id."""
        rows = self._rows("SELECT variant, question_id, error FROM failures")
        return {(variant, question_id): error for variant, question_id, error in rows}

    def put_all(self, other: ReplyStore) -> None:
        """Take over all that another store holds."""
        questions = other.questions()
        for variant, draws in other.asked().items():
            self.ask(variant, {questions[question_id]: count for question_id, count in draws.items()})
        for one in other.retired():
            self.put([one])
            self.retire([one])
        self.put(list(other.replies()))
        for (variant, question_id), error in other.failures().items():
            self.fail(variant, question_id, error)

    def _read(self, table: str) -> Iterator[Completion]:
        for row in self._rows(f"SELECT * FROM {table} ORDER BY rowid"):  # noqa: S608 - a name of ours
            question_id, variant, of, asked, draw, attempt, text, stop_reason, *rest = row
            try:
                reply = Reply(Pass(of), Asked(asked), text, StopReason(stop_reason))
            except ValueError as error:
                said = f"{self.path}: a reply to {shortened(question_id)} cannot be read ({str(error)[:200]})"
                raise StoreError(f"{said}; {ADVICE}") from error
            yield Completion(question_id, variant, draw, reply, attempt, *rest)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._telling():
            return self._connection.execute(query).fetchall()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:  # a name in a damaged schema need not be text
            advice = f"; {ADVICE}" if _is_damage(error) else ""
            if _code(error) == sqlite3.SQLITE_READONLY:
                advice = "; it cannot be written to: make room, or see what may be done in its folder"
            said = " ".join(str(error).split())[:300]
            raise StoreError(f"{self.path}: the store of replies cannot be used ({said}){advice}") from error


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return which file lies at a place, whatever it is called; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _plain(one: Completion) -> Completion:
    """Return a reply as it will be read again, without keys, so that a run and its folder tell the same.

    The tokens of a reply with a key go: they would tell it in pieces.
    """
    sound = sound_text(one.reply.text), one.logprobs
    clean = redacted_in(sound)
    text, logprobs = clean if clean == sound else (clean[0], None)
    if (text, logprobs) == (one.reply.text, one.logprobs):
        return one
    return replace(one, reply=replace(one.reply, text=text), logprobs=logprobs)


def _place(one: Completion) -> tuple[object, ...]:
    return one.question_id, one.variant, one.reply.of, one.reply.asked, one.draw, one.attempt


def _row(one: Completion) -> tuple[object, ...]:
    return (
        one.question_id,
        one.variant,
        str(one.reply.of),
        str(one.reply.asked),
        one.draw,
        one.attempt,
        one.reply.text,
        str(one.reply.stop_reason),
        one.input_tokens,
        one.output_tokens,
        one.requests,
        one.seconds,
        one.logprobs,
        one.request_sha256,
    )


def _is_damage(error: Exception) -> bool:
    return isinstance(error, UnicodeError) or _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _question(question_id: str, document: str) -> Question:
    held = json.loads(document)
    question = Question(**{**held, "aliases": tuple(held["aliases"]), "choices": tuple(held["choices"])})
    optional = (question.gold, question.topic, question.context, question.pattern)
    texts = [question.text, *question.aliases, *question.choices, *(one for one in optional if one is not None)]
    if question.question_id != question_id or len(question.choices) > len(LETTERS):
        raise ValueError(f"expected its own id and at most {len(LETTERS)} choices")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected text")
    return question
