"""Files of batches in a temporary folder, which lasts as long as the server."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from refusal_index.almanac.chat_api import Json
from refusal_index.almanac.errors import RequestError


@dataclass(frozen=True)
class StoredFile:
    """A file that a client brought, or that a batch made."""

    id: str
    name: str
    purpose: str
    size: int
    created_at: int
    path: Path

    def document(self) -> Json:
        """Return the file as the API shows it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_at,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "expires_at": None,
            "status_details": None,
        }


class FileStore:
    """The files; its folder is made for the first of them and removed by `close`."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[str, StoredFile] = {}

    def new_path(self) -> Path:
        """Return a path at which a file can be written."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="refusal-index-serve-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / uuid.uuid4().hex

    def add(self, path: Path, name: str, purpose: str) -> StoredFile:
        """Take the file at a path of this store, under a new id."""
        size, now = path.stat().st_size, int(time.time())
        stored = StoredFile(f"file-{uuid.uuid4().hex}", name, purpose, size, now, path)
        self._files[stored.id] = stored
        return stored

    def get(self, identity: str) -> StoredFile:
        """Return a file; raises RequestError if there is none of that id."""
        if identity not in self._files:
            raise RequestError(f"No such File object: {identity}", param="id", code="not_found", status=404)
        return self._files[identity]

    def delete(self, identity: str) -> None:
        """Forget a file; raises RequestError if there is none of that id."""
        stored = self.get(identity)
        del self._files[identity]
        with suppress(OSError):  # somebody reads it still, where open files cannot be removed: `close` removes it
            stored.path.unlink()

    def __iter__(self) -> Iterator[StoredFile]:
        """Go through the files, the oldest first."""
        return iter(self._files.values())

    def close(self) -> None:
        """Remove every file."""
        if self._folder is not None:
            self._folder.cleanup()
