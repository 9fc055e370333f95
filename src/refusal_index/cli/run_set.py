"""The folder of a set of runs: a folder for each of them, and one summary of all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.cli.config_file import Config
from refusal_index.cli.execution import Prepared
from refusal_index.cli.tables import is_complete
from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.lock import held
from refusal_index.outcomes.run_sets import SET_VERSION, SUMMARY, set_document
from refusal_index.outcomes.summary import Summary
from refusal_index.stats import Status

LOCK = ".lock"


@dataclass(frozen=True)
class SetIndex:
    """The Refusal Index of one model on one dataset: jointly over its variants, or of its only one."""

    variants: tuple[str, ...]
    estimate: float | None
    low: float | None
    high: float | None
    status: Status
    reason: str | None


@dataclass(frozen=True)
class CellResult:
    """What became of one run of a set.

    Attributes
    ----------
    prepared
        The run.
    summary, document
        Its results, and its summary as JSON holds it; None where there are none yet.
    error
        What kept it from its end.
    """

    prepared: Prepared
    summary: Summary | None = None
    document: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def status(self) -> str:
        """``complete``, ``incomplete`` (too much is unscored), ``failed`` or ``pending``."""
        if self.summary is None:
            return "pending" if self.error is None else "failed"
        return "complete" if is_complete(self.summary) else "incomplete"

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self.status == "complete"

    @property
    def index(self) -> SetIndex | None:
        """The Refusal Index; None where there are no results."""
        if self.summary is None or not self.summary.variants:
            return None
        if self.summary.pooled:
            variants, joint = self.summary.pooled[0].variants, self.summary.pooled[0].index
            return SetIndex(variants, joint.estimate, joint.low, joint.high, joint.status, joint.reason)
        only = self.summary.variants[0]
        index = only.metric("refusal_index")
        return SetIndex((str(only.variant),), index.estimate, index.low, index.high, index.status, index.reason)

    @property
    def labelled(self) -> Summary | None:
        """The summary with the names that the set has for model and dataset."""
        if self.summary is None:
            return None
        model, dataset = self.prepared.model, self.prepared.dataset
        return replace(
            self.summary,
            variants=tuple(replace(variant, model=model, dataset=dataset) for variant in self.summary.variants),
            pooled=tuple(replace(pooled, model=model, dataset=dataset) for pooled in self.summary.pooled),
        )


@dataclass(frozen=True)
class RunSet:
    """A set of runs, the folder that they lie in, and the configuration that it is of."""

    path: Path
    config: Config

    @property
    def summary(self) -> Path:
        """The summary of all runs."""
        return self.path / SUMMARY

    def check(self) -> None:
        """Raise if the folder is something else.

        Raises
        ------
        RunFolderError
            If it is the folder of a single run, or its summary is not one of a set.
        """
        if (self.path / "run.json").exists():
            raise RunFolderError(f"{self.path} is the folder of a single run; choose another one for the set")
        if self.summary.exists() and "set_version" not in set_document(self.path):
            raise RunFolderError(f"{self.summary} is not the summary of a set; choose another folder")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other sets out of the folder while the block runs; it makes the folder where there is none.

        Raises
        ------
        RunFolderError
            If another process holds it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be made ({error.strerror}); choose another place") from error
        with held(self.path / LOCK):
            yield

    def write(self, results: Sequence[CellResult]) -> None:
        """Replace the set's summary."""
        write_atomically(self.summary, self.to_json(results).encode())

    def to_json(self, results: Sequence[CellResult]) -> str:
        """Give the set's summary as JSON text."""
        return json.dumps(self._to_document(results), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def _to_document(self, results: Sequence[CellResult]) -> dict[str, Any]:
        return {
            "set_version": SET_VERSION,
            "name": self.config.name,
            "config": {"source": self.config.source, "sha256": self.config.sha256},
            "complete": all(result.is_complete for result in results),
            "runs": [_run_document(result) for result in results],
        }


def _run_document(result: CellResult) -> dict[str, Any]:
    index = result.index
    return {
        "model": result.prepared.model,
        "dataset": result.prepared.dataset,
        "folder": result.prepared.folder.path.name,
        "status": result.status,
        "error": result.error,
        "refusal_index": None if index is None else vars(index),
        "summary": result.document,
    }
