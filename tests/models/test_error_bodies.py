"""What a provider says reaches the user, also where it says 200 and means an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from inspect_ai.model import Model, get_model
from tenacity import Future, RetryError

from refusal_index.models.failures import MAX_LINE, describe_error
from refusal_index.plugins.inspect.client import resolve_model
from tests.models.conftest import OVER_INSPECT, both_clients, results, run
from tests.models.fake_api import FakeApi

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
    def asked(fault, resolve=resolve_model) -> Exception:
        with FakeApi(lambda _: "never", lambda _message, _sent: fault()) as api:
            monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-very-secret")
            monkeypatch.setenv("SAMBANOVA_BASE_URL", api.url)
            return asyncio.run(error_of(once(resolve)))

    return asked


def once(resolve: Any) -> Model:
    model = resolve(OVER_INSPECT)
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
def test_the_words_of_a_provider_are_told(ask, fault, line):
    """A 200 with an error body ended as `TypeError: 'NoneType' object is not iterable`."""
    assert describe_error(ask(fault)).startswith(line)


def test_they_are_told_as_well_of_a_model_that_inspect_made(ask):
    def resolve(name: str) -> Model:
        from refusal_index.plugins.inspect.client import guarded

        return guarded(get_model(name, memoize=False))

    assert describe_error(ask(lambda: as_json({"detail": QUOTA}), resolve)) == f"InternalServerError: 200: {QUOTA}"


@both_clients
def test_the_last_words_reach_the_user_however_often_it_was_sent(plan_for, model):
    def fault(message: str, sent_before: int) -> web.Response | None:
        if "What is 3 plus" in message:
            return as_json({"error": {"message": f"no room,\x1b[31m\n <b>try {sent_before}</b>"}}, 429)
        return None

    with FakeApi(lambda _: "<answer>1</answer>", fault) as api:
        plan = plan_for(api.url, count=4, model=model, max_retries=1)
        derived = run(plan)
    assert derived.outcomes["unscored_reason"].to_list()[3] == "request_failed"
    (line,) = failures(plan)
    assert line.startswith("RateLimitError: 429: no room, try ")


def failures(plan: Any) -> list[str]:
    from refusal_index.runs.plan import open_store

    results(plan.folder)
    with open_store(plan.folder) as store:
        return list(store.failures().values())


@both_clients
def test_a_run_goes_on_after_a_200_that_was_an_error(plan_for, model):
    def fault(_message: str, sent_before: int) -> web.Response | None:
        return as_json({"error": {"message": "overloaded"}}) if sent_before == 0 else None

    with FakeApi(lambda _: "<answer>1</answer>", fault) as api:
        derived = run(plan_for(api.url, count=2, model=model))
    assert derived.outcomes["unscored_reason"].to_list() == [None, None]


class Said(Exception):  # noqa: N818 - a name of another package
    """As a provider's package may have it."""

    def __init__(self, message: str, **known: object) -> None:
        super().__init__(message)
        self.__dict__.update(known)


def raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class APITimeoutError(RuntimeError):
    """As clients of OpenAI and Anthropic have it."""


class ModelGenerateError(RuntimeError):
    """As Inspect has it."""


def given_up(error: Exception) -> RetryError:
    attempt = Future(3)
    attempt.set_exception(error)
    return RetryError(attempt)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (given_up(Said("Error code: 429 - slow", status_code=429)), "Said: 429: slow"),
        (
            raised(ModelGenerateError("\nRequest:\n{}"), given_up(Said("slow", code=503, response=None))),
            "Said: 503: slow",
        ),
        (
            raised(Said("Connection error."), OSError("refused")),
            "Said: Connection error: OSError: refused",
        ),
        (Said("bad", status_code=400, body={"error": {"message": "", "code": "x"}}), "Said: 400: bad"),
        (Said("bad", status_code="x"), "Said: bad"),
        (Said("bad", status_code=True), "Said: bad"),
        (ModelGenerateError("alone"), "ModelGenerateError: alone"),
        (Said("\u202eleft\x07\x9b <i>and</i>\tright"), "Said: left and right"),
        (raised(APITimeoutError("Timed out."), ConnectionRefusedError("no")), "ConnectionRefusedError: no"),
        (raised(APITimeoutError("Timed out."), TimeoutError()), "APITimeoutError: Timed out: TimeoutError"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_comes_down_to_the_last_words_of_whoever_was_asked(error, line):
    assert describe_error(error) == line


def test_a_line_is_short_whatever_was_said():
    assert len(describe_error(Said("x" * 10_000, status_code=500))) < MAX_LINE
    assert describe_error(Said("<" * 100_000)).startswith("Said: <<<")
    assert describe_error(Said("<script " * 100_000)).startswith("Said: <script")
    one, other = Said("one"), Said("other")
    one.__cause__, other.__cause__ = other, one
    assert describe_error(one).startswith("Said: one")


def test_a_key_that_is_cut_where_a_line_ends_is_gone_before(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "hush-hush-hush")
    assert "hush" not in describe_error(Said("x" * (MAX_LINE - 20) + " hush-hush-hush"))
