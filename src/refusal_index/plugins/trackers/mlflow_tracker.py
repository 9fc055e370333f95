"""MLflow: results as metrics, settings as parameters, the outcome table and the run's folder as artifacts."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from refusal_index.plugins.trackers.results import ExportedRun
from refusal_index.plugins.trackers.tracker import (
    PROJECT,
    Subject,
    completeness_of,
    files_of,
    table_of,
    withdrawn,
)
from refusal_index.render.summary import name_part, numbers

KEY = "refusal_index.run"
"""Tag that identifies a run, so that exporting it again updates it."""

COMPLETENESS = "refusal_index.status"
"""Tag that says whether the metrics cover all questions."""

MAX_METRICS, MAX_PARAMS, MAX_PARAM_LENGTH, MAX_TAG_LENGTH = 1000, 100, 6000, 5000
"""MLflow's limits: metrics and parameters in one request, and characters in a parameter and in a tag."""

TABLE = "outcomes.json"

TIMEOUTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""Retries and timeout for a server that does not answer; MLflow's defaults block for four minutes or much longer."""


class MlflowTracker:
    """A run in MLflow, whose environment variables set the tracking server or database and the experiment."""

    package = "mlflow"
    address = "MLFLOW_TRACKING_URI"

    def __init__(self, subject: Subject) -> None:
        import mlflow  # noqa: PLC0415 - an optional dependency

        self._mlflow, self._client = mlflow, mlflow.MlflowClient()
        self._experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        params = [mlflow.entities.Param(key, value[:MAX_PARAM_LENGTH]) for key, value in _params(subject.config, ())]
        with _short_timeouts():
            info = self._begin(subject)
            self._run_id, self._started = str(info.run_id), int(info.start_time)
            for batch in _batches(params, MAX_PARAMS):
                self._client.log_batch(self._run_id, params=batch)

    def count(self, counts: Mapping[str, float]) -> None:
        """Log the progress of the run."""
        with _short_timeouts():
            self._log(counts)

    def log(self, run: ExportedRun) -> str:
        """Log all results of a run, end the MLflow run and return its address."""
        named = numbers(run.document)
        with _short_timeouts():
            before = self._client.get_run(self._run_id).data.metrics
            self._log({**dict.fromkeys(withdrawn(before, named), math.nan), **named})  # MLflow cannot delete a metric
            self._client.set_tag(self._run_id, COMPLETENESS, completeness_of(run)[:MAX_TAG_LENGTH])
        columns, rows = table_of(run)
        self._client.log_dict(self._run_id, {"columns": columns, "data": rows}, TABLE)
        shown = json.dumps([{"path": TABLE, "type": "table"}])
        self._client.set_tag(self._run_id, "mlflow.loggedArtifacts", shown)  # as MLflow's `log_table` does
        for path, name in files_of(run):
            self._client.log_artifact(self._run_id, str(path), str(PurePosixPath("run", name).parent))
        self._client.set_terminated(self._run_id, "FINISHED")
        return f"{self._mlflow.get_tracking_uri()}, experiment {self._experiment}, run {self._run_id}"

    def abandon(self) -> None:
        """End the run as failed."""
        with _short_timeouts():
            self._client.set_terminated(self._run_id, "FAILED")

    def wait(self) -> None:
        """Mark the run as scheduled, to be continued later."""
        with _short_timeouts():
            self._client.update_run(self._run_id, status="SCHEDULED")

    def _begin(self, subject: Subject) -> Any:
        """Resume the MLflow run that was logged before, or create one, and return its run info."""
        existing = self._client.get_experiment_by_name(self._experiment)
        experiment = existing.experiment_id if existing else self._client.create_experiment(self._experiment)
        earlier = self._client.search_runs([experiment], f"tags.`{KEY}` = '{subject.key}'", max_results=1)
        if earlier:
            self._client.update_run(earlier[0].info.run_id, status="RUNNING")
            return earlier[0].info
        return self._client.create_run(experiment, tags={KEY: subject.key}, run_name=subject.title).info

    def _log(self, values: Mapping[str, float]) -> None:
        # MLflow shows the value with the highest step: seconds since the run began increase across commands.
        now = int(time.time() * 1000)
        step = max(now - self._started, 0) // 1000
        metrics = [self._mlflow.entities.Metric(name, value, now, step) for name, value in values.items()]
        for batch in _batches(metrics, MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=batch)


@contextmanager
def _short_timeouts() -> Iterator[None]:
    """Shorten the MLflow client's timeouts unless the user set them; not used for uploading files."""
    ours = {name: value for name, value in TIMEOUTS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _params(config: Mapping[str, Any], within: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name and value of every setting; the names of nested settings are joined by dots."""
    for key, value in config.items():
        parts = (*within, name_part(str(key)))
        if isinstance(value, Mapping) and value:
            yield from _params(value, parts)
        else:
            yield ".".join(parts), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
