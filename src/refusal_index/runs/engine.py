"""Engines: they send the requests of conversations and store the replies.

All other state is derived from the store, so one engine can finish what another began. The direct engine sends requests
one by one, with the client that the model's name selects. Plugins register other engines by name.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from refusal_index import entry_points
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Grade
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import (
    RESUMES,
    CircuitBreaker,
    EndedError,
    Failure,
    RequestFailedError,
    send_with_retries,
)
from refusal_index.models.functions import (
    classify_function_error,
    function_sender,
    is_function_name,
    plain_request,
)
from refusal_index.models.requests import (
    COMPATIBLE,
    Client,
    ModelError,
    ModelRequest,
    Response,
    Send,
    model_request,
    other_models,
    provider_of,
    to_completions,
    variant_of,
)
from refusal_index.models.settings import Sending, SettingError, unknown
from refusal_index.protocol import (
    Completion,
    Conversation,
    Pass,
    Reply,
    Role,
    next_requests,
    parse_grade,
)
from refusal_index.runs.budget import Budget
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.store import ReplyStore, StoreError, StoreGoneError, as_stored


class GroupCommit:
    """Writes replies to a store; those that arrive in one turn of the event loop share a transaction."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Completion], asyncio.Future[None]]] = []

    async def put(self, completions: Sequence[Completion]) -> None:
        """Store replies; they are committed when this returns.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._write)
        done = loop.create_future()
        self._waiting.append((completions, done))
        await done

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        failed = self._try_to_write([completion for completions, _ in waiting for completion in completions])
        for completions, done in waiting:
            # Only replies that cannot be stored on their own get the error.
            error = None if failed is None else self._try_to_write(completions)
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def _try_to_write(self, completions: Sequence[Completion]) -> Exception | None:
        try:
            self._store.put(completions)
        except Exception as error:
            return error
        return None


@dataclass(frozen=True)
class Opened:
    """The run's folder is open; `finished` counts the questions without a pending request."""

    finished: int
    note: str | None = None  # what to tell the user


@dataclass(frozen=True)
class Begun:
    """The first request of a variant is about to be sent."""

    variant: str


@dataclass(frozen=True)
class Replied:
    """A reply was stored."""

    completion: Completion


@dataclass(frozen=True)
class Finished:
    """A question has no pending request under a variant."""

    variant: str
    question_id: str


@dataclass(frozen=True)
class Underway:
    """Requests are in flight, for example in batches; the note says how many are done."""

    note: str
    is_news: bool = False  # to be printed beside the progress, such as that a server cannot be reached


Event = Opened | Begun | Replied | Finished | Underway
Progress = Callable[[Event], None]
"""Called with every event while models are asked."""


def unwatched(_event: Event) -> None:
    """Ignore an event."""


class RunFailedError(RefusalIndexError, RuntimeError):
    """A run that could not be completed; replies are kept, and running it again resumes it."""


class WaitingError(RunFailedError):
    """A run that stopped as requested before it had results; the same command continues it."""


@dataclass(frozen=True)
class Assignment:
    """What an engine executes: the conversations of one variant.

    Attributes
    ----------
    dataset, variant, conversations
        The names of both, and what to ask.
    settings
        Those of the run.
    folder
        Where an engine may keep its own files, such as a journal of batches; None if it must not.
    store, progress
        Where replies go, and what is called with events.
    breaker, budget
        What can end it early.
    """

    dataset: str
    variant: str
    conversations: Sequence[Conversation]
    settings: Settings
    store: ReplyStore
    folder: RunFolder | None = None
    progress: Progress = unwatched
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))

    @cached_property
    def replies(self) -> GroupCommit:
        """Stores replies that come one by one."""
        return GroupCommit(self.store)


class Engine(Protocol):
    """Sends requests and stores replies; opened once for all variants of a run, since loading a model may be costly.

    Attributes
    ----------
    together
        Whether all variants are executed together, so that all pending requests are sent in one round.
    """

    together: bool

    def open(self, store: ReplyStore | None = None) -> AbstractAsyncContextManager[None]:
        """Check that graders grade a plain case correctly; close all models at the end.

        Parameters
        ----------
        store
            The run's store. Graders with a stored reply are not checked; the replies of the others are stored there.

        Raises
        ------
        ModelError
            If a grader does not.
        """

    async def execute(self, assignment: Assignment) -> None:
        """Send all pending requests, and store replies and failures, until the breaker opens.

        Raises
        ------
        RunFailedError
            If they could not be completed.
        KeyboardInterrupt
            If it was interrupted.
        """


MakeEngine = Callable[[Settings, Mapping[Role, str], Mapping[str, object]], Engine]
"""Makes an engine from the settings, the names of the models by role, and objects in memory by name."""


ClassifyError = Callable[[Exception, Role], Failure]
"""Classifies the error that a request to a model ended in."""


