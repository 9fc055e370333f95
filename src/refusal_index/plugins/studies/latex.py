"""Tables of studies as LaTeX, legible and within a page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import polars as pl

from refusal_index.errors import escape
from refusal_index.plugins.studies.style import BLOCK
from refusal_index.render.format import number

MAX_ROWS = 160
"""Maximum number of rows; a comment refers to the CSV file for the rest."""

_SIZES = {"small": (9.0, 34), "footnotesize": (8.0, 42), "scriptsize": (7.0, 52)}
"""Size of each font in points, and the largest number of rows in it that fit on a page with the caption."""

_TURNED_ROWS = 28
"""Maximum number of rows on a page of a table that is turned by 90 degrees, in the smallest font."""

_LEGIBLE = 5.5
"""Size of the font, in points, below which a table that is too wide for the page is turned instead of scaled."""

_LINE_WIDTH = 345.0
"""Width of the text of the usual document class in points."""

_MIN_COLUMN = 9
"""Number of characters of a heading that are not broken into lines."""

_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\N{DAGGER}": r"\textdagger{}",
        '"': r"\textquotedbl{}",
    }
)
_LIGATURES = re.compile(r"([-'`,?!])(?=[-'`,])")
"""Pairs of characters that LaTeX would print as one: dashes, quotation marks, Spanish punctuation."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escaped(text: str) -> str:
    r"""Return text escaped for LaTeX.

    >>> escaped("50% of \\input{x}")
    '50\\% of \\textbackslash{}input\\{x\\}'
    """
    return _LIGATURES.sub(r"\1{}", escape(text).translate(_ESCAPES))


def latex_table(table: pl.DataFrame, caption: str, label: str, groups: Mapping[str, str] | None = None) -> str:
    r"""Return a LaTeX table with its caption, which needs booktabs, graphicx, rotating, textcomp and T1 fonts.

    A table that would be illegible at the width of the text is turned; one that is longer than a page is split.

    - `table`: rows with the same value in the column `BLOCK` form a block, with this value above it if there are
      several.
    - `groups`: the heading above each column; adjacent columns with the same heading share it.
    """
    blocks = table[BLOCK].head(MAX_ROWS).to_list() if BLOCK in table.columns else []
    blocks = blocks if len(set(blocks)) > 1 else []
    shown = table.drop(BLOCK, strict=False).head(MAX_ROWS)
    rows = shown.height + len(set(blocks))
    font, (size, rows_of_page) = next((item for item in _SIZES.items() if rows <= item[1][1]), [*_SIZES.items()][-1])
    environment = "table"
    if size * min(1.0, _LINE_WIDTH / _natural_width(shown, size)) < _LEGIBLE:
        environment = "sidewaystable"
        font = "scriptsize"
        rows_of_page = _TURNED_ROWS
    lines = ["% Needs \\usepackage{booktabs,graphicx,rotating,textcomp} and \\usepackage[T1]{fontenc}."]
    for part in _pages(shown.height, blocks, rows_of_page):
        is_first = part.start == 0
        text = caption if is_first else f"{caption.partition('. ')[0]}, continued."
        lines += [f"\\begin{{{environment}}}{'[t]' if environment == 'table' else ''}", f"\\centering\\{font}"]
        lines.append(f"\\caption{{{escaped(text)}}}")
        if is_first:
            lines.append(f"\\label{{tab:{label.replace('_', '-')}}}")
        lines += [*_tabular(shown, blocks, part, groups or {}), f"\\end{{{environment}}}"]
    if table.height > MAX_ROWS:
        lines.append(f"% {table.height - MAX_ROWS:,} further rows are in {label}.csv.")
    return "\n".join(lines) + "\n"


def _pages(n: int, blocks: Sequence[str], rows_of_page: int) -> list[slice]:
    """Return the rows of each page; a block begins on a new page if it does not fit on the last one."""
    starts = [0]
    position = 0
    for _, members in groupby(blocks or [""] * n):
        end = position + len(list(members))
        if position > starts[-1] and end - starts[-1] > rows_of_page:
            starts.append(position)
        while end - starts[-1] > rows_of_page:
            starts.append(starts[-1] + rows_of_page)
        position = end
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n], strict=True)]


def _tabular(table: pl.DataFrame, blocks: Sequence[str], part: slice, groups: Mapping[str, str]) -> Iterator[str]:
    """Yield a tabular of some of the rows, at most as wide as the text."""
    texts = {name for name, kind in table.schema.items() if kind == pl.String}
    words = {name for name in texts if not table[name].drop_nulls().str.contains(r"^[-+]?\d|^-$").all()}
    right = [kind.is_numeric() or name not in words for name, kind in table.schema.items()]
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{{''.join('r' if it else 'l' for it in right)}}}"
    yield "\\toprule"
    yield from _group_lines(table.columns, groups)
    yield _line([_heading(name, width) for name, width in zip(table.columns, _cell_widths(table), strict=True)])
    yield from _row_lines(table[part], blocks[part])
    yield "\\bottomrule"
    yield "\\end{tabular}}"


def _cell_widths(table: pl.DataFrame) -> list[int]:
    """Return the number of characters of the longest cell of each column."""
    return [max((len(cell_text(value)) for value in table[name]), default=1) for name in table.columns]


def _natural_width(table: pl.DataFrame, size: float) -> float:
    """Estimate the width of a table from the size of its font, both in points."""
    columns = zip(table.columns, _cell_widths(table), strict=True)
    characters = sum(max(width, *map(len, _heading_lines(name, width))) for name, width in columns)
    return 0.5 * size * characters + 12 * table.width


def _heading_lines(name: str, width: int) -> list[str]:
    """Break a heading that is wider than the cells of its column, between words and after a plus sign."""
    text = name.replace("_", " ").replace("+", "+ ")
    return textwrap.wrap(text, max(width, _MIN_COLUMN), break_long_words=False) or [""]


def _heading(name: str, width: int) -> str:
    lines = [f"\\textbf{{{escaped(line)}}}" for line in _heading_lines(name, width)]
    return lines[0] if len(lines) == 1 else "\\shortstack{" + r" \\ ".join(lines) + "}"


def _row_lines(table: pl.DataFrame, blocks: Sequence[str]) -> Iterator[str]:
    """Yield the rows, with a rule and a heading above each block.

    - `blocks`: the block of each row; empty if there is one.
    """
    if not blocks:
        yield "\\midrule"
    for position, row in enumerate(table.iter_rows()):
        if blocks and (position == 0 or blocks[position] != blocks[position - 1]):
            yield "\\midrule"
            yield _line([f"\\multicolumn{{{table.width}}}{{l}}{{\\textit{{{escaped(blocks[position])}}}}}"])
        yield _line([_MINUS.sub("$-$", escaped(cell_text(value))) for value in row])


def _group_lines(columns: Sequence[str], groups: Mapping[str, str]) -> Iterator[str]:
    """Return the headings of groups of columns, each with a rule below; empty if there are none."""
    if not any(name in groups for name in columns):
        return
    cells = []
    rules = []
    position = 1
    for heading, members in groupby(columns, key=lambda name: groups.get(name, "")):
        width = len(list(members))
        cells.append(
            f"\\multicolumn{{{width}}}{{c}}{{\\textbf{{{escaped(heading)}}}}}" if heading else " & " * (width - 1)
        )
        rules += [f"\\cmidrule(lr){{{position}-{position + width - 1}}}"] if heading else []
        position += width
    yield _line(cells)
    yield " ".join(rules)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def cell_text(value: object) -> str:
    """Return the text of a cell: a dash if it is empty."""
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)
