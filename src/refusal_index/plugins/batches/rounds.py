"""A round: the pending requests of a run, each with an id, and the merging of their results into the store.

The id is a hash of the request's content. So results can be merged in any order, more than once, and by any process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Protocol

from refusal_index.data.text import sound_text
from refusal_index.models.failures import Failure, NoAnswerError
from refusal_index.models.requests import ModelRequest, Response, model_request, to_completions, variant_of
from refusal_index.plugins.batches.formats import RequestResult, provider_failure
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role, forced_variant, next_requests
from refusal_index.redaction import without_credentials
from refusal_index.runs.events import Event, Finished, Progress, Replied, ignore_events
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, as_stored

PREFIX = "ri-"
"""Prefix of an id."""

DIGITS = 40
"""Number of hexadecimal digits of an id, in a form that all providers accept."""


def custom_id(name: str, request_sha256: str) -> str:
    """Return the id of a request: a hash of the model and the request's content.

    Parameters
    ----------
    name
        The name of the model in the run: the same question to another model is a different request.
    request_sha256
        `ModelRequest.sha256`, the hash of pass, question, draw, attempt, seed, messages and decoding.

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
    """A request without a reply, and its id."""

    custom_id: str
    ask: ModelRequest


Unfinished = tuple[Conversation, Sequence[PendingRequest]]
"""A conversation, and its pending requests, of which there is at least one."""


@dataclass
class QuestionState:
    """One question under all prompt variants, with its replies.

    Attributes
    ----------
    conversations
        The conversation of each variant.
    settings, names
        The settings, and the model names by role.
    completions, retired
        The stored replies, and the replies that were retired so that their requests are sent again.
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
        """Return all replies that count under a conversation's variant."""
        variants = conversation.variant, forced_variant(conversation.variant)
        return [completion for completion in chain(self.completions, self.new) if completion.variant in variants]

    def next_requests(self, conversation: Conversation) -> list[PendingRequest]:
        """Return the pending requests of a conversation."""
        return next_requests(conversation, self.counted(conversation))

    def same_verdicts(self, conversation: Conversation, verdict: PendingRequest) -> list[PendingRequest]:
        """Return the request for a verdict under each draw with the same reply, since any of them may have been sent.

        Equal replies are graded once. The draw under which the verdict is requested changes if an earlier draw is
        sampled again and gets the same reply.
        """
        if conversation.draws == 1:
            return [verdict]
        replies = {
            completion.draw: completion.reply
            for completion in self.counted(conversation)
            if (completion.reply.pass_, completion.reply.role) == (verdict.step.pass_, Role.MODEL)
        }
        same = (draw for draw, reply in replies.items() if draw != verdict.draw and reply == replies.get(verdict.draw))
        return [verdict, *(replace(verdict, draw=draw) for draw in sorted(same))]

    def pending(self, conversation: Conversation, request: PendingRequest) -> Pending:
        """Build a pending request and its id."""
        key = conversation.variant, request
        pending = self._requests.get(key)
        if pending is None:
            retired = self._times_retired(conversation, request) if self.retired else 0
            ask = model_request(self.settings, conversation, request, retired)
            pending = self._requests[key] = Pending(custom_id(self.names[request.step.role], ask.sha256), ask)
        return pending

    def unfinished(self) -> Iterator[Unfinished]:
        """Yield the conversations with pending requests, and these requests."""
        for conversation in self.conversations:
            if requests := self.next_requests(conversation):
                yield conversation, requests

    def all_pending(self, unfinished: Iterable[Unfinished] | None = None, *, singly: bool = False) -> Iterator[Pending]:
        """Yield all requests to send now; a request shared by several variants is yielded once.

        Parameters
        ----------
        unfinished
            What `unfinished` yields; None to determine it here.
        singly
            Whether each draw needs a separate request because the model returns one reply per request.
        """
        max_choices = 1 if singly else self.settings.sending.max_choices
        ids: set[str] = set()
        for conversation, requests in self.unfinished() if unfinished is None else unfinished:
            for request in requests:
                for part in split(request, max_choices):
                    pending = self.pending(conversation, part)
                    if pending.custom_id not in ids:
                        ids.add(pending.custom_id)
                        yield pending

    def _times_retired(self, conversation: Conversation, request: PendingRequest) -> int:
        key = variant_of(conversation, request.step.pass_), request.step.pass_, request.step.role, request.draw
        return sum(
            (completion.variant, completion.reply.pass_, completion.reply.role, completion.draw) == key
            for completion in self.retired
        )


