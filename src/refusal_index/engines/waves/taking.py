"""Entering results into the store: each finds its place by its id, in whatever order they came and however often.

What lies in a file of results, before it is read: nothing, or requests that somebody gave by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from refusal_index.engines.asks import Response, completed
from refusal_index.engines.engine import Event, Finished, Progress, Replied, unwatched
from refusal_index.engines.failures import Failure, NoAnswerError
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore, without_keys
from refusal_index.engines.waves.formats import Result, failed
from refusal_index.engines.waves.spool import ResultFileError
from refusal_index.engines.waves.wave import Pending, Sheet, Talk, custom_id, most_draws, one_by_one
from refusal_index.outcomes.files import sound_text
from refusal_index.protocol import Asked, Completion, Conversation, Due
from refusal_index.redaction import redacted

AT_ONCE = 1_000  # replies that go into the store together


class Results(Protocol):
    """Results by the ids of their requests; a dictionary is one."""

    def get(self, key: str, /) -> Result | None: ...  # noqa: D102 - described by the class

    def __len__(self) -> int: ...


@dataclass
class Taken:
    """What became of results.

    Attributes
    ----------
    replies
        How many are new in the store.
    there
        How many results were of a request that the store holds the same reply to.
    differing
        How many were of one that it holds another reply to: the first one stays.
    failed
        How many were failures of requests that are still due.
    pending
        How many requests are due afterwards.
    """

    replies: int = 0
    there: int = 0
    differing: int = 0
    failed: int = 0
    pending: int = 0


@dataclass(frozen=True)
class Watch:
    """Who is told while results are entered.

    Attributes
    ----------
    progress
        Of each response, and of each question that needs nothing more.
    replied
        Of each request, and the replies to it.
    failed
        Of each request that is still due, and what it failed for; of one that variants share, by each of them.
    differs
        Of the id of each result that is another reply than the one that the store holds.
    """

    progress: Progress = unwatched
    replied: Callable[[Pending, list[Completion]], object] = lambda _pending, _completions: None
    failed: Callable[[Pending, Failure], object] = lambda _pending, _failure: None
    differs: Callable[[str], object] = len


def take(
    talks: Iterable[Talk],
    results: Results,
    store: ReplyStore,
    settings: Settings,
    names: Mapping[Asked, str],
    watch: Watch = Watch(),
    *,
    singly: bool = False,
) -> Taken:
    """Enter results into the store.

    Results of several waves may be there at once: what is due next is looked for after each.

    Parameters
    ----------
    talks
        Every question, under every variant.
    results
        By id.
    store, settings, names
        Where they go, and how their requests were made and whom they asked.
    watch
        Who is told.
    singly
        Whether each draw that is due afterwards takes a request of its own, as `wave` has it.

    Raises
    ------
    StoreError
        If replies cannot be kept.
    """
    taking, most = _Taking(results, store, watch), most_draws(settings, singly=singly)
    for talk in talks:
        taking.compare(talk, names)
        sheet = Sheet(talk, settings, names)
        left = {one.variant: taking.enter(sheet, one) for one in talk.conversations}
        taking.taken.pending += sum(1 for _ in sheet.requests(dict(_still_due(sheet, left)), most))
        taking.flush(AT_ONCE)
    taking.flush()
    return taking.taken


Left = tuple[int, Sequence[Due]]
"""How many replies counted under a variant, and what was due then."""


def _still_due(sheet: Sheet, left: Mapping[str, Left]) -> Iterator[tuple[str, Sequence[Due]]]:
    """Yield what is due under each variant: it may be less than it was, as others have brought what all share."""
    for one in sheet.talk.conversations:
        counted, asks = left[one.variant]
        yield one.variant, asks if len(sheet.said(one)) == counted else sheet.due(one)


class _Taking:
    """Results on their way into the store, many at once."""

    def __init__(self, results: Results, store: ReplyStore, watch: Watch) -> None:
        self._results, self._store, self._watch = results, store, watch
        self._waiting: list[Completion] = []
        self._events: list[Event] = []
        self.taken = Taken()

    def enter(self, sheet: Sheet, conversation: Conversation) -> Left:
        """Take the results of what is due under one variant, again and again until none of it has any."""
        came = False
        while asks := sheet.due(conversation):
            found = [one for each in asks for one in self._replies(sheet, conversation, each)]
            if not found:
                break
            came = True
            sheet.new += found
        # What it lacked may have come for another variant.
        if not asks and (came or (sheet.new and sheet.was_due(conversation))):
            self._events.append(Finished(conversation.variant, conversation.question.question_id))
        return len(sheet.said(conversation)), asks

    def _replies(self, sheet: Sheet, conversation: Conversation, due: Due) -> Iterator[Completion]:
        there: dict[int, Completion] = {}  # by draw, of this round
        for one in one_by_one(due) if due.step.asked is Asked.MODEL else sheet.where_graded(conversation, due):
            pending = sheet.pending(conversation, one)
            result = self._results.get(pending.custom_id)
            if result is None:
                continue
            if one.draw in there:  # with the choices of a draw before it
                self._compare(pending.custom_id, [there[one.draw]], result)
                continue
            if there and one.step.asked is not Asked.MODEL:  # it has its verdict
                continue
            completions = [each for each in self._completed(pending, result, sheet) if each.draw not in there]
            if completions:
                self.taken.replies += len(completions)
                self._watch.replied(pending, completions)
                self._events.append(Replied(completions[0]))
                self._waiting += completions
                there |= {each.draw: each for each in completions}
        yield from there.values()

    def _completed(self, pending: Pending, result: Result, sheet: Sheet) -> Sequence[Completion]:
        failure, names = result.failure, sheet.names
        if result.response is not None:
            try:
                found = completed(pending.ask, result.response)
            except NoAnswerError as error:
                failure = failed(pending.custom_id, names[pending.ask.request.asked], str(error)).failure
            else:
                return without_keys(found)  # what is due next depends on what the store will hold
        if failure is not None:
            self._fail(pending, failure, sheet)
        return []

    def _fail(self, pending: Pending, failure: Failure, sheet: Sheet) -> None:
        """Tell of a failure once for each variant that waits for the reply."""
        variants = sheet.failed.setdefault(pending.custom_id, set())
        self.taken.failed += not variants
        if pending.ask.conversation.variant not in variants:
            variants.add(pending.ask.conversation.variant)
            self._watch.failed(pending, failure)

    def compare(self, talk: Talk, names: Mapping[Asked, str]) -> None:
        """Look up results of requests that the store holds a reply to, or held one: the first one stays."""
        held: dict[str, list[Completion]] = {}
        for one in (*talk.said, *talk.retired):
            if one.request_sha256 is not None:
                held.setdefault(custom_id(names.get(one.reply.asked, ""), one.request_sha256), []).append(one)
        for name, completions in held.items():
            result = self._results.get(name)
            if result is not None:
                self._compare(name, completions, result)

    def _compare(self, name: str, held: Sequence[Completion], result: Result) -> None:
        """Count a result of a request whose replies are there."""
        if result.response is None:
            return
        if _are_replies(held, result.response):
            self.taken.there += 1
        else:
            self.taken.differing += 1
            self._watch.differs(name)

    def flush(self, least: int = 1) -> None:
        """Have the store keep what waits, and tell of it, once there is so much of it."""
        if len(self._waiting) < least:
            return
        self._store.put(self._waiting)
        for one in self._events:
            if isinstance(one, Finished):
                self._store.finish(one.variant, one.question_id)
            self._watch.progress(one)
        self._waiting, self._events = [], []


def _are_replies(held: Sequence[Completion], response: Response) -> bool:
    """Whether a response says what the store holds of it: draw by draw, as far as both go."""
    places = [place for place, one in enumerate(response.replies) if one is not None]
    before = min(one.draw for one in held) - min(places, default=0)
    came = {before + place: response.replies[place] or ("", None) for place in places}
    return all(
        (redacted(sound_text(came[one.draw][0])), came[one.draw][1]) == (one.reply.text, one.reply.stop_reason)
        for one in held
        if one.draw in came
    )


LONGEST = 64 << 20  # bytes that are looked at
ASKED, ANSWERED = ("body", "params", "request"), ("response", "result", "error")
"""What a request has in one of the formats, and what a result has."""


def is_without_lines(path: Path) -> bool:
    """Whether a file holds no line.

    Raises
    ------
    ResultFileError
        If it holds requests.
    """
    if not path.is_file():
        return False  # it is told of as it is read
    try:
        with path.open("rb") as file:
            first = next((line for line in iter(lambda: file.readline(LONGEST), b"") if line.strip()), None)
        asks = first is not None and is_request(json.loads(first))
    except (OSError, ValueError, RecursionError):
        return False
    if asks:
        raise ResultFileError(
            f"{path}: expected results, got requests: hand this file to whoever answers it, and give the file that "
            "comes of it"
        )
    return first is None


def is_request(document: Any) -> bool:
    """Whether a line of a file is a request, in any of the formats.

    Examples
    --------
    >>> is_request({"custom_id": "ri-1", "params": {}}), is_request({"custom_id": "ri-1", "result": {}})
    (True, False)
    """
    if not isinstance(document, Mapping):
        return False
    return any(one in document for one in ASKED) and not any(one in document for one in ANSWERED)
