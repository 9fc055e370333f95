"""Numbers in a text, and their units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from operator import and_, or_

from refusal_index.data.text import folded

UNLIMITED = Context(traps=[])  # a reply may contain a number beyond any range
MINUS = "\u2212\u2012\u2013-"
SPACES = " \u00a0\u2009\u202f'\u2019"  # between groups of three digits
NUMBER = re.compile(
    rf"(?P<figures>(?:(?<!\w)[+{MINUS}])?(?:"
    r"(?P<comma>(?:\d+,\d{1,2}|0,\d+)(?!,?\d))"
    rf"|\d{{1,3}}(?:(?:,\d{{3}})+|(?:[{SPACES}]\d{{3}})+)(?!\d)(?:\.\d+)?"
    r"|\d+(?:\.\d+)?|(?<!\.)\.\d+))"
    r"(?:\s+(?P<scale>hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
WITHOUT_GROUPS = str.maketrans(dict.fromkeys(MINUS, "-") | dict.fromkeys("," + SPACES))
WITH_POINT = str.maketrans(dict.fromkeys(MINUS, "-") | {",": "."})
POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

WRITTEN = {
    # what a sign, a code or a word may stand for, and how it is written, with _ for a space
    "%": "% percent per_cent pct prozent procent procenta procento",
    "‰": "‰",
    "USD AUD CAD NZD HKD SGD": "$ dollar dollars",
    "USD": "us$ usd",
    "AUD": "a$ au$ aud",
    "CAD": "c$ ca$ cad",
    "NZD": "nz$ nzd",
    "HKD": "hk$ hkd",
    "SGD": "s$ sgd",
    "EUR": "€ eur euro euros",
    "GBP lb": "£ pound pounds",
    "GBP": "gbp sterling",
    "JPY CNY": "¥",
    "JPY": "jpy yen",
    "CNY": "cny rmb yuan",
    "INR": "₹ inr rupee rupees",
    "RUB": "₽ rub ruble rubles rouble roubles",
    "KRW": "₩ krw won",
    "CHF": "chf franc francs",
    "CZK": "czk kč",
    "°C °F °": "° degree degrees",
    "°C": "°c celsius",
    "°F": "°f fahrenheit",
}
UNITS = {
    form.replace("_", " "): frozenset(meanings.split())
    for meanings, forms in WRITTEN.items()
    for form in folded(forms).split()
}
ANY_UNIT = "|".join(
    rf"{re.escape(form)}(?![^\W_])" if form[-1].isalpha() else re.escape(form) for form in sorted(UNITS, reverse=True)
)
UNIT = re.compile(rf"(?<![^\W\d_])(?:{ANY_UNIT})|[$€£¥%‰°]")
MEASURES = {  # how a measure is written after a number, and its short form
    r"km|kilom[eéè]t(?:re|er|ro|r)[a-zůy]*|quil[oô]metros?|chilometr[io]": "km",
    r"cm|centim[eéè]t(?:re|er|ro|r)[a-zůy]*": "cm",
    r"mm|millim[eéè]t(?:re|er|ro|r)[a-zůy]*": "mm",
    r"m[eéè]t(?:res?|ers?|ros?|ry|rů)": "m",
    r"kg|kilos?|kilogra[mn][a-zůy]*": "kg",
    r"mg|milligra[mn][a-zůy]*": "mg",
    r"gram(?:s|mes?|m|y|ů)?": "g",
    r"mi|miles?": "mi",
    r"ft|f(?:oo|ee)t": "ft",
    r"inch(?:es)?": "in",
    r"hrs?|hours?": "h",
    r"mins?|minutes?": "min",
    r"secs?|seconds?": "s",
    r"lit(?:re|er)s?": "l",
}
MEASURE = tuple(
    (re.compile(rf"(?<=\d)[\s-]?(?:{forms})(?![^\W_])", re.IGNORECASE), short) for forms, short in MEASURES.items()
)


@dataclass(frozen=True)
class Quantity:
    """A number in a text.

    Attributes
    ----------
    value
        The number.
    last_figure
        The value of a one in its last figure: 0.01 for 3.14, a hundred thousand for 1.5 million.
    start, end
        Where it is in the text.
    """

    value: Decimal
    last_figure: Decimal
    start: int
    end: int

    def is_close(self, other: Quantity) -> bool:
        """Whether another number differs by less than half a unit of this one's last figure."""
        return abs(UNLIMITED.subtract(other.value, self.value)) < self.last_figure / 2


def numbers_in(text: str) -> Iterator[Quantity]:
    """Find the numbers in a text, including those in words such as B52 and 3rd."""
    return map(_quantity, NUMBER.finditer(text))


def _quantity(number: re.Match[str]) -> Quantity:
    figures = Decimal(number["figures"].translate(WITH_POINT if number["comma"] else WITHOUT_GROUPS))
    value = figures.scaleb(POWERS[number["scale"].lower()], UNLIMITED) if number["scale"] else figures
    exponent = value.as_tuple().exponent
    last_figure = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    return Quantity(value, last_figure, *number.span())


def with_plain_measures(text: str) -> str:
    """Return a text with the measures after its numbers in their short form.

    Examples
    --------
    >>> with_plain_measures("5km or 3 miles")
    '5 km or 3 mi'
    """
    for pattern, short in MEASURE:
        text = pattern.sub(f" {short}", text)
    return text


def units_in(text: str) -> frozenset[str] | None:
    """Return what the units in a text may stand for: "$" is one of several currencies; None without units.

    Examples
    --------
    >>> units_in("20 degrees Celsius"), units_in("€5"), units_in("5") is None
    (frozenset({'°C'}), frozenset({'EUR'}), True)
    """
    found = [UNITS[unit] for unit in UNIT.findall(folded(text))]
    return (reduce(and_, found) or reduce(or_, found)) if found else None


def without_units(text: str) -> str:
    """Return a folded text without its units."""
    return UNIT.sub(" ", folded(text))


def unit_before(text: str) -> frozenset[str] | None:
    """Return what the unit that ends a text may stand for; None without one."""
    plain = folded(text).rstrip()
    at_end = [unit[0] for unit in UNIT.finditer(plain) if unit.end() == len(plain)]
    return UNITS[at_end[0]] if at_end else None


def unit_after(text: str) -> frozenset[str] | None:
    """Return what the unit that begins a text may stand for; None without one."""
    plain = folded(text).lstrip(" -")
    return units_in(plain[: len("degrees celsius")]) if UNIT.match(plain) else None


def agree(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    """Whether the units of two texts may be the same, or one has none."""
    return one is None or other is None or not one.isdisjoint(other)
