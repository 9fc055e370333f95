"""Clients for models of Inspect's providers.

The plugin is registered as the hook ``other_models``, which the core calls for each model that no other client serves.
Inspect writes a trace of every request to a folder of the user, so keys are redacted there too. An empty response is an
error. The choices of a response are packed, since Inspect keeps several copies of each.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, replace
from itertools import count
from logging import LogRecord, getLogger
from types import MappingProxyType
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
from pydantic import ValidationError

from refusal_index import entry_points
from refusal_index.errors import nearest
from refusal_index.models.chat_api import FILTERED_NOTE, choices_in, receive, reply_of, rewrite
from refusal_index.models.connections import http_client
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
from refusal_index.models.requests import OPENAI, Client, ModelError, ModelRequest, Response, check_certificates
from refusal_index.models.sent import sent_in
from refusal_index.models.settings import Decoding, RequestSettings
from refusal_index.models.stop_reasons import stop_reason_of
from refusal_index.plugins.inspect import (
    OpenAICompatibleAPI,
    PrerequisiteError,
    hooks,
    registry_find,
    registry_unqualified_name,
    use_model_event_sink,
)
from refusal_index.protocol import Request, Role, StopReason, TokenLogprob, write_logprobs
from refusal_index.redaction import (
    redacted_error,
    redacted_in,
    remember,
    remember_headers,
    remember_named,
    secrets_in_url,
    without_credentials,
)

PACKED = "packed_choices"
STOP_REASONS = {
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
}
"""Inspect's stop reasons that say that a reply is not whole."""


def replies_in(response: Mapping[str, Any] | None) -> list[tuple[str, StopReason] | None] | None:
    """Return the text and stop reason of each choice in a response of OpenAI's chat API, as the server sent them.

    Inspect changes some texts, and knows fewer stop reasons. None stands for a choice without an answer: its content is
    null without a reason, as it was not truncated, filtered or refused, and is no tool call.

    Returns
    -------
    list or None
        None for a response of any other form.

    Examples
    --------
    >>> lost, cut = ({"message": {"content": None}, "finish_reason": reason} for reason in ("stop", "length"))
    >>> replies_in({"choices": [cut, lost]})
    [('', <StopReason.LENGTH: 'length'>), None]
    """
    choices = choices_in(response)
    is_chat = bool(choices) and all(isinstance(choice.get("message"), Mapping) for choice in choices)
    return [reply_of(choice) for choice in choices] if is_chat else None


Replies = Sequence[tuple[str, StopReason] | None]


def packed(output: ModelOutput, replies: Replies | None = None) -> ModelOutput:
    """Return an output with its first answer as the only choice, and all choices as plain text in its metadata.

    The metadata holds each distinct choice once, with log probabilities if they were reported, and the original order
    as indices into the distinct choices, with null for a choice without an answer. Inspect then validates, copies and
    logs one message instead of many.

    Parameters
    ----------
    output
        The output.
    replies
        Text and stop reason of each choice, and None for a choice without an answer, as the server sent them; None if
        they are not known but from the output.
    """
    as_read = [text_and_reason(choice) for choice in output.choices]
    chosen = as_read if replies is None or len(replies) != len(as_read) else replies
    if len(as_read) < 2 and chosen == as_read:
        return output
    answers = [choice for choice, reply in zip(output.choices, chosen, strict=True) if reply is not None]
    texts = [
        None if reply is None else _as_texts(reply, choice)
        for choice, reply in zip(output.choices, chosen, strict=True)
    ]
    indices = {text: index for index, text in enumerate(dict.fromkeys(filter(None, texts)))}
    pack = {"distinct": [list(text) for text in indices], "order": [text and indices[text] for text in texts]}
    return output.model_copy(update={"choices": answers[:1], "metadata": {**(output.metadata or {}), PACKED: pack}})


def choices_of(output: ModelOutput) -> list[tuple[str, StopReason] | None]:
    """Return the text and stop reason of each choice of an output, packed or not, in the original order.

    None stands for a choice without an answer.
    """
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [text_and_reason(choice) for choice in output.choices]
    distinct = [(text, StopReason(reason)) for text, reason, *_ in pack["distinct"]]
    return [None if index is None else distinct[index] for index in pack["order"]]


