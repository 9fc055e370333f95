"""The direct engine: it sends requests one by one, with the client that a model's name selects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from refusal_index.data.outcome import Grade
from refusal_index.models.calls import FunctionError
from refusal_index.models.failures import CircuitBreaker, Failure, FailureKind, RequestFailedError, send_with_retries
from refusal_index.models.functions import (
    LETTERS,
    PLAIN_CASES,
    PLAIN_QUESTION,
    WRONG_CASE,
    classify_function_error,
    function_sender,
    plain_request,
)
from refusal_index.models.requests import (
    Client,
    ModelError,
    ModelRequest,
    Response,
    other_models,
    provider_of,
    to_completions,
)
from refusal_index.protocol import Completion, Pass, Reply, Role, load_grader_prompt, parse_grade
from refusal_index.protocol.refusals import MODEL_PREFIX
from refusal_index.runs.conversing import execute_concurrently
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

IN_PROCESS_CONCURRENCY = 64

CHECK_RETRIES = 3
"""How often the check of a grader sends a failed request again: a provider that fails now and then is no bad grader."""


def client_for(role: Role, name: str, value: object, settings: Settings) -> Client:
    """Return the client of a model.

    Functions are called in this process; a model with a base URL in the settings uses OpenAI's client; a plugin's
    models, such as ``almanac/base``, use the plugin's client; any other model is a provider of Inspect.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    value
        A function or a model of Inspect registered under this name; None if there is only the name.
    settings
        Those of the run.

    Raises
    ------
    ModelError
        If the model cannot be asked.
    """
    send = function_sender(role, name, value, settings.sending)
    if send is not None:
        return Client(
            send, lambda error: classify_function_error(error, name), IN_PROCESS_CONCURRENCY, is_checked=False
        )
    if value is None and settings.servers.of_role(role).base_url is not None:
        from refusal_index.models.openai_client import openai_client  # noqa: PLC0415 - takes half a second

        return openai_client(role, name, settings)
    provider, model = provider_of(name)
    if value is None and provider is not None:
        return provider.client(model, settings)
    return other_models().make_client(role, name, value, settings)


class DirectEngine:
    """Sends requests one by one, about several questions at a time.

    Parameters
    ----------
    settings, names, objects
        The arguments of `MakeEngine`.

    Raises
    ------
    ModelError
        If a model cannot be asked.
    """

    together = False

    def __init__(self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> None:
        self._settings = settings
        self._names = names
        self._clients: dict[Role, Client] = {}
        for role, name in names.items():
            try:
                self._clients[role] = client_for(role, name, objects.get(name), settings)
            except ModelError as error:
                if role is Role.MODEL:
                    raise
                message = error.args[0].rstrip(".")
                raise ModelError(
                    f"grader: {message}; name another with {{grader}}, or use {{grader}} includes, which asks no model"
                ) from error

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Connect, check the graders that have not replied before, and close all connections at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plainly right, wrong or refused answer correctly.
        RunFailedError
            If a grader does not answer.
        """
        async with AsyncExitStack() as stack:
            for client in self._clients.values():
                if client.connection is not None:
                    await stack.enter_async_context(client.connection)
            for role, client in self._clients.items():
                is_new = store is None or not store.has_reply_from(role)
                if role is Role.MODEL or not is_new:
                    continue
                if client.is_checked:
                    verdicts = [await self._check_grader(role, place) for place in range(len(PLAIN_CASES))]
                else:
                    verdicts = await self._check_function(role)
                if store is not None:
                    store.put(verdicts)
            yield

    async def execute(self, assignment: Assignment) -> None:
        """Send all pending requests, and store replies and failures."""
        concurrency = max(client.concurrency for client in self._clients.values())
        concurrency = self._settings.sending.max_connections or concurrency
        await execute_concurrently(assignment, self.send, self.classify_error, concurrency)

    async def send(self, request: ModelRequest) -> Response:
        """Send a request to the model that it is for."""
        return await self._clients[request.request.role].send(request)

    def classify_error(self, error: Exception, role: Role) -> Failure:
        """Classify the error that a request to a model ended in."""
        return self._clients[role].classify_error(error)

    async def _check_function(self, role: Role) -> list[Completion]:
        """Have a function judge a plainly wrong answer, and return its reply, if any, as `_check_grader` does.

        A function that raises is not refused: it may need questions of its own.
        """
        request = plain_request(role, WRONG_CASE)
        try:
            response = await self._clients[role].send(request)
        except FunctionError:
            return []
        if response.replies[0] and response.replies[0][0] == LETTERS[Grade.CORRECT]:
            raise ModelError(
                f"grader '{self._names[role]}': expected 'incorrect' for a plainly wrong answer, {WRONG_CASE.answer!r} "
                f"to {PLAIN_QUESTION.text!r} with the gold answer {PLAIN_QUESTION.gold!r}, got 'correct'; correct the "
                "function"
            )
        return [Completion("", "", 0, to_completions(request, response)[0].reply, 0)]

    async def _check_grader(self, role: Role, place: int) -> Completion:
        """Have a grader judge a plain case, and return its reply, which belongs to no question of the run."""
        case = PLAIN_CASES[place]
        only_attempt = (self._settings.refusal or "").startswith(MODEL_PREFIX)
        path = self._settings.grader_prompt
        grader_prompt = None if path is None else load_grader_prompt(path)
        or_prompt = "" if path is None else f", or correct what {path} asks for"
        request = plain_request(role, case, only_attempt=only_attempt, grader_prompt=grader_prompt)
        name = self._names[role]
        client = self._clients[role]
        expected = Grade.INCORRECT if only_attempt and case.grade is Grade.CORRECT else case.grade

        async def once() -> Completion:
            return to_completions(request, await client.send(request))[0]

        try:
            verdict = await send_with_retries(
                once, client.classify_error, CircuitBreaker(), role=role, subject=name, max_retries=CHECK_RETRIES
            )
        except RequestFailedError as error:
            advice = f"; {error.failure.advice}" if error.failure.kind is FailureKind.LASTING else ""
            raise RunFailedError(f"grader '{name}' did not answer: {error.failure.message}{advice}") from error
        text = verdict.reply.text
        if parse_grade(text) is not expected:
            raise ModelError(
                f"grader '{name}': expected the letter {LETTERS[expected]} for a plainly {case.kind} answer, "
                f"{case.answer!r} to {PLAIN_QUESTION.text!r}, got {text[:80]!r}; choose another one{or_prompt}"
            )
        reply = Reply(Pass.FIRST, role, text)
        return Completion("", "", 0, reply, place, verdict.input_tokens, verdict.output_tokens)
