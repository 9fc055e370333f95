"""What folders of earlier releases hold: replies in Inspect's logs, taken over into the store once.

A folder may come from a stranger. A log is an archive of JSON, of which only what is needed is read, each part up to a
size. The cache beside it holds pickles, which are code to whoever reads them: nothing reads them, and what lies in the
cache alone is asked again.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.engines.completions import CARRIED, from_metadata
from refusal_index.engines.error_messages import error_line
from refusal_index.engines.inspect.samples import to_question
from refusal_index.engines.store import ReplyStore
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import TableError
from refusal_index.outcomes.files import check_plain, opened_file
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.question import Question
from refusal_index.protocol import Asked, Completion

REGRADED = "regraded"
"""Marks the header of a log whose replies were taken from another run."""

NOT_ANSWERED = "not_answered"
"""Names, in a sample of a regraded log, what had kept the question from being answered."""

HEADER, START, SAMPLES = "header.json", "_journal/start.json", "samples/"

MOST_ENTRY, MOST_LOG, MOST_BLOCK = 64 << 20, 4 << 30, 1 << 20
"""Most bytes of a part of a log once unpacked, of all its parts, and of what is unpacked at once to count them."""


class LogError(RefusalIndexError, ValueError):
    """A log that cannot be read; the message names the file."""


@dataclass(frozen=True)
class LogHeader:
    """What a log says of itself."""

    variant: str | None  # None in a log of something else
    is_finished: bool
    is_regraded: bool = False


def read_header(path: Path) -> LogHeader:
    """Return the header of a log, without its samples.

    Raises
    ------
    LogError
        If the file is not a log, or no plain file.
    """
    with _opened(path) as archive:
        finished = HEADER in archive.namelist()
        document = _read_part(archive, HEADER if finished else START)
        metadata = document["eval"].get("metadata") or {}
        variant = metadata.get("variant")
        return LogHeader(
            variant if isinstance(variant, str) else None,
            finished and document.get("status") == "success",
            bool(metadata.get(REGRADED)),
        )


def check_size(path: Path) -> None:
    """Raise LogError if a log is larger once unpacked than it may be, whatever it says of its size itself."""
    with _opened(path, plain=False) as archive:
        total = 0
        for one in archive.infolist():
            with archive.open(one) as part:
                size = 0
                while block := part.read(MOST_BLOCK):
                    size += len(block)
                    _check_sizes(one.filename, size, total + size)
            total += size


def finished_logs(folder: RunFolder) -> dict[str, Path]:
    """Return the newest log of each variant that was run to its end."""
    logs: dict[str, Path] = {}
    for path in sorted(folder.logs.glob("*.eval")):  # names begin with the time
        try:
            header = read_header(path)
        except LogError:  # a kill left it torn
            continue
        if header.is_finished and header.variant is not None:
            logs[header.variant] = path
    return logs


def take_over_logs(folder: RunFolder, store: ReplyStore) -> None:
    """Put what the logs of finished variants hold into a store, all of it or nothing.

    Raises
    ------
    LogError
        If a log is damaged that the outcome table beside it was made of.
    """
    logs = finished_logs(folder)
    lost = _variants_of_outcomes(folder) - logs.keys()
    torn = [path for path in sorted(folder.logs.glob("*.eval")) if not _is_readable(path)] if lost else []
    if torn:
        raise LogError(
            f"{torn[0]}: not a readable Inspect log, and no other one holds the variant {', '.join(sorted(lost))} of "
            f"{folder.outcomes.name}; restore it, or move it and {folder.outcomes.name} elsewhere to go on without it"
        )
    with ReplyStore(None) as found:
        for variant, path in logs.items():
            _take_over(variant, path, found)
        store.put_all(found)


def _variants_of_outcomes(folder: RunFolder) -> set[str]:
    try:
        return (
            {name for name in folder.read_outcomes()["variant"].unique() if name} if folder.outcomes.exists() else set()
        )
    except TableError:  # it is derived, and made anew
        return set()


def _is_readable(path: Path) -> bool:
    try:
        read_header(path)
    except LogError:
        return False
    return True


def _take_over(variant: str, path: Path, store: ReplyStore) -> None:
    regraded = read_header(path).is_regraded
    with _opened(path) as archive:
        samples = sorted(_samples(archive), key=lambda sample: (str(sample["id"]), sample.get("epoch", 1)))
        asked = {_question(sample): int(sample["metadata"].get("draws", 1)) for sample in samples}
        replies = [one for sample in samples for one in _completions(sample, variant, regraded=regraded)]
        failed = {str(sample["id"]): _reason(sample) for sample in samples if _is_unfinished(sample)}
    store.ask(variant, asked)
    store.put(replies)
    for question_id, reason in failed.items():
        store.fail(variant, question_id, reason)


@contextmanager
def _opened(path: Path, *, plain: bool = True) -> Iterator[zipfile.ZipFile]:
    """Open a log; whatever is wrong with its content inside the block becomes an error that names it."""
    try:
        with opened_file(path if plain else check_plain(path.resolve())) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except Exception as error:  # what readers of archives and JSON raise, and what does not have the shape of a log
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise LogError(
            f"{path}: not a readable Inspect log ({type(error).__name__}: {said}); restore it, or move it elsewhere"
        ) from error


def _read_part(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    with archive.open(name) as part:
        content = part.read(MOST_ENTRY + 1)
    _check_sizes(name, len(content), 0)
    document = json.loads(content)
    if not isinstance(document, dict):
        raise TypeError(f"{name}: expected an object, got {type(document).__name__}")
    return document


def _check_sizes(name: str, size: int, total: int) -> None:
    if size > MOST_ENTRY or total > MOST_LOG:
        raise ValueError(f"expected at most {MOST_ENTRY:,} bytes in {name} and {MOST_LOG:,} in all")


def _samples(archive: zipfile.ZipFile) -> Iterator[dict[str, Any]]:
    """Yield the samples of a log, with no more of each than is needed."""
    total = 0
    for name in dict.fromkeys(archive.namelist()):
        if name.startswith(SAMPLES) and name.endswith(".json"):
            total += archive.getinfo(name).file_size
            _check_sizes(name, 0, total)
            sample = _read_part(archive, name)
            kept = ("id", "epoch", "input", "target", "error")
            yield {**{key: sample[key] for key in kept if key in sample}, "metadata": sample.get("metadata") or {}}


def _completions(sample: Mapping[str, Any], variant: str, *, regraded: bool) -> Iterator[Completion]:
    """Yield what a sample holds; what was graded anew belongs to its variant, also in the forced pass."""
    carried = sample["metadata"].get(CARRIED) or ()
    for one in from_metadata(carried, str(sample["id"]), variant, sample.get("epoch", 1) - 1):
        yield replace(one, variant=variant) if regraded and one.reply.asked is Asked.MODEL else one


def _question(sample: Mapping[str, Any]) -> Question:
    target = sample["target"]
    gold = target if isinstance(target, str) else target[0]
    return to_question(sample["id"], str(sample["input"]), gold, sample["metadata"])


def _is_unfinished(sample: Mapping[str, Any]) -> bool:
    return bool(sample.get("error")) or CARRIED not in sample["metadata"]


def _reason(sample: Mapping[str, Any]) -> str:
    if sample.get("error"):
        return error_line(str(sample["error"]["message"]))
    before = sample["metadata"].get(NOT_ANSWERED)
    return (
        f"not answered in the run that is graded anew: {before}"
        if before
        else "the question ended before the protocol did"
    )
