"""Which requests of a run are on their way in batches, as its folder tells without asking anybody."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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


def in_flight(folder: RunFolder, store: ReplyStore) -> list[Entry]:
    """Return the batches of a run's folder whose results are not all in its store, each with the requests that lack.

    No provider is asked, and no client of one is needed.

    Parameters
    ----------
    folder, store
        The run's folder, and its replies.

    Raises
    ------
    JournalError
        If the journal cannot be read.
    """
    entries = journal_of(folder).entries
    # By the model that a batch asks: two roles of a build may have the same words for whom they ask.
    stored = {
        model: frozenset(stored_ids(store, dict.fromkeys(Asked, model))) for model in {one.model for one in entries}
    }
    return [replace(one, requests=left) for one in entries if (left := one.requests - stored[one.model])]


def told_in_flight(entries: Collection[Entry]) -> str:
    """Say in a few words what is on its way, and where.

    Examples
    --------
    >>> told_in_flight([Entry("ri-1", "openai", "", "openai/gpt-4.1", frozenset({"a", "b"}), 2, 0.0)])
    '1 batch with 2 requests at openai is on its way'
    """
    found: dict[str, list[int]] = {}
    for one in entries:
        found.setdefault(one.provider, []).append(len(one.requests))
    what = " and ".join(
        f"{len(sizes):,} batch{'es' if len(sizes) > 1 else ''} with {sum(sizes):,} request"
        f"{'s' if sum(sizes) > 1 else ''} at {provider}"
        for provider, sizes in found.items()
    )
    return f"{what} {'is on its' if len(entries) == 1 else 'are on their'} way"


def check_forgotten(forget: Collection[str], journals: Collection[Journal]) -> None:
    """Raise where a batch is to be given up that none of these journals tells of.

    Raises
    ------
    SettingError
        The message names those that nobody knows, and those that are on their way.
    """
    unknown = sorted(set(forget).difference(*(one.told_of for one in journals)))
    if unknown:
        there = ", ".join(one.key for journal in journals for one in journal.entries) or "none"
        raise SettingError(
            f"{{engine_option}} forget: no batch that was handed over from here is called "
            f"{', '.join(map(repr, unknown))}; on their way: {there}"
        )


def refuse_in_flight(folder: RunFolder, store: ReplyStore) -> None:
    """Raise where another engine would pay again for what is on its way in batches.

    Raises
    ------
    SettingError
        The message says what is on its way, and how it is collected.
    """
    entries = in_flight(folder, store)
    if entries:
        raise SettingError(
            f"{folder.path}: {told_in_flight(entries)}: another engine would pay for the same again; collect the "
            f"results by {{engine}} batch, or give them up by {{engine_option}} forget={entries[0].key}"
        )
