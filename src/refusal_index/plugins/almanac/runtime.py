"""The runtime of an embedded model: concurrent requests share one running batch; also hidden states of prompts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from collections.abc import Sequence as Sequence_
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

from refusal_index.plugins.almanac import ContextLengthError
from refusal_index.plugins.almanac.decoding import Cohort, Decoder, Prefix, PrefixStore, run
from refusal_index.plugins.almanac.llama import GenerationRequest, GenerationResult, GenerationSettings, Llama, Sequence
from refusal_index.plugins.almanac.models import ChatTokenizer, FloatArray, IntArray, model_folder
from refusal_index.protocol import Message


class _OneBlasThread:
    """A context manager that limits BLAS to one thread in the process until its last user exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                _release_blas_control()
                self._limiter = ThreadpoolController().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _release_blas_control()
                self._limiter.restore_original_limits()
                _release_blas_control()


def _release_blas_control() -> None:
    """Allow any thread to set the number of BLAS threads.

    OpenBLAS lets only the thread that last set the number change it, as long as that thread lives. With two models in a
    process, the second could then not set the limit, and the last user could not remove it.
    """
    OpenBLASController.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()


@dataclass(eq=False)
class _Job:
    """A request in progress, and the future that its caller awaits."""

    sequences: list[Sequence]
    future: Future[list[GenerationResult]]

    def settle(self) -> bool:
        """Set the result of the future if all replies are finished; return whether the job is over."""
        if self.future.cancelled():
            for sequence in self.sequences:
                sequence.abandoned = True
            return True
        if not all(sequence.is_over for sequence in self.sequences):
            return False
        completions = [sequence.completion() for sequence in self.sequences]
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completions)
        return True

    def fail(self, error: BaseException) -> None:
        """Set an error as the result of the future, unless it is done."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Runtime:
    """A model and the single thread that runs it.

    Requests may come from several event loops; concurrent requests are batched. Cancelling the task that awaits a reply
    drops the reply from the batch. The thread idles between requests and ends with the runtime or the program.

    Parameters
    ----------
    folder
        A Llama checkpoint with a ChatML tokenizer; `model_folder` returns those of the embedded models.

    Raises
    ------
    ModelFileError
        If a file is missing or damaged, or the kind of model is not supported.
    """

    def __init__(self, folder: Path) -> None:
        self.model = Llama.load(folder)
        self.tokenizer = ChatTokenizer(folder)
        self._decoder = Decoder(self.model)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="almanac")
        self._lock = threading.Lock()
        self._arrived: list[_Job] = []
        self._jobs: list[_Job] = []
        self._pumping = False

    async def complete(self, messages: Sequence_[Message], **settings: Any) -> list[GenerationResult]:
        """Generate `n` replies to a conversation.

        The settings are the fields of `GenerationSettings`. With a seed, the same request gives the same replies
        whatever else is running, up to the rounding of float32 sums; reply i does not depend on `n`. A reply ends at
        the end of the context even if `max_tokens` is larger. Raises RequestError if an argument is out of range or the
        conversation is invalid, and ContextLengthError if the conversation leaves no room for a reply.
        """
        return await asyncio.wrap_future(self._submit(self._prepare(messages, GenerationSettings(**settings))))

    def _prepare(self, messages: Sequence_[Message], settings: GenerationSettings) -> GenerationRequest:
        context = self.model.config.context
        # reject texts that are far too long without encoding them
        minimum = self.tokenizer.least_tokens(messages)
        if minimum >= context:
            raise ContextLengthError(minimum, context)
        prompt = self.tokenizer.encode(messages)
        tokens_left = context - len(prompt)
        if tokens_left < 1:
            raise ContextLengthError(len(prompt), context)
        return GenerationRequest(
            prompt=prompt,
            settings=settings,
            max_tokens=min(tokens_left, settings.max_tokens or tokens_left),
            end_tokens=self.model.config.end_tokens,
            decode=self.tokenizer.decode,
        )

    def _submit(self, request: GenerationRequest) -> Future[list[GenerationResult]]:
        job = _Job([Sequence(request, choice) for choice in range(request.settings.n)], Future())
        with self._lock:
            self._arrived.append(job)
            if not self._pumping:
                self._pumping = True
                self._executor.submit(self._pump)
        return job.future

    def _pump(self) -> None:
        """Generate until no job is left; runs in the thread."""
        with one_blas_thread:
            while self._take_arrivals():
                try:
                    self._decoder.step()
                    self._jobs = [job for job in self._jobs if not job.settle()]
                except Exception as error:  # of any type: no caller may be left waiting
                    self._fail_all(error)

    def _take_arrivals(self) -> bool:
        with self._lock:
            arrived = self._arrived
            self._arrived = []
            for job in arrived:
                self._decoder.add(job.sequences)
            self._jobs += arrived
            self._pumping = bool(self._jobs) or self._decoder.busy
            return self._pumping

    def _fail_all(self, error: Exception) -> None:
        for job in self._jobs:
            job.fail(error)
        self._jobs = []
        self._decoder = Decoder(self.model)


@cache
def runtime_in(folder: Path) -> Runtime:
    """Return the runtime of the model in a folder, which is loaded once per process and shared."""
    return Runtime(folder)


def shared_runtime(name: str) -> Runtime:
    """Return the runtime of an embedded model."""
    return runtime_in(model_folder(name))


# Memory limits: conversations grouped at a time, and tokens in one step including padding.
_BATCH_SIZE = 512
_MAX_TOKENS = 2560


def hidden_states(model: str | Runtime, conversations: Sequence_[Sequence_[Message]]) -> FloatArray:
    """Return the hidden states at the last token of each prompt, where the reply would begin.

    The indices are those of ``output_hidden_states`` in transformers: index 0 is the embedding and index i the residual
    stream after block i; the last entry includes the final norm with its gain, and is the input of the head. Prefixes
    that conversations share are computed once.

    Parameters
    ----------
    model
        Name of an embedded model, or a runtime.
    conversations
        The messages of each conversation before the reply.

    Returns
    -------
    ndarray of float32, shape (n, layers + 1, hidden)

    Raises
    ------
    RequestError
        If a conversation is invalid.
    ContextLengthError
        If a conversation is longer than the model's context.

    Examples
    --------
    >>> hidden_states("base", [[Message("user", "Who?")], [Message("user", "When?")]]).shape
    (2, 5, 192)
    """
    runtime = shared_runtime(model) if isinstance(model, str) else model
    llama = runtime.model
    config = runtime.model.config
    prompts = [_checked(runtime.tokenizer.encode(messages), config.context) for messages in conversations]
    states = np.empty((len(prompts), config.n_layers + 1, config.hidden_size), np.float32)
    prefixes = PrefixStore(llama)
    with one_blas_thread:
        for start in range(0, len(prompts), _BATCH_SIZE):
            part = prompts[start : start + _BATCH_SIZE]
            for prefix, indices in _batches(part, [prefixes.prefix_of(prompt) for prompt in part]):
                rests = [part[index][len(prefix) if prefix else 0 :] for index in indices]
                states[[start + index for index in indices]] = _states_of(llama, prefix, rests)
    return states


def _checked(prompt: IntArray, context: int) -> IntArray:
    if len(prompt) > context:
        raise ContextLengthError(len(prompt), context)
    return prompt


def _batches(
    prompts: Sequence_[IntArray], prefixes: Sequence_[Prefix | None]
) -> Iterator[tuple[Prefix | None, list[int]]]:
    """Group prompts with the same prefix and similar lengths; yield the prefix and the indices of each group."""

    def rank(index: int) -> tuple[int, int]:
        return id(prefixes[index]), len(prompts[index])

    for _, same in groupby(sorted(range(len(prompts)), key=rank), key=lambda index: id(prefixes[index])):
        indices = list(same)
        prefix = prefixes[indices[0]]
        while indices:
            shared = len(prefix) if prefix else 0
            widths = (len(prompts[index]) - shared for index in indices)  # ascending: all are padded to the last
            size = sum(rows * width <= _MAX_TOKENS for rows, width in enumerate(widths, 1)) or 1
            yield prefix, indices[:size]
            indices = indices[size:]


def _states_of(model: Llama, prefix: Prefix | None, rests: list[IntArray]) -> FloatArray:
    cohort = Cohort(model.config, prefix, len(rests))
    feed = cohort.begin(rests)
    outputs: list[FloatArray] = []
    final = run(model, [cohort], [feed], lambda stream: outputs.append(stream[feed.last]))
    return np.stack([*outputs[:-1], final[feed.last] * model.weights.gain], axis=1)
