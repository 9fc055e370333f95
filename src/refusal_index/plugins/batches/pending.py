"""The requests of a run that are pending, each with an id made from its content.

The id is the same whenever and wherever it is made, so that a result finds its place in the store however it came, in
whatever order and however often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from refusal_index.models.requests import ModelRequest, model_request, variant_of
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role, forced_variant, next_requests
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

PREFIX, DIGITS = "ri-", 40
"""What an id begins with, and how many hexadecimal digits follow: all providers accept it."""


def custom_id(name: str, request_sha256: str) -> str:
    """Return the id of a request: a hash of the model and of all that it is asked.

    Parameters
    ----------
    name
        The model's, in the run: the same question to another one is another request.
    request_sha256
        `ModelRequest.sha256`: over pass, question, draw, attempt, seed, messages and decoding.

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
    """A request that has no reply yet, and its id."""

    custom_id: str
    ask: ModelRequest


@dataclass
class QuestionState:
    """One question under every variant, with all replies about it.

    Attributes
    ----------
    conversations
        The question under each variant.
    settings, names
        How requests are made, and the models by role.
    completions, retired
        Every reply about it, and those that were set aside to be asked for again.
    new
        Replies that are not in the store yet; they count as well.
    """

    conversations: Sequence[Conversation]
    settings: Settings
    names: Mapping[Role, str]
    completions: Sequence[Completion] = ()
    retired: Sequence[Completion] = ()
    new: list[Completion] = field(default_factory=list)
    _requests: dict[tuple[str, PendingRequest], Pending] = field(default_factory=dict)

    def counted(self, conversation: Conversation) -> list[Completion]:
        """Return every reply that counts under one variant."""
        variants = conversation.variant, forced_variant(conversation.variant)
        return [one for one in chain(self.completions, self.new) if one.variant in variants]

    def next_requests(self, conversation: Conversation) -> list[PendingRequest]:
        """Return what is to be asked next under one variant."""
        return next_requests(conversation, self.counted(conversation))

    def same_verdicts(self, conversation: Conversation, verdict: PendingRequest) -> list[PendingRequest]:
        """Return a pending verdict in each draw of the same reply, since it may have been asked for in any of them.

        The draw it is pending in changes where a draw before it has the same reply only when it is asked again.
        """
        if conversation.draws == 1:
            return [verdict]
        replies = {
            one.draw: one.reply
            for one in self.counted(conversation)
            if (one.reply.pass_, one.reply.role) == (verdict.step.pass_, Role.MODEL)
        }
        same = (draw for draw, reply in replies.items() if draw != verdict.draw and reply == replies.get(verdict.draw))
        return [verdict, *(replace(verdict, draw=draw) for draw in sorted(same))]

    def pending(self, conversation: Conversation, request: PendingRequest) -> Pending:
        """Return a pending request with its id."""
        key = conversation.variant, request
        if key not in self._requests:
            retired = self._times_retired(conversation, request) if self.retired else 0
            ask = model_request(self.settings, conversation, request, retired)
            self._requests[key] = Pending(custom_id(self.names[request.step.role], ask.sha256), ask)
        return self._requests[key]

    def all_pending(self, *, singly: bool = False) -> Iterator[Pending]:
        """Yield all requests to send now; what several variants share is there once.

        Parameters
        ----------
        singly
            Whether each draw takes a request of its own, as where the model gives one reply only.
        """
        max_choices = 1 if singly else self.settings.sending.max_choices
        ids: set[str] = set()
        for conversation in self.conversations:
            for request in self.next_requests(conversation):
                for part in split(request, max_choices):
                    pending = self.pending(conversation, part)
                    if pending.custom_id not in ids:
                        ids.add(pending.custom_id)
                        yield pending

    def _times_retired(self, conversation: Conversation, request: PendingRequest) -> int:
        place = variant_of(conversation, request.step.pass_), request.step.pass_, request.step.role, request.draw
        return sum((one.variant, one.reply.pass_, one.reply.role, one.draw) == place for one in self.retired)


def split(request: PendingRequest, max_choices: int) -> list[PendingRequest]:
    """Split a pending request into parts of at most so many draws.

    Examples
    --------
    >>> from refusal_index.protocol import Role, Pass, Step
    >>> [(each.draw, each.n) for each in split(PendingRequest(Step(Pass.FIRST, Role.MODEL), draw=2, n=5), 2)]
    [(2, 2), (4, 2), (6, 1)]
    """
    if request.n <= max_choices:
        return [request]
    starts = range(0, request.n, max_choices)
    return [replace(request, draw=request.draw + at, n=min(max_choices, request.n - at)) for at in starts]


def question_states(
    conversations: Iterable[Conversation], store: ReplyStore, settings: Settings, names: Mapping[Role, str]
) -> Iterator[QuestionState]:
    """Yield the state of each question; conversations about one question stand side by side."""
    retired: dict[str, list[Completion]] = {}
    for one in store.retired():
        retired.setdefault(one.question_id, []).append(one)
    for question_id, group in groupby(conversations, key=lambda one: one.question.question_id):
        variants = list(group)
        completions = {reply: None for one in variants for reply in store.completions(question_id, one.variant)}
        yield QuestionState(variants, settings, names, list(completions), retired.get(question_id, ()))


def stored_ids(store: ReplyStore, names: Mapping[Role, str]) -> Iterator[str]:
    """Yield the ids of all requests that a store holds a reply to."""
    for one in chain(store.replies(), store.retired()):
        if one.request_sha256 is not None:
            yield custom_id(names.get(one.reply.role, ""), one.request_sha256)
