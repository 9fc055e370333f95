"""The lines of a journal of batches: what each may say, and what it makes of the batch that it tells of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import shortened

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


def _left(entry: Entry, line: Json) -> Entry | None:
    left = entry.requests & frozenset(line["left"])
    return replace(entry, requests=left) if left else None


CHANGES: Mapping[str, Callable[[Entry, Json], Entry | None]] = {
    "uploaded": lambda entry, line: replace(entry, file=line["file"]),
    "submitted": lambda entry, line: replace(entry, batch=line["batch"]),
    "not_it": lambda entry, line: replace(entry, batch=None, others=entry.others | {line["batch"]}),
    "collected": _left,
    "given_up": lambda _entry, _line: None,
}
"""What a line makes of the batch that it tells of; None for nothing that is still on its way."""


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT


def _name(value: Any) -> bool:
    return isinstance(value, str) and SOUND_NAME.fullmatch(value) is not None


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
