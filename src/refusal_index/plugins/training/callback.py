"""Evaluate a model during training, between two steps, and a trainer callback that does so.

- `GeneratingModel` wraps a causal language model of transformers, which answers in batches, greedily, with its own chat
  template.
- The evaluation has no side effects on the training: `undisturbed` restores the mode of every module and the state of
  every random generator. A short tag computed from the weights in memory distinguishes two trainings. It covers every
  weight, since a training may change few of them.
- `RefusalIndexCallback`, for the trainers of transformers and TRL, evaluates the model every few steps on the same
  questions, in memory or through an endpoint, and logs the metrics to the trainer's own tracker under their names in
  ``summary.json``. An error never ends the training: it becomes a warning.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refusal_index.data.files import locked
from refusal_index.errors import RefusalIndexError, text_of
from refusal_index.findings.run_results import RunResults
from refusal_index.models.calls import FunctionError
from refusal_index.models.functions import AnsweringFunction
from refusal_index.models.requests import ModelError, ModelRequest, Response
from refusal_index.models.settings import SettingError
from refusal_index.plugins.training.watch import PanelFolder, evaluate_step
from refusal_index.protocol import StopReason
from refusal_index.redaction import redacted_error
from refusal_index.render.summary import numbers
from refusal_index.runs.api import plan_of
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.plan import RUNS, Plan

MOMENT = 0.02  # seconds to wait for a batch to fill


class GeneratingModel(AnsweringFunction):
    """A causal language model that answers by its ``generate`` method, greedily and in batches.

    Parameters
    ----------
    model
        A transformers model, with or without PEFT adapters.
    tokenizer
        The model's tokenizer, or a processor that contains it. Without a chat template, the prompt is the concatenated
        messages.
    name
        Name of the model in messages.
    batch_size
        Maximum number of conversations in one call of ``generate``.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, batch_size: int) -> None:
        super().__init__(self._alone, name)
        self._model = model
        self._tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.batch_size = batch_size
        self._waiting: list[tuple[ModelRequest, asyncio.Future[Response]]] = []

    async def _alone(self, messages: list[dict[str, str]]) -> str:
        raise NotImplementedError("a model in memory needs requests with a maximum reply length")

    async def __call__(self, request: ModelRequest) -> Response:
        """Answer a request in a batch with others that arrive at about the same time."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        self._waiting.append((request, answer))
        if len(self._waiting) >= self.batch_size:
            self._answer_waiting()
        elif len(self._waiting) == 1:
            loop.call_later(MOMENT, self._answer_waiting)
        return await answer

    def _answer_waiting(self) -> None:
        batch = self._waiting
        self._waiting = []
        batch = [(request, answer) for request, answer in batch if not answer.done()]  # without cancelled requests
        if not batch:
            return
        try:
            responses = self._generated([request for request, _ in batch])
        except Exception as error:  # models and tokenizers may raise anything, such as an out-of-memory error
            for _, answer in batch:
                answer.set_exception(FunctionError(self.name, f"raised {type(error).__name__}: {text_of(error)}"))
            return
        for (_, answer), response in zip(batch, responses, strict=True):
            answer.set_result(response)

    def _generated(self, asks: Sequence[ModelRequest]) -> list[Response]:
        import torch  # noqa: PLC0415 - needed for models in memory only

        started = time.monotonic()
        tokenizer = self._tokenizer
        model = self._model
        prompts = [self._encoded(request) for request in asks]
        longest = max(map(len, prompts))
        padding = next(int(token) for token in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if token is not None)
        configured = getattr(model.generation_config, "eos_token_id", None)
        ends = [*(configured if isinstance(configured, list) else [configured]), tokenizer.eos_token_id]
        ends = sorted({int(end) for end in ends if end is not None})
        # The model's own generation settings, except that decoding is greedy.
        config = copy.deepcopy(model.generation_config)
        config.update(do_sample=False, num_beams=1, temperature=None, top_p=None, top_k=None)
        max_tokens = max(request.decoding.max_tokens for request in asks if request.decoding)
        config.update(max_length=None, max_new_tokens=max_tokens, eos_token_id=ends or None, pad_token_id=padding)
        config.use_cache = True  # often disabled during training
        ids = [[padding] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with torch.no_grad():
            written = model.generate(
                input_ids=torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                generation_config=config,
            )
        seconds = (time.monotonic() - started) / len(asks)
        replies = written[:, longest:].tolist()
        return [self._response(*pair, ends, seconds) for pair in zip(prompts, replies, strict=True)]

    def _encoded(self, request: ModelRequest) -> list[int]:
        messages = [{"role": message.role, "content": message.content} for message in request.request.messages]
        if not getattr(self._tokenizer, "chat_template", None):
            return list(self._tokenizer("\n\n".join(message["content"] for message in messages))["input_ids"])
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _response(self, prompt: Sequence[int], reply: Sequence[int], ends: Sequence[int], seconds: float) -> Response:
        end = next((index for index, token in enumerate(reply) if token in ends), None)
        text = self._tokenizer.decode(reply[:end], skip_special_tokens=True)
        stop = StopReason.LENGTH if end is None else StopReason.STOP
        output_tokens = len(reply) if end is None else end + 1
        return Response([(text, stop)], len(prompt), output_tokens, seconds, sent=GREEDY)


GREEDY = {"temperature": 0.0, "top_p": None, "max_tokens": None, "seed": None}
"""How a model in memory decodes; requests in one batch share the largest of their token limits."""


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode; after the block, restore all modes and random generators."""
    import torch  # noqa: PLC0415 - needed for models in memory only

    modes = {module: module.training for module in model.modules()}
    devices = sorted(
        {parameter.device.index or 0 for parameter in model.parameters() if parameter.device.type == "cuda"}
    )
    python = random.getstate()
    legacy = np.random.get_state()  # noqa: NPY002 - the generator that trainers use
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
    """Whether the parameters are sharded across processes, so that no process can generate on its own."""
    return any(
        hasattr(parameter, "ds_id") or type(parameter).__name__ == "DTensor" for parameter in model.parameters()
    ) or any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())


