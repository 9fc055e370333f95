"""What came back for a request of a wave: a response, or what it failed for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from refusal_index.engines.asks import Response
from refusal_index.engines.error_messages import told
from refusal_index.engines.failures import Failure, failure_of
from refusal_index.errors import RefusalIndexError

PASSING_CODES = (
    "batch_expired",
    "batch_cancelled",
    "expired",
    "canceled",
    "cancelled",
    "overloaded_error",
    "api_error",
)
"""What providers say of requests that were not even tried, or may be tried again."""


STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The status that a response would have had, by what Anthropic says of a request in a batch instead."""

CODE = re.compile(r"[\w.:-]{1,80}", re.ASCII)
"""What a provider's word for what went wrong looks like; anything else is not shown."""


class ResultError(RefusalIndexError, ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came back for a request: one of the two is there.

    Attributes
    ----------
    custom_id
        Of the request.
    response
        What was answered.
    failure
        What it failed for.
    """

    custom_id: str
    response: Response | None = None
    failure: Failure | None = None


def in_batch(result: Result) -> Result:
    """Return a result as of a provider's batch."""
    if result.response is None:
        return result
    return replace(result, response=replace(result.response, in_batch=True))


class ProviderError(RefusalIndexError, RuntimeError):
    """What a provider says of a request that failed, with the names that errors of clients have."""

    def __init__(self, message: str, status: int | None, code: str, body: Any) -> None:
        super().__init__(message)
        self.status_code, self.code, self.type, self.body = status, code, code, body


def failed(custom_id: str, model: str, error: Any, status: int | None = None) -> Result:
    """Return the result of a request that failed.

    Parameters
    ----------
    custom_id, model
        Of the request, and who was asked.
    error
        What the provider says: an object with a message and a code, a text, or nothing.
    status
        Of the response; None where there was none.

    Examples
    --------
    >>> failed("ri-1", "openai/gpt-4.1", {"code": "batch_expired", "message": "too late"}).failure.message
    'batch_expired: too late'
    """
    named = error if isinstance(error, Mapping) else {"message": error} if isinstance(error, str) else {}
    inner = named.get("error")
    named = inner if isinstance(inner, Mapping) else named
    told_codes = (named.get(name) for name in ("code", "type"))
    code = next((one for one in told_codes if isinstance(one, str) and CODE.fullmatch(one)), "")
    status = status or _status_in(named)
    raised = ProviderError(str(named.get("message") or ""), status, code, dict(named) or None)
    line = told(raised).removeprefix("ProviderError: ").removeprefix("ProviderError") or "no reason given"
    if code and code not in line:
        line = f"{code}: {line}"
    failure = failure_of(raised, line, model)
    if code in PASSING_CODES:
        failure = Failure(failure.message, model)
    return Result(custom_id, failure=failure)


def _status_in(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error names in its own way; None where it names none."""
    code = error.get("code")
    if isinstance(code, int):
        return code if 400 <= code < 600 else None
    named = (error.get(name) for name in ("code", "type"))
    return next((STATUSES[one] for one in named if isinstance(one, str) and one in STATUSES), None)
