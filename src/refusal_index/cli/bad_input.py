"""Bad input ends a command with one clear line and exit status 2."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import typer

from refusal_index.cli import console
from refusal_index.outcomes.errors import nearest

P = ParamSpec("P")
R = TypeVar("R")

INCOMPLETE = 1
BAD_INPUT = 2
INTERRUPTED = 130
EVAL_PACKAGES = frozenset({"aiohttp", "inspect_ai", "openai", "safetensors", "threadpoolctl", "tokenizers"})


class OptionError(ValueError):
    """An option that cannot be used as given."""


def one_of(option: str, given: str, known: Sequence[str]) -> str:
    """Return `given` if it is known.

    Raises
    ------
    OptionError
        If it is not; the message names the known ones, and the nearest.
    """
    if given in known:
        return given
    guess = nearest(given, known)
    advice = f"; did you mean {guess!r}?" if guess else ""
    raise OptionError(f"{option}: expected one of {', '.join(known)}, got {given!r}{advice}")


def tells_bad_input(command: Callable[P, R]) -> Callable[P, R]:
    """Print the message of an error about the user's input, or of a missing extra, instead of its traceback.

    Such errors are `ValueError`s of this package's own: each message says what was expected, what came, what to do.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ValueError as error:
            if not type(error).__module__.startswith("refusal_index."):
                raise
            console.error(error)
            raise typer.Exit(BAD_INPUT) from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in EVAL_PACKAGES:
                raise
            console.error(f"this needs the package {error.name}: pip install 'refusal-index[eval]'")
            raise typer.Exit(BAD_INPUT) from error

    return wrapped