def split(request: PendingRequest, max_choices: int) -> list[PendingRequest]:
    """Split a pending request into parts of at most `max_choices` draws.

    Examples
    --------
    >>> from refusal_index.protocol import Role, Pass, Step
    >>> [(each.draw, each.n) for each in split(PendingRequest(Step(Pass.FIRST, Role.MODEL), draw=2, n=5), 2)]
    [(2, 2), (4, 2), (6, 1)]
    """
    if request.n <= max_choices:
        return [request]
    starts = range(0, request.n, max_choices)
    return [replace(request, draw=request.draw + start, n=min(max_choices, request.n - start)) for start in starts]


def question_states(
    conversations: Iterable[Conversation], store: ReplyStore, settings: Settings, names: Mapping[Role, str]
) -> Iterator[QuestionState]:
    """Yield the state of each question; the conversations of a question must be adjacent."""
    retired: dict[str, list[Completion]] = {}
    for completion in store.retired():
        retired.setdefault(completion.question_id, []).append(completion)
    for question_id, group in groupby(conversations, key=lambda conversation: conversation.question.question_id):
        variants = list(group)
        completions = {
            reply: None for conversation in variants for reply in store.completions(question_id, conversation.variant)
        }
        yield QuestionState(variants, settings, names, list(completions), retired.get(question_id, ()))


def stored_ids(store: ReplyStore, names: Mapping[Role, str]) -> Iterator[str]:
    """Yield the ids of all requests that have a stored or retired reply."""
    for completion in chain(store.replies(), store.retired()):
        if completion.request_sha256 is not None:
            yield custom_id(names.get(completion.reply.role, ""), completion.request_sha256)


STORED_TOGETHER = 1_000  # replies per transaction


class Results(Protocol):
    """A lookup of results by request id, such as a dictionary."""

    def get(self, key: str, /) -> RequestResult | None: ...  # noqa: D102 - described by the class


@dataclass
class MergeCounts:
    """Counts of merged results.

    Attributes
    ----------
    replies
        Replies that are new in the store.
    stored
        Results whose reply is in the store already.
    differing
        Results whose request has a different reply in the store, which is kept.
    failed
        Failures of requests that are still pending.
    pending
        Requests that are pending afterwards.
    """

    replies: int = 0
    stored: int = 0
    differing: int = 0
    failed: int = 0
    pending: int = 0


