"""The store of replies: safe as they come, each place once, and what was put in comes out."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.engines.breaker import CircuitBreaker
from refusal_index.engines.engine import Ask, Assignment, Failure, Response, converse
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import STORE_VERSION, ReplyStore, StoreError
from refusal_index.outcomes.question import Question
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    StopReason,
    TwoPass,
    load_prompt_set,
)

FULL = Question("b", "Who?", "Ann", ("Anne", "A."), "people", "Ann {was} it.", ("Bob", "Ann"), "Ann(e)?")
BARE = Question("a", "Who?", None)


def said(text: str, draw: int = 0, variant: str = "low", of: Pass = Pass.FIRST, **more: object) -> Completion:
    return Completion("q", variant, draw, Reply(of, Asked.MODEL, text), **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


def test_replies_come_back_word_for_word_and_in_their_order_with_all_that_they_took(path):
    replies = [
        Completion(
            "q", "low", 3, Reply(Pass.FIRST, Asked.MODEL, "ä\x00\n''", StopReason.LENGTH), 0, 7, 8, 1, 0.5, "[1]", "ab"
        ),
        Completion("q", "low", 0, Reply(Pass.FIRST, Asked.SECOND_GRADER, "A"), 1, 1, 2, 0),
        Completion("q", "", 0, Reply(Pass.FORCED, Asked.MODEL, "", StopReason.CONTENT_FILTER)),
    ]
    with ReplyStore(path) as store:
        store.put(replies)
    with ReplyStore(path) as store:
        assert store.said("q", "low") == list(store.replies()) == replies


def test_every_field_of_a_question_how_often_it_is_asked_and_failures_come_back(path):
    assert all(value for value in dataclasses.asdict(FULL).values()), "a new field is to be tried here, too"
    with ReplyStore(path) as store:
        assert store.is_empty
        store.ask("low", {FULL: 3, BARE: 1})
        store.ask("high", {BARE: 2})
        store.fail("low", "b", "the first error")
        store.fail("low", "b", "Verbindung zurückgesetzt")
        store.fail("high", "a", "no")
        store.finish("high", "a")
        store.finish("high", "never failed")
    with ReplyStore(path) as store:
        assert not store.is_empty
        assert list(store.questions().values()) == [FULL, BARE]
        assert store.asked() == {"low": {"b": 3, "a": 1}, "high": {"a": 2}}
        assert store.failures() == {("low", "b"): "Verbindung zurückgesetzt"}
        store.finish("low", "b")
    with ReplyStore(path) as store:
        assert store.failures() == {}


def test_asking_more_often_extends_and_asking_less_often_loses_nothing(path):
    with ReplyStore(path) as store:
        for draws in (2, 5, 1):
            store.ask("low", {BARE: draws})
        assert store.asked() == {"low": {"a": 5}}


def test_a_place_that_is_taken_keeps_its_first_reply(path):
    first, more = said("first", input_tokens=7), said("second", input_tokens=9)
    with ReplyStore(path) as store:
        store.put([first])
        store.put([more, said("another draw", 1)])
        store.put([dataclasses.replace(first, request_sha256="of another request")])
    with ReplyStore(path) as store:
        store.put([more])
        assert store.said("q", "low") == [first, said("another draw", 1)]


@pytest.mark.parametrize(
    "other",
    [
        {"question_id": "r"},
        {"variant": "high"},
        {"draw": 1},
        {"attempt": 1},
        {"reply": Reply(Pass.FORCED, Asked.MODEL, "x")},
        {"reply": Reply(Pass.FIRST, Asked.GRADER, "x")},
    ],
)
def test_every_part_of_a_place_tells_replies_apart(other, path):
    one = said("x")
    with ReplyStore(path) as store:
        store.put([one])
        store.put([dataclasses.replace(one, **other)])
    with ReplyStore(path) as store:
        assert len(list(store.replies())) == 2


def test_variants_share_forced_answers_and_nothing_else():
    with ReplyStore(None) as store:
        low, forced = said("low"), said("forced", variant="", of=Pass.FORCED)
        store.put([low, forced, said("high", variant="high")])
        assert store.said("q", "low") == [low, forced]
        assert store.said("q", "normal") == [forced]
        assert store.said("another", "low") == []


def test_all_that_a_store_holds_goes_over_into_another(path):
    with ReplyStore(path) as store, ReplyStore(None) as other:
        store.ask("low", {FULL: 3})
        store.put([said("x")])
        store.fail("low", "b", "no")
        other.put_all(store)
        assert other.asked() == store.asked()
        assert other.questions() == store.questions()
        assert list(other.replies()) == list(store.replies())
        assert other.failures() == store.failures()


CHILD = """
import os, signal, sys
from pathlib import Path
from refusal_index.engines.store import ReplyStore
from refusal_index.protocol import Asked, Completion, Pass, Reply
store = ReplyStore(Path(sys.argv[1]))
for draw in range(int(sys.argv[2])):
    store.put([Completion("q", "low", draw, Reply(Pass.FIRST, Asked.MODEL, str(draw)))])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_none_of_the_replies_before_it(path):
    child = subprocess.run([sys.executable, "-c", CHILD, str(path), "7"], check=False)
    assert child.returncode == -signal.SIGKILL
    with ReplyStore(path) as store:
        assert [one.reply.text for one in store.replies()] == [str(draw) for draw in range(7)]


