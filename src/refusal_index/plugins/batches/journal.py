"""The journal of a run's batches: what was submitted to a provider, written before and after.

Lines of JSON that are only ever added to, each on the disk before what it tells of is done. A process that is killed at
any moment so leaves word of every batch that may be in flight: of one that was begun, at the least.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.data.errors import NotWrittenError, shortened
from refusal_index.data.files import opened_file, opened_plain
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import UnreadableReplyError
from refusal_index.redaction import redacted

Json = dict[str, Any]

SOUND_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,999}")
"""How a provider may call a batch or a file: such a name has no say in the address that it is put into."""

LONGEST_TEXT = 1_000
MOST_REQUESTS = 10_000_000  # of one batch


class JournalError(RefusalIndexError, ValueError):
    """A journal that cannot be used; the message names the file and the line."""


@dataclass(frozen=True)
class Entry:
    """A batch that was begun, and is neither collected nor given up.

    Attributes
    ----------
    key
        Ours, which the provider is told.
    provider, place, model
        Where it was handed over, at which address, and whom it asks, by the name that the run has for it.
    requests
        The ids of those whose results are still wanted.
    size
        How many requests it holds in all.
    time
        When it was begun, in seconds since 1970.
    file, batch
        The provider's names; None as long as it gave none.
    others
        Batches that were taken for it, and are not.
    is_guess
        Whether the batch was found in the provider's list, and may be another one.
    """

    key: str
    provider: str
    place: str
    model: str
    requests: frozenset[str]
    size: int
    time: float
    file: str | None = None
    batch: str | None = None
    others: frozenset[str] = frozenset()
    is_guess: bool = False


def _left(entry: Entry, line: Json) -> Entry | None:
    left = entry.requests & frozenset(line["left"])
    return replace(entry, requests=left) if left else None


CHANGES: Mapping[str, Callable[[Entry, Json], Entry | None]] = {
    "uploaded": lambda entry, line: replace(entry, file=line["file"]),
    "submitted": lambda entry, line: replace(entry, batch=line["batch"], is_guess=line.get("is_guess") is True),
    "not_it": lambda entry, line: replace(entry, batch=None, others=entry.others | {line["batch"]}),
    "collected": _left,
    "given_up": lambda _entry, _line: None,
}
"""What a line makes of the batch that it tells of; None for nothing that is still in flight."""


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT


def _name(value: Any) -> bool:
    return isinstance(value, str) and SOUND_NAME.fullmatch(value) is not None


def usable(name: Any) -> str:
    """Return a provider's name of a batch or a file that may be written down and put into an address.

    Raises
    ------
    UnreadableReplyError
        If it has another form, or holds a key.
    """
    if not _name(name) or redacted(name) != name:
        what = "a plain name for a batch or a file, without a key in it"
        raise UnreadableReplyError(f"expected {what}, got {shortened(name)}")
    return str(name)


def _ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_REQUESTS and all(map(_name, value))


def _time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "begun": {"provider": _text, "place": _text, "model": _text, "requests": _ids, "time": _time},
    "uploaded": {"file": _name},
    "submitted": {"batch": _name},
    "not_it": {"batch": _name},
    "collected": {"left": _ids},
    "given_up": {"reason": _text},
}
"""What each line must hold beside its key."""


def checked(line: Any) -> Json:
    """Return a line that came from a file, or raise JournalError if it cannot be one."""
    if not isinstance(line, dict) or line.get("event") not in FIELDS or not _name(line.get("key")):
        raise JournalError(f"expected an event of a batch with its key, got {shortened(line)}")
    for name, is_sound in FIELDS[line["event"]].items():
        if not is_sound(line.get(name)):
            raise JournalError(f"expected a {name} that can be one, got {shortened(line.get(name))}")
    return line


ADVICE = "; mend the line, or put back the file: without it batches that are in flight would be paid for again"


class Journal:
    """What is known of a run's batches.

    Parameters
    ----------
    path
        The file; None keeps it in memory only.

    Raises
    ------
    JournalError
        If what lies there is no journal. A last line that is not whole, as a kill leaves it, counts as never written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._open = path, dict[str, Entry]()
        self._keys, self._known = set[str](), set[str]()
        self._whole = self._lines = 0  # whole lines that are known, in bytes and in all
        if path is not None:
            self._read_on(path)

    @property
    def entries(self) -> list[Entry]:
        """The batches that may be in flight, the oldest first."""
        return list(self._open.values())

    @property
    def known(self) -> frozenset[str]:
        """The provider's names of all batches that it ever told of."""
        return frozenset(self._known)

    @property
    def told_of(self) -> frozenset[str]:
        """All batches that it ever told of, by our keys and by the provider's names."""
        return frozenset(self._keys | self._known)

    def begin(self, provider: str, place: str, model: str, requests: Iterable[str]) -> Entry:
        """Write that a batch is about to be handed over, and return it under a new key.

        Raises
        ------
        NotWrittenError
            If it cannot be written: then nothing may be handed over.
        """
        key = f"ri-{uuid.uuid4().hex}"
        about = {"provider": provider, "place": place, "model": model, "requests": list(requests)}
        self._write({"event": "begun", "key": key, "time": round(time.time(), 3), **about})
        return self._open[key]

    def uploaded(self, key: str, file: str) -> Entry:
        """Write what the provider calls a batch's file."""
        self._write({"event": "uploaded", "key": key, "file": file})
        return self._open[key]

    def submitted(self, key: str, batch: str, *, is_guess: bool = False) -> Entry:
        """Write what the provider calls a batch, and whether it may be another one."""
        about = {"batch": batch, "time": round(time.time(), 3), **({"is_guess": True} if is_guess else {})}
        self._write({"event": "submitted", "key": key, **about})
        return self._open[key]

    def not_it(self, key: str) -> Entry:
        """Write that a batch is not the one it was taken for."""
        self._write({"event": "not_it", "key": key, "batch": self._open[key].batch})
        return self._open[key]

    def collected(self, key: str, left: Iterable[str] = ()) -> None:
        """Write that the results of a batch are stored, but for those of which nobody knew yet what to do with."""
        self._write({"event": "collected", "key": key, "left": sorted(left), "time": round(time.time(), 3)})

    def given_up(self, key: str, reason: str) -> None:
        """Write that nothing will come of a batch."""
        self._write({"event": "given_up", "key": key, "reason": reason[:LONGEST_TEXT], "time": round(time.time(), 3)})

    def _write(self, line: Json) -> None:
        checked(line)  # a provider may call things by any name
        if self._path is not None:
            self._read_on(self._path)
            content = json.dumps(line).encode() + b"\n"
            _append(self._path, self._whole, content)
            self._count(content)
        self._take(line)

    def _count(self, line: bytes) -> None:
        self._whole += len(line)
        self._lines += 1

    def _read_on(self, path: Path) -> None:
        """Read what is new: a command may have more than one engine at work in a folder, each with its journal."""
        if not os.path.lexists(path):
            return
        try:
            with opened_file(path) as file:
                file.seek(self._whole)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return  # what it would have told of was never done, or is found out anew
                    self._take_line(raw, f"{path}: line {self._lines + 1}")
                    self._count(raw)
        except OSError as error:
            raise JournalError(f"{path} cannot be read ({error.strerror})") from error

    def _take_line(self, raw: bytes, place: str) -> None:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"{place}: expected a JSON object, got {shortened(raw[:80])}{ADVICE}") from error
        try:
            self._take(checked(line))
        except JournalError as error:
            raise JournalError(f"{place}: {error}{ADVICE}") from error

    def _take(self, line: Json) -> None:
        event, key = line["event"], line["key"]
        if event == "begun":
            if key in self._open:
                raise JournalError("expected a key that no other batch has")
            about = {name: line[name] for name in ("provider", "place", "model", "time")}
            self._keys.add(key)
            self._open[key] = Entry(key, requests=frozenset(line["requests"]), size=len(line["requests"]), **about)
        elif key not in self._open:
            raise JournalError(f"expected the key of a batch that was begun, got {shortened(key)}")
        else:
            changed = CHANGES[event](self._open[key], line)
            if line.get("batch"):
                self._known.add(line["batch"])
            if changed is None:
                del self._open[key]
            else:
                self._open[key] = changed


def _append(path: Path, whole: int, content: bytes) -> None:
    """Write behind the whole lines of a file, and wait until it is on the disk."""
    try:
        is_new = not os.path.lexists(path)
        with os.fdopen(opened_plain(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0) as file:
            file.truncate(whole)  # of a line that a kill cut short
            file.seek(whole)
            for start in range(0, len(content), 1 << 20):
                _write_all(file.fileno(), content[start : start + (1 << 20)])
            os.fsync(file.fileno())
        if is_new:
            _flush_folder(path.parent)
    except OSError as error:
        raise NotWrittenError(path, error, "make room: nothing is handed over without word of it") from error


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _flush_folder(folder: Path) -> None:
    """Have the name of a new file on the disk as well, where folders can be flushed."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
