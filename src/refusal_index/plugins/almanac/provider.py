"""The embedded models as a model provider that answers in this process, and the dataset of their questions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refusal_index.data.datasets import DatasetSource
from refusal_index.data.datasets.dataset import Dataset, DatasetError, build_questions
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Source, read_rows
from refusal_index.models.failures import classify_error, describe_error
from refusal_index.models.requests import Client, ModelError, ModelProvider, ModelRequest, Response, Send
from refusal_index.models.sent import sent_in
from refusal_index.models.settings import RequestSettings
from refusal_index.plugins.almanac import ALMANAC, ModelNotFoundError, models
from refusal_index.plugins.almanac.chat_api import ModelPool, answer
from refusal_index.plugins.almanac.runtime import hidden_states, shared_runtime
from refusal_index.protocol import Message, StopReason, write_logprobs

CONCURRENCY = 64  # enough requests in flight for large batches


class EmbeddedModels(ModelProvider):
    """The provider of the models that are part of the package."""

    names = models.MODEL_NAMES
    notes: Mapping[str, str] = MappingProxyType(
        {
            "base": "knows the frequent facts of the almanac and refuses where it knows less",
            "small": "knows less",
            "rash": "knows as much as base, but refuses less selectively",
        }
    )
    served_by = "refusal-index serve"
    is_embedded = True
    concurrency = CONCURRENCY
    reply_tokens = 8  # measured

    def __init__(self) -> None:
        self._pool = ModelPool(self.names, models.model_folder)

    def client(self, model: str, settings: RequestSettings) -> Client:  # noqa: ARG002 - required by the interface
        """Return a client for a model."""
        self.check(model)
        name = f"{ALMANAC}/{model}"
        return Client(embedded(model), lambda error: classify_error(error, describe_error(error), name), CONCURRENCY)

    def check(self, model: str) -> None:
        """Raise ModelError if no embedded model has this name."""
        try:
            models.check_name(model)
        except ModelNotFoundError as error:
            raise ModelError(f"model '{ALMANAC}/{model}': {error}") from error

    def context_length(self, model: str) -> int:
        """Return the context length of a model in tokens, prompt and reply together."""
        return shared_runtime(model).model.config.context

    def count_tokens(self, model: str, messages: Sequence[Message]) -> int:
        """Count the tokens of a conversation, markers included."""
        return len(shared_runtime(model).tokenizer.encode(messages))

    async def answer(self, model: str, body: Mapping[str, Any]) -> tuple[int, Any]:  # noqa: ARG002 - the body names it
        """Answer a request of the OpenAI chat API; return the status and the body of the response."""
        response = await answer(self._pool, body, {})
        return response.status, response.body

    def layers(self, model: str) -> int:
        """Return the number of layers of a model."""
        return shared_runtime(model).model.config.n_layers

    def weights_sha256(self, model: str) -> str:
        """Return the hash of a model's weights."""
        return sha256_of((models.model_folder(model) / "model.safetensors").read_bytes())

    def hidden_states(self, model: str, conversations: Sequence[Sequence[Message]]) -> NDArray[np.float32]:
        """Return the hidden states at the end of each conversation, shape (n, layers + 1, size)."""
        return hidden_states(model, conversations)


PROVIDER = EmbeddedModels()


def embedded(name: str) -> Send:
    """Return a function that sends requests to an embedded model."""
    runtime = shared_runtime(name)

    async def send(request: ModelRequest) -> Response:
        started = time.monotonic()
        decoding = request.decoding
        settings: dict[str, Any] = {
            "temperature": decoding.temperature if decoding else 1.0,
            "top_p": decoding.top_p if decoding else 1.0,
            "max_tokens": decoding.max_tokens if decoding else None,
            "seed": request.seed,
        }
        completions = await runtime.complete(
            request.request.messages,
            **settings,
            n=request.n,
            top_logprobs=request.top_logprobs,
        )
        return Response(
            [
                (completion.text, {"stop": StopReason.STOP, "length": StopReason.LENGTH}[completion.finish_reason])
                for completion in completions
            ],
            completions[0].prompt_tokens,
            sum(completion.completion_tokens for completion in completions),
            time.monotonic() - started,
            [
                None if completion.logprobs is None else write_logprobs(completion.logprobs)
                for completion in completions
            ],
            sent=sent_in(settings),
            answered_by=name,
        )

    return send


FILE = "almanac.jsonl"
COLUMNS = ("question", "answer", "question_id", "topic")


def load(data: Path | None = None) -> Dataset:
    """Load all questions; raises DatasetError if a file is given, since the questions are part of the package."""
    if data is not None:
        raise DatasetError(
            f"dataset {ALMANAC!r} comes with the package and takes no data, got {data}; "
            "leave it out, or choose 'own' for a file of your own"
        )
    return _installed()


@cache
def _installed() -> Dataset:
    return load_from(files("refusal_index.plugins.almanac") / "data")


def load_from(folder: Traversable) -> Dataset:
    """Load all questions from a folder; raises DatasetError if one of the two files is missing or damaged."""
    try:
        content = (folder / FILE).read_bytes()
        expected = ((folder / "almanac.sha256").read_text(encoding="ascii").split() or ["nothing"])[0]
    except OSError as error:
        raise DatasetError(f"{FILE} is missing from this installation ({error}); reinstall refusal-index") from error
    if (actual := sha256_of(content)) != expected:
        raise DatasetError(f"{FILE} is damaged: expected sha256 {expected}, got {actual}; reinstall refusal-index")
    questions = build_questions(
        read_rows(Source.from_path(FILE, "question", DatasetError), content), {column: column for column in COLUMNS}
    )
    return Dataset(ALMANAC, questions, expected, "part of the package", "exact", "Apache-2.0, part of refusal-index")


DATASET = DatasetSource(
    load,
    "2,280 questions about the fictional world that the embedded models know",
    "exact",
    limit=1000,  # takes about a minute
    takes_file=False,
)
