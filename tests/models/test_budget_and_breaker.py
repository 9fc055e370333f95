"""What ends a run in order: budgets, failures in a row, an outage."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

import refusal_index as ri
from refusal_index.data.run_json import UNPRICED, Price, Prices
from refusal_index.findings.run_results import RunResults
from refusal_index.models.failures import OUTAGE_SECONDS, QUESTIONS_IN_A_ROW, CircuitBreaker, Failure, FailureKind
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Completion, Pass, Reply, Role, StopReason
from refusal_index.runs.budget import Budget, UsageCounter
from refusal_index.runs.engine import RunFailedError, WaitingError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Limits
from tests.faults.api import Exchange
from tests.models.conftest import both_clients, run
from tests.models.fake_api import FakeApi
from tests.models.test_direct import sums
from tests.runs.models import LOCAL, ROWS
from tests.served import KEY_NAME, is_served
from tests.tiers import others_nightly

# --- Budgets


def execute_plan(plan: Plan) -> RunResults:
    return asyncio.run(execute(plan))


PRICES = Prices(Price(1.0, 2.0), Price(10.0, 10.0))


def reply(asked: Role = Role.MODEL, read: int = 1_000_000, written: int = 500_000, requests: int = 1) -> Completion:
    return Completion("q", "low", 0, Reply(Pass.FIRST, asked, "x"), 0, read, written, requests)


def test_requests_are_counted_as_they_are_sent():
    budget = Budget(Limits(max_requests=3))
    for _ in range(3):
        assert budget.used_up() is None
        with budget.one_request():
            pass
    assert budget.used_up() == "the budget of 3 requests is used up; raise it to continue from here"


def test_requests_of_earlier_commands_count():
    budget = Budget(Limits(max_requests=3))
    budget.count_earlier(Path("run"), [reply(), reply(requests=0), reply()], UNPRICED)
    assert budget.used_up() is None
    with budget.one_request():
        assert budget.used_up() is not None


def test_dollars_against_tokens_times_prices():
    budget = Budget(Limits(max_cost=10.0))
    budget.count([reply()], PRICES)
    assert budget._cost == 1.0 + 1.0
    budget.count([reply(Role.GRADER, 60_000, 40_000)], PRICES)
    assert budget._cost == 3.0


def test_batch_replies_cost_a_share_of_the_price():
    budget, rated = Budget(Limits(max_cost=10.0)), replace(PRICES, batch_rate=0.25)
    budget.count(
        [reply(), replace(reply(), in_batch=True), replace(reply(Role.GRADER, 60_000, 40_000), in_batch=True)], rated
    )
    assert budget._cost == 2.0 + 0.5 + 0.25


def test_requests_in_flight_are_expected_to_cost_the_average():
    budget = Budget(Limits(max_cost=10.0))
    budget.count([reply(), reply()], PRICES)
    assert budget.used_up() is None, "4 spent, 2 for the next"
    with budget.one_request():
        assert budget.used_up() is None, "4 spent, 2 in flight, 2 for the next"
        with budget.one_request():
            assert budget.used_up() is None, "10 in all"
            with budget.one_request():
                assert "$10.00" in budget.used_up()
    assert budget.used_up() is None, "requests without a reply have no known cost"


UNUSABLE = {
    "no counts": (0, 0),
    "no tokens of the prompt": (0, 5),
    "no tokens of the text": (5, 0),
}


@pytest.mark.parametrize("counts", UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.parametrize("asked", [Role.MODEL, Role.GRADER])
def test_cost_limit_ends_with_the_first_reply_without_usable_counts(counts, asked):
    budget = Budget(Limits(max_cost=10.0))
    budget.count([reply()], PRICES)
    assert budget.used_up() is None
    budget.count([reply(asked, *counts)], PRICES)
    assert "cost is unknown" in budget.used_up()
    assert budget.requests_left() == 0


def test_replies_that_cost_nothing_need_no_counts():
    budget, free = Budget(Limits(max_cost=10.0)), Prices(Price(0.0, 0.0), Price(1.0, 1.0))
    budget.count([reply(Role.MODEL, 0, 0), reply(Role.MODEL, 5, 0, requests=0)], free)
    rejected = replace(reply(read=0, written=0), reply=Reply(Pass.FIRST, Role.MODEL, "no", StopReason.CONTENT_FILTER))
    budget.count([rejected], PRICES)
    assert budget.used_up() is None


def test_missing_counts_matter_only_with_a_cost_limit():
    budget = Budget(Limits(max_requests=10))
    budget.count([reply(Role.MODEL, 0, 0)], PRICES)
    assert budget.used_up() is None


def test_cost_of_replies_without_counts_is_unknown_not_zero():
    assert UsageCounter([reply(), reply(Role.MODEL, 0, 0)]).cost(PRICES) is None
    assert UsageCounter([reply(), reply(Role.MODEL, 0, 0)]).usage(PRICES).cost is None


def test_seconds_against_a_clock():
    now = [5.0]
    budget = Budget(Limits(max_time=60), lambda: now[0])
    now[0] = 64.9
    assert budget.used_up() is None
    now[0] = 65.0
    assert budget.used_up() == "the time of 60 seconds is up; run the same command again to resume"


def test_run_ends_at_its_request_budget_and_resumes_with_a_larger_one(plan_for):
    with FakeApi(sums) as api:
        whole = execute_plan(plan_for(api.url, count=12))
        needed = len(api.answered)
        api.answered.clear()
        first = execute_plan(plan_for(api.url, count=12, out="limited", max_requests=7))
        assert len(api.answered) == 7
        assert first.ended == "the budget of 7 requests is used up; raise it to continue from here"
        assert not first.is_complete
        again = execute_plan(plan_for(api.url, count=12, out="limited", max_requests=7))
        assert len(api.answered) == 7, "nothing further is sent within the same budget"
        assert again.ended == first.ended
        last = execute_plan(plan_for(api.url, count=12, out="limited"))
        assert len(api.answered) == needed
    assert last.ended is None
    assert last.outcomes.equals(whole.outcomes)


@pytest.mark.parametrize("seconds", [60, 299])
@both_clients
def test_time_limit_ends_waits_for_a_retry(plan_for, model, seconds):
    async def busy(_exchange: Exchange) -> web.StreamResponse:
        return web.json_response({"error": {"message": "later"}}, status=429, headers={"Retry-After": str(seconds)})

    with FakeApi(sums, lambda *_: busy) as api:
        plan = plan_for(api.url, model=model, count=12, max_time=0.5)
        with pytest.raises(WaitingError, match=r"the time of 0\.5 seconds is up"):
            asyncio.run(asyncio.wait_for(execute(plan), 30))


def test_time_limit_ends_functions_that_hang(tmp_path):
    release = threading.Event()

    def hangs(question, *, must_answer=False):
        release.wait(60)
        return "late"

    try:
        run = ri.evaluate(
            hangs,
            ROWS,
            model_name="hangs",
            out=tmp_path / "r",
            **LOCAL,
            max_time=0.5,
            attempt_timeout=1,
            max_connections=2,
        )
    finally:
        release.set()
    assert run.ended == "the time of 0.5 seconds is up; run the same command again to resume"
    assert not run.is_complete


def test_a_budget_in_dollars_needs_prices(plan_for):
    with pytest.raises(SettingError, match=r"max_cost.*requires .*price"):
        plan_for("http://127.0.0.1:9/v1", max_cost=1.0)


@pytest.mark.parametrize(("max_cost", "most"), [(0.0, 0), (1e-9, 1), (0.00005, 2)])
def test_only_one_request_is_sent_until_its_cost_is_known(plan_for, max_cost, most):
    """Formerly, as many requests as connections were sent, even with nothing to spend."""
    with FakeApi(sums) as api:
        plan = plan_for(api.url, count=12, max_cost=max_cost, price="1,1")
        with contextlib.suppress(RunFailedError):
            assert execute_plan(plan).ended is not None
        assert len(api.answered) <= most


def test_small_budget_is_shown_as_given():
    """It used to be shown as $0.00, and the time as 0 seconds."""
    assert "$0.004 is" in (exceeded(Limits(max_cost=0.004)) or "")
    assert "$0.00005 is" in (exceeded(Limits(max_cost=0.00005)) or "")
    assert exceeded(Limits(max_time=0.5)) == "the time of 0.5 seconds is up; run the same command again to resume"


def exceeded(limits: Limits) -> str | None:
    times = iter((0.0, 1.0))
    budget = Budget(limits, lambda: next(times))
    budget.count([reply()], PRICES)
    return budget.used_up()


# --- Reasons that end a run

COUNT = 40
NO = Failure("no", "openai/any", FailureKind.LASTING)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_breaker_opens_after_enough_different_questions_in_a_row():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW - 1):
        for _ in range(3):
            breaker.failed("model", f"q{number}", NO)
    assert breaker.reason is None
    breaker.worked("model")
    for number in range(QUESTIONS_IN_A_ROW - 1):
        breaker.failed("model", f"r{number}", NO)
    assert breaker.reason is None, "a reply in between breaks the row"
    breaker.worked("grader")
    for number in range(5):
        breaker.failed("model", f"s{number}", Failure("no longer", "openai/any", FailureKind.LASTING))
    assert (
        breaker.reason
        == "openai/any failed for 20 questions in a row (no longer); run the same command again to resume"
    )
    assert not breaker.planned


def test_consecutive_failures_are_counted_per_role():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW - 1):
        breaker.failed("model", f"q{number}", NO)
        breaker.failed("grader", f"q{number}", NO)
    assert breaker.reason is None
    breaker.failed("grader", "another", Failure("no", "openai/judge", FailureKind.LASTING, "check JUDGE_API_KEY"))
    assert breaker.reason == "openai/judge failed for 20 questions in a row (no); check JUDGE_API_KEY"


def test_breaker_ignores_invalid_requests_once_any_has_worked():
    breaker = CircuitBreaker()
    breaker.worked("model")
    for number in range(3 * QUESTIONS_IN_A_ROW):
        breaker.failed("model", f"q{number}", Failure("too long", "openai/any", FailureKind.REQUEST))
    assert breaker.reason is None


def test_breaker_opens_if_every_request_is_invalid():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW):
        assert breaker.reason is None
        breaker.failed("model", f"q{number}", Failure("400: no temperature here", "openai/any", FailureKind.REQUEST))
    assert breaker.reason is not None


@pytest.mark.parametrize(
    ("kind", "opens"),
    [(FailureKind.LASTING, True), (FailureKind.REQUEST, True), (FailureKind.PASSING, False)],
)
def test_breaker_opens_if_every_request_of_a_short_run_failed_for_good(kind, opens):
    failure = Failure("no", "openai/any", kind, "check the key")
    breaker, replied_before, worked = CircuitBreaker(), CircuitBreaker(), CircuitBreaker()
    for one in (breaker, replied_before, worked):
        one.failed("model", "q0", failure)
        one.failed("model", "q1", failure)
    worked.worked("model")
    for one, earlier in ((breaker, False), (replied_before, True), (worked, False)):
        one.end_if_all_failed(lambda _role, earlier=earlier: earlier)
    assert breaker.reason == ("openai/any failed for each of 2 questions (no); check the key" if opens else None)
    assert replied_before.reason is None
    assert worked.reason is None


@pytest.mark.parametrize(("status", "most"), [(401, 5), (400, 5), (404, 5)])
@both_clients
def test_short_run_ends_after_its_first_prompt_if_all_its_requests_are_refused(plan_for, model, status, most):
    async def refused(_exchange: Exchange) -> web.StreamResponse:
        return refuse(status)

    with FakeApi(sums, lambda *_: refused) as api:
        plan = plan_for(api.url, model=model, count=5, variants="low,normal,high,highest")
        with pytest.raises(RunFailedError, match="failed for each of 5 questions"):
            execute_plan(plan)
        assert api.received.total() == most


def test_breaker_opens_on_a_long_outage_affecting_several_questions():
    clock = Clock()
    breaker, down = CircuitBreaker(clock), Failure("503", "openai/any", FailureKind.PASSING)
    breaker.troubled("model", "q0", down)
    clock.now = OUTAGE_SECONDS + 1
    breaker.troubled("model", "q0", down)
    breaker.troubled("model", "q1", down)
    assert breaker.reason is None, "two questions may be slow by themselves"
    breaker.worked("model")
    for number in range(3):
        breaker.troubled("model", f"q{number}", down)
    assert breaker.reason is None, "a reply ends the outage"
    clock.now += OUTAGE_SECONDS
    breaker.troubled("model", "q0", down)
    assert (
        breaker.reason == "openai/any returned only errors for 180 seconds (503); run the same command again to resume"
    )


def test_never_reached_server_opens_the_breaker_at_once():
    gone = Failure("refused", "openai/any", FailureKind.DOUBTFUL, "is the server running?")
    never, once = CircuitBreaker(), CircuitBreaker()
    once.worked("model")
    for _ in range(QUESTIONS_IN_A_ROW):
        never.troubled("model", "q0", gone)
        once.troubled("model", "q0", gone)
    assert never.reason == "openai/any failed in each of 20 attempts (refused); is the server running?"
    assert once.reason is None


def test_function_that_never_works_opens_the_breaker_after_a_few_identical_failures_of_a_question():
    def failed(text: str) -> Failure:
        return Failure(text, "python:my:answer", FailureKind.OWN, "fix the function")

    same, different, once = CircuitBreaker(), CircuitBreaker(), CircuitBreaker()
    once.worked("model")
    for number in range(3):
        assert same.reason is None
        same.troubled("model", "q0", failed("raised KeyError: 'docs'"))
        different.troubled("model", f"q{number}", failed("raised KeyError: 'docs'"))
        different.troubled("model", "q0", failed(f"raised ValueError: {number}"))
        once.troubled("model", "q0", failed("raised KeyError: 'docs'"))
    assert same.reason == "python:my:answer failed in each of 3 attempts (raised KeyError: 'docs'); fix the function"
    assert different.reason is None, "no question failed three times alike"
    assert once.reason is None, "a function that has worked may work again"


def test_waiting_ends_when_the_breaker_opens():
    breaker = CircuitBreaker()

    async def waited() -> None:
        waiting = asyncio.create_task(breaker.wait(100))
        await asyncio.sleep(0)
        breaker.open("enough")
        await asyncio.wait_for(waiting, 1)
        await breaker.wait(100)

    asyncio.run(waited())


def refuse(status: int, code: str | None = None) -> web.Response:
    return web.json_response({"error": {"message": "bad key sk-very-secret", "type": "t", "code": code}}, status=status)


@pytest.mark.slow
@others_nightly(
    ("status", "code", "advice"),
    [
        (401, None, "check {key}; run the same command again to resume"),
        (403, None, "check {key}; run the same command again to resume"),
        (402, None, "add credit or raise the limit at the provider; run the same command again to resume"),
        (
            429,
            "insufficient_quota",
            "add credit or raise the limit at the provider; run the same command again to resume",
        ),
        (404, None, "check the model's name and the base URL, which often ends in /v1; run the same command"),
    ],
)
@both_clients
def test_permanent_errors_end_the_run_early_and_it_resumes(plan_for, status, code, advice, model):
    with FakeApi(sums, lambda *_: refuse(status, code)) as api:
        plan = plan_for(api.url, count=COUNT, variants="low,high", model=model)
        with pytest.raises(RunFailedError) as caught:
            run(plan)
        text = str(caught.value)
        assert f"{model} failed for 20 questions in a row" in text
        assert str(status) in text
        assert advice.format(key=KEY_NAME if is_served(model) else "SAMBANOVA_API_KEY") in text
        assert "sk-very-secret" not in text
        assert "\n" not in text
        assert api.received.total() < COUNT, "not every question was tried, none twice and only one variant"
        assert set(api.received.values()) == {1}
        api._fault = None
        derived = run(plan)
    assert not derived.missing
    assert derived.outcomes.height == 2 * COUNT


@pytest.mark.slow
@both_clients
def test_missing_server_ends_the_run_with_advice(plan_for, model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(RunFailedError, match=r"failed in each of 20 attempts .*is the server running\?"):
            run(plan_for(url, count=COUNT, model=model))


@pytest.mark.slow
@both_clients
def test_server_errors_end_the_run_after_twenty_retried_questions(plan_for, model):
    with FakeApi(sums, lambda *_: refuse(500)) as api:
        with pytest.raises(RunFailedError, match="failed for 20 questions in a row"):
            run(plan_for(api.url, count=100, model=model, max_retries=2, max_connections=5))
        assert max(api.received.values()) == 3, "one request and two retries, in all layers together"
        assert len(api.received) <= QUESTIONS_IN_A_ROW + 5


@pytest.mark.slow
def test_occasional_key_rejections_do_not_end_the_run(plan_for):
    def some(message: str, _: int) -> web.StreamResponse | None:
        return refuse(403) if "What is 3 plus" in message else None

    with FakeApi(sums, some) as api:
        derived = run(plan_for(api.url, count=COUNT))
    assert [missing.question_id for missing in derived.missing] == ["q3"]
