"""Trackers that follow a run: its progress while models are asked, and everything at its end.

The core calls this module through the hook ``trackers`` for a run with ``log_to``. No tracker can harm the run: each is
called in a thread of its own, and the failure of a tracker is reported on a line.
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

from refusal_index.plugins.trackers.tracker import Tracker, check_trackers, error_line, subject_of, tracker_class
from refusal_index.protocol import Conversation, finished_outcomes
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.engine import Event, Finished, Progress, Replied, Underway, WaitingError, unwatched
from refusal_index.runs.execute import StoreWatcher
from refusal_index.runs.plan import Plan
from refusal_index.runs.store import ReplyStore

__all__ = ["Counts", "check_trackers", "tracked"]

INTERVAL = 5.0
"""Seconds between two counts that a tracker gets, or more where it takes longer to log them."""

FINISH_TIMEOUT, FAILURE_TIMEOUT = 600.0, 10.0
"""Seconds to wait for a tracker: with all results, and for a run that failed."""

SILENT_SECONDS = 2.0
"""Seconds of waiting before that is reported: a terminal that stands still looks like a run that hangs."""

COUNTED = ("questions", "answered", "refused", "wrong", "unscored")
"""What is counted besides requests, tokens and cost."""


@contextmanager
def tracked(plan: Plan, progress: Progress) -> Iterator[tuple[Progress, StoreWatcher]]:
    """Have the trackers that a run's settings name follow it while the block runs, which closes its folder."""
    tracking = Tracking(plan, progress)
    try:
        yield tracking, tracking.watch
    except BaseException as error:
        tracking.leave(waits=isinstance(error, WaitingError))
        raise
    tracking.finish()


class Tracking:
    """The trackers of a run: it passes events on, and counts them."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._progress = progress
        self._followers = [_Follower(name, plan) for name in dict.fromkeys(plan.settings.log_to)]
        self._counts = Counts(plan)
        self._store: ReplyStore | None = None
        self._last_time = 0.0

    def watch(self, store: ReplyStore) -> None:
        """Count what the store holds already, and from now on what is added."""
        self._store = store
        self._counts.begin(store)

    def __call__(self, event: Event) -> None:
        """Pass an event on, and log the counts from time to time."""
        self._progress(event)
        if self._store is None or not self._counts.add(event, self._store):
            return
        if time.monotonic() - self._last_time >= INTERVAL:
            self._last_time = time.monotonic()
            for follower in self._followers:
                follower.count(self._counts.to_log())
                self._report(follower)

    def finish(self) -> None:
        """Have the trackers log the results in the run's folder, and report where they can be seen.

        An interruption ends the waiting for them, and is then raised as usual.
        """
        pending = {follower: follower.finish(self._counts.to_log()) for follower in self._followers}
        try:
            with _interruptible():
                for follower, done in pending.items():
                    if not futures.wait([done], SILENT_SECONDS).done:
                        self._progress(Underway(follower.waiting, is_news=True))
                    if not futures.wait([done], FINISH_TIMEOUT).done:
                        follower.give_up(f"it did not accept the results within {FINISH_TIMEOUT:g} seconds")
                    self._report(follower)
        except KeyboardInterrupt:
            for follower in (follower for follower, done in pending.items() if not done.done()):
                follower.give_up("it took too long")
                self._report(follower)
            signal.raise_signal(signal.SIGINT)

    def leave(self, *, waits: bool) -> None:
        """Have the trackers end the run without results: as failed, or as a run that continues later."""
        for follower in self._followers:
            follower.leave(waits=waits)

    def _report(self, follower: _Follower) -> None:
        for line in follower.new_lines():
            self._progress(Underway(line, is_news=True))
            if follower.failed and self._progress is unwatched:
                warnings.warn(line, stacklevel=2)


class Counts:
    """The progress of a run: its questions by the outcomes of their first draws, and its usage."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._questions = {question.question_id: question for draws in plan.draws.values() for question in draws}
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._counted: set[tuple[str, str]] = set()
        self._usage = UsageCounter()

    def begin(self, store: ReplyStore) -> None:
        """Count what was answered before."""
        for variant in self._plan.procedures:
            for conversation in self._plan.conversations(variant, store):
                self._count(conversation, store)
        for completion in store.paid():
            self._usage.add(completion)

    def add(self, event: Event, store: ReplyStore) -> bool:
        """Count an event, and return whether it counts."""
        match event:
            case Replied(completion):
                self._usage.add(completion)
            case Finished(variant, question_id):
                question, procedure = self._questions[question_id], self._plan.procedures[variant]
                draws = self._plan.draws[variant][question]
                self._count(Conversation(question, variant, procedure, draws), store)
            case _:
                return False
        return True

    def to_log(self) -> dict[str, float]:
        """Return the counts by name, and the cost where it is known."""
        cost, (read, written) = self._usage.cost(self._plan.prices), self._usage.tokens
        usage = {"requests": self._usage.requests, "input_tokens": read, "output_tokens": written, "cost": cost}
        counts = {**self._counts, **usage}
        return {f"progress/{name}": float(value) for name, value in counts.items() if value is not None}

    def _count(self, conversation: Conversation, store: ReplyStore) -> None:
        """Count a question under a variant, once: engines also report those that were finished before."""
        key = conversation.variant, conversation.question.question_id
        if key in self._counted:
            return
        completions = store.completions(conversation.question.question_id, conversation.variant)
        for outcome in finished_outcomes(conversation, completions)[:1]:
            self._counted.add(key)
            self._counts["questions"] += 1
            self._counts["answered"] += outcome.refused is False
            self._counts["refused"] += outcome.refused is True
            self._counts["wrong"] += outcome.wrong is True
            self._counts["unscored"] += outcome.refused is None or outcome.wrong is None


