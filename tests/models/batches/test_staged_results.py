"""Results on the disk: whatever the files hold, each reply is found by its id, and what is none is named."""

from __future__ import annotations

import json
import sqlite3
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from refusal_index.plugins.batches import request_files
from refusal_index.plugins.batches.request_files import MAX_NAMED, ResultFileError, StagedResults
from refusal_index.protocol import StopReason
from tests.models.batches.answering import anthropic_line, failed_line, openai_line

LIMA, CUZCO = ("Lima", StopReason.STOP), ("Cuzco", StopReason.STOP)


@pytest.fixture
def read(tmp_path):
    """Return what puts lines into files, a list for each, and reads them."""
    opened = []

    def of(*files: list[Any]) -> StagedResults:
        staged = StagedResults()
        opened.append(staged)
        for number, lines in enumerate(files):
            path = tmp_path / f"{number}.jsonl"
            raw = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)
            path.write_bytes(b"\n".join(raw))
            staged.read(path)
        return staged

    yield of
    for staged in opened:
        staged.__exit__(None, None, None)


def count(staged: StagedResults) -> int:
    """Return the number of results, each looked at once."""
    return int(staged._connection.execute("SELECT count(*) FROM results").fetchone()[0])


def replies(staged: StagedResults, name: str) -> list[Any]:
    result = staged.get(name)
    assert result is not None
    assert result.response is not None, result.failure
    return list(result.response.replies)


def test_results_of_every_format_lie_side_by_side(read):
    staged = read([openai_line("a", [LIMA, CUZCO])], [anthropic_line("b", [LIMA])])
    assert count(staged) == 2
    assert [replies(staged, name) for name in "ab"] == [[LIMA, CUZCO], [LIMA]]
    assert staged.get("d") is None
    assert staged.unused().count == 0


@pytest.mark.parametrize("lines", list(permutations([0, 1, 2])))
def test_a_success_stands_before_a_failure_in_whatever_order_they_come(read, lines):
    known = [openai_line("a", [LIMA]), failed_line("a", "openai"), failed_line("a", "openai")]
    for files in ([[known[one] for one in lines]], [[known[one]] for one in lines]):
        staged = read(*files)
        assert replies(staged, "a") == [LIMA]
        assert (count(staged), staged.contradicting.count) == (1, 0)


def test_of_two_replies_the_first_stays_and_the_other_is_named(read, tmp_path):
    staged = read([openai_line("a", [LIMA])], [openai_line("b", [LIMA]), openai_line("a", [CUZCO])])
    assert replies(staged, "a") == [LIMA]
    assert staged.contradicting.count == 1
    assert staged.contradicting.named == [
        f"{tmp_path / '1.jsonl'}, line 2: 'a' has a different reply in {tmp_path / '0.jsonl'}, line 1"
    ]


def test_the_same_reply_twice_is_no_contradiction_however_it_is_written(read):
    once = openai_line("a", [LIMA])
    staged = read([once, once, {**once, "id": "2"}, anthropic_line("a", [LIMA])])
    assert (count(staged), staged.contradicting.count) == (1, 0)


def test_a_file_that_is_read_twice_is_read_once(read, tmp_path):
    staged = read([openai_line("a", [LIMA])])
    staged.read(tmp_path / "0.jsonl")
    assert (count(staged), staged.contradicting.count) == (1, 0)


def test_what_nobody_looked_up_is_named_replies_apart_from_failures(read):
    names = [f"other-{number}" for number in range(MAX_NAMED + 3)]
    staged = read(
        [openai_line("a", [LIMA]), *(openai_line(name, [LIMA]) for name in names), failed_line("f", "openai")]
    )
    staged.get("a")
    unknown = staged.unused()
    assert unknown.count == MAX_NAMED + 3
    assert [one.rpartition(": ")[2] for one in unknown.named] == [repr(one) for one in names[:MAX_NAMED]]
    assert [one.rpartition(": ")[2] for one in staged.unused(failures=True).named] == ["'f'"]