def logprobs_of(output: ModelOutput) -> list[str | None]:
    """Return the log probabilities of each choice's tokens in the store's format, in the order of `choices_of`."""
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [_logprobs(choice) for choice in output.choices]
    logprobs = [(*choice, None)[2] for choice in pack["distinct"]]
    return [None if index is None else logprobs[index] for index in pack["order"]]


def without_logprobs(output: ModelOutput) -> ModelOutput:
    """Return an output, packed or not, without log probabilities."""
    choices = [choice.model_copy(update={"logprobs": None}) for choice in output.choices]
    metadata = output.metadata
    if metadata and PACKED in metadata:
        pack = metadata[PACKED]
        metadata = {**metadata, PACKED: {**pack, "distinct": [choice[:2] for choice in pack["distinct"]]}}
    return output.model_copy(update={"choices": choices, "metadata": metadata})


def _as_texts(reply: tuple[str, StopReason], choice: ChatCompletionChoice) -> tuple[str, ...]:
    logprobs = _logprobs(choice)
    texts = (reply[0], str(reply[1]))
    return texts if logprobs is None else (*texts, logprobs)


def _logprobs(choice: ChatCompletionChoice) -> str | None:
    if choice.logprobs is None:
        return None
    try:
        return write_logprobs(map(_token, choice.logprobs.content))
    except ValueError:
        return None  # the provider reported an invalid number; the reply is still valid


def _token(token: Logprob) -> TokenLogprob:
    return TokenLogprob(token.token, token.logprob, tuple((top.token, top.logprob) for top in token.top_logprobs or ()))


def text_and_reason(choice: ChatCompletionChoice) -> tuple[str, StopReason]:
    """Return the text and stop reason of a choice as Inspect knows them."""
    message = choice.message
    if message.tool_calls and not message.text.strip():
        return message.text, StopReason.TOOL_CALL
    parts = message.content if isinstance(message.content, list) else []
    if any(getattr(part, "refusal", None) for part in parts):
        return message.text, StopReason.REFUSAL
    return message.text, STOP_REASONS.get(str(choice.stop_reason), StopReason.STOP)


def _stopped(choice: ChatCompletionChoice) -> tuple[str, StopReason]:
    """Return the text and stop reason of a choice; "unknown" counts only if the provider's class has set it."""
    text, reason = text_and_reason(choice)
    is_unknown = choice.stop_reason == "unknown" and "stop_reason" in choice.model_fields_set
    return text, StopReason.UNKNOWN if is_unknown and reason is StopReason.STOP else reason


def clean_trace() -> None:
    """Redact keys in Inspect's trace log from now on."""
    getLogger(hooks.__name__).addFilter(_clean_record)


def _clean_record(record: LogRecord) -> bool:
    record.msg = redacted_error(record.getMessage())
    record.args = ()
    return True


STYLED = re.compile(r"(?s)\[(bold|dim|italic|underline|black|red|green|yellow|blue|magenta|cyan|white)\](.*?)\[/\1\]")
"""Rich markup for a style; any other bracket is part of a name."""


UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValidationError)
"""Exceptions that Inspect raises while parsing an unexpected response."""


def guard(api: ModelAPI) -> None:
    """Wrap `api.generate` so that it redacts keys in errors and results, rejects empty responses and packs choices.

    Errors keep their types and the form of their bodies, which decide whether a request is retried. An `api` that is
    guarded already, or is a copy of a guarded one, is left unchanged.
    """
    generate: Callable[..., Awaitable[Any]] = api.generate
    if hasattr(generate, "guards"):
        return
    remember(api.api_key, *secrets_in_url(str(getattr(api, "base_url", None) or "")))
    remember_headers(getattr(getattr(api, "client", None), "_custom_headers", None) or {})
    clean_trace()
    client = getattr(api, "http_client", None) or getattr(getattr(api, "client", None), "_client", None)
    if hooks := getattr(client, "event_hooks", None):
        hooks["response"] += [receive, rewrite]

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
        if call is not None:
            output = output if isinstance(output, Exception) else _with_answers(output, call.response)
            call.request = redacted_in(call.request, redacted_error)
            call.response = redacted_in(call.response, redacted_error)
        elif not isinstance(output, Exception):
            output = _with_answers(output, None)
        if isinstance(output, Exception):
            _clean_error(output)
        else:
            output = _clean_output(output, is_error=call is not None and bool(call.error))
        return (output, call) if isinstance(result, tuple) else output

    generate_guarded.guards = api  # type: ignore[attr-defined]
    setattr(api, "generate", generate_guarded)  # noqa: B010 - a plain assignment to a method is an error to the type checker


