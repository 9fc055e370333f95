"""Python functions as models and as graders, by object or by name, and the check of a grader before a run."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.data.errors import shortened
from refusal_index.data.outcome import Grade, Question
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import Failure, FailureKind, causes, classify_error, describe_error, status_of
from refusal_index.models.requests import ModelError, ModelRequest, Response, Send, model_request
from refusal_index.models.settings import RequestSettings
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    Pass,
    PendingRequest,
    Role,
    Step,
    StopReason,
    TwoPass,
)

PREFIX = "python:"
LETTERS = {Grade.CORRECT: "A", Grade.INCORRECT: "B", Grade.REFUSED: "C"}
"""What a model that grades would say; a function's grades are stored in its words."""


MEND = "mend the function; edited, it is another model, and begins anew"


class FunctionError(RefusalIndexError, RuntimeError):
    """A function that was asked and raised, or returned something else than it should; the message names it."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name


def classify_function_error(error: Exception, name: str) -> Failure:
    """Classify an error of a function.

    One that a service caused, which has a status or is of a connection, is treated as any service's.
    """
    if not isinstance(error, FunctionError):
        return classify_error(error, describe_error(error), name)
    failure, chain = classify_error(error, str(error), error.name), causes(error)
    is_of_a_service = status_of(error) is not None or any(isinstance(cause, OSError) for cause in chain)
    if is_of_a_service or failure.kind is not FailureKind.PASSING:
        return failure
    return replace(failure, kind=FailureKind.DOUBTFUL, advice=MEND)


def is_function_name(name: str) -> bool:
    """Whether a model's name is the place of a function, as in ``python:package.module:function``.

    Examples
    --------
    >>> is_function_name("python:statistics:mean"), is_function_name("openai/gpt-4.1")
    (True, False)
    """
    return name.startswith(PREFIX)


def asked_by_name(names: Mapping[Role, str], objects: Mapping[str, object]) -> dict[Role, str]:
    """Return whom an engine asks elsewhere, by their names: all but functions.

    Parameters
    ----------
    names, objects
        As any engine takes them.

    Raises
    ------
    ModelError
        If one is given as an object that only Inspect can ask.
    """
    away = {}
    for asked, name in names.items():
        if is_function_name(name) or callable(objects.get(name)):
            continue
        if name in objects:
            raise ModelError(f"model {name!r}: this engine asks for models by name; choose {{engine}} direct")
        away[asked] = name
    return away


def function_name(function: Callable[..., Any], argument: str = "model") -> str:
    """Return the name by which a function is found again: its module and its own.

    Parameters
    ----------
    function
        The function.
    argument
        What it was given as, for messages.

    Raises
    ------
    ModelError
        If it has none that could be found again, as a lambda or a function inside another has none: then a resumed run
        could not know that it is the same.

    Examples
    --------
    >>> import statistics
    >>> function_name(statistics.mean)
    'python:statistics:mean'
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or inspect.ismethod(function):
        raise ModelError(
            f"{argument}: expected a function that is defined at the top of a module or a notebook, got "
            f"{shortened(name or function)}, which cannot be pickled or found again by its name; define it with 'def' "
            f"at the top level, or name it with {argument}_name"
        )
    return f"{PREFIX}{module}:{name}"


