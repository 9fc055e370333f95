"""Running variants inside a run's folder: only what is not there yet, and nothing twice."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inspect_ai import eval_async
from inspect_ai.model import GenerateConfig
from inspect_ai.util._display import init_display_type

from refusal_index.datasets import Dataset
from refusal_index.engines.inspect.logs import LogError, is_complete, read_header, variant_of
from refusal_index.engines.inspect.models import resolve_model
from refusal_index.engines.inspect.task import Asking, Decoding, two_pass_task
from refusal_index.outcomes.folder import RunFolder

MAX_RETRIES = 5
SAMPLE_RETRIES = 2
LOG_BUFFER = 100


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run's replies depend on.

    Attributes
    ----------
    model, grader
        Names; `grader` is a model's name where the dataset is graded by a model, else None.
    dataset
        The questions.
    variants
        First-pass variants, in the order in which they are run.
    asking, decoding
        How a question is asked, and how the model generates.
    max_connections
        Requests in flight; None lets Inspect find out what the provider bears.
    max_retries
        How often a failed request is sent again.
    """

    model: str
    dataset: Dataset
    variants: tuple[str, ...]
    grader: str | None = None
    asking: Asking = field(default_factory=Asking)
    decoding: Decoding = field(default_factory=Decoding)
    max_connections: int | None = None
    max_retries: int = MAX_RETRIES


class RunFailedError(RuntimeError):
    """Inspect could not bring a variant to its end; what was answered is kept, and running again resumes."""


def pending_variants(plan: RunPlan, folder: RunFolder) -> list[str]:
    """Return the variants of `plan` that are not finished in `folder`, or in which a question ended in an error."""
    done = {variant for variant, path in finished_logs(folder).items() if is_complete(read_header(path))}
    return [variant for variant in plan.variants if variant not in done]


def finished_logs(folder: RunFolder) -> dict[str, Path]:
    """Return the newest log of each variant that was run to its end."""
    logs: dict[str, Path] = {}
    for path in sorted(folder.logs.glob("*.eval")):  # names begin with the time
        try:
            header = read_header(path)
        except LogError:  # a kill left it torn
            continue
        if header.status == "success":
            logs[variant_of(header)] = path
    return logs


def run_variant(plan: RunPlan, folder: RunFolder, variant: str) -> None:
    """Ask every question under `variant`; replies already paid for come from the folder's cache."""
    earlier = list(folder.logs.glob("*.eval"))
    init_display_type("none")  # only `eval` takes it as an argument, and that leaves connections open
    with _environment(INSPECT_CACHE_DIR=str(folder.cache.resolve())), _rare_collections():
        asyncio.run(_evaluate(plan, folder, variant))
    _remove_superseded(earlier, variant)


async def _evaluate(plan: RunPlan, folder: RunFolder, variant: str) -> None:
    async with AsyncExitStack() as open_models:
        model = await open_models.enter_async_context(resolve_model(plan.model))
        roles = {}
        if plan.grader is not None:
            grader_config = GenerateConfig(max_retries=plan.max_retries)
            roles["grader"] = await open_models.enter_async_context(resolve_model(plan.grader, grader_config))
        (log,) = await eval_async(
            two_pass_task(plan.dataset, variant, plan.asking, plan.decoding, name=f"{plan.dataset.name}-{variant}"),
            model=model,
            model_roles=roles,
            log_dir=str(folder.logs),
            log_level="error",
            log_level_transcript="error",
            score_display=False,
            log_realtime=False,
            log_buffer=LOG_BUFFER,
            log_header_only=True,
            log_model_api=False,
            acp_server=False,
            ctl_server=False,
            fail_on_error=False,
            continue_on_fail=True,
            retry_on_error=SAMPLE_RETRIES,
            max_retries=plan.max_retries,
            max_connections=plan.max_connections,
        )
    if log.status != "success":
        said = log.error.message if log.error else "no reason given"
        raise RunFailedError(f"{variant}: Inspect ended with status {log.status!r}: {said}")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables while the block runs: Inspect takes the place of its cache from nowhere else."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely while the block runs.

    A run keeps much and drops little in cycles: looking for them at the usual pace takes a fifth of its processor time.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _remove_superseded(earlier: list[Path], variant: str) -> None:
    """Remove logs of interrupted attempts at `variant`: all they held is in the new log."""
    for path in earlier:
        try:
            superseded = variant_of(read_header(path)) == variant
        except LogError:
            superseded = True
        if superseded:
            path.unlink()
