"""The store of replies: durable writes, one reply per key and lossless reads."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index import redaction
from refusal_index.data.outcome import Question
from refusal_index.models.failures import CircuitBreaker, Failure
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Role,
    StopReason,
    TwoPass,
    load_prompt_set,
)
from refusal_index.protocol.reading import read_reply
from refusal_index.runs import store as store_module
from refusal_index.runs.conversing import converse
from refusal_index.runs.engine import Assignment
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import STORE_VERSION, ReplyStore, StoreError, StoreSharedError

FULL = Question("b", "Who?", "Ann", ("Anne", "A."), "people", "Ann {was} it.", ("Bob", "Ann"), "Ann(e)?")
BARE = Question("a", "Who?", None)


def completion(text: str, draw: int = 0, variant: str = "low", of: Pass = Pass.FIRST, **more: object) -> Completion:
    return Completion("q", variant, draw, Reply(of, Role.MODEL, text), **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


def test_replies_round_trip_in_order_with_all_fields(path):
    replies = [
        Completion(
            "q", "low", 3, Reply(Pass.FIRST, Role.MODEL, "ä\x00\n''", StopReason.LENGTH), 0, 7, 8, 1, 0.5, "[1]", "ab"
        ),
        Completion("q", "low", 0, Reply(Pass.FIRST, Role.SECOND_GRADER, "A"), 1, 1, 2, 0),
        Completion("q", "", 0, Reply(Pass.FORCED, Role.MODEL, "", StopReason.CONTENT_FILTER), confidence=0.125),
    ]
    with ReplyStore(path) as store:
        store.put(replies)
    with ReplyStore(path) as store:
        assert store.completions("q", "low") == list(store.replies()) == replies


def test_questions_draws_and_failures_round_trip(path):
    assert all(value for value in dataclasses.asdict(FULL).values()), "new fields must be tested here too"
    with ReplyStore(path) as store:
        store.require("low", {FULL: 3, BARE: 1})
        store.require("high", {BARE: 2})
        store.record_failure("low", "b", "the first error")
        store.record_failure("low", "b", "Verbindung zurückgesetzt")
        store.record_failure("high", "a", "no")
        store.clear_failure("high", "a")
        store.clear_failure("high", "never failed")
    with ReplyStore(path) as store:
        assert list(store.questions().values()) == [FULL, BARE]
        assert store.draws() == {"low": {"b": 3, "a": 1}, "high": {"a": 2}}
        assert store.failures() == {("low", "b"): "Verbindung zurückgesetzt"}
        store.clear_failure("low", "b")
    with ReplyStore(path) as store:
        assert store.failures() == {}


def test_required_draws_only_increase(path):
    with ReplyStore(path) as store:
        for draws in (2, 5, 1):
            store.require("low", {BARE: draws})
        assert store.draws() == {"low": {"a": 5}}


def test_existing_key_keeps_its_first_reply(path):
    first, more = completion("first", input_tokens=7), completion("second", input_tokens=9)
    with ReplyStore(path) as store:
        store.put([first])
        store.put([more, completion("another draw", 1)])
        store.put([dataclasses.replace(first, request_sha256="of another request")])
    with ReplyStore(path) as store:
        store.put([more])
        assert store.completions("q", "low") == [first, completion("another draw", 1)]


@pytest.mark.parametrize(
    "other",
    [
        {"question_id": "r"},
        {"variant": "high"},
        {"draw": 1},
        {"attempt": 1},
        {"reply": Reply(Pass.FORCED, Role.MODEL, "x")},
        {"reply": Reply(Pass.FIRST, Role.GRADER, "x")},
    ],
)
def test_every_part_of_the_key_distinguishes_replies(other, path):
    one = completion("x")
    with ReplyStore(path) as store:
        store.put([one])
        store.put([dataclasses.replace(one, **other)])
    with ReplyStore(path) as store:
        assert len(list(store.replies())) == 2


def test_variants_share_forced_answers_and_nothing_else():
    with ReplyStore(None) as store:
        low, forced = completion("low"), completion("forced", variant="", of=Pass.FORCED)
        store.put([low, forced, completion("high", variant="high")])
        assert store.completions("q", "low") == [low, forced]
        assert store.completions("q", "normal") == [forced]
        assert store.completions("another", "low") == []


def test_auxiliary_variants_are_stored_and_counted_separately():
    own, shared = (completion("Lima", variant=variant, of=Pass.FORCED) for variant in ("confidence/forced", ""))
    with ReplyStore(None) as store:
        store.put([own, shared])
        assert store.completions("q", "confidence/forced") == [own]
        assert store.completions("q", "low") == [shared]
        assert list(store.paid()) == [shared]
        assert list(store.paid(auxiliary=True)) == [own]
        store.retire([own])
        assert store.effective_completions("q", "confidence/forced") == list(store.paid(auxiliary=True)) == [own]


def test_copying_a_store_copies_everything(path):
    with ReplyStore(path) as store, ReplyStore(None) as other:
        store.require("low", {FULL: 3})
        store.put([completion("x")])
        store.record_failure("low", "b", "no")
        other.copy_from(store)
        assert other.draws() == store.draws()
        assert other.questions() == store.questions()
        assert list(other.replies()) == list(store.replies())
        assert other.failures() == store.failures()


def test_question_records_are_sorted_by_id(path):
    late, early, bare = (dataclasses.replace(FULL, question_id=name) for name in ("\U0001f600", "\ue000", "A"))
    first, forced = completion("x"), completion("y", variant="", of=Pass.FORCED)
    other = completion("z", variant="high")
    with ReplyStore(path) as store:
        store.require("low", {late: 1, early: 3})
        store.require("high", {bare: 2, early: 1})
        store.record_failure("low", early.question_id, "no")
        mine = [dataclasses.replace(one, question_id=early.question_id) for one in (other, forced, first)]
        store.put(mine)
        store.put([first])  # of a question that nobody asked
        store.retire(mine[1:2])
        found = list(store.each_question())
        assert (
            [one.question for one in found]
            == [bare, early, late]
            == sorted(store.questions().values(), key=lambda one: one.question_id)
        )
        assert [one.draws for one in found] == [{"high": 2}, {"low": 3, "high": 1}, {"low": 1}]
        assert found[1].replies == [mine[0], mine[2]]
        assert found[1].retired == [mine[1]]
        assert found[1].failures == {"low": "no"}
        for one in found:
            for variant in ("low", "high", "normal"):
                name = one.question.question_id
                assert one.completions(variant) == store.completions(name, variant)
                assert one.effective_completions(variant) == store.effective_completions(name, variant)
        assert (store.questions().get("A"), store.questions().get("B")) == (bare, None)
        assert store.variants() == ["high", "low"]


@pytest.mark.parametrize("at_once", [1, 2, 7, 1000])
def test_writing_during_iteration_is_safe(path, monkeypatch, at_once):
    monkeypatch.setattr(store_module, "READ_SIZE", at_once)
    questions = [dataclasses.replace(BARE, question_id=f"q{number:03}") for number in range(20)]
    with ReplyStore(path) as store:
        store.require("low", dict.fromkeys(questions, 1))
        store.put([dataclasses.replace(completion("x"), question_id=question.question_id) for question in questions])
        for before, record in zip(questions, store.each_question(), strict=True):
            assert record.question == before
            assert [reply.reply.text for reply in record.replies][:1] == ["x"]
            store.put([dataclasses.replace(completion("y", 1), question_id=before.question_id)])
            store.retire(record.replies[:1])
        assert [one.question_id for one in store.retired()] == [question.question_id for question in questions]
        seen = []
        for number, one in enumerate(store.replies()):
            seen.append(one.question_id)
            if number == 5:
                store.put([completion("late")])
        assert seen == [*(question.question_id for question in questions), "q"]


def test_first_of_two_replies_for_one_key_in_a_call_is_kept(path):
    with ReplyStore(path) as store:
        store.put([completion("first"), completion("second"), completion("another", 1)])
        assert [one.reply.text for one in store.completions("q", "low")] == ["first", "another"]


def test_key_of_a_client_is_removed_only_from_its_reply_which_is_marked(path, monkeypatch):
    key = "key-3fGh8jKl2mNp5qRs"
    monkeypatch.setattr(redaction, "_remembered", {key})
    with ReplyStore(path) as store:
        store.put(
            [
                completion("plain", logprobs="[1]"),
                completion(f"it is {key}", 1, logprobs="[2]"),
                completion("\ud800", 2),
            ]
        )
        found = store.completions("q", "low")
    assert [(one.reply.text, one.logprobs, one.filtered) for one in found] == [
        ("plain", "[1]", False),
        ("it is [key]", None, True),
        ("\ufffd", None, False),
    ]


def test_retired_replies_are_indexed(path):
    with ReplyStore(path) as store:
        store.put([completion("x"), completion("y", 1)])
        store.retire([completion("x")])
        assert store.times_retired("q", "low", Pass.FIRST, Role.MODEL, 0) == 1
        assert [one.reply.text for one in store.effective_completions("q", "low")] == ["y", "x"]
        store.put([completion("z", 2, in_batch=True)])
        assert [one.in_batch for one in store.completions("q", "low")] == [False, True]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (STORE_VERSION,)
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM retired WHERE question_id = 'q'").fetchone()
    assert "retired_of" in plan[-1]


def test_model_and_mark_are_stored_and_retired_with_a_reply(path):
    with ReplyStore(path) as store:
        store.put([completion("x", answered_by="any-2026-01-01", filtered=True), completion("y", 1)])
        store.retire([completion("x")])
        assert [(one.answered_by, one.filtered) for one in store.retired()] == [("any-2026-01-01", True)]
        assert [(reply.answered_by, reply.filtered) for reply in store.replies()] == [(None, False)]


@pytest.mark.nightly
def test_iterating_a_large_store_uses_little_memory(path):
    text = "It was a person of some name. " * 20
    with ReplyStore(path) as store:
        for part in range(10):
            questions = [dataclasses.replace(BARE, question_id=f"q{part}{number:03}") for number in range(1000)]
            store.require("low", dict.fromkeys(questions, 1))
            store.put(
                [dataclasses.replace(completion(text), question_id=question.question_id) for question in questions]
            )
    with ReplyStore(path) as store:
        tracemalloc.start()
        try:
            held = sum(len(one.replies) for one in store.each_question()) + sum(1 for _ in store.replies())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held == 20_000
    assert peak < len(text) * 10_000 / 4, "not even a quarter of the text was held at once"


CHILD = """
import os, signal, sys
from pathlib import Path
from refusal_index.runs.store import ReplyStore
from refusal_index.protocol import Role, Completion, Pass, Reply
store = ReplyStore(Path(sys.argv[1]))
for draw in range(int(sys.argv[2])):
    store.put([Completion("q", "low", draw, Reply(Pass.FIRST, Role.MODEL, str(draw)))])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_loses_no_stored_reply(path):
    child = subprocess.run([sys.executable, "-c", CHILD, str(path), "7"], check=False)
    assert child.returncode == -signal.SIGKILL
    with ReplyStore(path) as store:
        assert [reply.reply.text for reply in store.replies()] == [str(draw) for draw in range(7)]


