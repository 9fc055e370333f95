"""Trackers of experiments, such as W&B and MLflow: what one has to do, and opening one by its name.

A plugin registers the class of a tracker in the group ``refusal_index.trackers``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
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
