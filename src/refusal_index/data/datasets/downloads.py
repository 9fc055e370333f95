"""Downloading the files of published datasets over HTTPS, into the user's cache."""

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

LARGEST = 64 * 2**20
"""Maximum size of a download in bytes; every dataset is smaller."""

LONGEST = 600.0
"""Time limit of a download in seconds, even if data still arrive."""


def fetched(address: str, sha256: str, timeout: float = 30.0) -> bytes:
    """Return the content of an address from the user's cache; download it if it is not cached.

    Raises DatasetError if it cannot be downloaded, or has another checksum.

    - `address`: where it is published.
    - `sha256`: the expected checksum; a cached file with another one is downloaded again.
    - `timeout`: seconds without a response after which the download fails.
    """
    path = cache_directory() / "datasets" / sha256[:16] / address.rsplit("/", maxsplit=1)[-1]
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        if sha256_of(content) == sha256:
            return content
    content = _download(address, timeout)
    if sha256_of(content) != sha256:
        raise DatasetError(
            f"{address}: expected content with sha256 {sha256}, got {sha256_of(content)}; the download was cut short "
            "or altered, or the published file has changed; try again, or give the expected file as data (--data)"
        )
    with contextlib.suppress(OSError):  # without a writable cache the file is only downloaded again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return content


def cache_directory() -> Path:
    """Return the cache directory of this package, by the platform's conventions."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():
        return Path(cache) / "refusal-index"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "refusal-index"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "refusal-index" / "Cache"
    return Path.home() / ".cache" / "refusal-index"


def _download(address: str, timeout: float) -> bytes:
    """Read a whole response; raises DatasetError if it takes too long, is too large or is cut short."""
    content = bytearray()
    until = time.monotonic() + LONGEST
    try:
        with request.build_opener(_SameScheme).open(address, timeout=timeout) as answer:
            while some := answer.read1(2**16):
                content += some
                if len(content) > LARGEST:
                    raise OSError(f"it is larger than {LARGEST:,} bytes, the maximum for a dataset")
                if time.monotonic() > until:
                    raise OSError(f"it was incomplete after {LONGEST:,.0f} s")
            length = answer.headers["Content-Length"]
            if length is not None and length.isdecimal() and len(content) != int(length):
                raise OSError(f"it was cut short: {len(content):,} of {int(length):,} bytes were received")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        why = " ".join(str(error).split())
        raise DatasetError(
            f"{address} cannot be downloaded ({why}); try again, or download it yourself and give it as data (--data)"
        ) from error
    return bytes(content)


class _SameScheme(request.HTTPRedirectHandler):
    """Follows redirects within the same scheme only, so that encryption is kept."""

    def redirect_request(
        self, req: request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        if urlsplit(newurl).scheme != req.type:
            raise OSError(f"it redirects to {newurl}, which is not {req.type}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
