"""Reading pages: the columns of GoodWiki and of plain files, in every format, and what cannot be used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from tests.models.wiki_writer import page

from refusal_index.data.datasets import DatasetError
from refusal_index.plugins.wiki.questions import read_pages

GOODWIKI_SCHEMA = {
    "pageid": pl.Int64,
    "title": pl.String,
    "revid": pl.Int64,
    "description": pl.String,
    "categories": pl.List(pl.String),
    "markdown": pl.String,
}
"""As published: 44,754 rows in one Parquet file."""


def goodwiki(count: int) -> pl.DataFrame:
    return pl.DataFrame([page(number) for number in range(count)]).select(
        pl.col(name).cast(kind) for name, kind in GOODWIKI_SCHEMA.items()
    )


def test_goodwiki_is_read_as_it_is_published(tmp_path):
    goodwiki(3).write_parquet(tmp_path / "wiki.parquet")
    pages = read_pages(tmp_path / "wiki.parquet")
    first = pages.entries[0]
    assert (first.key, first.title, first.topic, first.revision) == ("1000", "Town 0", "Towns of region 0", "5000")
    assert first.difficulty is None
    assert pages.in_markdown
    assert pages.texts(first)[0][1].startswith("Town 0 is a town")
    assert pages.columns == {
        "title": "title",
        "text": "markdown",
        "page": "pageid",
        "revision": "revid",
        "topic": "categories",
    }


@pytest.mark.parametrize("name", ["w.jsonl", "w.jsonl.gz", "w.ndjson", "w.parquet"])
def test_every_format_holds_the_same_pages(tmp_path, name):
    frame, path = goodwiki(5), tmp_path / name
    if name.endswith("parquet"):
        frame.write_parquet(path)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in frame.iter_rows(named=True)).encode()
        path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    frame.write_parquet(tmp_path / "reference.parquet")
    assert read_pages(path).entries == read_pages(tmp_path / "reference.parquet").entries


@pytest.mark.parametrize("name", ["w.csv", "w.csv.gz"])
def test_sections_of_a_csv_file_are_gathered_by_title(tmp_path, name):
    text = 'title,section,text,difficulty\nUlm,Minster,"Tall, and\nold.",3\nBonn,,Beethoven.,1\nUlm,Danube,A river.,3\n'
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    pages = read_pages(tmp_path / name)
    assert [(entry.title, entry.difficulty) for entry in pages.entries] == [("Bonn", "1"), ("Ulm", "3")]
    assert pages.texts(pages.entries[1]) == [("Minster", "Tall, and\nold."), ("Danube", "A river.")]
    assert not pages.in_markdown


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_rows_without_text_or_difficulty_are_left_out_and_counted(tmp_path):
    path = write(
        tmp_path / "w.jsonl",
        {"title": "A", "text": "x", "h_score_cat": 1},
        {"title": "B", "text": " \n", "h_score_cat": 1},
        {"title": "C", "text": "y", "h_score_cat": None},
        {"text": "", "h_score_cat": 2},
    )
    pages = read_pages(path)
    assert [entry.title for entry in pages.entries] == ["A"]
    assert pages.left_out == {"no text": 2, "no difficulty": 1}


def test_another_column_can_hold_the_difficulty(tmp_path):
    path = write(tmp_path / "w.jsonl", {"title": "A", "text": "x", "difficulty": 1, "views": 7})
    assert read_pages(path, "views").entries[0].difficulty == "7"


CASES = {
    "no title": ([{"titel": "A", "text": "x"}], ["'title'", "'titel'", "did you mean"]),
    "no text": ([{"title": "A"}], ["'text' or 'markdown'", "got 'title'"]),
    "empty title": ([{"title": "A", "text": "x"}, {"title": " ", "text": "y"}], ["line 2", "title"]),
    "all empty": ([{"title": "A", "text": ""}], ["'text'", "1 rows without one"]),
    "text is an object": ([{"title": "A", "text": {"a": 1}}], ["line 1", "'text'", "{'a': 1}"]),
    "no object": ([["A", "x"]], ["line 1", "JSON object"]),
    "nothing": ([], ["at least one page"]),
    "difficulty is a measurement": (
        [{"title": str(number), "text": "x", "difficulty": number / 7} for number in range(60)],
        ["at most 50 levels", "'difficulty'", "60 different"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_used_is_named(tmp_path, case):
    records, expected = CASES[case]
    with pytest.raises(DatasetError) as caught:
        read_pages(write(tmp_path / "w.jsonl", *records))
    assert all(part in str(caught.value) for part in ["w.jsonl", *expected]), caught.value


def test_a_difficulty_that_was_asked_for_must_be_there(tmp_path):
    path = write(tmp_path / "w.jsonl", {"title": "A", "text": "x", "h_score_cat": 1})
    with pytest.raises(DatasetError, match=r"expected a column 'h_score'.*did you mean 'h_score_cat'\?"):
        read_pages(path, "h_score")


BROKEN = {
    "w.jsonl": (b'{"title": "A", "text": "x"}\n{"title": \n', "line 2"),
    "w.jsonl.gz": (b"no gzip", "cannot be unpacked"),
    "w.parquet": (b"PAR1 no parquet", "cannot be read"),
    "w.csv": (b'title,text\nA,"x\n', "w.csv"),
    "s.csv": (b"title;text\nA;x\n", "separated by commas"),
    "e.csv": (b"", "at least one page"),
    "w.txt": (b"A page.", "expected a file that ends in"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named(tmp_path, name):
    content, expected = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=name) as caught:
        read_pages(tmp_path / name)
    assert expected in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"absent\.jsonl cannot be read"):
        read_pages(tmp_path / "absent.jsonl")
