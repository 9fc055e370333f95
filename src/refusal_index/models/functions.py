"""Python functions as models and graders, given as objects or by name, and checks of them before a run."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.data.outcome import Grade, Question
from refusal_index.errors import shortened, text_of
from refusal_index.models.calls import (
    RETURNED_GRADES,
    FunctionCaller,
    FunctionError,
    ReturnedTypeError,
    as_grade,
    as_reply,
)
from refusal_index.models.failures import Failure, FailureKind, causes, classify_error, describe_error, status_of
from refusal_index.models.requests import ModelError, ModelRequest, Response, Send, model_request
from refusal_index.models.settings import RequestSettings, Sending
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    GraderPrompt,
    Pass,
    PendingRequest,
    Procedure,
    Role,
    Step,
    StopReason,
    TwoPass,
)
from refusal_index.redaction import remember_environment

PREFIX = "python:"
LETTERS = {Grade.CORRECT: "A", Grade.INCORRECT: "B", Grade.REFUSED: "C"}
"""Verdicts in the words of a grading model; a function's grades are stored in the same form."""


ARGUMENTS = ("question", "context", "choices", "must_answer", "messages")
"""Arguments that a model function can receive."""

FIX = "fix the function (an edited one starts a new run), or score the stored replies with 'refusal-index score RUN'"


def classify_function_error(error: Exception, name: str) -> Failure:
    """Classify an error of a function.

    An error that a service caused, with a status or of a connection, is classified like a provider's.
    """
    if not isinstance(error, FunctionError):
        return classify_error(error, describe_error(error), name)
    failure = classify_error(error, str(error), error.name)
    chain = causes(error)
    is_of_a_service = status_of(error) is not None or any(isinstance(cause, OSError) for cause in chain)
    if is_of_a_service or failure.kind is not FailureKind.PASSING:
        return failure
    is_wrong_type = isinstance(error, ReturnedTypeError)
    return replace(failure, kind=FailureKind.REQUEST if is_wrong_type else FailureKind.OWN, advice=FIX)


def is_function_name(name: str) -> bool:
    """Whether a model's name refers to a function, as in ``python:package.module:function``.

    Examples
    --------
    >>> is_function_name("python:statistics:mean"), is_function_name("openai/gpt-4.1")
    (True, False)
    """
    return name.startswith(PREFIX)


def function_name(function: Callable[..., Any], argument: str = "model") -> str:
    """Return the name by which a function can be imported: its module and its qualified name.

    Parameters
    ----------
    function
        The function.
    argument
        The argument that it was given as, for messages.

    Raises
    ------
    ModelError
        If it cannot be imported by name, like a lambda or a nested function: a resumed run could not recognise it.

    Examples
    --------
    >>> import statistics
    >>> function_name(statistics.mean)
    'python:statistics:mean'
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or inspect.ismethod(function):
        raise ModelError(
            f"{argument}: expected a function that is defined at the top of a module or a notebook, got "
            f"{shortened(name or function)}, which cannot be pickled or found again by its name; define it with 'def' "
            f"at the top level, or name it with {argument}_name"
        )
    return f"{PREFIX}{module}:{name}"


def load_function(name: str, argument: str = "model") -> Callable[..., Any]:
    """Import a function by its name; modules in the working directory are found, too.

    Raises
    ------
    ModelError
        If the module cannot be imported, or has no such function.

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
    if module_name.endswith(".py"):
        module = Path(module_name).with_suffix("")
        raise ModelError(
            f"{argument} {name!r}: expected the name of a module, got a file; write {PREFIX}{module.name}:{path}, in "
            f"the folder {module.parent.resolve()}"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # importing a module can raise anything
        remedy = "; it must be installed or in the working directory" if isinstance(error, ImportError) else ""
        raise ModelError(
            f"{argument} {name!r}: {module_name} cannot be imported ({type(error).__name__}: {text_of(error)}){remedy}"
        ) from error
    for part in path.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise ModelError(
            f"{argument} {name!r}: expected a function, found {shortened(function)} in {module_name}; check the name"
        )
    return functools.partial(function) if inspect.isclass(function) else function


def source_sha256(function: Callable[..., Any]) -> str | None:
    """Return the hash of a function's source code, to detect edits; None if the source is unavailable."""
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):
        return None


MARKS = {None: StopReason.STOP, True: StopReason.REFUSAL, False: StopReason.ANSWER}
"""How a reply is stored, by whether the function says that it refuses."""


