"""The methods by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from refusal_index.data.confidence import ConfidenceError
from refusal_index.data.errors import suggestion
from refusal_index.plugins.confidence import (
    apricot,
    calibrated,
    likelihood,
    p_ik,
    p_true,
    sampling,
    text_classifier,
    topic,
    verbalised,
)
from refusal_index.plugins.confidence.method import Method

_ASKED = (sampling, likelihood, p_true, verbalised)
_TRAINED = (calibrated, topic, p_ik, text_classifier, apricot)

METHODS: Mapping[str, Method] = {one.name: one for module in (*_ASKED, *_TRAINED) for one in module.METHODS}
"""Every method by its name, in the order in which they are listed."""

TOPIC = topic.TOPIC
"""The baseline of methods that are trained."""


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
    for name in wanted - METHODS.keys():
        raise ConfidenceError(f"method: expected some of {', '.join(METHODS)}, got {name!r}{suggestion(name, METHODS)}")
    return tuple(method for name, method in METHODS.items() if name in wanted)
