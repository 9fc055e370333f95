"""The store of replies: everything that a run paid for, in one SQLite file in its folder.

Each reply is committed as it comes, so that whatever ends the process loses none. The place of a request (question,
variant, pass, who is asked, draw, attempt) is the key: what is there is never asked again, and the first reply stays.
Beside the replies lie those that were set aside to be asked for again, the questions, which of them are asked under
which variant and how often, and what kept those that are not finished. Nothing in it is code, and nothing of it is held
in memory: a store may be larger.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refusal_index.data.errors import shortened
from refusal_index.data.outcome import LETTERS, Question
from refusal_index.data.text import sound_text
from refusal_index.protocol import Completion, Pass, Reply, Role, StopReason, forced_variant, is_auxiliary
from refusal_index.redaction import redacted, redacted_in
from refusal_index.runs.settings import MAX_DRAWS
from refusal_index.runs.store_check import (
    ADVICE,
    TABLES,
    StoreError,
    check_rows,
    check_schema,
    check_values,
    connect,
    with_checksum,
)

STORE_VERSION = 6
"""Version of the tables; a store with another one is refused."""

OF_REPLIES = "replies", "retired"
"""The tables that hold replies."""

UNKNOWN_QUESTION = "SELECT question_id FROM asked WHERE question_id NOT IN (SELECT question_id FROM questions) LIMIT 1"

MAX_REPLY = 16 << 20
"""Most characters of a reply that are kept, and of its log probabilities, which are left out if there are more."""

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
            "choose another folder"
        )
    is_whole = check_schema(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 1")  # else the last replies are lost with a -wal file
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if not version:  # else whoever only reads changes nothing
        connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {STORE_VERSION}; COMMIT;")
    elif not is_whole:
        raise StoreError(f"{path}: a table of the store of replies is missing; {ADVICE}")
    check_values(connection, path)
    check_rows(connection, path)
    lost = connection.execute(UNKNOWN_QUESTION).fetchone()
    if lost is not None:
        raise StoreError(f"{path}: question {shortened(lost[0])} is asked and not there; {ADVICE}")
    (most,) = connection.execute("SELECT max(draws) FROM asked").fetchone()
    if most is not None and most > MAX_DRAWS:
        raise StoreError(f"{path}: expected at most {MAX_DRAWS:,} draws of a question, got {most:,}; {ADVICE}")


Row = tuple[Any, ...]

REPLY_COLUMNS = (
    "question_id, variant, pass, asked, draw, attempt, text, stop_reason, input_tokens, output_tokens, requests, "
    "seconds, logprobs, request_sha256, in_batch, rowid"
)
"""What is read of a reply; the last tells the order in which they came."""

WORDS: Mapping[str, Mapping[str, Any]] = {
    "pass": {str(one): one for one in Pass},
    "asked": {str(one): one for one in Role},
    "stop_reason": {str(one): one for one in StopReason},
}
"""Columns of replies that hold one of a few words, and what each stands for."""

_PASSES, _ASKED, _STOP_REASONS = WORDS.values()
_FIELDS = tuple(one.name for one in fields(Question))
_values_of = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """Everything that a store holds about one question.

    Attributes
    ----------
    question
        What is asked.
    draws, failures
        How often it is asked, and what kept it from being finished, by variant.
    replies, retired
        What was said under any variant and in the forced passes, and what of that was set aside, as they came.
    """

    question: Question
    draws: dict[str, int] = field(default_factory=dict)
    replies: list[Completion] = field(default_factory=list)
    retired: list[Completion] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def completions(self, variant: str) -> list[Completion]:
        """Return every reply to its first passes under a variant, and to its forced passes."""
        return [one for one in self.replies if one.variant == variant or not one.variant]

    def effective_completions(self, variant: str) -> list[Completion]:
        """Return all that count: one that was set aside does until another takes its place."""
        said = self.completions(variant)
        return with_standing(said, [one for one in self.retired if one.variant in (variant, "")])


def with_standing(said: list[Completion], aside: Sequence[Completion]) -> list[Completion]:
    """Return replies with those set aside whose place nobody has taken, each place once."""
    if not aside:
        return said
    held = {place_of(one)[:-1] for one in said}
    return [*said, *{place_of(one): one for one in aside if place_of(one)[:-1] not in held}.values()]


def place_of(one: Completion) -> tuple[Any, ...]:
    """Return what tells a reply from all others."""
    return one.question_id, one.variant, str(one.reply.pass_), str(one.reply.role), one.draw, one.attempt


def reply_row(one: Completion) -> Row:
    """Return a reply as the store's table holds it."""
    reply = one.reply
    return with_checksum(
        one.question_id,
        one.variant,
        str(reply.pass_),
        str(reply.role),
        one.draw,
        one.attempt,
        reply.text,
        str(reply.stop_reason),
        one.input_tokens,
        one.output_tokens,
        one.requests,
        None if one.seconds is None else float(one.seconds),  # as it is read again
        one.logprobs,
        one.request_sha256,
        int(one.in_batch),
    )