DEEP = b'{"custom_id": "a", "response": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"custom_id": "a", "respo', "expected a line of JSON"),
        (b"[1, 2]", "expected a JSON object, got [1, 2]"),
        (b'"a"', "expected a JSON object, got 'a'"),
        (b"null", "expected a JSON object"),
        (b"NaN", "expected a JSON object"),
        (b"{}", "expected a custom_id that is text, got None"),
        (b'{"custom_id": 7, "response": {}}', "that is text, got 7"),
        (b'{"custom_id": "", "response": {}}', "that is text, got ''"),
        (b'{"custom_id": "a"}', "expected a response or an error, found neither"),
        (b'{"custom_id": "a", "result": 1}', "expected a result that is an object, got 1"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1", "body": {}}', "found neither"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b'{"custom_id": "a", "response": 1' + b"0" * 5000 + b"}", "cannot be read"),
        (DEEP, "cannot be read"),
        (b"\x1b[2J" * 5, "cannot be read"),
    ],
)
def test_a_line_that_holds_no_result_is_named_and_the_others_are_read(read, tmp_path, line, told):
    staged = read([openai_line("b", [LIMA]), line, b"", b"  ", openai_line("c", [LIMA])])
    assert count(staged) == 2
    assert staged.unreadable.count == 1
    (named,) = staged.unreadable.named
    assert named.startswith(f"{tmp_path / '0.jsonl'}, line 2: ")
    assert told in named
    assert named.isprintable()
    assert len(named) < 1000


@pytest.mark.slow
def test_values_as_deep_as_can_just_be_read_end_nothing(read):
    """What is read from a shallow place may be too deep for a deeper one."""
    lines = []
    for depth in range(100, 1000, 3):
        nested: Any = 0
        for _ in range(depth):
            nested = [nested]
        try:
            lines.append(json.dumps({**openai_line(f"d{depth}", [LIMA]), "extra": nested}).encode())
        except RecursionError:
            break
    staged = read(lines)

    def deeper(name: str, more: int) -> Any:
        return staged.get(name) if not more else deeper(name, more - 1)

    found = [deeper(f"d{depth}", 300) for depth in range(100, 1000, 3)]
    assert found[0].response.replies == [LIMA]
    assert any(one is None for one in found)


def test_bytes_before_the_first_line_and_ends_of_lines_of_another_system_are_no_part_of_it(read):
    line = json.dumps(openai_line("a", [("one\u2028two", StopReason.STOP)]), ensure_ascii=False).encode()
    staged = read([b"\xef\xbb\xbf" + line + b"\r"])
    assert replies(staged, "a") == [("one\u2028two", StopReason.STOP)]


def test_an_id_with_half_a_surrogate_pair_or_nul_is_an_id_like_any_other(read):
    staged = read([openai_line("\ud83d", [LIMA]), openai_line("a\0b", [LIMA])])
    assert count(staged) == 2
    assert all(one.isprintable() for one in staged.unused().named)


def test_a_line_of_ten_megabytes_is_a_line(read):
    text = "x" * 10_000_000
    assert replies(read([openai_line("a", [(text, StopReason.STOP)])]), "a") == [(text, StopReason.STOP)]


def test_a_line_without_end_is_left_out_by_name_and_the_ones_about_it_are_read(read, monkeypatch):
    whole = [openai_line(name, [LIMA]) for name in ("a", "b")]
    monkeypatch.setattr(request_files, "MAX_LINE", len(json.dumps(whole[0])) + 1)
    for endless in (b"[" * 5_000, json.dumps(openai_line("c", [("x" * 5_000, StopReason.STOP)])).encode()):
        staged = read([whole[0], endless, whole[1]])
        assert count(staged) == 2
        assert "line 2: expected a line of at most" in staged.unreadable.named[0]
        assert replies(staged, "b") == [LIMA]


def test_more_lines_than_go_to_the_disk_at_once(read, monkeypatch):
    staged = read([openai_line(str(number), [LIMA]) for number in range(10)], [openai_line("9", [CUZCO])])
    assert count(staged) == 10
    assert staged.contradicting.count == 1
    for number in range(10):
        assert replies(staged, str(number)) == [LIMA]
    assert staged.unused().count == 0


@pytest.mark.parametrize("make", [Path, Path.mkdir])
def test_a_file_that_cannot_be_read_is_an_error_that_says_so(tmp_path, make):
    path = tmp_path / "results.jsonl"
    make(path)
    with StagedResults() as staged, pytest.raises(ResultFileError, match=r"results\.jsonl: expected a file of results"):
        staged.read(path)


def test_no_room_for_what_is_put_aside_is_told(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(openai_line("a", [LIMA])))
    with StagedResults() as staged:
        staged._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(ResultFileError, match="temporary files"):
            staged.read(path)


def test_nothing_is_left_of_it():
    with StagedResults() as staged:
        pass
    with pytest.raises(sqlite3.ProgrammingError):
        count(staged)
