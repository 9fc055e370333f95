"""The journal of a run's batches: each step of a submission, written before it is taken and after.

The file only grows by lines of JSON, each of which is on the disk before its step is taken. So a process that is killed
at any moment leaves a record of every batch that may be in flight, at least of the fact that it was begun.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.data.errors import NotWrittenError, shortened
from refusal_index.data.files import opened_file, opened_plain
from refusal_index.data.folder import RunFolder
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import UnreadableReplyError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.rounds import stored_ids
from refusal_index.protocol import Role
from refusal_index.redaction import redacted
from refusal_index.runs.store import ReplyStore

Json = dict[str, Any]

JOURNAL = "batches.jsonl"
"""Name of the journal in a run's folder."""

SAFE_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,999}")
"""What the name of a batch or a file may look like at a provider: it cannot change the URL that it is put into."""

MAX_TEXT = 1_000
MAX_REQUESTS = 10_000_000  # of one batch


class JournalError(RefusalIndexError, ValueError):
    """A journal of batches that is unreadable or has an invalid line; the message names it."""


@dataclass(frozen=True)
class Entry:
    """A batch that was begun, and is neither collected nor given up.

    Attributes
    ----------
    key
        Our key, which the provider is given.
    provider, place, model
        The provider, its address, and the model by its name in the run.
    requests
        The ids of the requests whose results are still wanted.
    size
        How many requests it holds in all.
    time
        When it was begun, in seconds since 1970.
    file, batch
        The provider's names; None as long as it gave none.
    others
        Batches that were mistaken for it.
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


def _remaining(entry: Entry, line: Json) -> Entry | None:
    requests = entry.requests & frozenset(line["left"])
    return replace(entry, requests=requests) if requests else None


CHANGES: Mapping[str, Callable[[Entry, Json], Entry | None]] = {
    "uploaded": lambda entry, line: replace(entry, file=line["file"]),
    "submitted": lambda entry, line: replace(entry, batch=line["batch"], is_guess=line.get("is_guess") is True),
    "not_it": lambda entry, line: replace(entry, batch=None, others=entry.others | {line["batch"]}),
    "collected": _remaining,
    "given_up": lambda _entry, _line: None,
}
"""How a line changes the entry of its batch; None where nothing of it is in flight any more."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and SAFE_NAME.fullmatch(value) is not None


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_REQUESTS and all(map(_is_name, value))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "begun": {"provider": _is_text, "place": _is_text, "model": _is_text, "requests": _are_ids, "time": _is_time},
    "uploaded": {"file": _is_name},
    "submitted": {"batch": _is_name},
    "not_it": {"batch": _is_name},
    "collected": {"left": _are_ids},
    "given_up": {"reason": _is_text},
}
"""The fields of each event beside its key, and what they must be."""


def usable(name: Any) -> str:
    """Return a provider's name of a batch or a file, which may be written down and put into a URL.

    Raises
    ------
    UnreadableReplyError
        If it has another form, or holds a key.
    """
    if not _is_name(name) or redacted(name) != name:
        what = "a plain name for a batch or a file, without a key in it"
        raise UnreadableReplyError(f"expected {what}, got {shortened(name)}")
    return str(name)


def checked(line: Any) -> Json:
    """Return a line of the journal, or raise JournalError if it cannot be one."""
    if not isinstance(line, dict) or line.get("event") not in FIELDS or not _is_name(line.get("key")):
        raise JournalError(f"expected a batch event with its key, got {shortened(line)}")
    for name, is_valid in FIELDS[line["event"]].items():
        if not is_valid(line.get(name)):
            raise JournalError(f"expected a {name} in a valid form, got {shortened(line.get(name))}")
    return line


ADVICE = "; correct the line, or restore the file: without it, batches in flight would be paid for again"