def reply_of(row: Row) -> Completion:
    """Read a row of `REPLY_COLUMNS`; raises ValueError where it holds a word that stands for nothing."""
    question_id, variant, of, asked, draw, attempt, text, stop_reason, *rest, _ = row
    try:
        reply = Reply(_PASSES[of], _ASKED[asked], text, _STOP_REASONS[stop_reason])
    except KeyError as error:
        said = f"a reply to {shortened(question_id)} cannot be read ({str(error)[:200]} stands for nothing)"
        raise ValueError(said) from error
    rest[-1] = bool(rest[-1])  # whether it came in a batch
    return Completion(question_id, variant, draw, reply, attempt, *rest)


def as_stored(completions: Sequence[Completion]) -> Sequence[Completion]:
    """Return replies as they will be read again: none too long, and without keys."""
    completions = [_bounded(one) for one in completions]
    texts = [text for one in completions for text in (one.reply.text, one.logprobs) if text]
    whole = "\0".join(texts)
    # One look at all of them is much faster than one at each, and nearly always enough.
    if sound_text(whole) == whole == redacted(whole):
        return completions
    return [_without_keys(one) for one in completions]


def _bounded(one: Completion) -> Completion:
    """Return a reply of at most `MAX_REPLY` characters, a longer one as if the model had ended there."""
    if len(one.logprobs or "") > MAX_REPLY:
        one = replace(one, logprobs=None)
    if len(one.reply.text) <= MAX_REPLY:
        return one
    text = one.reply.text[:MAX_REPLY]
    return replace(one, reply=replace(one.reply, text=text, stop_reason=StopReason.LENGTH), logprobs=None)


def _without_keys(one: Completion) -> Completion:
    """Return a reply without keys. The tokens of one that has some go: they would tell it in pieces."""
    sound = sound_text(one.reply.text), one.logprobs
    clean = redacted_in(sound)
    text, logprobs = clean if clean == sound else (clean[0], None)
    if (text, logprobs) == (one.reply.text, one.logprobs):
        return one
    return replace(one, reply=replace(one.reply, text=text), logprobs=logprobs)


def question_rows(questions: Iterable[Question]) -> Iterable[Row]:
    """Yield questions as the store's table holds them."""
    for question in questions:
        document = json.dumps(dict(zip(_FIELDS, _values_of(question), strict=True)))
        yield with_checksum(question.question_id, document)


def question_of(question_id: str, document: str) -> Question:
    """Read a question; raises ValueError, TypeError, KeyError or RecursionError where it is none."""
    held = json.loads(document)
    question = Question(**{**held, "aliases": tuple(held["aliases"]), "choices": tuple(held["choices"])})
    optional = (question.gold, question.topic, question.context, question.pattern)
    texts = [question.text, *question.aliases, *question.choices, *(one for one in optional if one is not None)]
    if question.question_id != question_id or len(question.choices) > len(LETTERS):
        raise ValueError(f"expected its own id and at most {len(LETTERS)} choices")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected text")
    return question


