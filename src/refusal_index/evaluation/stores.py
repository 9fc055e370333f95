"""The store of replies of a run's folder."""

from __future__ import annotations

from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.outcomes.folder import RunFolder


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the replies of a folder; raise StoreError where it lacks those that its outcome table was made of.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to make the file where there is none; else what it would hold is read into memory.
    """
    if folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size):
        raise StoreError(
            f"{folder.replies}: expected the replies that {folder.outcomes.name} was made of, found none; restore the "
            "file, or evaluate into another folder"
        )
    return ReplyStore(folder.replies if made or folder.replies.exists() else None)
