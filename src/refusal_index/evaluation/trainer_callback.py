"""A callback for the trainers of transformers and TRL: the model in training is asked a fixed panel of questions.

Every so many steps it answers, in memory or behind an endpoint, and the metrics go to the trainer's own tracker under
the names of ``summary.json``. Each step has a run's folder in one panel that ``refusal-index report`` reads. Nothing
that goes wrong here ends the training: it is one warning, and the training goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.engines.engine import ModelError
from refusal_index.engines.local.engine import GeneratingModel, is_sharded, undisturbed
from refusal_index.engines.settings import SettingError
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.api import plan_of
from refusal_index.evaluation.gate import bring_to_end
from refusal_index.evaluation.plan import RUNS, Plan
from refusal_index.evaluation.run import Run, run_to_end
from refusal_index.evaluation.sweep import CellResult
from refusal_index.evaluation.watch import PanelFolder, weights_tag
from refusal_index.exporters.results import numbers
from refusal_index.outcomes.files import held
from refusal_index.redaction import redacted

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
        self._every, self._batch_size = _checked(every, batch_size)
        self._panel = PanelFolder(Path(out))
        self._settings = {**PANEL, "max_time": LONGEST, **self._carried(), **settings}
        if model is None and float(self._settings["temperature"]) != 0:
            raise SettingError("{temperature}: expected 0 for a model in memory, which answers greedily")
        self._asked: int | None = None
        if trainer.is_world_process_zero():
            self._plan(0, "", GeneratingModel(None, None, "the model in training", batch_size))

    def _carried(self) -> dict[str, Any]:
        if self._endpoint is not None:
            return {"engine": "http", "max_retries": 1}
        return {"engine": "local", "max_connections": self._batch_size, "max_retries": 0}

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
            with _flags_kept(control):
                Trainer.log(self._trainer, logged(run))
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
                run = run_to_end(bring_to_end(plan))
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


@contextmanager
def _flags_kept(control: Any) -> Iterator[None]:
    """Keep what the trainer was about to do: to log is to be done with logging, and the step's loss would be lost."""
    kept = dict(vars(control))
    try:
        yield
    finally:
        vars(control).update(kept)


def _checked(every: int | str, batch_size: int) -> tuple[int | str, int]:
    whole = isinstance(every, int) and not isinstance(every, bool) and every > 0
    if not whole and every != SAVE:
        raise SettingError(f"every: expected a number of steps or {SAVE!r}, got {every!r}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise SettingError(f"batch_size: expected a whole number of at least 1, got {batch_size!r}")
    return every, batch_size
