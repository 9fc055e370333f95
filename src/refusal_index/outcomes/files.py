"""Writing a file so that whoever looks finds the old one or the new one, never half of it."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of every half-written file; the name begins with a dot."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its place when the block ends without an error."""
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or leave what was there."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sha256_of(content: bytes | Path) -> str:
    """Return the checksum of bytes, or of a file, in hexadecimal."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the content on the disk before the name points to it."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
