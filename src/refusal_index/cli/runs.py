"""Runs on the terminal: their progress while models are asked, and their results."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import how_to_show
from refusal_index.data.files import locked
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_sets import SUMMARY
from refusal_index.findings.dry_run import RunEstimate
from refusal_index.findings.models_asked import without_logprobs
from refusal_index.findings.run_results import RunResults
from refusal_index.models.settings import Sending
from refusal_index.render.dry_run import dry_run_blocks, dry_run_document, grading_line
from refusal_index.render.gate import baseline_blocks
from refusal_index.render.run import run_blocks
from refusal_index.render.run_set import set_blocks
from refusal_index.render.sentences import sentence
from refusal_index.runs.budget import Budget
from refusal_index.runs.dry_run import estimate_run, first_passes_ahead
from refusal_index.runs.engine import RunFailedError, WaitingError
from refusal_index.runs.engines import engine_of
from refusal_index.runs.events import Progress
from refusal_index.runs.execute import execute
from refusal_index.runs.file_grading import all_graded
from refusal_index.runs.open_run import begin
from refusal_index.runs.plan import Plan
from refusal_index.runs.progress import counting, progress_bar
from refusal_index.runs.run_set import SetRun
from refusal_index.runs.sweep import Sweep, check_models, execute_sweep, prepare_sweep

T = TypeVar("T")
RESUMES = "interrupted; run the same command again to resume: stored replies are not requested again"
CANCELLED = "the run was cancelled by code of its own; run the same command again to resume"
WAITS = "interrupted: waiting for the requests in flight; press Ctrl-C again to quit"
STAYS = "interrupted: batches in flight continue at the provider, to be collected later; press Ctrl-C again to quit"
SHOWN = 5


def asking(coroutine: Coroutine[Any, Any, T], budget: Budget | None = None, waits: str = WAITS) -> T:
    """Run a function that sends requests; a failure or interruption ends the command with a one-line message."""
    try:
        result = asyncio.run(coroutine if budget is None else _ending_in_order(coroutine, budget, waits))
    except RunFailedError as error:
        if budget is None or budget.ended is None:
            report = console.say if isinstance(error, WaitingError) else console.error
            report(error)
            raise typer.Exit(console.INCOMPLETE) from error
    except KeyboardInterrupt:
        pass
    except asyncio.CancelledError as error:  # a user's function can cancel every task
        console.error(CANCELLED)
        raise typer.Exit(console.INCOMPLETE) from error
    else:
        if budget is None or budget.ended is None:
            return result
    console.note(RESUMES)
    raise typer.Exit(console.INTERRUPTED)


async def _ending_in_order(coroutine: Coroutine[Any, Any, T], budget: Budget, waits: str) -> T:
    """Treat the first interruption as the end of the budget: requests in flight finish; the second ends at once."""
    if threading.current_thread() is not threading.main_thread():
        return await coroutine
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    interruptions = count(1)

    def end() -> None:
        budget.end("interrupted")
        console.note(waits)

    def interrupted(*_: object) -> None:
        if next(interruptions) == 1:
            loop.call_soon_threadsafe(end)
        else:  # whatever hangs: all that came is on the disk
            shown = "\x1b[?25h" if os.isatty(2) else ""  # the cursor, which the progress bar hides
            os.write(2, f"{shown}\n{RESUMES}\n".encode())
            os._exit(console.INTERRUPTED)

    signal.signal(signal.SIGINT, interrupted)
    try:
        return await coroutine
    finally:
        signal.signal(signal.SIGINT, before)


def execute_with_progress(
    plan: Plan, start: Callable[[Progress, Budget], Coroutine[Any, Any, T]], size: int | None = None
) -> T:
    """Run the coroutine that asks the questions of a plan, `size` in all where given, with a progress bar."""
    budget = Budget(plan.settings.limits)

    async def executed() -> T:
        with watching(plan, size) as progress:
            return await start(progress, budget)

    return asking(executed(), budget, _interruption_note(plan.settings.sending))


def execute_and_show(plan: Plan, *, as_json: bool) -> None:
    """Execute a plan with a progress bar and print the results; exits with `INCOMPLETE` if too much is missing."""
    run = execute_with_progress(plan, partial(execute, plan))
    if not show_run(run, as_json=as_json):
        raise typer.Exit(console.INCOMPLETE)


def graded_with_progress(plan: Plan) -> RunResults:
    """Grade the answers of a file, after a line with the requests and their cost, and return the results.

    Exits with `INCOMPLETE` if not all could be graded; the grades are kept.
    """
    begin(plan)  # the estimate counts the stored replies
    estimate = asking(estimate_run(plan))
    if estimate.requests.most:
        console.note(f"note: {', '.join(plan.graders)} grades {grading_line(estimate)}")
    try:
        return all_graded(execute_with_progress(plan, partial(execute, plan)))
    except RunFailedError as error:
        console.error(error)
        raise typer.Exit(console.INCOMPLETE) from error


def _interruption_note(sending: Sending) -> str:
    """Return what to print at the first interruption: batches are not waited for."""
    return STAYS if engine_of(sending.engine).outlives else WAITS


def watching(plan: Plan, size: int | None = None) -> AbstractContextManager[Progress]:
    """Show the progress of a plan at the terminal."""
    if size is None:
        size = sum(len(draws) for draws in plan.draws.values())
    return progress_bar(console.terminal(stderr=True), size, plan.prices)


def show_run(run: RunResults, *, as_json: bool) -> bool:
    """Print the results of a run, and return whether it is complete."""
    if as_json:
        console.document(run.document)
        return run.is_complete
    console.show(run_blocks(run, everything=False))
    if run.missing:
        console.say("", f"{len(run.missing):,} not finished; run the same command again to complete them:")
        for missing in run.missing[:SHOWN]:
            console.say(f"  {missing.variant} {missing.question_id}: {missing.error[:200]}")
        if len(run.missing) > SHOWN:
            console.say(f"  and {len(run.missing) - SHOWN:,} more, in outcomes.parquet")
    for line in _advice(run):
        console.say()
        console.prose(line)
    if run.ended is not None:
        console.say("", f"ended early: {run.ended}")
    console.show(baseline_blocks(run.summary))
    console.say(
        how_to_show([run.path]),
        f"Compare with another run: {shlex.join(['refusal-index', 'compare', str(run.path), 'OTHER'])}",
        f"Report: {RunFolder(run.path).report}",
    )
    return run.is_complete


def _advice(run: RunResults) -> Iterator[str]:
    """Yield which log probabilities are missing, how to compute removed scores, and the study of stated targets."""
    yield from map(sentence, without_logprobs(run.about))
    if run.outdated:
        yield (
            f"Scores of {', '.join(run.outdated)} were removed, since grades or samples behind them have changed; "
            f"'refusal-index confidence {run.path} --method {','.join(run.outdated)}' computes them again."
        )
    prompts = run.folder.read_settings().get("prompts") if run.folder.run_json.exists() else None
    targets = prompts.get("targets") if isinstance(prompts, dict) else None
    if isinstance(targets, dict) and len(targets.keys() & {variant.variant for variant in run.summary.variants}) > 1:
        yield (
            f"The prompts state what a wrong answer costs: 'refusal-index study response_to_penalty {run.path}' shows "
            "whether the model refuses accordingly, and what it earns under each."
        )


def print_caveats(plans: Sequence[Plan]) -> None:
    """Print what to know before runs, each caveat once."""
    lines = [
        f"{'warning' if caveat.severity == 'serious' else 'note'}: {sentence(caveat)}"
        for plan in plans
        for caveat in plan.caveats
    ]
    console.note(*dict.fromkeys(lines))


def print_notes(plans: Sequence[Plan]) -> None:
    """Print the notes on the datasets of runs, each once."""
    notes = [f"note: {plan.dataset.name}: {note}" for plan in plans for note in plan.dataset.notes]
    console.note(*dict.fromkeys(notes))


def show_dry_run(plans: Sequence[Plan], *, as_json: bool) -> None:
    """Print the estimates of a dry run."""

    def begun(title: str, size: int) -> AbstractContextManager[Callable[[], None]]:
        """Say how long asking an embedded model takes, before it begins, and show the progress."""
        ahead = first_passes_ahead(size)
        if ahead is not None:
            console.note(f"note: {sentence(ahead)}")
        return counting(console.terminal(stderr=True), title, size)

    async def estimates() -> list[RunEstimate]:
        return [await estimate_run(plan, begun) for plan in plans]

    estimated = asking(estimates())
    if as_json:
        console.document(dry_run_document(estimated))
    else:
        console.show(["dry run: nothing is sent", "", *dry_run_blocks(estimated)])


def run_config(source: str) -> Path:
    """Run what is missing of a configuration, print its results, and return the folder of the set."""
    sweep = prepare_sweep(source)
    print_notes(sweep.plans)
    print_caveats(sweep.plans)
    asking(check_models(sweep.plans))
    show_set(sweep, as_json=False)
    return sweep.path


def show_set(sweep: Sweep, *, as_json: bool) -> bool:
    """Execute the runs of a set, print their results, and return whether every run is complete."""
    budget = Budget(sweep.plans[0].settings.limits)

    async def executed() -> list[SetRun]:
        results = []
        async for result in execute_sweep(sweep, watched, budget):
            results.append(result)
            if result.results is not None and result.results.unmet_goal:
                console.note(result.results.unmet_goal)
            if result.error is not None:
                console.error(f"{result.plan.called}: {result.error}")
        return results

    def watched(index: int, plan: Plan) -> AbstractContextManager[Progress]:
        console.note(f"{index + 1} of {len(sweep.plans)}: {plan.called}")
        return watching(plan)

    with locked(sweep.path):
        results = asking(executed(), budget, _interruption_note(sweep.plans[0].settings.sending))
    if as_json:
        console.document(sweep.to_document(results))
    else:
        console.show(set_blocks(results))
        console.say("", f"{sweep.path}: {SUMMARY}, and a folder for each run")
    return all(result.status == "complete" for result in results)
