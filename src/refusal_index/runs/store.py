"""The store of replies: everything a run paid for, in one SQLite file in its folder.

Each reply is committed when it arrives, so a crash loses none. The key of a request is question, variant, pass, role,
draw and attempt; a request with a stored reply is not sent again, and the first reply is kept. The store also holds
replies set aside to be requested again, the questions, their number of draws under each variant, and the errors of
unfinished questions. It holds no code, and may be larger than memory.
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

from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import LETTERS, Question
from refusal_index.data.text import sound_text
from refusal_index.errors import shortened
from refusal_index.protocol import AUXILIARY, Completion, Pass, Reply, Role, StopReason, forced_variant, is_auxiliary
from refusal_index.redaction import redacted_error, without_credentials
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

STORE_VERSION = 8
"""Version of the tables; a store with another one is refused."""

OF_REPLIES = "replies", "retired"
"""Tables that hold replies."""


MAX_REPLY = 16 << 20
"""Longest reply that is kept, in characters; longer log probabilities are dropped."""

CACHE_KIB = 64 << 10
"""Page cache in KiB; replies that arrive in any order are spread over the whole file."""


def open_tables(connection: sqlite3.Connection, path: Path | None) -> None:
    """Create the tables of a new store, or check the tables and rows of an existing one.

    Raises
    ------
    StoreError
        If it has another version, is damaged, or holds anything that no run writes.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, STORE_VERSION):
        raise StoreError(
            f"{path}: expected a store of version {STORE_VERSION}, got {version}; its results can be shown, but only "
            "the release that wrote it can resume or score them: use that, or choose another folder"
        )
    is_whole = check_schema(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 1")  # otherwise the last replies would be lost with the -wal file
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if not version:  # reading alone changes nothing
        connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {STORE_VERSION}; COMMIT;")
    elif not is_whole:
        raise StoreError(f"{path}: a table of the store of replies is missing; {ADVICE}")
    check_values(connection, path)
    check_rows(connection, path)
    lost = connection.execute(
        "SELECT question_id FROM asked WHERE question_id NOT IN (SELECT question_id FROM questions) LIMIT 1"
    ).fetchone()
    if lost is not None:
        raise StoreError(f"{path}: question {shortened(lost[0])} was asked but is missing; {ADVICE}")
    (max_draws,) = connection.execute("SELECT max(draws) FROM asked").fetchone()
    if max_draws is not None and max_draws > MAX_DRAWS:
        raise StoreError(f"{path}: expected at most {MAX_DRAWS:,} samples of a question, got {max_draws:,}; {ADVICE}")


Row = tuple[Any, ...]

REPLY_COLUMNS = (
    "question_id, variant, pass, role, draw, attempt, text, stop_reason, input_tokens, output_tokens, requests, "
    "seconds, logprobs, request_sha256, in_batch, model, filtered, confidence, rowid"
)
"""Columns that make up a reply; the last gives the order of arrival."""

WORDS: Mapping[str, Mapping[str, Any]] = {
    "pass": {str(pass_): pass_ for pass_ in Pass},
    "role": {str(role): role for role in Role},
    "stop_reason": {str(reason): reason for reason in StopReason},
}
"""Enumerated columns of replies, and the type of each."""

_PASSES, _ROLES, _STOP_REASONS = WORDS.values()
_FIELDS = tuple(field_.name for field_ in fields(Question))
_values_of = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """Everything the store holds about one question.

    Attributes
    ----------
    question
        The question.
    draws, failures
        Its number of draws and its error, by variant.
    replies, retired
        Replies under all variants and in the forced pass, and those set aside, in order of arrival.
    """

    question: Question
    draws: dict[str, int] = field(default_factory=dict)
    replies: list[Completion] = field(default_factory=list)
    retired: list[Completion] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def completions(self, variant: str) -> list[Completion]:
        """Return every reply to its first passes under a variant, and to its forced passes."""
        return [reply for reply in self.replies if reply.variant == variant or not reply.variant]

    def effective_completions(self, variant: str) -> list[Completion]:
        """Return all that count: one that was set aside does until another takes its place."""
        completions = self.completions(variant)
        return with_unreplaced(completions, [reply for reply in self.retired if reply.variant in (variant, "")])


def with_unreplaced(completions: list[Completion], set_aside: Sequence[Completion]) -> list[Completion]:
    """Return replies, and those set aside that no new reply has replaced, one per place."""
    if not set_aside:
        return completions
    places = {place_of(completion)[:-1] for completion in completions}
    unreplaced = {place_of(reply): reply for reply in set_aside if place_of(reply)[:-1] not in places}
    return [*completions, *unreplaced.values()]


def place_of(completion: Completion) -> tuple[Any, ...]:
    """Return the key of a reply."""
    reply = completion.reply
    question_id = completion.question_id
    variant = completion.variant
    return question_id, variant, str(reply.pass_), str(reply.role), completion.draw, completion.attempt


def reply_row(completion: Completion) -> Row:
    """Return a reply as a row of its table."""
    reply = completion.reply
    return with_checksum(
        completion.question_id,
        completion.variant,
        str(reply.pass_),
        str(reply.role),
        completion.draw,
        completion.attempt,
        reply.text,
        str(reply.stop_reason),
        completion.input_tokens,
        completion.output_tokens,
        completion.requests,
        None if completion.seconds is None else float(completion.seconds),  # as it is read again
        completion.logprobs,
        completion.request_sha256,
        int(completion.in_batch),
        completion.answered_by,
        int(completion.filtered),
        completion.confidence,
    )


def reply_of(row: Row) -> Completion:
    """Read a row of `REPLY_COLUMNS`; raises ValueError for an unknown enumerated value."""
    question_id, variant, pass_, role, draw, attempt, text, stop_reason, *rest = row[:14]
    in_batch, model, filtered, confidence = row[14:-1]
    try:
        reply = Reply(_PASSES[pass_], _ROLES[role], text, _STOP_REASONS[stop_reason])
    except KeyError as error:
        message = f"a reply to {shortened(question_id)} cannot be read ({str(error)[:200]} stands for nothing)"
        raise ValueError(message) from error
    rest += [bool(in_batch), model, bool(filtered), confidence]
    return Completion(question_id, variant, draw, reply, attempt, *rest)


def as_stored(completions: Sequence[Completion]) -> Sequence[Completion]:
    """Return replies as they will be read back: truncated, and without the clients' keys."""
    completions = [_bounded(completion) for completion in completions]
    texts = [text for completion in completions for text in _texts_of(completion) if text]
    joined_text = "\0".join(texts)
    # One search over all of them is much faster than one each, and nearly always enough.
    if sound_text(joined_text) == joined_text == without_credentials(joined_text):
        return completions
    return [_cleaned(completion) for completion in completions]


def _texts_of(completion: Completion) -> tuple[str | None, ...]:
    return completion.reply.text, completion.logprobs, completion.answered_by


def _bounded(completion: Completion) -> Completion:
    """Return a reply truncated to `MAX_REPLY` characters, as if the model had stopped there."""
    if len(completion.logprobs or "") > MAX_REPLY:
        completion = replace(completion, logprobs=None)
    if len(completion.reply.text) <= MAX_REPLY:
        return completion
    text = completion.reply.text[:MAX_REPLY]
    return replace(completion, reply=replace(completion.reply, text=text, stop_reason=StopReason.LENGTH), logprobs=None)


def _cleaned(completion: Completion) -> Completion:
    """Return a reply as sound text; if it holds a client's key, the key is removed and the reply marked.

    Log probabilities of its tokens go too, as they contain the key in pieces.
    """
    sound = [text and sound_text(text) for text in _texts_of(completion)]
    text, logprobs, name = [text and without_credentials(text) for text in sound]
    is_filtered = text != sound[0] or logprobs != sound[1]
    return replace(
        completion,
        reply=replace(completion.reply, text=text or ""),
        logprobs=None if is_filtered else logprobs,
        answered_by=name,
        filtered=completion.filtered or is_filtered,
    )


def question_rows(questions: Iterable[Question]) -> Iterable[Row]:
    """Yield questions as rows of their table."""
    for question in questions:
        document = json.dumps(dict(zip(_FIELDS, _values_of(question), strict=True)))
        yield with_checksum(question.question_id, document)


def question_of(question_id: str, document: str) -> Question:
    """Read a question; raises ValueError, TypeError, KeyError or RecursionError if the document is invalid."""
    values = json.loads(document)
    question = Question(**{**values, "aliases": tuple(values["aliases"]), "choices": tuple(values["choices"])})
    optional = (question.gold, question.topic, question.context, question.pattern)
    texts = [question.text, *question.aliases, *question.choices, *(text for text in optional if text is not None)]
    if question.question_id != question_id or len(question.choices) > len(LETTERS):
        raise ValueError(f"expected its own id and at most {len(LETTERS)} choices")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected text")
    return question


__all__ = [
    "STORE_VERSION",
    "TABLES",
    "QuestionRecord",
    "ReplyStore",
    "StoreError",
    "StoreGoneError",
    "StoreSharedError",
]

VARIANTS = """
WITH RECURSIVE found(variant) AS (
    SELECT min(variant) FROM asked
    UNION ALL SELECT (SELECT min(variant) FROM asked WHERE variant > found.variant) FROM found
    WHERE variant IS NOT NULL)
SELECT variant FROM found WHERE variant IS NOT NULL
"""
"""One index lookup per variant; DISTINCT would scan the whole table."""

# An existing reply is kept; OR IGNORE would also silently skip invalid rows.
INSERT_REPLY = """
INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (question_id, variant, pass, role, draw, attempt) DO NOTHING
"""
INSERT_ASKED = """
INSERT INTO asked VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET draws = excluded.draws, checksum = excluded.checksum WHERE excluded.draws > draws
"""
AT_PLACE = "question_id = ? AND variant = ? AND pass = ? AND role = ? AND draw = ? AND attempt = ?"
OF_VARIANT = "question_id = ? AND variant IN (?, ?)"

ANSWERED = """
SELECT role, model, count(*) FROM replies
WHERE model IS NOT NULL AND question_id != '' AND substr(variant, 1, ?) != ?
GROUP BY role, model ORDER BY min(rowid)
"""

READ_SIZE = 200
"""Questions or replies read at a time."""


class StoreGoneError(StoreError):
    """Raised if the file was removed or replaced while the store was open."""


class StoreSharedError(StoreError):
    """Raised if another process has written to the file while the store was open; the lock of the folder forbids it."""


class ReplyStore:
    """The replies of a run; a context manager that closes it.

    Parameters
    ----------
    path
        The file, created if missing; None for a store in memory.

    Raises
    ------
    StoreError
        If the file cannot be opened, has another version, is damaged, or holds anything that no run writes.

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
        with self._translating_errors():
            self._connection, is_copy = connect(path)
        # Absolute, as SQLite keeps it: the caller's process may change its working directory.
        self._place = None if path is None or is_copy else path.absolute()
        try:
            with self._translating_errors():
                self._file = self._place and _file_at(self._place)
                open_tables(self._connection, path)
                self._check_words()
                self._version = self._data_version()
                if is_copy:  # writes to it would be lost
                    self._connection.execute("PRAGMA query_only = ON")
        except StoreError:
            self._connection.close()
            raise

    def _check_words(self) -> None:
        """Raise if a reply has an unknown enumerated value."""
        other = " OR ".join(f"{name} NOT IN ({', '.join(map(repr, words))})" for name, words in WORDS.items())
        for table in OF_REPLIES:
            self._replies(f"SELECT {REPLY_COLUMNS} FROM {table} WHERE {other} LIMIT 1")  # noqa: S608 - words of ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._connection.close()

    def require(self, variant: str, draws: Mapping[Question, int]) -> None:
        """Record the number of draws of questions under a variant; a larger recorded number is kept."""
        with self._writing() as connection:
            connection.executemany("INSERT OR IGNORE INTO questions VALUES (?, ?, ?)", question_rows(draws))
            connection.executemany(
                INSERT_ASKED,
                (with_checksum(variant, question.question_id, count) for question, count in draws.items()),
            )

    def draws(self) -> dict[str, dict[str, int]]:
        """Return the number of draws by variant and question id, in the order they were recorded.

        Reads everything into memory; `each_question` works for a store of any size.
        """
        by_variant: dict[str, dict[str, int]] = {}
        for variant, question_id, draws in self._rows("SELECT variant, question_id, draws FROM asked ORDER BY rowid"):
            by_variant.setdefault(variant, {})[question_id] = draws
        return by_variant

    def variants(self) -> list[str]:
        """Return the variants with questions, sorted by name."""
        return [variant for (variant,) in self._rows(VARIANTS)]

    def questions(self) -> dict[str, Question]:
        """Return every question by id, in the order they were recorded; reads all into memory."""
        rows = self._rows("SELECT question_id, document FROM questions ORDER BY rowid")
        return {question_id: self._question(question_id, document) for question_id, document in rows}

    def _question(self, question_id: str, document: str) -> Question:
        try:
            return question_of(question_id, document)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise StoreError(
                f"{self.path}: question {shortened(question_id)} cannot be read ({reason}); {ADVICE}"
            ) from error

    def each_question(self) -> Iterator[QuestionRecord]:
        """Yield each question with everything about it, sorted by id, even if replies are added meanwhile.

        Reads a few hundred at a time, so that memory stays small.
        """
        query = "SELECT question_id, document FROM questions WHERE question_id >= ? ORDER BY question_id LIMIT ?"
        start = ""
        while rows := self._rows(query, start, READ_SIZE):
            yield from self._records(rows)
            start = rows[-1][0] + "\0"  # the smallest id above it

    def _records(self, rows: Sequence[Row]) -> Iterator[QuestionRecord]:
        """Yield the records of consecutive questions."""
        records = {question_id: QuestionRecord(self._question(question_id, document)) for question_id, document in rows}
        ends = (rows[0][0], rows[-1][0])
        between = "WHERE question_id BETWEEN ? AND ?"
        for variant in self.variants():
            for table, value, attribute in (("asked", "draws", "draws"), ("failures", "error", "failures")):
                query = f"SELECT question_id, {value} FROM {table} {between} AND variant = ?"  # noqa: S608 - names of ours
                for question_id, content in self._rows(query, *ends, variant):
                    if question_id in records:
                        getattr(records[question_id], attribute)[variant] = content
        for table in OF_REPLIES:
            query = f"SELECT {REPLY_COLUMNS} FROM {table} {between}"  # noqa: S608
            for reply in self._replies(query, *ends):
                if reply.question_id in records:
                    getattr(records[reply.question_id], table).append(reply)
        yield from records.values()

    def put(self, completions: Sequence[Completion]) -> None:
        """Store replies in one transaction, committed when this returns; an existing reply is kept.

        Raises
        ------
        StoreError
            If they cannot be written, for example because the disk is full or the file is gone; nothing further should
            be paid for then.
        """
        with self._writing() as connection:
            connection.executemany(INSERT_REPLY, map(reply_row, as_stored(completions)))
        self._check_there()

    def _check_there(self) -> None:
        """Raise StoreError if the file was moved or removed: SQLite would go on writing to an unlinked file."""
        if self._place is not None and _file_at(self._place) != self._file:
            raise StoreGoneError(
                f"{self.path}: the store of replies was removed, moved or replaced while a run writes to it; put it "
                "back"
            )

    def completions(self, question_id: str, variant: str) -> list[Completion]:
        """Return every reply about a question: first passes under the variant, and forced passes."""
        return self._of_variant("replies", question_id, variant)

    def effective_completions(self, question_id: str, variant: str) -> list[Completion]:
        """Return the replies about a question that count; one that was set aside counts until it is replaced."""
        return with_unreplaced(
            self.completions(question_id, variant), self._of_variant("retired", question_id, variant)
        )

    def _of_variant(self, table: str, question_id: str, variant: str) -> list[Completion]:
        query = f"SELECT {REPLY_COLUMNS} FROM {table} WHERE {OF_VARIANT}"  # noqa: S608 - names of ours
        return self._replies(query, question_id, variant, forced_variant(variant))

    def has_reply_from(self, role: str) -> bool:
        """Whether a role has replied, including replies set aside."""
        query = "SELECT 1 FROM {} WHERE role = ? LIMIT 1"
        return any(self._rows(query.format(table), str(role)) for table in OF_REPLIES)

    def answered_by(self) -> dict[str, dict[str, int]]:
        """Return the number of replies of the two passes by role and by the model's name in the response.

        Replies that were set aside, and those without a name, are left out.
        """
        by_role: dict[str, dict[str, int]] = {}
        for role, model, replies in self._rows(ANSWERED, len(AUXILIARY), AUXILIARY):
            by_role.setdefault(role, {})[model] = replies
        return by_role

    def replies(self) -> Iterator[Completion]:
        """Yield every reply in order of arrival, a few at a time, even if replies are added meanwhile."""
        return self._each("replies")

    def retire(self, completions: Sequence[Completion]) -> None:
        """Set replies aside, so that their requests are sent again; their usage still counts."""
        keys = [place_of(completion) for completion in completions]
        with self._writing() as connection:
            connection.executemany(f"INSERT INTO retired SELECT * FROM replies WHERE {AT_PLACE}", keys)  # noqa: S608
            connection.executemany(f"DELETE FROM replies WHERE {AT_PLACE}", keys)  # noqa: S608

    def retired(self) -> Iterator[Completion]:
        """Yield every reply that was set aside, in that order."""
        return self._each("retired")

    def paid(self, *, auxiliary: bool = False) -> Iterator[Completion]:
        """Yield every reply of the two passes, or every auxiliary reply, including those set aside."""
        return (reply for reply in chain(self.replies(), self.retired()) if is_auxiliary(reply.variant) is auxiliary)

    def times_retired(self, question_id: str, variant: str, pass_: Pass, role: Role, draw: int) -> int:
        """Return how many replies to a request were set aside."""
        query = f"SELECT count(*) FROM retired WHERE {AT_PLACE.removesuffix(' AND attempt = ?')}"  # noqa: S608
        ((count,),) = self._rows(query, question_id, variant, str(pass_), str(role), draw)
        return int(count)

    def record_failure(self, variant: str, question_id: str, error: str) -> None:
        """Record the error that kept a question from being finished; `clear_failure` removes it."""
        message = redacted_error(sound_text(error))
        with self._writing() as connection:
            row = with_checksum(variant, question_id, message)
            connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", row)

    def clear_failure(self, variant: str, question_id: str) -> None:
        """Remove the recorded error of a question."""
        clause = "FROM failures WHERE variant = ? AND question_id = ?"
        if self._rows(f"SELECT 1 {clause}", variant, question_id):  # a read is cheap, and a failure rare
            with self._writing() as connection:
                connection.execute(f"DELETE {clause}", (variant, question_id))

    def failures(self) -> dict[tuple[str, str], str]:
        """Return the recorded errors, by variant and question id."""
        rows = self._rows("SELECT variant, question_id, error FROM failures")
        return {(variant, question_id): error for variant, question_id, error in rows}

    def copy_from(self, other: ReplyStore) -> None:
        """Copy everything from another store."""
        questions = other.questions()
        for variant, draws in other.draws().items():
            self.require(variant, {questions[question_id]: count for question_id, count in draws.items()})
        for reply in other.retired():
            self.put([reply])
            self.retire([reply])
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
        """Return replies in order of arrival."""
        return self._read(sorted(self._rows(query, *values), key=itemgetter(-1)))  # faster than by the file

    def _read(self, rows: Sequence[Row]) -> list[Completion]:
        try:
            return [reply_of(row) for row in rows]
        except ValueError as error:
            raise StoreError(f"{self.path}: {error}; {ADVICE}") from error

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._translating_errors():
            return self._connection.execute(query, values).fetchall()

    def _data_version(self) -> int:
        """Return a number that changes when another connection writes to the file."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, and commit it at the end; raise StoreSharedError if another process has written.

        What is pending was derived from the store as it was: a reply that another process stored would be paid for
        again.
        """
        with self._translating_errors(), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")  # from here on nobody else can write, and the check holds
            if self._data_version() != self._version:
                raise StoreSharedError(
                    f"{self.path}: another process has stored replies here while this one was running, since its file "
                    "system does not keep locks apart; wait until the other process has ended"
                )
            yield connection

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:  # names in a damaged schema may not be text
            code = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
            is_damaged = isinstance(error, UnicodeError) or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
            advice = f"; {ADVICE}" if is_damaged else ""
            if code == sqlite3.SQLITE_READONLY:
                advice = "; it cannot be written: free some disk space, or check the permissions of its folder"
            reason = " ".join(str(error).split())[:300]
            raise StoreError(f"{self.path}: the store of replies cannot be used ({reason}){advice}") from error


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the store of a folder; raise StoreError if the replies behind its outcome table are missing.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to create the file if it does not exist; otherwise an empty store in memory is returned.
    """
    if folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size):
        raise StoreError(
            f"{folder.replies}: expected the replies from which {folder.outcomes.name} was made, found none; restore "
            "the file, or evaluate into another folder"
        )
    second = folder.path / "confidence" / folder.replies.name
    if second.exists():
        raise StoreError(
            f"{second}: expected the replies of confidence in {folder.replies}, got a separate store; run "
            "into another folder"
        )
    return ReplyStore(folder.replies if made or folder.replies.exists() else None)
