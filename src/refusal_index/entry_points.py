"""Plugins by name, through the entry points of installed distributions, and the version of this package.

A plugin is an object that a distribution registers under a name in the group ``refusal_index.KIND`` of its
``pyproject.toml``. This package registers its own plugins in the same way. Their names are read from its own metadata,
which takes a millisecond; all distributions are scanned (50 to 90 ms) only for a name that is not among them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from refusal_index.errors import RefusalIndexError, text_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DISTRIBUTION = "refusal-index"
OTHERS_ONLY = frozenset({"confidence_methods", "graders"})
"""Kinds for which this package registers no plugin, because its own are part of the core."""


def package_version() -> str:
    """Return the version of this package."""
    from importlib.metadata import version  # noqa: PLC0415 - takes 15 ms, --help needs none

    return version(DISTRIBUTION)


class PluginError(RefusalIndexError, RuntimeError):
    """A plugin that cannot be loaded, or is not registered; the message says what to do."""


@cache
def own_plugins(kind: str) -> Mapping[str, EntryPoint]:
    """Return this package's plugins of one kind, by name.

    Raises
    ------
    PluginError
        If its metadata is missing, or older than its code.

    Examples
    --------
    >>> "study" in own_plugins("commands")
    True
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - takes 15 ms, --help needs none

    with suppress(PackageNotFoundError):
        own = distribution(DISTRIBUTION).entry_points.select(group=f"refusal_index.{kind}")
        plugins = {plugin.name: plugin for plugin in own}
        if plugins or kind in OTHERS_ONLY:
            return plugins
    raise not_registered(kind)


@cache
def installed(kind: str) -> Mapping[str, EntryPoint]:
    """Return all plugins of one kind, by name: this package's own first, then those of other distributions.

    If two have the same name, the first on the path is used, as with modules.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 15 ms, --help needs none

    plugins = dict(own_plugins(kind))
    for plugin in entry_points(group=f"refusal_index.{kind}"):
        plugins.setdefault(plugin.name, plugin)
    return plugins


def find(kind: str, name: str) -> EntryPoint | None:
    """Find a plugin by name without importing it; return None if no installed distribution registers it."""
    return own_plugins(kind).get(name) or installed(kind).get(name)


def load(plugin: EntryPoint) -> Any:
    """Import a plugin.

    Raises
    ------
    PluginError
        If the plugin belongs to another distribution and cannot be imported.
    """
    try:
        return plugin.load()
    except (Exception, SystemExit) as error:
        source = plugin.dist.name if plugin.dist else plugin.value
        if source == DISTRIBUTION:
            raise  # an extra is missing, or a bug
        raise PluginError(
            f"{source}: its plugin {plugin.name!r} ({plugin.value}) cannot be loaded ({type(error).__name__}: "
            f"{text_of(error)}); update or uninstall {source}"
        ) from error


def first_line(registered: Any) -> str:
    """Return the first line of the docstring of what a plugin registers; empty without one.

    An object that is neither a function nor a class is described by its own docstring or that of its ``__call__``.

    Examples
    --------
    >>> first_line(first_line).partition(";")[0]
    'Return the first line of the docstring of what a plugin registers'
    """
    function = registered.func if isinstance(registered, partial) else registered
    is_function_or_class = inspect.isroutine(function) or isinstance(function, type)
    documented = function if is_function_or_class else type(function).__call__
    own = getattr(registered, "__dict__", {}).get("__doc__")
    return (own or documented.__doc__ or "").strip().partition("\n")[0]


def hook(name: str) -> Any:
    """Import the hook of this package with the given name, such as ``shown``.

    Raises
    ------
    PluginError
        If the package's metadata is older than its code.
    """
    plugin = own_plugins("hooks").get(name)
    if plugin is None:
        raise not_registered("hooks")
    return load(plugin)


def not_registered(kind: str) -> PluginError:
    """Return the error to raise when this package's metadata lacks a plugin of its own."""
    return PluginError(
        f"refusal-index is not installed, or an older version of it: its {kind} are not registered; reinstall it with "
        "pip install refusal-index, or pip install -e . in its source tree"
    )
