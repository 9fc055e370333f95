"""OpenAI's chat format as pure functions: requests, responses, and the packages that sending them needs.

Whoever speaks it, over HTTP or in files, is asked the same and read the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import chain, repeat
from typing import Any

from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import NoAnswerError
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    Due,
    Pass,
    Reply,
    Request,
    StopReason,
    TokenLogprob,
    forced_variant,
    request_seed,
    write_logprobs,
)
from refusal_index.runs.settings import Decoding, Settings

MOST_TOKENS = 2**31
"""Most tokens of one response: a larger count is a provider's mistake, as is a negative one."""

MOST_ALTERNATIVES = 20
"""Most tokens that providers report in each place of a reply."""


@dataclass(frozen=True)
class Ask:
    """A request that is about to be sent.

    Attributes
    ----------
    conversation, due, request
        What it is about, whereabouts, and in words.
    seed, choices
        As the provider is told.
    decoding
        How the model generates; None for a grader, which goes by its own defaults.
    top_logprobs
        How many of the likeliest tokens are to be reported in each place of the reply, with their log probabilities: 0
        for the chosen one only, None for no report. It changes no reply, and so is no part of the hash.
    """

    conversation: Conversation
    due: Due
    request: Request
    seed: int
    choices: int
    decoding: Decoding | None
    top_logprobs: int | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of all that is asked, which tells it from every other request of a run."""
        asked = {
            "question_id": self.conversation.question.question_id,
            "variant": variant_of(self.conversation, self.request.of),
            "draw": self.due.draw,
            "seed": self.seed,
            # as `asdict` would, in a tenth of its time
            "request": {**vars(self.request), "messages": [vars(one) for one in self.request.messages]},
            "decoding": self.decoding and vars(self.decoding),
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Response:
    """What came back for a request: one choice or several, and what they took together.

    Attributes
    ----------
    replies
        Text and stop reason of each choice, as the protocol knows them; None for a choice that holds no answer.
    input_tokens, output_tokens, seconds
        Of the whole response.
    logprobs
        Of each choice, as JSON; None for one of which nothing was reported, empty where nothing was of any.
    in_batch
        Whether it came in a provider's batch.
    """

    replies: Sequence[tuple[str, StopReason] | None]
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    logprobs: Sequence[str | None] = ()
    in_batch: bool = False


Send = Callable[[Ask], Awaitable[Response]]
"""Sends one request, once; it raises what the provider raises."""


def ask_for(settings: Settings, conversation: Conversation, one: Due, again: int = 0) -> Ask:
    """Put what is due into a request with its seed.

    Parameters
    ----------
    settings, conversation, one
        Those of the run, and what is due about what.
    again
        How many replies to it were set aside, to be asked for again: each request has a seed of its own.
    """
    question = conversation.question
    request = conversation.procedure.request(one.step, question)
    attempt = replace(request, attempt=request.attempt + again) if again else request
    seed = conversation.seed
    if seed is None:
        seed = request_seed(settings.seed, question.question_id, one.draw, conversation.variant, attempt)
    decoding = settings.decoding if request.asked is Asked.MODEL else None
    choices = min(one.choices, settings.sending.max_choices)
    return Ask(conversation, one, request, seed, choices, decoding, _top_logprobs(settings, request))


def _top_logprobs(settings: Settings, request: Request) -> int | None:
    if not settings.sending.logprobs or request.asked is not Asked.MODEL:
        return None
    return MOST_ALTERNATIVES if request.of is Pass.PROBE else 0


def completed(ask: Ask, response: Response) -> list[Completion]:
    """Return a completion for every choice of a response that holds an answer; what it took goes with the first.

    Raises
    ------
    NoAnswerError
        If there is none.
    """
    variant = variant_of(ask.conversation, ask.request.of)
    reported = chain(response.logprobs, repeat(None))
    found = [
        Completion(
            ask.conversation.question.question_id,
            variant,
            ask.due.draw + place,
            Reply(ask.request.of, ask.request.asked, *choice),
            ask.request.attempt,
            requests=0,
            logprobs=logprobs,
            request_sha256=ask.sha256,
            in_batch=response.in_batch,
        )
        for place, (choice, logprobs) in enumerate(zip(response.replies[: ask.choices], reported, strict=False))
        if choice is not None
    ]
    if not found:
        raise NoAnswerError("the response holds no answer")
    took = replace(
        found[0],
        input_tokens=_believable(response.input_tokens),
        output_tokens=_believable(response.output_tokens),
        requests=1,
        seconds=response.seconds,
    )
    return [took, *found[1:]]


def _believable(tokens: int) -> int:
    """Return a provider's count, or 0, as where there is none, for one that no response can have."""
    return tokens if 0 <= tokens <= MOST_TOKENS else 0


