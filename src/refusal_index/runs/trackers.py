"""Trackers of experiments, such as W&B and MLflow: what one has to do, and opening one by its name.

A plugin registers the class of a tracker in the group ``refusal_index.trackers``.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol
from urllib.parse import urlsplit

from refusal_index import entry_points
from refusal_index.data.folder import RunFolder
from refusal_index.errors import RefusalIndexError
from refusal_index.models.settings import unknown
from refusal_index.redaction import redacted, redacted_in

UNREACHABLE = re.compile(
    r"connection refused|connection reset|no such host|name resolution|name or service not known|nodename nor servname|"
    r"network is unreachable|no route to host|deadline exceeded|timed? ?out",
    re.IGNORECASE,
)
"""How clients say that no server answered: each has exceptions of its own, and the system's words within them."""

LONGEST_TITLE, LONGEST_REASON = 128, 300

POOLED = "pooled"
"""Stands for the variant where an estimate is joint over all of them."""

UNNAMED = "all"
"""Stands for the variant where a table names none, as in the report."""

PASSED_OVER = ("variants", "metrics", "estimate")
"""Levels of a summary that say nothing in a name: the estimate of a metric has the name of the metric."""

LEFT_OUT = "warnings"
"""A part of a summary whose numbers repeat others."""

NAMING = ("variant", "method", "pass", "name", "rule", "family", "code")
"""What tells the items of a list apart, where they have some of these."""

LONGEST_PART = 60

FOREIGN = re.compile(r"[^A-Za-z0-9_. -]+")
"""Characters that some tracker refuses in a name; the slash parts what lies within each other."""


@dataclass(frozen=True)
class Subject:
    """What a tracker is told of a run before anything was asked."""

    key: str  # the same whenever the same run is logged
    title: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Tracker(Protocol):
    """A run in a tracker; every method may raise whatever the tracker's client raises."""

    def count(self, found: Mapping[str, float]) -> None:
        """Log how far the run has come."""

    def finish(self, folder: Path) -> str:
        """Log all results of a run's folder, end the run, and return where it is to be seen."""

    def abandon(self) -> None:
        """End the run as one that failed."""

    def wait(self) -> None:
        """Leave the run as one without results yet, which the same command resumes."""


class TrackerClass(Protocol):
    """The class of a tracker; calling it begins a run there.

    - `package`: the package that it imports.
    - `address`: the environment variable that holds the address of its server.
    """

    package: str
    address: str

    def __call__(self, subject: Subject) -> Tracker:
        """Begin a run; it raises whatever the tracker's client raises."""


def tracker_class(name: str) -> TrackerClass:
    """Find a tracker by name; raises SettingError if there is none of this name."""
    plugin = entry_points.find("trackers", name)
    if plugin is None:
        raise unknown("log_to", name, sorted(entry_points.installed("trackers")))
    found: TrackerClass = entry_points.load(plugin)
    return found


def is_installed(name: str) -> bool:
    """Whether the package that a tracker imports is installed."""
    return find_spec(tracker_class(name).package) is not None


def not_installed(name: str) -> str:
    """Say what to do where it is not."""
    return f"{tracker_class(name).package} is not installed; pip install 'refusal-index[{name}]'"


def subject_of(folder: RunFolder, title: str) -> Subject:
    """Return what a tracker is told of a folder that was just made; raises RunFolderError where there is none."""
    config = config_of(folder.read_settings(), folder.read_about())
    return Subject(key_of(folder), short_title(redacted(title)), config)


def key_of(folder: RunFolder) -> str:
    """Return what tells a run's folder from every other; raises RunFolderError where it is no run's."""
    return hashed(folder.read_id())


def hashed(*parts: object) -> str:
    """Return a short hash of some texts."""
    whole = b"\0".join(one if isinstance(one, bytes) else str(one).encode(errors="replace") for one in parts)
    return hashlib.sha256(whole).hexdigest()[:16]


def short_title(title: str) -> str:
    """Return a title on one line, not longer than every tracker takes."""
    return " ".join(title.split())[:LONGEST_TITLE]


def config_of(settings: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run was asked, as `run.json` holds it, without keys; empty where nothing is known."""
    found: dict[str, Any] = redacted_in({**settings, **({"about": dict(about)} if about else {})})
    return found


def told(name: str, error: BaseException) -> str:
    """Return what went wrong in a tracker, on one line and without keys."""
    said = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, RefusalIndexError):
        return redacted(said)
    unanswered = UNREACHABLE.search(said)
    if unanswered is not None:
        address = urlsplit(os.environ.get(tracker_class(name).address, ""))
        is_server = address.scheme.startswith("http")
        server = f"{address.scheme}://{address.netloc.rpartition('@')[2]}" if is_server else "its server"
        return f"{server} cannot be reached ({unanswered[0].lower()})"
    return shorten(redacted(f"{type(error).__name__}: {said}").rstrip("."), LONGEST_REASON, placeholder=" ...")


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
            if key != LEFT_OUT:
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
