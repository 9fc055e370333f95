"""The results of a run: derived from its replies, summarised and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index import entry_points
from refusal_index.data.analysis import DEFAULT_ANALYSIS, PAYOFFS, Analysis
from refusal_index.data.files import json_text, replacing, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import ANSWERED_BY, UNPRICED, Prices, as_json, is_deterministic
from refusal_index.data.written_tables import csv_text
from refusal_index.errors import NotWrittenError
from refusal_index.findings.labels import grade_changes
from refusal_index.findings.metrics import rendering
from refusal_index.findings.models_asked import run_caveats
from refusal_index.findings.run_results import RunResults, names_in_set
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import summarise
from refusal_index.protocol import TwoPass
from refusal_index.protocol.refusals import Detector
from refusal_index.redaction import redacted_in, without_credentials
from refusal_index.runs.nothing_lost import check_nothing_lost
from refusal_index.runs.results import Disagreement, derive_into, procedure_of
from refusal_index.runs.store import ReplyStore

MAX_ROWS_IN_MEMORY = 200_000
"""Outcome tables of at most this many rows stay in memory; larger ones are read from their file when needed."""


def write_results(
    folder: RunFolder,
    store: ReplyStore,
    prices: Prices = UNPRICED,
    analysis: Analysis = DEFAULT_ANALYSIS,
    *,
    is_regraded: bool = False,
    detector: Detector | None = None,
) -> RunResults:
    """Derive a folder's results from its replies and write them; the folder must be locked.

    Parameters
    ----------
    folder, store
        The run's folder and its replies.
    prices
        The prices of its models; those that are not given are the ones recorded in the folder.
    analysis
        How to compute its metrics.
    is_regraded
        Whether the rules of another version graded the folder before.
    detector
        The function by which the run recognises refusals, if it does so by one.

    Raises
    ------
    UnfinishedError
        If there are no replies yet.
    StoreError
        If replies behind existing results are missing; the results are kept.
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    settings = folder.read_complete_settings()
    answered_by = store.answered_by()
    if answered_by != folder.read_about().get(ANSWERED_BY, {}):
        folder.change_about({ANSWERED_BY: answered_by})
    about = folder.read_about()
    prices = prices.filled_from(Prices.read(about))
    analysis = analysis.with_recorded([about])
    payoffs = {name: getattr(analysis, name) for name in PAYOFFS if getattr(analysis, name) is not None}
    if any(about.get(name) != value for name, value in as_json(payoffs).items()):
        folder.change_about(payoffs)  # so that whatever reads the run computes its scores as its results are
        about = folder.read_about()
    try:
        with replacing(folder.outcomes) as new:
            derived = derive_into(new, folder, store, prices, detector)
            check_nothing_lost(folder, derived.outcomes, is_regraded=is_regraded)
            summary = summarise(
                derived.outcomes,
                analysis,
                usage=derived.usage,
                replies=derived.replies,
                prices=prices,
                is_deterministic=is_deterministic(settings, about),
                answered_only=bool(settings.get("answered_only")),
                run_caveats=run_caveats(settings, about),
            )
            refresh: RefreshScores | None = (
                entry_points.hook("refresh_confidence") if folder.confidence.exists() else None
            )
            outdated = refresh(folder, store, procedure_of(settings, detector), derived.outcomes) if refresh else ()
            summary = with_sections(summary, derived.outcomes, folder.path)
        table = pl.scan_parquet(folder.outcomes, glob=False)
        is_large = table.select(pl.len()).collect().item() > MAX_ROWS_IN_MEMORY
        run = RunResults(
            settings["model"],
            folder.path,
            settings["model"],
            settings["dataset"]["name"],
            table if is_large else table.collect().lazy(),
            settings,
            about=about,
            analysis=analysis,
            computed=summary,
            missing=derived.missing,
            disagreements=len(derived.disagreements),
            outdated=outdated,
        )
        return _written(replace(run, **names_in_set(folder.path)), derived.disagreements)
    except OSError as error:
        advice = f"every reply is kept: fix this, then 'refusal-index score {folder.path}' writes the results"
        raise NotWrittenError(Path(error.filename or folder.path), error, advice) from error


RefreshScores = Callable[[RunFolder, ReplyStore, TwoPass, pl.LazyFrame], tuple[str, ...]]
"""Updates a folder's confidence table before its outcomes are replaced; returns the methods whose scores it removed."""


def _written(run: RunResults, disagreements: Sequence[Disagreement]) -> RunResults:
    """Write the summary, the report, and the replies on which graders disagree."""
    folder = run.folder
    if "regraded_from" in run.settings:
        run = replace(run, changes=grade_changes(folder.read_outcomes(folder.before), run.rows))
    run = replace(run, written=run.document)
    folder.write_summary(json_text(redacted_in(run.document, without_credentials)))
    rendering().write_report([run], folder.report)
    _write_disagreements(folder.path / "disagreements.csv", disagreements, run.settings.get("grader") or {})
    return run


def _write_disagreements(path: Path, disagreements: Sequence[Disagreement], grader: Mapping[str, Any]) -> None:
    """Write replies on which two graders disagree to a CSV file, if there are any."""
    if not disagreements:
        path.unlink(missing_ok=True)
        return
    rows = [
        {
            "question_id": disagreement.question.question_id,
            "variant": disagreement.variant,
            "pass": str(disagreement.pass_),
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
