"""Paragraphs, tables, and numbers as text."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from refusal_index.stats import Estimate, RankedRun

UNDEFINED = "-"
"""Stands for a number that there is not."""

OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are followed rather than seen: controls, direction marks, line separators."""

METRIC_LABELS: Mapping[str, str] = {
    "correct_rate": "Correct",
    "refusal_rate": "Refused",
    "correct_given_attempted": "C/A",
    "f_score": "F",
    "weighted_score": "Weighted",
    "error_rate": "Error",
    "refusal_index": "RI",
}
"""What figures and printed tables call the metrics."""

METRIC_COLUMNS = {name: label if label.isupper() else label.lower() for name, label in METRIC_LABELS.items()}
"""What the columns of a table of plain text call the metrics."""


@dataclass(frozen=True)
class Table:
    """A table of plain text."""

    columns: tuple[str, ...]  # their names
    rows: tuple[tuple[str, ...], ...]  # as many cells each
    left: frozenset[str] = frozenset()  # the columns that are set to the left; numbers are set to the right

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Iterable[str]], left: Iterable[str] = ()) -> Table:
        """Make a table of any iterables."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows), frozenset(left))


Block = str | Table


def escape(text: str) -> str:
    r"""Return text with control and direction characters shown as escapes, so that nothing obeys them.

    >>> escape('a\x1b[31mb')
    'a\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in OBEYED else character
        for character in text
    )


def number(value: float | None) -> str:
    """Show a number to three digits.

    >>> number(0.25), number(None)
    ('0.250', '-')
    """
    return UNDEFINED if value is None else f"{value:.3f}"


def interval(low: float | None, high: float | None) -> str:
    """Show an interval, both ends of which are known or neither.

    >>> interval(0.2, 0.25), interval(None, None)
    ('[0.200, 0.250]', '-')
    """
    if low is None or high is None:
        return UNDEFINED
    return f"[{low:.3f}, {high:.3f}]"


def span(low: float | None, high: float | None) -> str:
    """Show the smallest and the largest of several values.

    >>> span(0.2, 0.25), span(None, 0.25)
    ('0.200 to 0.250', '-')
    """
    return UNDEFINED if low is None or high is None else f"{low:.3f} to {high:.3f}"


def interval_of(found: Estimate | RankedRun) -> str:
    """Show the interval of an estimate."""
    return interval(found.low, found.high)


def pvalue(value: float | None) -> str:
    """Show a p-value.

    >>> pvalue(0.01234), pvalue(1e-9), pvalue(None)
    ('0.0123', '<.0001', '-')
    """
    if value is None:
        return UNDEFINED
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def percent(share: float) -> str:
    """Show a share as in "95 %"."""
    return f"{share * 100:g} %"


def title(*parts: str | None) -> str:
    """Name what is known of model, dataset and variant; "all" where nothing is."""
    return ", ".join(part for part in parts if part) or "all"


def to_html(blocks: Iterable[Block]) -> str:
    r"""Return blocks as HTML in which text of others is shown and not obeyed.

    >>> print(to_html(["a <b>\x1b", Table.of(["x"], [["1"]])]))
    <p>a &lt;b&gt;\x1b</p>
    <table><thead><tr><th style="text-align:right">x</th></tr></thead>
    <tbody><tr><td style="text-align:right">1</td></tr></tbody></table>
    """
    return "\n".join(_html_of(block) for block in blocks if block)


def _html_of(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{html.escape(escape(block.strip()))}</p>"
    sides = ["left" if name in block.left else "right" for name in block.columns]
    head = _html_row("th", block.columns, sides)
    body = "".join(_html_row("td", row, sides) for row in block.rows)
    return f"<table><thead>{head}</thead>\n<tbody>{body}</tbody></table>"


def _html_row(kind: str, cells: Iterable[str], sides: Iterable[str]) -> str:
    shown = (
        f'<{kind} style="text-align:{side}">{html.escape(escape(cell))}</{kind}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
