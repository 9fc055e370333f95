"""Everything that the command line prints, and the exit status after bad input.

All text is escaped here, and none is read as markup, since models, topics and files may have any name. API keys are
removed from all output.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from refusal_index.errors import NotWrittenError, RefusalIndexError, escape, suggestion
from refusal_index.redaction import redacted, redacted_in
from refusal_index.render.format import TEXT_WIDTH, Block, Table

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
    sys.stdout = cast("TextIO", _Filtered(sys.stdout))
    sys.stderr = cast("TextIO", _Filtered(sys.stderr))


def replace_closed_streams() -> None:
    """Discard output where a stream is closed; otherwise the next file to be opened would receive it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - kept open


def ignore_width_of_zero() -> None:
    """Remove a width of 0 from the environment, which some systems set if there is no terminal."""
    width = os.environ.get("COLUMNS", "").strip()
    if width.isdecimal() and int(width) == 0:
        del os.environ["COLUMNS"]


def say(*lines: object) -> None:
    """Print lines of any length; without any, an empty one."""
    for line in lines or ("",):
        typer.echo(_shown(line))


def note(*lines: object) -> None:
    """Print lines to standard error."""
    for line in lines:
        typer.echo(_shown(line), err=True)


def error(problem: object) -> None:
    """Print an error, or the message of one, to standard error."""
    note(f"error: {_message(problem) if isinstance(problem, RefusalIndexError) else problem}")


def prose(text: str, indent: str = "") -> None:
    """Print a paragraph, folded to the width of the terminal, at most 80 columns."""
    width = min(TEXT_WIDTH, terminal().width)
    for line in _shown(text).split("\n"):
        typer.echo(fill(line, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def entry(name: str, description: str) -> None:
    """Print a name and its description, folded to the width of the terminal, at most 80 columns."""
    line = _shown(f"{name:<25} {description}")
    width = min(TEXT_WIDTH, terminal().width)
    typer.echo(fill(line, width, initial_indent="  ", subsequent_indent=" " * 28, break_on_hyphens=False))


def show(blocks: Iterable[Block]) -> None:
    """Print paragraphs and tables; indented text is an item of a list, and stays on one line."""
    for block in blocks:
        if isinstance(block, Table):
            for position, part in enumerate(block.parts(max(TEXT_WIDTH // 2, terminal().width))):
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


def _message(problem: RefusalIndexError, options: Collection[str] = ()) -> str:
    """Return the message of an error with options as they are written here, and the command that would fix it.

    There is no such command if the option is not one of the command's, or is given already.

    - `options`: those of the command.
    """
    text = problem.shown(_named)
    if problem.remedy is None:
        return text
    name, values = problem.remedy
    keys = {value.partition("=")[0] for value in values} if "=" in values[0] else {option(name)}
    is_given = any(word.partition("=")[0] in keys for word in sys.argv)
    if is_given or option(name) not in options:
        return text
    return f"{text}: {shlex.join(['refusal-index', *sys.argv[1:]])} {_named(name, values)}"


def _named(name: str, values: Sequence[str]) -> str:
    """Return an option, with each of its values if it has any."""
    return " ".join(f"{option(name)} {shlex.quote(value)}" for value in values) or option(name)


INCOMPLETE = 1
BAD_INPUT = 2
INTERRUPTED = 130
EVAL_PACKAGES = frozenset(
    {"aiohttp", "huggingface_hub", "inspect_ai", "openai", "safetensors", "threadpoolctl", "tokenizers"}
)


def option(name: str) -> str:
    """Return the command-line option of a setting, or of the argument of a function.

    Examples
    --------
    >>> option("max_tokens"), option("variant")
    ('--max-tokens', '--variants')
    """
    return "--variants" if name == "variant" else f"--{name.replace('_', '-')}"


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


def report_user_errors(invoke: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Print the message of an error about the user's input, or of a missing extra, instead of its traceback.

    Such errors have `RefusalIndexError` as their root: each message says what was expected, what came and what to do.
    Settings that it names are shown as options.

    - `invoke`: the method of a command or a group that runs it in a context.
    """

    @functools.wraps(invoke)
    def wrapped(command: Any, ctx: Any) -> Any:
        try:
            return invoke(command, ctx)
        except (Exception, SystemExit) as caught:
            described = _described(caught, {name for parameter in command.params for name in parameter.opts})
            if described is None:
                raise
            message, status = described
            error(message)
            raise typer.Exit(status) from caught

    return wrapped


def _described(caught: BaseException, options: Collection[str]) -> tuple[object, int] | None:
    """Return what to print of an error, and the exit status; None for an internal error, and for the end of a command.

    An OSError without a path, such as that of a closed pipe, is reported by `main`.
    """
    message: object = None
    status = BAD_INPUT
    match caught:
        case NotWrittenError():
            message = caught
            status = INCOMPLETE
        case RefusalIndexError():
            message = _message(caught, options)
        case OSError() if caught.errno != errno.EPIPE and caught.filename is not None:
            message = f"{caught.filename}: {caught.strerror}; check the path and its permissions"
            status = INCOMPLETE
        case ModuleNotFoundError() if (caught.name or "").partition(".")[0] in EVAL_PACKAGES:
            message = f"this needs the package {caught.name}: pip install 'refusal-index[eval]'"
        case RuntimeError() if str(caught).startswith("Symlink loop"):  # from `Path.resolve`, before Python 3.13
            message = f"{caught}; remove the link, or choose another path"
        case SystemExit() if not isinstance(caught.__context__, BrokenPipeError):  # Rich exits after such an error
            message = f"code that was loaded called sys.exit({caught.code!r}); correct it, or do not load it"
    return None if message is None else (message, status)
