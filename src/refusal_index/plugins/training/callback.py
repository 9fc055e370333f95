"""A model in training, asked the panel between two steps, and the callback that does so for the trainers.

- A causal language model of transformers as the model: it answers with its own chat template, greedily, in batches.
- A model in training must not notice: `undisturbed` puts back the mode of every module and the state of every random
  generator. A short tag of the weights in memory tells two trainings apart: every weight counts, since a training may
  leave most of them as they are.
- `RefusalIndexCallback` for the trainers of transformers and TRL: every so many steps the model in training is asked
  the panel, in memory or behind an endpoint, and the metrics go to the trainer's own tracker under the names of
  ``summary.json``. No error in it ends the training: each is one warning.
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

from refusal_index.data.files import held
from refusal_index.errors import RefusalIndexError
from refusal_index.models.functions import AnsweringFunction, FunctionError
from refusal_index.models.requests import ModelError, ModelRequest, Response
from refusal_index.models.settings import SettingError
from refusal_index.plugins.training.watch import PanelFolder
from refusal_index.protocol import StopReason
from refusal_index.redaction import redacted
from refusal_index.render.summary import numbers
from refusal_index.runs.api import plan_of
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import RUNS, Plan
from refusal_index.runs.sweep import CellResult
from refusal_index.runs.writing import Run, run_to_completion

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

        started, tokenizer, model = time.monotonic(), self._tokenizer, self._model
        prompts = [self._encoded(ask) for ask in asks]
        longest = max(map(len, prompts))
        padding = next(int(one) for one in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if one is not None)
        told = getattr(model.generation_config, "eos_token_id", None)
        ends = [*(told if isinstance(told, list) else [told]), tokenizer.eos_token_id]
        ends = sorted({int(one) for one in ends if one is not None})
        # The model's own way to generate, made greedy.
        config = copy.deepcopy(model.generation_config)
        config.update(do_sample=False, num_beams=1, temperature=None, top_p=None, top_k=None)
        most = max(ask.decoding.max_tokens for ask in asks if ask.decoding)
        config.update(max_length=None, max_new_tokens=most, eos_token_id=ends or None, pad_token_id=padding)
        config.use_cache = True  # a training often turns it off
        ids = [[padding] * (longest - len(one)) + one for one in prompts]
        mask = [[0] * (longest - len(one)) + [1] * len(one) for one in prompts]
        with torch.no_grad():
            written = model.generate(
                input_ids=torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                generation_config=config,
            )
        seconds = (time.monotonic() - started) / len(asks)
        replies = written[:, longest:].tolist()
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


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model into its mode for answering, and everything back after the block: modes and random generators."""
    import torch  # noqa: PLC0415 - of models in memory only

    modes = {module: module.training for module in model.modules()}
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


TAG = 8
"""Letters of a tag."""

AT_ONCE = 1 << 24
"""Numbers that are added up at once, as whole numbers of eight bytes."""


def weights_tag(model: Any) -> str:
    """Return a few letters that tell a model of torch in memory from itself at another step, or in another training.

    Of each parameter the bits of all numbers are added up where they lie, which takes a pass over the memory; unlike
    a sum of the numbers that is exact, and so the same on every device. Of a parameter that is spread over processes it
    is the part of this one.
    """
    import torch  # noqa: PLC0415 - of models in memory only

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        bits = own.detach().contiguous().view(whole[own.element_size()]).flatten()
        total = sum(int(part.sum(dtype=torch.int64)) for part in bits.split(AT_ONCE))
        digest.update(f"{name} {total} ".encode())
    return digest.hexdigest()[:TAG]


try:
    from transformers import Trainer, TrainerCallback
except ImportError:  # told when one is made
    Trainer, TrainerCallback = None, object

LOG = logging.getLogger(__name__)
SAVE = "save"
LONGEST = 600.0
"""Seconds of one step's questions, unless told otherwise."""

PANEL = {"variants": "normal", "grader": "exact", "temperature": 0, "max_tokens": 256, "limit": 200}
"""Settings of a panel unless told otherwise: at temperature 0 one reply a question is enough for RI."""


