"""Requests to one model as files that a provider takes: none holds too many, or too much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from refusal_index.engines.waves.formats import MEGABYTE, Format, written
from refusal_index.engines.waves.wave import Pending
from refusal_index.outcomes.errors import NotWrittenError

LARGEST = 100 * MEGABYTE
"""Most bytes of a file, whatever a provider takes: it is held in memory while it is sent."""


def files_of(
    requests: Iterable[Pending], style: Format, model: str, most: int, folder: Path
) -> Iterator[tuple[Path, list[str]]]:
    """Write requests into one file after the other, and yield each with the ids in it; one that was used is removed.

    Parameters
    ----------
    requests
        All to the same model.
    style, model
        The provider's format, and what it calls the model.
    most
        Requests of one file; the provider may take fewer.
    folder
        Where to write.

    Raises
    ------
    NotWrittenError
        If there is no room.
    """
    style = replace(style, most_requests=min(most, style.most_requests), most_bytes=min(LARGEST, style.most_bytes))
    lines: list[bytes] = []
    ids: list[str] = []
    size = 0
    for one in requests:
        line = written(one, style, model).encode() + b"\n"
        if lines and not style.takes(len(lines) + 1, size + len(line)):
            yield from _file(folder, lines, ids)
            lines, ids, size = [], [], 0
        lines.append(line)
        ids.append(one.custom_id)
        size += len(line)
    if lines:
        yield from _file(folder, lines, ids)


def _file(folder: Path, lines: list[bytes], ids: list[str]) -> Iterator[tuple[Path, list[str]]]:
    path = folder / "requests.jsonl"
    try:
        with path.open("wb") as file:
            file.writelines(lines)
    except OSError as error:
        raise NotWrittenError(path, error) from error
    lines.clear()
    yield path, ids
    path.unlink()
