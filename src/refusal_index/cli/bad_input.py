"""Bad input ends a command with one clear line and exit status 2."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import typer

from refusal_index.cli import console
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import NotWrittenError, suggestion

P = ParamSpec("P")
R = TypeVar("R")

INCOMPLETE = 1
BAD_INPUT = 2
INTERRUPTED = 130
EVAL_PACKAGES = frozenset({"aiohttp", "inspect_ai", "openai", "safetensors", "threadpoolctl", "tokenizers"})


def option(name: str) -> str:
    """Return what a setting is called on the command line.

    Examples
    --------
    >>> option("max_tokens")
    '--max-tokens'
    """
    return f"--{name.replace('_', '-')}"


class OptionError(RefusalIndexError, ValueError):
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
    raise OptionError(f"{option}: expected one of {', '.join(known)}, got {given!r}{suggestion(given, known)}")


def tells_bad_input(command: Callable[P, R]) -> Callable[P, R]:
    """Print the message of an error about the user's input, or of a missing extra, instead of its traceback.

    Such errors have `RefusalIndexError` as their root: each message says what was expected, what came and what to do.
    Settings that it names are shown as options.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except NotWrittenError as error:
            console.error(error)
            raise typer.Exit(INCOMPLETE) from error
        except RefusalIndexError as error:
            shown = getattr(error, "shown", None)
            console.error(shown(option) if shown else error)
            raise typer.Exit(BAD_INPUT) from error
        except OSError as error:
            if error.errno == errno.EPIPE or error.filename is None:  # whoever read what is printed has gone
                raise
            console.error(f"{error.filename}: {error.strerror}; check the place, and what may be done there")
            raise typer.Exit(INCOMPLETE) from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in EVAL_PACKAGES:
                raise
            console.error(f"this needs the package {error.name}: pip install 'refusal-index[eval]'")
            raise typer.Exit(BAD_INPUT) from error

    return wrapped
