"""MLflow: the numbers as metrics, what was asked as parameters, the outcome table and the folder as artifacts."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from refusal_index.plugins.trackers.results import ExportedRun
from refusal_index.plugins.trackers.tracker import (
    PROJECT,
    RunTracker,
    Subject,
    completeness_of,
    files_of,
    table_of,
    withdrawn,
)
from refusal_index.render.summary import name_part, numbers

KEY = "refusal_index.run"
"""The tag by which the same run is found again."""

COMPLETENESS = "refusal_index.status"
"""The tag that says whether the metrics are of all questions."""

MOST_METRICS, MOST_PARAMS, LONGEST_PARAM, LONGEST_TAG = 1000, 100, 6000, 5000
"""What MLflow takes at once, and of one parameter or tag."""

TABLE = "outcomes.json"

SOON = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""How long to try a server that does not answer; MLflow by itself is silent for four minutes, or for many more."""


class MlflowTracker(RunTracker):
    """A run of MLflow; its own environment variables say where: the tracking server or database, and the experiment."""

    package = "mlflow"
    address = "MLFLOW_TRACKING_URI"

    def __init__(self, subject: Subject) -> None:
        import mlflow  # noqa: PLC0415 - a package that only this needs

        self._mlflow, self._client = mlflow, mlflow.MlflowClient()
        self._experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        params = [mlflow.entities.Param(key, value[:LONGEST_PARAM]) for key, value in _params(subject.config, ())]
        with _giving_up_soon():
            begun = self._begun(subject)
            self._run_id, self._since = str(begun.run_id), int(begun.start_time)
            for some in _batches(params, MOST_PARAMS):
                self._client.log_batch(self._run_id, params=some)

    def count(self, found: Mapping[str, float]) -> None:
        """Log how far the run has come."""
        with _giving_up_soon():
            self._log(found)

    def log(self, run: ExportedRun) -> str:
        """Log all results of a run, end it there, and return where it is to be seen."""
        found = numbers(run.document)
        with _giving_up_soon():
            before = self._client.get_run(self._run_id).data.metrics
            self._log({**dict.fromkeys(withdrawn(before, found), math.nan), **found})  # it deletes no metric
            self._client.set_tag(self._run_id, COMPLETENESS, completeness_of(run)[:LONGEST_TAG])
        columns, rows = table_of(run)
        self._client.log_dict(self._run_id, {"columns": columns, "data": rows}, TABLE)
        shown = json.dumps([{"path": TABLE, "type": "table"}])
        self._client.set_tag(self._run_id, "mlflow.loggedArtifacts", shown)  # as its own `log_table` says
        for path, name in files_of(run):
            self._client.log_artifact(self._run_id, str(path), str(PurePosixPath("run", name).parent))
        self._client.set_terminated(self._run_id, "FINISHED")
        return f"{self._mlflow.get_tracking_uri()}, experiment {self._experiment}, run {self._run_id}"

    def abandon(self) -> None:
        """Bring the run to its end as one that failed."""
        with _giving_up_soon():
            self._client.set_terminated(self._run_id, "FAILED")

    def wait(self) -> None:
        """Leave the run as one that goes on later."""
        with _giving_up_soon():
            self._client.update_run(self._run_id, status="SCHEDULED")

    def _begun(self, subject: Subject) -> Any:
        """Return what is known of the run that was logged before, or of a new one."""
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
        found = self._client.search_runs([experiment], f"tags.`{KEY}` = '{subject.key}'", max_results=1)
        if found:
            self._client.update_run(found[0].info.run_id, status="RUNNING")
            return found[0].info
        return self._client.create_run(experiment, tags={KEY: subject.key}, run_name=subject.title).info

    def _log(self, found: Mapping[str, float]) -> None:
        # It shows what has the highest step: seconds since the run began rise from one command to the next.
        now = int(time.time() * 1000)
        step = max(now - self._since, 0) // 1000
        metrics = [self._mlflow.entities.Metric(*one, now, step) for one in found.items()]
        for some in _batches(metrics, MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=some)


@contextmanager
def _giving_up_soon() -> Iterator[None]:
    """Have MLflow's client give up soon unless its user says otherwise; not while files are on their way."""
    ours = {name: value for name, value in SOON.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _params(config: Mapping[str, Any], within: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield every setting by its name, those within each other parted by points."""
    for key, value in config.items():
        parts = (*within, name_part(str(key)))
        if isinstance(value, Mapping) and value:
            yield from _params(value, parts)
        else:
            yield ".".join(parts), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    each = iter(items)
    while some := list(islice(each, size)):
        yield some
