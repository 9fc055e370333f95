"""Plugins by name, through the entry points of installed distributions, and the version of this package.

A plugin is an object that a distribution registers under a name in the group ``refusal_index.KIND`` of its
``pyproject.toml``. This package registers its own plugins in the same way. Their names are read from its own metadata,
which takes a millisecond; all distributions are scanned (50 to 90 ms) only for a name that is not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from refusal_index.errors import RefusalIndexError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DISTRIBUTION = "refusal-index"
OTHERS_ONLY = frozenset({"confidence_methods", "graders"})
"""Kinds of which this package registers none: its own are part of the core."""


def package_version() -> str:
    """Return the version of this package."""
    from importlib.metadata import version  # noqa: PLC0415 - takes 15 ms, --help needs none

    return version(DISTRIBUTION)


class PluginError(RefusalIndexError, RuntimeError):
    """A plugin that cannot be loaded, or is not registered; the message says what to do."""


@cache
def own(kind: str) -> Mapping[str, EntryPoint]:
    """Return this package's plugins of a kind by name.

    Raises
    ------
    PluginError
        If its metadata is missing, or older than its code.

    Examples
    --------
    >>> "study" in own("commands")
    True
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - takes 15 ms, --help needs none

    with suppress(PackageNotFoundError):
        found = {one.name: one for one in distribution(DISTRIBUTION).entry_points.select(group=f"refusal_index.{kind}")}
        if found or kind in OTHERS_ONLY:
            return found
    raise not_registered(kind)


@cache
def installed(kind: str) -> Mapping[str, EntryPoint]:
    """Return all plugins of a kind by name: this package's own first, then those of other distributions.

    Of two with one name the first on the path counts, as for modules.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 15 ms, --help needs none

    found = dict(own(kind))
    for one in entry_points(group=f"refusal_index.{kind}"):
        found.setdefault(one.name, one)
    return found


def find(kind: str, name: str) -> EntryPoint | None:
    """Find a plugin by name, unloaded; None where no installed distribution registers it."""
    return own(kind).get(name) or installed(kind).get(name)


def load(plugin: EntryPoint) -> Any:
    """Import a plugin.

    Raises
    ------
    PluginError
        If it is another distribution's, and cannot be imported.
    """
    try:
        return plugin.load()
    except Exception as error:
        source = plugin.dist.name if plugin.dist else plugin.value
        if source == DISTRIBUTION:
            raise  # an extra is missing, or a bug
        raise PluginError(
            f"{source}: its plugin {plugin.name!r} ({plugin.value}) cannot be loaded ({type(error).__name__}: "
            f"{error}); update or uninstall {source}"
        ) from error


def hook(name: str) -> Any:
    """Import the plugin of this package that the core calls by this name, such as ``outstanding``."""
    return load(own("hooks")[name])


def not_registered(kind: str) -> PluginError:
    """Return the error of a plugin of this package that its metadata does not name."""
    return PluginError(
        f"refusal-index is not installed, or an older version of it: its {kind} are not registered; reinstall it with "
        "pip install refusal-index, or pip install -e . in its source tree"
    )