class RefusalIndexCallback(TrainerCallback):  # type: ignore[misc] # transformers is an extra: without it any class
    """Asks the model in training a fixed panel of questions, and logs the metrics with the trainer.

    Parameters
    ----------
    trainer
        The trainer that it is added to, whose tracker is logged to: of transformers, or of TRL.
    dataset
        The questions, as `evaluate` takes them; a sample of 200 of the almanac's unless given.
    every
        Ask every so many steps; ``"save"`` asks whenever a checkpoint is saved. The last step is asked in any case.
    out
        The panel's folder, with a run's folder for each step.
    model
        None for the model in memory, by its own ``generate``; else the name of an endpoint that serves it, as in
        ``openai-api/vllm/policy``.
    batch_size
        Conversations of the model in memory at a time.
    settings
        Any other setting of `evaluate`. Unless given, the variant is ``normal``, the grader ``exact``, the temperature
        0, the longest reply 256 tokens, the sample 200 questions, and the longest time for one step 600 seconds.

    Raises
    ------
    RefusalIndexError
        If the questions or a setting cannot be used. Once the training runs, it raises nothing.

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
        self._trainer, self._dataset, self._endpoint = trainer, dataset, model
        is_whole = isinstance(every, int) and not isinstance(every, bool) and every > 0
        if not is_whole and every != SAVE:
            raise SettingError(f"every: expected a number of steps or {SAVE!r}, got {every!r}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise SettingError(f"batch_size: expected a whole number of at least 1, got {batch_size!r}")
        self._every, self._batch_size = every, batch_size
        self._panel = PanelFolder(Path(out))
        sending = {"max_retries": 1} if model is not None else {"max_connections": batch_size, "max_retries": 0}
        self._settings = {**PANEL, "max_time": LONGEST, **sending, **settings}
        if model is None and float(self._settings["temperature"]) != 0:
            raise SettingError("{temperature}: expected 0 for a model in memory, which answers greedily")
        self._asked: int | None = None
        if trainer.is_world_process_zero():
            self._plan(0, "", GeneratingModel(None, None, "the model in training", batch_size))

    def on_step_end(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask after every so many steps, and after the last one."""
        last = state.global_step >= state.max_steps or control.should_training_stop
        if last or (self._every != SAVE and state.global_step % int(self._every) == 0):
            self._ask(state, control, given)

    def on_save(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask the model of which a checkpoint was saved."""
        if self._every == SAVE:
            self._ask(state, control, given)

    def on_train_end(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask at the end, where the training ended otherwise than after a step."""
        self._ask(state, control, given)

    def _ask(self, state: Any, control: Any, given: Any) -> None:
        """Ask the panel at this step, once; whatever goes wrong is a warning."""
        if not state.is_world_process_zero or self._asked == state.global_step:
            return
        self._asked, step = state.global_step, state.global_step
        try:
            run = self._measured(step, given["model"], given.get("processing_class"))
            # To log is to be done with logging for the trainer, and the loss of the step would be lost.
            flags = dict(vars(control))
            try:
                Trainer.log(self._trainer, logged(run))
            finally:
                vars(control).update(flags)
        except Exception as error:
            # A training of days is worth more than a point of a curve.
            said = str(error) if isinstance(error, RefusalIndexError) else f"{type(error).__name__}: {error}"
            LOG.warning("Refusal Index of step %s: %s", step, " ".join(redacted(said).split()))

    def _measured(self, step: int, model: Any, tokenizer: Any) -> Run:
        if self._endpoint is not None:
            return self._carried_out(self._plan(step, weights_tag(model), None), step)
        if is_sharded(model):
            raise ModelError(
                "no process holds the whole model, so that it cannot answer in memory; name an endpoint that serves "
                "it (model=...), or evaluate its checkpoints with 'refusal-index watch'"
            )
        if tokenizer is None:
            raise ModelError("the trainer has no tokenizer; give it one as processing_class")
        asked = GeneratingModel(model, tokenizer, "the model in training", self._batch_size)
        plan = self._plan(step, weights_tag(model), asked)
        with undisturbed(model), self._trainer.accelerator.autocast():
            return self._carried_out(plan, step)

    def _plan(self, step: int, tag: str, asked: GeneratingModel | None) -> Plan:
        # Another training into the same folder has other weights at the same step, and so another run.
        name = "-".join(filter(None, ("step", str(step), tag)))
        folder = self._panel.path / name
        model, named = (asked, name) if self._endpoint is None else (self._endpoint, None)
        plan = plan_of(model, self._dataset, model_name=named, out=folder, **self._settings)
        return replace(plan, title=(f"step {step:,}", plan.title[1]))

    def _carried_out(self, plan: Plan, step: int) -> Run:
        with held(self._panel.path):
            try:
                run = run_to_completion(execute(plan))
            except RefusalIndexError as error:
                self._panel.put(CellResult(plan, error=redacted(str(error))), step)
                raise
            self._panel.put(CellResult(plan, run), step)
        if not run.is_complete:
            failed = run.missing[0].error if run.missing else "too many replies have no grade"
            why = run.ended or failed
            raise RefusalIndexError(f"{run.path} is incomplete ({why}), and is not logged")
        return run


def logged(run: Run) -> dict[str, float]:
    """Return the metrics of a run with their intervals, by the names that they have in every tracker.

    As in ``normal/refusal_index`` and ``normal/refusal_index/low``. What is undefined is left out.
    """
    variants = (run.document or {}).get("variants", ())
    return numbers({"variants": [{"variant": one["variant"], "metrics": one["metrics"]} for one in variants]})
