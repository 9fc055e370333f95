"""Cutting pages: nothing is lost between headings, and pieces are as long as they should be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.plugins.wiki.questions import ArticleSection, cut_markdown, fit

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


def test_headings_are_named_below_those_above_them_and_code_is_no_heading():
    sections = cut_markdown(PAGE)
    assert [section.heading for section in sections] == ["", "History", "History > Walls", "Economy"]
    assert "# no heading" in sections[1].text
    assert "book" not in str(sections)


def test_what_stands_below_a_list_of_references_is_left_out_too():
    assert cut_markdown("# Notes\n\n## More\n\nA footnote.") == []


def test_an_escaped_hash_is_no_heading():
    assert cut_markdown("\\# 1 hit\nAnd so on.") == [ArticleSection("", "\\# 1 hit\nAnd so on.")]


@pytest.mark.parametrize("text", ["", "\n\n", "# Only\n\n## Headings"])
def test_a_page_without_text_has_no_sections(text):
    assert cut_markdown(text) == []


def test_a_section_of_the_right_length_stays_whole_and_a_short_one_goes():
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


def test_nothing_is_lost_where_no_piece_is_too_short():
    text = "A sentence of words. " * 40
    pieces = fit(ArticleSection("", text), 1, 100)
    assert "".join("".join(piece.text for piece in pieces).split()) == "".join(text.split())
