"""A line of JSON for each request, so that a user can count what was asked. It never holds a header or a text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


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
