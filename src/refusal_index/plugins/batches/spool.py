"""Results from files: kept on disk until each is looked up by its id, then entered into the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from refusal_index.data.errors import shortened
from refusal_index.data.folder import RunFolder
from refusal_index.data.text import sound_text
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import Failure, NoAnswerError
from refusal_index.models.requests import Response, to_completions
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.formats import Result, ResultError, failed, in_batch, read_result
from refusal_index.plugins.batches.wave import (
    Pending,
    QuestionState,
    ResultMerger,
    custom_id,
    most_draws,
    one_by_one,
    stored_ids,
)
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role, StopReason
from refusal_index.redaction import redacted
from refusal_index.runs.engine import Assignment, Event, Finished, Progress, Replied, unwatched
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, as_stored

AT_ONCE = 5_000  # lines that go to the disk together
NAMED = 5  # of each kind of trouble, so many are named

LONGEST_LINE = 64 << 20
"""Most bytes of a line that holds a result: many long replies with their log probabilities come nowhere near it."""

TABLE = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE results (
    number INTEGER PRIMARY KEY, custom_id TEXT UNIQUE, failed INTEGER, said TEXT, file TEXT, row INTEGER);
"""
PUT = "INSERT OR IGNORE INTO results (custom_id, failed, said, file, row) VALUES (?, ?, ?, ?, ?)"

Row = tuple[str, bool, str, str, int]


class ResultFileError(RefusalIndexError, ValueError):
    """A file of results that cannot be read."""


@dataclass
class Trouble:
    """Results that were left out, for one reason.

    Attributes
    ----------
    count
        How many.
    named
        The first of them, each in a few words.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, words: str) -> None:
        """Take note of one more."""
        self.count += 1
        if len(self.named) < NAMED:
            self.named.append(words)


class Spool:
    """Results on the disk, each found by its id; a context manager that removes them.

    Attributes
    ----------
    unreadable
        Lines that hold no result.
    contradicting
        Results of which another one for the same request, with another reply, came before.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("")  # a file of its own, which goes with it
        self._connection.executescript(TABLE)
        self._used = bytearray()
        self.unreadable, self.contradicting = Trouble(), Trouble()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._connection.close()

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT count(*) FROM results").fetchone()
        return int(count)

    def read(self, path: Path) -> None:
        """Take in a file: a line of JSON for each result, in any of the formats.

        Raises
        ------
        ResultFileError
            If the file cannot be read at all; lines that hold no result are left out, and counted.
        """
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ResultFileError(f"{path}: expected a file of results, it is none")
        try:
            for some in _together(self._rows(path)):
                self._put(some)
        except OSError as error:
            raise ResultFileError(
                f"{path}: expected a file of results, it cannot be read ({error.strerror})"
            ) from error
        except sqlite3.Error as error:
            raise ResultFileError(
                f"{path}: its results cannot be put aside in the folder for temporary files ({error}); make room there"
            ) from error

    def _rows(self, path: Path) -> Iterator[Row]:
        with path.open("rb") as file:
            for number, raw in enumerate(_lines(file), start=1):
                if not raw.strip():
                    continue
                try:
                    if len(raw) > LONGEST_LINE:
                        raise ResultError(f"expected a line of at most {LONGEST_LINE:,} bytes, it is longer")
                    line = raw.decode("utf-8-sig")
                    result = in_batch(read_result(json.loads(line)))  # as files of requests are carried, mostly
                except ResultError as error:
                    self.unreadable.add(f"{path}, line {number}: {error}")
                except (ValueError, RecursionError) as error:
                    said = shortened(str(error) or type(error).__name__)
                    self.unreadable.add(f"{path}, line {number}: expected a line of JSON, it cannot be read ({said})")
                else:
                    said = line if result.response is None else _packed(result.response)
                    yield sound_text(result.custom_id), result.response is None, said, str(path), number

    def _put(self, rows: list[Row]) -> None:
        if self._connection.executemany(PUT, rows).rowcount < len(rows):
            for row in rows:
                self._compare(row)

    def _compare(self, row: Row) -> None:
        """Have a reply take the place of a failure; of two replies the first one stays."""
        name, is_failure, said, path, number = row
        found = "SELECT failed, said, file, row FROM results WHERE custom_id = ?"
        failed, held, *place = self._connection.execute(found, (name,)).fetchone()
        if place == [path, number] or is_failure:
            return
        if failed:
            change = "UPDATE results SET failed = ?, said = ?, file = ?, row = ? WHERE custom_id = ?"
            self._connection.execute(change, (is_failure, said, path, number, name))
        elif _unpacked(held).replies != _unpacked(said).replies:
            first = f"{place[0]}, line {place[1]}"
            self.contradicting.add(f"{path}, line {number}: {shortened(name)} has another reply in {first}")

    def get(self, custom_id: str) -> Result | None:
        """Return the result of a request, which counts as known from then on; None where there is none."""
        found = "SELECT number, failed, said FROM results WHERE custom_id = ?"
        row = self._connection.execute(found, (custom_id,)).fetchone()
        if row is None:
            return None
        number, failed, said = row
        if number >= len(self._used):
            self._used.extend(bytes(number + 1))
        self._used[number] = 1
        return _failure(said) if failed else Result(custom_id, _unpacked(said))

    def unknown(self, *, failures: bool = False) -> Trouble:
        """Return the replies that nobody looked up: they are of requests of something else.

        Parameters
        ----------
        failures
            Whether to return failures instead: what failed may have been answered in another way since.
        """
        found = Trouble()
        query = "SELECT number, custom_id, file, row FROM results WHERE failed = ?"
        for number, name, path, row in self._connection.execute(query, (failures,)):
            if number >= len(self._used) or not self._used[number]:
                found.add(f"{path}, line {row}: {shortened(name)}")
        return found


