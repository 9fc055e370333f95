"""Tables for print: the cells of a row, and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from refusal_index.render.blocks import escape
from refusal_index.render.format import UNDEFINED, count, number, with_interval

Cell = Callable[[Mapping[str, Any]], Any]


def counts(name: str) -> Cell:
    """Return what formats the count in a column."""
    return lambda row: count(row[name])


def printed_table(frame: pl.DataFrame, columns: Mapping[str, str | Cell]) -> pl.DataFrame:
    """Return a table for print.

    - `frame`: one row a row of the table.
    - `columns`: by heading the column to show as it is, with a dash where it is null, or what makes the cell of a row.
    """

    def shown(name: str) -> Cell:
        return lambda row: UNDEFINED if row[name] is None else row[name]

    cells = {heading: shown(cell) if isinstance(cell, str) else cell for heading, cell in columns.items()}
    rows = [{heading: cell(row) for heading, cell in cells.items()} for row in frame.iter_rows(named=True)]
    return pl.DataFrame(rows, infer_schema_length=None)


def fixed(name: str, digits: int = 3) -> Cell:
    """Return what formats the number in a column."""
    return lambda row: number(row[name], digits)


def ranged(name: str, digits: int = 3) -> Cell:
    """Return what formats a number with its interval, or why it is undefined.

    - `name`: its column; the ends are in ``NAME_low`` and ``NAME_high``, those of `estimate` in ``low`` and ``high``.
    """
    ends = ("low", "high") if name == "estimate" else (f"{name}_low", f"{name}_high")
    return lambda row: with_interval(row[name], row[ends[0]], row[ends[1]], row.get("reason"), digits)


def labelled(labels: Mapping[str, str], name: str) -> Cell:
    """Return what replaces the code in a column by its label."""
    return lambda row: labels[row[name]]


def widened(frame: pl.DataFrame, index: list[str], on: str, cell: str) -> pl.DataFrame:
    """Spread a column's values into columns, in the order in which they appear; a dash where there is no cell."""
    names = frame[on].unique(maintain_order=True).to_list()
    wide = frame.pivot(on, index=index, values=cell, maintain_order=True)
    return wide.select(*index, *names).with_columns(pl.col(name).fill_null(UNDEFINED) for name in names)


LONGEST = 60
"""Rows; of a longer frame the rest is left to the CSV file, which is said in a comment."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{DAGGER}": r"\textdagger{}",
    '"': r"\textquotedbl{}",
}
_LIGATURES = re.compile(r"([-'`,?!])(?=[-'`,])")
"""Two characters that LaTeX would print as one: dashes, quotation marks, Spanish marks."""
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escaped(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    >>> escaped("50% of \\input{x}")
    '50\\% of \\textbackslash{}input\\{x\\}'
    """
    return _LIGATURES.sub(r"\1{}", "".join(_ESCAPES.get(character, character) for character in escape(text)))


def latex_table(table: pl.DataFrame, caption: str, label: str, groups: Mapping[str, str] | None = None) -> str:
    r"""Write a table with its caption; it needs the packages booktabs, graphicx and textcomp, and fonts in T1.

    - `groups`: by column the heading above it; columns side by side share one.
    """
    shown = table.head(LONGEST)
    right = [kind.is_numeric() or name not in _text_columns(shown) for name, kind in shown.schema.items()]
    lines = [
        "% Needs \\usepackage{booktabs,graphicx,textcomp} and \\usepackage[T1]{fontenc}.",
        "\\begin{table}[t]",
        "\\centering\\small",
        f"\\caption{{{escaped(caption)}}}",
        f"\\label{{tab:{label.replace('_', '-')}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{''.join('r' if it else 'l' for it in right)}}}",
        "\\toprule",
        *_group_lines(shown.columns, groups or {}),
        _line([f"\\textbf{{{escaped(name.replace('_', ' '))}}}" for name in shown.columns]),
        "\\midrule",
        *(_line([_MINUS.sub("$-$", escaped(_cell(value))) for value in row]) for row in shown.iter_rows()),
        "\\bottomrule",
        "\\end{tabular}}",
        "\\end{table}",
    ]
    if table.height > LONGEST:
        lines.append(f"% {table.height - LONGEST:,} further rows are in {label}.csv.")
    return "\n".join(lines) + "\n"


def _group_lines(columns: Sequence[str], groups: Mapping[str, str]) -> Iterator[str]:
    """Write the headings of groups of columns, each with a rule below; nothing where there are none."""
    if not any(name in groups for name in columns):
        return
    cells, rules, place = [], [], 1
    for heading, members in groupby(columns, key=lambda name: groups.get(name, "")):
        width = len(list(members))
        cells.append(
            f"\\multicolumn{{{width}}}{{c}}{{\\textbf{{{escaped(heading)}}}}}" if heading else " & " * (width - 1)
        )
        rules += [f"\\cmidrule(lr){{{place}-{place + width - 1}}}"] if heading else []
        place += width
    yield _line(cells)
    yield " ".join(rules)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _text_columns(table: pl.DataFrame) -> set[str]:
    """Name the columns that hold words rather than numbers."""
    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    return {name for name in texts if not table[name].drop_nulls().str.contains(r"^[-+]?\d|^-$").all()}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value)
