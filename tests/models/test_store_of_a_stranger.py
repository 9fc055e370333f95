"""A store that is damaged or made by someone else raises a one-line error before any of it is used."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refusal_index.data.outcome import Question
from refusal_index.protocol import Completion, Pass, Reply, Role
from refusal_index.runs import store_check
from refusal_index.runs.store import TABLES, ReplyStore, StoreError
from tests.models.checksums import write_checksums

pytestmark = pytest.mark.timeout(120)
ASKED = Question("q", "Who?", "Ann", choices=("Ann", "Bob"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with one reply, and a failure."""
    path = tmp_path / "replies.sqlite"
    with ReplyStore(path) as store:
        store.require("low", {ASKED: 1})
        store.put([Completion("q", "low", 0, Reply(Pass.FIRST, Role.MODEL, "Ann"), 0, 3, 4, 1, 0.5, "[]", "ab")])
        store.record_failure("low", "q", "no")
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def forge(path: Path, statement: str, *values: object) -> None:
    """Change values as an attacker can, who also rewrites their checksums."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        with suppress(sqlite3.OperationalError):  # for values that are not text
            write_checksums(connection)
        connection.commit()


def refused(path: Path, said: str) -> None:
    """Expect a one-line error that names the file and says what to do."""
    with pytest.raises(StoreError) as caught:
        ReplyStore(path)
    message = str(caught.value)
    assert re.search(said, message), message
    assert str(path) in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE VIEW v AS SELECT 1", "view 'v'"),
        ("CREATE TRIGGER t AFTER INSERT ON failures BEGIN DELETE FROM replies; END", "trigger 't'"),
        ("CREATE TABLE other (x)", "table 'other'"),
        ("CREATE VIRTUAL TABLE f USING fts5 (x)", "table 'f"),
        ("CREATE INDEX i ON replies (abs(draw))", "index 'i'"),
        ("ALTER TABLE replies ADD COLUMN more TEXT", "table 'replies'"),
        ("ALTER TABLE failures RENAME COLUMN error TO text", "table 'failures'"),
    ],
)
def test_unexpected_tables_raise(path, statement, what):
    change(path, statement)
    before = path.read_bytes()
    refused(path, f"got the {what}.*tampered with: restore the file from a copy")
    assert path.read_bytes() == before


def test_view_in_place_of_a_table_is_not_queried(path):
    change(path, "DROP TABLE failures", "CREATE VIEW failures AS SELECT 'low', 'q', randomblob(1000000000)")
    refused(path, "got the view 'failures'")


def test_table_with_defaults_raises(path):
    columns = "variant TEXT, question_id TEXT, error TEXT NOT NULL DEFAULT (hex(randomblob(9)))"
    change(path, "DROP TABLE failures", f"CREATE TABLE failures ({columns}, PRIMARY KEY (variant, question_id))")
    refused(path, "got the table 'failures'")


def test_schema_whitespace_is_ignored_and_a_missing_table_raises(path):
    statement = (
        "CREATE TABLE failures(\n variant TEXT ,question_id TEXT, error  TEXT NOT NULL,checksum INTEGER NOT NULL,"
    )
    change(path, "DROP TABLE failures", f"{statement}\nPRIMARY KEY(variant,question_id) )")
    with ReplyStore(path) as store:
        assert len(list(store.replies())) == 1
    change(path, "DROP TABLE failures")
    refused(path, "a table of the store of replies is missing; restore the file")


def test_schema_check_covers_every_table():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        assert store_check.check_schema(connection, None)
        connection.execute("DROP TABLE asked")
        assert not store_check.check_schema(connection, None)


@pytest.mark.parametrize(
    ("change_of", "expected"),
    [
        ("UPDATE replies SET draw = 'many'", "table replies, row 1: expected text and counts"),
        ("UPDATE replies SET draw = -1", "table replies, row 1"),
        ("UPDATE replies SET draw = NULL", "table replies, row 1"),
        ("UPDATE replies SET input_tokens = 9e300", "table replies, row 1"),
        ("UPDATE replies SET input_tokens = 9223372036854775807", "table replies, row 1"),
        ("UPDATE replies SET seconds = 9e999", "table replies, row 1"),
        ("UPDATE replies SET text = x'00ff'", "table replies, row 1"),
        ("UPDATE replies SET question_id = NULL", "table replies, row 1"),
        ("UPDATE replies SET logprobs = x'80'", "table replies, row 1"),
        ("UPDATE replies SET text = CAST(x'ff80' AS TEXT)", "cannot be used"),
        ("UPDATE replies SET pass = 'third'", "a reply to 'q' cannot be read.*'third'"),
        ("UPDATE replies SET role = 'nobody'", "a reply to 'q' cannot be read.*'nobody'"),
        ("UPDATE replies SET stop_reason = 'tired'", "a reply to 'q' cannot be read.*'tired'"),
        ("UPDATE asked SET draws = 'x'", "table asked, row 1"),
        ("UPDATE asked SET question_id = 'other'", "question 'other' was asked but is missing"),
        (
            "UPDATE asked SET draws = 1 << 45",
            "expected at most 1,000,000 samples of a question, got 35,184,372",
        ),
        ("UPDATE failures SET error = 7.5, variant = x'00'", "table failures, row 1"),
    ],
)
def test_values_of_the_wrong_type_raise(path, change_of, expected):
    forge(path, change_of)
    refused(path, expected)


@pytest.mark.parametrize(
    ("change_of", "table"),
    [
        ("UPDATE replies SET text = 'Anm'", "replies"),
        ("UPDATE replies SET seconds = 0.75", "replies"),
        ("UPDATE replies SET logprobs = NULL", "replies"),
        ("UPDATE retired SET input_tokens = 2", "retired"),
        ("UPDATE questions SET document = replace(document, 'Bob', 'Rob')", "questions"),
        ("UPDATE asked SET draws = 3", "asked"),
        ("UPDATE failures SET error = 'mo'", "failures"),
        ("UPDATE failures SET checksum = 7", "failures"),
    ],
)
def test_row_with_a_wrong_checksum_raises(path, change_of, table):
    with ReplyStore(path) as store:
        store.put([Completion("q", "low", 1, Reply(Pass.FIRST, Role.MODEL, "Bob"), seconds=1)])
        store.retire(store.completions("q", "low")[1:])
    ReplyStore(path)
    change(path, change_of)
    refused(path, f"table {table}, row 1 is damaged: its checksum differs; restore the file")


def test_index_that_disagrees_with_its_table_raises(path):
    content = path.read_bytes()
    entry = b"qlowfirstmodel"
    with closing(sqlite3.connect(path)) as connection:
        size, root = (
            connection.execute("PRAGMA page_size").fetchone()[0],
            connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_replies_1'"
            ).fetchone()[0],
        )
    place = content.index(entry, (root - 1) * size)
    assert place < root * size
    path.write_bytes(content[:place] + b"r" + content[place + 1 :])
    refused(path, "the store of replies is damaged")


def test_flipped_bit_never_changes_values_silently(path):
    with ReplyStore(path) as store:
        before = contents(store)
    content = path.read_bytes()
    for bit in random.Random(7).sample(range(8 * len(content)), 200):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with suppress(StoreError), ReplyStore(path) as store:
            assert contents(store) == before, f"bit {bit}"


def contents(store: ReplyStore) -> list[object]:
    """Return everything in a store, including what is found by an index."""
    found = [store.questions(), store.draws(), store.variants(), store.failures(), store.completions("q", "low")]
    return [*found, list(store.replies()), list(store.retired()), list(store.each_question())]


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "null",
        "{",
        "{}",
        "[" * 100_000,
        '{"question_id": "q", "text": 1, "gold": null, "aliases": [], "choices": []}',
        '{"question_id": "q", "text": "x", "gold": ["a"], "aliases": [], "choices": []}',
        '{"question_id": "q", "text": "x", "gold": null, "aliases": [], "choices": [1]}',
        '{"question_id": "q", "text": "x", "gold": null, "aliases": [], "choices": 1}',
        '{"question_id": "other", "text": "x", "gold": null, "aliases": [], "choices": []}',
        '{"question_id": "q", "text": "x", "gold": null, "aliases": [], "choices": [], "more": 1}',
        json.dumps({"question_id": "q", "text": "x", "gold": None, "aliases": [], "choices": ["c"] * 27}),
    ],
)
def test_invalid_question_document_raises(path, document):
    forge(path, "UPDATE questions SET document = ?", document)
    with ReplyStore(path) as store, pytest.raises(StoreError, match="question 'q' cannot be read") as caught:
        store.questions()
    assert len(str(caught.value)) < 1000


def test_oversized_value_is_not_read(path, monkeypatch):
    monkeypatch.setattr(store_check, "MAX_VALUE_BYTES", 10_000)
    change(path, "UPDATE replies SET text = hex(zeroblob(10000))")
    refused(path, "cannot be used")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_regular_sqlite_files_are_opened(path, tmp_path, suffix, kind):
    place = path.with_name(path.name + suffix)
    place.unlink(missing_ok=True)
    if kind == "link":
        (tmp_path / "mine").write_bytes(b"mine")
        place.symlink_to(tmp_path / "mine")
    else:
        os.mkfifo(place)
    refused(path, "the store of replies cannot be used .expected a plain file, got a")
    if kind == "link":
        assert (tmp_path / "mine").read_bytes() == b"mine"


def test_sqlite_journal_naming_another_file_does_not_delete_it(path, tmp_path):
    mine = tmp_path / "mine"
    mine.write_bytes(b"\0" * 100)
    name = str(mine).encode()
    checksum = sum(name) & 0xFFFFFFFF
    tail = name + len(name).to_bytes(4, "big") + checksum.to_bytes(4, "big") + store_check.JOURNAL_MAGIC
    header = store_check.JOURNAL_MAGIC + (0).to_bytes(4, "big") + bytes(4) + (1).to_bytes(4, "big")
    header += (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    page = (0xFFFFFFFF).to_bytes(4, "big")
    path.with_name(path.name + "-journal").write_bytes(header.ljust(512, b"\0") + page + tail)
    refused(path, "names other files")
    assert mine.exists()


def damaged(path: Path) -> list[bytes]:
    content = path.read_bytes()
    half = len(content) // 2
    return [
        content[:half],
        content[:100],
        content[:half] + b"\xa5" * 4096 + content[half + 4096 :],
        b"\0" * len(content),
    ]


@pytest.mark.parametrize("number", range(4))
def test_damaged_store_raises_one_line_and_is_left_unchanged(path, number):
    content = damaged(path)[number]
    path.write_bytes(content)
    refused(path, "restore the file from a copy, or choose another folder")
    assert path.read_bytes() == content


def test_page_linked_twice_raises_instead_of_looping(tmp_path):
    path = tmp_path / "replies.sqlite"
    with ReplyStore(path) as store:
        store.put([Completion(f"q{n}", "low", 0, Reply(Pass.FIRST, Role.MODEL, "x" * 500)) for n in range(200)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'replies'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    page = (root - 1) * size
    assert content[page] == 5, "an inner page"
    first, second = (int.from_bytes(content[page + place : page + place + 2], "big") for place in (12, 14))
    content[page + second : page + second + 4] = content[page + first : page + first + 4]
    path.write_bytes(content)
    refused(path, "is damaged")


def read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the file impossible to open for writing, as on a read-only medium."""
    real = store_check._connected

    def connected(one: Path) -> sqlite3.Connection:
        if one == path:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return real(one)

    monkeypatch.setattr(store_check, "_connected", connected)


