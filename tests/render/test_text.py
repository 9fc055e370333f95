"""Text of others: nothing of it is obeyed, all of it can be read."""

from __future__ import annotations

import html
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from refusal_index.render.format import Table, interval, listed, number, percent, typeset
from refusal_index.render.report.page import plain, visible

_KEPT = "\n\t\u200c\u200d"


@given(st.text())
def test_property_nothing_obeyed_is_left_and_nothing_else_is_lost(text: str) -> None:
    shown = str(visible(text))
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in _KEPT]
    back = re.sub(r'<span class="control" title="[^"]*">U\+([0-9A-F]+)</span>', lambda m: chr(int(m[1], 16)), shown)
    inside = back.removeprefix('<bdi dir="auto">').removesuffix("</bdi>")
    assert html.unescape(inside) == text or "&" in text


@given(st.text())
def test_property_plain_text_is_one_harmless_line(text: str) -> None:
    shown = plain(text)
    assert not [
        c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\u200c\u200d"
    ]


def test_markup_is_escaped_and_marks_are_named() -> None:
    assert "<script>" not in str(visible("<script>"))
    assert 'title="RIGHT-TO-LEFT OVERRIDE">U+202E' in str(visible("\u202e"))


def test_joiners_that_scripts_need_are_kept() -> None:
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert persian in str(visible(persian))


def test_undefined_is_a_dash_and_never_a_zero() -> None:
    assert number(None) == percent(None) == interval(None, 0.3) == "-"
    assert typeset("-") == "\u2013"


def test_a_rounded_zero_has_no_sign() -> None:
    assert number(-0.0001) == "0.000"


def test_names_are_joined_as_a_sentence_does() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


COLUMN = st.tuples(st.sampled_from(["metric", "95% interval"]), st.text("x", max_size=40))


@given(st.lists(COLUMN, min_size=1, max_size=12), st.integers(20, 90))
def test_property_parts_of_a_table_fit_the_width_or_hold_one_metric(columns: list[tuple[str, str]], width: int) -> None:
    named = [(f"{place} {name}", cell) for place, (name, cell) in enumerate(columns)]
    table = Table.from_rows(dict(named), [dict(named).values()])
    parts = list(table.parts(width))
    assert [name for part in parts for name in part.columns[1:]] == [name for name, _ in named[1:]]
    for part in parts:
        assert part.columns[0] == table.columns[0]
        assert part.rows == (tuple(dict(named)[name] for name in part.columns),)
        needed = sum(max(len(name), len(dict(named)[name])) + 2 for name in part.columns) - 2
        assert needed <= width or sum("interval" not in name for name in part.columns[2:]) == 0
        assert len(part.columns) < 2 or len(parts) == 1 or part is parts[0] or "interval" not in part.columns[1]


def test_property_columns_that_name_the_rows_are_in_every_part_of_a_wide_table() -> None:
    columns = ("metric", "prompt", *(f"{place} numbers" for place in range(9)))
    rows = [("RI", prompt, *("0.123" for _ in range(9))) for prompt in ("low", "high")]
    parts = list(Table.from_rows(columns, rows, left=("metric", "prompt")).parts())
    assert len(parts) > 1
    assert [part.columns[:2] for part in parts] == [("metric", "prompt")] * len(parts)
    assert [name for part in parts for name in part.columns[2:]] == list(columns[2:])