def _with_answers(output: ModelOutput, response: Mapping[str, Any] | None) -> ModelOutput:
    """Return an output packed, with the replies of the response; raise NoAnswerError if it holds no answer."""
    if not output.choices:
        raise NoAnswerError("the response holds no choices")
    replies = replies_in(response) or _reply_with_reason(output, response) or [*map(_stopped, output.choices)]
    if not any(replies):
        raise NoAnswerError("the response holds no text")
    return packed(output, replies)


def _reply_with_reason(output: ModelOutput, response: Mapping[str, Any] | None) -> Replies | None:
    """Return the reply of one of Anthropic's responses; Inspect takes its mark of a refusal for a filter."""
    word = response.get("stop_reason") if isinstance(response, Mapping) else None
    if not isinstance(word, str) or len(output.choices) != 1:
        return None
    text, reason = text_and_reason(output.choices[0])
    stopped = stop_reason_of(word)
    return [(text, reason if reason is StopReason.TOOL_CALL else stopped)]


def guarded(model: Model) -> Model:
    """Guard a model that the user created, and remember the keys in its arguments and headers for redaction."""
    guard(model.api)
    remember_named({"arguments": model.model_args, "config": model.config.model_dump()})
    for headers in (model.config.extra_headers, model.model_args.get("default_headers")):
        remember_headers(headers if isinstance(headers, dict) else {})
    return model


def _clean_error(error: BaseException | None) -> None:
    """Redact keys in an error and its causes."""
    for cause in causes(error):
        args = (unstyled(cause),) if isinstance(cause, PrerequisiteError) else cause.args
        cause.args = redacted_in(args, redacted_error)
        for name in ("message", "body"):
            if isinstance(value := getattr(cause, name, None), str | dict | list):
                with suppress(AttributeError):  # a read-only property, derived from the redacted arguments
                    setattr(cause, name, redacted_in(value, redacted_error))


def unstyled(error: PrerequisiteError) -> str:
    """Return the message of Inspect's error without Rich markup.

    >>> unstyled(PrerequisiteError("[bold]ERROR[/bold]: No [bold][blue]A_KEY[/blue][/bold] defined for x[red]-9"))
    'No A_KEY defined for x[red]-9'
    """
    message = str(error)
    while (plain := STYLED.sub(r"\2", message)) != message:
        message = plain
    return message.removeprefix("ERROR:").strip()


def _clean_output(output: ModelOutput, *, is_error: bool = False) -> ModelOutput:
    """Remove the clients' keys from an output and note that; one without keys is returned unchanged.

    An error that Inspect made an output of is filtered as an error.

    If a key was found, the log probabilities are removed, since their tokens would reveal it piece by piece.
    """
    is_error = is_error or output.error is not None
    content = output.model_dump()
    clean = redacted_in(content, redacted_error if is_error else without_credentials)
    if clean is content:
        return output
    if not is_error:
        clean["metadata"] = {**(clean["metadata"] or {}), FILTERED_NOTE: True}
    return without_logprobs(ModelOutput.model_validate(clean))


CONCURRENCY = 100
"""Default number of questions in flight; Inspect adapts its connections to the provider's rate limits."""

_pools = count()


class LastCall:
    """An event sink that keeps the body of one request; Inspect would otherwise keep all events in memory.

    Attributes
    ----------
    call
        The body as it was sent, and the response; None if the provider does not report them.
    """

    call: ModelCall | None = None

    def on_pending(self, event: ModelEvent) -> None:
        """Discard the event of a request that begins."""

    def on_complete(self, event: ModelEvent) -> None:
        """Keep the call of a request that has ended."""
        self.call = event.call


def check_name(name: str) -> None:
    """Raise ModelError if the name is malformed or the provider unknown; needs no API key."""
    provider, _, rest = name.partition("/")
    if not rest or provider not in provider_names():
        resolve_model(name)  # raises an error that says what is wrong


