"""Errors of requests: whether they are temporary, how they are retried, what a user can do, when they end a run."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

from refusal_index.errors import RefusalIndexError, text_of
from refusal_index.redaction import redacted_error

RESUMES = "run the same command again to resume"
MAX_RETRY_AFTER = 300.0
"""Longest delay in seconds that a provider may ask for; a longer one counts as a lasting error."""

NO_CREDIT = "add credit or raise the limit at the provider"
ADVICE = {
    402: NO_CREDIT,
    **dict.fromkeys((401, 403), "{key_advice}"),
    404: "check the model's name and the base URL, which often ends in /v1",
}
"""What to do about lasting errors, by status."""

USED_UP = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "credit balance is too low")
UNREACHABLE = ("ConnectError", "ClientConnectorError", "ClientConnectorDNSError")
"""Names of HTTP clients' errors for connections that were never established."""


class FailureKind(Enum):
    """How a failed request is handled.

    Attributes
    ----------
    REQUEST
        The request itself is at fault and is not retried. Before the first success, too many of them in a row end the
        run.
    LASTING
        The error persists for any request: it is not retried, and too many of them in a row end the run.
    PASSING
        The error is temporary and the request is retried; too many requests in a row whose retries all failed end the
        run.
    DOUBTFUL
        Retried like a temporary error; but before the first reply it is probably lasting, so too many attempts in a row
        end the run at once.
    OWN
        Raised by the user's own code, and doubtful too: before the first reply, a question that fails a few times in
        the same way ends the run.
    """

    REQUEST = auto()
    LASTING = auto()
    PASSING = auto()
    DOUBTFUL = auto()
    OWN = auto()

    @property
    def is_sent_again(self) -> bool:
        """Whether the request is retried."""
        return self in (FailureKind.PASSING, FailureKind.DOUBTFUL, FailureKind.OWN)


@dataclass(frozen=True)
class Failure:
    """A classified error of a request.

    Attributes
    ----------
    message, model
        The error in one line, and the model's name.
    kind
        How it is handled.
    advice
        What the user can do about it.
    retry_after
        Seconds that the provider asks to wait; None if it does not say.
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


def classify_error(error: BaseException, message: str, model: str, key_advice: str = "check the key") -> Failure:
    """Classify an error of a provider.

    Parameters
    ----------
    error
        The error that the provider's client raised, possibly wrapped in others.
    message, model
        The error in one line, and the model's name.
    key_advice
        What to do if the key is rejected.

    Examples
    --------
    >>> classify_error(ConnectionRefusedError("refused"), "refused", "openai/gpt-4.1").kind
    <FailureKind.DOUBTFUL: 4>
    """
    message = redacted_error(message)
    status = status_of(error)
    wait = retry_after(error)
    advice = ""
    chain = causes(error)
    texts = [
        text
        for cause in chain
        for text in (str(getattr(cause, "code", "")), str(getattr(cause, "type", "")), text_of(cause))
    ]
    if any(word in text for text in texts for word in USED_UP):
        advice = NO_CREDIT
    elif status is not None and status in ADVICE:
        advice = ADVICE[status].format(key_advice=key_advice)
    elif wait is not None and wait > MAX_RETRY_AFTER:
        advice = f"the provider asks to wait {wait:,.0f} seconds"
    if advice:
        return Failure(message, model, FailureKind.LASTING, f"{advice}; {RESUMES}")
    is_unreadable = any(isinstance(cause, UnreadableReplyError) for cause in chain)
    if is_unreadable or (status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429)):
        return Failure(message, model, FailureKind.REQUEST)
    is_unreachable = any(
        isinstance(cause, ConnectionRefusedError | socket.gaierror) or type(cause).__name__ in UNREACHABLE
        for cause in chain
    )
    if status is None and is_unreachable:
        return Failure(message, model, FailureKind.DOUBTFUL, f"is the server running? check the base URL; {RESUMES}")
    return Failure(message, model, retry_after=wait)


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of an error or of one of its causes; None without one."""
    return next((status for cause in causes(error) if (status := own_status(cause)) is not None), None)


