"""Errors of requests: whether they are temporary, how they are retried, what a user can do, when they end a run."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any, TypeVar

from refusal_index.errors import RefusalIndexError
from refusal_index.redaction import redacted

RESUMES = "the same command resumes"
MAX_RETRY_AFTER = 300.0
"""Seconds that a provider may ask to wait for; one that asks for longer is taken to be used up."""

NO_CREDIT = "add credit or raise the limit at the provider"
ADVICE = {402: NO_CREDIT, **dict.fromkeys((401, 403), "check {keys}"), 404: "check the model's name and the base URL"}
"""What to do about errors that last, by status."""

TOO_SOON = (408, 409, 425, 429)
USED_UP = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "credit balance is too low")
UNREACHABLE = ("ConnectError", "ClientConnectorError", "ClientConnectorDNSError")
"""Names of errors of HTTP clients that no connection came about."""


class FailureKind(Enum):
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
        return self in (FailureKind.PASSING, FailureKind.DOUBTFUL)


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
    kind: FailureKind = FailureKind.PASSING
    advice: str = RESUMES
    retry_after: float | None = None


class RequestFailedError(RefusalIndexError, RuntimeError):
    """A request that failed after all retries; the run continues."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class EndedError(RefusalIndexError, RuntimeError):
    """The run has ended, and no further request is sent; caught within the package."""


class NoAnswerError(RefusalIndexError, RuntimeError):
    """A response without an answer; it is retried."""


class UnreadableReplyError(RefusalIndexError, RuntimeError):
    """A reply that is too large or cannot be parsed; it is not retried, since it was paid for."""