class AnsweringFunction:
    """A model that calls a Python function.

    Parameters
    ----------
    function
        Returns the text of a reply, or ``(text, confidence)`` with how likely the reply is right, from 0 to 1, or a
        dictionary with ``text``, ``confidence`` and ``refused``; directly or as an awaitable. ``refused`` decides how
        the reply is read, whatever its wording. A function that is not a coroutine function runs in a thread. A first
        parameter named ``messages`` gets the conversation, a list of dictionaries with ``role`` and ``content``; under
        any other name it gets the text of the question. The following arguments are passed by name
        if the function declares them or takes ``**kwargs``: ``context`` (text or None), ``choices`` (list of texts or
        None), ``must_answer`` (True in the forced pass, in which the model must not refuse) and ``messages``. Arguments
        bound by `functools.partial` stay bound. A function whose signature is unknown, such as some builtins, gets only
        the question.
    name
        Its name in messages.
    sending
        Sets the time limit of a call, and how many calls run in threads at a time; None for no time limit.
    """

    def __init__(self, function: Callable[..., Any], name: str, sending: Sending | None = None) -> None:
        self.name = name
        self._call = _caller(function, name, sending)
        self._first, self._others = parameters_of(function)

    async def __call__(self, request: ModelRequest) -> Response:
        """Answer a request.

        Raises
        ------
        FunctionError
            If the function raises, takes too long or returns anything else.
        """
        started = time.monotonic()
        question = request.conversation.question
        values: dict[str, Any] = {
            "question": question.text,
            "context": question.context,
            "choices": list(question.choices) or None,
            "must_answer": request.request.pass_ is Pass.FORCED,
            "messages": [{"role": message.role, "content": message.content} for message in request.request.messages],
        }
        first = [values[self._first]] if self._first else []
        others = {name: values[name] for name in self._others}
        returned = await self._call(*first, **others)
        try:
            reply = as_reply(returned)
        except ValueError as error:
            raise ReturnedTypeError(self.name, str(error)) from error
        seconds = time.monotonic() - started
        return Response([(reply.text, MARKS[reply.refused])], seconds=seconds, confidence=reply.confidence)


