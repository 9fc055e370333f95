"""Paragraphs, tables, and numbers as text."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from refusal_index.stats import Estimate, RankedRun

UNDEFINED = "-"
"""Stands for a number that there is not."""

NOT_KNOWN = "not known"
"""Stands for a number that the data do not hold, though there is one."""

OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are followed rather than seen: controls, direction marks, line separators."""

METRIC_LABELS: Mapping[str, str] = {
    "correct_rate": "Correct",
    "refusal_rate": "Refused",
    "correct_given_attempted": "C/A",
    "f_score": "F",
    "weighted_score": "Weighted",
    "hallucination_rate": "Hallucinated",
    "omniscience_index": "Omniscience",
    "truthfulness_score": "Truthfulness",
    "error_rate": "Error",
    "refusal_index": "RI",
    "corrected_refusal_index": "Corrected RI",
}
"""What figures and printed tables call the metrics."""

METRIC_COLUMNS = {
    name: label if label.isupper() else f"{label[0].lower()}{label[1:]}" for name, label in METRIC_LABELS.items()
}
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
T = TypeVar("T")
Layout = Callable[[T], Iterator[Block]]
"""From a result to what is shown of it."""


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


def number(value: float | None, digits: int = 3) -> str:
    """Show a number to so many digits.

    >>> number(0.25), number(None)
    ('0.250', '-')
    """
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Show an interval, both ends of which are known or neither.

    >>> interval(0.2, 0.25), interval(None, None)
    ('[0.200, 0.250]', '-')
    """
    if low is None or high is None:
        return UNDEFINED
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def span(low: float | None, high: float | None) -> str:
    """Show the smallest and the largest of several values.

    >>> span(0.2, 0.25), span(None, 0.25)
    ('0.200 to 0.250', '-')
    """
    return UNDEFINED if low is None or high is None else f"{low:.3f} to {high:.3f}"


def interval_of(found: Estimate | RankedRun) -> str:
    """Show the interval of an estimate."""
    return interval(found.low, found.high)


_CELLS_ARE_EMPTY = {
    "estimated_from_single_responses:": "estimated from single responses, since no pair of repeated samples is ",
    "zero_cell:": "no question is ",
}


def worded(reason: str | None) -> str:
    """Show the code of a reason as words.

    >>> worded("zero_cell:refused_right+answered_wrong")
    'no question is refused right or answered wrong'
    """
    said = reason or "no reason given"
    for code, words in _CELLS_ARE_EMPTY.items():
        said = said.replace(code, words)
    return re.sub(r"([:;])(?=\S)", r"\1 ", said).replace("+", " or ").replace("_", " ")


def pvalue(value: float | None) -> str:
    """Show a p-value.

    >>> pvalue(0.01234), pvalue(1e-9), pvalue(None)
    ('0.0123', '<.0001', '-')
    """
    if value is None:
        return UNDEFINED
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def p_text(value: float | None) -> str:
    """Return a p-value as a sentence has it.

    >>> p_text(0.25), p_text(1e-9)
    ('p = 0.2500', 'p <.0001')
    """
    shown = pvalue(value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def percent(share: float) -> str:
    """Show a share as in "95 %"."""
    return f"{share * 100:g} %"


def title(*parts: str | None) -> str:
    """Name what is known of model, dataset and variant; "all" where nothing is."""
    return ", ".join(part for part in parts if part) or "all"


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does.

    >>> listed(["low"]), listed(["low", "normal", "high"]), listed([])
    ('low', 'low, normal and high', '')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def shows(kind: type[T]) -> Callable[[Layout[T]], Layout[T]]:
    """Make the results of a class print as the blocks of the decorated function, and show as tables in a notebook."""

    def register(layout: Layout[T]) -> Layout[T]:
        setattr(kind, "__repr__", lambda found: to_text(layout(found)))  # noqa: B010 - of any class
        setattr(kind, "_repr_html_", lambda found: to_html(layout(found)))  # noqa: B010 - of any class
        return layout

    return register


def to_text(blocks: Iterable[Block]) -> str:
    r"""Return blocks as plain text in which nothing is obeyed.

    Examples
    --------
    >>> print(to_text(["a\x1b", Table.of(["name", "x"], [["one", "1"], ["b", "0.25"]], left=["name"])]))
    a\x1b
    name     x
    one      1
    b     0.25
    """
    return "\n".join(_text_of(block) if isinstance(block, Table) else escape(block) for block in blocks)


def _text_of(table: Table) -> str:
    rows = [table.columns, *(tuple(escape(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    sides = ["<" if name in table.left else ">" for name in table.columns]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def to_html(blocks: Iterable[Block]) -> str:
    r"""Return blocks as HTML in which text of others is shown and not obeyed.

    Examples
    --------
    >>> print(to_html(["a <b>\x1b"]))
    <p style="max-width:60em">a &lt;b&gt;\x1b</p>
    """
    return "\n".join(_html_of(block) for block in blocks if block)


def _html_of(block: Block) -> str:
    if isinstance(block, str):
        return f'<p style="max-width:60em">{html.escape(escape(block.strip()))}</p>'
    sides = ["left" if name in block.left else "right" for name in block.columns]
    head = _html_row("th", block.columns, sides)
    body = "".join(_html_row("td", row, sides) for row in block.rows)
    return f'<table style="font-size:12px;white-space:nowrap"><thead>{head}</thead>\n<tbody>{body}</tbody></table>'


def _html_row(kind: str, cells: Iterable[str], sides: Iterable[str]) -> str:
    shown = (
        f'<{kind} style="text-align:{side};padding:2px 6px">{html.escape(escape(cell))}</{kind}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