def classify_error(error: BaseException, message: str, model: str, keys: str = "the key") -> Failure:
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
    >>> classify_error(ConnectionRefusedError("refused"), "refused", "openai/gpt-4.1").kind
    <FailureKind.DOUBTFUL: 4>
    """
    message, status, wait = redacted(message), status_of(error), retry_after(error)
    advice = ""
    if _is_used_up(error):
        advice = NO_CREDIT
    elif status is not None and status in ADVICE:
        advice = ADVICE[status].format(keys=keys)
    elif wait is not None and wait > MAX_RETRY_AFTER:
        advice = f"the provider asks to wait {wait:,.0f} seconds"
    if advice:
        return Failure(message, model, FailureKind.LASTING, f"{advice}; {RESUMES}")
    is_unreadable = any(isinstance(cause, UnreadableReplyError) for cause in causes(error))
    if is_unreadable or (status is not None and 400 <= status < 500 and status not in TOO_SOON):
        return Failure(message, model, FailureKind.REQUEST)
    if status is None and _is_unreachable(error):
        return Failure(message, model, FailureKind.DOUBTFUL, f"is the server there? check the base URL; {RESUMES}")
    return Failure(message, model, retry_after=wait)


def status_of(error: BaseException | None) -> int | None:
    """Return the status of the response that an error, or one that led to it, stands for; None without one."""
    return next((status for cause in causes(error) if (status := own_status(cause)) is not None), None)


def own_status(error: BaseException) -> int | None:
    """Return the status that an error itself holds, by whatever name its client has for it; None without one.

    A bare ``status`` or ``code`` counts beside a response only: some clients give a torn response one of their own.
    """
    for name in ("status_code", *(("status", "code") if hasattr(error, "response") else ())):
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
        word in text
        for cause in causes(error)
        for text in (str(getattr(cause, "code", "")), str(getattr(cause, "type", "")), str(cause))
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


SAID = "status_as_sent"
"""Where a response of httpx whose status was replaced has the one that was sent."""

MAX_LINE, MAX_BODY = 300, 200
"""Characters of a line, and those that are shown of what is no message."""

MAX_READ, MAX_CAUSES = 5_000, 20  # characters of an error that are looked at, and errors behind it
WRAPPERS = ("RetryError", "ModelGenerateError")
"""What retries, and what Inspect, wrap an error in; each holds the one that counts."""

NO_CONNECTION = ("APIConnectionError", "APITimeoutError")
"""What clients wrap whatever befell a connection in: also one that was refused is told as out of time."""

MARKUP = re.compile(r"(?is)<(script|style)\b.*?</\1\s*>|<[^<>]*>|\x1b\[[0-?]*[ -/]*[@-~]")
CODE_FIRST = re.compile(r"^Error code: \d+(?: - |$)")


def describe_error(error: BaseException) -> str:
    r"""Return what an error comes down to: its class, the status where there is one, and the provider's own words.

    Parameters
    ----------
    error
        As it was raised, however often it was wrapped.

    Examples
    --------
    >>> describe_error(ValueError("the key sk-proj-3fGh8jKl2mNp5qRs is wrong\n"))
    'ValueError: the key [key] is wrong'
    >>> describe_error(ConnectionError())
    'ConnectionError'
    """
    error = _unwrapped(error)
    status, words = _status(error), _message_in(getattr(error, "body", None))
    parts = [type(error).__name__]
    if status is not None:
        parts.append(str(status) if words else f"{status} {_content_type(error)}".strip())
    parts.append(_harmless(words) if words else _shown(error, MAX_BODY if status else MAX_LINE))
    root = _root(error)
    if status is None and root is not error:  # a connection that failed is told by what it failed for
        if parts[0] in NO_CONNECTION and not isinstance(root, TimeoutError):
            parts.clear()
        parts += [type(root).__name__, _shown(root, MAX_LINE)]
    return ": ".join(filter(None, (*(part.removesuffix(".") for part in parts[:-1]), *parts[-1:])))[:MAX_LINE]


def _unwrapped(error: BaseException) -> BaseException:
    while type(error).__name__ in WRAPPERS:
        attempt = getattr(error, "last_attempt", None)
        held = (attempt.exception() if attempt else None) or error.__cause__ or error.__context__
        if held is None:
            break
        error = held
    return error


def _root(error: BaseException) -> BaseException:
    """Return the first of the errors of which each was raised from the one before."""
    for _ in range(MAX_CAUSES):  # errors may have led to each other
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _status(error: BaseException) -> int | None:
    """Return the status as it was sent."""
    said: int | None = getattr(getattr(error, "response", None), "extensions", {}).get(SAID)
    return own_status(error) if said is None else said


def _content_type(error: BaseException) -> str:
    headers = getattr(getattr(error, "response", None), "headers", {})
    return str(headers.get("content-type", "")).partition(";")[0]


def _message_in(body: Any) -> str:
    """Return the message within an error's body; nothing where there is none."""
    if isinstance(body, list):
        return next(filter(None, map(_message_in, body)), "")
    if not isinstance(body, dict):
        return ""
    for name in ("error", "message", "detail", "msg"):
        found = body.get(name)
        if words := found if isinstance(found, str) else _message_in(found):
            return words
    return ""


def _shown(error: BaseException, longest: int) -> str:
    """Show an error in which there is no message: its body where that is a text, or what it says itself."""
    body, own = getattr(error, "body", None), CODE_FIRST.sub("", str(error))
    if not isinstance(body, str):
        body = own or getattr(getattr(error, "response", None), "text", "")
    return _harmless(body, longest)