async def converse(
    assignment: Assignment, conversation: Conversation, send: Send, classify_error: ClassifyError
) -> None:
    """Send the requests about one question, one after the other, until none is pending or the run has ended.

    Replies are stored at once, and so is the reason why a request failed.

    Raises
    ------
    RequestFailedError
        If a request failed for good.
    StoreError
        If a reply cannot be kept.
    """
    store, question_id = assignment.store, conversation.question.question_id
    completions_so_far = store.completions(question_id, conversation.variant)
    try:
        while requests := next_requests(conversation, completions_so_far):
            for pending in requests:
                step = pending.step
                variant = variant_of(conversation, step.pass_)
                retired = store.times_retired(question_id, variant, step.pass_, step.role, pending.draw)
                request = model_request(assignment.settings, conversation, pending, retired)
                completions = await _completions(assignment, request, send, classify_error)
                completions_so_far += completions
                assignment.progress(Replied(completions[0]))
    except EndedError:
        return
    except RequestFailedError as error:
        store.record_failure(conversation.variant, question_id, error.failure.message)
        raise
    store.clear_failure(conversation.variant, question_id)
    assignment.progress(Finished(conversation.variant, question_id))


async def _completions(
    assignment: Assignment, request: ModelRequest, send: Send, classify_error: ClassifyError
) -> Sequence[Completion]:
    """Send a request, with retries, and return its replies, as they are stored, once they are."""
    breaker, budget, role = assignment.breaker, assignment.budget, request.request.role

    async def once() -> Sequence[Completion]:
        await budget.turn()
        if reason := budget.used_up():
            breaker.open(reason, planned=True)
            raise EndedError
        with budget.one_request():
            return to_completions(request, await send(request))

    completions = await send_with_retries(
        once,
        lambda error: classify_error(error, role),
        breaker,
        role=role,
        subject=request.conversation.question.question_id,
        max_retries=assignment.settings.sending.max_retries,
    )
    budget.count(completions, assignment.settings.accounts.prices)
    try:
        completions = as_stored(completions)
        await assignment.replies.put(completions)
    except StoreError as error:
        advice = "" if isinstance(error, StoreGoneError) else ": free some disk space"
        breaker.open(f"{error}; no further requests are sent{advice}; {RESUMES}")
        raise
    except Exception as error:  # otherwise every further reply would be paid for and lost
        reason = f"{type(error).__name__}: {error}"[:300]
        breaker.open(f"a reply cannot be kept ({reason}); no further requests are sent: please report this; {RESUMES}")
        raise
    return completions


async def execute_concurrently(
    assignment: Assignment, send: Send, classify_error: ClassifyError, concurrency: int
) -> None:
    """Send the requests about all questions, until none is pending or the run has ended.

    Parameters
    ----------
    assignment
        What to ask.
    send, classify_error
        Sends one request, and classifies the error that it ended in.
    concurrency
        Questions in progress at a time, each with one request in flight.
    """
    waiting, breaker = iter(assignment.conversations), assignment.breaker

    async def work() -> None:
        for conversation in waiting:
            if breaker.reason is not None:
                return
            try:
                await converse(assignment, conversation, send, classify_error)
            except RequestFailedError:
                pass  # the store holds the error
            except Exception:
                if breaker.reason is None:
                    raise  # otherwise the breaker has the reason

    with infrequent_gc():
        results = await asyncio.gather(*(work() for _ in range(concurrency)), return_exceptions=True)
    for error in results:  # raised once all others have finished, so that every reply is stored
        if error is not None:
            raise error


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often while the block runs.

    A run drops few objects in cycles: collecting them at the usual pace takes a fifth of its processor time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


DIRECT = "direct"
"""The engine that sends requests one by one."""

BATCH, FILES = "batch", "files"
"""The engine whose requests outlive the command, and the one that sends none itself."""

RAY, COMMAND = "ray", "command"
"""The engine that may start a cluster when it is opened, and the one that runs a program of the user's."""


def engine_names() -> list[str]:
    """Return the names of all engines: the direct one, then those of plugins in ``refusal_index.executors``."""
    return [DIRECT, *sorted(entry_points.installed("executors"))]


def engine_of(name: str) -> MakeEngine:
    """Return what makes an engine.

    Raises
    ------
    SettingError
        If there is none of that name.

    Examples
    --------
    >>> engine_of("direct").__name__
    'DirectEngine'
    """
    check_engine(name)
    plugin = None if name == DIRECT else entry_points.find("executors", name)
    if plugin is None:
        return DirectEngine
    engine: MakeEngine = entry_points.load(plugin)
    return engine


def check_engine(name: str) -> None:
    """Raise if there is no engine of that name.

    Raises
    ------
    SettingError
        The message names the known ones.
    """
    if name in ("local", "http", "inspect"):
        raise SettingError(f"engine {name!r} is now 'direct', the default: the model's name selects the client")
    if name == "vllm":
        raise SettingError(
            "engine 'vllm' is now 'command': --engine command --command 'vllm run-batch -i {{requests}} -o {{replies}} "
            "--model {{model}}'"
        )
    if name != DIRECT and entry_points.find("executors", name) is None:
        raise unknown("engine", name, engine_names())


