"""Runs as exporters see them: the metrics in ``summary.json`` and the outcome tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_sets import runs_below
from refusal_index.errors import RefusalIndexError, RunFolderError, shortened
from refusal_index.findings.run_results import RunResults, read_runs
from refusal_index.redaction import redacted_in
from refusal_index.render.summary import SUMMARY_VERSION


class ExportError(RefusalIndexError, ValueError):
    """An invalid argument of an export; `message` does not name the argument."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"{argument}: {message}")
        self.argument = argument
        self.message = message


class TrackerError(RefusalIndexError, RuntimeError):
    """A tracker did not accept a run; the run's results are unchanged."""


def read_exported(sources: Sequence[Path | RunResults]) -> tuple[RunResults, ...]:
    """Read the runs in run folders, set folders, outcome tables and memory: one for each model and dataset.

    The results of a folder are read from its `summary.json`; those of a table are computed. Raises RunFolderError if a
    folder is not that of a run or has no results yet, and OutcomeTableError if a table cannot be used.
    """
    exported: list[RunResults] = []
    for source in sources:
        runs: Sequence[Path | RunResults] = () if isinstance(source, RunResults) else runs_below(source)
        for run in runs or [source]:
            if isinstance(run, Path) and run.is_dir():
                exported.append(read_folder(run))
            else:
                exported += map(_redacted, read_runs([run]))
    return tuple(exported)


def read_folder(path: Path) -> RunResults:
    """Read the results in a run's folder; raises the same errors as `read_exported`."""
    folder = RunFolder(path)
    settings = folder.read_settings()
    about = folder.read_about()
    document = folder.read_summary()
    if document is None:
        raise RunFolderError(
            f"{path} has no results yet; finish the run, or rebuild them with 'refusal-index score {path}'"
        )
    advice = f"'refusal-index score {folder.path}' rebuilds it"
    version = document.get("summary_version")
    if version != SUMMARY_VERSION:
        raise RunFolderError(
            f"{folder.summary}: expected summary_version {SUMMARY_VERSION}, got {shortened(version)}; {advice}"
        )
    try:  # the folder may be untrusted
        level = document["confidence_level"]
        if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"confidence_level is {shortened(level)}")
        document = redacted_in(document)
        first: Mapping[str, Any] = next(iter(document["variants"]), {})
        run = RunResults(
            str(first.get("model")),
            path,
            first.get("model"),
            first.get("dataset"),
            None,
            redacted_in(settings),
            about=redacted_in(about),
            written=document,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
        why = shortened(str(error).partition("\n")[0], 160)
        raise RunFolderError(
            f"{folder.summary}: expected the metrics of each variant, got something else ({why}); {advice}"
        ) from error
    _ = run.metrics  # so that errors are raised here
    return run


def _redacted(run: RunResults) -> RunResults:
    """Return a run of a table without keys in its summary and its names."""
    document = redacted_in(dict(run.document))
    first: Mapping[str, Any] = next(iter(document["variants"]), {})
    return replace(run, model=first.get("model"), dataset=first.get("dataset"), written=document)
