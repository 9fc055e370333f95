"""Clients of experiment trackers: MLflow and Weights & Biases.

Both show the outcome table as a table and keep the files of the run's folder as artifacts. MLflow has the texts of the
settings, such as prompts, and the status of every metric as artifacts as well.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
import polars.selectors as cs

from refusal_index.findings.metric_table import UNNAMED
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.trackers.tracker import Subject, TrackerError
from refusal_index.redaction import redacted_in
from refusal_index.render.summary import name_part, numbers

MAX_ROWS = 100_000
"""Maximum number of outcomes in the table that a tracker displays; the file logged with it contains all of them."""

PROJECT = "refusal-index"
"""Default project or experiment, used unless the tracker's own settings name one."""


def table_of(frame: pl.DataFrame) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and the first `MAX_ROWS` rows of a table, with API keys redacted."""
    shown = frame.head(MAX_ROWS).with_columns(cs.float().fill_nan(None))
    return shown.columns, redacted_in([list(row) for row in shown.iter_rows()])


def withdrawn(before: Iterable[str], logged: Mapping[str, float]) -> list[str]:
    """Return the names of metrics that were logged before and are now undefined; other tools' names are ignored.

    >>> withdrawn(["low/n", "low/refusal_index", "of_mine", "progress/cost"], {"weighted_score_p": 1.0, "low/n": 60.0})
    ['low/refusal_index']
    """
    variants = {name.partition("/")[0] for name in logged if "/" in name}
    return [name for name in before if name not in logged and name.partition("/")[0] in variants]


def completeness_of(run: RunResults) -> str:
    """Return ``complete``, or what is missing: metrics alone do not show whether they cover all questions."""
    return f"incomplete: {run.lacks}" if run.lacks else "complete"


def caveats_of(run: RunResults) -> str:
    """Return the caveats of every prompt, one a line."""
    lines = [
        f"{variant.get('variant') or UNNAMED}: {caveat['message']}"
        for variant in run.document["variants"]
        for caveat in variant.get("caveats") or ()
    ]
    return "\n".join(lines) + "\n"


def files_of(run: RunResults) -> list[tuple[Path, str]]:
    """Return the regular files in a run's folder and their relative names, without links and hidden files."""
    if not run.is_in_folder:
        return [(run.source, run.source.name)]
    files = []
    for path in sorted(run.source.rglob("*")):
        parts = path.relative_to(run.source).parts
        through_link = any(run.source.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts)))
        if path.is_file() and not through_link and not parts[-1].startswith("."):
            files.append((path, "/".join(parts)))
    return files


KEY = "refusal_index.run"
"""Tag that identifies a run, so that exporting it again updates it."""


MAX_METRICS = 1000
MAX_PARAMS = 100
MAX_TAG_LENGTH = 5000
"""MLflow's limits: metrics and parameters in one request, and characters in a tag."""

MAX_PARAM_LENGTH = 250
"""Maximum length of a parameter; a longer setting, or one of several lines, is a text, logged as an artifact."""

OUTCOMES = "outcomes.json"
METRICS = "metrics.json"
CAVEATS = "caveats.txt"
TEXTS = "texts"
"""Artifacts: the outcome table, every metric with its status, the caveats, and the folder of texts."""

TIMEOUTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""Retries and timeout for a server that does not answer; MLflow's defaults block for four minutes or much longer."""


class MlflowTracker:
    """A run in MLflow, whose environment variables set the tracking server or database and the experiment."""

    package = "mlflow"
    address = "MLFLOW_TRACKING_URI"

    def __init__(self, subject: Subject) -> None:
        import mlflow  # noqa: PLC0415 - an optional dependency

        self._mlflow = mlflow
        self._client = mlflow.MlflowClient()
        self._experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        named = dict(_params(subject.config, ()))
        is_text = {name: len(value) > MAX_PARAM_LENGTH or "\n" in value for name, value in named.items()}
        params = [mlflow.entities.Param(name, value) for name, value in named.items() if not is_text[name]]
        self._texts = {name: value for name, value in named.items() if is_text[name]}
        with _short_timeouts():
            info = self._begin(subject)
            self._run_id = str(info.run_id)
            self._started = int(info.start_time)
            for batch in _batches(params, MAX_PARAMS):
                self._client.log_batch(self._run_id, params=batch)

    def count(self, counts: Mapping[str, float]) -> None:
        """Log the progress of the run."""
        with _short_timeouts():
            self._log(counts)

    def log(self, run: RunResults) -> str:
        """Log all results of a run, end the MLflow run and return its address."""
        named = numbers(run.document)
        with _short_timeouts():
            before = self._client.get_run(self._run_id).data.metrics
            self._log({**dict.fromkeys(withdrawn(before, named), math.nan), **named})  # MLflow cannot delete a metric
            # tag that says whether the metrics cover all questions
            self._client.set_tag(self._run_id, "refusal_index.status", completeness_of(run)[:MAX_TAG_LENGTH])
        for path, frame in ((OUTCOMES, run.outcomes), (METRICS, run.metrics)):
            columns, rows = table_of(frame)
            self._client.log_dict(self._run_id, {"columns": columns, "data": rows}, path)
        shown = json.dumps([{"path": path, "type": "table"} for path in (OUTCOMES, METRICS)])
        self._client.set_tag(self._run_id, "mlflow.loggedArtifacts", shown)  # as MLflow's `log_table` does
        texts = {f"{TEXTS}/{name}.txt": text for name, text in self._texts.items()}
        for path, text in {CAVEATS: caveats_of(run), **texts}.items():
            self._client.log_text(self._run_id, text, path)
        for file, name in files_of(run):
            self._client.log_artifact(self._run_id, str(file), str(PurePosixPath("run", name).parent))
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
    defaults = {name: value for name, value in TIMEOUTS.items() if name not in os.environ}
    os.environ.update(defaults)
    try:
        yield
    finally:
        for name in defaults:
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

        self._wandb = wandb
        self._is_ended = False
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

    def log(self, run: RunResults) -> str:
        """Log all results of a run, end the W&B run and return its address or folder."""
        named = numbers(run.document)
        for name in withdrawn(self._run.summary.keys(), named):
            del self._run.summary[name]
        # key in the W&B summary that says whether the metrics cover all questions
        self._run.summary.update({**named, "status": completeness_of(run)})
        columns, rows = table_of(run.outcomes)
        self._run.log({"outcomes": self._wandb.Table(columns=columns, data=rows, allow_mixed_types=True)})
        artifact = self._wandb.Artifact(f"run-{run.key}", type="refusal-index-run")
        for path, name in files_of(run):
            artifact.add_file(str(path), name)
        self._run.log_artifact(artifact)
        location = self._run.dir.removesuffix("/files") if self._run.offline else self._run.url
        self._end()
        return f"{location}, offline: 'wandb sync' uploads it" if self._run.offline else str(location)

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
