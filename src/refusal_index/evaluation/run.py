"""A run with its results, and what one can do with it.

Running a coroutine from plain code, in a script, a thread or a notebook, whose event loop runs already.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from refusal_index.evaluation.display import as_html, as_text
from refusal_index.evaluation.results import Missing
from refusal_index.outcomes.draws import corrected_indices
from refusal_index.outcomes.errors import NotWrittenError, OutcomeTableError, RunFolderError, checked_path, suggestion
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.labels import GradeChanges
from refusal_index.outcomes.settings import is_deterministic
from refusal_index.outcomes.stopping import Stop
from refusal_index.outcomes.summary import Summary, VariantSummary, is_complete, reached, short_of
from refusal_index.report import ReportRun, folder_runs, read_report_runs, write_report
from refusal_index.stats import CorrectedRefusalIndexResult, RefusalIndexResult, refusal_index

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A run with its results.

    Attributes
    ----------
    folder
        Where it lies.
    rows
        The outcome table, one row a question, variant and draw; where it is large, as it lies in the folder.
    summary
        Every metric of every variant, with intervals and cautions.
    missing
        Questions that ended in an error or are not finished, where that is known.
    document
        The summary as JSON holds it, with the grader.
    disagreements
        How many replies two graders differ over.
    changes
        What another grader changed; None in a run that was graded once.
    ended
        Why it ended before all was asked, as it was told to; None where it did not.
    outdated
        Methods of confidence whose scores rested on grades or draws that are others now, and were taken out.
    stopped
        Where it stopped before all was asked, since that was enough; None where it did not.
    short_of
        That it is less certain than `until` told it to become; None where it is not.
    reached
        That it is as certain as `until` told it to become, though it did not stop for that; None where it is not.
    """

    folder: RunFolder
    rows: pl.LazyFrame
    summary: Summary
    missing: tuple[Missing, ...] = ()
    document: Mapping[str, Any] | None = None
    disagreements: int = 0
    changes: GradeChanges | None = None
    ended: str | None = None
    outdated: tuple[str, ...] = ()
    stopped: Stop | None = None
    short_of: str | None = None
    reached: str | None = None

    @cached_property
    def outcomes(self) -> pl.DataFrame:
        """The outcome table, one row a question, variant and draw, in memory."""
        return self.rows.collect()

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def confidence(self) -> pl.DataFrame | None:
        """Scores of how likely its answers are right, as they lie in its folder now; None where there are none."""
        return self.folder.read_confidence()

    @property
    def is_complete(self) -> bool:
        """Whether no variant lacks more than 2 % of its questions, or of their further draws."""
        return is_complete(self.summary)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants."""
        return tuple(variant.variant or "all" for variant in self.summary.variants)

    def refusal_index(self, variant: str | None = None) -> RefusalIndexResult:
        """Return RI of one variant: the index of one response per question, with its intervals by method.

        Parameters
        ----------
        variant
            Its name; may be left out where there is only one.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        return refusal_index(self._variant(variant).table)

    def corrected_refusal_index(self, variant: str | None = None) -> CorrectedRefusalIndexResult:
        """Return RI estimated for the model's probabilities; it takes what `refusal_index` takes.

        It is undefined as ``"no_repeated_questions"`` where no question was sampled more than once. At temperature 0 it
        repeats RI, unless repeated samples differ.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        summary = self._variant(variant)
        rows = self.rows.filter(pl.col("variant").eq_missing(summary.variant)).collect()
        return corrected_indices([rows], [is_deterministic(self.folder.read_settings())])[0]

    def _variant(self, variant: str | None) -> VariantSummary:
        if variant is None and len(self.variants) == 1:
            variant = self.variants[0]
        if variant not in self.variants:
            guess = suggestion(variant or "", self.variants)
            raise OutcomeTableError(f"variant: expected one of {', '.join(self.variants)}, got {variant!r}{guess}")
        return self.summary.variants[self.variants.index(variant)]

    def to_pandas(self) -> pd.DataFrame:
        """Return the outcome table as a data frame of pandas, which must be installed."""
        import pandas as pd  # noqa: PLC0415 - a package that only this needs

        return pd.DataFrame(self.outcomes.to_dict(as_series=False))

    def report(self, path: str | Path | None = None) -> Path:
        """Write one self-contained HTML page of the run, and return its place.

        Parameters
        ----------
        path
            Where to write it; without one, `report.html` in the run's folder.

        Raises
        ------
        NotWrittenError
            If it cannot be written there.
        """
        place = self.folder.report if path is None else checked_path(path, "path")
        try:
            write_report(self.report_runs(), place)
        except OSError as error:
            raise NotWrittenError(place, error) from error
        return place

    def report_runs(self) -> tuple[ReportRun, ...]:
        """Return what a report is made of."""
        return folder_runs(self.folder, self.rows, self.summary)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def open_run(path: str | Path) -> Run:
    """Open the folder of a run that has results, without changing anything in it.

    Raises
    ------
    RunFolderError
        If it is not the folder of one run, or has no results yet.
    """
    folder = RunFolder(checked_path(path, "path"))
    folder.read_settings()
    found = read_report_runs([folder.path]).runs
    if len(found) != 1:
        raise RunFolderError(f"{path}: expected the folder of one run, got {len(found)} runs")
    about = folder.read_about()
    return Run(
        folder,
        folder.read_outcomes().lazy(),
        found[0].summary,
        document=folder.read_summary(),
        stopped=Stop.read(about),
        short_of=short_of(about, found[0].summary),
        reached=reached(about, found[0].summary),
    )


T = TypeVar("T")


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, whether a loop runs in this thread or not.

    Where one runs, as in a notebook, the coroutine runs in a thread with a loop of its own; an interruption cancels it
    there, so that what came before is kept.
    """
    return _in_thread(coroutine) if _is_running() else asyncio.run(coroutine)


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    loops: list[asyncio.AbstractEventLoop] = []
    tasks: list[asyncio.Task[T]] = []
    results: list[T] = []
    errors: list[BaseException] = []

    async def main() -> T:
        loops.append(asyncio.get_running_loop())
        tasks.append(asyncio.ensure_future(coroutine))
        return await tasks[0]

    def work() -> None:
        try:
            results.append(asyncio.run(main()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(work,), name="refusal-index")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        if loops and tasks:
            loops[0].call_soon_threadsafe(tasks[0].cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