TAG = 8
"""Length of a tag in characters."""

CHUNK_SIZE = 1 << 24
"""Number of values that are summed at a time, as 64-bit integers."""


def weights_tag(model: Any) -> str:
    """Return a short hash of the weights of a PyTorch model in memory, which differs between steps and trainings.

    For each parameter, the bit patterns of all values are summed as integers on the parameter's device. Unlike a sum of
    floating-point values this is exact, and so the same on every device. Of a sharded parameter, only the part in this
    process is hashed.
    """
    import torch  # noqa: PLC0415 - needed for models in memory only

    types_by_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        bits = local.detach().contiguous().view(types_by_size[local.element_size()]).flatten()
        total = sum(int(part.sum(dtype=torch.int64)) for part in bits.split(CHUNK_SIZE))
        digest.update(f"{name} {total} ".encode())
    return digest.hexdigest()[:TAG]


try:
    from transformers import Trainer, TrainerCallback
except ImportError:  # reported when a callback is created
    Trainer = None
    TrainerCallback = object

SAVE = "save"
LONGEST = 600.0
"""Default time limit for the evaluation at one step, in seconds."""

PANEL = {"variants": "normal", "grader": "exact", "temperature": 0, "max_tokens": 256, "limit": 200}
"""Default settings of a panel; at temperature 0, RI needs only one reply per question."""


