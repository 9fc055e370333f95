"""What stands between Inspect and a provider: no key reaches a log, and an empty response is an error.

Inspect writes them as it goes, the header before anything is asked, so that nothing is left to clean once it is there.
It offers no hold on what is written; hence the one on what turns everything in a log into JSON. Beside them it keeps a
trace of every request, address and all, in a folder of the user's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from logging import LogRecord, getLogger
from typing import Any

from inspect_ai._util.error import PrerequisiteError
from inspect_ai.log._recorders import eval as recorder
from inspect_ai.model import (
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelCall,
    ModelOutput,
    get_model,
)
from inspect_ai.model._providers.util import hooks
from pydantic import ValidationError

from refusal_index.engines.asks import Ask, Response
from refusal_index.engines.engine import Assignment
from refusal_index.engines.failures import NoAnswerError, UnreadableReplyError, causes, told
from refusal_index.engines.functions import GradingFunction
from refusal_index.engines.inspect.multi_choice import (
    choices_of,
    logprobs_of,
    packed,
    places_without_answer,
    without_logprobs,
)
from refusal_index.engines.received import receive
from refusal_index.engines.settings import DEFAULT_GRADER
from refusal_index.protocol import Asked, Conversation, Message, Request
from refusal_index.redaction import redacted, redacted_in, remember, remember_named, secrets_in_url

NAME = "to_json_safe"
to_json: Callable[..., bytes] = getattr(recorder, NAME)


@contextmanager
def clean_logs() -> Iterator[None]:
    """Let no key into a log of Inspect's while the block runs."""
    setattr(recorder, NAME, _clean_json)
    try:
        yield
    finally:
        setattr(recorder, NAME, to_json)


def clean_trace() -> None:
    """Let no key into what Inspect traces of requests, from here on."""
    getLogger(hooks.__name__).addFilter(_clean_record)


def _clean_record(record: LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True


def _clean_json(*arguments: Any, **options: Any) -> bytes:
    return redacted(to_json(*arguments, **options).decode()).encode()


STYLED = re.compile(r"(?s)\[(bold|dim|italic|underline|black|red|green|yellow|blue|magenta|cyan|white)\](.*?)\[/\1\]")
"""Words in a style of Rich's; every other bracket is a part of some name."""


UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValidationError)
"""What Inspect raises while it parses a response that it did not expect."""


def guard(api: ModelAPI) -> None:
    """Make `api` keep keys out of what it raises or returns, refuse empty responses, and pack full ones.

    The errors keep their types and the shape of their bodies, which decide whether a request is sent again. An `api`
    that is guarded already stays as it is, as does a copy of one.
    """
    generate: Callable[..., Awaitable[Any]] = api.generate
    if hasattr(generate, "guards"):
        return
    remember(api.api_key, *secrets_in_url(str(getattr(api, "base_url", None) or "")))
    clean_trace()
    client = getattr(api, "http_client", None) or getattr(getattr(api, "client", None), "_client", None)
    if hooks := getattr(client, "event_hooks", None):
        hooks["response"].append(receive)

    async def generate_guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            result = await generate(*args, **kwargs)
        except UNREADABLE as error:
            _clean_error(error)
            raise UnreadableReplyError(f"the reply cannot be read: {told(error)}") from error
        except Exception as error:
            _clean_error(error)
            raise
        output, call = result if isinstance(result, tuple) else (result, None)
        _clean_call(call)
        if isinstance(output, Exception):
            _clean_error(output)
        else:
            output = _clean_output(_with_answers(output, call))
        return (output, call) if isinstance(result, tuple) else output

    generate_guarded.guards = api  # type: ignore[attr-defined]
    setattr(api, "generate", generate_guarded)  # noqa: B010 - a plain assignment to a method is an error to the type checker


def _with_answers(output: ModelOutput, call: ModelCall | None) -> ModelOutput:
    """Return an output packed, once there is an answer in it."""
    if not output.choices:
        raise NoAnswerError("the response holds no choices")
    without = places_without_answer(call.response if call is not None else None)
    if without.issuperset(range(len(output.choices))):
        raise NoAnswerError("the response holds no text")
    return packed(output, without)