class _Follower:
    """A tracker in a thread of its own, so that whatever it waits for delays nothing else."""

    def __init__(self, name: str, plan: Plan) -> None:
        self._name, self._plan = name, plan
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Future[None], bool]] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tracker: Tracker | None = None
        self._thread: threading.Thread | None = None
        self.failed = False
        self.waiting = f"{name}: waiting for it; the results are already in {plan.folder.path}"
        self._advice = f"the results are not lost: 'refusal-index export {plan.folder.path} --to {name}' logs them"

    def count(self, counts: dict[str, float]) -> None:
        """Log the progress of the run, unless the tracker is behind."""
        if self._jobs.empty():
            self._submit(lambda: self._open().count(counts))

    def finish(self, counts: dict[str, float]) -> Future[None]:
        """Log everything, and report where it can be seen."""
        self._submit(lambda: self._open().count(counts))
        return self._submit(self._finish, last=True)

    def leave(self, *, waits: bool) -> None:
        """End a run that has begun in the tracker without results."""
        if self._thread is not None:
            with suppress(TimeoutError):
                self._submit(lambda: self._leave(waits=waits), last=True).result(FAILURE_TIMEOUT)

    def give_up(self, reason: str) -> None:
        """Report that nothing waits for it any longer."""
        self.failed = True
        self._lines.put(f"{self._name}: {reason}; {self._advice}")

    def new_lines(self) -> Iterator[str]:
        """Yield the lines to report, each once."""
        while not self._lines.empty():
            yield self._lines.get()

    def _open(self) -> Tracker:
        if self._tracker is None:
            self._tracker = tracker_class(self._name)(subject_of(self._plan.folder, self._plan.called))
        return self._tracker

    def _finish(self) -> None:
        self._lines.put(f"{self._name}: {self._open().finish(self._plan.folder.path)}")

    def _leave(self, *, waits: bool) -> None:
        if self._tracker is not None:
            (self._tracker.wait if waits else self._tracker.abandon)()

    def _submit(self, work: Callable[[], None], *, last: bool = False) -> Future[None]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"refusal-index {self._name}", daemon=True)
            self._thread.start()
        done: Future[None] = Future()
        self._jobs.put((work, done, last))
        return done

    def _work(self) -> None:
        """Do the work that was submitted, in order; nothing more after a failure."""
        last = False
        while not last:
            work, done, last = self._jobs.get()
            if not self.failed:
                try:
                    work()
                except BaseException as error:  # a client may even exit
                    self.give_up(error_line(self._name, error))
                    with suppress(Exception):
                        self._leave(waits=False)
            done.set_result(None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have an interruption raise KeyboardInterrupt while the event loop, which would handle it, is blocked."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
