"""What an error comes down to: by the status of the response, by the words of its body, by the connection."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from refusal_index.models.failures import MAX_RETRY_AFTER, FailureKind, classify_error, retry_after, status_of
from refusal_index.models.functions import FunctionError, classify_function_error


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
    """By the name that HTTP clients give it."""


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
def test_each_error_is_of_one_kind(error, kind):
    assert classify_error(error, "told", "openai/any").kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("a mistake"), FailureKind.DOUBTFUL),
        (HttpError(500), FailureKind.PASSING),
        (HttpError(400), FailureKind.REQUEST),
        (ConnectionResetError(), FailureKind.PASSING),
        (TimeoutError(), FailureKind.PASSING),
        (ConnectionRefusedError(), FailureKind.DOUBTFUL),
    ],
)
def test_what_a_service_told_a_function_counts_and_what_else_it_raises_may_be_its_own_fault(error, kind):
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
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_a_provider_asks_to_wait_against_rfc_9110(headers, seconds):
    now = datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert retry_after(wrapped(HttpError(429, **headers)), now) == seconds


@pytest.mark.parametrize(
    ("seconds", "kind"), [(MAX_RETRY_AFTER, FailureKind.PASSING), (MAX_RETRY_AFTER + 1, FailureKind.LASTING)]
)
def test_a_provider_that_asks_to_wait_for_long_is_used_up(seconds, kind):
    failure = classify_error(HttpError(429, retry_after=str(seconds)), "told", "openai/any")
    assert failure.kind is kind
    assert failure.retry_after == (seconds if kind is FailureKind.PASSING else None)


def test_a_status_is_a_number_of_http_and_no_other():
    assert status_of(HttpError(503)) == 503
    assert status_of(HttpError(None, code="insufficient_quota")) is None
    assert status_of(HttpError(7)) is None
    assert status_of(HttpError(True)) is None
    assert status_of(None) is None


class TornBodyError(Exception):
    """As a client raises it that names a torn body by a code of its own, without a response."""

    code = 400


class MalformedHeaderError(Exception):
    """As aiohttp raises it where a header is malformed: with a status of its own, without a response."""

    status = 400


@pytest.mark.parametrize("error", [TornBodyError, MalformedHeaderError])
def test_a_torn_response_is_no_answer_of_the_provider_and_is_sent_again(error):
    assert status_of(wrapped(error())) is None
    assert classify_error(wrapped(error()), "told", "openai/any").kind is FailureKind.PASSING
