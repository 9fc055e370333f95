"""A wave: every request that is due, each with an id made from its content.

The id is the same whenever and by whomever it is made, so that a result finds its place in the store however it came,
in whatever order and however often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from refusal_index.data.folder import RunFolder
from refusal_index.models.requests import ModelRequest, model_request, variant_of
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.journal import Entry, Journal
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role, forced_variant, next_requests
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

PREFIX, DIGITS = "ri-", 40
"""What an id begins with, and how many hexadecimal digits follow: all providers take it."""


def custom_id(name: str, request_sha256: str) -> str:
    """Return the id of a request: a hash of whom it asks, and of all that it asks.

    Parameters
    ----------
    name
        Of the model that is asked, as the run knows it: the same question to another one is another request.
    request_sha256
        As `Ask.sha256` has it, over pass, question, draw, attempt, seed, messages and how the model generates.

    Returns
    -------
    str
        43 characters of ``[a-z0-9-]``.

    Examples
    --------
    >>> custom_id("openai/gpt-4.1", "0" * 64)
    'ri-4702eb08b83b0376d5b5be6f0319472f64418c7b'
    """
    return PREFIX + hashlib.sha256(f"{name}\n{request_sha256}".encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that nobody has answered yet.

    Attributes
    ----------
    custom_id
        What it is called in flight.
    ask
        What is asked, of whom and about what.
    """

    custom_id: str
    ask: ModelRequest


@dataclass(frozen=True, slots=True)
class QuestionState:
    """One question under every variant, and all replies about it.

    Attributes
    ----------
    conversations
        The question under each variant.
    said, retired
        Every reply about it, and those that were set aside to be asked for again.
    """

    conversations: Sequence[Conversation]
    said: Sequence[Completion] = ()
    retired: Sequence[Completion] = ()


@dataclass
class ResultMerger:
    """A question's talk while results are entered: what is due, given also what has come since.

    Attributes
    ----------
    talk, settings, names
        What is talked about, how requests are made, and whom they ask.
    new, failed
        What has come and is not in the store yet, and the ids of what failed, each under its variant.
    """

    talk: QuestionState
    settings: Settings
    names: Mapping[Role, str]
    new: list[Completion] = field(default_factory=list)
    failed: dict[str, set[str]] = field(default_factory=dict)
    _made: dict[tuple[str, PendingRequest], Pending] = field(default_factory=dict)

    def next_requests(self, conversation: Conversation) -> list[PendingRequest]:
        """Return what is to be asked next under one variant."""
        return next_requests(conversation, self.said(conversation))

    def was_due(self, conversation: Conversation) -> bool:
        """Whether something was to be asked under one variant before anything new came."""
        return bool(next_requests(conversation, _under(conversation, self.talk.said)))

    def said(self, conversation: Conversation) -> list[Completion]:
        """Return every reply that counts under one variant."""
        return _under(conversation, (*self.talk.said, *self.new))

    def where_graded(self, conversation: Conversation, one: PendingRequest) -> list[PendingRequest]:
        """Return a verdict that is due in each draw of the same reply: in any of them it may have been asked for.

        The draw it is due in changes where a draw before it comes out the same only when it is asked again.
        """
        if conversation.draws == 1:
            return [one]
        said = {
            each.draw: each.reply
            for each in self.said(conversation)
            if (each.reply.pass_, each.reply.role) == (one.step.pass_, Role.MODEL)
        }
        others = (draw for draw, reply in said.items() if draw != one.draw and reply == said.get(one.draw))
        return [one, *(replace(one, draw=draw) for draw in sorted(others))]

    def pending(self, conversation: Conversation, one: PendingRequest) -> Pending:
        """Put what is due into a request with its id."""
        place = conversation.variant, one
        if place not in self._made:
            again = self._times_retired(conversation, one) if self.talk.retired else 0
            ask = model_request(self.settings, conversation, one, again)
            self._made[place] = Pending(custom_id(self.names[one.step.role], ask.sha256), ask)
        return self._made[place]

    def requests(self, asks: Mapping[str, Sequence[PendingRequest]], most: int) -> Iterator[Pending]:
        """Yield the requests for what is due, by variant; what several variants share is there once.

        Parameters
        ----------
        asks
            What is due, by variant.
        most
            For how many draws one request asks at most.
        """
        there: set[str] = set()
        for conversation in self.talk.conversations:
            for one in (each for ask in asks[conversation.variant] for each in in_requests(ask, most)):
                pending = self.pending(conversation, one)
                if pending.custom_id not in there:
                    there.add(pending.custom_id)
                    yield pending

    def _times_retired(self, conversation: Conversation, one: PendingRequest) -> int:
        place = (variant_of(conversation, one.step.pass_), one.step.pass_, one.step.role, one.draw)
        return sum((each.variant, each.reply.pass_, each.reply.role, each.draw) == place for each in self.talk.retired)


