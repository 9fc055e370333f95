"""The results of a run's folder: made from its logs, written beside them, shown.

Reading logs takes the engine; `tables` does without, for outcomes alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import typer

from refusal_index.cli.show import print_changes, print_missing, print_places, print_summary, print_usage, prose
from refusal_index.engines.inspect.derive import Derived, Missing, derive
from refusal_index.engines.inspect.disagreements import Disagreement
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.outcome import FORCED_NOT_ASKED
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.price import UNPRICED, Prices
from refusal_index.outcomes.regrading import GradeChanges, changes_document, grade_changes
from refusal_index.outcomes.summary import (
    DEFAULT_CONFIDENCE_LEVEL,
    DEFAULT_PENALTY,
    Summary,
    summarise,
    summary_document,
)
from refusal_index.outcomes.table import defused, read_outcomes
from refusal_index.report import folder_runs, write_report

DISAGREEMENTS = "disagreements.csv"
BEFORE = "before.parquet"
"""In the folder of a run that was graded anew: the outcome table under the grader before."""


@dataclass(frozen=True)
class RunResults:
    """What a run's folder holds.

    Attributes
    ----------
    folder, outcomes, summary
        The run, its outcome table and its summary.
    missing
        Questions that ended in an error.
    document
        The summary as JSON holds it, with the grader.
    disagreements
        How many replies two graders differ over.
    changes
        What another grader changed; None in a run that was graded once.
    """

    folder: RunFolder
    outcomes: pl.DataFrame
    summary: Summary
    missing: tuple[Missing, ...]
    document: Mapping[str, Any]
    disagreements: int = 0
    changes: GradeChanges | None = None


def write_results(
    folder: RunFolder,
    prices: Prices = UNPRICED,
    *,
    penalty: float | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> RunResults:
    """Derive the results of `folder` from its logs and write them into it; call it inside the folder's lock.

    Prices and penalty are those that the folder was made with, unless others are given.

    Raises
    ------
    LogError
        If no variant was run to its end.
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    prices, penalty = as_made(folder, prices, penalty)
    derived = derive(folder, prices)
    return write_derived(folder, derived, summary_of(derived, prices, penalty, confidence_level))


def as_made(folder: RunFolder, prices: Prices, penalty: float | None) -> tuple[Prices, float]:
    """Return these prices and this penalty, in place of those not given the ones that the folder was made with."""
    about = folder.read_about()
    return prices.or_those(Prices.read(about)), about.get("penalty", DEFAULT_PENALTY) if penalty is None else penalty


def summary_of(derived: Derived, prices: Prices, penalty: float, confidence_level: float) -> Summary:
    """Return the summary of what was derived with these prices."""
    return summarise(
        derived.outcomes, usage=derived.usage, prices=prices, penalty=penalty, confidence_level=confidence_level
    )


def write_derived(folder: RunFolder, derived: Derived, summary: Summary) -> RunResults:
    """Write what was derived of `folder` and its summary into it, with who graded, and return all of it.

    Raises
    ------
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    settings = folder.read_settings()
    document = {**summary_document(summary), "grader": settings.get("grader")}
    changes = None
    if "regraded_from" in settings:
        changes = grade_changes(read_outcomes(folder.path / BEFORE), derived.outcomes)
        document["regrading"] = {"from": settings["regraded_from"]["grader"], **changes_document(changes)}
    folder.write_outcomes(derived.outcomes)
    folder.write_summary(_json(document))
    write_report(folder_runs(folder, derived.outcomes, summary), folder.report)
    _write_disagreements(folder.path / DISAGREEMENTS, derived.disagreements, settings.get("grader") or {})
    return RunResults(folder, derived.outcomes, summary, derived.missing, document, len(derived.disagreements), changes)


def _json(document: Mapping[str, Any]) -> str:
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


def show_run(results: RunResults, *, as_json: bool) -> None:
    """Print the results of a run."""
    if as_json:
        typer.echo(_json(results.document), nl=False)
        return
    print_summary(results.summary)
    if results.changes is not None:
        print_changes(results.changes, results.document["regrading"]["from"], results.document["grader"])
        _tell_not_forced(results)
    if results.disagreements:
        prose(f"\nThe graders differ over {results.disagreements:,} replies: see {DISAGREEMENTS}.")
    print_usage(results.summary)
    print_missing([(one.variant, one.question_id, one.error) for one in results.missing])
    places = ("report.html", "outcomes.parquet", "summary.json", "run.json", "logs/")
    print_places(results.folder.path, (*places, DISAGREEMENTS) if results.disagreements else places)


def _tell_not_forced(results: RunResults) -> None:
    """Say how many answers are refusals to the new grader, and what would ask for their forced answers."""
    count = results.outcomes.filter(unscored_reason=FORCED_NOT_ASKED).height
    if count:
        path = harmless(str(results.folder.path))
        prose(
            f"\n{count:,} replies were answers before and are refusals now, so that no forced answer was asked for: "
            f"they are unscored ({FORCED_NOT_ASKED}). 'refusal-index force {path}/outcomes.parquet --model "
            "MODEL' asks for them."
        )
