"""The embedded models as an Inspect model provider, for ``inspect eval --model almanac/base``."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    TopLogprob,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.almanac.llama import GenerationResult
from refusal_index.plugins.almanac.provider import CONCURRENCY
from refusal_index.plugins.almanac.runtime import shared_runtime
from refusal_index.protocol import Message, TokenLogprob

STOP_REASONS: dict[str, StopReason] = {"stop": "stop", "length": "max_tokens"}


@modelapi(name=ALMANAC)
def almanac() -> type[ModelAPI]:
    """Return the provider class, which Inspect finds by the part of a model name before the slash."""
    return AlmanacAPI


class AlmanacAPI(ModelAPI):
    """Passes Inspect's requests to the runtime of an embedded model."""

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
        tool_choice: ToolChoice,  # noqa: ARG002 - see `tools`
        config: GenerateConfig,
    ) -> ModelOutput:
        """Return the model's replies to one conversation."""
        completions = await self._runtime.complete(
            [Message(message.role, message.text) for message in input],
            temperature=1.0 if config.temperature is None else config.temperature,
            top_p=1.0 if config.top_p is None else config.top_p,
            max_tokens=config.max_tokens,
            stop=tuple(config.stop_seqs or ()),
            seed=config.seed,
            n=config.num_choices or 1,
            top_logprobs=(config.top_logprobs or 0) if config.logprobs else None,
        )
        input_tokens = completions[0].prompt_tokens
        output_tokens = sum(completion.completion_tokens for completion in completions)
        return ModelOutput(
            model=self.model_name,
            choices=[self._choice(completion) for completion in completions],
            usage=ModelUsage(
                input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
            ),
        )

    def max_connections(self) -> int:
        """Return the number of requests that Inspect should keep in flight."""
        return CONCURRENCY

    def _choice(self, completion: GenerationResult) -> ChatCompletionChoice:
        return ChatCompletionChoice(
            message=ChatMessageAssistant(content=completion.text, model=self.model_name, source="generate"),
            stop_reason=STOP_REASONS[completion.finish_reason],
            logprobs=None if completion.logprobs is None else Logprobs(content=[*map(_logprob, completion.logprobs)]),
        )


def _logprob(token: TokenLogprob) -> Logprob:
    likeliest = [TopLogprob(token=text, logprob=logprob) for text, logprob in token.alternatives]
    return Logprob(token=token.token, logprob=token.logprob, top_logprobs=likeliest)