def own_status(error: BaseException) -> int | None:
    """Return the HTTP status that an error itself has, under any of its usual names; None without one.

    The attributes ``status`` and ``code`` count only next to ``response``: some clients set codes of their own for
    interrupted responses.
    """
    for name in ("status_code", *(("status", "code") if hasattr(error, "response") else ())):
        value = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
            return value
    return None


def retry_after(error: BaseException | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a provider asks to wait before a retry; None if it does not say.

    A date is compared with the response's own ``Date``, since this machine's clock may differ from the provider's.

    Parameters
    ----------
    error
        The error, possibly wrapped in others.
    now
        The time to compare a date with if the response has no ``Date``; by default, this machine's.

    References
    ----------
    RFC 9110, section 10.2.3: seconds, or a date.
    """
    for cause in causes(error):
        headers: Any = getattr(getattr(cause, "response", None), "headers", None) or getattr(cause, "headers", None)
        for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
            with suppress(AttributeError, TypeError, ValueError, OverflowError):
                return max(_seconds(headers, name, now) * unit, 0.0)
    return None


def _seconds(headers: Any, name: str, now: datetime | None) -> float:
    try:
        return float(headers.get(name))
    except ValueError:
        sent = now or datetime.now(UTC)
        with suppress(AttributeError, TypeError, ValueError, OverflowError):
            sent = _date(headers.get("date"))
        return (_date(headers.get(name)) - sent).total_seconds()


def _date(value: str) -> datetime:
    """Parse an HTTP date, which is in GMT, also where it names no time zone."""
    date = parsedate_to_datetime(value)
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def causes(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes, each once."""
    chain: dict[int, BaseException] = {}
    while error is not None and id(error) not in chain:
        chain[id(error)] = error
        error = error.__cause__ or error.__context__
    return list(chain.values())


ORIGINAL_STATUS = "status_as_sent"
"""Key of the original status, if it was replaced, in the extensions of an HTTPX response."""

MAX_LINE = 300
"""Maximum length of a line in characters."""

MAX_BODY = 200
"""Maximum length, in characters, of an excerpt of a body without a message."""

MAX_READ = 5_000  # characters read of an error
MAX_CAUSES = 20  # causes followed
WRAPPERS = ("RetryError", "ModelGenerateError")
"""Errors in which retries and Inspect wrap the original error."""


MARKUP = re.compile(r"(?is)<(script|style)\b.*?</\1\s*>|<[^<>]*>|\x1b\[[0-?]*[ -/]*[@-~]")
CODE_FIRST = re.compile(r"^Error code: \d+(?: - |$)")


def describe_error(error: BaseException) -> str:
    r"""Describe an error in one line: its class, its status if any, and the provider's message.

    Parameters
    ----------
    error
        The error, possibly wrapped in others.

    Examples
    --------
    >>> describe_error(ValueError("the key sk-proj-3fGh8jKl2mNp5qRs is wrong\n"))
    'ValueError: the key [key] is wrong'
    >>> describe_error(ConnectionError())
    'ConnectionError'
    """
    while type(error).__name__ in WRAPPERS:
        attempt = getattr(error, "last_attempt", None)
        cause = (attempt.exception() if attempt else None) or error.__cause__ or error.__context__
        if cause is None:
            break
        error = cause
    response = getattr(error, "response", None)
    words = message_in(getattr(error, "body", None))
    status: int | None = getattr(response, "extensions", {}).get(ORIGINAL_STATUS) or own_status(error)
    parts = [type(error).__name__]
    if status is not None:
        content_type = str(getattr(response, "headers", {}).get("content-type", "")).partition(";")[0]
        parts.append(str(status) if words else f"{status} {content_type}".strip())
    parts.append(_one_safe_line(words) if words else _shown(error, MAX_BODY if status else MAX_LINE))
    root = error  # the original error, at the start of a chain of causes
    for _ in range(MAX_CAUSES):  # a chain may be circular
        root = root.__cause__ or root
    if status is None and root is not error:  # a failed connection is described by its cause
        # errors in which clients wrap any connection failure; even a refused connection may be reported as a timeout
        if parts[0] in ("APIConnectionError", "APITimeoutError") and not isinstance(root, TimeoutError):
            parts.clear()
        parts += [type(root).__name__, _shown(root, MAX_LINE)]
    return ": ".join(filter(None, (*(part.removesuffix(".") for part in parts[:-1]), *parts[-1:])))[:MAX_LINE]


def message_in(body: Any) -> str:
    """Return the message in an error's body; empty without one."""
    if isinstance(body, list):
        return next(filter(None, map(message_in, body)), "")
    if not isinstance(body, dict):
        return ""
    for name in ("error", "message", "detail", "msg"):
        value = body.get(name)
        if words := value if isinstance(value, str) else message_in(value):
            return words
    return ""


def _shown(error: BaseException, longest: int) -> str:
    """Return the text of an error whose body has no message: the body if it is text, else the error's own text."""
    body = getattr(error, "body", None)
    message = CODE_FIRST.sub("", text_of(error))
    if not isinstance(body, str):
        body = message or getattr(getattr(error, "response", None), "text", "")
    return _one_safe_line(body, longest)


def _one_safe_line(text: str, longest: int = MAX_LINE) -> str:
    """Return text in one line, without keys, markup and terminal control characters."""
    plain = MARKUP.sub(" ", redacted_error(text)[:MAX_READ])
    line = " ".join("".join(character if character.isprintable() else " " for character in plain).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


QUESTIONS_IN_A_ROW = 20
SAME_FAILURES = 3
OUTAGE_SECONDS = 180.0
OUTAGE_QUESTIONS = 3


class TimeLimit(Protocol):
    """The time that a command may take."""

    def seconds_left(self) -> float | None:
        """Return the seconds left; None without a limit."""

    def time_is_up(self) -> str | None:
        """Return why the time is up, in one line; None while there is time left."""


class CircuitBreaker:
    """Stops sending requests once it is open; requests in flight are completed and kept.

    It opens when too many questions in a row failed without a reply in between, when there were only errors for too
    long, or when `open` is called.

    Parameters
    ----------
    clock
        Returns the time in seconds.
    time_limit
        Ends every wait; None for no limit.

    Attributes
    ----------
    reason
        Why it opened, in one line; None while it is closed.
    planned
        Whether it was opened deliberately, not by failures.

    Examples
    --------
    >>> breaker = CircuitBreaker()
    >>> for number in range(QUESTIONS_IN_A_ROW):
    ...     breaker.failed("model", f"q{number}", Failure("the key is refused", "openai/gpt", FailureKind.LASTING))
    >>> breaker.reason
    'openai/gpt failed for 20 questions in a row (the key is refused); run the same command again to resume'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, time_limit: TimeLimit | None = None) -> None:
        self.reason: str | None = None
        self.planned = False
        self._clock = clock
        self._time_limit = time_limit
        self._opened = asyncio.Event()
        self._worked: set[str] = set()
        self._failed: dict[str, set[str]] = {}
        self._last: dict[str, Failure] = {}
        self._troubled: dict[str, tuple[float, Counter[tuple[str, str]]]] = {}

    def worked(self, role: str) -> None:
        """Record a reply of a role, which resets its record of failures."""
        self._worked.add(role)
        self._failed.pop(role, None)
        self._troubled.pop(role, None)

    def failed(self, role: str, question_id: str, failure: Failure) -> None:
        """Record a question whose request failed for good.

        Errors of single requests count only before the first reply: until then, all requests probably share their
        cause.
        """
        if failure.kind is FailureKind.REQUEST and role in self._worked:
            return
        failed = self._failed.setdefault(role, set())
        failed.add(question_id)
        self._last[role] = failure
        if len(failed) >= QUESTIONS_IN_A_ROW:
            self._open_for(failure, f"failed for {len(failed)} questions in a row")

    def end_if_all_failed(self, has_replied: Callable[[str], bool]) -> None:
        """Open it if a role has only given errors that last: further requests would fail as well.

        Parameters
        ----------
        has_replied
            Whether a role has replied in an earlier command.
        """
        for role, failure in self._last.items():
            is_lasting = not failure.kind.is_sent_again
            if is_lasting and role not in self._worked and not has_replied(role):
                self._open_for(failure, f"failed for each of {len(self._failed[role])} questions")

    def troubled(self, role: str, question_id: str, failure: Failure) -> None:
        """Record a failed request that will be retried."""
        since, attempts = self._troubled.setdefault(role, (self._clock(), Counter()))
        attempts[question_id, failure.message] += 1
        lasted = self._clock() - since
        is_doubtful = failure.kind in (FailureKind.DOUBTFUL, FailureKind.OWN) and role not in self._worked
        fails_alike = failure.kind is FailureKind.OWN and attempts[question_id, failure.message] >= SAME_FAILURES
        if is_doubtful and (fails_alike or attempts.total() >= QUESTIONS_IN_A_ROW):
            self._open_for(failure, f"failed in each of {attempts.total()} attempts")
        elif lasted >= OUTAGE_SECONDS and len({question for question, _ in attempts}) >= OUTAGE_QUESTIONS:
            self._open_for(failure, f"returned only errors for {lasted:.0f} seconds")

    def _open_for(self, failure: Failure, event: str) -> None:
        self.open(f"{failure.model} {event} ({failure.message}); {failure.advice}")

    def open(self, reason: str, *, planned: bool = False) -> None:
        """Open it for a reason; only the first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self.planned = planned
            self._opened.set()

    async def opened(self) -> None:
        """Wait until it opens."""
        await self._opened.wait()

    async def wait(self, seconds: float) -> None:
        """Wait for some seconds, but no longer than until it opens or the time is up."""
        left = None if self._time_limit is None else self._time_limit.seconds_left()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), seconds if left is None else max(min(seconds, left), 0.0))

    def check_time(self) -> None:
        """Open it if the time is up."""
        reason = None if self._time_limit is None else self._time_limit.time_is_up()
        if reason is not None:
            self.open(reason, planned=True)