def test_no_reply_is_only_in_the_write_ahead_log(path):
    child = subprocess.run([sys.executable, "-c", CHILD, str(path), "7"], check=False)
    assert child.returncode == -signal.SIGKILL
    alone = Path(shutil.copy(path, path.with_name("alone.sqlite")))
    with ReplyStore(alone) as store:
        assert [reply.reply.text for reply in store.replies()] == [str(draw) for draw in range(7)]


def test_overlong_reply_is_truncated_and_unscored(path, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_REPLY", 10)
    replies = [
        completion("x" * 10, 0, logprobs="[1]"),
        completion("x" * 11, 1, logprobs="[1]"),
        completion("x", 2, logprobs="[" * 11),
    ]
    with ReplyStore(path) as store:
        store.put(replies)
    with ReplyStore(path) as store:
        found = list(store.replies())
    assert found[0] == replies[0]
    assert (found[1].reply.text, found[1].reply.stop_reason, found[1].logprobs) == ("x" * 10, StopReason.LENGTH, None)
    assert read_reply(found[1].reply.text, stop_reason=found[1].reply.stop_reason).unscored_reason == "truncated"
    assert found[2] == dataclasses.replace(replies[2], logprobs=None)


@pytest.mark.slow
def test_longest_stored_reply_can_be_read(path):
    longest = completion("\U0001f600" * store_module.MAX_REPLY, logprobs="1" * store_module.MAX_REPLY)
    with ReplyStore(path) as store:
        store.put([longest])
    with ReplyStore(path) as store:
        assert list(store.replies()) == [longest]


@pytest.mark.parametrize("version", [1, STORE_VERSION - 1, STORE_VERSION + 1])
def test_store_of_another_version_raises_and_is_left_unchanged(path, version):
    with ReplyStore(path) as store:
        store.put([completion("x")])
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(
        StoreError,
        match=rf"{path}: expected a store of version {STORE_VERSION}, got {version}; its results can be shown, but",
    ):
        ReplyStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT text FROM replies").fetchall() == [("x",)]
    connection.close()


@pytest.mark.parametrize("content", [b"PK no database at all, and long enough to be told from one" * 99, None])
def test_file_that_is_not_a_store_raises(path, content):
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"{path}: the store of replies cannot be used"):
        ReplyStore(path)


