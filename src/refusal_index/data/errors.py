"""What can be wrong with the data or the folder that a user hands in.

All are `ValueError`: the input is at fault, and the message names the file, the place, what was expected, what came
and what to do.

- `TableError`: a table of any kind, in a file or in memory;
  - `OutcomeTableError`: an outcome table;
- `RunFolderError`: the folder of a run.

`NotWrittenError` is none of these: the input is sound and the disk is full, or will not have the file; it is an
`OSError` as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path

from refusal_index.errors import RefusalIndexError


class TableError(RefusalIndexError, ValueError):
    """A table that cannot be used as it is; the message names the line and column."""

    # line, column: the first row that is wrong, and the column where there is one in particular; 0 and None for the
    # whole table
    line: int = 0
    column: str | None = None
    # role and name for the setting `column` that would fix the error; and whether to word the advice for Python
    setting: tuple[str, str] | None = None
    is_for_python: bool = False

    def __str__(self) -> str:
        text = super().__str__()
        if self.setting is None:
            return text
        role, name = self.setting
        return f"{text} with " + (
            f"columns={json.dumps({role: name})}" if self.is_for_python else f"--column {role}={name}"
        )


class OutcomeTableError(TableError):
    """An outcome table that cannot be used, or a file that should be one."""


class RunFolderError(RefusalIndexError, ValueError):
    """A folder that cannot be used: it has another run, is in use, is not a run, or has no results."""


class NotWrittenError(RefusalIndexError, OSError):
    """A file that cannot be written, for example on a full disk; the old file is kept."""

    def __init__(
        self, path: Path, error: OSError, advice: str = "free some disk space, or choose another place"
    ) -> None:
        super().__init__(error.errno, error.strerror or str(error), str(path))
        self._advice = advice

    def __str__(self) -> str:
        return f"{self.filename} cannot be written ({self.strerror}); {self._advice}"


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded: Python reads bytes of a path that are not UTF-8 as halves of surrogate pairs.

    >>> is_utf8("/runs/é"), is_utf8("/runs/" + chr(0xDCFF))
    (True, False)
    """
    return text.encode(errors="ignore").decode() == text


def checked_path(given: object, argument: str) -> Path:
    """Return a path, or raise RunFolderError where something else is given.

    >>> checked_path("runs/example", "path").name
    'example'
    """
    if not isinstance(given, str | PathLike) or isinstance(fspath(given), bytes) or "\0" in fspath(given):
        raise RunFolderError(f"{argument}: expected the path of a folder, got {shortened(given)}")
    if not is_utf8(fspath(given)):
        raise RunFolderError(f"{argument}: expected a path in UTF-8, got {shortened(fspath(given))}; rename it")
    return Path(given)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Find the known name that `name` was probably meant to be, whatever its case.

    >>> nearest("Refusd", ["refused", "wrong"])
    'refused'
    """
    by_folded = {other.casefold(): other for other in known}
    matches = get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest known name was meant; empty where none is near.

    >>> suggestion("Refusd", ["refused", "wrong"])
    "; did you mean 'refused'?"
    """
    guess = nearest(name, known)
    return f"; did you mean {guess!r}?" if guess else ""


def listed(names: Iterable[str], most: int = 12) -> str:
    """Show names in a message, not more than fit.

    >>> listed(["a", "b"]), listed([])
    ("'a', 'b'", 'none')
    """
    shown = [*map(repr, names)]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "") if shown else "none"


def shortened(value: object, width: int = 60) -> str:
    """Show a value in a message without letting a long one drown the rest.

    >>> shortened("x" * 100, width=10)
    "'xxxxxx..."
    """
    shown = repr(value)
    return shown if len(shown) <= width else shown[: width - 3] + "..."
