"""Every number of a summary by one name: that of its place there, with the variant first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from refusal_index.exporters.results import POOLED, UNNAMED

PASSED_OVER = ("variants", "metrics", "estimate")
"""Levels of a summary that say nothing in a name: the estimate of a metric has the name of the metric."""

NAMING = ("variant", "method", "pass", "name", "rule", "family", "code")
"""What tells the items of a list apart, where they have some of these."""

LONGEST_PART = 60

FOREIGN = re.compile(r"[^A-Za-z0-9_. -]+")
"""Characters that some tracker refuses in a name; the slash parts what lies within each other."""


def numbers(document: Mapping[str, Any]) -> dict[str, float]:
    """Return every number of a summary by its name, in its order; what is undefined is left out.

    - `document`: the summary as JSON holds it.

    >>> ri = {"estimate": 0.4, "low": 0.1, "high": None, "status": "ok"}
    >>> numbers({"penalty": 1.0, "variants": [{"variant": "low", "n": 60, "metrics": {"refusal_index": ri}}]})
    {'penalty': 1.0, 'low/n': 60.0, 'low/refusal_index': 0.4, 'low/refusal_index/low': 0.1}
    """
    found: dict[str, float] = {}
    for parts, value in _walk(document, ()):
        name, again = "/".join(parts), 1
        while name in found:
            again += 1
            name = f"{'/'.join(parts)}_{again}"
        found[name] = value
    return found


def withdrawn(before: Iterable[str], found: Mapping[str, float]) -> list[str]:
    """Return the names of numbers that were logged before and are undefined by now; names of others are left alone.

    >>> withdrawn(["low/n", "low/refusal_index", "of_mine", "progress/cost"], {"penalty": 1.0, "low/n": 60.0})
    ['low/refusal_index']
    """
    variants = {name.partition("/")[0] for name in found if "/" in name}
    return [name for name in before if name not in found and name.partition("/")[0] in variants]


def name_part(given: str) -> str:
    """Return a text as a part of a name that every tracker takes.

    >>> name_part("my/prompt"), name_part("..")
    ('my_prompt', '_')
    """
    return FOREIGN.sub("_", given).lstrip(". ")[:LONGEST_PART].rstrip(" ") or "_"


def _walk(value: Any, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, parts if key in PASSED_OVER else (*parts, name_part(str(key))))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _walk(item, (*parts, *_called(item, place, parts)))
    else:
        number = finite(value)
        if number is not None:
            yield parts, number


def _called(item: Any, place: int, within: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to call an item of a list: by what tells it from the others, else by its place."""
    if not isinstance(item, Mapping):
        return (str(place),)
    if within == ():
        return (name_part(str(item.get("variant") or UNNAMED)),)
    if within == (POOLED,) and place == 0:
        return ()  # of one model there is one
    return tuple(name_part(item[key]) for key in NAMING if isinstance(item.get(key), str)) or (str(place),)


def finite(value: Any) -> float | None:
    """Return a number of a document as a float; None for what is no number, or none that a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits, as only somebody's own file holds
        return None
    return number if math.isfinite(number) else None
