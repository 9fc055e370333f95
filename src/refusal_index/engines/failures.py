"""What an error of a request comes down to: whether it passes by itself, and what a user may do about it."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any

from refusal_index.errors import RefusalIndexError
from refusal_index.redaction import redacted

RESUMES = "the same command resumes"
LONGEST_PATIENCE = 300.0
"""Seconds that a provider may ask to wait for; one that asks for longer is taken to be used up."""

KEY_REFUSED, NO_CREDIT, NOT_THERE = (401, 403), (402,), (404,)
TOO_SOON = (408, 409, 425, 429)
USED_UP = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "credit balance is too low")
UNREACHABLE = ("ConnectError", "ClientConnectorError", "ClientConnectorDNSError")
"""Names of errors of HTTP clients that no connection came about."""


class Kind(Enum):
    """What is done about a failed request.

    Attributes
    ----------
    REQUEST
        It is this request's own fault: it is not sent again. Where none has worked yet, a row of them ends the run.
    LASTING
        It will not pass by itself, whatever is asked: it is not sent again, and a row of them ends the run.
    PASSING
        It is sent again; a row of requests that were sent again in vain ends the run.
    DOUBTFUL
        As one that passes; where no reply came yet, it rather lasts, and a row of attempts ends the run at once.
    """

    REQUEST = auto()
    LASTING = auto()
    PASSING = auto()
    DOUBTFUL = auto()

    @property
    def is_sent_again(self) -> bool:
        """Whether the request is worth another attempt."""
        return self in (Kind.PASSING, Kind.DOUBTFUL)


@dataclass(frozen=True)
class Failure:
    """What an error of a request comes down to.

    Attributes
    ----------
    message, model
        The error in one line, and who was asked.
    kind
        What is done about it.
    advice
        What a user may do about it.
    retry_after
        Seconds that the provider asks to wait; None where it does not say.
    """

    message: str
    model: str
    kind: Kind = Kind.PASSING
    advice: str = RESUMES
    retry_after: float | None = None


class RequestFailedError(RefusalIndexError, RuntimeError):
    """A request that failed for good, as often as it was to be sent."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class EndedError(RefusalIndexError, RuntimeError):
    """The run has ended: nothing further is sent."""


class NoAnswerError(RefusalIndexError, RuntimeError):
    """A response in which there is nothing that could be an answer."""


def failure_of(error: BaseException, message: str, model: str, keys: str = "the key") -> Failure:
    """Say what an error of a provider comes down to.

    Parameters
    ----------
    error
        As the provider's client raised it, whatever it was wrapped in since.
    message, model
        The error in one line, and who was asked.
    keys
        What holds the key of that model.

    Examples
    --------
    >>> failure_of(ConnectionRefusedError("refused"), "refused", "openai/gpt-4.1").kind
    <Kind.DOUBTFUL: 4>
    """
    message, status, wait = redacted(message), status_of(error), retry_after(error)
    advice = ""
    if status in NO_CREDIT or _is_used_up(error):
        advice = "add credit or raise the limit at the provider"
    elif status in KEY_REFUSED:
        advice = f"check {keys}"
    elif status in NOT_THERE:
        advice = "check the model's name and the base URL"
    elif wait is not None and wait > LONGEST_PATIENCE:
        advice = f"the provider asks to wait {wait:,.0f} seconds"
    if advice:
        return Failure(message, model, Kind.LASTING, f"{advice}; {RESUMES}")
    if status is not None and 400 <= status < 500 and status not in TOO_SOON:
        return Failure(message, model, Kind.REQUEST)
    if status is None and _is_unreachable(error):
        return Failure(message, model, Kind.DOUBTFUL, f"is the server there? check the base URL; {RESUMES}")
    return Failure(message, model, retry_after=wait)


def status_of(error: BaseException | None) -> int | None:
    """Return the status of the response that an error, or one that led to it, stands for; None without one."""
    return next((status for cause in causes(error) if (status := own_status(cause)) is not None), None)


def own_status(error: BaseException) -> int | None:
    """Return the status that an error itself holds, by whatever name its client has for it; None without one.

    A bare ``code`` counts beside a response only: some clients give a torn body one of their own.
    """
    for name in ("status_code", "status", *(("code",) if hasattr(error, "response") else ())):
        value = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
            return value
    return None


def retry_after(error: BaseException | None, now: datetime | None = None) -> float | None:
    """Return the seconds after which the provider wants to be asked again; None where it does not say.

    References
    ----------
    RFC 9110, section 10.2.3: seconds, or a date.
    """
    for cause in causes(error):
        headers: Any = getattr(getattr(cause, "response", None), "headers", None) or getattr(cause, "headers", None)
        for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
            with suppress(AttributeError, TypeError, ValueError):
                return max(_seconds(headers.get(name), now) * unit, 0.0)
    return None


def _seconds(given: str, now: datetime | None) -> float:
    try:
        return float(given)
    except ValueError:
        return (parsedate_to_datetime(given) - (now or datetime.now(UTC))).total_seconds()


def _is_used_up(error: BaseException) -> bool:
    return any(
        word in told
        for cause in causes(error)
        for told in (str(getattr(cause, "code", "")), str(getattr(cause, "type", "")), str(cause))
        for word in USED_UP
    )


def _is_unreachable(error: BaseException) -> bool:
    return any(
        isinstance(cause, ConnectionRefusedError | socket.gaierror) or type(cause).__name__ in UNREACHABLE
        for cause in causes(error)
    )


def causes(error: BaseException | None) -> list[BaseException]:
    """Return an error and those that led to it, each once."""
    found: dict[int, BaseException] = {}
    while error is not None and id(error) not in found:
        found[id(error)] = error
        error = error.__cause__ or error.__context__
    return list(found.values())
