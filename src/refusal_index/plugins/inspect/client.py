"""Models of Inspect's providers as clients: a name becomes a model, and its `generate` answers requests.

The plugin is registered as the hook ``other_models``: the core asks it about every model that no other client serves.
Inspect traces every request in a folder of the user's, so keys are redacted there too; an empty response is an error;
and the choices of a response are packed, since Inspect keeps several copies of each.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from copy import copy
from itertools import count
from logging import LogRecord, getLogger
from typing import Any

from inspect_ai.event import ModelEvent
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Logprob,
    Model,
    ModelAPI,
    ModelCall,
    ModelOutput,
    get_model,
)
from openai import DefaultAioHttpClient
from pydantic import ValidationError

from refusal_index import entry_points
from refusal_index.data.errors import nearest
from refusal_index.models.chat_api import choices_in, receive, reply_of
from refusal_index.models.failures import (
    RESUMES,
    Failure,
    FailureKind,
    NoAnswerError,
    UnreadableReplyError,
    causes,
    classify_error,
    describe_error,
)
from refusal_index.models.requests import OPENAI, Client, ModelError, ModelRequest, Response
from refusal_index.models.settings import Decoding, RequestSettings
from refusal_index.plugins.inspect import (
    PrerequisiteError,
    hooks,
    registry_find,
    registry_unqualified_name,
    use_model_event_sink,
)
from refusal_index.protocol import Request, Role, StopReason, TokenLogprob, write_logprobs
from refusal_index.redaction import redacted, redacted_in, remember, remember_named, secrets_in_url

PACKED = "packed_choices"
STOP_REASONS = {
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
}
TOOL_CALLS = str(StopReason.TOOL_CALL)


def places_without_answer(response: Mapping[str, Any] | None) -> set[int]:
    """Return the places of the choices that are no answer, of a response as OpenAI's chat interface gives it.

    Such a choice holds null instead of a text, and nothing says why: it was not cut, filtered, refused or a tool call.
    In any other shape of response all choices count as answers.

    Examples
    --------
    >>> lost, cut = ({"message": {"content": None}, "finish_reason": reason} for reason in ("stop", "length"))
    >>> places_without_answer({"choices": [cut, lost]})
    {1}
    """
    choices = enumerate(choices_in(response))
    return {
        place for place, choice in choices if isinstance(choice.get("message"), Mapping) and reply_of(choice) is None
    }


def packed(output: ModelOutput, without_answer: Container[int] = ()) -> ModelOutput:
    """Return an output with its first answer only, and all of its choices as plain text among its metadata.

    Each distinct choice is there once, with the log probabilities of its tokens where they were reported, and the order
    in which they came as places among those, null for one without an answer. What Inspect does with every message of an
    output, from checking it to writing it into its log, is then done for one.
    """
    if len(output.choices) < 2:
        return output
    answers = [choice for place, choice in enumerate(output.choices) if place not in without_answer]
    came = [None if place in without_answer else _whole(choice) for place, choice in enumerate(output.choices)]
    places = {choice: place for place, choice in enumerate(dict.fromkeys(filter(None, came)))}
    pack = {"distinct": [list(choice) for choice in places], "order": [choice and places[choice] for choice in came]}
    return output.model_copy(update={"choices": answers[:1], "metadata": {**(output.metadata or {}), PACKED: pack}})


def choices_of(output: ModelOutput) -> list[tuple[str, StopReason] | None]:
    """Return the text of every choice and why it ended, in the order they came, whether packed or not.

    None stands for a choice without an answer.
    """
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [_read(*_text(choice)) for choice in output.choices]
    return [None if place is None else _read(*pack["distinct"][place][:2]) for place in pack["order"]]


def logprobs_of(output: ModelOutput) -> list[str | None]:
    """Return the log probabilities of every choice's tokens as the store keeps them, in the order of `choices_of`."""
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [_logprobs(choice) for choice in output.choices]
    whole = [(*choice, None)[2] for choice in pack["distinct"]]
    return [None if place is None else whole[place] for place in pack["order"]]


