"""The results of a run: derived from its replies, summarised, written, and shown in Python."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from refusal_index import entry_points
from refusal_index.data.files import TEMPORARY_SUFFIX, check_plain, replacing, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.outcome_table import SCHEMA
from refusal_index.data.run_json import STOPPED, UNPRICED, Prices, Stop, is_deterministic, refusal_setting
from refusal_index.data.tables import csv_text
from refusal_index.errors import (
    NotWrittenError,
    OutcomeTableError,
    RefusalIndexError,
    RunFolderError,
    checked_path,
    suggestion,
)
from refusal_index.findings.conclusions import goal, stopped
from refusal_index.findings.draws import corrected_indices
from refusal_index.findings.labels import GradeChanges, changes_document, grade_changes
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import (
    DEFAULT_CONFIDENCE_LEVEL,
    DEFAULT_PENALTY,
    Summary,
    VariantSummary,
    is_complete,
    summarise,
)
from refusal_index.render.format import Block, Table, escape, to_html, to_text
from refusal_index.render.report import ReportRun, folder_runs, read_report_runs, write_report
from refusal_index.render.sections import with_sections
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import (
    changes_blocks,
    first_screen,
    plane_svg,
    summary_blocks,
    summary_document,
    used_blocks,
)
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
        The run's folder.
    rows
        The outcome table, one row per question, variant and draw; a large table is read lazily from the folder.
    summary
        Every metric of every variant, with intervals and caveats.
    missing
        Questions that failed or are unfinished, if known.
    document
        The summary as a JSON-serialisable dictionary, with the grader.
    disagreements
        Number of replies on which two graders disagree.
    changes
        What regrading changed; None for a run that was graded once.
    ended
        Why it ended early as planned; None if it did not.
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
        """The outcome table in memory, one row per question, variant and draw."""
        return self.rows.collect()

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def confidence(self) -> pl.DataFrame | None:
        """The confidence scores in its folder; None if there are none."""
        return self.folder.read_confidence()

    @property
    def is_complete(self) -> bool:
        """Whether every variant has at least 98% of its questions and of their further draws."""
        return is_complete(self.summary)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of its variants."""
        return tuple(variant.variant or "all" for variant in self.summary.variants)

    def refusal_index(self, variant: str | None = None) -> RefusalIndexResult:
        """Return RI of one variant, estimated from one response per question, with intervals by method.

        Parameters
        ----------
        variant
            Its name; optional if there is only one variant.

        Raises
        ------
        OutcomeTableError
            If the run has no such variant.
        """
        return refusal_index(self._variant(variant).table)

    def corrected_refusal_index(self, variant: str | None = None) -> CorrectedRefusalIndexResult:
        """Return RI corrected for sampling noise, from repeated samples; takes the arguments of `refusal_index`.

        It is undefined, with status ``"no_repeated_questions"``, if no question was sampled more than once. At
        temperature 0 it equals RI, unless repeated samples differ.

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
        """Return the outcome table as a pandas DataFrame; needs pandas."""
        import pandas as pd  # noqa: PLC0415 - a package that only this needs

        return pd.DataFrame(self.outcomes.to_dict(as_series=False))

    def report(self, path: str | Path | None = None) -> Path:
        """Write a self-contained HTML report of the run, and return its path.

        Parameters
        ----------
        path
            Where to write it; by default `report.html` in the run's folder.

        Raises
        ------
        NotWrittenError
            If it cannot be written there.
        """
        target = self.folder.report if path is None else checked_path(path, "path")
        try:
            write_report(self.report_runs(), target)
        except OSError as error:
            raise NotWrittenError(target, error) from error
        return target

    def report_runs(self) -> tuple[ReportRun, ...]:
        """Return the data behind a report."""
        return folder_runs(self.folder, self.rows, self.summary)

    def __str__(self) -> str:
        """Return the first screen as plain text."""
        return f"{self!r}\n{to_text(run_blocks(self, everything=False))}"

    def __repr__(self) -> str:
        return f"Run({escape(str(self.path))!r})"

    def _repr_html_(self) -> str:
        """Return the table with intervals, beside it the small plane of refusals and right answers, and the rest."""
        blocks = list(run_blocks(self))
        first = next(index for index, block in enumerate(blocks) if isinstance(block, Table)) + 1
        side_by_side = (
            f'<div style="{SIDE_BY_SIDE}"><div>{to_html(blocks[:first])}</div>{plane_svg(self.summary)}</div>'
        )
        return f"{side_by_side}\n{to_html(blocks[first:])}"


SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"


def run_blocks(run: Run, *, everything: bool = True) -> Iterator[Block]:
    """Yield the results of a run; with `everything`, all its metrics."""
    yield from (summary_blocks if everything else first_screen)(run.summary)
    if run.stopped is not None:
        yield from ("", sentence(stopped(run.stopped)))
    for of_goal in (run.unmet_goal, run.met_goal):
        if of_goal is not None:
            yield from ("", of_goal)
    if run.changes is not None and run.document is not None:
        yield from changes_blocks(run.changes, run.document["regrading"]["from"], run.document["grader"])
        not_forced = run.outcomes.filter(unscored_reason=FORCED_NOT_ASKED).height
        if not_forced:
            values = {"replies": not_forced, "folder": str(run.path)}
            yield from ("", sentence(Statement("not_forced", "serious", values)))
    if run.disagreements:
        yield from ("", sentence(Statement("disagreements", "note", {"replies": run.disagreements})))
    yield from used_blocks(run.summary)


def open_run(path: str | Path) -> Run:
    """Open the folder of a run with results; nothing in it is changed.

    Raises
    ------
    RunFolderError
        If it is not a single run's folder, or has no results yet.
    """
    folder = RunFolder(checked_path(path, "path"))
    folder.read_settings()
    runs, _ = read_report_runs([folder.path])
    if len(runs) != 1:
        raise RunFolderError(f"{path}: expected the folder of one run, got {len(runs)} runs")
    about = folder.read_about()
    return Run(
        folder,
        folder.read_outcomes().lazy(),
        runs[0].summary,
        document=folder.read_summary(),
        **_goals(about, runs[0].summary),
    )


T = TypeVar("T")


def run_to_completion(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, whether a loop runs in this thread or not.

    If a loop is running, as in a notebook, the coroutine runs in a thread with a loop of its own. An interruption
    cancels it there, so that earlier replies are kept.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        tasks.append(asyncio.ensure_future(coroutine))
        return await tasks[0]

    with ThreadPoolExecutor(1, "refusal-index") as pool:  # leaving the block waits for the thread
        done = pool.submit(copy_context().run, asyncio.run, main())
        try:
            return done.result()
        except KeyboardInterrupt:
            if tasks and not done.done():
                tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
            raise


PLACE = ("variant", "question_id", "draw")
"""Columns that identify an outcome within a run."""


def check_nothing_lost(folder: RunFolder, table: pl.LazyFrame) -> None:
    """Check that every scored outcome in the folder still has its replies before the table is replaced.

    Raises
    ------
    StoreError
        If a question scored in the folder's outcome table is missing from `table`, or lacks a reply there.
    """
    try:
        scored = _read_before(folder).filter(pl.col("refused").is_not_null() & pl.col("wrong").is_not_null())
    except OutcomeTableError:
        return  # missing or unreadable
    lacking = pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED])
    remaining = table.filter(~lacking.fill_null(value=False)).select(PLACE)
    variants = scored.select(pl.col("variant").unique(maintain_order=True)).collect()["variant"]
    lost = []
    for variant in variants:  # one at a time, because a join holds its tables in memory
        before, now = (table.filter(pl.col("variant").eq_missing(variant)) for table in (scored, remaining))
        lost.append(before.join(now, on=PLACE, how="anti", nulls_equal=True, maintain_order="left").collect())
    count = sum(rows.height for rows in lost)
    if count:
        rows_lost = next(rows for rows in lost if rows.height)
        first = ", ".join(
            str(rows_lost[name][0]) for name in ("variant", "question_id") if rows_lost[name][0] is not None
        )
        height = scored.select(pl.len()).collect().item()
        raise StoreError(
            f"{folder.replies}: expected the replies behind {folder.outcomes.name}, found none for {count:,} of "
            f"its {height:,} scored outcomes, the first {first}; restore the file, or move "
            f"{folder.outcomes.name} elsewhere to have what is left scored"
        )


def _read_before(folder: RunFolder) -> pl.LazyFrame:
    """Read the columns that show what is scored; lazily from a table of ours, since it may be large."""
    schema = pl.Schema({name: SCHEMA[name] for name in (*PLACE, "refused", "wrong")})
    with suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        outcomes = pl.scan_parquet(check_plain(folder.outcomes), glob=False).select(*schema)
        if outcomes.collect_schema() == schema:
            # Read to the end once: otherwise damage further down would go unnoticed.
            outcomes.select(pl.all().hash().sum()).collect()
            if not outcomes.select(pl.col("draw").has_nulls()).collect().item():
                return outcomes
    return folder.read_outcomes().lazy()


DISAGREEMENTS = "disagreements.csv"
HELD = 200_000
"""Outcome tables of at most this many rows stay in memory; larger ones are read from their file when needed."""

BEFORE = "before.parquet"
"""In the folder of a regraded run: the outcome table under the previous grader."""


class ComparabilityError(RefusalIndexError, ValueError):
    """Raised for a run that was graded under the rules of another release."""


def write_results(
    folder: RunFolder,
    store: ReplyStore,
    prices: Prices = UNPRICED,
    *,
    penalty: float | None = None,
    truthfulness_weights: Weights | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> Run:
    """Derive a folder's results from its replies and write them; the folder must be locked.

    Prices, penalty and weights default to those recorded in the folder.

    Raises
    ------
    UnfinishedError
        If there are no replies yet.
    StoreError
        If replies behind existing results are missing; the results are kept.
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    settings, about = folder.read_complete_settings(), folder.read_about()
    prices = prices.filled_from(Prices.read(about))
    penalty = about.get("penalty", DEFAULT_PENALTY) if penalty is None else penalty
    try:
        # A killed process may have left parts of a large table.
        for path in folder.path.glob(f".{folder.outcomes.name}.*{TEMPORARY_SUFFIX}"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
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
            refresh: RefreshScores | None = (
                entry_points.hook("refresh_confidence") if folder.confidence.exists() else None
            )
            outdated = refresh(folder, store, settings, derived.outcomes) if refresh else ()
            if "first_pass" in settings:
                caveats = mixture(settings["first_pass"]["model"], settings["model"])
                variants = tuple(
                    replace(variant, warnings=(*caveats, *variant.warnings)) for variant in summary.variants
                )
                summary = replace(summary, variants=variants)
            summary = with_sections(summary, derived.outcomes, folder.path)
        table = pl.scan_parquet(folder.outcomes, glob=False)
        run = Run(
            folder,
            table if table.select(pl.len()).collect().item() > HELD else table.collect().lazy(),
            summary,
            derived.missing,
            disagreements=len(derived.disagreements),
            outdated=outdated,
            **_goals(about, summary),
        )
        return _written(run, settings, derived.disagreements)
    except OSError as error:
        advice = f"every reply is kept: fix this, then 'refusal-index score {folder.path}' writes the results"
        raise NotWrittenError(Path(error.filename or folder.path), error, advice) from error


RefreshScores = Callable[[RunFolder, ReplyStore, Mapping[str, Any], pl.LazyFrame], tuple[str, ...]]
"""Updates a folder's confidence table before its outcomes are replaced; returns the methods whose scores it removed."""


def _goals(about: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """Return what a run's folder says of its end: where it stopped, and a sentence on its target half-width by code."""
    statement = goal(about, summary)
    return {"stopped": Stop.read(about)} | ({} if statement is None else {statement.code: sentence(statement)})


def _written(run: Run, settings: Mapping[str, Any], disagreements: Sequence[Disagreement]) -> Run:
    """Write the outcome table, and everything computed from it."""
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


def _write_disagreements(path: Path, disagreements: Sequence[Disagreement], grader: Mapping[str, Any]) -> None:
    """Write replies on which two graders disagree to a CSV file, if there are any."""
    if not disagreements:
        path.unlink(missing_ok=True)
        return
    rows = [
        {
            "question_id": disagreement.question.question_id,
            "variant": disagreement.variant,
            "pass": str(disagreement.of),
            "question": disagreement.question.text,
            "gold": disagreement.question.gold,
            "reply": disagreement.reply,
            "grader": grader.get("name"),
            "grade": str(disagreement.grade),
            "second_grader": grader.get("second"),
            "second_grade": str(disagreement.second_grade),
        }
        for disagreement in disagreements
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
    """Derive a run's results again from its replies, without sending requests.

    Parameters
    ----------
    path
        The folder.
    penalty, truthfulness_weights
        Penalty of the weighted score and weights of the truthfulness score; by default the run's own.
    confidence_level
        Of every interval.
    regrade
        Whether to apply this release's grading rules to a folder made under others.

    Raises
    ------
    ComparabilityError
        If the folder has another comparability version; its results are kept.
    RefusalIndexError
        If the folder is not a run's, or has no results yet.
    """
    folder = RunFolder(path)
    # Settings are read before locking, which would create a missing folder.
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
    """Raise ComparabilityError if a folder was graded under other rules than this release's."""
    made, current = _comparability_versions(folder)
    if made != current:
        raise ComparabilityError(
            f"{folder.path} was made under comparability version {made}, and this release grades by version "
            f"{current}: its results are kept as they are"
        )


def _comparability_versions(folder: RunFolder) -> tuple[int, int]:
    """Return the comparability version of a folder, and the one that this release would give it."""
    settings = folder.read_settings()
    current = comparability_version((settings.get("grader") or {}).get("name"))
    return settings.get("comparability_version", current), current
