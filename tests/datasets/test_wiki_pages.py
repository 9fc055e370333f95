"""Building PreciseWikiQA: pages, their sections, and the draw of candidates."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.datasets import DatasetError
from refusal_index.plugins.wiki.questions import (
    ArticleSection,
    Candidate,
    Lengths,
    cut_markdown,
    draw_order,
    fit,
    read_pages,
    request_seed,
)
from tests.models.wiki_writer import page

# --- Reading pages

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


def test_goodwiki_is_read_as_published(tmp_path):
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
def test_unusable_pages_are_named(tmp_path, case):
    records, expected = CASES[case]
    with pytest.raises(DatasetError) as caught:
        read_pages(write(tmp_path / "w.jsonl", *records))
    assert all(part in str(caught.value) for part in ["w.jsonl", *expected]), caught.value


def test_requested_difficulty_column_must_exist(tmp_path):
    path = write(tmp_path / "w.jsonl", {"title": "A", "text": "x", "h_score_cat": 1})
    with pytest.raises(DatasetError, match=r"expected a column 'h_score'.*did you mean 'h_score_cat'\?"):
        read_pages(path, "h_score")


BROKEN = {
    "w.jsonl": (b'{"title": "A", "text": "x"}\n{"title": \n', "line 2"),
    "w.jsonl.gz": (b"no gzip", "cannot be unpacked"),
    "w.parquet": (b"PAR1 no parquet", "cannot be read"),
    "w.csv": (b'title,text\nA,"x\n', "w.csv"),
    "e.csv": (b"", "at least one page"),
    "w.doc": (b"A page.", "expected a file that ends in"),
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


# --- Cutting pages

PAGE = """The lead.

# History
Old times.

```
# no heading
```

## Walls ##
High.

## References
A book.

# Economy
Trade."""


def test_headings_include_their_parents_and_code_is_not_a_heading():
    sections = cut_markdown(PAGE)
    assert [section.heading for section in sections] == ["", "History", "History > Walls", "Economy"]
    assert "# no heading" in sections[1].text
    assert "book" not in str(sections)


def test_subsections_of_references_are_left_out():
    assert cut_markdown("# Notes\n\n## More\n\nA footnote.") == []


def test_escaped_hash_is_not_a_heading():
    assert cut_markdown("\\# 1 hit\nAnd so on.") == [ArticleSection("", "\\# 1 hit\nAnd so on.")]


@pytest.mark.parametrize("text", ["", "\n\n", "# Only\n\n## Headings"])
def test_a_page_without_text_has_no_sections(text):
    assert cut_markdown(text) == []


def test_section_of_the_right_length_is_kept_and_a_short_one_dropped():
    assert fit(ArticleSection("a", "x" * 50), 50, 50) == [ArticleSection("a", "x" * 50)]
    assert fit(ArticleSection("a", "x" * 49), 50, 50) == []


def test_a_long_section_is_cut_at_paragraphs_first():
    pieces = fit(ArticleSection("Life", "One two.\n\nThree four.\n\nFive six."), 5, 22)
    assert [piece.text for piece in pieces] == ["One two.\n\nThree four.", "Five six."]
    assert [piece.heading for piece in pieces] == ["Life (part 1)", "Life (part 2)"]


@given(st.text(alphabet="ab. \n", max_size=300), st.integers(1, 20), st.integers(20, 60))
def test_property_every_piece_has_the_right_length_and_words_keep_their_order(text, shortest, longest):
    pieces = fit(ArticleSection("", text.strip()), shortest, longest)
    assert all(shortest <= len(piece.text) <= longest for piece in pieces)
    letters = "".join(piece.text for piece in pieces).translate({32: None, 10: None})
    remaining = iter(text)
    assert all(letter in remaining for letter in letters), "a subsequence of the text"


def test_no_text_is_lost_if_no_piece_is_too_short():
    text = "A sentence of words. " * 40
    pieces = fit(ArticleSection("", text), 1, 100)
    assert "".join("".join(piece.text for piece in pieces).split()) == "".join(text.split())


# --- Sampling of sections

LENGTHS = Lengths(400, 2000)


def drawn(path: Path, numbers: list[int], seed: int = 0, sections: int = 2) -> dict[str | None, list[Candidate]]:
    path.write_text("".join(json.dumps(page(number, sections)) + "\n" for number in numbers))
    return {level: list(order) for level, order in draw_order(read_pages(path), seed, LENGTHS).items()}


def test_candidate_order_does_not_depend_on_file_order(tmp_path):
    forwards = drawn(tmp_path / "a.jsonl", list(range(30)))
    assert forwards == drawn(tmp_path / "b.jsonl", list(range(30))[::-1])
    assert list(forwards) == ["0", "1", "2", "3"]


def test_pages_added_to_the_file_do_not_change_the_order_of_the_others(tmp_path):
    fewer = drawn(tmp_path / "a.jsonl", list(range(20)), sections=0)
    more = drawn(tmp_path / "b.jsonl", list(range(40)), sections=0)
    for level, order in fewer.items():
        there = set(order)
        assert [one for one in more[level] if one in there] == order


def test_different_seeds_give_different_candidate_orders(tmp_path):
    one, other = (drawn(tmp_path / "a.jsonl", list(range(40)), seed)["0"] for seed in (1, 2))
    assert set(one) == set(other)
    assert [c.title for c in one[:10]] != [c.title for c in other[:10]]


def test_every_page_comes_once_before_any_comes_twice(tmp_path):
    order = drawn(tmp_path / "a.jsonl", [0, 4, 8, 12, 16])["0"]
    titles = [candidate.title for candidate in order]
    assert len(order) == 5 * 3
    assert [len(set(titles[start : start + 5])) for start in (0, 5, 10)] == [5, 5, 5]


def test_duplicate_section_is_sampled_once(tmp_path):
    once, twice = drawn(tmp_path / "a.jsonl", [0]), drawn(tmp_path / "b.jsonl", [0, 0])
    assert once == twice
    assert len({candidate.candidate_id for candidate in once["0"]}) == 3


def test_sections_are_cut_lazily(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(page(number)) + "\n" for number in range(40)))
    pages = read_pages(path)
    looked_at = []
    object.__setattr__(pages, "texts", lambda entry: looked_at.append(entry) or [("", "x" * 500)])
    list(islice(draw_order(pages, 0, LENGTHS)["0"], 2))
    assert len(looked_at) == 2


def test_difficulty_levels_are_sorted_by_value(tmp_path):
    path = tmp_path / "a.jsonl"
    levels = [10, "hard", 9, -1, "easy", 2.5]
    path.write_text("".join(json.dumps({**page(n), "difficulty": level}) + "\n" for n, level in enumerate(levels)))
    assert list(draw_order(read_pages(path), 0, LENGTHS)) == ["-1", "2.5", "9", "10", "easy", "hard"]


def test_seeds_of_requests_fit_every_provider_and_differ():
    seeds = [
        request_seed(run, f"pw-{n}", step) for run in (0, 1) for n in range(500) for step in ("question", "answer")
    ]
    assert len(set(seeds)) == len(seeds)
    assert 0 <= min(seeds) <= max(seeds) < 2**31
