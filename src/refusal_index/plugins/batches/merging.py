"""Merging results into the store: each finds its request by its id, in whatever order and however often it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from refusal_index.data.text import sound_text
from refusal_index.models.failures import Failure, NoAnswerError
from refusal_index.models.requests import Response, to_completions
from refusal_index.plugins.batches.formats import Result, provider_failure
from refusal_index.plugins.batches.pending import Pending, QuestionState, custom_id
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role
from refusal_index.redaction import redacted
from refusal_index.runs.engine import Event, Finished, Progress, Replied, unwatched
from refusal_index.runs.store import ReplyStore, as_stored

STORED_TOGETHER = 1_000  # replies that go into the store together


class Results(Protocol):
    """Results by the ids of their requests; a dictionary is one."""

    def get(self, key: str, /) -> Result | None: ...  # noqa: D102 - described by the class


@dataclass
class MergeCounts:
    """Counts of merged results.

    Attributes
    ----------
    replies
        Replies that are new in the store.
    stored
        Results of requests to which the store holds the same reply.
    differing
        Results of requests to which it holds another reply: the first one stays.
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


@dataclass(frozen=True)
class Callbacks:
    """Called while results are merged.

    Attributes
    ----------
    progress
        With each response, and each question that has no pending request any more.
    replied
        With each request and the replies to it.
    failed
        With each request that is still pending, and why it failed; once for each variant that shares it.
    differs
        With the id of each result that is another reply than the one that the store holds.
    """

    progress: Progress = unwatched
    replied: Callable[[Pending, list[Completion]], object] = lambda _pending, _completions: None
    failed: Callable[[Pending, Failure], object] = lambda _pending, _failure: None
    differs: Callable[[str], object] = len


@dataclass
class ResultMerger:
    """Merges results into a store, many at once.

    Attributes
    ----------
    results, store, callbacks
        The results by id, where they go, and what is called.
    counts
        What became of them.
    """

    results: Results
    store: ReplyStore
    callbacks: Callbacks = Callbacks()
    counts: MergeCounts = field(default_factory=MergeCounts)
    _completions: list[Completion] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)

    def merge(self, states: Iterable[QuestionState], *, singly: bool = False) -> MergeCounts:
        """Merge the results about these questions; those of several rounds may be there at once.

        Parameters
        ----------
        states
            Every question under every variant.
        singly
            Whether each draw that is pending afterwards takes a request of its own.

        Raises
        ------
        StoreError
            If replies cannot be kept.
        """
        for state in states:
            self._compare_stored(state)
            failed: dict[str, set[str]] = {}
            pending = [one for one in state.conversations if state.next_requests(one)]
            for conversation in pending:
                while completions := list(self._new_completions(state, conversation, failed)):
                    state.new += completions
            for one in pending:
                if not state.next_requests(one):
                    self._events.append(Finished(one.variant, one.question.question_id))
            self.counts.failed += len(failed)
            self.counts.pending += sum(1 for _ in state.all_pending(singly=singly)) if pending else 0
            if len(self._completions) >= STORED_TOGETHER:
                self._flush()
        self._flush()
        return self.counts

    def _new_completions(
        self, state: QuestionState, conversation: Conversation, failed: dict[str, set[str]]
    ) -> Iterator[Completion]:
        """Yield the replies to what is pending under one variant."""
        for request in state.next_requests(conversation):
            new: dict[int, Completion] = {}  # by draw
            for one in _alternatives(state, conversation, request):
                pending = state.pending(conversation, one)
                result = self.results.get(pending.custom_id)
                if result is None:
                    continue
                if one.draw in new:  # it came with the choices of an earlier draw
                    self._compare(pending.custom_id, [new[one.draw]], result)
                    continue
                if new and one.step.role is not Role.MODEL:  # it has its verdict
                    continue
                found = self._completions_of(pending, result, state, failed)
                completions = [each for each in found if each.draw not in new]
                if completions:
                    self.counts.replies += len(completions)
                    self.callbacks.replied(pending, completions)
                    self._events.append(Replied(completions[0]))
                    self._completions += completions
                    new |= {each.draw: each for each in completions}
            yield from new.values()

    def _completions_of(
        self, pending: Pending, result: Result, state: QuestionState, failed: dict[str, set[str]]
    ) -> Sequence[Completion]:
        failure = result.failure
        if result.response is not None:
            try:
                # what is pending next depends on what the store will hold
                return as_stored(to_completions(pending.ask, result.response))
            except NoAnswerError as error:
                failure = provider_failure(str(error), state.names[pending.ask.request.role])
        if failure is not None:
            variants, variant = failed.setdefault(pending.custom_id, set()), pending.ask.conversation.variant
            if variant not in variants:
                variants.add(variant)
                self.callbacks.failed(pending, failure)
        return []

    def _compare_stored(self, state: QuestionState) -> None:
        """Look up the results of requests to which the store holds or held a reply: the first one stays."""
        held: dict[str, list[Completion]] = {}
        for one in (*state.completions, *state.retired):
            if one.request_sha256 is not None:
                held.setdefault(custom_id(state.names.get(one.reply.role, ""), one.request_sha256), []).append(one)
        for name, completions in held.items():
            result = self.results.get(name)
            if result is not None:
                self._compare(name, completions, result)

    def _compare(self, name: str, held: Sequence[Completion], result: Result) -> None:
        """Count a result of a request that has its replies."""
        if result.response is None:
            return
        if _are_replies(held, result.response):
            self.counts.stored += 1
        else:
            self.counts.differing += 1
            self.callbacks.differs(name)

    def _flush(self) -> None:
        """Store the replies that wait, and pass on their events."""
        self.store.put(self._completions)
        for event in self._events:
            if isinstance(event, Finished):
                self.store.clear_failure(event.variant, event.question_id)
            self.callbacks.progress(event)
        self._completions, self._events = [], []


def _alternatives(
    state: QuestionState, conversation: Conversation, request: PendingRequest
) -> Sequence[PendingRequest]:
    """Return the requests that may have been sent for a pending one, whose results each answer at least a part."""
    if request.step.role is not Role.MODEL:
        return state.same_verdicts(conversation, request)
    # where one reply came at a time, each draw has a result of its own
    return [replace(request, draw=request.draw + at, n=request.n - at) for at in range(request.n)]


def _are_replies(held: Sequence[Completion], response: Response) -> bool:
    """Whether a response holds the stored replies: draw by draw, as far as both go."""
    places = [place for place, one in enumerate(response.replies) if one is not None]
    before = min(one.draw for one in held) - min(places, default=0)
    came = {before + place: response.replies[place] or ("", None) for place in places}
    return all(
        (redacted(sound_text(came[one.draw][0])), came[one.draw][1]) == (one.reply.text, one.reply.stop_reason)
        for one in held
        if one.draw in came
    )