def _under(conversation: Conversation, said: Iterable[Completion]) -> list[Completion]:
    variants = conversation.variant, forced_variant(conversation.variant)
    return [one for one in said if one.variant in variants]


def wave(
    talks: Iterable[QuestionState], settings: Settings, names: Mapping[Role, str], *, singly: bool = False
) -> Iterator[Pending]:
    """Yield every request that is due; what several variants share is there once.

    Parameters
    ----------
    talks
        Every question.
    settings, names
        How requests are made, and whom they ask.
    singly
        Whether each draw takes a request of its own, as for whoever gives one reply only.
    """
    most = most_draws(settings, singly=singly)
    for talk in talks:
        sheet = ResultMerger(talk, settings, names)
        yield from sheet.requests({one.variant: sheet.next_requests(one) for one in talk.conversations}, most)


def most_draws(settings: Settings, *, singly: bool) -> int:
    """Return for how many draws one request asks at most: for one of whoever gives one reply only."""
    return 1 if singly else settings.sending.max_choices


def in_requests(one: PendingRequest, most: int) -> list[PendingRequest]:
    """Return what is due in parts, each of which takes a request for so many draws at most.

    Examples
    --------
    >>> from refusal_index.protocol import Role, Pass, Step
    >>> [(each.draw, each.n) for each in in_requests(PendingRequest(Step(Pass.FIRST, Role.MODEL), draw=2, n=5), 2)]
    [(2, 2), (4, 2), (6, 1)]
    """
    if one.n <= most:
        return [one]
    starts = range(0, one.n, most)
    return [replace(one, draw=one.draw + place, n=min(most, one.n - place)) for place in starts]


def one_by_one(one: PendingRequest) -> list[PendingRequest]:
    """Return what is due from each of its draws on: where one reply came at a time, each draw has a result of its own.

    Examples
    --------
    >>> from refusal_index.protocol import Role, Pass, Step
    >>> [each.draw for each in one_by_one(PendingRequest(Step(Pass.FIRST, Role.MODEL), draw=2, n=3))]
    [2, 3, 4]
    """
    others = (replace(one, draw=one.draw + place, n=one.n - place) for place in range(1, one.n))
    return [one, *others]


def question_states(conversations: Iterable[Conversation], store: ReplyStore) -> Iterator[QuestionState]:
    """Yield the talk about each question; conversations about one stand side by side."""
    aside: dict[str, list[Completion]] = {}
    for one in store.retired():
        aside.setdefault(one.question_id, []).append(one)
    for question_id, found in groupby(conversations, key=lambda one: one.question.question_id):
        group = list(found)
        said = {reply: None for one in group for reply in store.completions(question_id, one.variant)}
        yield QuestionState(group, list(said), aside.get(question_id, ()))


JOURNAL = "batches.jsonl"
"""Name of the journal in a run's folder."""


def journal_of(folder: RunFolder | None) -> Journal:
    """Return the journal of a run's folder; one in memory where there is none."""
    return Journal(None if folder is None else folder.path / JOURNAL)


def stored_ids(store: ReplyStore, names: Mapping[Role, str]) -> Iterator[str]:
    """Yield the ids of all requests that a store holds a reply to."""
    for one in chain(store.replies(), store.retired()):
        if one.request_sha256 is not None:
            yield custom_id(names.get(one.reply.role, ""), one.request_sha256)


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
        model: frozenset(stored_ids(store, dict.fromkeys(Role, model))) for model in {one.model for one in entries}
    }
    return [replace(one, requests=left) for one in entries if (left := one.requests - stored[one.model])]


def describe_in_flight(entries: Collection[Entry]) -> str:
    """Say in a few words what is in flight, and where.

    Examples
    --------
    >>> describe_in_flight([Entry("ri-1", "openai", "", "openai/gpt-4.1", frozenset({"a", "b"}), 2, 0.0)])
    '1 batch with 2 requests at openai is in flight'
    """
    found: dict[str, list[int]] = {}
    for one in entries:
        found.setdefault(one.provider, []).append(len(one.requests))
    what = " and ".join(
        f"{len(sizes):,} batch{'es' if len(sizes) > 1 else ''} with {sum(sizes):,} request"
        f"{'s' if sum(sizes) > 1 else ''} at {provider}"
        for provider, sizes in found.items()
    )
    return f"{what} {'is' if len(entries) == 1 else 'are'} in flight"


def check_forgotten(forget: Collection[str], journals: Collection[Journal]) -> None:
    """Raise where a batch is to be given up that none of these journals tells of.

    Raises
    ------
    SettingError
        The message names those that nobody knows, and those that are in flight.
    """
    unknown = sorted(set(forget).difference(*(one.told_of for one in journals)))
    if unknown:
        there = ", ".join(one.key for journal in journals for one in journal.entries) or "none"
        raise SettingError(
            f"{{engine_option}} forget: no batch that was handed over from here is called "
            f"{', '.join(map(repr, unknown))}; in flight: {there}"
        )
