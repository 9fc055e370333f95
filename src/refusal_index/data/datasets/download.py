"""Fetching a file once, and checking whenever it is read again that it is what came then.

What must come is told by a checksum or, where none is known, by an address that names a revision, whose content does
not change.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError
from urllib.parse import urlsplit

from refusal_index.data.datasets.dataset import DatasetError
from refusal_index.data.files import sha256_of, write_atomically

RECORDED = ".sha256"
"""Ends the name of the file beside a cached one that holds the checksum of what came."""

LARGEST = 64 * 2**20
"""More bytes than this are no dataset of ours, whatever a server sends."""

LONGEST = 600.0
"""Seconds after which a download is given up, however steadily it drips."""


def fetched(address: str, sha256: str | None = None, timeout: float = 30.0) -> bytes:
    """Give the content of an address from the user's cache, or download it into the cache.

    Raises DatasetError if it cannot be downloaded, or is not what was expected.

    - `address`: where it is published.
    - `sha256`: what its checksum must be; a cached file with another one is fetched anew. None for an address of a
      revision: the checksum of what comes first is kept beside it.
    - `timeout`: seconds without any answer after which the download is given up.
    """
    room = (sha256 or sha256_of(address.encode()))[:16]
    path = cache_directory() / "datasets" / room / address.rsplit("/", maxsplit=1)[-1]
    record = path.with_name(path.name + RECORDED)
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        if sha256_of(content) == (sha256 or record.read_text(encoding="ascii", errors="replace")):
            return content
    content = _download(address, timeout)
    if sha256 not in (None, sha256_of(content)):
        raise DatasetError(
            f"{address}: expected content with sha256 {sha256}, got {sha256_of(content)}; the download was cut short "
            "or altered, or the published file has changed; try again, or give the expected file as data (--data)"
        )
    with contextlib.suppress(OSError):  # a home directory that cannot be written to costs a download, not the run
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        if sha256 is None:
            write_atomically(record, sha256_of(content).encode())
    return content


def cache_directory() -> Path:
    """Find the place for files that can be fetched again, by the custom of the platform."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():
        return Path(given) / "refusal-index"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "refusal-index"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "refusal-index" / "Cache"
    return Path.home() / ".cache" / "refusal-index"


def _download(address: str, timeout: float) -> bytes:
    try:
        with request.build_opener(_SameScheme).open(address, timeout=timeout) as answer:
            content = _whole(answer, time.monotonic() + LONGEST)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        why = " ".join(str(error).split())
        raise DatasetError(
            f"{address} cannot be downloaded ({why}); try again, or download it yourself and give it as data (--data)"
        ) from error
    return content


def _whole(answer: http.client.HTTPResponse, until: float) -> bytes:
    """Read an answer to its end, or raise OSError if that does not come in time, is too far away or too near."""
    content = bytearray()
    while some := answer.read1(2**16):
        content += some
        if len(content) > LARGEST:
            raise OSError(f"it is larger than {LARGEST:,} bytes, which no dataset of ours is")
        if time.monotonic() > until:
            raise OSError(f"it was not whole after {LONGEST:,.0f} s")
    told = answer.headers["Content-Length"]
    if told is not None and told.isdecimal() and len(content) != int(told):
        raise OSError(f"it was cut short: {len(content):,} of {int(told):,} bytes came")
    return bytes(content)


class _SameScheme(request.HTTPRedirectHandler):
    """Follows an address elsewhere unless that gives up the encryption."""

    def redirect_request(
        self, req: request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        if urlsplit(newurl).scheme != req.type:
            raise OSError(f"it redirects to {newurl}, which is not {req.type}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
