"""First passes from files of any kind: tables and samples of other tools, and logs of Inspect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from refusal_index import entry_points
from refusal_index.data.errors import suggestion
from refusal_index.data.imports import (
    FORMATS,
    FirstPass,
    FirstPassError,
    ReadOptions,
    detected_format,
    read_first_passes,
)
from refusal_index.data.imports.first_pass import with_forced
from refusal_index.data.imports.known import INSPECT
from refusal_index.data.imports.source import SourceFile
from refusal_index.data.tables import present_columns


class Importer(Protocol):
    """Reads a format; a plugin registers one in the group ``refusal_index.importers``."""

    def __call__(self, path: Path, options: ReadOptions, /) -> tuple[FirstPass, ...]:
        """Return the first passes in a file; raises FirstPassError if it cannot be read."""


@dataclass(frozen=True)
class Imported:
    """A file, what kind it is, and the first passes in it."""

    file: SourceFile
    kind: str
    passes: tuple[FirstPass, ...]


def joined(passes: Sequence[FirstPass], forced: Path, kind: str | None, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Return first passes with the forced answers that another file holds, in rows that are read alike.

    A column that was named counts for this file where it is there. Raises what `import_file` and `with_forced` do.
    """
    file = SourceFile.read(forced)
    if not file.is_inspect_log:
        present = present_columns(file.with_paths(options.columns.values()))
        options = replace(options, columns={role: name for role, name in options.columns.items() if name in present})
    # whose answers they are, the first file says
    found = import_file(forced, kind, replace(options, name=None, dataset=None)).passes
    return with_forced(passes, _under_their_names(passes, found), str(forced))


def _under_their_names(passes: Sequence[FirstPass], found: Sequence[FirstPass]) -> tuple[FirstPass, ...]:
    """Name forced answers of one model like the only model of the first passes: two files have two names."""
    models, others = ({one.model for one in each} for each in (passes, found))
    if len(models) == len(others) == 1:
        return tuple(replace(one, model=passes[0].model) for one in found)
    return tuple(found)


def import_file(path: Path, kind: str | None, options: ReadOptions) -> Imported:
    """Read a file of first passes.

    Parameters
    ----------
    path
        The file.
    kind
        One of `FORMATS`, or a plugin's; None to tell it by the content.
    options
        How it is read.

    Raises
    ------
    ValueError
        One of this package's own, if it cannot be used; the message names the line.
    """
    file = SourceFile.read(path)
    found = kind or detected_format(file)
    if found in FORMATS and found != INSPECT:
        return Imported(file, found, read_first_passes(file, found, options))
    plugin = entry_points.find("importers", found)
    if plugin is None:
        known = list(dict.fromkeys((*FORMATS, *entry_points.installed("importers"))))
        guess = suggestion(found, known)
        raise FirstPassError(f"--format: expected one of {', '.join(known)}, got {found!r}{guess}")
    read: Importer = entry_points.load(plugin)
    return Imported(file, found, options.applied(read(path, options)))
