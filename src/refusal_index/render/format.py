"""Numbers, names and codes as text; paragraphs and tables, as plain text and as HTML.

`typeset` turns a formatted number into what a page shows.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from textwrap import fill
from typing import TYPE_CHECKING

from refusal_index.errors import escape

if TYPE_CHECKING:
    from refusal_index.stats import Estimate, RankedRun


UNDEFINED = "-"
"""Shown for an undefined number."""

NOT_KNOWN = "not known"
"""Shown for an unknown number."""

MINUS = "\u2212"
DASH = "\u2013"


def typeset(text: str) -> str:
    r"""Return a formatted number as a page shows it: a true minus sign, a dash for undefined.

    >>> typeset("[-0.25, 0.10]") == "[\u22120.25, 0.10]", typeset("-") == "\u2013"
    (True, True)
    """
    if text == UNDEFINED:
        return DASH
    return re.sub(r"(?<![\w.)\]])-(?=\d)", MINUS, text)


def number(value: float | None, digits: int | None = 3) -> str:
    """Format a number to some digits, or to those it has; a rounded zero has no sign.

    >>> number(0.25), number(-0.0001), number(0.25, None), number(None)
    ('0.250', '0.000', '0.25', '-')
    """
    if value is None:
        return UNDEFINED
    return f"{value:zg}" if digits is None else f"{value:z.{digits}f}"


def signed(value: float | None, digits: int = 3) -> str:
    """Format a number with its sign.

    >>> signed(0.25), signed(-0.25), signed(None)
    ('+0.250', '-0.250', '-')
    """
    return UNDEFINED if value is None else f"{value:+z.{digits}f}"


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Format an interval.

    >>> interval(0.2, 0.25), interval(None, None)
    ('[0.200, 0.250]', '-')
    """
    return UNDEFINED if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def interval_of(result: Estimate | RankedRun, digits: int = 3) -> str:
    """Format the interval of an estimate."""
    return interval(result.low, result.high, digits)


def span(low: float | None, high: float | None, digits: int = 3) -> str:
    """Format the smallest and the largest of several values.

    >>> span(0.2, 0.25), span(None, 0.25)
    ('0.200 to 0.250', '-')
    """
    return UNDEFINED if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def with_interval(
    value: float | None, low: float | None, high: float | None, why: str | None = None, digits: int = 3
) -> str:
    """Format a number with its interval if it has one, or why it is undefined.

    >>> with_interval(0.2733, 0.2027, 0.3412), with_interval(None, None, None, "nobody_refused")
    ('0.273 [0.203, 0.341]', 'undefined (no refusals)')
    """
    if value is None:
        return f"undefined ({reason_text(why)})" if why else UNDEFINED
    return number(value, digits) + ("" if low is None or high is None else f" {interval(low, high, digits)}")


def estimate(result: Estimate, digits: int = 3) -> str:
    """Format an estimate with its interval, if it has one.

    >>> from refusal_index.stats import Estimate
    >>> estimate(Estimate(0.2, 0.1, 0.3), 2), estimate(Estimate(None, status="not_identified"))
    ('0.20 [0.10, 0.30]', 'not identified')
    """
    if result.estimate is None or result.status == "not_identified":
        return "not identified" if result.status == "not_identified" else "undefined"
    return with_interval(result.estimate, result.low, result.high, digits=digits)


