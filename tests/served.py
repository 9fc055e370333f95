"""How tests name the models of a server on this machine."""

from __future__ import annotations

KEY_NAME = "FAKE_API_KEY"
"""The environment variable of the server's key."""

MODEL, GRADER = "any", "grader"
"""Names of models, as the server has them."""


def is_served(name: object) -> bool:
    """Whether a name is one of a server's models: no rule, no function and none of a provider."""
    rules = {"exact", "includes", "choice", "regex"}
    return isinstance(name, str) and "/" not in name and ":" not in name and name not in rules


def at(url: str, *, graded: bool = False, key_name: str | None = KEY_NAME) -> dict[str, str]:
    """Return the settings under which a model, and a grader where `graded`, are asked at a server."""
    key = {} if key_name is None else {"api_key_env": key_name}
    return {"base_url": url, **key, **(grader_at(url, key_name=key_name) if graded else {})}


def grader_at(url: str, *, key_name: str | None = KEY_NAME) -> dict[str, str]:
    """Return the settings under which a grader is asked at a server."""
    return {"grader_base_url": url, **({} if key_name is None else {"grader_api_key_env": key_name})}


def as_options(settings: dict[str, str]) -> tuple[str, ...]:
    """Return settings as options of the command line."""
    return tuple(word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value))


def options_at(url: str, *, graded: bool = False, key_name: str | None = KEY_NAME) -> tuple[str, ...]:
    """Return the options of the command line for `at`."""
    return as_options(at(url, graded=graded, key_name=key_name))
