"""A run of a set, how far it is, and the summary of the set in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.data.files import json_text, write_atomically
from refusal_index.data.run_sets import SET_VERSION, SUMMARY
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.run_results import RunResults
from refusal_index.runs.engine import WaitingError
from refusal_index.runs.plan import Plan


@dataclass(frozen=True)
class SetRun:
    """One run of a set, and how far it is.

    Attributes
    ----------
    plan
        The run.
    outcome
        Its results, or the error that it ended in: a `WaitingError` if it waits for something; None before it starts.
    """

    plan: Plan
    outcome: RunResults | RefusalIndexError | None = None

    @property
    def results(self) -> RunResults | None:
        """Its results; None if there are none yet."""
        return self.outcome if isinstance(self.outcome, RunResults) else None

    @property
    def error(self) -> str | None:
        """The error that stopped it; None if it was not stopped."""
        is_error = isinstance(self.outcome, RefusalIndexError) and not isinstance(self.outcome, WaitingError)
        return str(self.outcome) if is_error else None

    @property
    def waits(self) -> str | None:
        """What it is waiting for, if it has no results yet."""
        return str(self.outcome) if isinstance(self.outcome, WaitingError) else None

    @property
    def status(self) -> str:
        """``complete``, ``incomplete`` (too many questions are unscored), ``failed``, ``waiting`` or ``pending``."""
        if self.results is None:
            return "failed" if self.error is not None else "waiting" if self.waits is not None else "pending"
        return "complete" if self.results.is_complete else "incomplete"

    @property
    def is_waiting(self) -> bool:
        """Whether it ended early as planned."""
        return self.waits is not None or (self.results is not None and self.results.ended is not None)

    def to_document(self) -> dict[str, Any]:
        """Return the run as an entry of the set's summary."""
        index = None
        if self.results is not None and self.results.summary.index is not None:
            variants = [str(variant.variant) for variant in self.results.summary.variants]
            index = {"variants": variants, **self.results.summary.index.to_document()}
        return {
            "model": self.plan.title[0],
            "dataset": self.plan.title[1],
            "folder": self.plan.folder.path.name,
            "status": self.status,
            "error": self.error,
            "waits": self.waits,
            "refusal_index": index,
            "summary": self.results.document if self.results else None,
        }


def set_summary(name: str, runs: Sequence[Mapping[str, Any]], **made_from: Any) -> dict[str, Any]:
    """Return the summary of a set as a JSON-serialisable dictionary.

    - `runs`: its entries, as `SetRun.to_document` returns them.
    - `made_from`: what the set was made from.
    """
    is_complete = all(run.get("status") == "complete" for run in runs)
    return {"set_version": SET_VERSION, "name": name, **made_from, "complete": is_complete, "runs": runs}


def write_set_summary(folder: Path, document: Mapping[str, Any]) -> None:
    """Replace the summary in the folder of a set."""
    write_atomically(folder / SUMMARY, json_text(document).encode())
