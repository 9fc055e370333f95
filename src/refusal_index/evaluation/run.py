"""A run: asked within its folder, resumable at any moment, and summed up; and what one can do with it then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import (
    Engine,
    Opened,
    Progress,
    RunFailedError,
    WaitingError,
    unwatched,
)
from refusal_index.engines.registry import BATCH, engine_of, note_on
from refusal_index.engines.settings import COMPARABILITY_VERSION
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.engines.waves.in_flight import refuse_in_flight
from refusal_index.engines.waves.leftover import refuse_left
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.confidence_refresh import refresh_scores
from refusal_index.evaluation.display import as_html, as_text
from refusal_index.evaluation.first_passes import mixture
from refusal_index.evaluation.plan import Plan
from refusal_index.evaluation.results import (
    Disagreement,
    Missing,
    UnfinishedError,
    check_nothing_lost,
    derive_into,
)
from refusal_index.evaluation.waves import Wave, ask_waves
from refusal_index.outcomes.draws import index_of_probabilities
from refusal_index.outcomes.errors import NotWrittenError, OutcomeTableError, RunFolderError, checked_path, suggestion
from refusal_index.outcomes.files import TEMPORARY_SUFFIX, replacing, write_atomically
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import UNPRICED, Prices
from refusal_index.outcomes.regrading import GradeChanges, changes_document, grade_changes
from refusal_index.outcomes.settings import always_alike
from refusal_index.outcomes.summary import (
    DEFAULT_CONFIDENCE_LEVEL,
    DEFAULT_PENALTY,
    Summary,
    VariantSummary,
    is_complete,
    summarise,
    summary_document,
    with_confidence,
)
from refusal_index.outcomes.table import defused
from refusal_index.report import ReportRun, folder_runs, read_report_runs, write_report
from refusal_index.stats import NoiseCorrectedResult, RefusalIndexResult, refusal_index

if TYPE_CHECKING:
    import pandas as pd

DISAGREEMENTS = "disagreements.csv"
HELD = 200_000
"""Outcomes of a run that are held in memory once they are written: a table of more is read when it is asked for."""

BEFORE = "before.parquet"
"""In the folder of a run that was graded anew: the outcome table under the grader before."""


class ComparabilityError(RefusalIndexError, ValueError):
    """A folder whose results were made by rules that are not those of this release."""


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
        """Whether no variant lacks more than 2 % of its questions."""
        return is_complete(self.summary)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants."""
        return tuple(variant.variant or "all" for variant in self.summary.variants)

    def refusal_index(self, variant: str | None = None) -> NoiseCorrectedResult:
        """Return the Refusal Index of one variant: that of the model's probabilities.

        It is undefined as ``"no_repeated_questions"`` where no question was drawn twice, unless at temperature 0, where
        every draw is the same reply.

        Parameters
        ----------
        variant
            Its name; may be left out where there is only one.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        summary = self._variant(variant)
        rows = self.rows.filter(pl.col("variant").eq_missing(summary.variant)).collect()
        return index_of_probabilities(rows, always_alike(self.folder.read_settings()))

    def single_draw_refusal_index(self, variant: str | None = None) -> RefusalIndexResult:
        """Return the index of one reply a question, with its intervals by method; it takes what `refusal_index` takes.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        return refusal_index(self._variant(variant).table)

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


