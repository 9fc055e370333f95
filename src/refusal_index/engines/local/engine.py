"""The engine within this process: embedded models and functions are asked directly, without Inspect and its logs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from refusal_index.almanac import ALMANAC
from refusal_index.almanac.chat import Message
from refusal_index.almanac.runtime import shared_runtime
from refusal_index.almanac.sequence import Completion
from refusal_index.engines.asks import Ask, Response, Send
from refusal_index.engines.concurrency import carry_concurrently
from refusal_index.engines.engine import Assignment, ModelError
from refusal_index.engines.failures import Failure, failure_of
from refusal_index.engines.functions import FunctionError, function_failure, function_sender
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.protocol import Asked, StopReason, TokenLogprob, write_logprobs

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

    together = False

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:
        self._settings, self._names = settings, names
        self._senders = {asked: _sender(asked, name, objects.get(name)) for asked, name in names.items()}

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - as engines do
        """Open nothing: functions and embedded models are there."""
        yield

    async def carry(self, assignment: Assignment) -> None:
        """Ask whatever is due, so many questions at a time."""
        at_once = self._settings.sending.max_connections or AT_ONCE
        await carry_concurrently(assignment, self.send, self.explain, at_once)

    async def send(self, ask: Ask) -> Response:
        """Ask whom a request is for."""
        return await self._senders[ask.request.asked](ask)

    def explain(self, error: Exception, asked: Asked) -> Failure:
        """Say what an error comes down to."""
        if isinstance(error, FunctionError):
            return function_failure(error)
        return failure_of(error, f"{type(error).__name__}: {error}", self._names[asked])


def _sender(asked: Asked, name: str, given: object) -> Send:
    function = function_sender(asked, name, given)
    if function is not None:
        return function
    provider, _, rest = name.partition("/")
    if provider != ALMANAC:
        role = "model" if asked is Asked.MODEL else "grader"
        raise ModelError(
            f"{role} {name!r}: the local engine asks embedded models (almanac/...) and functions; choose "
            "{engine} inspect"
        )
    return embedded(rest)


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
