"""The engine within this process: embedded models and functions are asked directly, without Inspect and its logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from refusal_index.almanac.chat import Message
from refusal_index.almanac.runtime import shared_runtime
from refusal_index.almanac.sequence import Completion
from refusal_index.engines.engine import Ask, Assignment, ModelError, Response, Send, converse
from refusal_index.engines.failures import Failure, RequestFailedError, failure_of
from refusal_index.engines.functions import (
    AnsweringFunction,
    FunctionError,
    GradingFunction,
    function_failure,
    is_function_name,
    load_function,
)
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.protocol import Asked, Conversation, StopReason, TokenLogprob, write_logprobs

ALMANAC = "almanac"
AT_ONCE = 64  # fills a batch of the embedded runtime
STOP_REASONS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


class LocalEngine:
    """Carries requests to embedded models and functions.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them.

    Raises
    ------
    ModelError
        If a model is neither an embedded one nor a function.
    """

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:
        self._settings, self._names = settings, names
        self._senders = {asked: _sender(asked, name, objects.get(name)) for asked, name in names.items()}

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - as engines do
        """Open nothing: functions and embedded models are there."""
        yield

    async def carry(self, assignment: Assignment) -> None:
        """Ask whatever is due, so many questions at a time."""
        at_once = asyncio.Semaphore(self._settings.sending.max_connections or AT_ONCE)
        await asyncio.gather(*(self._settle(assignment, one, at_once) for one in assignment.conversations))

    async def _settle(self, assignment: Assignment, conversation: Conversation, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            with suppress(RequestFailedError, StoreError):  # the store holds the one, the breaker tells the other
                await converse(assignment, conversation, self._send, self._explain)

    async def _send(self, ask: Ask) -> Response:
        return await self._senders[ask.request.asked](ask)

    def _explain(self, error: Exception, asked: Asked) -> Failure:
        if isinstance(error, FunctionError):
            return function_failure(error)
        return failure_of(error, f"{type(error).__name__}: {error}", self._names[asked])


def _sender(asked: Asked, name: str, given: object) -> Send:
    role = "model" if asked is Asked.MODEL else "grader"
    if is_function_name(name) or callable(given):
        function = given if callable(given) else load_function(name, role)
        if asked is Asked.MODEL:
            return _answering(AnsweringFunction(function, name))
        return _grading(GradingFunction(function, name))
    provider, _, rest = name.partition("/")
    if provider != ALMANAC:
        raise ModelError(
            f"{role} {name!r}: the local engine asks embedded models (almanac/...) and functions; choose "
            "{engine} inspect"
        )
    return embedded(rest)


def _answering(function: AnsweringFunction) -> Send:
    async def send(ask: Ask) -> Response:
        started = time.monotonic()
        text = await function([{"role": one.role, "content": one.content} for one in ask.request.messages])
        return Response([(text, StopReason.STOP)], seconds=time.monotonic() - started)

    return send


def _grading(function: GradingFunction) -> Send:
    async def send(ask: Ask) -> Response:
        return await function.graded(ask)

    return send


def embedded(name: str) -> Send:
    """Return what asks an embedded model by its name."""
    runtime = shared_runtime(name)

    async def send(ask: Ask) -> Response:
        started, decoding = time.monotonic(), ask.decoding
        completions = await runtime.complete(
            [Message(one.role, one.content) for one in ask.request.messages],
            temperature=decoding.temperature if decoding else 1.0,
            top_p=decoding.top_p if decoding else 1.0,
            max_tokens=decoding.max_tokens if decoding else None,
            seed=ask.seed,
            n=ask.choices,
            top_logprobs=ask.top_logprobs,
        )
        return Response(
            [(one.text, STOP_REASONS[one.finish_reason]) for one in completions],
            completions[0].prompt_tokens,
            sum(one.completion_tokens for one in completions),
            time.monotonic() - started,
            [_reported(one) for one in completions],
        )

    return send


def _reported(completion: Completion) -> str | None:
    if completion.logprobs is None:
        return None
    return write_logprobs(TokenLogprob(one.token, one.logprob, one.alternatives) for one in completion.logprobs)
