"""What lies in a file of results, before it is read: nothing, or requests that somebody gave by mistake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refusal_index.engines.waves.spool import ResultFileError

LONGEST = 64 << 20  # bytes that are looked at
ASKED, ANSWERED = ("body", "params", "request"), ("response", "result", "error")
"""What a request has in one of the formats, and what a result has."""


def is_without_lines(path: Path) -> bool:
    """Whether a file holds no line.

    Raises
    ------
    ResultFileError
        If it holds requests.
    """
    if not path.is_file():
        return False  # it is told of as it is read
    try:
        with path.open("rb") as file:
            first = next((line for line in iter(lambda: file.readline(LONGEST), b"") if line.strip()), None)
        asks = first is not None and is_request(json.loads(first))
    except (OSError, ValueError, RecursionError):
        return False
    if asks:
        raise ResultFileError(
            f"{path}: expected results, got requests: hand this file to whoever answers it, and give the file that "
            "comes of it"
        )
    return first is None


def is_request(document: Any) -> bool:
    """Whether a line of a file is a request, in any of the formats.

    Examples
    --------
    >>> is_request({"custom_id": "ri-1", "params": {}}), is_request({"custom_id": "ri-1", "result": {}})
    (True, False)
    """
    if not isinstance(document, Mapping):
        return False
    return any(one in document for one in ASKED) and not any(one in document for one in ANSWERED)
