"""The results of a run: derived from its replies, summarised, written, and shown in Python."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from refusal_index import entry_points
from refusal_index.data.errors import NotWrittenError, OutcomeTableError, RunFolderError, checked_path, suggestion
from refusal_index.data.files import TEMPORARY_SUFFIX, check_plain, replacing, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.outcome_table import SCHEMA
from refusal_index.data.run_json import STOPPED, UNPRICED, Prices, Stop, is_deterministic, refusal_setting
from refusal_index.data.tables import csv_text
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.conclusions import goal
from refusal_index.findings.draws import corrected_indices
from refusal_index.findings.labels import GradeChanges, changes_document, grade_changes
from refusal_index.findings.summary import (
    DEFAULT_CONFIDENCE_LEVEL,
    DEFAULT_PENALTY,
    Summary,
    VariantSummary,
    is_complete,
    summarise,
)
from refusal_index.render.format import escape
from refusal_index.render.report import ReportRun, folder_runs, read_report_runs, write_report
from refusal_index.render.sections import with_sections
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import as_html, as_text, summary_document
from refusal_index.runs.plan import comparability_version, open_store
from refusal_index.runs.results import Disagreement, Missing, derive_into, mixture
from refusal_index.runs.store import ReplyStore, StoreError
from refusal_index.stats import CorrectedRefusalIndexResult, RefusalIndexResult, refusal_index
from refusal_index.stats.baseline import TRUTHFULNESS_WEIGHTS, Weights

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
    unmet_goal
        That its interval is wider than `half_width`; None where it is not.
    met_goal
        That its interval is within `half_width`, though it did not stop early; None where it is not.
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
    unmet_goal: str | None = None
    met_goal: str | None = None

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

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"Run({escape(str(self.path))!r})"

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
        **_goals(about, found[0].summary),
    )


T = TypeVar("T")


def run_to_completion(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, whether a loop runs in this thread or not.

    Where one runs, as in a notebook, the coroutine runs in a thread with a loop of its own; an interruption cancels it
    there, so that what came before is kept.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        tasks.append(asyncio.ensure_future(coroutine))
        return await tasks[0]

    with ThreadPoolExecutor(1, "refusal-index") as pool:  # waits for the thread when it is left
        done = pool.submit(copy_context().run, asyncio.run, main())
        try:
            return done.result()
        except KeyboardInterrupt:
            if tasks and not done.done():
                tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
            raise


PLACE = ("variant", "question_id", "draw")
"""What tells the outcomes of one run apart."""


def check_nothing_lost(folder: RunFolder, table: pl.LazyFrame) -> None:
    """See to it that no outcome in a folder gives way to one that lacks its replies.

    Raises
    ------
    StoreError
        If a question that is scored in the folder's outcome table is not in `table`, or lacks a reply there.
    """
    try:
        scored = _read_before(folder).filter(pl.col("refused").is_not_null() & pl.col("wrong").is_not_null())
    except OutcomeTableError:
        return  # none yet, or one that nobody can read
    lacking = pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED])
    kept = table.filter(~lacking.fill_null(value=False)).select(PLACE)
    variants = scored.select(pl.col("variant").unique(maintain_order=True)).collect()["variant"]
    lost = [_lost(scored, kept, variant) for variant in variants]
    count = sum(one.height for one in lost)
    if count:
        found = next(one for one in lost if one.height)
        first = ", ".join(str(found[name][0]) for name in ("variant", "question_id") if found[name][0] is not None)
        height = scored.select(pl.len()).collect().item()
        raise StoreError(
            f"{folder.replies}: expected the replies behind {folder.outcomes.name}, found none for {count:,} of "
            f"its {height:,} scored outcomes, the first {first}; restore the file, or move "
            f"{folder.outcomes.name} elsewhere to have what is left scored"
        )


def _read_before(folder: RunFolder) -> pl.LazyFrame:
    """Read the columns that say what is scored; of a table of our own, which may be large, no others, and late."""
    wanted = pl.Schema({name: SCHEMA[name] for name in (*PLACE, "refused", "wrong")})
    with suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        found = pl.scan_parquet(check_plain(folder.outcomes), glob=False).select(*wanted)
        if found.collect_schema() == wanted:
            # Read to its end once, whatever comes of it: only so it is found out that nothing in it is damaged.
            found.select(pl.all().hash().sum()).collect()
            if not found.select(pl.col("draw").has_nulls()).collect().item():
                return found
    return folder.read_outcomes().lazy()


def _lost(scored: pl.LazyFrame, kept: pl.LazyFrame, variant: str | None) -> pl.DataFrame:
    """Return the rows of one variant that are no longer there: one at a time, as a join holds all that it joins."""
    before, now = (table.filter(pl.col("variant").eq_missing(variant)) for table in (scored, kept))
    return before.join(now, on=PLACE, how="anti", nulls_equal=True, maintain_order="left").collect()


DISAGREEMENTS = "disagreements.csv"
HELD = 200_000
"""Outcomes of a run that are held in memory once they are written: a table of more is read when it is asked for."""

BEFORE = "before.parquet"
"""In the folder of a run that was regraded: the outcome table under the grader before."""


class ComparabilityError(RefusalIndexError, ValueError):
    """A run that was graded under the rules of another release."""


def write_results(
    folder: RunFolder,
    store: ReplyStore,
    prices: Prices = UNPRICED,
    *,
    penalty: float | None = None,
    truthfulness_weights: Weights | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> Run:
    """Derive the results of a folder from its replies and write them into it; call it inside the folder's lock.

    Prices, penalty and weights are those that the folder was made with, unless others are given.

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
                refusals=derived.refusals,
                prices=prices,
                penalty=penalty,
                truthfulness_weights=truthfulness_weights or about.get("truthfulness_weights", TRUTHFULNESS_WEIGHTS),
                confidence_level=confidence_level,
                is_deterministic=is_deterministic(settings),
                answered_only=bool(settings.get("answered_only")),
            )
            outdated = _refresh_scores(folder, store, settings, derived.outcomes)
            summary = with_sections(_with_mixture(summary, settings), derived.outcomes, folder.path)
        run = Run(
            folder,
            _table(folder),
            summary,
            derived.missing,
            disagreements=len(derived.disagreements),
            outdated=outdated,
            stopped=Stop.read(about),
            **_goals(about, summary),
        )
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
        advice = f"every reply is kept: fix this, then 'refusal-index score {folder.path}' writes the results"
        raise NotWrittenError(Path(error.filename or folder.path), error, advice) from error