async def carry_out(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Run:
    """Ask what is still to be asked, and write the results into the run's folder.

    Parameters
    ----------
    plan
        The run, as `prepare` returns it.
    progress
        Is told what happens; what it raises ends the run, and is raised again.
    budget
        What may be used, where several runs share it; None for the run's own.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or the run could not be brought to its end: what was answered is kept.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.
    """
    folder = plan.folder
    with open_store(folder, made=False) as store:
        to_ask = plan.pending(store) or plan.asked_again(store)
    # A wrong name or a missing key is told before a folder is made.
    engine = engine_of(plan.settings.sending.engine)(plan.settings, plan.names, plan.objects) if to_ask else None
    with folder.lock():
        folder.create_or_resume(plan.identity, about=plan.about)
        with open_store(folder) as store:
            _check_own(plan, store)
            if engine is not None:
                refuse_left(folder, plan.settings.sending.engine)
            if engine is not None and plan.settings.sending.engine != BATCH:
                refuse_in_flight(folder, store, plan.names)
            for variant in plan.procedures:
                store.ask(variant, plan.draws[variant])
            store.retire(plan.asked_again(store))
            pending = plan.pending(store)
            finished = sum(len(draws) for variant, draws in plan.draws.items() if variant not in pending)
            notes = (plan.unread(store), note_on(plan.settings.sending) if engine else None)
            progress(Opened(finished, "\n".join(filter(None, notes)) or None))
            ended = None
            if engine is not None:
                budget = budget or Budget(plan.settings.limits)
                budget.count_earlier(folder.path, chain(store.replies(), store.retired()), plan.prices)
                # What is on its way already is collected whatever is left of the budget.
                ended = None if engine.together else budget.used_up()
                ended = ended or await _ask(plan, pending, engine, store, progress, budget)
            try:
                run = write_results(folder, store, plan.prices, penalty=plan.settings.accounts.penalty)
            except UnfinishedError as error:
                if ended is None:
                    raise RunFailedError(str(error)) from error
                raise WaitingError(ended) from error
            return replace(run, ended=ended)


def _check_own(plan: Plan, store: ReplyStore) -> None:
    """Raise StoreError if another run's store lies in the folder: its questions would be counted among this one's."""
    ours = {question.question_id for draws in plan.draws.values() for question in draws}
    others = {one for asked in store.asked().values() for one in asked} - ours
    if others:
        raise StoreError(
            f"{store.path}: it holds {len(others):,} questions that this run does not ask, the first "
            f"{min(others)[:60]!r}: it is another run's; put back the one of this run, or run into another folder"
        )


async def _ask(
    plan: Plan, pending: Sequence[str], engine: Engine, store: ReplyStore, progress: Progress, budget: Budget
) -> str | None:
    """Ask what is to be asked, and return why it ended before that, as it was told to."""
    waves: Iterable[Wave] = ((variant, plan.conversations(variant, store)) for variant in pending)
    if engine.together:
        waves = [("", plan.by_question(pending, store))]
    return await ask_waves(waves, plan.settings, plan.folder, engine, store, progress, budget, plan.dataset.name)


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the replies of a folder; what an earlier release left there as logs is taken over.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to make the file where there is none; else what it would hold is read into memory.
    """
    lost = folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size)
    if lost and not any(folder.logs.glob("*.eval")):
        raise StoreError(
            f"{folder.replies}: expected the replies that {folder.outcomes.name} was made of, found none; restore the "
            "file, or evaluate into another folder"
        )
    store = ReplyStore(folder.replies if made or folder.replies.exists() else None)
    if store.is_empty and any(folder.logs.glob("*.eval")):
        from refusal_index.engines.inspect.earlier_runs import take_over_logs  # noqa: PLC0415 - of earlier folders only

        take_over_logs(folder, store)
    return store


def write_results(
    folder: RunFolder,
    store: ReplyStore,
    prices: Prices = UNPRICED,
    *,
    penalty: float | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> Run:
    """Derive the results of a folder from its replies and write them into it; call it inside the folder's lock.

    Prices and penalty are those that the folder was made with, unless others are given.

    Raises
    ------
    UnfinishedError
        If nothing was answered yet.
    StoreError
        If replies behind the results that are there have gone: these stay.
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    settings, about = folder.read_complete_settings(), folder.read_about()
    prices = prices.or_those(Prices.read(about))
    penalty = about.get("penalty", DEFAULT_PENALTY) if penalty is None else penalty
    with _advising(folder):
        _clear_away(folder)
        with replacing(folder.outcomes) as new:
            derived = derive_into(new, folder, store, prices)
            check_nothing_lost(folder, derived.outcomes)
            summary = summarise(
                derived.outcomes,
                usage=derived.usage,
                prices=prices,
                penalty=penalty,
                confidence_level=confidence_level,
                always_alike=always_alike(settings),
            )
            outdated = refresh_scores(folder, store, settings, derived.outcomes)
            summary = with_confidence(_with_mixture(summary, settings), derived.outcomes, folder.read_confidence())
        run = Run(folder, _table(folder), summary, derived.missing, None, len(derived.disagreements), outdated=outdated)
        return _written(run, settings, derived.disagreements)


def _clear_away(folder: RunFolder) -> None:
    """Remove what was left half-written where the process was killed: parts of a large table take room."""
    for path in folder.path.glob(f".{folder.outcomes.name}.*{TEMPORARY_SUFFIX}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _advising(folder: RunFolder) -> Iterator[None]:
    """Say where results cannot be written that nothing is lost, and what makes them."""
    try:
        yield
    except OSError as error:
        advice = (
            f"every reply is kept: make room, or mend this, and 'refusal-index score {folder.path}' writes the results"
        )
        raise NotWrittenError(Path(error.filename or folder.path), error, advice) from error


def _table(folder: RunFolder) -> pl.LazyFrame:
    """Return the outcome table that was just written: a large one stays in its file until somebody asks for it."""
    table = pl.scan_parquet(folder.outcomes)
    return table if table.select(pl.len()).collect().item() > HELD else table.collect().lazy()


def _with_mixture(summary: Summary, settings: Mapping[str, Any]) -> Summary:
    """Add what must be said where the two passes may be of two models."""
    if "first_pass" not in settings:
        return summary
    said = tuple(mixture(settings["first_pass"]["model"], settings["model"]))
    variants = tuple(replace(variant, warnings=(*said, *variant.warnings)) for variant in summary.variants)
    return replace(summary, variants=variants)


def _written(run: Run, settings: Mapping[str, Any], disagreements: Sequence[Disagreement]) -> Run:
    """Write what is made of the outcome table."""
    folder, changes = run.folder, None
    document = {**summary_document(run.summary), "grader": settings.get("grader")}
    if "regraded_from" in settings:
        changes = grade_changes(folder.read_outcomes(folder.path / BEFORE), run.rows)
        document["regrading"] = {"from": settings["regraded_from"]["grader"], **changes_document(changes)}
    folder.write_summary(as_json(document))
    write_report(run.report_runs(), folder.report)
    _write_disagreements(folder.path / DISAGREEMENTS, disagreements, settings.get("grader") or {})
    return replace(run, document=document, changes=changes)


def as_json(document: Mapping[str, Any]) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write_disagreements(path: Path, found: Sequence[Disagreement], grader: Mapping[str, Any]) -> None:
    """Write the replies that two graders differ over as CSV that a spreadsheet can open without harm, if any."""
    if not found:
        path.unlink(missing_ok=True)
        return
    rows = [
        {
            "question_id": one.question.question_id,
            "variant": one.variant,
            "pass": str(one.of),
            "question": one.question.text,
            "gold": one.question.gold,
            "reply": one.reply,
            "grader": grader.get("name"),
            "grade": str(one.grade),
            "second_grader": grader.get("second"),
            "second_grade": str(one.second_grade),
        }
        for one in found
    ]
    cells = pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.String()))
    write_atomically(path, cells.with_columns(defused(name) for name in cells.columns).write_csv().encode())


