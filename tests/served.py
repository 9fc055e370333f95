"""How tests name the models of a server on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

KEY_NAME = "FAKE_API_KEY"
"""The environment variable of the server's key."""

ADDRESS = "SERVED_AT"
"""An environment variable in which fixtures leave the address of their server."""

MODEL, GRADER = "any", "grader"
"""Names of models, as the server has them."""


def is_served(name: object) -> bool:
    """Whether a name is one of a server's models: no rule, no function and none of a provider."""
    rules = {"exact", "includes", "choice", "regex"}
    return isinstance(name, str) and "/" not in name and ":" not in name and name not in rules


def at(url: str | None = None, *, graded: bool = False, key_name: str | None = None) -> dict[str, str]:
    """Return the settings under which a model, and a grader where `graded`, are asked at a server.

    Parameters
    ----------
    url
        The address; None for that in the environment.
    graded
        Whether the grader is at the same server.
    key_name
        The variable of the key; None for `KEY_NAME` if that is set, else for no key.
    """
    key = _key(key_name)
    named = {"api_key_env": key} if key else {}
    return {"base_url": url or os.environ[ADDRESS], **named, **(grader_at(url, key_name=key_name) if graded else {})}


def grader_at(url: str | None = None, *, key_name: str | None = None) -> dict[str, str]:
    """Return the settings under which a grader is asked at a server, as for `at`."""
    key = _key(key_name)
    return {"grader_base_url": url or os.environ[ADDRESS], **({"grader_api_key_env": key} if key else {})}


def _key(name: str | None) -> str | None:
    return name or (KEY_NAME if os.environ.get(KEY_NAME) else None)


def as_options(settings: dict[str, str]) -> tuple[str, ...]:
    """Return settings as options of the command line."""
    return tuple(word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value))


def options_at(url: str | None = None, *, graded: bool = False, key_name: str | None = None) -> tuple[str, ...]:
    """Return the options of the command line for `at`."""
    return as_options(at(url, graded=graded, key_name=key_name))


def with_addresses(arguments: Sequence[str]) -> list[str]:
    """Return arguments of the command line, with the options for the models in them that only a server names.

    If no fixture has left an address in the environment, nothing is added.
    """
    if ADDRESS not in os.environ:
        return list(arguments)
    given = dict(pairwise(arguments))
    judges = [*given.get("--grader", "").split(","), given.get("--refusal", "").partition("model:")[2]]
    added: dict[str, str] = {}
    if "--base-url" not in given and ("--config" in given or is_served(given.get("--model", given.get("--writer")))):
        added |= at()
    if "--grader-base-url" not in given and any(judge and is_served(judge) for judge in judges):
        added |= grader_at()
    return [*arguments, *as_options(added)]