def without_logprobs(output: ModelOutput) -> ModelOutput:
    """Return an output, packed or not, without the log probabilities of its tokens."""
    choices = [choice.model_copy(update={"logprobs": None}) for choice in output.choices]
    metadata = output.metadata
    if metadata and PACKED in metadata:
        pack = metadata[PACKED]
        metadata = {**metadata, PACKED: {**pack, "distinct": [choice[:2] for choice in pack["distinct"]]}}
    return output.model_copy(update={"choices": choices, "metadata": metadata})


def _whole(choice: ChatCompletionChoice) -> tuple[str, ...]:
    reported = _logprobs(choice)
    return _text(choice) if reported is None else (*_text(choice), reported)


def _logprobs(choice: ChatCompletionChoice) -> str | None:
    if choice.logprobs is None:
        return None
    try:
        return write_logprobs(map(_token, choice.logprobs.content))
    except ValueError:
        return None  # a provider's number that is none: the reply itself is as good as any


def _token(token: Logprob) -> TokenLogprob:
    return TokenLogprob(token.token, token.logprob, tuple((top.token, top.logprob) for top in token.top_logprobs or ()))


def _text(choice: ChatCompletionChoice) -> tuple[str, str]:
    reason = TOOL_CALLS if choice.message.tool_calls else str(choice.stop_reason)
    return choice.message.text, reason


def _read(text: str, reason: str) -> tuple[str, StopReason]:
    if reason == TOOL_CALLS and not text.strip():
        return text, StopReason.TOOL_CALL
    return text, STOP_REASONS.get(reason, StopReason.STOP)


def clean_trace() -> None:
    """Let no key into what Inspect traces of requests, from here on."""
    getLogger(hooks.__name__).addFilter(_clean_record)