def test_a_store_of_a_newer_release_is_refused_and_left_as_it_is(path):
    with ReplyStore(path) as store:
        store.put([said("x")])
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {STORE_VERSION + 1}")
    connection.close()
    with pytest.raises(
        StoreError,
        match=rf"{path}: expected a store of version {STORE_VERSION}, got {STORE_VERSION + 1}.*upgrade refusal-index",
    ):
        ReplyStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT text FROM replies").fetchall() == [("x",)]
    connection.close()


@pytest.mark.parametrize("content", [b"PK no database at all, and long enough to be told from one" * 99, None])
def test_a_file_that_is_no_store_is_named(path, content):
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"{path}: the store of replies cannot be used"):
        ReplyStore(path)


def test_a_damaged_store_is_named(path):
    with ReplyStore(path) as store:
        store.put([said("x" * 50_000, draw) for draw in range(5)])
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=str(path)):
        ReplyStore(path)


@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb", "\ud83d then \ude00"])
def test_halves_of_surrogate_pairs_do_no_harm_wherever_they_stand(path, lone):
    with ReplyStore(path) as store:
        store.put([said(lone)])
        store.fail("low", "q", lone)
        here = store.said("q", "low")
    with ReplyStore(path) as store:
        assert store.said("q", "low") == here, "what a run derives of its replies is derived of them again"
        assert "\ufffd" in here[0].reply.text
        assert "\ufffd" in store.failures()["low", "q"]


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_any_text_comes_back_and_only_what_no_file_holds_is_replaced(text):
    with ReplyStore(None) as store:
        store.put([said(text)])
        (row,) = store._rows("SELECT text FROM replies")
    try:
        text.encode()
    except UnicodeEncodeError:
        assert len(row[0]) <= len(text)
    else:
        assert row == (text,)


def test_replies_of_one_response_are_kept_together_or_not_at_all(path):
    with ReplyStore(path) as store:
        store.put([said("kept")])
        broken = said("x", 2, input_tokens=None)
        with pytest.raises(StoreError, match=str(path)):
            store.put([said("x", 1), broken])
        assert len(store.said("q", "low")) == 1
    with ReplyStore(path) as store:
        assert [one.reply.text for one in store.replies()] == ["kept"]


def test_a_store_that_cannot_be_written_ends_the_run_at_once_and_keeps_what_was_there(path):
    """As when the disk is full: SQLite refuses to grow the file."""
    question = Question("q", "Who?", "Ann")
    talk = Conversation(
        question, "low", TwoPass(GraderKind.MODEL, Protocol(load_prompt_set("default"), "low", GraderKind.MODEL))
    )
    breaker, sent = CircuitBreaker(), []

    async def send(ask: Ask) -> Response:
        sent.append(ask)
        return Response([("<answer>Ann</answer>" if len(sent) == 1 else "A" * 1_000_000, StopReason.STOP)])

    def explain(error: Exception, asked: Asked) -> Failure:
        raise AssertionError

    with ReplyStore(path) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        assignment = Assignment("sums", "low", [talk], Settings(), store, breaker=breaker)
        with pytest.raises(StoreError, match=str(path)):
            asyncio.run(converse(assignment, talk, send, explain))
    assert not breaker.planned
    assert str(path) in breaker.reason
    assert "make room; the same command resumes" in breaker.reason
    assert len(sent) == 2
    with ReplyStore(path) as store:
        assert [one.reply.text for one in store.replies()] == ["<answer>Ann</answer>"]


@pytest.mark.parametrize("taken", ["removed", "moved", "replaced"])
def test_a_file_that_is_taken_away_while_a_run_writes_to_it_is_told_with_the_next_reply(path, taken, monkeypatch):
    """SQLite went on writing into a file that nobody finds, and a whole run was paid for and lost."""
    there = path.absolute().parent / "run" / path.name
    there.parent.mkdir()
    with ReplyStore(there) as store:
        store.put([said("kept")])
        monkeypatch.chdir("/")  # which does no harm
        store.put([said("kept", 1)])
        moved = there.parent.rename(there.parent.with_name("elsewhere")) / there.name
        if taken == "removed":
            moved.unlink()
        if taken == "replaced":
            there.parent.mkdir()
            there.write_bytes(b"")
        with pytest.raises(StoreError, match="was removed, moved or replaced"):
            store.put([said("late", 2)])
    if taken == "moved":
        with ReplyStore(moved) as store:
            assert [one.reply.text for one in store.replies()] == ["kept", "kept", "late"]