def make_client(role: Role, name: str, instance: object, settings: RequestSettings) -> Client:
    """Return a client for a model of one of Inspect's providers.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    instance
        An Inspect model object, which is not closed at the end; None to create the model by its name.
    settings
        The settings of the run.

    Raises
    ------
    ModelError
        If the provider is unknown, or its key or package is missing.
    """
    sending = settings.sending
    getLogger("inspect_ai").setLevel("ERROR")  # providers log a warning for each unsupported setting
    if isinstance(instance, Model):
        model = guarded(instance)
    elif instance is not None:
        raise ModelError(f"model {name!r}: expected a function or an Inspect model, got {type(instance).__name__}")
    else:
        is_model = role is Role.MODEL
        arguments = dict(sending.model_args) if is_model else {}
        model = resolve_model(name, arguments, role=role, greedy=is_model and settings.decoding.temperature == 0)
    # A connection pool belongs to one event loop, and a model given by the user may be used in several.
    pool = f"refusal-index {next(_pools)}"
    model = copy(model)
    model.api = copy(model.api)
    setattr(model.api, "connection_key", lambda: pool)  # noqa: B010 - a plain assignment to a method is an error to mypy
    config = GenerateConfig(
        max_retries=0,  # retries follow the same rules for all clients, outside of Inspect
        attempt_timeout=sending.attempt_timeout,
        max_connections=sending.max_connections,
    )
    if role is Role.MODEL:
        config = to_config(settings.decoding).merge(config)

    async def send(request: ModelRequest) -> Response:
        last = LastCall()
        with use_model_event_sink(last):
            response = await generate(model, request, config)
        if last.call is None:
            return response
        return replace(response, sent=sent_in(last.call.request), answered_by=responding(last.call))

    return Client(send, lambda error: classify(error, model), CONCURRENCY, connection=None if instance else model)


MODEL_FIELDS = ("model", "model_version", "modelVersion")
"""Fields of a response body that name the model, in the words of the providers."""


def responding(call: ModelCall) -> str | None:
    """Return the model's name in the body of a response; Inspect's output may hold the one that was asked for."""
    body = call.response or {}
    return next((name for field in MODEL_FIELDS if isinstance(name := body.get(field), str)), None)


async def generate(model: Model, request: ModelRequest, config: GenerateConfig) -> Response:
    """Send a request to an Inspect model, and return the response."""
    started = time.monotonic()
    request_config = GenerateConfig(
        seed=request.seed,
        num_choices=request.n if request.n > 1 else None,
        logprobs=None if request.top_logprobs is None else True,
        top_logprobs=request.top_logprobs or None,
    )
    output = await model.generate(chat_messages(request.request), config=config.merge(request_config))
    usage = output.usage
    return Response(
        choices_of(output),
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        time.monotonic() - started,
        () if request.top_logprobs is None else logprobs_of(output),
        is_filtered=bool((output.metadata or {}).get(FILTERED_NOTE)),
        answered_by=output.model,
    )


KINDS = {True: ChatMessageSystem, False: ChatMessageUser}


def chat_messages(request: Request) -> list[ChatMessage]:
    """Convert the messages of a request to Inspect's."""
    return [KINDS[message.role == "system"](content=message.content) for message in request.messages]


SET_IT = "set what is missing"
"""Advice for an error of Inspect that names what is missing, such as a key, but not what to do."""


def _says_how(message: str) -> bool:
    return "install" in message.lower()


def classify(error: Exception, model: Model) -> Failure:
    """Classify the error of a request to an Inspect model."""
    if isinstance(error, PrerequisiteError):  # a package that is not installed, a key that is not set
        message = describe_error(error)
        advice = RESUMES if _says_how(message) else f"{SET_IT}; {RESUMES}"
        return Failure(message, str(model), FailureKind.LASTING, advice)
    names = model.api.api_key_vars
    key_names = [name for name in names if os.environ.get(name)] or names
    return classify_error(error, describe_error(error), str(model), f"check {' or '.join(key_names) or 'the key'}")


def to_config(decoding: Decoding) -> GenerateConfig:
    """Convert decoding settings to Inspect's."""
    return GenerateConfig(**asdict(decoding))