T = TypeVar("T")


FIRST_WAIT = 2.0
"""Seconds before the first retry, doubled for each further one; a random delay of up to FIRST_WAIT is added."""


MAX_WAIT = 60.0


async def send_with_retries(
    send: Callable[[], Awaitable[T]],
    explain: Callable[[Exception], Failure],
    breaker: CircuitBreaker,
    *,
    role: str,
    subject: str,
    max_retries: int,
) -> T:
    """Send a request, and retry it after a delay if its error is temporary.

    Parameters
    ----------
    send, explain
        A function that sends the request once, and one that classifies its error.
    breaker
        Notified of every failure and reply; while it is open, nothing is sent.
    role, subject
        The role that is asked, and the id of the question.
    max_retries
        Maximum number of retries. If the provider asks for a longer delay, it is respected.

    Raises
    ------
    RequestFailedError
        If the request failed for good.
    EndedError
        If the breaker is open before an attempt.
    """
    attempt = 0
    while True:
        if breaker.reason is not None:
            raise EndedError
        try:
            reply = await send()
        except EndedError:
            raise
        except Exception as error:  # providers can raise anything
            failure = _explained(explain, error)
            if not failure.kind.is_sent_again or attempt >= max_retries:
                breaker.failed(role, subject, failure)
                raise RequestFailedError(failure) from error
        else:
            breaker.worked(role)
            return reply
        breaker.troubled(role, subject, failure)
        doubled = FIRST_WAIT * 2.0 ** min(attempt, 64)  # capped so that it does not overflow
        wait = min(doubled + random.uniform(0, FIRST_WAIT), MAX_WAIT)
        await breaker.wait(max(wait, failure.retry_after or 0.0))
        breaker.check_time()
        attempt += 1


def _explained(explain: Callable[[Exception], Failure], error: Exception) -> Failure:
    """Classify an error, even one of a class whose attributes cannot be read."""
    try:
        return explain(error)
    except Exception:
        return Failure(f"{type(error).__name__}: its message cannot be read", "the model")
