"""Text of others on a page, and numbers as a page shows them.

Nothing of a reply, a question or a name is obeyed: Jinja escapes what HTML would, and here what a browser would follow
without showing it, control and direction characters, is made visible. Every such text stands in an element of its own
direction, so that right-to-left text cannot reorder its neighbours.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from refusal_index.outcomes.presentation.blocks import OBEYED

MINUS, NOTHING = "\u2212", "\u2013"
"""A true minus sign, and the dash that stands for what is undefined."""

KEPT = frozenset("\n\t\u200c\u200d")
"""Of these, line breaks and tabs, and the two joiners that some scripts and emoji cannot be written without."""


def visible(text: object) -> Markup:
    r"""Return text as HTML in which control and direction characters can be seen, isolated from its surroundings.

    >>> print(visible("<b>\x1b"))
    <bdi dir="auto">&lt;b&gt;<span class="control" title="ESCAPE">U+001B</span></bdi>
    """
    parts = (_seen(character) if _is_obeyed(character) else escape(character) for character in _runs(str(text)))
    return Markup('<bdi dir="auto">{}</bdi>').format(Markup("").join(parts))


def plain(text: object) -> str:
    r"""Return text for places that hold no elements (titles, alternative texts, SVG), line breaks taken out.

    >>> plain("a\u202eb")
    'a⟨U+202E⟩b'
    """
    one_line = str(text).replace("\n", " ").replace("\t", " ")
    return "".join(f"⟨{_code(c)}⟩" if _is_obeyed(c) else c for c in one_line)


_CANDIDATE = re.compile(r"[^\x20-\x7e\n\t]")


def _runs(text: str) -> list[str]:
    """Split text into single characters that may be obeyed, and everything between them."""
    found, start = [], 0
    for match in _CANDIDATE.finditer(text):
        if _is_obeyed(match[0]):
            found += [text[start : match.start()], match[0]]
            start = match.end()
    return [*found, text[start:]]


def _is_obeyed(character: str) -> bool:
    return len(character) == 1 and unicodedata.category(character) in OBEYED and character not in KEPT


def _seen(character: str) -> Markup:
    # Control codes have aliases, not names.
    name = unicodedata.name(character, {"\x1b": "ESCAPE"}.get(character, "control character"))
    return Markup('<span class="control" title="{}">{}</span>').format(name, _code(character))


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def number(value: float | None, digits: int = 3) -> str:
    """Show a number with a true minus sign; None, which is undefined, is a dash.

    >>> number(0.2714, 2), number(-0.25) == MINUS + "0.250", number(None) == NOTHING
    ('0.27', True, True)
    """
    if value is None:
        return NOTHING
    shown = f"{value:.{digits}f}"
    # A rounded zero has no sign.
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", MINUS)


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Show an interval; nothing where there is none.

    >>> interval(0.2, 0.25), interval(None, None)
    ('[0.200, 0.250]', '')
    """
    return "" if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def percent(share: float | None, digits: int = 0) -> str:
    r"""Show a share in per cent, with a space that does not break, and a dash where there is none.

    >>> percent(0.256), percent(0.0271, 1), percent(None) == NOTHING
    ('26\xa0%', '2.7\xa0%', True)
    >>> percent(-1e-17)
    '0\xa0%'
    """
    return NOTHING if share is None else f"{round(100 * share, digits) + 0.0:.{digits}f}\u00a0%"


def count(amount: int, noun: str) -> str:
    """Show a number of things.

    >>> count(1, "question"), count(2000, "question")
    ('1 question', '2,000 questions')
    """
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    >>> axis = Scale(-1.0, 1.0)
    >>> axis.at(0), axis.at(2), axis.length(-0.5, 0.5)
    ('50.00%', '100.00%', '50.00%')
    """

    low: float
    high: float

    def share(self, value: float) -> float:
        """Place of a value, in [0, 1]; what lies outside is drawn at the end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """Place of a value, as SVG takes it."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Place of a value from the top."""
        return f"{100 * (1 - self.share(value)):.2f}%"

    def length(self, start: float, end: float) -> str:
        """Length between two values."""
        return f"{100 * (self.share(end) - self.share(start)):.2f}%"


@dataclass(frozen=True)
class IndexScale(Scale):
    """The axis of the Refusal Index, with the values to be marked on it."""

    ticks: tuple[float, ...] = ()


def index_scale(values: Iterable[float | None]) -> IndexScale:
    """Return an axis from 0 to 1 that reaches below 0 as far as the values do.

    >>> index_scale([0.3, None, -0.08])
    IndexScale(low=-0.25, high=1.0, ticks=(-0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    """
    lowest = min([0.0, *(value for value in values if value is not None)])
    quarters = max(math.floor(lowest * 4), -4)
    return IndexScale(quarters / 4, 1.0, tuple(quarter / 4 for quarter in range(quarters, 5)))