ONLY_OF = {"detach": (BATCH,), "command": (COMMAND,), "ray_address": (RAY,), "engine_option": (BATCH, RAY)}
"""Settings that only some engines use; any other engine would silently ignore them."""

TRY_NO_GRADER = (BATCH, COMMAND, RAY, FILES)
"""Engines that do not test a grader on a plain case first, because that would take a round of its own."""

UNTRIED = (
    "note: unlike --engine direct, this engine does not first test the grader on a simple answer: a faulty grader is "
    "noticed only after its first round"
)


def check_engines_own(sending: Sending) -> None:
    """Raise if a setting is given that the engine does not use.

    Raises
    ------
    SettingError
        The message names the engines that use it.

    Examples
    --------
    >>> check_engines_own(Sending(engine="direct", detach=True))
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: detach: requires engine batch, got direct; ...
    """
    check_engine(sending.engine)
    for name, engines in ONLY_OF.items():
        is_given = sending.own_options if name == "engine_option" else getattr(sending, name)
        if is_given and sending.engine not in engines:
            raise SettingError(
                f"{{{name}}}: requires {{engine}} {' or '.join(engines)}, got {sending.engine}; leave it out, or "
                "choose that engine"
            )


def check_sends(sending: Sending) -> None:
    """Raise if the engine is 'files' where requests must really be sent.

    Raises
    ------
    SettingError
        The message names the other engines.
    """
    if sending.engine == FILES:
        others = ", ".join(other for other in engine_names() if other != FILES)
        raise SettingError(f"{{engine}}: expected an engine that sends requests, got files; choose one of {others}")


def check_limits(settings: Settings) -> None:
    """Raise if a budget is given with an engine that sends nothing.

    Raises
    ------
    SettingError
        The message says how to ask fewer questions instead.
    """
    limits = [name for name, value in vars(settings.limits).items() if value is not None]
    if limits and settings.sending.engine == FILES:
        raise SettingError(
            f"{{{limits[0]}}}: {{engine}} files sends nothing itself, so it has nothing to limit; leave it out: "
            "have as many lines of the files answered as you like; the others stay pending"
        )


def note_on(sending: Sending, graders: Iterable[str] = ()) -> str | None:
    """Return a note on how requests are sent and graded; None if there is nothing to say."""
    if sending.engine in TRY_NO_GRADER and not all(map(is_function_name, graders)):
        return UNTRIED
    return None


IN_PROCESS_CONCURRENCY = 64


def client_for(role: Role, name: str, value: object, settings: Settings) -> Client:
    """Return the client of a model.

    Functions are called in this process; ``openai-api/NAME/MODEL`` uses OpenAI's client; a plugin's models, such as
    ``almanac/base``, use the plugin's client; any other model is a provider of Inspect.

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
    send = function_sender(role, name, value)
    if send is not None:
        return Client(
            send, lambda error: classify_function_error(error, name), IN_PROCESS_CONCURRENCY, is_checked=False
        )
    if value is None and name.startswith(f"{COMPATIBLE}/"):
        from refusal_index.models.openai_client import openai_client  # noqa: PLC0415 - takes half a second

        return openai_client(name, settings)
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
        self._settings, self._names = settings, names
        self._clients: dict[Role, Client] = {}
        for role, name in names.items():
            try:
                self._clients[role] = client_for(role, name, objects.get(name), settings)
            except ModelError as error:
                if role is Role.MODEL:
                    raise
                message = error.args[0].rstrip(".")
                raise ModelError(
                    f"grader: {message}; name another with {{grader}}, or use {{grader}} exact, which sends no requests"
                ) from error

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Connect, check the graders that have not replied before, and close all connections at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plain case correctly.
        """
        async with AsyncExitStack() as stack:
            for client in self._clients.values():
                if client.connection is not None:
                    await stack.enter_async_context(client.connection)
            for role, client in self._clients.items():
                is_new = store is None or not store.has_reply_from(role)
                if role is not Role.MODEL and client.is_checked and is_new:
                    verdict = await self._check_grader(role)
                    if store is not None:
                        store.put([verdict])
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

    async def _check_grader(self, role: Role) -> Completion:
        """Have a grader judge a plain case, and return its reply, which belongs to no question of the run."""
        name, request, client = self._names[role], plain_request(role), self._clients[role]

        async def once() -> Completion:
            return to_completions(request, await client.send(request))[0]

        try:
            verdict = await send_with_retries(
                once, client.classify_error, CircuitBreaker(), role=role, subject=name, max_retries=1
            )
        except RequestFailedError as error:
            raise ModelError(f"grader '{name}' did not answer: {error.failure.message}") from error
        text = verdict.reply.text
        if parse_grade(text) is not Grade.CORRECT:
            raise ModelError(
                f"grader '{name}': expected the letter A for a plainly right answer, got {text[:80]!r}; "
                "choose another one"
            )
        reply = Reply(Pass.FIRST, role, text)
        return Completion("", "", 0, reply, 0, verdict.input_tokens, verdict.output_tokens)
