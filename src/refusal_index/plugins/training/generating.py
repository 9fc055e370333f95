"""A causal language model of transformers as the model: it answers with its own chat template, greedily, in batches.

A model in training is asked between two steps and must not notice: `undisturbed` puts back the mode of every module and
the state of every random generator.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from refusal_index.models.functions import AnsweringFunction, FunctionError
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.protocol import StopReason

MOMENT = 0.02  # seconds to wait for a batch to fill


class GeneratingModel(AnsweringFunction):
    """A causal language model that answers by its ``generate``, greedily, as many questions at a time as fit.

    Parameters
    ----------
    model
        As transformers has them, also with adapters of peft.
    tokenizer
        Its own, or a processor that holds it. Without a chat template the messages are its prompt as they are.
    name
        What to call it in messages.
    batch_size
        Most conversations of one call of ``generate``.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, batch_size: int) -> None:
        super().__init__(self._alone, name)
        self._model, self._tokenizer = model, getattr(tokenizer, "tokenizer", tokenizer)
        self.batch_size = batch_size
        self._waiting: list[tuple[ModelRequest, asyncio.Future[Response]]] = []

    async def _alone(self, messages: list[dict[str, str]]) -> str:
        raise NotImplementedError("a model in memory needs requests that set the maximum length of a reply")

    async def __call__(self, ask: ModelRequest) -> Response:
        """Answer in a batch with whatever else is asked at this moment."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        self._waiting.append((ask, answer))
        if len(self._waiting) >= self.batch_size:
            self._answer_waiting()
        elif len(self._waiting) == 1:
            loop.call_later(MOMENT, self._answer_waiting)
        return await answer

    def _answer_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        batch = [(ask, answer) for ask, answer in batch if not answer.done()]  # without those that were cancelled
        if not batch:
            return
        try:
            responses = self._generated([ask for ask, _ in batch])
        except Exception as error:  # whatever a model, a tokenizer or the memory of a device raises
            for _, answer in batch:
                answer.set_exception(FunctionError(self.name, f"raised {type(error).__name__}: {error}"))
            return
        for (_, answer), response in zip(batch, responses, strict=True):
            answer.set_result(response)

    def _generated(self, asks: Sequence[ModelRequest]) -> list[Response]:
        import torch  # noqa: PLC0415 - of models in memory only

        started = time.monotonic()
        prompts = [self._encoded(ask) for ask in asks]
        longest, padding = max(map(len, prompts)), _padding(self._tokenizer)
        ids = [[padding] * (longest - len(one)) + one for one in prompts]
        mask = [[0] * (longest - len(one)) + [1] * len(one) for one in prompts]
        device, ends = self._model.device, _ends(self._model, self._tokenizer)
        most = max(ask.decoding.max_tokens for ask in asks if ask.decoding)
        with torch.no_grad():
            written = self._model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                generation_config=_greedy(self._model, ends, padding, most),
            )
        replies = written[:, longest:].tolist()
        seconds = (time.monotonic() - started) / len(asks)
        return [self._response(*pair, ends, seconds) for pair in zip(prompts, replies, strict=True)]

    def _encoded(self, ask: ModelRequest) -> list[int]:
        messages = [{"role": one.role, "content": one.content} for one in ask.request.messages]
        if not getattr(self._tokenizer, "chat_template", None):
            return list(self._tokenizer("\n\n".join(one["content"] for one in messages))["input_ids"])
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _response(self, prompt: Sequence[int], reply: Sequence[int], ends: Sequence[int], seconds: float) -> Response:
        end = next((place for place, token in enumerate(reply) if token in ends), None)
        text = self._tokenizer.decode(reply[:end], skip_special_tokens=True)
        stop = StopReason.LENGTH if end is None else StopReason.STOP
        return Response([(text, stop)], len(prompt), len(reply) if end is None else end + 1, seconds)


def _padding(tokenizer: Any) -> int:
    found = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return int(next(one for one in found if one is not None))


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a reply, by what the model and its tokenizer say."""
    told = getattr(model.generation_config, "eos_token_id", None)
    found = told if isinstance(told, list) else [told]
    return sorted({int(one) for one in (*found, tokenizer.eos_token_id) if one is not None})


def _greedy(model: Any, ends: Sequence[int], padding: int, most: int) -> Any:
    """Return the model's own way to generate, made greedy."""
    config = copy.deepcopy(model.generation_config)
    config.update(do_sample=False, num_beams=1, temperature=None, top_p=None, top_k=None)
    config.update(max_length=None, max_new_tokens=most, eos_token_id=list(ends) or None, pad_token_id=padding)
    config.use_cache = True  # a training often turns it off
    return config


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model into its mode for answering, and everything back after the block: modes and random generators."""
    import torch  # noqa: PLC0415 - of models in memory only

    modes: Mapping[Any, bool] = {module: module.training for module in model.modules()}
    devices = sorted({one.device.index or 0 for one in model.parameters() if one.device.type == "cuda"})
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that trainings use
    try:
        with torch.random.fork_rng(devices=devices):
            model.eval()
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002 - as above
        for module, training in modes.items():
            module.training = training


def is_sharded(model: Any) -> bool:
    """Whether no process holds the whole of the parameters, so that a single one cannot generate."""
    return any(hasattr(one, "ds_id") or type(one).__name__ == "DTensor" for one in model.parameters()) or any(
        type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()
    )