def _together(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in portions, none of them with much more text than the longest line."""
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row[2])
        if len(some) == AT_ONCE or size > LONGEST_LINE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long its beginning, which is longer than `LONGEST_LINE` too."""
    while raw := file.readline(LONGEST_LINE + 1):
        yield raw
        while len(raw) > LONGEST_LINE and not raw.endswith(b"\n"):
            raw = file.readline(LONGEST_LINE + 1)


def _failure(line: str) -> Result | None:
    """Read a line again; None where its values lie within each other deeper than can be read from here."""
    try:
        return read_result(json.loads(line))
    except RecursionError:
        return None


def _packed(response: Response) -> str:
    """Return all of a response as short text, as most of a line says nothing of it."""
    return json.dumps(list(vars(response).values()))


def _unpacked(said: str) -> Response:
    replies, *rest = json.loads(said)
    return Response([one and (one[0], StopReason(one[1])) for one in replies], *rest)


FOLDER, REPLIES = "waves", ".replies.jsonl"
"""In a run's folder: results that are not in the store yet, and how the files of the engine ``command`` end."""

LEFT = {"command": f"*{REPLIES}", "ray": "shards/*.jsonl"}
"""Which of them each engine leaves there, and takes in itself."""


def refuse_left(folder: RunFolder, engine: str) -> None:
    """Raise where another engine would pay again for what an earlier command left in files.

    Raises
    ------
    SettingError
        The message says where the files are, and how they are taken in.
    """
    others = (pattern for name, pattern in LEFT.items() if name != engine)
    left = [path for pattern in others for path in sorted((folder.path / FOLDER).glob(pattern))]
    if left:
        raise SettingError(
            f"{folder.path}: results that an earlier command paid for lie in {left[0].parent} ({len(left):,} files, "
            f"the first {left[0].name}), and another engine would pay for them again: go on with the same "
            f"{{engine}}, or take them in by 'refusal-index replies {folder.path} FILE...' and remove them"
        )


Answered = Callable[[str, Sequence[Pending], Assignment], AsyncGenerator[Mapping[str, Result], None]]
"""Has requests to a model, by its name, answered."""


class Leftovers:
    """Results in files, each handed out once; failures are none, for what failed is asked again.

    Parameters
    ----------
    files
        The name of each file, and its lines.
    remove
        Removes a file by its name, once all in it is in the store.

    Examples
    --------
    >>> line = '{"custom_id": "a", "response": {"body": {"choices": [{"message": {"content": "Lima"}}]}}}'
    >>> sorted(Leftovers([("wave.jsonl", [line, '{"custom_id": "b", "resp'])], print).ids)
    ['a']
    """

    def __init__(self, files: Iterable[tuple[str, Iterable[str]]], remove: Callable[[str], object]) -> None:
        self._remove = remove
        self._files: dict[str, dict[str, Result]] = {
            name: {one.custom_id: one for one in read_lines(lines) if is_reply(one)} for name, lines in files
        }

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all that were not handed out yet."""
        return frozenset(one for results in self._files.values() for one in results)

    def take(self, requests: Sequence[Pending]) -> dict[str, Result]:
        """Return the results of requests."""
        wanted, found = {one.custom_id for one in requests}, dict[str, Result]()
        for results in self._files.values():
            for name in wanted & results.keys():
                found[name] = results.pop(name)
        return found

    def clear(self, store: ReplyStore, names: Mapping[Role, str]) -> None:
        """Remove the files all results of which are in a store by now: they were handed out, or entered before."""
        if self.ids:
            for name in stored_ids(store, names):
                for results in self._files.values():
                    results.pop(name, None)
        for name in [name for name, results in self._files.items() if not results]:
            del self._files[name]
            self._remove(name)


async def left_first(
    left: Leftovers, requests: Sequence[Pending], names: Mapping[Role, str], assignment: Assignment, answered: Answered
) -> AsyncGenerator[Mapping[str, Result], None]:
    """Yield what lies in files, then what is made of the other requests, one model after the other.

    Parameters
    ----------
    left
        What lies there.
    requests, names, assignment
        What is asked, of whom, and for what.
    answered
        Has requests to one model answered.
    """
    found = left.take(requests)
    if found:
        yield found
    left.clear(assignment.store, names)
    for name in dict.fromkeys(names.values()):
        asked = [one for one in requests if names[one.ask.request.role] == name and one.custom_id not in found]
        if asked and assignment.breaker.reason is None:
            async with aclosing(answered(name, asked, assignment)) as groups:
                async for results in groups:
                    yield results


def read_lines(lines: Iterable[str], model: str = "the provider") -> Iterator[Result]:
    """Yield the result in each line; one that was not written to its end, or holds none, is passed over."""
    for line in lines:
        try:
            yield read_result(json.loads(line), model)
        except (ResultError, ValueError, RecursionError):
            continue


def is_reply(result: Result) -> bool:
    """Whether a result holds an answer."""
    return result.response is not None and any(one is not None for one in result.response.replies)


STORED_TOGETHER = 1_000  # replies that go into the store together


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
    talks: Iterable[QuestionState],
    results: Results,
    store: ReplyStore,
    settings: Settings,
    names: Mapping[Role, str],
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
        sheet = ResultMerger(talk, settings, names)
        left = {one.variant: taking.enter(sheet, one) for one in talk.conversations}
        taking.taken.pending += sum(1 for _ in sheet.requests(dict(_still_due(sheet, left)), most))
        taking.flush(STORED_TOGETHER)
    taking.flush()
    return taking.taken


Left = tuple[int, Sequence[PendingRequest]]
"""How many replies counted under a variant, and what was due then."""


def _still_due(sheet: ResultMerger, left: Mapping[str, Left]) -> Iterator[tuple[str, Sequence[PendingRequest]]]:
    """Yield what is due under each variant: it may be less than it was, as others have brought what all share."""
    for one in sheet.talk.conversations:
        counted, asks = left[one.variant]
        yield one.variant, asks if len(sheet.said(one)) == counted else sheet.next_requests(one)


class _Taking:
    """Results on their way into the store, many at once."""

    def __init__(self, results: Results, store: ReplyStore, watch: Watch) -> None:
        self._results, self._store, self._watch = results, store, watch
        self._waiting: list[Completion] = []
        self._events: list[Event] = []
        self.taken = Taken()

    def enter(self, sheet: ResultMerger, conversation: Conversation) -> Left:
        """Take the results of what is due under one variant, again and again until none of it has any."""
        came = False
        while asks := sheet.next_requests(conversation):
            found = [one for each in asks for one in self._replies(sheet, conversation, each)]
            if not found:
                break
            came = True
            sheet.new += found
        # What it lacked may have come for another variant.
        if not asks and (came or (sheet.new and sheet.was_due(conversation))):
            self._events.append(Finished(conversation.variant, conversation.question.question_id))
        return len(sheet.said(conversation)), asks

    def _replies(self, sheet: ResultMerger, conversation: Conversation, due: PendingRequest) -> Iterator[Completion]:
        there: dict[int, Completion] = {}  # by draw, of this round
        for one in one_by_one(due) if due.step.role is Role.MODEL else sheet.where_graded(conversation, due):
            pending = sheet.pending(conversation, one)
            result = self._results.get(pending.custom_id)
            if result is None:
                continue
            if one.draw in there:  # with the choices of a draw before it
                self._compare(pending.custom_id, [there[one.draw]], result)
                continue
            if there and one.step.role is not Role.MODEL:  # it has its verdict
                continue
            completions = [each for each in self._completed(pending, result, sheet) if each.draw not in there]
            if completions:
                self.taken.replies += len(completions)
                self._watch.replied(pending, completions)
                self._events.append(Replied(completions[0]))
                self._waiting += completions
                there |= {each.draw: each for each in completions}
        yield from there.values()

    def _completed(self, pending: Pending, result: Result, sheet: ResultMerger) -> Sequence[Completion]:
        failure, names = result.failure, sheet.names
        if result.response is not None:
            try:
                found = to_completions(pending.ask, result.response)
            except NoAnswerError as error:
                failure = failed(pending.custom_id, names[pending.ask.request.role], str(error)).failure
            else:
                return as_stored(found)  # what is due next depends on what the store will hold
        if failure is not None:
            self._fail(pending, failure, sheet)
        return []

    def _fail(self, pending: Pending, failure: Failure, sheet: ResultMerger) -> None:
        """Tell of a failure once for each variant that waits for the reply."""
        variants = sheet.failed.setdefault(pending.custom_id, set())
        self.taken.failed += not variants
        if pending.ask.conversation.variant not in variants:
            variants.add(pending.ask.conversation.variant)
            self._watch.failed(pending, failure)

    def compare(self, talk: QuestionState, names: Mapping[Role, str]) -> None:
        """Look up results of requests that the store holds a reply to, or held one: the first one stays."""
        held: dict[str, list[Completion]] = {}
        for one in (*talk.said, *talk.retired):
            if one.request_sha256 is not None:
                held.setdefault(custom_id(names.get(one.reply.role, ""), one.request_sha256), []).append(one)
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
                self._store.clear_failure(one.variant, one.question_id)
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
