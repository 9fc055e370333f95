"""A run that trackers follow: how far it has come while models are asked, and everything at its end.

Whatever a tracker does, the run goes on: each is called in a thread of its own, and one that fails is named in a line.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from refusal_index.protocol import Conversation, finished_outcomes
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.engine import Event, Finished, Progress, Replied, Underway, WaitingError, unwatched
from refusal_index.runs.plan import Plan
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.trackers import Tracker, subject_of, told, tracker_class

EVERY = 5.0
"""Seconds between two looks of a tracker at how far a run has come, or more where it takes longer."""

AT_THE_END, WHERE_FAILED = 600.0, 10.0
"""Seconds to wait for a tracker: with all results, and of a run that failed."""

SILENTLY = 2.0
"""Of these the seconds in which nothing is said: a terminal that stands still looks like a run that hangs."""

PROGRESS = "progress"
"""Stands before the counts, as a variant's name stands before its metrics."""

COUNTED = ("questions", "answered", "refused", "wrong", "unscored")
"""What is counted beside what replies took."""


@contextmanager
def tracked(plan: Plan, progress: Progress) -> Iterator[Tracking]:
    """Have the trackers that a run's settings name follow it while the block runs, which closes its folder."""
    tracking = Tracking(plan, progress)
    try:
        yield tracking
    except WaitingError:
        tracking.leave(waits=True)
        raise
    except BaseException:
        tracking.leave(waits=False)
        raise
    tracking.finish()


class Tracking:
    """The trackers that follow a run; it stands between the run and whoever else is told of its progress."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._plan, self._progress = plan, progress
        self._followers = [_Follower(name, plan) for name in dict.fromkeys(plan.settings.log_to)]
        self._counts = Counts(plan)
        self._store: ReplyStore | None = None
        self._looked = 0.0

    def watch(self, store: ReplyStore) -> None:
        """Count what lies in the store already; what comes goes there."""
        if self._followers:
            self._store = store
            self._counts.begin(store)

    def __call__(self, event: Event) -> None:
        """Pass an event on, and have the trackers know from time to time."""
        self._progress(event)
        if self._store is None or not self._counts.add(event, self._store):
            return
        if time.monotonic() - self._looked >= EVERY:
            self._looked = time.monotonic()
            for one in self._followers:
                one.count(self._counts.found())
                self._tell(one)

    def finish(self) -> None:
        """Have the trackers log the results in the run's folder, and say where these are to be seen.

        An interruption ends the waiting for them first; then it is what it would have been.
        """
        waiting = {one: one.finish(self._counts.found()) for one in self._followers}
        try:
            with _interruptible():
                for one, done in waiting.items():
                    self._wait(one, done)
        except KeyboardInterrupt:
            for one in (one for one, done in waiting.items() if not done.done()):
                one.gave_up("it was waited for no longer")
                self._tell(one)
            signal.raise_signal(signal.SIGINT)

    def _wait(self, follower: _Follower, done: Future[None]) -> None:
        """Wait for a tracker, and after a moment say so."""
        if not futures.wait([done], SILENTLY).done:
            self._progress(Underway(follower.waiting, is_news=True))
        if not futures.wait([done], AT_THE_END).done:
            follower.gave_up(f"it did not take the results in {AT_THE_END:g} seconds")
        self._tell(follower)

    def leave(self, *, waits: bool) -> None:
        """Have the trackers know that the run ended without results: as one that failed, or one that goes on later."""
        for one in self._followers:
            one.leave(waits=waits)

    def _tell(self, follower: _Follower) -> None:
        for line in follower.news():
            self._progress(Underway(line, is_news=True))
            if follower.failed and self._progress is unwatched:
                warnings.warn(line, stacklevel=2)


class Counts:
    """How far a run has come: its questions by what became of their first draws, and what it took."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._questions = {question.question_id: question for draws in plan.draws.values() for question in draws}
        self._found: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._counted: set[tuple[str, str]] = set()
        self._took = UsageCounter()

    def begin(self, store: ReplyStore) -> None:
        """Count what was answered before."""
        for variant in self._plan.procedures:
            for conversation in self._plan.conversations(variant, store):
                self._count(conversation, store)
        for one in store.paid():
            self._took.add(one)

    def add(self, event: Event, store: ReplyStore) -> bool:
        """Count an event, and return whether it counts."""
        match event:
            case Replied(completion):
                self._took.add(completion)
            case Finished(variant, question_id):
                question, procedure = self._questions[question_id], self._plan.procedures[variant]
                draws = self._plan.draws[variant][question]
                self._count(Conversation(question, variant, procedure, draws), store)
            case _:
                return False
        return True

    def found(self) -> dict[str, float]:
        """Return the counts by name, and the cost where it is known."""
        cost, (read, written) = self._took.cost(self._plan.prices), self._took.tokens
        took = {"requests": self._took.requests, "input_tokens": read, "output_tokens": written, "cost": cost}
        found = {**self._found, **took}
        return {f"{PROGRESS}/{name}": float(value) for name, value in found.items() if value is not None}

    def _count(self, conversation: Conversation, store: ReplyStore) -> None:
        """Count a question under a variant, once: engines say of what was finished before that it is."""
        place = conversation.variant, conversation.question.question_id
        said = (
            () if place in self._counted else store.completions(conversation.question.question_id, conversation.variant)
        )
        for outcome in finished_outcomes(conversation, said)[:1]:
            self._counted.add(place)
            told = (
                ("questions", True),
                ("answered", outcome.refused is False),
                ("refused", outcome.refused is True),
                ("wrong", outcome.wrong is True),
                ("unscored", outcome.refused is None or outcome.wrong is None),
            )
            self._found.update(name for name, holds in told if holds)


