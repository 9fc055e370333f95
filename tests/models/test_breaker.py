"""What ends a run in order: failures in a row, an outage, being told to; and what a real run says then."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from refusal_index.models.failures import OUTAGE_SECONDS, QUESTIONS_IN_A_ROW, CircuitBreaker, Failure, FailureKind
from refusal_index.runs.engine import RunFailedError
from tests.models.conftest import both_clients, run
from tests.models.fake_api import FakeApi
from tests.models.test_run import sums
from tests.tiers import others_nightly

COUNT = 40
NO = Failure("no", "openai/any", FailureKind.LASTING)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_once_after_so_many_different_questions_in_a_row():
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


def test_whoever_is_asked_has_a_row_of_its_own():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW - 1):
        breaker.failed("model", f"q{number}", NO)
        breaker.failed("grader", f"q{number}", NO)
    assert breaker.reason is None
    breaker.failed("grader", "another", Failure("no", "openai/judge", FailureKind.LASTING, "check JUDGE_API_KEY"))
    assert breaker.reason == "openai/judge failed for 20 questions in a row (no); check JUDGE_API_KEY"


def test_requests_that_are_themselves_at_fault_end_nothing_once_any_has_worked():
    breaker = CircuitBreaker()
    breaker.worked("model")
    for number in range(3 * QUESTIONS_IN_A_ROW):
        breaker.failed("model", f"q{number}", Failure("too long", "openai/any", FailureKind.REQUEST))
    assert breaker.reason is None


def test_what_every_request_is_at_fault_for_ends_the_run():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW):
        assert breaker.reason is None
        breaker.failed("model", f"q{number}", Failure("400: no temperature here", "openai/any", FailureKind.REQUEST))
    assert breaker.reason is not None


def test_an_outage_opens_it_once_it_lasted_and_met_several_questions():
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


def test_a_server_that_was_never_reached_is_given_up_at_once_and_one_that_was_is_waited_for():
    gone = Failure("refused", "openai/any", FailureKind.DOUBTFUL, "is the server running?")
    never, once = CircuitBreaker(), CircuitBreaker()
    once.worked("model")
    for _ in range(QUESTIONS_IN_A_ROW):
        never.troubled("model", "q0", gone)
        once.troubled("model", "q0", gone)
    assert never.reason == "openai/any failed in each of 20 attempts (refused); is the server running?"
    assert once.reason is None


def test_waiting_ends_when_it_opens():
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
        (404, None, "check the model's name and the base URL; run the same command again to resume"),
    ],
)
@both_clients
def test_what_will_not_pass_ends_the_run_before_all_is_sent_and_the_next_run_resumes(
    plan_for, status, code, advice, model
):
    with FakeApi(sums, lambda *_: refuse(status, code)) as api:
        plan = plan_for(api.url, count=COUNT, variants="low,high", model=model)
        with pytest.raises(RunFailedError) as caught:
            run(plan)
        said = str(caught.value)
        assert f"{model} failed for 20 questions in a row" in said
        assert str(status) in said
        assert advice.format(key=f"{model.split('/')[-2].upper()}_API_KEY") in said
        assert "sk-very-secret" not in said
        assert "\n" not in said
        assert api.received.total() < COUNT, "not every question was tried, none twice, and only one variant"
        assert set(api.received.values()) == {1}
        api._fault = None
        derived = run(plan)
    assert not derived.missing
    assert derived.outcomes.height == 2 * COUNT


@pytest.mark.slow
@both_clients
def test_a_server_that_is_not_there_ends_the_run_with_the_advice_to_look_for_it(plan_for, model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(RunFailedError, match=r"failed in each of 20 attempts .*is the server running\?"):
            run(plan_for(url, count=COUNT, model=model))


@pytest.mark.slow
@both_clients
def test_errors_of_the_server_end_the_run_after_twenty_questions_each_sent_again_as_often_as_told(plan_for, model):
    with FakeApi(sums, lambda *_: refuse(500)) as api:
        with pytest.raises(RunFailedError, match="failed for 20 questions in a row"):
            run(plan_for(api.url, count=100, model=model, max_retries=2, max_connections=5))
        assert max(api.received.values()) == 3, "one request and two retries, in all layers together"
        assert len(api.received) <= QUESTIONS_IN_A_ROW + 5


@pytest.mark.slow
def test_a_key_that_is_refused_here_and_there_ends_nothing(plan_for):
    def some(message: str, _: int) -> web.StreamResponse | None:
        return refuse(403) if "What is 3 plus" in message else None

    with FakeApi(sums, some) as api:
        derived = run(plan_for(api.url, count=COUNT))
    assert [missing.question_id for missing in derived.missing] == ["q3"]
