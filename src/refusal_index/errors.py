"""The base class of this package's errors, and errors about data and folders that a user provides.

Errors about input (a file, an argument, a folder) are `ValueError` as well; errors while models are asked are
`RuntimeError` as well. The message says what was expected, what was found and what to do. Other errors are defined in
the package that raises them; the documentation lists all.

- `TableError`: a table of any kind, in a file or in memory;
  - `OutcomeTableError`: an outcome table;
- `RunFolderError`: a run's folder.

`NotWrittenError` is an `OSError` instead: the input is valid, but the file cannot be written.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Self


class RefusalIndexError(Exception):
    """An error that a user can fix: the message says what was expected, what was found and what to do."""

    subject: str | None = None  # the option that the error is about
    remedy: tuple[str, Sequence[str]] | None = None  # the option that would fix it, and its values

    def __str__(self) -> str:
        return self.shown(argument)

    def shown(self, named: Callable[[str, Sequence[str]], str]) -> str:
        """Return the message; `named` returns an option, perhaps with values, as the caller writes it."""
        about = "" if self.subject is None else f"{named(self.subject, ())}: "
        advice = "" if self.remedy is None else f" with {named(*self.remedy)}"
        return f"{about}{super().__str__()}{advice}"

    def about(self, name: str) -> Self:
        """Return the error as one about an option."""
        self.subject = name
        return self

    def with_remedy(self, name: str, *values: str) -> Self:
        """Return the error with the option that would fix it, and its values."""
        self.remedy = name, values
        return self


ARGUMENTS = {"column": "columns", "map": "words", "format": "kind"}
"""Arguments of functions by the options of commands, where the names differ."""


def argument(name: str, values: Sequence[str] = ()) -> str:
    """Return an argument of a function, perhaps with values.

    >>> argument("column", ["grade=verdict"]), argument("max_tokens")
    ('columns={"grade": "verdict"}', 'max_tokens')
    """
    called = ARGUMENTS.get(name, name)
    pairs = [value.rpartition("=") for value in values]
    value = {key: entry for key, _, entry in pairs} if name in ("column", "map") else "".join(values)
    return f"{called}={json.dumps(value, ensure_ascii=False)}" if values else called


class TableError(RefusalIndexError, ValueError):
    """A table that cannot be used; the message names the line and column."""

    # line, column: where the error is; 0 and None if it concerns the whole table
    line: int = 0
    column: str | None = None


class OutcomeTableError(TableError):
    """An outcome table that cannot be used, or a file that should be one."""


class RunFolderError(RefusalIndexError, ValueError):
    """A folder that cannot be used: it holds another run, is in use, is not a run's folder, or has no results."""


class NotWrittenError(RefusalIndexError, OSError):
    """A file that cannot be written, for example because the disk is full; the old file is kept."""

    def __init__(
        self, path: Path, error: OSError, advice: str = "free some disk space, or choose another place"
    ) -> None:
        super().__init__(error.errno, error.strerror or str(error), str(path))
        self._advice = advice

    def shown(self, named: Callable[[str, Sequence[str]], str]) -> str:  # noqa: ARG002 - it names no option
        """Return the message."""
        return f"{self.filename} cannot be written ({self.strerror}); {self._advice}"


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded: Python decodes path bytes that are not UTF-8 to lone surrogates.

    >>> is_utf8("/runs/é"), is_utf8("/runs/" + chr(0xDCFF))
    (True, False)
    """
    return text.encode(errors="ignore").decode() == text


def checked_path(value: object, argument: str) -> Path:
    """Return `value` as a path, or raise RunFolderError if it is not a valid path.

    >>> checked_path("runs/example", "path").name
    'example'
    """
    if not isinstance(value, str | PathLike) or isinstance(fspath(value), bytes) or "\0" in fspath(value):
        raise RunFolderError(f"{argument}: expected a path, got {shortened(value)}")
    if not is_utf8(fspath(value)):
        raise RunFolderError(f"{argument}: expected a path in UTF-8, got {shortened(fspath(value))}; rename it")
    return Path(value)


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to `name`, ignoring case; None if none is similar enough.

    >>> nearest("Refusd", ["refused", "wrong"])
    'refused'
    """
    by_folded = {other.casefold(): other for other in names}
    matches = get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar known name; empty if none is similar enough.

    >>> suggestion("Refusd", ["refused", "wrong"])
    "; did you mean 'refused'?"
    """
    guess = nearest(name, names)
    return f"; did you mean {guess!r}?" if guess else ""


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Format names for a message, at most `limit` of them.

    >>> listed(["a", "b"]), listed([])
    ("'a', 'b'", 'none')
    """
    shown = [*map(repr, names)]
    return ", ".join(shown[:limit]) + (", ..." if len(shown) > limit else "") if shown else "none"


def text_of(error: BaseException) -> str:
    """Return the message of an error, which may be of any class; empty if it cannot be read.

    >>> text_of(ValueError("no index"))
    'no index'
    """
    try:
        return str(error)
    except Exception:
        return ""


def shortened(value: object, width: int = 60) -> str:
    """Format a value for a message, cut to `width` characters.

    >>> shortened("x" * 100, width=10)
    "'xxxxxx..."
    """
    try:
        shown = escape(repr(value))
    except Exception:  # of a class of the user's
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= width else shown[: width - 3] + "..."


CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, direction marks and line separators."""


def escape(text: str) -> str:
    r"""Return text with control and direction characters replaced by visible escapes.

    >>> escape('a\x1b[31mb')
    'a\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in CONTROL_CATEGORIES
        else character
        for character in text
    )
