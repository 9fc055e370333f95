"""The store of replies of a run's folder."""

from __future__ import annotations

from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.outcomes.folder import RunFolder


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the replies of a folder; what an earlier release left there as logs is taken over.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to make the file where there is none; else what it would hold is read into memory.
    """
    lost = folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size)
    if lost and not any(folder.logs.glob("*.eval")):
        raise StoreError(
            f"{folder.replies}: expected the replies that {folder.outcomes.name} was made of, found none; restore the "
            "file, or evaluate into another folder"
        )
    store = ReplyStore(folder.replies if made or folder.replies.exists() else None)
    if store.is_empty and any(folder.logs.glob("*.eval")):
        from refusal_index.engines.inspect.earlier_runs import take_over_logs  # noqa: PLC0415 - of earlier folders only

        take_over_logs(folder, store)
    return store
