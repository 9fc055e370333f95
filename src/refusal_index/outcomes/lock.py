"""A lock between processes, held by the operating system and gone with the process that held it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.files import opened_plain

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
    descriptor = _open(path)
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


def _open(path: Path) -> int:
    try:
        return opened_plain(path, os.O_RDWR | os.O_CREAT, LONGEST)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written ({error.strerror}); choose another folder") from error


def _take(descriptor: int, path: Path) -> None:
    try:
        _acquire(descriptor)
    except (BlockingIOError, PermissionError) as error:
        holder = os.read(descriptor, LONGEST).strip()
        shown = holder.decode() if holder.isdigit() else "unknown"
        raise RunFolderError(
            f"{path.parent} is in use by another process (id {shown}); wait for it to end, or run into another folder"
        ) from error
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be locked ({error.strerror}); choose a folder on a file system with locks"
        ) from error
    held = os.read(descriptor, LONGEST).strip()
    if held and not held.isdigit():  # the name may be a second one of another file
        raise RunFolderError(f"{path}: expected the id of a process, got other text; remove it if it is nobody's")
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)
    with suppress(OSError):  # only what others are told: a full disk keeps nobody from the lock
        os.write(descriptor, f"{os.getpid()}\n".encode())