def variant_of(conversation: Conversation, of: Pass) -> str:
    """Return the variant that a reply is stored under."""
    return forced_variant(conversation.variant) if of.is_shared else conversation.variant


DISTRIBUTION = "refusal-index"


class IncompatibleError(RefusalIndexError, RuntimeError):
    """A package that is installed in a release that this one cannot work with."""


def check_names(package: str, names: Iterable[str]) -> None:
    """Raise if a package lacks names that this one rests on and that it does not promise to keep.

    Parameters
    ----------
    package
        As it is installed.
    names
        Each with its module, as in ``"module:name"``.

    Raises
    ------
    IncompatibleError
        The message says which release is installed, which were tested, and how to get one.
    ModuleNotFoundError
        If the package is not installed at all.

    Examples
    --------
    >>> check_names("numpy", ["numpy.linalg:eigh"])
    >>> check_names("numpy", ["numpy.linalg:tetrachoric"])
    Traceback (most recent call last):
    refusal_index.models.asks.IncompatibleError: numpy ... has no numpy.linalg:tetrachoric: ...
    """
    for each in names:
        module, _, name = each.partition(":")
        import_module(module.partition(".")[0])
        try:
            if not hasattr(import_module(module), name):
                import_module(f"{module}.{name}")
        except ImportError as error:
            raise IncompatibleError(
                f"{package} {_installed(package)} has no {each}: this release was tested with "
                f"{package} {range_of(package) or 'another one'}; pip install '{package}{range_of(package)}'"
            ) from error


def range_of(package: str) -> str:
    """Return the releases of a package that this one is tested with, as pip has them; empty where any will do.

    Examples
    --------
    >>> range_of("no-such-package")
    ''
    """
    try:
        found = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from its sources, without being installed
        return ""
    for one in found:
        name, versions = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", one).groups()  # type: ignore[union-attr]
        if name.lower() == package:
            return ",".join(sorted((part.strip(" ()") for part in versions.split(",")), reverse=True))
    return ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(of an unknown release)"


Json = dict[str, Any]

REASONING_MODELS = re.compile(r"(o\d|gpt-5(?!-chat))")
"""Models of OpenAI's that take no temperature, and count their reasoning among the tokens of a reply."""

STOP_REASONS = {"length": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}
TEXTS = ("content", "refusal")
REFUSED_PROMPTS = {
    "context_length_exceeded": StopReason.LENGTH,
    **dict.fromkeys(
        ("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy", "cyber_policy"),
        StopReason.CONTENT_FILTER,
    ),
}
"""Errors by which a provider says that it takes no such prompt: asking again would not help."""

TOOL_CALLS = ("tool_calls", "function_call")
ENDED_BY_ITSELF = ("stop", "eos", None)


def chat_body(ask: Ask, model: str, provider: str = "") -> Json:
    """Return the body of a request to ``/v1/chat/completions``.

    Parameters
    ----------
    ask
        What is asked, and how the model generates.
    model, provider
        What the server calls the model, and who it is: OpenAI itself has other names for some fields.
    """
    body: Json = {
        "model": model,
        "messages": [{"role": one.role, "content": one.content} for one in ask.request.messages],
        "seed": ask.seed,
    }
    if ask.decoding is not None:
        at_openai = provider == "openai"
        if not (at_openai and REASONING_MODELS.match(model)):
            body |= {"temperature": ask.decoding.temperature, "top_p": ask.decoding.top_p}
        body["max_completion_tokens" if at_openai else "max_tokens"] = ask.decoding.max_tokens
        if ask.decoding.reasoning_effort is not None:
            body["reasoning_effort"] = ask.decoding.reasoning_effort
    if ask.choices > 1:
        body["n"] = ask.choices
    if ask.top_logprobs is not None:
        body["logprobs"] = True
        if ask.top_logprobs:
            body["top_logprobs"] = ask.top_logprobs
    return body


def read_chat(body: Any, seconds: float | None = None) -> Response:
    """Return the response that the body of a chat completion holds.

    Parameters
    ----------
    body
        As it came: nothing about it is taken for granted.
    seconds
        How long it took, where that is known.

    Raises
    ------
    NoAnswerError
        If there is no choice in it.

    Examples
    --------
    >>> read_chat({"choices": [{"message": {"content": "Lima"}, "finish_reason": "stop"}]}).replies
    [('Lima', <StopReason.STOP: 'stop'>)]
    """
    known = choices_in(body)
    if not known:
        raise NoAnswerError("the response holds no choices")
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return Response(
        [reply_of(one) for one in known],
        count_in(usage.get("prompt_tokens")),
        count_in(usage.get("completion_tokens")),
        seconds,
        [_logprobs(one) for one in known],
    )