def parameters_of(function: Callable[..., Any]) -> tuple[str | None, frozenset[str]]:
    """Return what a model function gets as its first positional argument, and what it gets by name.

    Examples
    --------
    >>> first, others = parameters_of(lambda text, *, must_answer=False, k=5: text)
    >>> first, sorted(others)
    ('question', ['must_answer'])
    >>> parameters_of(lambda messages: messages[-1]["content"])
    ('messages', frozenset())
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "question", frozenset()
    first = None
    if parameters and parameters[0].kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        first = "messages" if parameters.pop(0).name == "messages" else "question"
    declared = {parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    bound = set(function.keywords) if isinstance(function, functools.partial) else set()
    return first, frozenset(name for name in ARGUMENTS if (takes_any or name in declared) and name != first) - bound


def takes_messages(function: Callable[..., Any]) -> bool:
    """Whether a model function gets the whole prompt, and not only the question.

    Examples
    --------
    >>> takes_messages(lambda messages: ""), takes_messages(lambda question, **others: ""), takes_messages(len)
    (True, True, False)
    """
    if isinstance(function, AnsweringFunction):
        return True
    first, others = parameters_of(function)
    return "messages" in {first, *others}


def check_model_function(function: Callable[..., Any], name: str, procedures: Mapping[str, Procedure]) -> None:
    """Raise ModelError if a function lacks parameters that a run with these procedures needs."""
    if isinstance(function, AnsweringFunction):
        return
    first, others = parameters_of(function)
    try:
        inspect.signature(function).bind(*([first] if first else []), **dict.fromkeys(others))
    except TypeError as error:
        raise ModelError(
            f"{name}: {error}; a model function receives the question or 'messages' first, and by name those of "
            f"{', '.join(ARGUMENTS[1:])} that it declares; give every other parameter a default"
        ) from error
    except ValueError:  # a builtin without a signature
        pass
    if takes_messages(function):
        return
    asking = [variant for variant, procedure in procedures.items() if procedure.asks_model]
    if any(not isinstance(procedures[variant], TwoPass) for variant in asking):
        raise ModelError(
            f"{name}: expected a parameter 'messages', got none; this run sends prompts of its own, which only "
            "'messages' contains"
        )
    if "must_answer" not in others and any(Pass.FORCED in procedures[variant].passes for variant in asking):
        raise ModelError(
            f"{name}: expected a parameter 'must_answer', got none. RI needs an answer to every refused "
            "question, so the function is called again for these with must_answer=True. Add the parameter, as in "
            "'def answer(question, *, must_answer=False)', and return the best guess, never a refusal, if it is True; "
            "or set {answered_only}, which gives rates but no RI"
        )
    if len(asking) > 1:
        raise ModelError(
            f"{name}: expected a parameter 'messages', got none; without it, the function cannot tell the prompts "
            f"{', '.join(asking)} apart. Add the parameter, or choose one prompt with {{variants}}"
        )


class GradingFunction:
    """A grader that calls a Python function.

    Parameters
    ----------
    function
        Takes the `Question` and the text of the answer; returns whether the answer is correct, or a `Grade`, or the
        name of one: ``"correct"``, ``"incorrect"`` or ``"refused"``; directly or as an awaitable.
    name, sending
        The arguments of `AnsweringFunction`.
    """

    def __init__(self, function: Callable[..., Any], name: str, sending: Sending | None = None) -> None:
        self.name = name
        self._call = _caller(function, name, sending)

    async def __call__(self, request: ModelRequest) -> Response:
        """Grade the answer in a request that is meant for a grading model, in the words of such a model.

        Raises
        ------
        FunctionError
            If the function raises, takes too long or does not return a grade.
        """
        started = time.monotonic()
        returned = await self._call(request.conversation.question, request.pending.step.prediction)
        grade = as_grade(returned)
        if grade is None:
            expected = ", ".join(map(repr, map(str, RETURNED_GRADES)))
            problem = f"returned {shortened(returned)}, expected True, False or one of {expected}"
            raise ReturnedTypeError(self.name, problem)
        return Response([(LETTERS[Grade(grade)], StopReason.STOP)], seconds=time.monotonic() - started)


def function_sender(role: Role, name: str, value: object, sending: Sending) -> Send | None:
    """Return the sender of requests to a function in this process, as the model or as a grader.

    Parameters
    ----------
    role, name
        The role, and the name of its model or function.
    value
        The object in memory under that name; an `AnsweringFunction` is used as it is.
    sending
        Sets the time limit of a call, and how many calls run in threads at a time.

    Returns
    -------
    Send or None
        None if neither the name nor the object is a function's.

    Raises
    ------
    ModelError
        If the name refers to no function.
    """
    if not (callable(value) or (value is None and is_function_name(name))):
        return None
    is_model = role is Role.MODEL
    if is_model:
        remember_environment()
    if isinstance(value, AnsweringFunction):
        return value
    function = value if callable(value) else load_function(name, "model" if is_model else "grader")
    return AnsweringFunction(function, name, sending) if is_model else GradingFunction(function, name, sending)


def _caller(function: Callable[..., Any], name: str, sending: Sending | None) -> FunctionCaller:
    if sending is None:
        return FunctionCaller(function, name)
    return FunctionCaller(function, name, sending.attempt_timeout, sending.max_connections)


@dataclass(frozen=True)
class PlainCase:
    """An answer that any grader must grade correctly.

    Attributes
    ----------
    kind
        What the answer is, for messages.
    answer, grade
        The answer, and its grade.
    """

    kind: str
    answer: str
    grade: Grade


PLAIN_QUESTION = Question("", "What is the capital of France?", "Paris")
RIGHT_CASE = PlainCase("right", "Paris", Grade.CORRECT)
WRONG_CASE = PlainCase("wrong", "Berlin", Grade.INCORRECT)
PLAIN_CASES = (RIGHT_CASE, WRONG_CASE, PlainCase("refused", "I don't know.", Grade.REFUSED))


def plain_request(
    role: Role,
    case: PlainCase = RIGHT_CASE,
    *,
    only_attempt: bool = False,
    grader_prompt: GraderPrompt | None = None,
) -> ModelRequest:
    """Return a request for a grader to judge a plain case, or only whether its answer is an attempt."""
    step = Step(Pass.FIRST, role, prediction=case.answer, only_attempt=only_attempt)
    procedure = TwoPass(GraderKind.MODEL, grader_prompt=grader_prompt)
    return model_request(RequestSettings(), Conversation(PLAIN_QUESTION, "", procedure), PendingRequest(step))
