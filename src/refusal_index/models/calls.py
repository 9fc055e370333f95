"""Calls of a user's function: whatever it does, the caller gets its result or one kind of error."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

from refusal_index.data.outcome import Grade
from refusal_index.errors import RefusalIndexError, shortened, text_of

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Calls that run in threads at a time, unless a number of connections is set: as many as asyncio would use."""


RETURNED_GRADES = (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED)
"""Grades that a user's function may return."""


class FunctionError(RefusalIndexError, RuntimeError):
    """A model or grader function that raised, took too long or returned the wrong type; the message names it."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


class ReturnedTypeError(FunctionError):
    """A model or grader function that returned the wrong type; it is not called again, since it would do so again."""


Outcome = tuple[Any, BaseException | None]
"""The result of a call, and what it raised."""


class FunctionCaller:
    """Calls a function; one that is not a coroutine function runs in a thread.

    Each call has a thread or a task of its own, so that one that exits, hangs or is cancelled affects no other. A call
    that takes too long is abandoned: its thread ends with the process at the latest.

    Parameters
    ----------
    function, name
        The function, and its name in messages.
    timeout
        Seconds that a call may take; None for no limit.
    threads
        Maximum number of calls in threads at a time. A call that waits for one is not timed.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, timeout: float | None = None, threads: int | None = None
    ) -> None:
        self._function = function
        self._name = name
        self._timeout = timeout
        self._slots = asyncio.Semaphore(threads or THREADS)
        plain = function.func if isinstance(function, functools.partial) else function
        self._is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return what the function returns, or what the awaitable that it returns results in.

        Raises
        ------
        FunctionError
            If it raises anything, or takes longer than the time limit.
        KeyboardInterrupt
            If a coroutine function raises it: it cannot be told from an interruption by the user.
        """
        call = functools.partial(self._function, *arguments, **named)
        if self._is_async:
            return await self._result(asyncio.ensure_future(_outcome_of(call())))
        async with self._slots:
            result = await self._result(_start_thread(call))
        if inspect.isawaitable(result):
            return await self._result(asyncio.ensure_future(_outcome_of(result)))
        return result

    async def _result(self, running: asyncio.Future[Outcome]) -> Any:
        """Return the result of a call once it is there."""
        try:
            await asyncio.wait({running}, timeout=self._timeout)
        finally:
            running.cancel()  # nothing happens if it is done
        if not running.done() or running.cancelled():
            problem = f"did not return within {self._timeout:g} seconds; raise attempt_timeout if it needs longer"
            raise FunctionError(self._name, problem) from TimeoutError()
        result, error = running.result()
        if error is not None:
            text = text_of(error)
            raise FunctionError(self._name, f"raised {type(error).__name__}{text and ': '}{text}") from error
        return result


async def _outcome_of(awaitable: Awaitable[Any]) -> Outcome:
    try:
        return await awaitable, None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # otherwise SystemExit would end the event loop, and so all other requests
        return None, error


def _start_thread(call: Callable[[], Any]) -> asyncio.Future[Outcome]:
    """Start a call in a thread that the process does not wait for."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Outcome) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def work() -> None:
        try:
            result: Outcome = context.run(call), None
        except BaseException as error:  # the user's interruption is raised in the main thread only
            result = None, error
        with suppress(RuntimeError):  # the event loop is closed: nobody waits for the result
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, daemon=True).start()
    return outcome


class ReturnedReply(NamedTuple):
    """What a user's model function returned."""

    text: str
    """The reply."""
    confidence: float | None = None
    """How likely it is right, from 0 to 1; None if the function does not say."""
    refused: bool | None = None
    """Whether it refuses to answer; None if the function does not say."""


def as_reply(returned: object) -> ReturnedReply:
    """Return the reply that a user's model function returned, with what the function says about it.

    A refusal may have no text.

    Raises
    ------
    ValueError
        If it is neither text, nor a pair of a text and a confidence in [0, 1], nor a mapping of these and of whether
        the reply refuses; the message says what it is.

    Examples
    --------
    >>> as_reply(("Lima", 0.9))
    ReturnedReply(text='Lima', confidence=0.9, refused=None)
    >>> as_reply({"text": "Nothing in the documents.", "refused": True}).refused
    True
    """
    values: dict[Any, Any] = {"text": returned}
    if isinstance(returned, tuple) and len(returned) == 2:
        values = dict(zip(ReturnedReply._fields, returned, strict=False))
    elif isinstance(returned, Mapping):
        with suppress(Exception):  # a mapping of the user's own may raise anything
            values = dict(returned)
        unknown = [key for key in values if key not in ReturnedReply._fields]
        if unknown:
            raise ValueError(
                f"returned a mapping with the key {shortened(unknown[0])}, expected {', '.join(ReturnedReply._fields)}"
            )
    text = values.get("text")
    said = values.get("refused")
    refused = as_bool(said)
    if refused is None and said is not None:
        raise ValueError(f"returned {shortened(said)} as 'refused', expected True or False")
    if text is None and refused:
        text = ""
    if not isinstance(text, str):
        raise ValueError(
            f"returned {shortened(text)}, expected the reply as text, (text, confidence) or a dictionary with 'text'"
        )
    return ReturnedReply(text, _as_confidence(values.get("confidence")), refused)


def _as_confidence(returned: object) -> float | None:
    if returned is None:
        return None
    value = float(returned) if isinstance(returned, Real) and not isinstance(returned, bool) else None
    if value is None or not 0 <= value <= 1:
        raise ValueError(f"returned the confidence {shortened(returned)}, expected a number from 0 to 1")
    return value


def as_bool(returned: object) -> bool | None:
    """Return what a user's function returned as a bool, of Python or NumPy; None if it is something else.

    Examples
    --------
    >>> as_bool(True), as_bool("yes") is None
    (True, True)
    """
    is_numpy = str(getattr(returned, "dtype", "")) == "bool" and getattr(returned, "shape", None) == ()
    return bool(returned) if isinstance(returned, bool) or is_numpy else None


def as_grade(returned: object) -> Grade | None:
    """Return what a user's grading function returned as a grade; None if it is something else.

    Examples
    --------
    >>> as_grade(True), as_grade("refused"), as_grade("maybe")
    (<Grade.CORRECT: 'correct'>, <Grade.REFUSED: 'refused'>, None)
    """
    is_right = as_bool(returned)
    if is_right is not None:
        return Grade.CORRECT if is_right else Grade.INCORRECT
    return Grade(returned) if isinstance(returned, str) and returned in RETURNED_GRADES else None