def resolve_model(
    name: str,
    model_args: Mapping[str, Any] = MappingProxyType({}),
    *,
    role: Role = Role.MODEL,
    greedy: bool = False,
) -> Model:
    """Create the model `name`; it is not memoized, so the caller can close it.

    May be expensive: a provider that runs models on this machine loads the weights here.

    Parameters
    ----------
    name
        The name of the model.
    model_args
        Arguments for the provider, such as ``tensor_parallel_size``.
    role
        What it is asked as, which decides the options that messages name.
    greedy
        Whether the temperature will be 0, which some providers need to know when they load a model.

    Raises
    ------
    ModelError
        If the name is malformed, the provider unknown, its key or package missing, or an argument has no effect.
    """
    prefix = "" if role is Role.MODEL else "grader_"
    provider, _, rest = name.partition("/")
    if not provider or not rest:
        raise ModelError(
            f"model {name!r}: expected PROVIDER/NAME, for instance almanac/base or openai/gpt-4.1; for a server's own "
            f"name, add its address with {{{prefix}base_url}}"
        )
    providers = provider_names()
    if provider not in providers:
        near = nearest(provider, providers)
        hint = f"; did you mean {near}/{rest}?" if near else f"; expected one of {', '.join(providers)}"
        raise ModelError(f"model {name!r}: no provider is called {provider!r}{hint}")
    check_certificates()
    _check_takes(name, model_args)
    arguments: dict[str, Any] = {}
    if provider == OPENAI:  # takes half the CPU time of the client's default transport
        arguments = {"http_client": http_client()}
    if provider == "hf" and greedy:
        arguments = {"do_sample": False}  # transformers does not accept temperature 0
    try:
        model = get_model(name, memoize=False, **{**arguments, **model_args})
    except Exception as error:  # providers and their packages raise many types
        text = unstyled(error) if isinstance(error, PrerequisiteError) else str(error)
        parts = (" ".join(part.split()).rstrip(":") for part in text.split("\n\n"))
        cause = ": ".join(filter(None, parts)).rstrip(".") or type(error).__name__
        or_server = f", or name a server of your own with {{{prefix}base_url}} and {{{prefix}api_key_env}}"
        advice = f"; {SET_IT}{or_server}" if isinstance(error, PrerequisiteError) and not _says_how(cause) else ""
        raise ModelError(f"model {name!r}: {cause}{advice}") from error
    _use_our_connections(model.api)
    guard(model.api)
    client: Any = getattr(model.api, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # the engine retries, by the same rules for all clients
    _check_account(name, model.api)
    return model


SERVED = ("vllm", "sglang")
"""Providers that start a server on this machine, unless there is an address in NAME_BASE_URL."""


def _check_takes(name: str, model_args: Mapping[str, Any]) -> None:
    """Raise ModelError if arguments are for a server that another program started, which Inspect ignores."""
    provider = name.partition("/")[0]
    variable = f"{provider.upper()}_BASE_URL"
    if model_args and provider in SERVED and os.environ.get(variable):
        raise ModelError(
            f"model {name!r}: {variable} names a server that is already running, so {{model_args}} would have no "
            "effect; unset one of the two, and give the arguments where the server is started"
        )


def _use_our_connections(api: ModelAPI) -> None:
    """Make a provider that speaks the OpenAI API send over our HTTP client."""
    if not isinstance(api, OpenAICompatibleAPI) or getattr(api, "client", None) is None:
        return
    if type(api).initialize is OpenAICompatibleAPI.initialize:
        api.http_client = http_client()
        api.initialize()


def _check_account(name: str, api: ModelAPI) -> None:
    """Raise ModelError for an invalid key or address, since the errors of requests would not name the cause."""
    key = api.api_key
    address = getattr(getattr(api, "client", None), "base_url", None)
    if key and not (key.isascii() and key.isprintable()):
        where = next((variable for variable in api.api_key_vars if os.environ.get(variable)), "its key")
        raise ModelError(f"model {name!r}: {where} contains a line break or an invalid character; set it again")
    if address and not str(address).startswith(("http://", "https://")):
        raise ModelError(f"model {name!r}: expected a base URL that begins with http:// or https://, got '{address}'")


def provider_names() -> list[str]:
    """Return the names of the providers of Inspect and of plugins.

    Inspect has no public list of providers, so this reads its registry.
    """
    apis = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in apis} | entry_points.installed("models").keys())


def is_provider(prefix: str) -> bool:
    """Whether Inspect itself has a provider of this name."""
    return bool(registry_find(lambda info: info.type == "modelapi" and info.name == f"inspect_ai/{prefix}"))
