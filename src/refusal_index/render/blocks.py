"""Paragraphs and tables, as plain text and as HTML."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from refusal_index.findings.shown import Shown

Result = TypeVar("Result", bound=Shown)

OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are followed rather than seen: controls, direction marks, line separators."""

TEXT_WIDTH = 80
"""Columns of a terminal that every text fits; tables that are wider are split."""


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

    def without(self, *names: str) -> Table:
        """Return the table without some columns."""
        return self._of_columns([place for place, name in enumerate(self.columns) if name not in names])

    def parts(self, width: int = TEXT_WIDTH) -> Iterator[Table]:
        """Split the table into tables that fit the width: each has the first column and some of the others.

        An interval stays in the table of its estimate. A single column that is too wide stays whole.
        """
        widths = [max(map(len, column)) + 2 for column in zip(self.columns, *self.rows, strict=True)]
        groups: list[list[int]] = []
        for place, name in enumerate(self.columns[1:], 1):
            if groups and name.endswith("interval"):
                groups[-1].append(place)
            else:
                groups.append([place])
        parts: list[list[int]] = [[0]]
        for group in groups:
            if parts[-1] != [0] and sum(widths[place] for place in (*parts[-1], *group)) > width + 2:
                parts.append([0])
            parts[-1] += group
        for part in parts:
            yield self._of_columns(part)

    def _of_columns(self, places: Sequence[int]) -> Table:
        rows = ([row[place] for place in places] for row in self.rows)
        return Table.of([self.columns[place] for place in places], rows, self.left)


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


Blocks = Callable[[Result], Iterator[Block]]


def shows(kind: type[Result]) -> Callable[[Blocks[Result]], Blocks[Result]]:
    """Make a kind of result show itself by the paragraphs and tables that a function yields of it."""

    def register(blocks: Blocks[Result]) -> Blocks[Result]:
        kind._blocks = blocks
        kind._text = lambda result: to_text(blocks(result))
        kind._html = lambda result: to_html(blocks(result))
        return blocks

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
    return "\n".join(
        "\n\n".join(map(_text_of, block.parts())) if isinstance(block, Table) else escape(block) for block in blocks
    )


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
    tags = (
        f'<{kind} style="text-align:{side};padding:2px 6px">{html.escape(escape(cell))}</{kind}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(tags)}</tr>"
