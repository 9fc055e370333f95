"""What a request told its model about decoding, read from the request itself.

Providers leave out settings that they do not accept, so a run's settings do not say what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Sent = Mapping[str, float | bool | None]
"""Decoding settings of a request by our names; None for one that was not sent."""

NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "topP": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "maxTokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "seed": "seed",
    "random_seed": "seed",
}
"""Our name for each field of a request body, in the words of the providers."""

SETTINGS = tuple(dict.fromkeys(NAMES.values()))
"""The settings that are recorded."""

MAX_DEPTH = 3
"""How deep a body is searched: providers nest these fields in at most two objects."""


def sent_in(body: Mapping[str, Any]) -> Sent:
    """Return the decoding settings in a request body.

    Every request has a seed of its own, so of the seed only its presence is returned: True or None.

    Examples
    --------
    >>> sent_in({"model": "m", "generation_config": {"temperature": 0.7, "max_output_tokens": 64, "top_p": None}})
    {'temperature': 0.7, 'top_p': None, 'max_tokens': 64, 'seed': None}
    """
    found: dict[str, float | bool | None] = dict.fromkeys(SETTINGS)
    for name, value in _numbers(body, MAX_DEPTH):
        if found[name] is None:
            found[name] = True if name == "seed" else value
    return found


def _numbers(body: Mapping[str, Any], depth: int) -> Iterator[tuple[str, float]]:
    """Yield the fields that are decoding settings, outer ones first; messages are lists, and so never searched."""
    for key, value in body.items():
        if key in NAMES and isinstance(value, int | float) and not isinstance(value, bool):
            yield NAMES[key], value
    for value in body.values():
        if depth > 1 and isinstance(value, Mapping):
            yield from _numbers(value, depth - 1)
