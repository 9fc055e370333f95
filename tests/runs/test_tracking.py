"""Trackers during a run, tested with a recording one: what they receive, and that none harms the run."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from typing import Any, ClassVar

import pytest

from refusal_index.models.settings import SettingError
from refusal_index.plugins.trackers import tracker
from refusal_index.plugins.trackers.tracker import Counts
from refusal_index.protocol import Completion, Pass, Reply, Role
from refusal_index.runs.api import evaluate, plan_of
from refusal_index.runs.engine import WaitingError
from refusal_index.runs.events import Replied, Underway
from refusal_index.runs.store import ReplyStore
from tests.runs import models
from tests.runs.models import LOCAL, ROWS, answer, stopping


class Recorder:
    """A tracker that records everything it receives and fails where the test wants it to."""

    begun: ClassVar[list[Any]] = []
    counts: ClassVar[list[Any]] = []
    finished: ClassVar[list[Any]] = []
    abandoned: ClassVar[list[Any]] = []
    waiting: ClassVar[list[Any]] = []
    package, address = "json", "RECORDER_URL"
    fails = ""
    error: type[BaseException] = RuntimeError

    def __init__(self, subject):
        self._fail("begin")
        self.begun.append(subject)

    def count(self, found):
        self._fail("count")
        self.counts.append(found)

    def log(self, run):
        self._fail("log")
        self.finished.append(run)
        return "there"

    def abandon(self):
        self.abandoned.append(True)

    def wait(self):
        self.waiting.append(True)

    def _fail(self, where):
        if self.fails == where:
            raise self.error("the server\nis down: hush-hush-9-times")


@pytest.fixture
def recorder(monkeypatch):
    """Replace ``wandb`` with a recording tracker; the real package is not needed."""
    made = type("Recorder", (Recorder,), {"begun": [], "counts": [], "finished": [], "abandoned": [], "waiting": []})
    for module in (tracker, tracker):
        monkeypatch.setattr(module, "tracker_class", lambda _name: made)
    monkeypatch.setattr(tracker, "INTERVAL", 0.0)
    return made


def run_with(events=None, model=answer, **settings):
    heard = events if events is not None else []
    return evaluate(
        model, ROWS, model_name="team/sums", out="run", progress=heard.append, **{**LOCAL, "log_to": "wandb"} | settings
    )


def notes_of(events):
    return [event.note for event in events if isinstance(event, Underway) and event.is_notice]


def test_tracker_receives_progress_and_final_results(recorder):
    events = []
    run = run_with(events, price="1,2")
    refused, wrong = run.outcomes["refused"].sum(), run.outcomes["wrong"].sum()
    last = recorder.counts[-1]
    assert {name: last[f"progress/{name}"] for name in ("questions", "answered", "refused", "wrong", "unscored")} == {
        "questions": 8,
        "answered": 8 - refused,
        "refused": refused,
        "wrong": wrong,
        "unscored": 0,
    }
    assert last["progress/requests"] == 8 + refused
    assert "progress/cost" not in last, "a function reports no tokens"
    (finished,) = recorder.finished
    assert finished.source == run.path
    assert notes_of(events) == ["wandb: there"]
    (subject,) = recorder.begun
    assert subject.config["decoding"]["temperature"] == 0.7


def test_batch_replies_cost_the_batch_price():
    plan = plan_of(answer, ROWS, model_name="team/sums", out="run", **{**LOCAL, "price": "2,8", "batch_rate": 0.5})
    counts, reply = Counts(plan), Reply(Pass.FIRST, Role.MODEL, "Lima")
    with ReplyStore(None) as store:
        for in_batch in (False, True):
            one = Completion("q1", "low", 0, reply, 0, 1_000_000, 500_000, in_batch=in_batch)
            assert counts.add(Replied(one), store)
    found = counts.to_log()
    assert [found[f"progress/{name}"] for name in ("requests", "input_tokens", "cost")] == [2, 2_000_000, 9.0]


def test_retired_replies_still_count_as_paid():
    plan = plan_of(answer, ROWS, model_name="team/sums", out="run", **LOCAL)
    counts = Counts(plan)
    completion = Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "Lima"), input_tokens=7)
    with ReplyStore(None) as store:
        store.put([completion])
        store.retire([completion])
        counts.begin(store)
    assert [counts.to_log()[f"progress/{name}"] for name in ("requests", "input_tokens")] == [1, 7]


def test_counts_grow_with_the_run(recorder):
    run_with()
    asked = [count["progress/questions"] for count in recorder.counts]
    assert asked == sorted(asked)
    assert asked[-1] == 8


def test_progress_counts_a_repeated_question_once(recorder):
    run = run_with(draws=3)
    first = run.outcomes.filter(draw=0)
    last = recorder.counts[-1]
    assert last["progress/questions"] == 8
    assert last["progress/refused"] == first["refused"].sum()
    assert last["progress/wrong"] == first["wrong"].sum()


@pytest.mark.parametrize("where", ["begin", "count", "log"])
def test_tracker_failure_is_noted_and_the_run_continues(recorder, monkeypatch, where):
    monkeypatch.setenv("SOME_API_KEY", "hush-hush-9-times")
    recorder.fails = where
    events = []
    run = run_with(events)
    assert run.summary.variants[0].table.n == 8
    assert run.folder.report.exists()
    assert recorder.abandoned == ([] if where == "begin" else [True])
    assert notes_of(events) == [
        "wandb: RuntimeError: the server is down: [key]; the results are not lost: 'refusal-index export run --to "
        "wandb' logs them"
    ]


def test_exiting_tracker_client_does_not_end_the_run(recorder):
    recorder.fails, recorder.error = "begin", SystemExit
    events = []
    assert run_with(events).is_complete
    assert notes_of(events)[0].startswith("wandb: SystemExit: the server is down")


def test_tracker_failure_warns_without_a_progress_callback(recorder):
    recorder.fails = "begin"
    with pytest.warns(UserWarning, match="the server is down"):
        evaluate(answer, ROWS, model_name="team/sums", out="run", **LOCAL, log_to="wandb")


def test_working_tracker_gives_no_warning(recorder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(answer, ROWS, model_name="team/sums", out="run", **LOCAL, log_to="wandb")
    assert len(recorder.finished) == 1


def test_hanging_tracker_times_out(recorder, monkeypatch):
    monkeypatch.setattr(tracker, "FINISH_TIMEOUT", 0.2)
    monkeypatch.setattr(tracker, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(recorder, "log", lambda _self, _run: time.sleep(2))
    events = []
    run = run_with(events)
    assert run.is_complete
    waited, gave_up = notes_of(events)
    assert waited == "wandb: waiting for it; the results are already in run"
    assert gave_up.startswith("wandb: it did not accept the results within 0.2 seconds; the results are not lost")


def test_interrupt_stops_waiting_for_a_tracker_and_keeps_results(recorder, monkeypatch, tmp_path):
    monkeypatch.setattr(tracker, "SILENT_SECONDS", 0.1)
    released = threading.Event()
    monkeypatch.setattr(recorder, "log", lambda _self, _run: released.wait(30))
    events = []

    def record_and_interrupt(event):
        events.append(event)
        if isinstance(event, Underway) and "the results are already in" in event.note:
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    began, before = time.monotonic(), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        evaluate(
            answer, ROWS, model_name="team/sums", out="run", progress=record_and_interrupt, **LOCAL, log_to="wandb"
        )
    assert time.monotonic() - began < 20
    released.set()
    assert signal.getsignal(signal.SIGINT) is before
    assert (tmp_path / "run" / "summary.json").exists()
    assert notes_of(events)[-1].startswith("wandb: it took too long; the results are not lost: 'refusal-in")


def test_tracker_named_twice_is_used_once(recorder):
    events = []
    run_with(events, log_to="wandb,wandb")
    assert (len(recorder.begun), notes_of(events)) == (1, ["wandb: there"])


def test_resumed_run_counts_earlier_answers(recorder):
    with pytest.raises(KeyboardInterrupt):
        run_with(model=stopping, max_connections=1)
    assert recorder.abandoned == [True]
    models.ASKED["go on"] = 100
    run_with(model=stopping)
    assert recorder.counts[-1]["progress/questions"] == 8
    assert len({one.key for one in recorder.begun}) == 1


def test_logging_is_not_part_of_the_run_identity(recorder):
    first = run_with()
    again = evaluate(answer, ROWS, model_name="team/sums", out="run", **LOCAL)
    assert again.outcomes.equals(first.outcomes)
    assert "log_to" not in first.folder.run_json.read_text()


def test_missing_tracker_package_raises_before_any_request(monkeypatch, tmp_path):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: None)
    with pytest.raises(SettingError, match=r"log_to: mlflow is not installed; pip install 'refusal-index\[mlflow\]'"):
        run_with(log_to="mlflow")
    assert models.ASKED.total() == 0
    assert not (tmp_path / "run").exists()


def test_unknown_tracker_raises_before_any_request():
    with pytest.raises(SettingError, match="log_to: expected one of mlflow, wandb, got 'wandbb'; did you mean 'wandb'"):
        run_with(log_to="wandbb")
    assert models.ASKED.total() == 0


def test_raising_progress_callback_ends_the_tracked_run(recorder):
    def stop(event):
        if isinstance(event, Replied) and recorder.counts:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        evaluate(answer, ROWS, model_name="team/sums", out="run", progress=stop, **LOCAL, log_to="wandb")
    assert recorder.abandoned == [True]


def test_run_that_waits_for_batches_is_not_marked_failed(recorder):
    def stop(event):
        if isinstance(event, Replied) and recorder.counts:
            raise WaitingError("1 batch is in flight")

    with pytest.raises(WaitingError, match="in flight"):
        evaluate(answer, ROWS, model_name="team/sums", out="run", progress=stop, **LOCAL, log_to="wandb")
    assert (recorder.waiting, recorder.abandoned) == ([True], [])
