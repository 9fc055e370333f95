"""Files of a run's folder, their lock, and what they may hold.

A link, a pipe or a device in the place of a file is refused, so that nothing outside the folder is touched and no
command waits for a pipe that nobody writes to. Whoever looks finds the old file or the new one, never half of it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from refusal_index.data.errors import NotWrittenError, RunFolderError
from refusal_index.stats import Estimate

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of every half-written file; the name begins with a dot."""

GUARDED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags that open no link and wait for no pipe, where the system has them."""

MOST_JSON = 256 << 20
"""Most bytes of a JSON document."""


def check_plain(path: Path, most: int | None = None) -> Path:
    """Return the path of a file that others are to open, if it is a plain file.

    Raises OSError if there is none, if it is a link, a pipe, a device or a folder, or has more than `most` bytes.
    """
    _check(path.lstat(), path, most)
    return path


def check_folder(path: Path) -> Path:
    """Return a path if nothing is there or it is a folder; raises OSError if it is a link or anything else."""
    if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "expected a folder, got a link or a file", str(path))
    return path


def opened_plain(path: Path, flags: int = os.O_RDONLY, most: int | None = None) -> int:
    """Return a descriptor of a file, without following a link; it raises as `check_plain` does."""
    if not GUARDED and path.exists():
        check_plain(path)
    try:
        descriptor = os.open(path, flags | GUARDED | getattr(os, "O_BINARY", 0), 0o644)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR} and os.path.lexists(path):
            check_plain(path)
        raise
    try:
        _check(os.fstat(descriptor), path, most)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_plain(path: Path, most: int | None = None) -> bytes:
    """Read a whole file; it raises as `check_plain` does."""
    with opened_file(path, most) as file:
        return file.read()


def opened_file(path: Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading; it raises as `check_plain` does."""
    return os.fdopen(opened_plain(path, most=most), "rb")


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """Read a JSON document; raises OSError as `check_plain` does, and ValueError where it is none."""
    try:
        document = json.loads(read_plain(path, most), parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # halves of surrogate pairs can be written nowhere else
    except RecursionError:
        raise ValueError("its values lie within each other without end") from None
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check(found: os.stat_result, path: Path, most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"expected a plain file, got {_kind(found.st_mode)}", str(path))
    if most is not None and found.st_size > most:
        raise OSError(errno.EFBIG, f"expected at most {most:,} bytes, got {found.st_size:,}", str(path))


def _kind(mode: int) -> str:
    known = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return known.get(stat.S_IFMT(mode), "a device")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its place when the block ends without an error.

    Raises NotWrittenError if it cannot be written: then what was there stays.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _flush(temporary)
        _refuse_device(path)
        temporary.replace(path)
    except OSError as error:
        raise NotWrittenError(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or leave what was there."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        file.write(content)


def sha256_of(content: bytes | Path) -> str:
    """Return the checksum of bytes, or of a file, in hexadecimal."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_device(path: Path) -> None:
    """Raise OSError where the place is taken by what must not be replaced, as ``/dev/null``; a link or a pipe is."""
    mode = path.lstat().st_mode if os.path.lexists(path) else 0
    if stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        check_plain(path)


def _flush(path: Path) -> None:
    """Write the content to the disk before the name points to it."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def plain(value: Any) -> Any:
    """Give a result as objects, lists and numbers: floats unrounded, None for what is not a number.

    >>> plain({"auroc": (Estimate(0.8, 0.7, float("nan")),)})["auroc"][0]["high"] is None
    True
    """
    if isinstance(value, Estimate):
        value = value.to_document()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


LOCK = ".lock"
"""Name of the lock file of a folder."""

LONGEST = 32
"""Most bytes of a lock file, which holds the id of a process."""

if sys.platform == "win32":
    import msvcrt

    def _acquire(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # past the process id, which others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _acquire(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs; it makes the folder where there is none.

    The lock file stays: removing it would let two processes lock two files of the same name.

    Raises
    ------
    RunFolderError
        If another process holds it, or it cannot be made or written to.
    """
    make_folder(folder)
    path = folder / LOCK
    try:
        descriptor = opened_plain(path, os.O_RDWR | os.O_CREAT, LONGEST)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written ({error.strerror}); choose another folder") from error
    try:
        _take(descriptor, path)
        yield
    finally:
        os.close(descriptor)  # this releases the lock


def make_folder(path: Path) -> None:
    """Make a folder where there is none, or raise RunFolderError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be made ({error.strerror}); choose another place") from error


def _take(descriptor: int, path: Path) -> None:
    try:
        _acquire(descriptor)
    except (BlockingIOError, PermissionError) as error:
        holder = os.read(descriptor, LONGEST).strip()
        shown = holder.decode() if holder.isdigit() else "unknown"
        raise RunFolderError(
            f"{path.parent} is in use by another process (id {shown}); wait for it to end, or choose another folder"
        ) from error
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be locked ({error.strerror}); choose a folder on a file system with locks"
        ) from error
    holder = os.read(descriptor, LONGEST).strip()
    if holder and not holder.isdigit():  # the name may be a second one of another file
        raise RunFolderError(f"{path}: expected the id of a process, got other text; remove it if it is nobody's")
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)
    with suppress(OSError):  # the id is information for others: a full disk keeps nobody from the lock
        os.write(descriptor, f"{os.getpid()}\n".encode())