def _harmless(text: str, longest: int = MAX_LINE) -> str:
    """Return a text in one line without keys, markup and whatever a terminal would obey."""
    plain = MARKUP.sub(" ", redacted(text)[:MAX_READ])
    line = " ".join("".join(one if one.isprintable() else " " for one in plain).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


QUESTIONS_IN_A_ROW = 20
OUTAGE_SECONDS = 180.0
OUTAGE_QUESTIONS = 3


class CircuitBreaker:
    """Once it is open nothing further is sent; what is in flight is waited for, and kept.

    It opens when so many questions in a row ended in errors without a reply in between, when nothing but errors came
    for so long, or when it is told to.

    Parameters
    ----------
    clock
        Tells the time in seconds.

    Attributes
    ----------
    reason
        Why it opened, in one line; None while it is closed.
    planned
        Whether the run was told to end there.
    patience
        Seconds of nothing but errors after which it opens.

    Examples
    --------
    >>> breaker = CircuitBreaker()
    >>> for number in range(QUESTIONS_IN_A_ROW):
    ...     breaker.failed("model", f"q{number}", Failure("the key is refused", "openai/gpt", FailureKind.LASTING))
    >>> breaker.reason
    'openai/gpt failed for 20 questions in a row (the key is refused); the same command resumes'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason: str | None = None
        self.planned = False
        self._clock = clock
        self._opened = asyncio.Event()
        self._worked: set[str] = set()
        self._failed: dict[str, set[str]] = {}
        self._troubled: dict[str, tuple[float, set[str], int]] = {}

    def worked(self, role: str) -> None:
        """Take note of a reply of whoever is in a role, which breaks the row of failures."""
        self._worked.add(role)
        self._failed.pop(role, None)
        self._troubled.pop(role, None)

    def failed(self, role: str, question_id: str, failure: Failure) -> None:
        """Take note of a request about a question that failed for good.

        One that is itself at fault counts while none has worked yet: then it is rather what all of them have in common.
        """
        if failure.kind is FailureKind.REQUEST and role in self._worked:
            return
        failed = self._failed.setdefault(role, set())
        failed.add(question_id)
        if len(failed) >= QUESTIONS_IN_A_ROW:
            self._open_for(failure, f"failed for {len(failed)} questions in a row")

    def troubled(self, role: str, question_id: str, failure: Failure) -> None:
        """Take note of a request about a question that failed and will be sent again."""
        since, questions, attempts = self._troubled.get(role, (self._clock(), set(), 0))
        questions.add(question_id)
        self._troubled[role] = since, questions, attempts + 1
        lasted = self._clock() - since
        if failure.kind is FailureKind.DOUBTFUL and role not in self._worked and attempts + 1 >= QUESTIONS_IN_A_ROW:
            self._open_for(failure, f"failed in each of {attempts + 1} attempts")
        elif lasted >= OUTAGE_SECONDS and len(questions) >= OUTAGE_QUESTIONS:
            self._open_for(failure, f"gave nothing but errors for {lasted:.0f} seconds")

    def _open_for(self, failure: Failure, what: str) -> None:
        self.open(f"{failure.model} {what} ({failure.message}); {failure.advice}")

    def open(self, reason: str, *, planned: bool = False) -> None:
        """End the run for a reason; the first one counts."""
        if self.reason is None:
            self.reason, self.planned = reason, planned
            self._opened.set()

    async def opened(self) -> None:
        """Wait until it opens."""
        await self._opened.wait()

    async def wait(self, seconds: float) -> None:
        """Wait so long, and no longer than until it opens."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), seconds)


T = TypeVar("T")


FIRST_WAIT = 2.0
"""Seconds before a request is sent again, doubled with each attempt; up to as much again is added by chance."""


MAX_WAIT = 60.0


async def send_with_retries(
    send: Callable[[], Awaitable[T]],
    explain: Callable[[Exception], Failure],
    breaker: CircuitBreaker,
    *,
    role: str,
    about: str,
    max_retries: int,
) -> T:
    """Send a request, and again after a while where that may help.

    Parameters
    ----------
    send, explain
        Sends it once, and says what an error comes down to.
    breaker
        Is told of every failure; once it is open nothing is sent.
    role, about
        Who is asked, and about what.
    max_retries
        How often it is sent again at most. A provider that says after how long is waited for so long.

    Raises
    ------
    RequestFailedError
        If it failed for good.
    EndedError
        If the breaker opened before.
    """
    attempt = 0
    while True:
        if breaker.reason is not None:
            raise EndedError
        try:
            reply = await send()
        except EndedError:
            raise
        except Exception as error:  # whatever a provider raises
            failure = explain(error)
            if not failure.kind.is_sent_again or attempt >= max_retries:
                breaker.failed(role, about, failure)
                raise RequestFailedError(failure) from error
        else:
            breaker.worked(role)
            return reply
        breaker.troubled(role, about, failure)
        doubled = FIRST_WAIT * 2.0 ** min(attempt, 64)  # which no number of retries makes too large for a float
        wait = min(doubled + random.uniform(0, FIRST_WAIT), MAX_WAIT)
        await breaker.wait(max(wait, failure.retry_after or 0.0))
        attempt += 1