def test_damaged_store_raises(path):
    with ReplyStore(path) as store:
        store.put([completion("x" * 50_000, draw) for draw in range(5)])
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=str(path)):
        ReplyStore(path)


@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb", "\ud83d then \ude00"])
def test_lone_surrogates_are_replaced_consistently(path, lone):
    with ReplyStore(path) as store:
        store.put([completion(lone)])
        store.record_failure("low", "q", lone)
        here = store.completions("q", "low")
    with ReplyStore(path) as store:
        assert store.completions("q", "low") == here, "the text is the same after reopening"
        assert "\ufffd" in here[0].reply.text
        assert "\ufffd" in store.failures()["low", "q"]


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_any_encodable_text_round_trips_property(text):
    with ReplyStore(None) as store:
        store.put([completion(text)])
        (row,) = store._rows("SELECT text FROM replies")
    try:
        text.encode()
    except UnicodeEncodeError:
        assert len(row[0]) <= len(text)
    else:
        assert row == (text,)


def test_replies_of_one_response_are_stored_atomically(path):
    with ReplyStore(path) as store:
        store.put([completion("kept")])
        broken = completion("x", 2, input_tokens=None)
        with pytest.raises(StoreError, match=str(path)):
            store.put([completion("x", 1), broken])
        assert len(store.completions("q", "low")) == 1
    with ReplyStore(path) as store:
        assert [reply.reply.text for reply in store.replies()] == ["kept"]


