"""The targets by name, and writing runs for one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from refusal_index.data.errors import NotWrittenError, suggestion
from refusal_index.data.folder import run_around
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, read_exported
from refusal_index.plugins.trackers.tracker import TRACKERS, export_to

TARGETS = {
    "csv": "One long table: a row for each run, variant and metric, with its interval.",
    "every-eval-ever": "Every Eval Ever, schema 0.3.0: an aggregate file and one of samples a run.",
    "hf-eval-results": "YAML for a model's repository on the Hugging Face Hub.",
    "inspect": "Logs of Inspect, one a run and variant, for inspect view.",
    "mlflow": "A run of MLflow: metrics, parameters, outcome table, report and folder.",
    "wandb": "A run of Weights & Biases: summary, configuration, outcome table, report and folder.",
}
"""What each target is, in a sentence."""

FILES = {
    "csv": ("csv_table", "a file"),
    "every-eval-ever": ("every_eval_ever", "a folder"),
    "hf-eval-results": ("hf_eval_results", "a folder"),
    "inspect": (".inspect.export_log", "a folder"),
}
"""The targets that are files: the module of each, and what it writes into."""


def export_runs(paths: Sequence[Path], to: str, out: Path | None = None) -> list[str]:
    """Write runs in the format of another tool, or log them in a tracker; return what was written, a line each.

    Raises ExportError if there is no such target or it lacks something, TrackerError if a tracker takes no runs,
    NotWrittenError if files cannot be written, and what `read_exported` raises.

    - `paths`: runs' folders, folders of sets, and outcome tables.
    - `to`: one of `TARGETS`.
    - `out`: the file or folder to write; a tracker takes none, as its own settings say where it is.
    """
    if "," in to:
        raise ExportError("to", f"expected one target at a time, got {to!r}")
    if to not in TARGETS:
        raise ExportError("to", f"expected one of {', '.join(TARGETS)}, got {to!r}{suggestion(to, TARGETS)}")
    if to in TRACKERS:
        if out is not None:
            raise ExportError("out", f"expected nothing, got {out}; the settings of {to} say where it logs")
        runs, doubles = _once_each(read_exported(paths))
        return [*export_to(to, runs), *doubles, *_lacking(runs)]
    module, place = FILES[to]
    if out is None:
        raise ExportError("out", f"expected {place} to write, got nothing")
    _check_place(to, out, paths)
    runs, doubles = _once_each(read_exported(paths))
    try:
        said: list[str] = import_module(f".{module}", __package__).export(runs, out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise NotWrittenError(Path(error.filename or out), error) from error
    return [*said, *doubles, *_lacking(runs)]


def _once_each(runs: Sequence[ExportedRun]) -> tuple[list[ExportedRun], list[str]]:
    """Return every run once, and what must be said of those that were given again: a mean over rows counts each."""
    known: dict[str, ExportedRun] = {}
    doubles = [run for run in runs if known.setdefault(run.key, run) is not run]
    return [*known.values()], [f"{one.source}: the same run as {known[one.key].source}, taken once" for one in doubles]


def _lacking(runs: Sequence[ExportedRun]) -> list[str]:
    """Say what is incomplete, wherever its numbers went."""
    return [f"{run.source}: incomplete: {run.lacks}" for run in runs if run.lacks]


def _check_place(to: str, out: Path, paths: Sequence[Path]) -> None:
    """Raise ExportError if something that was paid for would be lost: a mistyped option should cost no run."""
    if any(path.resolve() == out.resolve() for path in paths):
        raise ExportError("out", f"{out} is one of the runs and would be lost; choose another place")
    if run_around(out) is not None:
        raise ExportError("out", f"{out} lies in the folder of a run, which is its own; choose another place")
    if to == "csv" and out.suffix.lower() != ".csv":
        raise ExportError("out", f"expected a file that ends in .csv, got {out}")
    place = out.parent if to == "csv" else out
    if not place.is_dir() and (to == "csv" or os.path.lexists(place)):
        raise ExportError("out", f"{out} cannot be written, as {place} is no folder; make it, or choose another place")
