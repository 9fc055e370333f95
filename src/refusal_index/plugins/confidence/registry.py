"""The methods by name."""

from __future__ import annotations

from collections.abc import Iterable

from refusal_index import entry_points
from refusal_index.data.errors import suggestion
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.plugins.confidence import apricot, model_scores, trained
from refusal_index.plugins.confidence.method import Method

METHODS: dict[str, Method] = {one.name: one for one in (*model_scores.METHODS, *trained.METHODS, apricot.APRICOT)}
"""Every method by its name, in the order in which they are listed; `method_of` adds those of other distributions."""


def method_of(name: str) -> Method | None:
    """Find a method by name; other distributions register theirs in the group ``refusal_index.confidence_methods``."""
    if name not in METHODS and (plugin := entry_points.find("confidence_methods", name)) is not None:
        METHODS[name] = entry_points.load(plugin)
    return METHODS.get(name)


def all_methods() -> tuple[Method, ...]:
    """Return every method that is installed, ours first."""
    for name in entry_points.installed("confidence_methods"):
        method_of(name)
    return tuple(METHODS.values())


def methods_of(names: Iterable[str]) -> tuple[Method, ...]:
    """Return methods by their names, in the order of the list.

    Raises
    ------
    ConfidenceError
        If there is none of a name; the message names the nearest.

    Examples
    --------
    >>> [one.name for one in methods_of(["likelihood", "p-answering"])]
    ['p-answering', 'likelihood']
    """
    wanted = set(names)
    if not wanted:
        raise ConfidenceError(f"method: expected some of {', '.join(METHODS)}, got none")
    for name in wanted:
        if method_of(name) is None:
            known = [*METHODS, *(entry_points.installed("confidence_methods").keys() - METHODS.keys())]
            raise ConfidenceError(f"method: expected some of {', '.join(known)}, got {name!r}{suggestion(name, known)}")
    return tuple(method for name, method in METHODS.items() if name in wanted)
