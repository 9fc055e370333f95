"""The journal of a run's batches: a write-ahead log of every submission.

The journal is an append-only file of JSON lines. The line that begins a batch is flushed to disk before anything is
submitted, so a process killed at any moment leaves a record of every batch that may be in flight.
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

from refusal_index.data.files import opened_file, opened_plain
from refusal_index.data.folder import RunFolder
from refusal_index.errors import NotWrittenError, RefusalIndexError, shortened
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
"""A provider's id of a batch or file that is safe to insert into a URL."""

MAX_TEXT = 1_000
MAX_REQUESTS = 10_000_000  # in one batch


class JournalError(RefusalIndexError, ValueError):
    """A journal that cannot be read or has an invalid line; the message says which line."""


@dataclass(frozen=True)
class JournalEntry:
    """A batch that was begun and is neither collected nor abandoned.

    Attributes
    ----------
    key
        Our key, which is sent to the provider.
    provider, place, model
        The provider, its address, and the name of the model in the run.
    requests
        The ids of the requests that still need a result.
    size
        Number of requests in the batch.
    time
        When the batch was begun, in seconds since 1970.
    file, batch
        The provider's ids of the request file and the batch; None until they are known.
    others
        Ids of batches that were mistaken for this one.
    is_guess
        Whether `batch` was guessed from the provider's list and may be a different batch.
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


CHANGES: Mapping[str, Callable[[JournalEntry, Json], JournalEntry]] = {
    "uploaded": lambda entry, line: replace(entry, file=line["file"]),
    "submitted": lambda entry, line: replace(entry, batch=line["batch"], is_guess=line.get("is_guess") is True),
    "not_it": lambda entry, line: replace(entry, batch=None, others=entry.others | {line["batch"]}),
    "collected": lambda entry, line: replace(entry, requests=entry.requests & frozenset(line["left"])),
    "given_up": lambda entry, _line: replace(entry, requests=frozenset()),
}
"""How each event changes the entry of its batch, which is dropped when none of its requests is in flight any more."""


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
"""The fields of each event apart from its key, with their validators."""


def usable(name: Any) -> str:
    """Check that a provider's id of a batch or file may be stored and inserted into a URL, and return it.

    Raises
    ------
    UnreadableReplyError
        If the id is malformed or contains an API key.
    """
    if not _is_name(name) or redacted(name) != name:
        expected = "a plain id of a batch or file, without a key in it"
        raise UnreadableReplyError(f"expected {expected}, got {shortened(name)}")
    return str(name)


def checked(line: Any) -> Json:
    """Return a line of the journal; raise JournalError if it is invalid."""
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
        The file; None keeps the journal in memory.

    Raises
    ------
    JournalError
        If the file is not a valid journal. A last line cut short by a kill is ignored.

    Attributes
    ----------
    names
        Our keys and the provider's ids of all batches ever recorded.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._open = dict[str, JournalEntry]()
        self.names = set[str]()
        self._n_bytes = self._n_lines = 0  # complete lines read or written so far
        self._read_new()

    @property
    def entries(self) -> list[JournalEntry]:
        """The batches that may be in flight, oldest first."""
        return list(self._open.values())

    @property
    def batches(self) -> dict[str, bool]:
        """Our keys and the provider's ids of all batches, each with whether it is a key of one that may be in flight.

        Those in flight are first, the oldest before the others.
        """
        in_flight = dict.fromkeys(self._open, True)
        return in_flight | dict.fromkeys(sorted(self.names - in_flight.keys()), False)

    def begin(self, provider: str, place: str, model: str, requests: Iterable[str]) -> JournalEntry:
        """Record that a batch is about to be submitted, and return its entry with a new key.

        Raises
        ------
        NotWrittenError
            If the line cannot be written; the batch must not be submitted then.
        JournalError
            If another process has begun to submit some of the requests; neither must this batch be submitted then.
        """
        key = f"ri-{uuid.uuid4().hex}"
        asked = list(requests)
        known = set(self._open)
        self._read_new()
        if any(not entry.requests.isdisjoint(asked) for name, entry in self._open.items() if name not in known):
            raise JournalError(
                f"{self._path}: another process submits the same requests in a batch, since its file system does not "
                "keep locks apart; wait until the other process has ended, then run the same command again"
            )
        self._write("begun", key, provider=provider, place=place, model=model, requests=asked)
        return self._open[key]

    def uploaded(self, key: str, file: str) -> JournalEntry:
        """Record the provider's id of a batch's request file."""
        self._write("uploaded", key, file=file)
        return self._open[key]

    def submitted(self, key: str, batch: str, *, is_guess: bool = False) -> None:
        """Record the provider's id of a batch, and whether it was guessed."""
        self._write("submitted", key, batch=batch, **({"is_guess": True} if is_guess else {}))

    def record_mismatch(self, key: str) -> JournalEntry:
        """Record that the guessed id belongs to a different batch."""
        self._write("not_it", key, batch=self._open[key].batch)
        return self._open[key]

    def collected(self, key: str, left: Iterable[str] = ()) -> None:
        """Record that the results of a batch are stored, except those of the requests in `left`."""
        self._write("collected", key, left=sorted(left))

    def record_abandoned(self, key: str, reason: str) -> None:
        """Record that a batch was abandoned, and why."""
        self._write("given_up", key, reason=reason[:MAX_TEXT])

    def _write(self, event: str, key: str, **fields: Any) -> None:
        # a provider may return any ids
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
        """Read new lines: several engines of a command may share a folder, each with its own journal object."""
        if self._path is None or not os.path.lexists(self._path):
            return
        try:
            with opened_file(self._path) as file:
                file.seek(self._n_bytes)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return  # incomplete: the step was not taken, or will be rediscovered
                    try:
                        self._apply(checked(json.loads(raw)))
                    except (ValueError, RecursionError) as error:
                        problem = (
                            error if isinstance(error, JournalError) else f"expected JSON, got {shortened(raw[:80])}"
                        )
                        raise JournalError(f"{self._path}: line {self._n_lines + 1}: {problem}{ADVICE}") from error
                    self._count(raw)
        except OSError as error:
            raise JournalError(f"{self._path} cannot be read ({error.strerror})") from error

    def _apply(self, line: Json) -> None:
        event = line["event"]
        key = line["key"]
        if event == "begun":
            if key in self._open:
                raise JournalError("expected a key that no other batch uses")
            fields = {name: line[name] for name in ("provider", "place", "model", "time")}
            changed = JournalEntry(key, requests=frozenset(line["requests"]), size=len(line["requests"]), **fields)
        elif key not in self._open:
            raise JournalError(f"expected the key of a batch that was started, got {shortened(key)}")
        else:
            changed = CHANGES[event](self._open[key], line)
        self.names |= {key, line.get("batch") or key}
        self._open[key] = changed
        if not changed.requests:
            del self._open[key]


