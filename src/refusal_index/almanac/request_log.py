"""The request log of the server: a line of JSON for each request, with no word of what was said."""

from __future__ import annotations

import json
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# What the request that is being answered adds to its line.
_fields: ContextVar[dict[str, Any]] = ContextVar("_fields")


class RequestLog:
    """Appends to the file at `path`; without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def write(self, **fields: Any) -> None:
        """Append a line with the time and `fields`."""
        if self._file:
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._file.write(json.dumps({"time": time, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def begin_fields() -> dict[str, Any]:
    """Return what the handler of the request that begins is going to note."""
    fields: dict[str, Any] = {}
    _fields.set(fields)
    return fields


def noted() -> dict[str, Any]:
    """Return the fields of the request that is being answered, for its handler to add to."""
    return _fields.get()
