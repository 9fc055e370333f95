"""The journal of batches: it survives a kill, and errors in it are reported."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.folder import RunFolder
from refusal_index.errors import NotWrittenError
from refusal_index.models.failures import UnreadableReplyError, describe_error
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches import journal as module
from refusal_index.plugins.batches.journal import (
    JOURNAL,
    Journal,
    JournalError,
    describe_in_flight,
    in_flight,
    journal_of,
    refuse_in_flight,
    usable,
)
from refusal_index.plugins.batches.rounds import custom_id
from refusal_index.protocol import Completion, Pass, Reply, Role
from refusal_index.runs.store import ReplyStore

ABOUT = ("openai", "https://api.openai.com/v1", "openai/gpt-4.1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / JOURNAL


def filled(path):
    """A journal with one batch collected, one submitted and one begun."""
    journal = Journal(path)
    done, sent, begun = (journal.begin(*ABOUT, [f"{name}-1", f"{name}-2"]) for name in ("done", "sent", "begun"))
    journal.uploaded(done.key, "file-1")
    journal.submitted(done.key, "batch-1")
    journal.collected(done.key)
    journal.submitted(sent.key, "batch-2")
    return journal, sent.key, begun.key


def test_batches_in_flight_round_trip(path):
    journal, sent, begun = filled(path)
    again = Journal(path)
    assert again.entries == journal.entries
    assert {entry.key: entry.batch for entry in again.entries} == {begun: None, sent: "batch-2"}
    assert {"batch-1", "batch-2"} <= again.names
    assert all(entry.size == 2 and entry.model == "openai/gpt-4.1" for entry in again.entries)


def test_two_engines_share_a_journal_without_losing_entries(path):
    first, second = Journal(path), Journal(path)
    one = first.begin(*ABOUT, ["a"])
    other = second.begin(*ABOUT[:2], "openai/another", ["b"])
    first.submitted(one.key, "batch-1")
    second.submitted(other.key, "batch-2")
    assert {"batch-1", "batch-2"} <= Journal(path).names
    first.collected(one.key)
    assert [entry.key for entry in Journal(path).entries] == [other.key]
    assert len(path.read_bytes().splitlines()) == 5


def test_requests_that_another_process_has_begun_to_submit_are_not_submitted_again(path):
    first, second = Journal(path), Journal(path)
    first.begin(*ABOUT, ["a", "b"])
    with pytest.raises(JournalError, match="another process submits the same requests"):
        second.begin(*ABOUT, ["b", "c"])
    assert len(path.read_bytes().splitlines()) == 1
    second.begin(*ABOUT, ["c"])
    first.begin(*ABOUT, ["a"])  # its own batch, as after one whose results lack some


def test_begin_flushes_the_batch_to_disk_before_returning(path, monkeypatch):
    flushed = []
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size))
    Journal(path).begin(*ABOUT, ["a"])
    assert path.stat().st_size in flushed


@given(st.floats(0, 1))
def test_truncated_journal_keeps_every_whole_line_property(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / JOURNAL
    filled(path)
    whole = path.read_bytes()
    cut = round(share * len(whole))
    path.write_bytes(whole[:cut])
    journal = Journal(path)
    lines = whole[:cut].count(b"\n")
    began = [json.loads(line)["key"] for line in whole.splitlines()[:lines] if b'"begun"' in line]
    gone = {json.loads(line)["key"] for line in whole.splitlines()[:lines] if b'"collected"' in line}
    assert {entry.key for entry in journal.entries} == set(began) - gone
    more = journal.begin(*ABOUT, ["more"])
    assert more in Journal(path).entries
    assert len(Journal(path).entries) == len(journal.entries), "only the torn line is lost"


def test_results_not_collected_yet_stay_pending(path):
    journal = Journal(path)
    key = journal.begin(*ABOUT, ["a", "b", "c"]).key
    journal.submitted(key, "batch-1")
    journal.collected(key, ["b", "x"])
    (left,) = Journal(path).entries
    assert (left.requests, left.size) == ({"b"}, 3)
    journal.collected(key)
    assert not Journal(path).entries


def test_wrongly_matched_batch_is_not_matched_again(path):
    journal = Journal(path)
    key = journal.begin(*ABOUT, ["a"]).key
    journal.submitted(key, "batch-1")
    journal.record_mismatch(key)
    (entry,) = Journal(path).entries
    assert (entry.batch, entry.others) == (None, {"batch-1"})


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"event": "begun", "key": "ri-1"}',
        '{"event": "exploded", "key": "ri-1"}',
        '{"event": "submitted", "key": "ri-unknown", "batch": "b"}',
        '{"event": "begun", "key": "ri-1", "provider": "p", "place": "p", "model": "m", "time": true, "requests": []}',
        '{"event": "begun", "key": "ri-1", "provider": "p", "place": "p", "model": "m", "time": 1, "requests": [1]}',
        "[" * 100_000,
    ],
)
def test_invalid_journal_line_raises_with_file_and_line(path, line):
    filled(path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(JournalError, match=rf"{JOURNAL}: line 8: expected .* paid for again"):
        Journal(path)


@pytest.mark.parametrize("name", ["../../files/x", "a b", "", "x" * 1001, "a\nb", 7, None])
def test_batch_name_unsafe_in_a_url_raises(path, name):
    _, sent, _ = filled(path)
    with path.open("a") as file:
        file.write(json.dumps({"event": "submitted", "key": sent, "batch": name}) + "\n")
    with pytest.raises(JournalError, match="line 8: expected a batch"):
        Journal(path)


def test_unsafe_batch_name_from_a_provider_is_not_written(path):
    journal, sent, _ = filled(path)
    with pytest.raises(JournalError, match="expected a batch in a valid form"):
        journal.submitted(sent, "b/../../c")
    assert len(Journal(path).entries) == 2


@pytest.mark.parametrize(
    "name", ["b/../../c", "batch_sk-planted-0123456789abcdef", "sk-live-0123456789abcdef", None, 7]
)
def test_unusable_provider_id_raises_without_showing_the_key(name, monkeypatch):
    monkeypatch.setenv("FAKE_API_KEY", "sk-planted-0123456789abcdef")
    assert usable("batch_0123456789abcdef") == "batch_0123456789abcdef"
    with pytest.raises(UnreadableReplyError, match="expected a plain id") as caught:
        usable(name)
    assert "0123456789abcdef" not in describe_error(caught.value)


def test_symlinked_journal_is_not_followed(path, tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="expected a plain file, got a symbolic link"):
        Journal(path)
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_no_batch_begins_if_the_journal_cannot_be_written(tmp_path):
    with pytest.raises(NotWrittenError, match="no batch is submitted without a record of it"):
        Journal(tmp_path / "no such folder" / JOURNAL).begin(*ABOUT, ["a"])


def test_journal_without_a_folder_is_kept_in_memory():
    journal = journal_of(None)
    journal.begin(*ABOUT, ["a"])
    assert len(journal.entries) == 1


def test_other_engines_raise_while_batches_are_in_flight(path):
    _, sent, begun = filled(path)
    folder = RunFolder(path.parent)
    with ReplyStore(None) as store:
        entries = in_flight(folder, store)
        assert [entry.key for entry in entries] == [sent, begun]
        assert describe_in_flight(entries) == "2 batches with 4 requests at openai are in flight"
        with pytest.raises(SettingError, match=r"2 batches with 4 requests at openai are in flight.*forget=ri-"):
            refuse_in_flight(folder, store)


def test_answered_requests_of_two_models_are_not_in_flight(tmp_path):
    journal = journal_of(RunFolder(tmp_path))
    with ReplyStore(None) as store:
        for model, sha256 in (("openai/writer", "1" * 64), ("openai/answerer", "2" * 64)):
            journal.begin(*ABOUT[:2], model, [custom_id(model, sha256), f"{model}-2"])
            reply = Reply(Pass.FIRST, Role.MODEL, "Lima")
            store.put([Completion("q1", model, 0, reply, request_sha256=sha256)])
        entries = in_flight(RunFolder(tmp_path), store)
    assert [entry.requests for entry in entries] == [{"openai/writer-2"}, {"openai/answerer-2"}]


def test_a_folder_without_a_journal_has_nothing_in_flight(tmp_path):
    with ReplyStore(None) as store:
        refuse_in_flight(RunFolder(tmp_path), store)
        assert in_flight(RunFolder(tmp_path), store) == []
    assert not list(tmp_path.iterdir())