def _append(path: Path, n_bytes: int, content: bytes) -> None:
    """Append after the complete lines of a file, and flush to disk."""
    try:
        is_new = not os.path.lexists(path)
        with os.fdopen(opened_plain(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(n_bytes)  # removes a line that a kill cut short
            file.seek(n_bytes)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if is_new and os.name == "posix":  # the directory entry must be on disk as well
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise NotWrittenError(path, error, "free some space: no batch is submitted without a record of it") from error


def journal_of(folder: RunFolder | None) -> Journal:
    """Return the journal of a run's folder, or one in memory if there is no folder."""
    return Journal(None if folder is None else folder.path / JOURNAL)


def in_flight(folder: RunFolder, store: ReplyStore) -> list[JournalEntry]:
    """Return the batches of a run's folder with requests that have no reply in the store.

    Reads local files only.

    Raises
    ------
    JournalError
        If the journal cannot be read.
    """
    entries = journal_of(folder).entries
    # by model, since two roles may use the same model
    stored = {
        model: frozenset(stored_ids(store, dict.fromkeys(Role, model))) for model in {entry.model for entry in entries}
    }
    return [
        replace(entry, requests=requests) for entry in entries if (requests := entry.requests - stored[entry.model])
    ]


def describe_in_flight(entries: Collection[JournalEntry]) -> str:
    """Describe the batches and requests in flight at each provider.

    Examples
    --------
    >>> describe_in_flight([JournalEntry("ri-1", "openai", "", "openai/gpt-4.1", frozenset({"a", "b"}), 2, 0.0)])
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


def refuse_in_flight(folder: RunFolder, store: ReplyStore) -> None:
    """Raise if batches are in flight, whose requests another engine would pay for again.

    Raises
    ------
    SettingError
        The message names the batches in flight and says how to collect them.
    """
    entries = in_flight(folder, store)
    if entries:
        raise SettingError(
            f"{folder.path}: {describe_in_flight(entries)}: another engine would pay for them again; collect the "
            f"results with {{engine}} batch, or abandon them with {{engine_option}} forget={entries[0].key}"
        )
