"""The batch engine over an in-memory executor: retries, what ends a run, events and budgets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.folder import RunFolder
from refusal_index.models.failures import CircuitBreaker, Failure, FailureKind
from refusal_index.models.requests import Response
from refusal_index.plugins.batches import engine as engines
from refusal_index.plugins.batches.engine import BatchEngine
from refusal_index.plugins.batches.formats import RequestResult
from refusal_index.plugins.batches.rounds import Pending
from refusal_index.protocol import Conversation, GraderKind, Pass, Role, StopReason
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.events import Event, Finished, Replied, Underway
from refusal_index.runs.open_run import execute_rounds
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.store import ReplyStore, StoreError
from tests.models.batches.answering import (
    NAMES,
    SETTINGS,
    Script,
    answered_in_sequence,
    make_conversations,
    outcomes_of,
    replies_by_key,
    store_of,
)
from tests.tiers import reduced_examples

PASSING = Failure("busy", "openai/any")
LASTING = Failure("no credit", "openai/any", FailureKind.LASTING, "add credit")
OWN = Failure("too long", "openai/any", FailureKind.REQUEST)

Fate = Callable[[Pending, int], Failure | bool | None]
"""The result of a request sent for the n-th time: a failure, an answer (None) or nothing at all (False)."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(engines, "FIRST_WAIT", 0.0)


class InMemory:
    """Answers by a script, ``at_once`` results at a time."""

    def __init__(self, script: Script, fate: Fate = lambda _one, _time: None, at_once: int = 1000) -> None:
        self.script, self.fate, self.at_once = script, fate, at_once
        self.gives_choices, self.most_choices, self.max_requests = True, 1000, None
        self.rounds: list[list[str]] = []
        self.times: Counter[str] = Counter()
        self.earlier: frozenset[str] = frozenset()
        self.opened_with: list[RunFolder | None] = []
        self.after: Callable[[], object] = lambda: None

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        self.opened_with.append(folder)
        yield

    def sent(self, _request: object, _name: str) -> dict[str, float | bool | None]:
        return {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096, "seed": True}

    def in_flight(self) -> frozenset[str]:
        return self.earlier

    async def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncIterator[Mapping[str, RequestResult]]:
        self.rounds.append([request.custom_id for request in requests])
        for start in range(0, len(requests), self.at_once):
            yield dict(self._results(requests[start : start + self.at_once]))
            self.after()
            if assignment.breaker.reason is not None:
                return
        self.earlier -= {request.custom_id for request in requests}

    def _results(self, requests: Sequence[Pending]) -> Any:
        for request in requests:
            self.times[request.custom_id] += 1
            fate = self.fate(request, self.times[request.custom_id])
            if fate is False:
                continue
            if isinstance(fate, Failure):
                yield request.custom_id, RequestResult(request.custom_id, failure=fate)
            else:
                choices = min(request.ask.n, self.most_choices)
                yield request.custom_id, RequestResult(request.custom_id, self.script.response(request.ask, choices))


def run_engine(
    conversations: list[Conversation],
    executor: InMemory,
    settings: Settings = SETTINGS,
    *,
    store: ReplyStore | None = None,
    budget: Budget | None = None,
    breaker: CircuitBreaker | None = None,
    progress: Callable[[Event], None] = lambda _event: None,
    names: Mapping[Role, str] = NAMES,
) -> tuple[ReplyStore, CircuitBreaker]:
    store, breaker = store or store_of(conversations), breaker or CircuitBreaker()
    assignment = Assignment(
        "sums", "", conversations, settings, store, None, progress, breaker, budget or Budget(Limits())
    )
    asyncio.run(BatchEngine(settings, names, {}, executor).execute(assignment))
    return store, breaker


@reduced_examples(0.4)  # each runs two engines
@given(
    st.integers(0, 10**6),
    st.sampled_from([GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE]),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([1, 2, 1000]),
    st.sampled_from([1, 3, None]),
)
def test_batch_engine_matches_sequential_requests_property(salt, kind, draws, at_once, most, largest):
    conversations, failures = make_conversations(3, kind, draws), list[Event]()
    executor = InMemory(
        Script(salt), lambda one, time: PASSING if (int(one.custom_id[-2:], 16) + time) % 3 == 0 else None, at_once
    )
    executor.most_choices, executor.max_requests = most, largest
    store, breaker = run_engine(conversations, executor, progress=failures.append)
    assert breaker.reason is None
    assert outcomes_of(conversations, store) == outcomes_of(
        conversations, answered_in_sequence(conversations, Script(salt))
    )
    finished = Counter((one.variant, one.question_id) for one in failures if isinstance(one, Finished))
    assert finished == Counter(
        (conversation.variant, conversation.question.question_id) for conversation in conversations
    )
    responses = sum(reply.requests for reply in store.replies())
    assert sum(isinstance(one, Replied) for one in failures) == responses
    assert not store.failures()