def load_function(name: str, argument: str = "model") -> Callable[..., Any]:
    """Return the function at a place; modules are looked for in the working directory, too.

    Raises
    ------
    ModelError
        If the module cannot be imported, or holds no such function.

    Examples
    --------
    >>> load_function("python:statistics:mean")([1, 3])
    2
    """
    module_name, _, path = name.removeprefix(PREFIX).partition(":")
    if not module_name or not path:
        raise ModelError(
            f"{argument} {name!r}: expected python:MODULE:FUNCTION, for instance python:my.pipeline:answer"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module raises while it is imported
        raise ModelError(
            f"{argument} {name!r}: {module_name} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ModelError(f"{argument} {name!r}: expected a function, found {shortened(found)} in {module_name}")
    return functools.partial(found) if inspect.isclass(found) else found


def source_sha256(function: Callable[..., Any]) -> str | None:
    """Return the hash of a function's own source, so that an edited one is not taken for the same; None without one."""
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):
        return None


class AnsweringFunction:
    """A function from messages to text, as a model.

    Parameters
    ----------
    function
        Takes a list of dictionaries with ``role`` and ``content``, and returns the reply's text, at once or awaited.
        One that is no coroutine runs in a thread.
    name
        What to call it in messages.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self.name = function, name

    async def __call__(self, messages: list[dict[str, str]]) -> str:
        """Return the reply to a conversation.

        Raises
        ------
        FunctionError
            If the function raises, or returns no text.
        """
        text = await _called(self._function, self.name, messages)
        if not isinstance(text, str):
            raise FunctionError(self.name, f"returned {shortened(text)}, expected the reply as text")
        return text

    async def answered(self, ask: ModelRequest) -> Response:
        """Answer what a model would be asked."""
        started = time.monotonic()
        text = await self([{"role": one.role, "content": one.content} for one in ask.request.messages])
        return Response([(text, StopReason.STOP)], seconds=time.monotonic() - started)


class GradingFunction:
    """A function from a question and an answer to a grade, as a grader.

    Parameters
    ----------
    function
        Takes the `Question` and the answer's text, and returns whether it is right, or a `Grade` or its name:
        ``"correct"``, ``"incorrect"`` or ``"refused"``; at once or awaited.
    name
        What to call it in messages.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self.name = function, name

    async def __call__(self, question: Question, answer: str) -> str:
        """Return the verdict as a model that grades words it.

        Raises
        ------
        FunctionError
            If the function raises, or returns no grade.
        """
        told = await _called(self._function, self.name, question, answer)
        if isinstance(told, bool):
            told = Grade.CORRECT if told else Grade.INCORRECT
        if not isinstance(told, str) or told not in set(LETTERS):
            expected = ", ".join(map(repr, map(str, LETTERS)))
            raise FunctionError(self.name, f"returned {shortened(told)}, expected True, False or one of {expected}")
        return LETTERS[Grade(told)]

    async def graded(self, ask: ModelRequest) -> Response:
        """Grade what a model would be asked to."""
        started = time.monotonic()
        verdict = await self(ask.conversation.question, ask.pending.step.prediction)
        return Response([(verdict, StopReason.STOP)], seconds=time.monotonic() - started)


def function_sender(asked: Role, name: str, given: object) -> Send | None:
    """Return what asks a function in this process, as the model or as one that grades.

    Parameters
    ----------
    asked, name
        Who is asked, and by which name.
    given
        What is in memory under that name; an `AnsweringFunction` answers as it is.

    Returns
    -------
    Send or None
        None where neither the name nor the object is a function's.

    Raises
    ------
    ModelError
        If there is no function at the place that the name tells.
    """
    if not (callable(given) or (given is None and is_function_name(name))):
        return None
    of_model = asked is Role.MODEL
    if isinstance(given, AnsweringFunction):
        return given.answered
    function = given if callable(given) else load_function(name, "model" if of_model else "grader")
    return AnsweringFunction(function, name).answered if of_model else GradingFunction(function, name).graded


def _stopped_by_nothing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; a `StopIteration` out of it becomes another error, since no future can hold one."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("StopIteration") from error


async def _called(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(*arguments)
        told = await asyncio.to_thread(_stopped_by_nothing, function, *arguments)
        return await told if inspect.isawaitable(told) else told
    except Exception as error:
        raise FunctionError(name, f"raised {type(error).__name__}: {error}") from error


RIGHT_ANSWER = "Paris"
PLAIN_CASE = Question("", "What is the capital of France?", RIGHT_ANSWER)


def plain_request(role: Role) -> ModelRequest:
    """Return the request that has a grader judge the plain case."""
    step = Step(Pass.FIRST, role, prediction=RIGHT_ANSWER)
    return model_request(
        RequestSettings(), Conversation(PLAIN_CASE, "", TwoPass(GraderKind.MODEL)), PendingRequest(step)
    )