def rebuild(
    path: Path,
    *,
    penalty: float | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
    regrade: bool = False,
) -> Run:
    """Derive the results of a run's folder anew from its replies, without a request.

    Parameters
    ----------
    path
        The folder.
    penalty, confidence_level
        Of the weighted score, the run's own unless given, and of every interval.
    regrade
        Whether to grade anew by the rules of this release where the folder was made by others.

    Raises
    ------
    ComparabilityError
        If the folder was made under another comparability version: what is there is kept.
    RefusalIndexError
        If the folder is not a run's, or has no results yet.
    """
    folder = RunFolder(path)
    # Before the lock, which makes a folder where there is none, the settings are read.
    if not regrade:
        check_comparable(folder)
    made = folder.read_settings().get("comparability_version", COMPARABILITY_VERSION)
    with folder.lock():
        if made != COMPARABILITY_VERSION:
            folder.change_settings({"comparability_version": COMPARABILITY_VERSION})
        with open_store(folder) as store:
            return write_results(folder, store, penalty=penalty, confidence_level=confidence_level)


def check_comparable(folder: RunFolder) -> None:
    """Raise ComparabilityError if a folder was made by other rules than this release grades by."""
    made = folder.read_settings().get("comparability_version", COMPARABILITY_VERSION)
    if made != COMPARABILITY_VERSION:
        raise ComparabilityError(
            f"{folder.path} was made under comparability version {made}, and this release grades by version "
            f"{COMPARABILITY_VERSION}: its results are kept as they are"
        )


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
    return Run(folder, folder.read_outcomes().lazy(), found[0].summary, document=folder.read_summary())
