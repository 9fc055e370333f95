"""The embedded models as a provider of Inspect's, and any provider's model from its name."""

from __future__ import annotations

import os
from typing import Any

from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.registry import registry_find, registry_unqualified_name
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    Model,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    TopLogprob,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from openai import DefaultAioHttpClient

from refusal_index.data.errors import nearest
from refusal_index.models.accounts import OPENAI
from refusal_index.models.inspect.guard import guard, unstyled
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import Decoding
from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.almanac.chat import Message
from refusal_index.plugins.almanac.llama import Completion, TokenLogprob
from refusal_index.plugins.almanac.runtime import shared_runtime

NAME = ALMANAC
REQUESTS_IN_FLIGHT = 64  # fills a batch of the runtime
STOP_REASONS: dict[str, StopReason] = {"stop": "stop", "length": "max_tokens"}


@modelapi(name=NAME)
def almanac() -> type[ModelAPI]:
    """Return the provider; Inspect asks for it by the name that comes before the slash."""
    return AlmanacAPI


class AlmanacAPI(ModelAPI):
    """Carries Inspect's requests to the runtime of an embedded model."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if model_args:
            raise ValueError(f"almanac/{model_name} takes no model arguments, got {', '.join(sorted(model_args))}")
        self._runtime = shared_runtime(model_name)

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - the name in Inspect's interface
        tools: list[ToolInfo],  # noqa: ARG002 - an embedded model calls no tools
        tool_choice: ToolChoice,  # noqa: ARG002 - nor is it told to
        config: GenerateConfig,
    ) -> ModelOutput:
        """Return the model's replies to one conversation."""
        completions = await self._runtime.complete(
            [Message(message.role, message.text) for message in input],
            temperature=1.0 if config.temperature is None else config.temperature,
            top_p=1.0 if config.top_p is None else config.top_p,
            max_tokens=config.max_tokens,
            stop=config.stop_seqs or (),
            seed=config.seed,
            n=config.num_choices or 1,
            top_logprobs=(config.top_logprobs or 0) if config.logprobs else None,
        )
        return self._output(completions)

    def max_connections(self) -> int:
        """Return how many requests Inspect should keep in flight."""
        return REQUESTS_IN_FLIGHT

    def _output(self, completions: list[Completion]) -> ModelOutput:
        read, written = completions[0].prompt_tokens, sum(one.completion_tokens for one in completions)
        return ModelOutput(
            model=self.model_name,
            choices=[self._choice(one) for one in completions],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )

    def _choice(self, completion: Completion) -> ChatCompletionChoice:
        return ChatCompletionChoice(
            message=ChatMessageAssistant(content=completion.text, model=self.model_name, source="generate"),
            stop_reason=STOP_REASONS[completion.finish_reason],
            logprobs=None if completion.logprobs is None else Logprobs(content=[*map(_logprob, completion.logprobs)]),
        )


def _logprob(one: TokenLogprob) -> Logprob:
    likeliest = [TopLogprob(token=token, logprob=logprob) for token, logprob in one.alternatives]
    return Logprob(token=one.token, logprob=one.logprob, top_logprobs=likeliest)


HUGGING_FACE = "hf"


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
        where = next((one for one in api.api_key_vars if os.environ.get(one)), "its key")
        raise ModelError(f"model {name!r}: {where} holds a line break or a character that no key has; set it anew")
    if address and not str(address).startswith(("http://", "https://")):
        raise ModelError(f"model {name!r}: expected a base URL that begins with http:// or https://, got '{address}'")


def provider_names() -> list[str]:
    """Return the names of the providers that Inspect knows, this package's own among them.

    Inspect publishes no list of them, hence the look into its registry.
    """
    found = registry_find(lambda info: info.type == "modelapi")
    return sorted({registry_unqualified_name(api) for api in found} | {NAME})


def _line(error: Exception) -> str:
    return " ".join((unstyled(error) if isinstance(error, PrerequisiteError) else str(error)).split())