def guarded(model: Model) -> Model:
    """Guard a model that a user made, and know the keys among its arguments and headers."""
    guard(model.api)
    remember_named({"arguments": model.model_args, "config": model.config.model_dump()})
    return model


def _clean_error(error: BaseException | None) -> None:
    """Keep keys out of an error, and of those that led to it."""
    for cause in causes(error):
        cause.args = redacted_in((unstyled(cause),) if isinstance(cause, PrerequisiteError) else cause.args)
        for name in ("message", "body"):
            if isinstance(value := getattr(cause, name, None), str | dict | list):
                with suppress(AttributeError):  # an error may make it of its arguments, which are clean
                    setattr(cause, name, redacted_in(value))


def unstyled(error: PrerequisiteError) -> str:
    """Return what Inspect wants done first without the styles that it sets for its own display, pair by pair.

    >>> unstyled(PrerequisiteError("[bold]ERROR[/bold]: No [bold][blue]A_KEY[/blue][/bold] defined for x[red]-9"))
    'No A_KEY defined for x[red]-9'
    """
    message = str(error)
    while (plain := STYLED.sub(r"\2", message)) != message:
        message = plain
    return message.removeprefix("ERROR:").strip()


def _clean_output(output: ModelOutput) -> ModelOutput:
    """Return an output without keys, the same where there are none, as nearly always.

    The tokens of one that had any go: they would tell the key in pieces.
    """
    held = output.model_dump()
    clean = redacted_in(held)
    return output if clean == held else without_logprobs(ModelOutput.model_validate(clean))


def _clean_call(call: ModelCall | None) -> None:
    if call is not None:
        call.request, call.response = redacted_in(call.request), redacted_in(call.response)


NO_RETRIES = 0
"""Retries of Inspect's own: the policy is the engines', for all of them the same."""

GRADER_ROLE, SECOND_GRADER_ROLE = str(Asked.GRADER), str(Asked.SECOND_GRADER)


@dataclass(frozen=True)
class Session:
    """A run's assignment at work.

    Attributes
    ----------
    assignment, conversations
        What is carried, and its conversations by question id.
    graders
        Functions that grade, by who is asked.
    """

    assignment: Assignment
    conversations: Mapping[str, Conversation]
    graders: Mapping[Asked, GradingFunction] = field(default_factory=dict)


_session: ContextVar[Session | None] = ContextVar("refusal_index_session", default=None)


def current_session() -> Session | None:
    """Return the session that a solver works for; None under ``inspect eval``."""
    return _session.get()


@contextmanager
def working_for(session: Session) -> Iterator[None]:
    """Have every solver inside the block work for a session."""
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


async def send(ask: Ask) -> Response:
    """Have Inspect carry one request to whom it has in that role, or a function grade."""
    session = _session.get()
    function = session.graders.get(ask.request.asked) if session else None
    if function is not None:
        return await function.graded(ask)
    started = time.monotonic()
    settings, model = session.assignment.settings.sending if session else None, model_asked(ask.request.asked)
    config = GenerateConfig(
        seed=ask.seed,
        max_retries=NO_RETRIES if settings else None,
        attempt_timeout=settings.attempt_timeout if settings else None,
        num_choices=ask.choices if ask.choices > 1 else None,
        logprobs=None if ask.top_logprobs is None else True,
        top_logprobs=ask.top_logprobs or None,
    )
    output = await model.generate(chat_messages(ask.request), config=config)
    usage = output.usage
    return Response(
        choices_of(output),
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        time.monotonic() - started,
        () if ask.top_logprobs is None else logprobs_of(output),
    )


def model_asked(asked: Asked) -> Model:
    """Return whom Inspect has for a request, guarded also where its own command resolved it."""
    if asked is Asked.MODEL:
        model = get_model()
    elif asked is Asked.GRADER:
        model = get_model(role=GRADER_ROLE, default=DEFAULT_GRADER)
    else:
        model = get_model(role=SECOND_GRADER_ROLE, required=True)
    guard(model.api)
    return model


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of a request as Inspect takes them."""
    return [_chat_message(message) for message in request.messages]


def _chat_message(message: Message) -> ChatMessage:
    kind = ChatMessageSystem if message.role == "system" else ChatMessageUser
    return kind(content=message.content)