class Journal:
    """The journal of a run's batches.

    Parameters
    ----------
    path
        The file; None keeps it in memory only.

    Raises
    ------
    JournalError
        If the file is no journal. A last line that is not whole, as a kill leaves it, counts as never written.

    Attributes
    ----------
    names
        All batches ever written to it, by our keys and by the provider's names.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._open = path, dict[str, Entry]()
        self.names = set[str]()
        self._n_bytes = self._n_lines = 0  # of whole lines read or written so far
        self._read_new()

    @property
    def entries(self) -> list[Entry]:
        """The batches that may be in flight, the oldest first."""
        return list(self._open.values())

    def begin(self, provider: str, place: str, model: str, requests: Iterable[str]) -> Entry:
        """Write that a batch is about to be submitted, and return its entry under a new key.

        Raises
        ------
        NotWrittenError
            If it cannot be written: then nothing may be submitted.
        """
        key = f"ri-{uuid.uuid4().hex}"
        self._write("begun", key, provider=provider, place=place, model=model, requests=list(requests))
        return self._open[key]

    def uploaded(self, key: str, file: str) -> Entry:
        """Write the provider's name of a batch's file."""
        self._write("uploaded", key, file=file)
        return self._open[key]

    def submitted(self, key: str, batch: str, *, is_guess: bool = False) -> None:
        """Write the provider's name of a batch, and whether it may be another one."""
        self._write("submitted", key, batch=batch, **({"is_guess": True} if is_guess else {}))

    def not_it(self, key: str) -> Entry:
        """Write that a batch is not the one it was taken for."""
        self._write("not_it", key, batch=self._open[key].batch)
        return self._open[key]

    def collected(self, key: str, left: Iterable[str] = ()) -> None:
        """Write that the results of a batch are stored, except for those requests whose results are still wanted."""
        self._write("collected", key, left=sorted(left))

    def given_up(self, key: str, reason: str) -> None:
        """Write that nothing will come of a batch."""
        self._write("given_up", key, reason=reason[:MAX_TEXT])

    def _write(self, event: str, key: str, **fields: Any) -> None:
        # a provider may give any names
        line = checked({"event": event, "key": key, "time": round(time.time(), 3), **fields})
        self._read_new()
        if self._path is not None:
            content = json.dumps(line).encode() + b"\n"
            _append(self._path, self._n_bytes, content)
            self._count(content)
        self._apply(line)

    def _count(self, line: bytes) -> None:
        self._n_bytes += len(line)
        self._n_lines += 1

    def _read_new(self) -> None:
        """Read what is new: several engines of a command may work in one folder, each with its journal."""
        if self._path is None or not os.path.lexists(self._path):
            return
        try:
            with opened_file(self._path) as file:
                file.seek(self._n_bytes)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return  # its step was not taken, or will be discovered again
                    try:
                        self._apply(checked(json.loads(raw)))
                    except (ValueError, RecursionError) as error:
                        what = error if isinstance(error, JournalError) else f"expected JSON, got {shortened(raw[:80])}"
                        raise JournalError(f"{self._path}: line {self._n_lines + 1}: {what}{ADVICE}") from error
                    self._count(raw)
        except OSError as error:
            raise JournalError(f"{self._path} cannot be read ({error.strerror})") from error

    def _apply(self, line: Json) -> None:
        event, key = line["event"], line["key"]
        if event == "begun":
            if key in self._open:
                raise JournalError("expected a key that no other batch uses")
            about = {name: line[name] for name in ("provider", "place", "model", "time")}
            changed: Entry | None = Entry(
                key, requests=frozenset(line["requests"]), size=len(line["requests"]), **about
            )
        elif key not in self._open:
            raise JournalError(f"expected the key of a batch that was started, got {shortened(key)}")
        else:
            changed = CHANGES[event](self._open[key], line)
        self.names |= {key, line.get("batch") or key}
        if changed is None:
            del self._open[key]
        else:
            self._open[key] = changed


def _append(path: Path, n_bytes: int, content: bytes) -> None:
    """Write after the whole lines of a file, and wait until it is on the disk."""
    try:
        is_new = not os.path.lexists(path)
        with os.fdopen(opened_plain(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(n_bytes)  # removes a line that a kill cut short
            file.seek(n_bytes)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if is_new and os.name == "posix":  # the name of the file must be on the disk as well
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise NotWrittenError(path, error, "free some space: no batch is submitted without a record of it") from error


def journal_of(folder: RunFolder | None) -> Journal:
    """Return the journal of a run's folder; one in memory where there is none."""
    return Journal(None if folder is None else folder.path / JOURNAL)


def in_flight(folder: RunFolder, store: ReplyStore) -> list[Entry]:
    """Return the batches of a run's folder whose results are not all in its store, with the requests that lack one.

    No provider is asked, and no client of one is needed.

    Raises
    ------
    JournalError
        If the journal cannot be read.
    """
    entries = journal_of(folder).entries
    # By the model: two roles of a build may ask the same one.
    stored = {
        model: frozenset(stored_ids(store, dict.fromkeys(Role, model))) for model in {entry.model for entry in entries}
    }
    return [
        replace(entry, requests=requests) for entry in entries if (requests := entry.requests - stored[entry.model])
    ]


def describe_in_flight(entries: Collection[Entry]) -> str:
    """Say in a few words what is in flight, and where.

    Examples
    --------
    >>> describe_in_flight([Entry("ri-1", "openai", "", "openai/gpt-4.1", frozenset({"a", "b"}), 2, 0.0)])
    '1 batch with 2 requests at openai is in flight'
    """
    sizes: dict[str, list[int]] = {}
    for entry in entries:
        sizes.setdefault(entry.provider, []).append(len(entry.requests))
    parts = [
        f"{len(n):,} batch{'es' if len(n) > 1 else ''} with {sum(n):,} request{'s' if sum(n) > 1 else ''} at {provider}"
        for provider, n in sizes.items()
    ]
    return f"{' and '.join(parts)} {'is' if len(entries) == 1 else 'are'} in flight"


def check_forgotten(names: Collection[str], journals: Collection[Journal]) -> None:
    """Raise where a batch is to be given up that none of these journals holds.

    Raises
    ------
    SettingError
        The message names the unknown ones, and those that are in flight.
    """
    unknown = sorted(set(names).difference(*(journal.names for journal in journals)))
    if unknown:
        keys = ", ".join(entry.key for journal in journals for entry in journal.entries) or "none"
        raise SettingError(
            f"{{engine_option}} forget: no batch submitted from here is called "
            f"{', '.join(map(repr, unknown))}; in flight: {keys}"
        )
