"""Reading, writing and locking the files of a run's folder.

Symbolic links, pipes and devices are refused, so that nothing outside the folder is touched and no command waits for a
pipe without a writer. Files are replaced atomically: a reader finds the old file or the new one, never a part. What a
killed process leaves half-written is removed by the next one that writes in the same folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from refusal_index.errors import NotWrittenError, RunFolderError
from refusal_index.stats import Estimate

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of half-written files, whose names begin with a dot and name their machine and process."""

TEMPORARY = re.compile(
    r"(?P<name>\..+?\.(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]{1,10})-[0-9a-f]{8}\.tmp)(\..+)?", re.DOTALL
)
"""Matches the names of half-written files, and of folders beside them with their parts."""

ABANDONED = 86_400.0
"""Seconds after which a half-written file that nobody has written to is removed, whoever wrote it."""

GUARDED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags to refuse links and not to wait for pipes, on systems that have them."""

MAX_JSON = 256 << 20
"""Maximum size of a JSON document in bytes."""


def check_plain(path: Path, limit: int | None = None) -> Path:
    """Return `path` if it is a regular file, for libraries that open it themselves.

    Raises OSError if it is missing, is a link, a pipe, a device or a folder, or has more than `limit` bytes.
    """
    _check(path.lstat(), path, limit)
    return path


def check_folder(path: Path) -> Path:
    """Return `path` if it is a folder or does not exist; raise OSError if it is a link or anything else."""
    if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "expected a folder, got a link or a file", str(path))
    return path


def opened_plain(path: Path, flags: int = os.O_RDONLY, limit: int | None = None) -> int:
    """Return a file descriptor without following links; raises the errors of `check_plain`."""
    if not GUARDED and path.exists():
        check_plain(path)
    try:
        descriptor = os.open(path, flags | GUARDED | getattr(os, "O_BINARY", 0), 0o644)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR} and os.path.lexists(path):
            check_plain(path)
        raise
    try:
        _check(os.fstat(descriptor), path, limit)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_plain(path: Path, limit: int | None = None) -> bytes:
    """Read a whole file; raises the errors of `check_plain`."""
    with opened_file(path, limit) as file:
        return file.read()


def opened_file(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a file for reading; raises the errors of `check_plain`."""
    return os.fdopen(opened_plain(path, limit=limit), "rb")


def read_json(path: Path, limit: int = MAX_JSON) -> Any:
    """Read a JSON document; raises the errors of `check_plain`, and ValueError if it is not valid JSON."""
    try:
        document = json.loads(read_plain(path, limit), parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # lone surrogates cannot be encoded
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _check(status: os.stat_result, path: Path, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = OTHER_FILES.get(stat.S_IFMT(status.st_mode), "a device")
        raise OSError(errno.EINVAL, f"expected a plain file, got {kind}", str(path))
    if limit is not None and status.st_size > limit:
        raise OSError(errno.EFBIG, f"expected at most {limit:,} bytes, got {status.st_size:,}", str(path))


OTHER_FILES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
"""What is no plain file, by its kind; everything else is a device."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces `path` when the block ends without an error.

    Raises NotWrittenError if it cannot be written; the old file is then kept.
    """
    remove_left(path.parent)
    temporary = _temporary_beside(path)
    _in_use.add(temporary.name)
    try:
        yield temporary
        with temporary.open("r+b") as file:  # the content is on the disk before the name points to it
            os.fsync(file.fileno())
        mode = path.lstat().st_mode if os.path.lexists(path) else 0
        if stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            check_plain(path)  # refuses what must not be replaced, as /dev/null; a link or a pipe may be
        temporary.replace(path)
    except OSError as error:
        raise NotWrittenError(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _in_use.discard(temporary.name)


_in_use = set[str]()
"""Names of the half-written files and the working folders of this process."""


def _temporary_beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:40]}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def remove_left(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; that of running processes is kept.

    Whether a process of another machine is running is unknown, as is any on Windows: its files are removed once they
    are a day old.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = TEMPORARY.fullmatch(entry.name)
            if match is None or match["name"] in _in_use:
                continue
            with suppress(OSError):
                if os.name == "posix" and match["machine"] == _machine():
                    is_left = not _is_running(int(match["process"]))
                else:
                    is_left = time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED
                if is_left:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        Path(entry.path).unlink()


def _is_running(process: int) -> bool:
    """Whether a process of this machine is running, other than this one."""
    if process == os.getpid():  # its own files are in use, so this is that of an earlier process of the same number
        return False
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


@contextmanager
def working_folder() -> Iterator[Path]:
    """Yield a new folder among the system's temporary files, which is removed when the block ends.

    Those of killed processes are removed as well.
    """
    folder = _temporary_beside(Path(tempfile.gettempdir(), "refusal-index"))
    remove_left(folder.parent)
    _in_use.add(folder.name)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _in_use.discard(folder.name)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file atomically; on an error, the old file is kept."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        file.write(content)


def json_text(document: Mapping[str, Any]) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def sha256_of(content: bytes | Path) -> str:
    """Return the SHA-256 of bytes, or of a file, in hexadecimal."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(value: Any) -> Any:
    """Return a result as a JSON-serialisable value: floats unrounded, None for NaN and infinity.

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
"""Maximum size in bytes of a lock file, which holds a process id."""

if sys.platform == "win32":
    import msvcrt

    def _acquire(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # after the process id, which others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _acquire(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes while the block runs; a missing folder is created.

    The lock file is kept: if it were removed, two processes could lock two files of the same name.

    Raises
    ------
    RunFolderError
        If another process holds the lock, or the folder cannot be created or written to.
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
        os.close(descriptor)  # releases the lock


def make_folder(path: Path) -> None:
    """Create a folder if it is missing, or raise RunFolderError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be created ({error.strerror}); choose another place") from error


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
            f"{path} cannot be locked ({error.strerror}); choose a folder on a file system that supports locks"
        ) from error
    holder = os.read(descriptor, LONGEST).strip()
    if holder and not holder.isdigit():  # it may be a hard link to another file
        raise RunFolderError(f"{path}: expected the id of a process, got other text; remove it if you don't need it")
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)
    with suppress(OSError):  # the id only informs others: the lock holds even on a full disk
        os.write(descriptor, f"{os.getpid()}\n".encode())