def pvalue(value: float | None) -> str:
    """Format a p-value.

    >>> pvalue(0.01234), pvalue(1e-9), pvalue(None)
    ('0.0123', '<.0001', '-')
    """
    if value is None:
        return UNDEFINED
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def p_text(value: float | None) -> str:
    """Format a p-value as in a sentence.

    >>> p_text(0.25), p_text(1e-9)
    ('p = 0.2500', 'p <.0001')
    """
    shown = pvalue(value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def percent(share: float | None, digits: int | None = None) -> str:
    """Format a share in per cent: to some digits, or to those it has.

    >>> percent(0.95), percent(0.256, 0), percent(0.0271, 1), percent(-1e-17, 0), percent(None)
    ('95%', '26%', '2.7%', '0%', '-')
    """
    if share is None:
        return UNDEFINED
    return f"{number(100 * share, digits)}%"


def percent_with_interval(result: Estimate) -> str:
    """Format a share with its interval in whole per cent.

    >>> from refusal_index.stats import Estimate
    >>> percent_with_interval(Estimate(0.256, 0.2, 0.31)), percent_with_interval(Estimate(None))
    ('26% [20%, 31%]', '-')
    """
    if result.estimate is None or result.low is None:
        return percent(result.estimate, 0)
    return f"{percent(result.estimate, 0)} [{percent(result.low, 0)}, {percent(result.high, 0)}]"


def share(part: float, whole: float, digits: int = 1) -> str:
    """Format a part of a whole in per cent.

    >>> share(2, 60), share(0, 0)
    ('3.3%', '-')
    """
    return percent(part / whole if whole else None, digits)


def count(amount: float | None, noun: str = "") -> str:
    """Format a number of things.

    >>> count(1, "question"), count(2000, "question"), count(2000)
    ('1 question', '2,000 questions', '2,000')
    """
    if amount is None:
        return UNDEFINED
    return f"{amount:,.0f} {noun}{'' if amount == 1 else 's'}" if noun else f"{amount:,.0f}"


def dollars(amount: float | None) -> str:
    """Format an amount of money.

    >>> dollars(1234.5), dollars(None)
    ('$1,234.50', 'not known')
    """
    return NOT_KNOWN if amount is None else f"${amount:,.2f}"


def listed(names: Sequence[str]) -> str:
    """Join names as in a sentence.

    >>> listed(["low"]), listed(["low", "normal", "high"]), listed([])
    ('low', 'low, normal and high', '')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def abridged(names: Sequence[str], limit: int = 4) -> str:
    """Name a few of many things, and count the rest.

    >>> abridged(["a", "b"]), abridged(["a", "b", "c", "d", "e", "f"])
    ('a; b', 'a; b; c; d and 2 more')
    """
    more = len(names) - limit
    return "; ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def abbreviated(name: str, longest: int) -> str:
    """Return a name of at most so many characters, without its middle if it is too long.

    >>> abbreviated("almanac/base (almanac-base-almanac-1133ff66)", 26), abbreviated("low", 26)
    ('almanac/bas...ac-1133ff66)', 'low')
    """
    end = (longest - 3) - (longest - 3) // 2
    return name if len(name) <= longest else f"{name[: (longest - 3) // 2]}...{name[-end:]}"


def fitted(names: Sequence[str], width: int) -> str:
    """Name as many things as fit into a width, at least one, and count the rest.

    >>> fitted(["id", "topic", "notes"], 20), fitted(["id", "topic", "notes"], 15)
    ('id, topic, notes', 'id and 2 more')
    """
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        text = ", ".join(names[:shown]) + (f" and {rest:,} more" if rest else "")
        if len(text) <= width:
            break
    return text


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(30), duration(600), duration(7200)
    ('30 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:,.1f} h"


def counted(counts: Mapping[str, int]) -> str:
    """Format how often each of some names occurs.

    >>> counted({"request_failed": 1200, "not_finished": 1})
    'request_failed 1,200, not_finished 1'
    """
    return ", ".join(f"{name} {amount:,}" for name, amount in counts.items())


def title(*parts: str | None) -> str:
    """Join the known ones of model, dataset and variant; "all" if none is known."""
    return ", ".join(part for part in parts if part) or "all"


_REASON_PARTS = {
    "estimated_from_single_responses:": "estimated from single responses, since no pair of repeated samples is ",
    "zero_cell:": "no question is ",
    "constant_difference": "the same difference on every question",
    "forced_not_asked": "no forced pass",
    "nobody_refused": "no refusals",
    "everybody_refused": "only refusals",
    "refused_right": "refused and right",
    "refused_wrong": "refused and wrong",
    "answered_right": "answered and right",
    "answered_wrong": "answered and wrong",
    "all_answerable": "every question is answerable",
    "all_unanswerable": "no question is answerable",
    "all_variants_undefined": "undefined under every prompt",
    "too_few_not_refused_again": "the runs share too few questions that neither refused again",
}


def reason_text(code: str | None) -> str:
    """Format the code of a reason.

    >>> reason_text("zero_cell:refused_right+answered_wrong")
    'no question is refused and right or answered and wrong'
    """
    text = code or "no reason given"
    for part, words in _REASON_PARTS.items():
        text = text.replace(part, words)
    return re.sub(r"([:;])(?=\S)", r"\1 ", text).replace("+", " or ").replace("_", " ")


TEXT_WIDTH = 80
"""Width of the terminal for which all text is laid out; wider tables are split."""


@dataclass(frozen=True)
class Table:
    """A table of plain text."""

    columns: tuple[str, ...]  # their names
    rows: tuple[tuple[str, ...], ...]  # as many cells each
    left: frozenset[str] = frozenset()  # the columns that are set to the left; numbers are set to the right

    @classmethod
    def from_rows(cls, columns: Iterable[str], rows: Iterable[Iterable[str]], left: Iterable[str] = ()) -> Table:
        """Make a table of any iterables."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows), frozenset(left))

    def without(self, *names: str) -> Table:
        """Return the table without some columns."""
        return self._of_columns([index for index, name in enumerate(self.columns) if name not in names])

    def without_empty(self) -> Table:
        """Return the table without columns in which nothing is defined, if it has rows."""
        cells_of = zip(self.columns, *self.rows, strict=True)
        return (
            self.without(*(name for name, *cells in cells_of if set(cells) <= {UNDEFINED, ""})) if self.rows else self
        )

    def parts(self, width: int = TEXT_WIDTH) -> Iterator[Table]:
        """Split the table into tables that fit the width; columns that name the rows are in each of them.

        These are the columns on the left that are set to the left, as far as they take half of the width. An interval
        stays in the table of its estimate. A single column that is too wide stays whole.
        """
        widths = [max(map(len, column)) + 2 for column in zip(self.columns, *self.rows, strict=True)]
        named = takewhile(lambda i: self.columns[i] in self.left, range(1, len(self.columns) - 1))
        keys = [0, *takewhile(lambda i: sum(widths[: i + 1]) <= width // 2, named)]
        groups: list[list[int]] = []
        for index, name in enumerate(self.columns[len(keys) :], len(keys)):
            if groups and name.strip().endswith("interval"):
                groups[-1].append(index)
            else:
                groups.append([index])
        parts = [list(keys)]
        for group in groups:
            if parts[-1] != keys and sum(widths[index] for index in (*parts[-1], *group)) > width + 2:
                parts.append(list(keys))
            parts[-1] += group
        for part in parts:
            yield self._of_columns(part)

    def _of_columns(self, indices: Sequence[int]) -> Table:
        rows = ([row[index] for index in indices] for row in self.rows)
        return Table.from_rows([self.columns[index] for index in indices], rows, self.left)

    def lines(self) -> list[str]:
        """Return its lines as plain text, the columns' names first; a wide character takes two places."""
        rows = [[escape(cell) for cell in row] for row in (self.columns, *self.rows)]
        columns = []
        for name, cells in zip(self.columns, zip(*rows, strict=True), strict=True):
            blanks = [" " * (max(map(_width, cells)) - _width(cell)) for cell in cells]
            pairs = zip(cells, blanks, strict=True)
            columns.append([cell + blank if name in self.left else blank + cell for cell, blank in pairs])
        return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _width(text: str) -> int:
    return len(text) + sum(unicodedata.east_asian_width(character) in "FW" for character in text)


class Definitions(str):
    """A paragraph that says what the columns of a table mean; a notebook shows it folded."""

    __slots__ = ()


Block = str | Table


def to_text(blocks: Iterable[Block]) -> str:
    r"""Return blocks as plain text of 80 columns, with control characters escaped; indented text stays on one line.

    Examples
    --------
    >>> print(to_text(["a\x1b", Table.from_rows(["name", "x"], [["one", "1"], ["b", "0.25"]], left=["name"])]))
    a\x1b
    name     x
    one      1
    b     0.25
    """
    return "\n".join(_text_of(block) for block in blocks)


def _text_of(block: Block) -> str:
    """Return a table in parts, or a paragraph folded to 80 columns, without breaking words such as paths."""
    if isinstance(block, Table):
        return "\n\n".join("\n".join(part.lines()) for part in block.parts())
    text = escape(block)
    if text.startswith("  "):
        return text
    return fill(text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)


def to_html(blocks: Iterable[Block]) -> str:
    r"""Return blocks as HTML, with untrusted text escaped.

    Examples
    --------
    >>> print(to_html(["a <b>\x1b"]))
    <p style="max-width:60em">a &lt;b&gt;\x1b</p>
    """
    return "\n".join(_html_of(block) for block in blocks if block)


def _html_of(block: Block) -> str:
    if isinstance(block, Definitions):
        return f"<details><summary>Definitions</summary>{html.escape(escape(block))}</details>"
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
