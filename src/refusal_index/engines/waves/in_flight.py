"""Which requests of a run are on their way in batches, as its folder tells without asking anybody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from refusal_index.engines.setting import SettingError
from refusal_index.engines.store import ReplyStore
from refusal_index.engines.waves.journal import Journal
from refusal_index.engines.waves.journal_lines import Entry
from refusal_index.engines.waves.wave import custom_id
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked

JOURNAL = "batches.jsonl"
"""Name of the journal in a run's folder."""


def journal_of(folder: RunFolder | None) -> Journal:
    """Return the journal of a run's folder; one in memory where there is none."""
    return Journal(None if folder is None else folder.path / JOURNAL)


def stored_ids(store: ReplyStore, names: Mapping[Asked, str]) -> Iterator[str]:
    """Yield the ids of all requests that a store holds a reply to."""
    for one in chain(store.replies(), store.retired()):
        if one.request_sha256 is not None:
            yield custom_id(names.get(one.reply.asked, ""), one.request_sha256)


def in_flight(folder: RunFolder, store: ReplyStore, names: Mapping[Asked, str]) -> list[Entry]:
    """Return the batches of a run's folder whose results are not all in its store, each with the requests that lack.

    No provider is asked, and no client of one is needed.

    Parameters
    ----------
    folder, store, names
        The run's folder, its replies, and whom it asks.

    Raises
    ------
    JournalError
        If the journal cannot be read.
    """
    entries = journal_of(folder).entries
    stored = frozenset(stored_ids(store, names)) if entries else frozenset()
    return [replace(one, requests=left) for one in entries if (left := one.requests - stored)]


def told_in_flight(entries: Iterable[Entry]) -> str:
    """Say in a few words what is on its way, and where.

    Examples
    --------
    >>> told_in_flight([Entry("ri-1", "openai", "", "openai/gpt-4.1", frozenset({"a", "b"}), 2, 0.0)])
    '1 batch with 2 requests at openai'
    """
    found: dict[str, list[int]] = {}
    for one in entries:
        found.setdefault(one.provider, []).append(len(one.requests))
    return " and ".join(
        f"{len(sizes):,} batch{'es' if len(sizes) > 1 else ''} with {sum(sizes):,} request"
        f"{'s' if sum(sizes) > 1 else ''} at {provider}"
        for provider, sizes in found.items()
    )


def refuse_in_flight(folder: RunFolder, store: ReplyStore, names: Mapping[Asked, str]) -> None:
    """Raise where another engine would pay again for what is on its way in batches.

    Raises
    ------
    SettingError
        The message says what is on its way, and how it is collected.
    """
    entries = in_flight(folder, store, names)
    if entries:
        raise SettingError(
            f"{folder.path}: {told_in_flight(entries)} on their way: another engine would pay for the same again; "
            f"collect them by {{engine}} batch, or give them up there by {{engine_option}} forget={entries[0].key}"
        )