class RefusalIndexCallback(TrainerCallback):  # type: ignore[misc] # the base class is `object` without transformers
    """Evaluates a model during training on a fixed panel of questions and logs the metrics to the trainer's tracker.

    Parameters
    ----------
    trainer
        The transformers or TRL trainer to which the callback is added and whose tracker receives the metrics.
    dataset
        The questions, as for `evaluate`; by default a sample of 200 questions of the almanac.
    every
        Evaluate every this many steps, or with ``"save"`` whenever a checkpoint is saved. The last step is always
        evaluated.
    out
        The panel's folder, with one run folder for each step.
    model
        None to evaluate the model in memory with its ``generate`` method, or the name of an endpoint that serves it,
        as in ``policy`` with ``base_url="http://127.0.0.1:8000/v1"``.
    batch_size
        Number of conversations that the model in memory answers at a time.
    settings
        Other settings of `evaluate`. By default, the variant is ``normal``, the grader ``exact``, the temperature 0,
        the maximum reply length 256 tokens, the sample 200 questions, and the time limit for one step 600 seconds.

    Raises
    ------
    RefusalIndexError
        If the questions or a setting cannot be used. During the training, the callback raises no errors.

    Examples
    --------
    >>> trainer.add_callback(RefusalIndexCallback(trainer, every=500, out="panel"))  # doctest: +SKIP
    """

    def __init__(
        self,
        trainer: Any,
        dataset: Any = None,
        *,
        every: int | str = SAVE,
        out: str | Path = RUNS / "panel",
        model: str | None = None,
        batch_size: int = 32,
        **settings: Any,
    ) -> None:
        if Trainer is None:
            raise ModelError("RefusalIndexCallback needs transformers: pip install 'refusal-index[transformers]'")
        self._trainer = trainer
        self._dataset = dataset
        self._endpoint = model
        is_whole = isinstance(every, int) and not isinstance(every, bool) and every > 0
        if not is_whole and every != SAVE:
            raise SettingError(f"every: expected a number of steps or {SAVE!r}, got {every!r}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise SettingError(f"batch_size: expected a whole number of at least 1, got {batch_size!r}")
        self._every = every
        self._batch_size = batch_size
        self._panel = PanelFolder(Path(out))
        sending = {"max_retries": 1} if model is not None else {"max_connections": batch_size, "max_retries": 0}
        self._settings = {**PANEL, "max_time": LONGEST, **sending, **settings}
        if model is None and float(self._settings["temperature"]) != 0:
            raise SettingError("{temperature}: expected 0 for a model in memory, which answers greedily")
        self._last_step: int | None = None
        if trainer.is_world_process_zero():
            self._plan(0, "", GeneratingModel(None, None, "the model in training", batch_size))

    def on_step_end(self, _args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate the model every `every` steps and after the last one."""
        last = state.global_step >= state.max_steps or control.should_training_stop
        if last or (self._every != SAVE and state.global_step % int(self._every) == 0):
            self._evaluate(state, control, kwargs)

    def on_save(self, _args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate the model whenever a checkpoint is saved, with ``every="save"``."""
        if self._every == SAVE:
            self._evaluate(state, control, kwargs)

    def on_train_end(self, _args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate the model at the end, in case the training did not end after a step."""
        self._evaluate(state, control, kwargs)

    def _evaluate(self, state: Any, control: Any, kwargs: Any) -> None:
        """Evaluate the model at this step, at most once; errors become warnings."""
        if not state.is_world_process_zero or self._last_step == state.global_step:
            return
        self._last_step = state.global_step
        step = state.global_step
        try:
            run = self._measured(step, kwargs["model"], kwargs.get("processing_class"))
            # After a call of `log`, the trainer would not log this step's loss: restore its flags.
            flags = dict(vars(control))
            try:
                Trainer.log(self._trainer, logged(run))
            finally:
                vars(control).update(flags)
        except Exception as error:
            # A training that takes days must not fail because one evaluation does.
            message = str(error) if isinstance(error, RefusalIndexError) else f"{type(error).__name__}: {error}"
            logging.getLogger(__name__).warning(
                "Refusal Index of step %s: %s", step, " ".join(redacted_error(message).split())
            )

    def _measured(self, step: int, model: Any, tokenizer: Any) -> RunResults:
        if self._endpoint is not None:
            return self._execute(self._plan(step, weights_tag(model), None), step)
        if is_sharded(model):
            raise ModelError(
                "no process holds the whole model, so it cannot answer in memory; name an endpoint that serves it "
                "(model=...), or evaluate its checkpoints with 'refusal-index watch'"
            )
        if tokenizer is None:
            raise ModelError("the trainer has no tokenizer; pass one to it as processing_class")
        generating = GeneratingModel(model, tokenizer, "the model in training", self._batch_size)
        plan = self._plan(step, weights_tag(model), generating)
        with undisturbed(model), self._trainer.accelerator.autocast():
            return self._execute(plan, step)

    def _plan(self, step: int, tag: str, generating: GeneratingModel | None) -> Plan:
        # Another training in the same folder has different weights at the same step, and so its own runs.
        name = "-".join(filter(None, ("step", str(step), tag)))
        folder = self._panel.path / name
        model, model_name = (generating, name) if self._endpoint is None else (self._endpoint, None)
        plan = plan_of(model, self._dataset, model_name=model_name, out=folder, **self._settings)
        return replace(plan, title=(f"step {step:,}", plan.title[1]))

    def _execute(self, plan: Plan, step: int) -> RunResults:
        with locked(self._panel.path):
            result = run_to_completion(evaluate_step(plan, self._panel, step))
        run = result.results
        if run is None:
            raise RefusalIndexError(str(result.error or result.waits))
        if not run.is_complete:
            failed = run.missing[0].error if run.missing else "too many replies have no grade"
            why = run.ended or failed
            raise RefusalIndexError(f"{run.path} is incomplete ({why}) and is not logged")
        return run


def logged(run: RunResults) -> dict[str, float]:
    """Return the metrics and intervals of a run by the names that every tracker uses, without undefined ones.

    Names are such as ``normal/refusal_index`` and ``normal/refusal_index/low``.
    """
    variants = (run.document or {}).get("variants", ())
    return numbers(
        {"variants": [{"variant": variant["variant"], "metrics": variant["metrics"]} for variant in variants]}
    )
