"""The runs of a folder, each with its result and how complete it is, as its files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refusal_index.data.folder import CREATED, RunFolder
from refusal_index.data.run_sets import folders_below, is_run
from refusal_index.errors import RefusalIndexError, RunFolderError
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.run_results import RunResults, names_in_set

OF_INDEX = ("estimate", "low", "high", "status", "reason")
"""What is listed of RI."""


def listed_runs(folder: Path) -> list[dict[str, Any]]:
    """Return every run in a folder and in those in it, and the folders in it that hold no run, as JSON documents.

    Each has its ``folder`` and its ``status``: complete, incomplete, no_results, unreadable or no_run. The last two
    have the ``error``; the others ``model``, ``dataset`` and ``created``. With results there are ``n``, the graded
    questions under the prompt that has the fewest, ``asked``, the questions under each prompt, ``refusal_index`` over
    all prompts, its ``confidence_level``, and what the run ``lacks``.
    """
    by_target = {path.resolve(): path for path in folders_below(folder)}
    return [{"folder": str(path), **_listed(path)} for path in by_target.values()]


def _listed(path: Path) -> dict[str, Any]:
    try:
        return _read(RunFolder(path))
    except RefusalIndexError as error:
        return {"status": "unreadable" if is_run(path) else "no_run", "error": str(error)}


def _read(folder: RunFolder) -> dict[str, Any]:
    """Return the entry of a run; raises RunFolderError if a file of it cannot be read."""
    settings = folder.read_complete_settings()
    about = folder.read_about()
    written = folder.read_summary()
    names = {"model": settings["model"], "dataset": settings["dataset"]["name"], **names_in_set(folder.path)}
    entry = {"model": names["model"], "dataset": names["dataset"], "created": about.get(CREATED)}
    if written is None:
        return {"status": "no_results", **entry}
    run = RunResults("", folder.path, names["model"], names["dataset"], None, settings, about=about, written=written)
    rows = run.metrics.filter(metric=INDEX).to_dicts()
    prompts = [row for row in rows if row["n"] is not None]
    if not prompts:
        raise RunFolderError(
            f"{folder.summary}: expected RI, got none; 'refusal-index score {folder.path}' rebuilds it"
        )
    is_over_all = len(prompts) == 1 or len(prompts) < len(rows)
    return {
        "status": "complete" if run.lacks is None else "incomplete",
        **entry,
        "n": min(row["n"] for row in prompts),
        "asked": max(row["asked"] for row in prompts),
        INDEX: {name: rows[-1][name] if is_over_all else None for name in OF_INDEX},
        "confidence_level": written.get("confidence_level"),
        "lacks": run.lacks,
    }
