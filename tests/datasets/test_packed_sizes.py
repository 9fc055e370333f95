"""Compressed files that unpack to more than memory holds; the limits are lowered here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from refusal_index.data import tables
from refusal_index.data.datasets import load_dataset
from refusal_index.data.datasets.dataset import DatasetError
from refusal_index.data.first_pass import FirstPassError
from refusal_index.data.imports import SourceFile

ROWS = "question,answer\n" + "Who?,Ann\n" * 500


@pytest.fixture
def low(monkeypatch):
    monkeypatch.setattr(tables, "MAX_UNPACKED", 1_000)
    monkeypatch.setattr(tables, "MAX_RATIO", 2)
    monkeypatch.setattr(tables, "MAX_UNPACKED_LINES", 50)
    monkeypatch.setattr(tables, "MAX_LINE", 200)


def packed(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()))
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("question,answer\n" + "x" * 201, "expected lines of at most 200 characters"),
        ("question,answer\n" + f"{'y' * 90},Ann\n" * 40, "it unpacks to more than 1,000 bytes"),
    ],
    ids=["one line", "bytes"],
)
def test_questions_that_unpack_to_too_much_are_refused(tmp_path, low, text, says):
    with pytest.raises(DatasetError, match=says):
        load_dataset("own", data=packed(tmp_path, "q.csv.gz", text))


def test_questions_that_unpack_to_too_many_lines_are_refused(tmp_path, low, monkeypatch):
    monkeypatch.setattr(tables, "MAX_UNPACKED", 100_000)
    with pytest.raises(DatasetError, match="it unpacks to more than 50 lines"):
        load_dataset("own", data=packed(tmp_path, "q.csv.gz", ROWS))


def test_a_plain_file_may_be_as_large_as_it_is(tmp_path, low):
    path = tmp_path / "q.csv"
    path.write_text("question,answer\n" + "".join(f"Who is {number}?,Ann\n" for number in range(60)))
    assert len(load_dataset("own", data=path).questions) == 60


def test_imported_document_that_unpacks_to_too_much_is_refused(tmp_path, low):
    path = packed(tmp_path, "log.json.gz", json.dumps([{"question": "Who?"}] * 100))
    with pytest.raises(FirstPassError, match="it unpacks to more than 1,000 bytes"):
        _ = SourceFile(path, path.read_bytes()).document


def test_unpacking_returns_what_was_packed_property():
    for content in (b"", b"Lima", b"x" * 100_000):
        assert tables.unpack(gzip.compress(content)) == content
