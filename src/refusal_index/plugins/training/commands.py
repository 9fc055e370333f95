"""``refusal-index watch``: evaluate each checkpoint that a training writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import output, settings_of, takes_settings

if TYPE_CHECKING:
    from refusal_index.plugins.training.watch import CheckpointResult, Watch
    from refusal_index.runs.budget import Budget
    from refusal_index.runs.events import Progress
    from refusal_index.runs.plan import Plan

EXPECTED = "; expected folders with a config.json and weights, such as checkpoint-500"


@takes_settings(*settings_of("watch"), all_of_run=True)
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
    """Evaluate each checkpoint during training.

    Evaluates every complete checkpoint in DIR once, in the order of the number in its name, with the options of
    'refusal-index run'. It runs until you press Ctrl-C, or as set by --once or --until-idle. Running the same command
    again resumes. 'refusal-index report' then plots every metric over the training steps.

    Exit status: 0 done, 1 no checkpoint, or one that failed or is incomplete, 2 bad input, 130 interrupted.

    - `folder` DIR: Folder to which the training writes its checkpoints.
    - `model_template`: Model name of a checkpoint, as in vllm/{path}; the fields are {path}, {name} and {step}.
    - `out` FOLDER: Folder of all runs. [default: runs/DIR-panel]
    - `every`: Seconds between scans; a checkpoint counts as complete once it has not changed for this long.
    - `once`: Evaluate the checkpoints that exist, then exit.
    - `until_idle`: Exit after this many seconds without a new checkpoint.
    """
    from refusal_index.cli.runs import asking
    from refusal_index.data.run_sets import set_members
    from refusal_index.plugins.training.watch import prepare_watch
    from refusal_index.runs.budget import Budget
    from refusal_index.runs.settings import Settings

    if once and until_idle is not None:
        raise console.OptionError("--once: cannot be combined with --until-idle; remove one of them")
    planned = prepare_watch(
        folder, model_template, values, out=out, every=every, until_idle=0.0 if once else until_idle
    )
    budget = Budget(Settings.from_values(**values).limits)
    results = list["CheckpointResult"]()
    try:
        asking(_evaluate(planned, budget, results), budget)
    finally:
        _show(planned, results)
    taken = [result for result in results if result.left_out is None]
    if not all(result.is_complete for result in taken):
        raise typer.Exit(console.INCOMPLETE)
    # A training keeps its last few checkpoints only, so those evaluated earlier may be gone.
    if not taken and not set_members(planned.out):
        raise typer.Exit(console.INCOMPLETE)


async def _evaluate(planned: Watch, budget: Budget, results: list[CheckpointResult]) -> None:
    from refusal_index.plugins.training.watch import execute_watch

    async for result in execute_watch(planned, _watching, budget):
        results.append(result)
        if result.error is not None:
            console.error(f"{result.checkpoint.path}: {result.error}")
        if result.left_out is not None:
            console.note(f"{result.checkpoint.path} is skipped: {result.left_out}")


@contextmanager
def _watching(plan: Plan) -> Iterator[Progress]:
    from refusal_index.cli.runs import watching

    console.note(plan.called)
    with watching(plan) as progress:
        yield progress


def _show(planned: Watch, results: list[CheckpointResult]) -> None:
    from refusal_index.render.run_set import result_blocks, why_unfinished

    taken = [result for result in results if result.left_out is None]
    if not taken:
        console.say(f"{planned.folder}: no checkpoint was evaluated{EXPECTED if not results else ''}")
        return
    console.show(result_blocks([result.result for result in taken if result.result is not None]))
    unfinished = [result for result in taken if not result.is_complete]
    if unfinished:
        advice = "" if any(result.error for result in unfinished) else "; run the same command again to continue"
        console.show(["", f"{len(unfinished):,} of {len(taken):,} checkpoints are incomplete{advice}:"])
    for result in unfinished:  # errors were printed when they occurred
        why = "failed, see above" if result.result is None or result.error else why_unfinished(result.result)
        console.show([f"  {result.checkpoint.name}: {why}"])
    console.say()
    console.say(f"Plots over the steps: refusal-index report {planned.out}")
