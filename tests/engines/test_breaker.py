"""A key that is refused again and again ends a run early, says which, and is no obstacle to resuming."""

from __future__ import annotations

import pytest
from aiohttp import web

from refusal_index.engines.breaker import QUESTIONS_IN_A_ROW, CircuitBreaker, is_key_refused
from refusal_index.engines.engine import RunFailedError
from tests.engines.conftest import run
from tests.engines.fake_api import FakeApi
from tests.engines.test_run import sums
from tests.tiers import one_fast

COUNT = 60


class HttpError(RuntimeError):
    def __init__(self, status_code: int) -> None:
        super().__init__("no")
        self.status_code = status_code


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("outer")
    outer.__cause__ = error
    return outer


def test_it_opens_once_after_so_many_different_questions_in_a_row():
    opened, breaker = [], CircuitBreaker()
    breaker.on_open = lambda: opened.append(True)
    for number in range(QUESTIONS_IN_A_ROW - 1):
        for _ in range(3):  # tried again
            breaker.failed("model", "openai/any", f"q{number}", "no")
    assert not opened
    breaker.worked("model")
    for number in range(QUESTIONS_IN_A_ROW - 1):
        breaker.failed("model", "openai/any", f"r{number}", "no")
    assert not opened, "a reply in between breaks the row"
    breaker.worked("grader")
    for number in range(5):
        breaker.failed("model", "openai/any", f"s{number}", "no longer")
    assert opened == [True]
    assert breaker.reason == "openai/any failed for 20 questions in a row (no longer); the same command resumes"


def test_whoever_is_asked_has_a_row_of_its_own():
    breaker = CircuitBreaker()
    for number in range(QUESTIONS_IN_A_ROW - 1):
        breaker.failed("model", "openai/any", f"q{number}", "no")
        breaker.failed("grader", "openai/judge", f"q{number}", "no")
    assert breaker.reason is None
    breaker.failed("grader", "openai/judge", "another", "no", "check JUDGE_API_KEY")
    assert breaker.reason == "openai/judge failed for 20 questions in a row (no); check JUDGE_API_KEY"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HttpError(401), True),
        (wrapped(wrapped(HttpError(403))), True),
        (HttpError(429), False),
        (HttpError(400), False),
        (RuntimeError("401"), False),
        (None, False),
    ],
)
def test_only_a_refused_key_counts(error, expected):
    assert is_key_refused(error) is expected


def refuse(status: int) -> web.Response:
    return web.json_response({"error": {"message": "bad key sk-very-secret", "type": "t", "code": None}}, status=status)


@one_fast("status", [401, 403])
def test_a_refused_key_ends_the_run_before_all_is_sent_and_the_next_run_resumes(plan_for, status):
    with FakeApi(sums, lambda *_: refuse(status)) as api:
        plan = plan_for(api.url, count=COUNT, variants="low,high")
        with pytest.raises(RunFailedError) as caught:
            run(plan)
        said = str(caught.value)
        assert "openai-api/fake/any failed for 20 questions in a row" in said
        assert str(status) in said
        assert "check FAKE_API_KEY; the same command resumes" in said
        assert "sk-very-secret" not in said
        assert "\n" not in said
        assert len(api.received) < COUNT, "not every question was tried, and only one variant"
        api._fault = None
        derived = run(plan)
    assert not derived.missing
    assert derived.outcomes.height == 2 * COUNT
    assert len(list(plan.folder.logs.glob("*.eval"))) == 2


def test_a_key_that_is_refused_here_and_there_ends_nothing(plan_for):
    def some(message: str, _: int) -> web.StreamResponse | None:
        return refuse(403) if "What is 3 plus" in message else None

    with FakeApi(sums, some) as api:
        derived = run(plan_for(api.url, count=COUNT))
    assert [missing.question_id for missing in derived.missing] == ["q3"]