def test_round_size_respects_the_executor_limit():
    executor = InMemory(Script(1))
    executor.max_requests = 3
    conversations = make_conversations(5)
    store, _ = run_engine(conversations, executor)
    assert {len(one) for one in executor.rounds[:3]} == {3}
    assert outcomes_of(conversations, store) == outcomes_of(
        conversations, answered_in_sequence(conversations, Script(1))
    )
    asked = [name for round_ in executor.rounds for name in round_]
    assert len(set(asked)) == len(asked), "no request is sent twice"


def test_executor_is_closed_before_a_store_error_propagates(monkeypatch):
    executor, closed = InMemory(Script(1), at_once=1), list[bool]()

    async def results_one_by_one(
        requests: Sequence[Pending], _assignment: Assignment
    ) -> AsyncIterator[Mapping[str, RequestResult]]:
        try:
            for request in requests:
                yield dict(executor._results([request]))
        finally:
            closed.append(True)

    def full(_store: ReplyStore, _completions: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(executor, "execute", results_one_by_one)
    monkeypatch.setattr(ReplyStore, "put", full)
    conversations = make_conversations(2)
    with pytest.raises(StoreError, match="no room"):
        run_engine(conversations, executor)
    assert closed == [True]


def test_finished_questions_are_reported_and_not_requested():
    conversations, script = make_conversations(2), Script(1)
    store = answered_in_sequence(conversations, Script(1))
    failures: list[Event] = []
    executor = InMemory(script)
    run_engine(conversations, executor, store=store, progress=failures.append)
    assert (executor.rounds, script.requests) == ([], [])
    assert [type(one) for one in failures] == [Finished] * 4


def test_each_round_is_reported():
    failures: list[Event] = []
    executor = InMemory(Script(1))
    run_engine(make_conversations(3), executor, progress=failures.append)
    underway = [one.note for one in failures if isinstance(one, Underway)]
    assert underway == [f"{len(round_)} requests in flight" for round_ in executor.rounds]


@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("fate", [PASSING, False])
def test_transient_failure_is_retried_exactly_max_retries_times(retries, fate):
    """A missing result counts as a failure; a request shared by several variants is sent once."""
    conversations = make_conversations(1, draws=2)
    executor = InMemory(Script(1), lambda one, _: fate if one.ask.request.pass_.is_shared else None)
    store, breaker = run_engine(conversations, executor, SETTINGS.changed(max_retries=retries))
    (name,) = {name for name, times in executor.times.items() if times > 1} or {executor.rounds[-1][-1]}
    assert executor.times[name] == retries + 1
    assert breaker.reason is None
    failures = set(store.failures().values())
    assert failures == {"busy" if fate else "no result came back"}


def test_one_variant_fails_and_the_other_finishes():
    conversations = make_conversations(1)
    executor = InMemory(Script(2), lambda one, _: PASSING if one.ask.conversation.variant == "low" else None)
    failures: list[Event] = []
    store, _ = run_engine(conversations, executor, SETTINGS.changed(max_retries=1), progress=failures.append)
    assert list(store.failures()) == [("low", "q0")]
    assert [one.variant for one in failures if isinstance(one, Finished)] == ["high"]


@pytest.mark.parametrize("fate", [OWN, LASTING])
def test_permanent_failure_is_not_retried(fate):
    executor = InMemory(Script(1), lambda one, _: fate if one.ask.conversation.question.question_id == "q0" else None)
    store, breaker = run_engine(make_conversations(3), executor)
    assert {executor.times[name] for name in executor.times} == {1}
    assert set(store.failures().values()) == {fate.message}
    assert {question_id for _, question_id in store.failures()} == {"q0"}
    assert breaker.reason is None


@pytest.mark.parametrize("fate", [OWN, LASTING, PASSING])
def test_twenty_failed_questions_in_a_row_end_the_run(fate):
    executor = InMemory(Script(1), lambda _one, _time: fate, at_once=1)
    _, breaker = run_engine(make_conversations(25), executor, SETTINGS.changed(max_retries=0))
    assert "failed for 20 questions in a row" in breaker.reason
    assert fate.message in breaker.reason
    assert not breaker.planned
    assert sum(executor.times.values()) == 2 * 19 + 1, "each under two variants"


def test_invalid_requests_do_not_end_the_run_once_one_has_worked():
    executor = InMemory(Script(1), lambda one, _: OWN if one.ask.conversation.question.question_id != "q0" else None, 1)
    _, breaker = run_engine(make_conversations(30), executor)
    assert breaker.reason is None


def test_unreachable_server_ends_the_run_at_once():
    unreachable = replace(PASSING, kind=FailureKind.DOUBTFUL, advice="check the base URL")
    executor = InMemory(Script(1), lambda _one, _time: unreachable, at_once=1)
    _, breaker = run_engine(make_conversations(25), executor)
    assert "failed in each of 20 attempts" in breaker.reason
    assert "check the base URL" in breaker.reason


def test_failed_rounds_are_followed_by_exponential_backoff(monkeypatch):
    waited: list[float] = []

    async def wait(_self: CircuitBreaker, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(engines, "FIRST_WAIT", 2.0)
    monkeypatch.setattr(CircuitBreaker, "wait", wait)
    executor = InMemory(
        Script(1), lambda one, time: PASSING if time < 9 and one.ask.request.pass_ is Pass.FIRST else None
    )
    run_engine(make_conversations(1), executor, SETTINGS.changed(max_retries=20))
    assert waited == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_server_with_fewer_choices_gets_single_requests():
    conversations, executor = make_conversations(1, draws=4, variants=("low",)), InMemory(Script(3))
    executor.most_choices = 1
    store, _ = run_engine(conversations, executor)
    assert [len(round_) for round_ in executor.rounds] == [2, 6]
    assert outcomes_of(conversations, store) == outcomes_of(
        conversations, answered_in_sequence(conversations, Script(3))
    )


def test_executor_without_choices_gets_single_requests():
    executor = InMemory(Script(3))
    executor.gives_choices = False
    run_engine(make_conversations(1, draws=4, variants=("low",)), executor)
    assert [len(round_) for round_ in executor.rounds] == [8]


@pytest.mark.parametrize("most", [1, 4, 9])
def test_request_budget_holds_across_rounds_and_commands(most):
    conversations, script = make_conversations(6), Script(4)
    store, counts = store_of(conversations), []
    for number in range(1, 40):
        budget = Budget(Limits(max_requests=number * most))
        budget.count_earlier(Path("run"), list(store.replies()), SETTINGS.accounts.prices)
        executor = InMemory(script)
        _, breaker = run_engine(conversations, executor, store=store, budget=budget)
        counts.append(sum(map(len, executor.rounds)))
        if breaker.reason is None:
            break
        assert breaker.planned
        assert f"the budget of {number * most} requests is used up" in breaker.reason
        assert len(script.requests) == number * most
    assert set(counts[:-1]) == {most}
    assert outcomes_of(conversations, store) == outcomes_of(
        conversations, answered_in_sequence(conversations, Script(4))
    )


def test_failures_count_towards_the_request_budget():
    executor = InMemory(Script(1), lambda _one, _time: PASSING)
    _, breaker = run_engine(make_conversations(2), executor, budget=Budget(Limits(max_requests=7)))
    assert "the budget of 7 requests is used up" in breaker.reason
    assert [len(round_) for round_ in executor.rounds] == [4, 3]


def test_requests_in_flight_are_collected_and_counted_but_not_resent():
    conversations = make_conversations(5)
    first = InMemory(Script(1), lambda _one, _time: False)
    run_engine(conversations, first, SETTINGS.changed(max_retries=0))
    executor = InMemory(Script(1))
    executor.earlier = frozenset(first.rounds[0][:6])
    _, breaker = run_engine(conversations, executor, budget=Budget(Limits(max_requests=8)))
    assert executor.rounds[0][:6] == first.rounds[0][:6]
    assert len(executor.rounds[0]) == 8, "six that were in flight, and room for two"
    assert "the budget of 8 requests is used up" in breaker.reason


def test_requests_in_flight_are_collected_when_the_budget_is_spent():
    conversations = make_conversations(5)
    first = InMemory(Script(1), lambda _one, _time: False)
    run_engine(conversations, first, SETTINGS.changed(max_retries=0))
    executor = InMemory(Script(1))
    executor.earlier = frozenset(first.rounds[0])
    store, breaker = run_engine(conversations, executor, budget=Budget(Limits(max_requests=3)))
    assert [len(round_) for round_ in executor.rounds] == [10]
    assert len(replies_by_key(store)) == 10
    assert breaker.planned or breaker.reason is None


def test_dollar_budget_starts_with_one_request_and_holds():
    settings = SETTINGS.changed(price="1000,1000")  # a cent each
    executor = InMemory(Script(1))
    _, breaker = run_engine(make_conversations(40), executor, settings, budget=Budget(Limits(max_cost=0.2)))
    assert len(executor.rounds[0]) == 1
    assert breaker.planned
    assert "the budget of $0.20 is used up" in breaker.reason
    assert 19 <= sum(map(len, executor.rounds)) <= 20


def test_time_limit_ends_the_run_between_rounds():
    now = [0.0]
    executor = InMemory(Script(1))
    executor.after = lambda: now.__setitem__(0, 100.0)
    _, breaker = run_engine(make_conversations(6), executor, budget=Budget(Limits(max_time=50), lambda: now[0]))
    assert len(executor.rounds) == 1
    assert breaker.planned
    assert "the time of 50 seconds is up" in breaker.reason


def test_interrupt_ends_the_run_and_keeps_replies():
    conversations, budget = make_conversations(10), Budget(Limits())
    executor = InMemory(Script(1), at_once=3)
    executor.after = lambda: budget.end("interrupted")
    store, engine = store_of(conversations), BatchEngine(SETTINGS, NAMES, {}, executor)
    rounds = [("", conversations)]
    ended = asyncio.run(execute_rounds(rounds, SETTINGS, RunFolder(Path("run")), engine, store, lambda _: None, budget))
    assert ended == "interrupted"
    assert len(replies_by_key(store)) == 3
    assert len(executor.rounds) == 1


def test_lasting_failure_ends_the_run():
    executor = InMemory(Script(1), lambda _one, _time: LASTING)
    store, engine = store_of(make_conversations(25)), BatchEngine(SETTINGS, NAMES, {}, executor)
    asked = execute_rounds(
        [("", make_conversations(25))],
        SETTINGS,
        RunFolder(Path("run")),
        engine,
        store,
        lambda _: None,
        Budget(Limits()),
    )
    with pytest.raises(RunFailedError, match="no credit"):
        asyncio.run(asked)


def test_the_executor_is_opened_with_the_folder_of_the_store(tmp_path):
    executor = InMemory(Script(1))

    async def opened(store: ReplyStore | None) -> None:
        async with BatchEngine(SETTINGS, NAMES, {}, executor).open(store):
            pass

    with store_of([], tmp_path / "replies.sqlite") as kept_on_disk, store_of([]) as in_memory:
        for store in (kept_on_disk, in_memory, None):
            asyncio.run(opened(store))
    first, *others = executor.opened_with
    assert first.path == tmp_path
    assert others == [None, None]


def test_unwritable_store_ends_the_run(tmp_path):
    conversations, breaker = make_conversations(2), CircuitBreaker()
    store = store_of(conversations, tmp_path / "replies.sqlite")
    executor = InMemory(Script(1))
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError):
        run_engine(conversations, executor, store=store, breaker=breaker)
    assert "no further request is sent" in breaker.reason
    assert len(executor.rounds) == 1


JUDGE = "python:tests.runs.models:judge"


def test_function_grades_in_process_and_the_executor_gets_the_rest():
    conversations = make_conversations(4, GraderKind.MODEL)
    names = {Role.MODEL: "openai/any", Role.GRADER: JUDGE}
    executor, seen = InMemory(Script(6)), []
    executor.fate = lambda one, _: seen.append(one.ask.request.role)
    store, breaker = run_engine(conversations, executor, names=names)
    assert breaker.reason is None
    assert set(seen) == {Role.MODEL}
    graded = [reply for reply in store.replies() if reply.reply.role is Role.GRADER]
    assert graded
    assert {one.reply.text for one in graded} <= {"A", "B"}
    assert None not in outcomes_of(conversations, store)


def test_function_calls_respect_max_connections_and_are_stored_in_groups(monkeypatch):
    conversations = make_conversations(7, GraderKind.MODEL)
    names = {Role.MODEL: "openai/any", Role.GRADER: JUDGE}
    store, at_work, seen = store_of(conversations), [], []

    async def judged(_engine, _ask):
        at_work.append(1)
        seen.append((len(at_work), sum(reply.reply.role is Role.GRADER for reply in store.replies())))
        await asyncio.sleep(0.01)
        at_work.pop()
        return Response([("A", StopReason.STOP)])

    monkeypatch.setattr(engines.DirectEngine, "send", judged)
    run_engine(conversations, InMemory(Script(6)), SETTINGS.changed(max_connections=3), names=names, store=store)
    assert max(number for number, _ in seen) == 3
    assert [there for _, there in seen[:4]] == [0, 0, 0, 3], "earlier verdicts are in the store"


def test_raising_function_is_retried_and_reported():
    conversations = make_conversations(2, GraderKind.MODEL)
    names = {Role.MODEL: "openai/any", Role.GRADER: "python:tests.runs.models:judge_nonsense"}
    store, _ = run_engine(conversations, InMemory(Script(6)), SETTINGS.changed(max_retries=1), names=names)
    assert store.failures()
    assert all("judge_nonsense" in failures for failures in store.failures().values())
