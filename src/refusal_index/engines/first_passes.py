"""First passes from files of any kind: tables and samples of other tools, and logs of Inspect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from refusal_index.datasets.imports import (
    FORMATS,
    FirstPass,
    FirstPassError,
    ReadOptions,
    detected_format,
    read_first_passes,
)
from refusal_index.datasets.imports.reader import INSPECT
from refusal_index.datasets.imports.source import SourceFile
from refusal_index.outcomes.errors import suggestion


@dataclass(frozen=True)
class Imported:
    """A file, what kind it is, and the first passes in it."""

    file: SourceFile
    kind: str
    passes: tuple[FirstPass, ...]


def import_file(path: Path, kind: str | None, options: ReadOptions) -> Imported:
    """Read a file of first passes.

    Parameters
    ----------
    path
        The file.
    kind
        One of `FORMATS`; None to tell it by the content.
    options
        How it is read.

    Raises
    ------
    ValueError
        One of this package's own, if it cannot be used; the message names the line.
    """
    file = SourceFile.read(path)
    if kind is not None and kind not in FORMATS:
        guess = suggestion(kind, FORMATS)
        raise FirstPassError(f"--format: expected one of {', '.join(FORMATS)}, got {kind!r}{guess}")
    found = kind or detected_format(file)
    if found != INSPECT:
        return Imported(file, found, read_first_passes(file, found, options))
    from refusal_index.engines.inspect.foreign_log import read_foreign_log  # noqa: PLC0415 - other files need no Inspect

    if options.columns:
        raise FirstPassError(f"--column: {path} is a log of Inspect, which has no columns; leave it out")
    return Imported(file, found, options.applied(read_foreign_log(path, options.scorer)))
