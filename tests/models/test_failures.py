"""Errors of providers: what they come down to, what reaches the user, and retries."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from inspect_ai.model import Model, get_model
from tenacity import Future, RetryError

from refusal_index.models import failures
from refusal_index.models.calls import FunctionError
from refusal_index.models.failures import (
    MAX_LINE,
    MAX_RETRY_AFTER,
    CircuitBreaker,
    EndedError,
    Failure,
    FailureKind,
    RequestFailedError,
    classify_error,
    describe_error,
    retry_after,
    send_with_retries,
    status_of,
)
from refusal_index.models.functions import classify_function_error
from refusal_index.plugins.inspect.client import resolve_model
from tests.models.conftest import INSPECT_MODEL, both_clients, results, run
from tests.models.fake_api import FakeApi

# --- Classification of errors


class HttpError(RuntimeError):
    def __init__(self, status_code: int | None = None, message: str = "no", code: str | None = None, **headers: str):
        super().__init__(message)
        self.status_code, self.code = status_code, code
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(headers=named)


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("outer")
    outer.__cause__ = error
    return outer


class ConnectError(Exception):
    """Named as in HTTP clients."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HttpError(401), FailureKind.LASTING),
        (wrapped(wrapped(HttpError(403))), FailureKind.LASTING),
        (HttpError(402), FailureKind.LASTING),
        (HttpError(404), FailureKind.LASTING),
        (HttpError(429), FailureKind.PASSING),
        (HttpError(429, code="insufficient_quota"), FailureKind.LASTING),
        (HttpError(429, retry_after="5"), FailureKind.PASSING),
        (HttpError(429, retry_after="86400"), FailureKind.LASTING),
        (HttpError(400), FailureKind.REQUEST),
        (HttpError(400, "Your credit balance is too low to access the API"), FailureKind.LASTING),
        (HttpError(422), FailureKind.REQUEST),
        (HttpError(408), FailureKind.PASSING),
        (HttpError(500), FailureKind.PASSING),
        (HttpError(529), FailureKind.PASSING),
        (RuntimeError("401"), FailureKind.PASSING),
        (TimeoutError(), FailureKind.PASSING),
        (wrapped(ConnectionRefusedError()), FailureKind.DOUBTFUL),
        (wrapped(ConnectError()), FailureKind.DOUBTFUL),
        (socket.gaierror(), FailureKind.DOUBTFUL),
        (ConnectionResetError(), FailureKind.PASSING),
    ],
)
def test_each_error_is_classified(error, kind):
    assert classify_error(error, "told", "openai/any").kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("a mistake"), FailureKind.OWN),
        (HttpError(500), FailureKind.PASSING),
        (HttpError(400), FailureKind.REQUEST),
        (ConnectionResetError(), FailureKind.PASSING),
        (TimeoutError(), FailureKind.PASSING),
        (ConnectionRefusedError(), FailureKind.DOUBTFUL),
    ],
)
def test_function_error_is_classified_by_its_cause(error, kind):
    try:
        raise FunctionError("python:m:f", "raised") from error
    except FunctionError as told:
        failure = classify_function_error(told, told.name)
    assert failure.kind is kind
    assert ("fix the function" in failure.advice) == (isinstance(error, ValueError))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "3"}, 3.0),
        ({"retry_after": "2.5"}, 2.5),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "Sun, 22 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"retry_after": "Sun, 22 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"retry_after": "Sun, 22 Nov 2026 10:00:30 -0000"}, 30.0),
        ({"retry_after": "Fri, 01 Jan 2027 08:00:07 GMT", "date": "Fri, 01 Jan 2027 08:00:00 GMT"}, 7.0),
        ({"retry_after": "Mon, 01 Jan 2024 08:00:07 GMT", "date": "Mon, 01 Jan 2024 08:00:00 GMT"}, 7.0),
        ({"retry_after": "Mon, 01 Jan 2024 08:00:00 GMT", "date": "Mon, 01 Jan 2024 08:00:07 GMT"}, 0.0),
        ({"retry_after": "Sun, 22 Nov 2026 10:00:30 GMT", "date": "today"}, 30.0),
        ({"retry_after": "5", "date": "Mon, 01 Jan 2024 08:00:00 GMT"}, 5.0),
        ({"retry_after": "soon", "date": "Mon, 01 Jan 2024 08:00:00 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_against_rfc_9110(headers, seconds):
    now = datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert retry_after(wrapped(HttpError(429, **headers)), now) == seconds


@pytest.mark.parametrize(
    ("seconds", "kind"), [(MAX_RETRY_AFTER, FailureKind.PASSING), (MAX_RETRY_AFTER + 1, FailureKind.LASTING)]
)
def test_long_retry_after_is_a_lasting_failure(seconds, kind):
    failure = classify_error(HttpError(429, retry_after=str(seconds)), "told", "openai/any")
    assert failure.kind is kind
    assert failure.retry_after == (seconds if kind is FailureKind.PASSING else None)


def test_only_http_status_numbers_are_accepted():
    assert status_of(HttpError(503)) == 503
    assert status_of(HttpError(None, code="insufficient_quota")) is None
    assert status_of(HttpError(7)) is None
    assert status_of(HttpError(True)) is None
    assert status_of(None) is None


class TornBodyError(Exception):
    """As from a client that reports a truncated body with its own code and no response."""

    code = 400


class MalformedHeaderError(Exception):
    """As from aiohttp for a malformed header: with its own status and no response."""

    status = 400


@pytest.mark.parametrize("error", [TornBodyError, MalformedHeaderError])
def test_truncated_response_is_retried(error):
    assert status_of(wrapped(error())) is None
    assert classify_error(wrapped(error()), "told", "openai/any").kind is FailureKind.PASSING


# --- Retries and delays


class Waiting(CircuitBreaker):
    """A breaker that does not wait but records the waiting times."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    async def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def send_scripted(breaker: CircuitBreaker, script: list[Failure | str], max_retries: int = 5) -> tuple[str, int]:
    """Send a request that follows a script, and return the reply and the number of attempts."""
    played = iter(script)
    count = 0

    async def send() -> str:
        nonlocal count
        count += 1
        step = next(played)
        if isinstance(step, str):
            return step
        raise ValueError(step)

    def explain(error: Exception) -> Failure:
        return error.args[0]

    described = {"role": "model", "subject": "q"}
    try:
        return asyncio.run(send_with_retries(send, explain, breaker, **described, max_retries=max_retries)), count
    except RequestFailedError as error:
        return f"failed: {error}", count


DOWN, WRONG = Failure("down", "m"), Failure("wrong", "m", FailureKind.REQUEST)


@pytest.mark.parametrize(
    ("script", "max_retries", "expected"),
    [
        (["yes"], 5, ("yes", 1)),
        ([DOWN, "yes"], 5, ("yes", 2)),
        ([DOWN] * 5 + ["yes"], 5, ("yes", 6)),
        ([DOWN] * 9, 5, ("failed: down", 6)),
        ([DOWN] * 9, 0, ("failed: down", 1)),
        ([WRONG, "yes"], 5, ("failed: wrong", 1)),
        ([DOWN, WRONG, "yes"], 5, ("failed: wrong", 2)),
        ([Failure("key", "m", FailureKind.LASTING), "yes"], 5, ("failed: key", 1)),
        ([Failure("gone", "m", FailureKind.DOUBTFUL), "yes"], 5, ("yes", 2)),
    ],
)
def test_number_of_attempts_depends_on_the_error_and_max_retries(script, max_retries, expected):
    assert send_scripted(Waiting(), script, max_retries) == expected


def test_waits_double_with_jitter_up_to_a_minute(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 2.0)
    breaker = Waiting()
    send_scripted(breaker, [DOWN] * 8, 7)
    shortest = [2, 4, 8, 16, 32, 60, 60]
    assert len(breaker.waited) == 7
    for waited, least in zip(breaker.waited, shortest, strict=True):
        assert least <= waited <= min(least + 2, 60)
    assert len({waited % 1 for waited in breaker.waited[:5]}) == 5, "no two are alike, so that a burst spreads"


def test_waits_are_at_least_as_long_as_retry_after(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 2.0)
    breaker = Waiting()
    send_scripted(
        breaker, [Failure("slow down", "m", retry_after=17.0), Failure("slow down", "m", retry_after=0.1), "yes"]
    )
    assert breaker.waited[0] == 17.0
    assert breaker.waited[1] >= 4


def test_nothing_is_sent_once_the_breaker_is_open():
    breaker = CircuitBreaker()
    breaker.open("enough")
    with pytest.raises(EndedError):
        send_scripted(breaker, ["yes"])


def test_breaker_that_opens_during_a_wait_prevents_another_attempt(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 100.0)
    breaker = CircuitBreaker()
    attempts = []

    async def both() -> None:
        async def send() -> str:
            attempts.append(1)
            raise ValueError

        asking = asyncio.create_task(
            send_with_retries(send, lambda _: DOWN, breaker, role="model", subject="q", max_retries=5)
        )
        while not attempts:
            await asyncio.sleep(0)
        breaker.open("enough")
        with pytest.raises(EndedError):
            await asyncio.wait_for(asking, 5)

    asyncio.run(both())
    assert attempts == [1]


# --- Messages of providers

HTML = "<html><head><title>Bad gateway</title><style>p {color: red}</style></head><body><p>try later</p></body></html>"


def as_json(body: Any, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


def text(body: str, kind: str, status: int = 200) -> web.Response:
    return web.Response(text=body, content_type=kind, status=status)


async def error_of(model: Model) -> Exception:
    async with model:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
            await model.generate("Who?")
    return caught.value


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch):
    def error_after(fault, resolve=resolve_model) -> Exception:
        with FakeApi(lambda _: "never", lambda _message, _sent: fault()) as api:
            monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-very-secret")
            monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
            return asyncio.run(error_of(once(resolve)))

    return error_after


def once(resolve: Any) -> Model:
    model = resolve(INSPECT_MODEL)
    model.api.client.max_retries = 0
    model.api.should_retry = lambda _: False
    return model


QUOTA = "You exceeded your quota."


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (lambda: as_json({"error": {"message": QUOTA}}), f"InternalServerError: 200: {QUOTA}"),
        (lambda: as_json({"error": {"message": QUOTA, "code": 429}, "choices": None}), f"RateLimitError: 200: {QUOTA}"),
        (lambda: as_json({"error": QUOTA}), f"InternalServerError: 200 application/json: {QUOTA}"),
        (lambda: as_json({"detail": QUOTA}), f"InternalServerError: 200: {QUOTA}"),
        (lambda: as_json({"detail": [{"msg": QUOTA, "loc": ["body"]}]}), f"InternalServerError: 200: {QUOTA}"),
        (lambda: as_json({"message": QUOTA}), f"InternalServerError: 200: {QUOTA}"),
        (lambda: as_json([]), "InternalServerError: 200 application/json: []"),
        (lambda: text(HTML, "text/html"), "InternalServerError: 200 text/html: Bad gateway try later"),
        (lambda: text(HTML, "text/html", 503), "InternalServerError: 503 text/html: Bad gateway try later"),
        (
            lambda: text('{"choices": [{"ind', "application/json"),
            'InternalServerError: 200 application/json: {"choices',
        ),
        (lambda: as_json({"error": {"message": QUOTA}}, 400), f"BadRequestError: 400: {QUOTA}"),
        (
            lambda: as_json({"error": {"message": f"{QUOTA} sk-very-secret"}}, 429),
            f"RateLimitError: 429: {QUOTA} [key]",
        ),
    ],
)
def test_provider_error_message_is_reported(ask, fault, line):
    """A 200 with an error body used to end as `TypeError: 'NoneType' object is not iterable`."""
    assert describe_error(ask(fault)).startswith(line)


def test_provider_error_message_is_reported_for_inspect_models(ask):
    def resolve(name: str) -> Model:
        from refusal_index.plugins.inspect.client import guarded

        return guarded(get_model(name, memoize=False))

    assert describe_error(ask(lambda: as_json({"detail": QUOTA}), resolve)) == f"InternalServerError: 200: {QUOTA}"


@both_clients
def test_last_error_message_is_reported_after_retries(plan_for, model):
    def fault(message: str, sent_before: int) -> web.Response | None:
        if "What is 3 plus" in message:
            return as_json({"error": {"message": f"no room,\x1b[31m\n <b>try {sent_before}</b>"}}, 429)
        return None

    with FakeApi(lambda _: "<answer>1</answer>", fault) as api:
        plan = plan_for(api.url, count=4, model=model, max_retries=1)
        derived = run(plan)
    assert derived.outcomes["unscored_reason"].to_list()[3] == "request_failed"
    (line,) = failures_of(plan)
    assert line.startswith("RateLimitError: 429: no room, try ")


def failures_of(plan: Any) -> list[str]:
    from refusal_index.runs.store import open_store

    results(plan.folder)
    with open_store(plan.folder) as store:
        return list(store.failures().values())


@both_clients
def test_run_continues_after_an_error_with_status_200(plan_for, model):
    def fault(_message: str, sent_before: int) -> web.Response | None:
        return as_json({"error": {"message": "overloaded"}}) if sent_before == 0 else None

    with FakeApi(lambda _: "<answer>1</answer>", fault) as api:
        derived = run(plan_for(api.url, count=2, model=model))
    assert derived.outcomes["unscored_reason"].to_list() == [None, None]


class ProviderError(Exception):
    """As in the package of a provider."""

    def __init__(self, message: str, **known: object) -> None:
        super().__init__(message)
        self.__dict__.update(known)


def raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class APITimeoutError(RuntimeError):
    """As in the clients of OpenAI and Anthropic."""


class ModelGenerateError(RuntimeError):
    """As in Inspect."""


def given_up(error: Exception) -> RetryError:
    attempt = Future(3)
    attempt.set_exception(error)
    return RetryError(attempt)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (given_up(ProviderError("Error code: 429 - slow", status_code=429)), "ProviderError: 429: slow"),
        (
            raised(ModelGenerateError("\nRequest:\n{}"), given_up(ProviderError("slow", code=503, response=None))),
            "ProviderError: 503: slow",
        ),
        (
            raised(ProviderError("Connection error."), OSError("refused")),
            "ProviderError: Connection error: OSError: refused",
        ),
        (
            ProviderError("bad", status_code=400, body={"error": {"message": "", "code": "x"}}),
            "ProviderError: 400: bad",
        ),
        (ProviderError("bad", status_code="x"), "ProviderError: bad"),
        (ProviderError("bad", status_code=True), "ProviderError: bad"),
        (ModelGenerateError("alone"), "ModelGenerateError: alone"),
        (ProviderError("\u202eleft\x07\x9b <i>and</i>\tright"), "ProviderError: left and right"),
        (raised(APITimeoutError("Timed out."), ConnectionRefusedError("no")), "ConnectionRefusedError: no"),
        (raised(APITimeoutError("Timed out."), TimeoutError()), "APITimeoutError: Timed out: TimeoutError"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_error_is_described_by_the_innermost_message(error, line):
    assert describe_error(error) == line


def test_error_description_is_short():
    assert len(describe_error(ProviderError("x" * 10_000, status_code=500))) < MAX_LINE
    assert describe_error(ProviderError("<" * 100_000)).startswith("ProviderError: <<<")
    assert describe_error(ProviderError("<script " * 100_000)).startswith("ProviderError: <script")
    one, other = ProviderError("one"), ProviderError("other")
    one.__cause__, other.__cause__ = other, one
    assert describe_error(one).startswith("ProviderError: one")


def test_key_is_redacted_before_the_line_is_cut(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "hush-hush-hush")
    assert "hush" not in describe_error(ProviderError("x" * (MAX_LINE - 20) + " hush-hush-hush"))