def read_refused_prompt(error: Any, seconds: float | None = None) -> Response | None:
    """Return the response that an error 400 comes down to: the prompt was filtered, or is too long for the model.

    Parameters
    ----------
    error, seconds
        The error within the body, and how long it took.

    Returns
    -------
    Response or None
        None for any other error.

    Examples
    --------
    >>> read_refused_prompt({"message": "too long", "code": "context_length_exceeded"}).replies
    [('too long', <StopReason.LENGTH: 'length'>)]
    """
    code = error.get("code") if isinstance(error, Mapping) else None
    reason = REFUSED_PROMPTS.get(code) if isinstance(code, str) else None
    return None if reason is None else Response([(str(error.get("message") or ""), reason)], seconds=seconds)


def choices_in(body: Any) -> list[Mapping[str, Any]]:
    """Return the choices of a response in their order; none of what is no response."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    known = [one for one in choices if isinstance(one, Mapping)] if isinstance(choices, list) else []
    return sorted(known, key=lambda one: count_in(one.get("index")))


def reply_of(choice: Mapping[str, Any]) -> tuple[str, StopReason] | None:
    """Return text and stop reason of a choice; None where it holds no text, and nothing says why.

    Examples
    --------
    >>> reply_of({"message": {"content": 42}, "finish_reason": "stop"}) is None
    True
    """
    message, reason = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, Mapping):
        return None
    texts = [text_in(message.get(name)) for name in TEXTS]
    text = next(filter(None, texts), "")
    if not text.strip() and any(message.get(name) for name in TOOL_CALLS):
        return text, StopReason.TOOL_CALL
    reason = reason if isinstance(reason, str) else None
    if reason in ENDED_BY_ITSELF and all(one is None for one in texts):
        return None
    return text, STOP_REASONS.get(reason or "", StopReason.STOP)


def text_in(content: Any) -> str | None:
    """Return the text of a message, which some servers send in parts; None where it holds none."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [one["text"] for one in parts if isinstance(one, Mapping) and isinstance(one.get("text"), str)]
    return "".join(texts) if texts else None


def _logprobs(choice: Mapping[str, Any]) -> str | None:
    reported = choice.get("logprobs")
    content = reported.get("content") if isinstance(reported, Mapping) else None
    if not isinstance(content, list):
        return None
    try:
        return write_logprobs(map(_token, content))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None  # what is reported is none: the reply itself is as good as any


def _token(one: Mapping[str, Any]) -> TokenLogprob:
    alternatives = one.get("top_logprobs") or ()
    return TokenLogprob(
        str(one["token"]),
        float(one["logprob"]),
        tuple((str(other["token"]), float(other["logprob"])) for other in alternatives),
    )


def count_in(value: Any) -> int:
    """Return a count of tokens as a provider gives it; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


CARRIED = "carried"
"""Where in a sample's metadata they stand."""


def to_metadata(completions: Iterable[Completion]) -> list[dict[str, Any]]:
    """Return completions for a log: each distinct reply once, with its draws and all that it took."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for one in completions:
        entry = {
            "of": str(one.reply.of),
            "asked": str(one.reply.asked),
            "attempt": one.attempt,
            "text": one.reply.text,
            "stop_reason": str(one.reply.stop_reason),
        }
        kept = found.setdefault(
            tuple(entry.values()), {**entry, "input_tokens": 0, "output_tokens": 0, "draws": [], "requests": 0}
        )
        for name in ("input_tokens", "output_tokens", "requests"):
            kept[name] += getattr(one, name)
        kept["draws"].append(one.draw)
    return list(found.values())


def from_metadata(entries: Iterable[Mapping[str, Any]], question_id: str, variant: str) -> Iterator[Completion]:
    """Yield the completions that a log's sample holds; what a reply took goes with the first of its draws.

    A verdict counts in the first draw of the reply that it is on.
    """
    for entry in entries:
        reply = Reply(Pass(entry["of"]), Asked(entry["asked"]), entry["text"], StopReason(entry["stop_reason"]))
        draws = entry["draws"]
        own = "" if reply.of.is_shared else variant
        took = (entry["input_tokens"], entry["output_tokens"], entry["requests"])
        for place, draw in enumerate(draws if reply.asked is Asked.MODEL else draws[:1]):
            yield Completion(question_id, own, draw, reply, entry["attempt"], *(took if place == 0 else (0, 0, 0)))