def _table(folder: RunFolder) -> pl.LazyFrame:
    """Return the outcome table that was just written: a large one stays in its file until somebody asks for it."""
    table = pl.scan_parquet(folder.outcomes, glob=False)
    return table if table.select(pl.len()).collect().item() > HELD else table.collect().lazy()


RefreshScores = Callable[[RunFolder, ReplyStore, Mapping[str, Any], pl.LazyFrame], tuple[str, ...]]
"""Updates the confidence table of a folder, before its outcomes are replaced, and names the methods it removed."""


def _refresh_scores(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], outcomes: pl.LazyFrame
) -> tuple[str, ...]:
    """Have the plugin of confidence scores refresh those in a folder that holds some."""
    if not folder.confidence.exists():
        return ()
    refresh: RefreshScores = entry_points.hook("refresh_confidence")
    return refresh(folder, store, settings, outcomes)


def _goals(about: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """Return the sentence on whether a run became as certain as it should, if it should, by its code."""
    statement = goal(about, summary)
    return {} if statement is None else {statement.code: sentence(statement)}


def _with_mixture(summary: Summary, settings: Mapping[str, Any]) -> Summary:
    """Add the caution that the two passes may be of two models."""
    if "first_pass" not in settings:
        return summary
    said = mixture(settings["first_pass"]["model"], settings["model"])
    variants = tuple(replace(variant, warnings=(*said, *variant.warnings)) for variant in summary.variants)
    return replace(summary, variants=variants)


def _written(run: Run, settings: Mapping[str, Any], disagreements: Sequence[Disagreement]) -> Run:
    """Write what is made of the outcome table."""
    folder, changes = run.folder, None
    document = {
        **summary_document(run.summary),
        STOPPED: None if run.stopped is None else run.stopped.to_document(),
        "short_of": run.unmet_goal,
        "grader": settings.get("grader"),
    }
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
    """Write the replies that two graders differ over as CSV, if any."""
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
    write_atomically(path, csv_text(pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.String()))).encode())


def rebuild(
    path: Path,
    *,
    penalty: float | None = None,
    truthfulness_weights: Weights | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
    regrade: bool = False,
) -> Run:
    """Derive the results of a run's folder again from its replies, without a request.

    Parameters
    ----------
    path
        The folder.
    penalty, truthfulness_weights
        Of the weighted and of the truthfulness score; the run's own unless given.
    confidence_level
        Of every interval.
    regrade
        Whether to grade again by the rules of this release where the folder was made by others.

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
    made, current = _comparability_versions(folder)
    with folder.lock():
        if made != current:
            settings = folder.read_settings()
            refusal = refusal_setting(settings)
            graded = {} if refusal is None else {"grader": {**(settings.get("grader") or {}), "refusal": refusal}}
            folder.change_settings({"comparability_version": current, **graded})
        with open_store(folder) as store:
            return write_results(
                folder,
                store,
                penalty=penalty,
                truthfulness_weights=truthfulness_weights,
                confidence_level=confidence_level,
            )


def check_comparable(folder: RunFolder) -> None:
    """Raise ComparabilityError if a folder was made by other rules than this release grades by."""
    made, current = _comparability_versions(folder)
    if made != current:
        raise ComparabilityError(
            f"{folder.path} was made under comparability version {made}, and this release grades by version "
            f"{current}: its results are kept as they are"
        )


def _comparability_versions(folder: RunFolder) -> tuple[int, int]:
    """Return the version that a folder was made under, and the one that this release would make it under."""
    settings = folder.read_settings()
    current = comparability_version((settings.get("grader") or {}).get("name"))
    return settings.get("comparability_version", current), current