def test_read_only_store_can_be_read_and_rejects_writes(path, tmp_path, monkeypatch):
    writer = sqlite3.connect(path)  # closing it would clear its write-ahead log
    writer.execute("UPDATE failures SET error = 'only in the log beside it'")
    write_checksums(writer, ["failures"])
    writer.commit()
    place = tmp_path / "medium" / path.name
    place.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{place}{suffix}")
    writer.close()
    before = {one.name: one.read_bytes() for one in place.parent.iterdir()}
    assert "replies.sqlite-wal" in before
    read_only(place, monkeypatch)
    with ReplyStore(place) as store:
        assert len(list(store.replies())) == 1
        assert store.failures() == {("low", "q"): "only in the log beside it"}
        with pytest.raises(StoreError, match="readonly"):
            store.put([Completion("q", "low", 1, Reply(Pass.FIRST, Role.MODEL, "paid for"))])
    assert {one.name: one.read_bytes() for one in place.parent.iterdir()} == before


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=8))
def test_changed_bytes_give_a_store_or_an_error_property(path, changes):
    content = bytearray(path.read_bytes())
    for place, given_bytes in changes:
        start = place % len(content)
        content[start : start + len(given_bytes)] = given_bytes
    other = path.with_name("other.sqlite")
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{other}{suffix}").unlink(missing_ok=True)
    other.write_bytes(content)
    with suppress(StoreError), ReplyStore(other) as store:
        store.questions(), store.draws(), store.failures(), list(store.replies())
