"""Everything that the command line prints, and the exit status after bad input.

All text is escaped here, and none is read as markup, since models, topics and files may have any name. API keys are
removed from all output.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar, cast

import typer

from refusal_index.errors import NotWrittenError, RefusalIndexError, suggestion
from refusal_index.redaction import redacted, redacted_in
from refusal_index.render.format import TEXT_WIDTH, Block, Table, escape

if TYPE_CHECKING:
    from rich.console import Console


class _Filtered:
    """A stream that removes API keys from what it writes; otherwise the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


def filter_streams() -> None:
    """Remove API keys from both streams from here on, also from the traceback that ends the process."""
    sys.stdout, sys.stderr = cast("TextIO", _Filtered(sys.stdout)), cast("TextIO", _Filtered(sys.stderr))


def say(text: object = "") -> None:
    """Print one line of any length; without a text, an empty line."""
    typer.echo(_shown(text))


def note(text: object) -> None:
    """Print one line to standard error."""
    typer.echo(_shown(text), err=True)


def error(text: object) -> None:
    """Print an error to standard error."""
    note(f"error: {text}")


def prose(text: str, indent: str = "") -> None:
    """Print a paragraph, folded to the width of the terminal, at most 80 columns."""
    width = min(TEXT_WIDTH, terminal().width)
    for line in _shown(text).split("\n"):
        typer.echo(fill(line, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def show(blocks: Iterable[Block]) -> None:
    """Print paragraphs and tables; indented text is an item of a list, and stays on one line."""
    for block in blocks:
        if isinstance(block, Table):
            for position, part in enumerate(block.parts(max(TEXT_WIDTH, terminal().width))):
                if position:
                    say()
                header, *rows = part.lines()
                typer.secho(_shown(header), bold=True)
                for row in rows:
                    say(row)
        elif block.startswith("  "):
            say(block)
        else:
            prose(block)


def document(content: Any) -> None:
    """Print a document as JSON, unrounded, for programs to read; control characters are written as JSON escapes."""
    text = json.dumps(redacted_in(content), indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo("\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n")))


def print_no_more(descriptor: int | None = None) -> None:
    """Discard remaining output: if its reader has gone, Python would fail again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno() if descriptor is None else descriptor)
    os.close(null)


def _escaped(line: str) -> str:
    """Return a line of JSON with what is not printed as escapes; only its strings can hold such characters."""
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)


def terminal(*, stderr: bool = False) -> Console:
    """Return a console for the current standard output and error."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _shown(text: object) -> str:
    return escape(redacted(str(text)))


P = ParamSpec("P")
R = TypeVar("R")

INCOMPLETE = 1
BAD_INPUT = 2
INTERRUPTED = 130
EVAL_PACKAGES = frozenset({"aiohttp", "inspect_ai", "openai", "safetensors", "threadpoolctl", "tokenizers"})


def option(name: str) -> str:
    """Return the command-line option of a setting.

    Examples
    --------
    >>> option("max_tokens")
    '--max-tokens'
    """
    return f"--{name.replace('_', '-')}"


class OptionError(RefusalIndexError, ValueError):
    """A command-line option that cannot be used."""


def one_of(option: str, value: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the choices.

    Raises
    ------
    OptionError
        If it is not; the message names the choices, and the nearest.
    """
    if value in choices:
        return value
    raise OptionError(f"{option}: expected one of {', '.join(choices)}, got {value!r}{suggestion(value, choices)}")


def report_user_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Print the message of an error about the user's input, or of a missing extra, instead of its traceback.

    Such errors have `RefusalIndexError` as their root: each message says what was expected, what came and what to do.
    Settings that it names are shown as options.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except NotWrittenError as caught:
            error(caught)
            raise typer.Exit(INCOMPLETE) from caught
        except RefusalIndexError as caught:
            shown = getattr(caught, "shown", None)
            error(shown(option) if shown else caught)
            raise typer.Exit(BAD_INPUT) from caught
        except OSError as caught:
            if caught.errno == errno.EPIPE or caught.filename is None:  # the reader of the output has gone
                raise
            error(f"{caught.filename}: {caught.strerror}; check the path and its permissions")
            raise typer.Exit(INCOMPLETE) from caught
        except ModuleNotFoundError as caught:
            if caught.name is None or caught.name.partition(".")[0] not in EVAL_PACKAGES:
                raise
            error(f"this needs the package {caught.name}: pip install 'refusal-index[eval]'")
            raise typer.Exit(BAD_INPUT) from caught

    return wrapped