def test_full_disk_ends_the_run_and_keeps_stored_replies(path):
    """As when the disk is full: SQLite refuses to grow the file."""
    question = Question("q", "Who?", "Ann")
    conversation = Conversation(
        question, "low", TwoPass(GraderKind.MODEL, Protocol(load_prompt_set("default"), "low", GraderKind.MODEL))
    )
    breaker, sent = CircuitBreaker(), []

    async def send(ask: ModelRequest) -> Response:
        sent.append(ask)
        return Response([("<answer>Ann</answer>" if len(sent) == 1 else "A" * 1_000_000, StopReason.STOP)])

    def explain(error: Exception, asked: Role) -> Failure:
        raise AssertionError

    with ReplyStore(path) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        assignment = Assignment("sums", "low", [conversation], Settings(), store, breaker=breaker)
        with pytest.raises(StoreError, match=str(path)):
            asyncio.run(converse(assignment, conversation, send, explain))
    assert not breaker.planned
    assert str(path) in breaker.reason
    assert "free some disk space; run the same command again to resume" in breaker.reason
    assert len(sent) == 2
    with ReplyStore(path) as store:
        assert [reply.reply.text for reply in store.replies()] == ["<answer>Ann</answer>"]


WRITES = {
    "put": lambda store: store.put([completion("late", 9)]),
    "require": lambda store: store.require("low", {FULL: 9}),
    "retire": lambda store: store.retire([completion("kept")]),
    "record_failure": lambda store: store.record_failure("low", "a", "no"),
}


@pytest.mark.parametrize("write", WRITES)
def test_second_writer_of_a_store_is_noticed_before_anything_further_is_written(path, write):
    with ReplyStore(path) as first, ReplyStore(path) as second:
        first.require("low", {BARE: 1})
        with pytest.raises(StoreSharedError, match="another process has stored replies here"):
            WRITES[write](second)
        first.put([completion("kept")])
        with pytest.raises(StoreSharedError, match="wait until the other process has ended"):
            WRITES[write](second)
        first.put([completion("kept", 1)])
    with ReplyStore(path) as store:
        assert [(reply.reply.text, reply.draw) for reply in store.replies()] == [("kept", 0), ("kept", 1)]
        assert (store.draws(), store.failures(), list(store.retired())) == ({"low": {"a": 1}}, {}, [])


def test_readers_of_a_store_do_not_disturb_its_writer(path):
    with ReplyStore(path) as writer:
        for draw in range(3):
            with ReplyStore(path) as reader:
                writer.put([completion("kept", draw)])
                assert len(list(reader.replies())) == draw + 1


@pytest.mark.parametrize("taken", ["removed", "moved", "replaced"])
def test_store_file_removed_during_a_run_raises_on_the_next_write(path, taken, monkeypatch):
    """SQLite used to go on writing into a deleted file, so that a whole run was paid for and lost."""
    there = path.absolute().parent / "run" / path.name
    there.parent.mkdir()
    with ReplyStore(there) as store:
        store.put([completion("kept")])
        monkeypatch.chdir("/")  # which does no harm
        store.put([completion("kept", 1)])
        moved = there.parent.rename(there.parent.with_name("elsewhere")) / there.name
        if taken == "removed":
            moved.unlink()
        if taken == "replaced":
            there.parent.mkdir()
            there.write_bytes(b"")
        with pytest.raises(StoreError, match="was removed, moved or replaced"):
            store.put([completion("late", 2)])
    if taken == "moved":
        with ReplyStore(moved) as store:
            assert [reply.reply.text for reply in store.replies()] == ["kept", "kept", "late"]
