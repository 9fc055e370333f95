"""``refusal-index watch``: each checkpoint that a training leaves in a folder, evaluated once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.shared_options import FORECAST, output, takes_settings
from refusal_index.runs.settings import SETTINGS

if TYPE_CHECKING:
    from refusal_index.plugins.training.watch import CheckpointResult, Watch
    from refusal_index.runs.budget import Budget
    from refusal_index.runs.engine import Progress
    from refusal_index.runs.plan import Plan

OF_RUNS = tuple(name for name in SETTINGS if name not in ("model", *FORECAST))
"""The settings of a run, without the model, which the template says, and without those of a dry run."""

EXPECTED = "; expected folders in it, each with a config.json and weights, such as checkpoint-500"


@takes_settings(*OF_RUNS)
def watch(
    folder: Path,
    /,
    model_template: str,
    out: Annotated[Path | None, output()] = None,
    every: Annotated[float, typer.Option(min=0.1)] = 30.0,
    once: bool = False,
    until_idle: Annotated[float | None, typer.Option(min=0)] = None,
    *,
    values: Mapping[str, Any],
) -> None:
    """Measure each checkpoint of a training as it comes.

    Every folder in DIR that holds a whole checkpoint is evaluated once, in the order of the number in its name, with
    the options of 'run'. Half-written ones wait. The same command resumes. It goes on until Ctrl-C unless told
    otherwise; 'refusal-index report' then draws every metric over the steps. Exit status: 0 done, 1 a checkpoint failed
    or is incomplete, or there was none, 2 bad input, 130 interrupted.

    - `folder` DIR: Where a training writes its checkpoints.
    - `model_template`: The model that a checkpoint is, as in vllm/{path}; also {name} and {step}, of the folder.
    - `out` FOLDER: The folder of all runs. [default: runs/DIR-panel]
    - `every`: Seconds between looks; a checkpoint counts as written once unchanged for as long.
    - `once`: Evaluate what is there, and end.
    - `until_idle`: End after so many seconds without a new checkpoint.
    """
    from refusal_index.cli.runs import asking
    from refusal_index.data.folder import set_members
    from refusal_index.plugins.training.watch import prepare_watch
    from refusal_index.runs.budget import Budget
    from refusal_index.runs.settings import Settings

    if once and until_idle is not None:
        raise OptionError("--once: expected alone, got --until-idle beside it; leave one of them out")
    planned = prepare_watch(
        folder, model_template, values, out=out, every=every, until_idle=0.0 if once else until_idle
    )
    budget, found = Budget(Settings.of(**values).limits), list["CheckpointResult"]()
    try:
        asking(_carried_out(planned, budget, found), budget)
    finally:
        _show(planned, found)
    taken = [one for one in found if one.left_out is None]
    if any(one.result is None or one.result.status != "complete" for one in taken):
        raise typer.Exit(INCOMPLETE)
    if not taken and not set_members(planned.out):  # those of before may be gone: a training keeps its last few
        raise typer.Exit(INCOMPLETE)


async def _carried_out(planned: Watch, budget: Budget, found: list[CheckpointResult]) -> None:
    from refusal_index.cli import console
    from refusal_index.plugins.training.watch import execute_watch

    async for one in execute_watch(planned, _watching, budget):
        found.append(one)
        if one.error is not None:
            console.error(f"{one.checkpoint.path}: {one.error}")
        if one.left_out is not None:
            console.note(f"{one.checkpoint.path} is left out: {one.left_out}")


@contextmanager
def _watching(plan: Plan) -> Iterator[Progress]:
    from refusal_index.cli import console
    from refusal_index.cli.runs import watching

    console.note(plan.called)
    with watching(plan) as progress:
        yield progress


def _show(planned: Watch, found: list[CheckpointResult]) -> None:
    from refusal_index.cli import console
    from refusal_index.runs.presentation import result_blocks

    taken = [one for one in found if one.left_out is None]
    if not taken:
        console.say(f"{planned.folder}: no checkpoint was evaluated{EXPECTED if not found else ''}")
        return
    console.show(result_blocks([one.result for one in taken if one.result is not None]))
    console.show(_unfinished(taken))
    console.say()
    console.say(f"{planned.out}: a folder for each checkpoint; 'refusal-index report {planned.out}' draws their course")


def _unfinished(taken: Sequence[CheckpointResult]) -> Iterator[str]:
    """Yield the checkpoints that lack results; what went wrong was said of each when it did."""
    from refusal_index.runs.presentation import why_unfinished

    unfinished = [one for one in taken if one.result is None or one.result.status != "complete"]
    if unfinished:
        yield ""
        on = "" if any(one.error for one in unfinished) else "; the same command goes on with them"
        yield f"{len(unfinished):,} of {len(taken):,} checkpoints are not complete{on}:"
    for one in unfinished:
        why = "failed, as said above" if one.result is None or one.error else why_unfinished(one.result)
        yield f"  {one.checkpoint.name}: {why}"