__all__ = ["STORE_VERSION", "TABLES", "QuestionRecord", "ReplyStore", "StoreError", "StoreGoneError"]

VARIANTS = """
WITH RECURSIVE found(variant) AS (
    SELECT min(variant) FROM asked
    UNION ALL SELECT (SELECT min(variant) FROM asked WHERE variant > found.variant) FROM found
    WHERE variant IS NOT NULL)
SELECT variant FROM found WHERE variant IS NOT NULL
"""
"""One step along the key a variant, where DISTINCT would go through all that is asked."""

# A place that is taken stays as it is; OR IGNORE would also leave out what is no reply, without a word.
INSERT_REPLY = """
INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (question_id, variant, pass, asked, draw, attempt) DO NOTHING
"""
INSERT_ASKED = """
INSERT INTO asked VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET draws = excluded.draws, checksum = excluded.checksum WHERE excluded.draws > draws
"""
AT_PLACE = "question_id = ? AND variant = ? AND pass = ? AND asked = ? AND draw = ? AND attempt = ?"
OF_VARIANT = "question_id = ? AND variant IN (?, ?)"

READ_SIZE = 200
"""How many questions are read at a time, or replies."""


class StoreGoneError(StoreError):
    """A store whose file was removed or replaced while it was open."""


class ReplyStore:
    """The replies of a run; a context manager that closes it.

    Parameters
    ----------
    path
        The file, made where there is none; None for a store in memory.

    Raises
    ------
    StoreError
        If the file cannot be opened, has another version, is damaged, or holds what no run puts there.

    Examples
    --------
    >>> from refusal_index.protocol import Reply
    >>> with ReplyStore(None) as store:
    ...     store.require("low", {Question("q1", "What is the capital of Peru?", "Lima"): 1})
    ...     store.put([Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "<answer>Lima</answer>"))])
    ...     len(store.completions("q1", "low")), len(store.completions("q1", "high"))
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
                open_tables(self._connection, path)
                self._check_words()
                if is_copy:  # what is put there would be lost
                    self._connection.execute("PRAGMA query_only = ON")
        except StoreError:
            self._connection.close()
            raise

    def _check_words(self) -> None:
        """Read a reply that cannot be read, if there is one, which says so."""
        other = " OR ".join(f"{name} NOT IN ({', '.join(map(repr, words))})" for name, words in WORDS.items())
        for table in OF_REPLIES:
            self._replies(f"SELECT {REPLY_COLUMNS} FROM {table} WHERE {other} LIMIT 1")  # noqa: S608 - words of ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._connection.close()

    def require(self, variant: str, draws: Mapping[Question, int]) -> None:
        """Take down that each question is asked so often under a variant; what was asked more often stays so."""
        with self._telling(), self._connection as connection:
            connection.executemany("INSERT OR IGNORE INTO questions VALUES (?, ?, ?)", question_rows(draws))
            connection.executemany(
                INSERT_ASKED,
                (with_checksum(variant, question.question_id, count) for question, count in draws.items()),
            )

    def draws(self) -> dict[str, dict[str, int]]:
        """Return how often each question is asked, by variant and question id, in the order they were taken down.

        All of it in memory: `each_question` is for stores of any size.
        """
        found: dict[str, dict[str, int]] = {}
        for variant, question_id, draws in self._rows("SELECT variant, question_id, draws FROM asked ORDER BY rowid"):
            found.setdefault(variant, {})[question_id] = draws
        return found

    def variants(self) -> list[str]:
        """Return the variants that something is asked under, in the order of their names."""
        return [variant for (variant,) in self._rows(VARIANTS)]

    def questions(self) -> dict[str, Question]:
        """Return every question by its id, in the order they were taken down; all of them in memory."""
        rows = self._rows("SELECT question_id, document FROM questions ORDER BY rowid")
        return {question_id: self._question(question_id, document) for question_id, document in rows}

    def question(self, question_id: str) -> Question | None:
        """Return one question; None if there is none of that id."""
        rows = self._rows("SELECT question_id, document FROM questions WHERE question_id = ?", question_id)
        return self._question(*rows[0]) if rows else None

    def _question(self, question_id: str, document: str) -> Question:
        try:
            return question_of(question_id, document)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            said = f"{type(error).__name__}: {error}"[:200]
            raise StoreError(
                f"{self.path}: question {shortened(question_id)} cannot be read ({said}); {ADVICE}"
            ) from error

    def each_question(self) -> Iterator[QuestionRecord]:
        """Yield each question with all that is about it, in the order of ids, whatever is put meanwhile.

        A few hundred are read at a time, so that a store of any size takes little memory.
        """
        query, start = (
            "SELECT question_id, document FROM questions WHERE question_id >= ? ORDER BY question_id LIMIT ?",
            "",
        )
        while rows := self._rows(query, start, READ_SIZE):
            yield from self._records(rows)
            start = rows[-1][0] + "\0"  # no id lies between

    def _records(self, rows: Sequence[Row]) -> Iterator[QuestionRecord]:
        """Yield what is about some questions that follow each other."""
        found = {question_id: QuestionRecord(self._question(question_id, document)) for question_id, document in rows}
        ends, between = (rows[0][0], rows[-1][0]), "WHERE question_id BETWEEN ? AND ?"
        for variant in self.variants():
            for table, value, of in (("asked", "draws", "draws"), ("failures", "error", "failures")):
                query = f"SELECT question_id, {value} FROM {table} {between} AND variant = ?"  # noqa: S608 - names of ours
                for question_id, held in self._rows(query, *ends, variant):
                    if question_id in found:
                        getattr(found[question_id], of)[variant] = held
        for table in OF_REPLIES:
            query = f"SELECT {REPLY_COLUMNS} FROM {table} {between}"  # noqa: S608
            for one in self._replies(query, *ends):
                if one.question_id in found:
                    getattr(found[one.question_id], table).append(one)
        yield from found.values()

    def put(self, completions: Sequence[Completion]) -> None:
        """Keep replies, all of them or none; they are safe when this returns, and a place that is taken stays as it is.

        Raises
        ------
        StoreError
            If they cannot be written, as when the disk is full, or their file has gone: then nothing further should
            be paid for.
        """
        with self._telling(), self._connection as connection:
            connection.executemany(INSERT_REPLY, map(reply_row, as_stored(completions)))
        self._check_there()

    def _check_there(self) -> None:
        """Raise StoreError if the file is no longer where it was: SQLite goes on writing into what nobody finds."""
        if self._place is not None and _file_at(self._place) != self._file:
            raise StoreGoneError(
                f"{self.path}: the store of replies was removed, moved or replaced while a run writes to it; put it "
                "back"
            )

    def completions(self, question_id: str, variant: str) -> list[Completion]:
        """Return every reply about a question: to first passes under the variant, and to its forced passes."""
        return self._of_variant("replies", question_id, variant)

    def effective_completions(self, question_id: str, variant: str) -> list[Completion]:
        """Return all replies about a question that count: one that was set aside does until another takes its place."""
        return with_standing(self.completions(question_id, variant), self._of_variant("retired", question_id, variant))

    def _of_variant(self, table: str, question_id: str, variant: str) -> list[Completion]:
        query = f"SELECT {REPLY_COLUMNS} FROM {table} WHERE {OF_VARIANT}"  # noqa: S608 - names of ours
        return self._replies(query, question_id, variant, forced_variant(variant))

    def has_reply_from(self, asked: Role) -> bool:
        """Whether somebody has replied, be it that all of it was set aside."""
        heard = "SELECT 1 FROM {} WHERE asked = ? LIMIT 1"
        return any(self._rows(heard.format(table), str(asked)) for table in OF_REPLIES)

    def replies(self) -> Iterator[Completion]:
        """Yield every reply in the order they came, whatever is put meanwhile; few are read at a time."""
        return self._each("replies")

    def retire(self, completions: Sequence[Completion]) -> None:
        """Set replies aside, so that they are asked for again; what they took still counts."""
        places = [place_of(one) for one in completions]
        with self._telling(), self._connection as connection:
            connection.executemany(f"INSERT INTO retired SELECT * FROM replies WHERE {AT_PLACE}", places)  # noqa: S608
            connection.executemany(f"DELETE FROM replies WHERE {AT_PLACE}", places)  # noqa: S608

    def retired(self) -> Iterator[Completion]:
        """Yield every reply that was set aside, in the order they were."""
        return self._each("retired")

    def paid(self, *, auxiliary: bool = False) -> Iterator[Completion]:
        """Yield every reply of the run's two passes, or every auxiliary one, with those that were set aside."""
        return (one for one in chain(self.replies(), self.retired()) if is_auxiliary(one.variant) is auxiliary)

    def times_retired(self, question_id: str, variant: str, of: Pass, asked: Role, draw: int) -> int:
        """Return how many replies were set aside at a place."""
        query = f"SELECT count(*) FROM retired WHERE {AT_PLACE.removesuffix(' AND attempt = ?')}"  # noqa: S608
        ((count,),) = self._rows(query, question_id, variant, str(of), str(asked), draw)
        return int(count)

    def record_failure(self, variant: str, question_id: str, error: str) -> None:
        """Take down what kept a question from being finished; `finish` takes it back."""
        told = redacted(sound_text(error))
        with self._telling(), self._connection as connection:
            row = with_checksum(variant, question_id, told)
            connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", row)

    def clear_failure(self, variant: str, question_id: str) -> None:
        """Forget what kept a question from being finished before."""
        of = "FROM failures WHERE variant = ? AND question_id = ?"
        if self._rows(f"SELECT 1 {of}", variant, question_id):  # to look costs nothing, and there is one seldom
            with self._telling(), self._connection as connection:
                connection.execute(f"DELETE {of}", (variant, question_id))

    def failures(self) -> dict[tuple[str, str], str]:
        """Return what kept questions from being finished, by variant and question id."""
        rows = self._rows("SELECT variant, question_id, error FROM failures")
        return {(variant, question_id): error for variant, question_id, error in rows}

    def copy_from(self, other: ReplyStore) -> None:
        """Take over all that another store holds."""
        questions = other.questions()
        for variant, draws in other.draws().items():
            self.require(variant, {questions[question_id]: count for question_id, count in draws.items()})
        for one in other.retired():
            self.put([one])
            self.retire([one])
        replies = other.replies()
        while some := list(islice(replies, READ_SIZE)):
            self.put(some)
        for (variant, question_id), error in other.failures().items():
            self.record_failure(variant, question_id, error)

    def _each(self, table: str) -> Iterator[Completion]:
        query = f"SELECT {REPLY_COLUMNS} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608
        last = 0
        while rows := self._rows(query, last, READ_SIZE):
            yield from self._read(rows)
            last = rows[-1][-1]

    def _replies(self, query: str, *values: object) -> list[Completion]:
        """Return replies in the order they came."""
        return self._read(sorted(self._rows(query, *values), key=itemgetter(-1)))  # faster than by the file

    def _read(self, rows: Sequence[Row]) -> list[Completion]:
        try:
            return [reply_of(row) for row in rows]
        except ValueError as error:
            raise StoreError(f"{self.path}: {error}; {ADVICE}") from error

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._telling():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:  # a name in a damaged schema need not be text
            advice = f"; {ADVICE}" if _is_damage(error) else ""
            if _code(error) == sqlite3.SQLITE_READONLY:
                advice = "; it cannot be written: free some disk space, or check the permissions of its folder"
            said = " ".join(str(error).split())[:300]
            raise StoreError(f"{self.path}: the store of replies cannot be used ({said}){advice}") from error


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return which file lies at a place, whatever it is called; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: Exception) -> bool:
    return isinstance(error, UnicodeError) or _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
