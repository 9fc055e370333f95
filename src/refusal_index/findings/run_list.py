"""The runs of a folder, each with its result and how complete it is, as its files have them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.files import plain
from refusal_index.data.folder import CREATED, RunFolder
from refusal_index.data.run_sets import folders_below, member_of_set
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.findings.metric_table import POOLED
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import Estimate


@dataclass(frozen=True)
class ListedRun:
    """A run in a folder, or a folder that is none."""

    folder: Path
    # model, dataset: their names in the run's set, else in its settings; None if they cannot be read
    model: str | None = None
    dataset: str | None = None
    created: str | None = None  # when its folder was made, in ISO format; None if unknown
    asked: int | None = None  # questions under each prompt, or under the prompt that has the most
    n: int | None = None  # questions with both passes and a grade, under the prompt that has the fewest
    index: Estimate | None = None  # RI over all prompts; None if there are no results
    confidence_level: float | None = None
    lacks: str | None = None  # what is missing; None if it is complete, or has no results
    error: str | None = None  # why it cannot be read

    @property
    def status(self) -> str:
        """``complete``, ``incomplete``, ``no_results``, ``unreadable`` or ``no_run``."""
        if self.error is not None:
            return "unreadable" if os.path.lexists(RunFolder(self.folder).run_json) else "no_run"
        if self.index is None:
            return "no_results"
        return "complete" if self.lacks is None else "incomplete"

    def to_document(self) -> dict[str, Any]:
        """Return the run as a JSON-serialisable dictionary."""
        return {**plain(self), "folder": str(self.folder), "status": self.status}


def listed_runs(folder: Path) -> list[ListedRun]:
    """Return every run in a folder and in the sets and folders in it, and the other folders in it.

    Raises RunFolderError if there is no such folder, or it cannot be read.
    """
    try:
        found = [*folders_below(folder)]
    except OSError as error:
        raise RunFolderError(f"{folder}: expected a folder of runs, got {error.strerror}; check the path") from error
    by_target = {path.resolve(): path for path in reversed(found)}
    return [_listed(path) for path in reversed(by_target.values())]


def _listed(path: Path) -> ListedRun:
    """Read a run; what is wrong with it stands in its entry."""
    try:
        return _read(path)
    except (RefusalIndexError, OSError) as error:
        return ListedRun(path, error=str(error))


def _read(path: Path) -> ListedRun:
    folder = RunFolder(path)
    settings = folder.read_settings()
    about = folder.read_about()
    member = member_of_set(path)
    model = settings.get("model") if member is None else member.model
    dataset = (settings.get("dataset") or {}).get("name") if member is None else member.dataset
    entry = {"model": model, "dataset": dataset, "created": about.get(CREATED)}
    document = folder.read_summary()
    if document is None:
        return ListedRun(path, **entry)
    run = RunResults(path.name, path, model, dataset, None, settings, about=about, written=document)
    of_index = run.metrics.filter(metric=INDEX)
    if of_index.is_empty():
        raise RunFolderError(f"{folder.summary}: expected RI, found none; 'refusal-index score {path}' rebuilds it")
    joint = of_index.filter(variant=POOLED)
    row = (joint if joint.height else of_index).row(0, named=True)
    index = Estimate(row["estimate"], row["low"], row["high"], row["status"], row["reason"])
    of_prompts = of_index.filter(pl.col("n").is_not_null())
    level = document.get("confidence_level")
    return ListedRun(
        path,
        **entry,
        asked=of_prompts["asked"].max(),
        n=of_prompts["n"].min(),
        index=index,
        confidence_level=level if isinstance(level, float) else None,
        lacks=run.lacks,
    )