def _clean_record(record: LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True


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
            raise UnreadableReplyError(f"the reply cannot be read: {describe_error(error)}") from error
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


HUGGING_FACE = "hf"

CONCURRENCY = 100
"""Questions in flight, unless the settings say otherwise; Inspect adapts its connections to the provider's limits."""

_pools = count()


class NoTranscript:
    """Drops the events that Inspect would keep of each request for as long as the process runs."""

    def on_pending(self, event: ModelEvent) -> None:
        """Drop a request that begins."""

    def on_complete(self, event: ModelEvent) -> None:
        """Drop a request that has ended."""


def check_name(name: str) -> None:
    """Raise ModelError if no provider has such a model; no key is needed."""
    provider, _, rest = name.partition("/")
    if not rest or provider not in provider_names():
        resolve_model(name)  # its error says what is wrong with the name


def make_client(role: Role, name: str, given: object, settings: RequestSettings) -> Client:
    """Return the client of a model of Inspect's.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    given
        A model of Inspect in memory, which stays open at the end; None for the model of that name.
    settings
        Those of the run.

    Raises
    ------
    ModelError
        If there is no such provider, or its key or package is missing.
    """
    sending = settings.sending
    getLogger("inspect_ai").setLevel("ERROR")  # providers warn of each setting that they do not support
    if isinstance(given, Model):
        model = guarded(given)
    elif given is not None:
        raise ModelError(f"model {name!r}: expected a function or a model of Inspect, got {type(given).__name__}")
    else:
        model = resolve_model(name, greedy=role is Role.MODEL and settings.decoding.temperature == 0)
    # A pool of connections belongs to one event loop, and a model that was handed over may be asked in several.
    pool, model = f"refusal-index {next(_pools)}", copy(model)
    model.api = copy(model.api)
    setattr(model.api, "connection_key", lambda: pool)  # noqa: B010 - a plain assignment to a method is an error to mypy
    own = GenerateConfig(
        max_retries=0,  # every client is retried by the same rules, outside of Inspect
        attempt_timeout=sending.attempt_timeout,
        max_connections=sending.max_connections,
    )
    if role is Role.MODEL:
        own = to_config(settings.decoding).merge(own)

    async def send(ask: ModelRequest) -> Response:
        with use_model_event_sink(NoTranscript()):
            return await generate(model, ask, own)

    return Client(send, lambda error: classify(error, model), CONCURRENCY, connection=None if given else model)


async def generate(model: Model, ask: ModelRequest, config: GenerateConfig) -> Response:
    """Send a request to a model of Inspect, and return its response."""
    started = time.monotonic()
    own = GenerateConfig(
        seed=ask.seed,
        num_choices=ask.n if ask.n > 1 else None,
        logprobs=None if ask.top_logprobs is None else True,
        top_logprobs=ask.top_logprobs or None,
    )
    output = await model.generate(chat_messages(ask.request), config=config.merge(own))
    usage = output.usage
    return Response(
        choices_of(output),
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        time.monotonic() - started,
        () if ask.top_logprobs is None else logprobs_of(output),
    )


KINDS = {True: ChatMessageSystem, False: ChatMessageUser}


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of a request as Inspect takes them."""
    return [KINDS[message.role == "system"](content=message.content) for message in request.messages]


def classify(error: Exception, model: Model) -> Failure:
    """Classify the error that a request to a model of Inspect ended in."""
    if isinstance(error, PrerequisiteError):  # a package that is not installed, a key that is not set
        return Failure(describe_error(error), str(model), FailureKind.LASTING, f"provide what it names; {RESUMES}")
    names = model.api.api_key_vars
    known = [name for name in names if os.environ.get(name)] or names
    return classify_error(error, describe_error(error), str(model), " or ".join(known) or "the key")


def to_config(decoding: Decoding) -> GenerateConfig:
    """Return how a model generates as Inspect's configuration."""
    return GenerateConfig(
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        max_tokens=decoding.max_tokens,
        reasoning_effort=decoding.reasoning_effort,
    )


def resolve_model(name: str, config: GenerateConfig | None = None, *, greedy: bool = False) -> Model:
    """Return the model `name`, not shared with anyone, so that whoever asked for it can close it.

    It may be costly: a provider that runs weights on this machine loads them here.

    Parameters
    ----------
    name, config
        The model, and how it generates unless told otherwise.
    greedy
        Whether it will be asked at temperature 0, which some providers have to be told when they load a model.

    Raises
    ------
    ModelError
        If the provider is unknown, its key or its package is missing, or the name is not well formed.
    """
    provider, _, rest = name.partition("/")
    if not provider or not rest:
        raise ModelError(f"model {name!r}: expected PROVIDER/NAME, for instance almanac/base or openai/gpt-4.1")
    known = provider_names()
    if provider not in known:
        near = nearest(provider, known)
        hint = f"; did you mean {near}/{rest}?" if near else f"; expected one of {', '.join(known)}"
        raise ModelError(f"model {name!r}: no provider is called {provider!r}{hint}")
    arguments: dict[str, Any] = {}
    if provider == OPENAI:  # this transport takes half the processor time of the client's default one
        arguments = {"http_client": DefaultAioHttpClient()}
    if provider == HUGGING_FACE and greedy:
        arguments = {"do_sample": False}  # transformers takes no temperature of 0
    try:
        model = get_model(name, config=config or GenerateConfig(), memoize=False, **arguments)
    except Exception as error:  # whatever the provider or its package raises for a missing key or an unknown name
        raise ModelError(f"model {name!r}: {_line(error) or type(error).__name__}") from error
    guard(model.api)
    client: Any = getattr(model.api, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # the engine sends failed requests again, for every client by the same rules
    _check_account(name, model.api)
    return model


def _check_account(name: str, api: ModelAPI) -> None:
    """Raise ModelError for a key or an address that no request can be sent with: each would fail, and say little."""
    key, address = api.api_key, getattr(getattr(api, "client", None), "base_url", None)
    if key and not (key.isascii() and key.isprintable()):
        where = next((variable for variable in api.api_key_vars if os.environ.get(variable)), "its key")
        raise ModelError(f"model {name!r}: {where} contains a line break or an invalid character; set it again")
    if address and not str(address).startswith(("http://", "https://")):
        raise ModelError(f"model {name!r}: expected a base URL that begins with http:// or https://, got '{address}'")


def provider_names() -> list[str]:
    """Return the names of the providers that Inspect or a plugin has.

    Inspect publishes no list of them, hence the look into its registry.
    """
    apis = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in apis} | entry_points.installed("models").keys())


def _line(error: Exception) -> str:
    return " ".join((unstyled(error) if isinstance(error, PrerequisiteError) else str(error)).split())
