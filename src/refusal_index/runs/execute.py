"""Executing a plan in its folder: requests are sent, all at once or in parts, and the results are written.

A run that may stop early asks nested samples of its questions and looks at the results after each: after a look at 400
questions its folder holds what a run with ``limit=400`` and the same seed would. Such a run is complete for fewer
questions and records that it stopped. It continues when it is run again with another stopping rule, or with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refusal_index.data.datasets import sample
from refusal_index.data.run_json import STOPPED, Stop
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import half_width_of
from refusal_index.runs.budget import Budget
from refusal_index.runs.events import Event, Finished, Progress, ignore_events
from refusal_index.runs.open_run import open_plan
from refusal_index.runs.plan import Plan
from refusal_index.stats import GroupSequential

Decide = Callable[[RunResults, int], str | None]
"""Takes the results at a look and its number of questions; returns why the run may stop, or None."""


async def execute(plan: Plan, progress: Progress = ignore_events, budget: Budget | None = None) -> RunResults:
    """Send the requests that a plan still needs, and write the results into its folder.

    Parameters
    ----------
    plan
        The run. With the setting ``half_width`` it stops once its interval is narrow enough.
    progress
        Called with every event; what it raises ends the run, and is raised again.
    budget
        Shared by several runs; None for the run's own.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or the run could not be completed: replies are kept.
    KeyboardInterrupt
        If it was interrupted; replies are kept.
    """
    stopping = plan.settings.stopping
    if stopping.half_width is not None:
        decide = narrow_enough(stopping.half_width)
        return await execute_in_looks(plan, sizes_of(plan, stopping.looks), decide, progress, budget)
    with open_plan(plan, progress, budget) as run:
        return run.results(await run.ask([plan]))


def sizes_of(plan: Plan, looks: int) -> tuple[int, ...]:
    """Return the number of questions at each look: equal portions, the last look after all questions."""
    return GroupSequential.planned(len(plan.dataset.questions), looks).sizes


async def execute_in_looks(
    plan: Plan,
    sizes: tuple[int, ...],
    decide: Decide,
    progress: Progress = ignore_events,
    budget: Budget | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> RunResults:
    """Ask the questions of a plan in portions until `decide` returns a reason to stop.

    A resumed run starts with the first look at no fewer questions than it has asked.

    Parameters
    ----------
    plan, progress, budget
        The arguments of `execute`.
    sizes
        The number of questions at each look, in increasing order, as `sizes_of` returns them.
    decide
        Called at every complete look, including the last.
    about
        What to record about the looks in the run's folder, before the first of them.

    Raises
    ------
    RefusalIndexError
        As `execute` does, or as `decide` does.
    KeyboardInterrupt
        If it was interrupted; replies are kept.
    """
    latest: RunResults | None = None
    stop: Stop | None = None

    def parts() -> Iterator[Plan]:
        nonlocal latest, stop
        before = len({question_id for draws in run.store.draws().values() for question_id in draws})
        for look, size in enumerate(sizes, 1):
            if size < before:
                continue
            yield plan.part(frozenset(sample(plan.dataset, size, plan.settings.seed).questions))
            latest = run.results()
            why = decide(latest, size)
            if why is not None and size < sizes[-1]:
                stop = Stop(size, sizes[-1], look, len(sizes), why)
                return

    with open_plan(plan, _report_once(progress), budget) as run:
        if about:
            plan.folder.change_about(about)
        ended = await run.ask(parts())
        if stop is not None:
            plan.folder.change_about({STOPPED: stop.to_document()})
        elif ended is None and latest is not None:
            return latest
        return run.results(ended)


def narrow_enough(enough: float) -> Decide:
    """Return a `Decide` function that stops once the interval of the Refusal Index is narrow enough.

    The interval is not adjusted for the looks: its width says next to nothing about the error of the estimate, so
    coverage at the stop is nominal. A run without an index, at a boundary or with missing grades has no such interval.
    """

    def decide(run: RunResults, _asked: int) -> str | None:
        half_width = half_width_of(run.summary) if run.is_complete else None
        if half_width is None or half_width > enough:
            return None
        return f"the interval of RI has a half-width of {half_width:.3f}, and {enough:g} is enough"

    return decide


def _report_once(progress: Progress) -> Progress:
    """Report each finished question once, although later looks include the questions of earlier ones."""
    seen: set[tuple[str, str]] = set()

    def report(event: Event) -> None:
        if isinstance(event, Finished):
            key = event.variant, event.question_id
            if key in seen:
                return
            seen.add(key)
        progress(event)

    return report