class _Follower:
    """One tracker, in a thread of its own: what it does or waits for keeps nobody."""

    def __init__(self, name: str, plan: Plan) -> None:
        self._name, self._plan = name, plan
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tracker: Tracker | None = None
        self.failed = False
        self._thread: threading.Thread | None = None
        self.waiting = f"{name}: it is waited for; the results lie in {plan.folder.path} already"
        self._advice = f"the results are not lost: 'refusal-index export {plan.folder.path} --to {name}' logs them"

    def count(self, found: dict[str, float]) -> None:
        """Log how far the run has come, unless the tracker is behind."""
        if self._jobs.empty():
            self._do(lambda: self._opened().count(found))

    def finish(self, found: dict[str, float]) -> Future[None]:
        """Log everything, and say where it is to be seen."""
        self._do(lambda: self._opened().count(found))
        return self._do(self._finished, last=True)

    def leave(self, *, waits: bool) -> None:
        """Tell how the run ended without results, where it was begun."""
        if self._thread is not None:
            with suppress(TimeoutError):
                self._do(lambda: self._left(waits=waits), last=True).result(WHERE_FAILED)

    def gave_up(self, why: str) -> None:
        """Say that nobody waits for it any longer."""
        self.failed = True
        self._lines.put(f"{self._name}: {why}; {self._advice}")

    def news(self) -> Iterator[str]:
        """Yield what must be said of it, each line once."""
        while not self._lines.empty():
            yield self._lines.get()

    def _opened(self) -> Tracker:
        if self._tracker is None:
            self._tracker = tracker_class(self._name)(subject_of(self._plan.folder, self._plan.called))
        return self._tracker

    def _finished(self) -> None:
        self._lines.put(f"{self._name}: {self._opened().finish(self._plan.folder.path)}")

    def _left(self, *, waits: bool) -> None:
        if self._tracker is not None:
            (self._tracker.wait if waits else self._tracker.abandon)()

    def _do(self, work: Callable[[], None], *, last: bool = False) -> Future[None]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"refusal-index {self._name}", daemon=True)
            self._thread.start()
        job = _Job(work, last)
        self._jobs.put(job)
        return job.done

    def _work(self) -> None:
        """Do one job after the other; after one that failed the others are passed over."""
        while True:
            job = self._jobs.get()
            if not self.failed:
                try:
                    job.work()
                except BaseException as error:  # a client may even exit
                    self.failed = True
                    self._lines.put(f"{self._name}: {told(self._name, error)}; {self._advice}")
                    with suppress(Exception):
                        self._left(waits=False)
            job.done.set_result(None)
            if job.last:
                return


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have an interruption raise KeyboardInterrupt while something blocks the loop that would be told of it."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class _Job:
    """What a tracker is to do."""

    work: Callable[[], None]
    last: bool
    done: Future[None] = field(default_factory=Future)
