"""A run that is asked in portions and looked at after each, so that it may stop once it is certain.

The portions are nested samples: after a look at 400 questions a run holds what one with ``limit=400`` of the same seed
would. They lie in the same folder, whoever carries them. So a run that stopped is a complete run of fewer questions,
says that it stopped, and goes on from there when it is run with another end, or with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from refusal_index.datasets import sample
from refusal_index.engines.budget import Budget
from refusal_index.engines.events import Event, Finished, Progress, unwatched
from refusal_index.evaluation.carrying import OpenRun, carry_out, opened
from refusal_index.evaluation.plan import Plan
from refusal_index.evaluation.run import Run
from refusal_index.outcomes.certainty import half_width_of
from refusal_index.outcomes.stopping import STOPPED, Stop, Until
from refusal_index.stats import GroupSequential

Decide = Callable[[Run, int], str | None]
"""From a run so far, and after how many questions it is looked at, to why that is enough; None where it is not."""


async def bring_to_end(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Run:
    """Carry out a run until all is asked or, where its settings say so, until something is certain enough.

    It takes what `carry_out` takes, and raises as that does.
    """
    stopping = plan.settings.stopping
    if stopping.until is None:
        return await carry_out(plan, progress, budget)
    return await in_looks(plan, sizes_of(plan, stopping.looks), narrow_enough(stopping.until), progress, budget)


def sizes_of(plan: Plan, looks: int) -> tuple[int, ...]:
    """Return after how many questions a plan is looked at: equal portions, the last look after all of them."""
    return GroupSequential.planned(len(plan.dataset.questions), looks).sizes


async def in_looks(
    plan: Plan,
    sizes: tuple[int, ...],
    decide: Decide,
    progress: Progress = unwatched,
    budget: Budget | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Ask the questions of a plan in portions, until `decide` says at a look that it is enough.

    A run that was asked more before begins with the first look after that.

    Parameters
    ----------
    plan, progress, budget
        As `carry_out` takes them.
    sizes
        Questions after each look, rising, as `sizes_of` returns them.
    decide
        Is asked at every look that was brought to its end, the last included.
    about
        What the run's folder is to say of the looks, before the first of them.

    Raises
    ------
    RefusalIndexError
        As `carry_out` does, or as `decide` does.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.
    """
    with opened(plan, _once(progress), budget) as run:
        if about:
            plan.folder.change_about(about)
        looks = _Looks(run, sizes, decide)
        ended = await run.ask(looks.parts())
        if looks.stop is not None:
            plan.folder.change_about({STOPPED: looks.stop.to_document()})
        elif ended is None and looks.found is not None:
            return looks.found
        return run.results(ended)


@dataclass
class _Looks:
    """The looks at an open run, and where they stopped."""

    run: OpenRun
    sizes: tuple[int, ...]
    decide: Decide
    found: Run | None = None
    stop: Stop | None = None

    def parts(self) -> Iterator[Plan]:
        """Yield the questions up to each look, as long as those before were not enough."""
        plan = self.run.plan
        before = len({one for asked in self.run.store.asked().values() for one in asked})
        for look, size in enumerate(self.sizes, 1):
            if size < before:
                continue
            yield plan.part(frozenset(sample(plan.dataset, size, plan.settings.seed).questions))
            self.found = self.run.results()
            why = self.decide(self.found, size)
            if why is not None and size < self.sizes[-1]:
                self.stop = Stop(size, self.sizes[-1], look, len(self.sizes), why)
                return


def narrow_enough(until: Until) -> Decide:
    """Return what says that the interval of a run's Refusal Index is narrow enough.

    The interval is the ordinary one: how wide it is says next to nothing about which way the estimate errs, so that it
    holds at the stop as often as it says. A run without an index, at its boundary, or of which grades are missing, has
    no such interval.
    """

    def decide(run: Run, _asked: int) -> str | None:
        half_width = half_width_of(run.summary) if run.is_complete else None
        if half_width is None or half_width > until.half_width:
            return None
        return f"the interval of RI has a half-width of {half_width:.3f}, and {until.half_width:g} is enough"

    return decide


def _once(progress: Progress) -> Progress:
    """Tell of each question once that it is finished: those of earlier looks lie in later ones too."""
    seen: set[tuple[str, str]] = set()

    def tell(event: Event) -> None:
        if isinstance(event, Finished):
            key = event.variant, event.question_id
            if key in seen:
                return
            seen.add(key)
        progress(event)

    return tell