@dataclass
class ResultMerger:
    """Merges results into a store.

    Attributes
    ----------
    results, store
        The results by id, and the store.
    progress
        Called with an event for each response, and for each question that has no pending request any more.
    replied
        Called with each request and its replies.
    failed
        Called with each failed request and its failure, once for each variant that shares the request.
    differs
        Called with the id of each result that differs from the stored reply.
    counts
        Counts of what was merged.
    """

    results: Results
    store: ReplyStore
    progress: Progress = ignore_events
    replied: Callable[[Pending, list[Completion]], object] = lambda _pending, _completions: None
    failed: Callable[[Pending, Failure], object] = lambda _pending, _failure: None
    differs: Callable[[str], object] = len
    counts: MergeCounts = field(default_factory=MergeCounts)
    _completions: list[Completion] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)

    def merge(self, states: Iterable[QuestionState], *, singly: bool = False) -> MergeCounts:
        """Merge the results of questions; the results may span several rounds.

        Parameters
        ----------
        states
            The states of the questions.
        singly
            Whether each draw that is pending afterwards needs a separate request; affects the count only.

        Raises
        ------
        StoreError
            If replies cannot be stored.
        """
        for state in states:
            self._compare_stored(state)
            failed: dict[str, set[str]] = {}
            left: list[Unfinished] = []
            for conversation, pending in list(state.unfinished()):
                # A forced reply that came with another variant is shared.
                requests = state.next_requests(conversation) if state.new else pending
                while completions := list(self._new_completions(state, (conversation, requests), failed)):
                    state.new += completions
                    requests = state.next_requests(conversation)
                if requests:
                    left.append((conversation, requests))
                else:
                    self._events.append(Finished(conversation.variant, conversation.question.question_id))
            self.counts.failed += len(failed)
            self.counts.pending += sum(1 for _ in state.all_pending(left, singly=singly))
            if len(self._completions) >= STORED_TOGETHER:
                self._flush()
        self._flush()
        return self.counts

    def _new_completions(
        self, state: QuestionState, unfinished: Unfinished, failed: dict[str, set[str]]
    ) -> Iterator[Completion]:
        """Yield the replies to the pending requests of a conversation."""
        conversation, requests = unfinished
        for request in requests:
            new: dict[int, Completion] = {}  # by draw
            for alternative in _alternatives(state, conversation, request):
                pending = state.pending(conversation, alternative)
                result = self.results.get(pending.custom_id)
                if result is None:
                    continue
                if alternative.draw in new:  # an earlier draw's response included this draw
                    self._compare(pending.custom_id, [new[alternative.draw]], result)
                    continue
                if new and alternative.step.role is not Role.MODEL:  # the verdict is there already
                    continue
                completions_found = self._completions_of(pending, result, state, failed)
                completions = [completion for completion in completions_found if completion.draw not in new]
                if completions:
                    self.counts.replies += len(completions)
                    self.replied(pending, completions)
                    self._events.append(Replied(completions[0]))
                    self._completions += completions
                    new |= {completion.draw: completion for completion in completions}
            yield from new.values()

    def _completions_of(
        self, pending: Pending, result: RequestResult, state: QuestionState, failed: dict[str, set[str]]
    ) -> Sequence[Completion]:
        failure = result.failure
        if result.response is not None:
            try:
                # the next requests depend on the replies as the store will hold them
                return as_stored(to_completions(pending.ask, result.response))
            except NoAnswerError as error:
                failure = provider_failure(str(error), state.names[pending.ask.request.role])
        if failure is not None:
            variants = failed.setdefault(pending.custom_id, set())
            variant = pending.ask.conversation.variant
            if variant not in variants:
                variants.add(variant)
                self.failed(pending, failure)
        return []

    def _compare_stored(self, state: QuestionState) -> None:
        """Compare results with stored and retired replies to the same requests; the first reply is kept."""
        by_name: dict[str, list[Completion]] = {}
        for completion in (*state.completions, *state.retired):
            if completion.request_sha256 is not None:
                by_name.setdefault(
                    custom_id(state.names.get(completion.reply.role, ""), completion.request_sha256), []
                ).append(completion)
        for name, completions in by_name.items():
            result = self.results.get(name)
            if result is not None:
                self._compare(name, completions, result)

    def _compare(self, name: str, stored: Sequence[Completion], result: RequestResult) -> None:
        """Count a result whose request already has replies as equal or different."""
        if result.response is None:
            return
        if _are_replies(stored, result.response):
            self.counts.stored += 1
        else:
            self.counts.differing += 1
            self.differs(name)

    def _flush(self) -> None:
        """Store the collected replies, then report their events."""
        self.store.put(self._completions)
        for event in self._events:
            if isinstance(event, Finished):
                self.store.clear_failure(event.variant, event.question_id)
            self.progress(event)
        self._completions = []
        self._events = []


def _alternatives(
    state: QuestionState, conversation: Conversation, request: PendingRequest
) -> Sequence[PendingRequest]:
    """Return the requests that may have been sent for a pending one; the result of each answers a part of it."""
    if request.step.role is not Role.MODEL:
        return state.same_verdicts(conversation, request)
    # with one reply per request, each draw has its own result
    return [PendingRequest(request.step, request.draw + offset, request.n - offset) for offset in range(request.n)]


def _are_replies(stored: Sequence[Completion], response: Response) -> bool:
    """Whether a response equals the stored replies, in all draws that both have."""
    indices = [index for index, reply in enumerate(response.replies) if reply is not None]
    before = min(completion.draw for completion in stored) - min(indices, default=0)
    received = {before + index: response.replies[index] or ("", None) for index in indices}
    return all(
        (without_credentials(sound_text(received[completion.draw][0])), received[completion.draw][1])
        == (completion.reply.text, completion.reply.stop_reason)
        for completion in stored
        if completion.draw in received
    )
