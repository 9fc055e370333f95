"""Weights & Biases: results as the run's summary, the outcome table as a table, the folder as an artifact."""

from __future__ import annotations

import os
from collections.abc import Mapping

from refusal_index.plugins.trackers.results import ExportedRun, TrackerError
from refusal_index.plugins.trackers.tracker import (
    PROJECT,
    Subject,
    completeness_of,
    files_of,
    table_of,
    withdrawn,
)
from refusal_index.render.summary import numbers

QUIET = {
    "console": "off",  # the output may contain replies
    "silent": True,  # also prevents a prompt for an API key in the terminal
    "disable_git": True,
    "save_code": False,
    "x_disable_meta": True,  # the command line may contain a key
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
"""Settings with which W&B sends only the run and prints nothing."""

COMPLETENESS = "status"
"""Key in the W&B summary that says whether the metrics cover all questions."""

FINISH_TIMEOUT = 120.0
"""Seconds to wait for the server at the end; ``wandb sync`` sends what it has not received by then from the disk."""

INIT_TIMEOUT = {"init_timeout": 15.0}
"""Seconds to wait for the server at the start, unless WANDB_INIT_TIMEOUT is set."""


class WandbTracker:
    """A run in W&B, whose environment variables set the project, the entity and the offline mode."""

    package = "wandb"
    address = "WANDB_BASE_URL"

    def __init__(self, subject: Subject) -> None:
        import wandb  # noqa: PLC0415 - an optional dependency

        self._wandb, self._is_ended = wandb, False
        timeout = {} if "WANDB_INIT_TIMEOUT" in os.environ else INIT_TIMEOUT
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=subject.key,
            resume="allow",
            name=subject.title,
            job_type="evaluation",
            config=dict(subject.config),
            reinit="create_new",
            settings=wandb.Settings(**QUIET, **timeout, finish_timeout=FINISH_TIMEOUT, finish_timeout_raises=True),
        )
        if self._run.disabled:
            raise TrackerError("nothing was logged because WANDB_MODE is disabled; unset it, or set it to offline")

    def count(self, counts: Mapping[str, float]) -> None:
        """Log the progress of the run."""
        self._run.log(dict(counts))

    def log(self, run: ExportedRun) -> str:
        """Log all results of a run, end the W&B run and return its address or folder."""
        named = numbers(run.document)
        for name in withdrawn(self._run.summary.keys(), named):
            del self._run.summary[name]
        self._run.summary.update({**named, COMPLETENESS: completeness_of(run)})
        columns, rows = table_of(run)
        self._run.log({"outcomes": self._wandb.Table(columns=columns, data=rows, allow_mixed_types=True)})
        artifact = self._wandb.Artifact(f"run-{run.key}", type="refusal-index-run")
        for path, name in files_of(run):
            artifact.add_file(str(path), name)
        self._run.log_artifact(artifact)
        place = self._run.dir.removesuffix("/files") if self._run.offline else self._run.url
        self._end()
        return f"{place}, offline: 'wandb sync' uploads it" if self._run.offline else str(place)

    def abandon(self) -> None:
        """End the run as failed."""
        if not self._is_ended:  # otherwise W&B has already waited for the server, and its data are on the disk
            self._end(exit_code=1)

    def wait(self) -> None:
        """End the W&B run so that it can be resumed later."""
        self._end()

    def _end(self, exit_code: int = 0) -> None:
        self._is_ended = True
        self._run.finish(exit_code=exit_code)
