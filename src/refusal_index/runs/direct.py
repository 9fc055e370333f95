"""The engine that sends requests one by one: the name of a model selects the client that sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from refusal_index.models.accounts import COMPATIBLE
from refusal_index.models.failures import (
    CircuitBreaker,
    Failure,
    RequestFailedError,
    classify_error,
    describe_error,
    send_with_retries,
)
from refusal_index.models.functions import (
    RETRIES,
    FunctionError,
    checked,
    function_failure,
    function_sender,
    plain_ask,
    unanswered,
)
from refusal_index.models.providers import provider_of
from refusal_index.models.requests import Client, ModelError, ModelRequest, Response, to_completions
from refusal_index.protocol import Completion, Role
from refusal_index.runs.engine import Assignment, carry_concurrently
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

IN_PROCESS_CONCURRENCY = 64


def client_for(asked: Role, name: str, given: object, settings: Settings) -> Client:
    """Return the client of a model.

    Functions answer in this process, ``openai-api/NAME/MODEL`` is asked with OpenAI's client, models of a plugin's
    provider as that does it, such as ``almanac/base``, and any other model as a provider of Inspect.

    Parameters
    ----------
    asked, name
        The role of the model, and its name.
    given
        A function or a model of Inspect that goes by this name; None where there is only the name.
    settings
        Those of the run.

    Raises
    ------
    ModelError
        If the model cannot be asked.
    """
    send = function_sender(asked, name, given)
    if send is not None:
        return Client(send, lambda error: _function_failure(error, name), IN_PROCESS_CONCURRENCY, is_checked=False)
    # Each client is imported where it is needed: Inspect takes a second, OpenAI's client half of one.
    if given is None and name.startswith(f"{COMPATIBLE}/"):
        from refusal_index.models.openai_client import openai_client  # noqa: PLC0415

        return openai_client(name, settings)
    provider, model = provider_of(name)
    if given is None and provider is not None:
        return provider.client(model, settings)
    from refusal_index.models.inspect.client import inspect_client  # noqa: PLC0415

    return inspect_client(asked, name, given, settings)


def _function_failure(error: Exception, name: str) -> Failure:
    return (
        function_failure(error)
        if isinstance(error, FunctionError)
        else classify_error(error, describe_error(error), name)
    )


class DirectEngine:
    """Sends requests one by one, so many questions at a time.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them.

    Raises
    ------
    ModelError
        If a model cannot be asked.
    """

    together = False

    def __init__(self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> None:
        self._settings, self._names = settings, names
        self._clients = {asked: self._client(asked, name, objects.get(name)) for asked, name in names.items()}

    def _client(self, asked: Role, name: str, given: object) -> Client:
        try:
            return client_for(asked, name, given, self._settings)
        except ModelError as error:
            if asked is Role.MODEL:
                raise
            message = error.args[0].rstrip(".")
            raise ModelError(
                f"grader: {message}; choose another one, or {{grader}} exact, which asks nobody"
            ) from error

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Connect, check the graders that have not replied before, and close all connections at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plain case rightly.
        """
        async with AsyncExitStack() as stack:
            for client in self._clients.values():
                if client.connection is not None:
                    await stack.enter_async_context(client.connection)
            for asked, client in self._clients.items():
                is_new = store is None or not store.has_reply_from(asked)
                if asked is not Role.MODEL and client.is_checked and is_new:
                    verdict = await self._check_grader(asked)
                    if store is not None:
                        store.put([verdict])
            yield

    async def execute(self, assignment: Assignment) -> None:
        """Ask whatever is due, so many questions at a time."""
        concurrency = max(client.concurrency for client in self._clients.values())
        at_once = self._settings.sending.max_connections or concurrency
        await carry_concurrently(assignment, self.send, self.classify_error, at_once)

    async def send(self, ask: ModelRequest) -> Response:
        """Send a request to the model that it is for."""
        return await self._clients[ask.request.role].send(ask)

    def classify_error(self, error: Exception, asked: Role) -> Failure:
        """Classify the error that a request to a model ended in."""
        return self._clients[asked].classify_error(error)

    async def _check_grader(self, asked: Role) -> Completion:
        name, ask, client, breaker = self._names[asked], plain_ask(asked), self._clients[asked], CircuitBreaker()

        async def once() -> Completion:
            return to_completions(ask, await client.send(ask))[0]

        try:
            verdict = await send_with_retries(
                once, client.classify_error, breaker, role=asked, about=name, max_retries=RETRIES
            )
        except RequestFailedError as error:
            raise unanswered(name, error.failure.message) from error
        return checked(name, asked, verdict.reply.text, verdict.input_tokens, verdict.output_tokens)
