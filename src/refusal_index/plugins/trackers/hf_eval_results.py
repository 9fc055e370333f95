"""``hf-eval-results``: YAML files for a model's repository on the Hugging Face Hub.

Each run becomes two files: entries for the folder `.eval_results`, which the Hub's leaderboards read if the dataset is
one of its benchmarks, and the older `model-index` of a model card, which accepts any dataset and metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refusal_index.data.files import write_atomically
from refusal_index.entry_points import package_version
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, payoffs_of
from refusal_index.render.sentences import description
from refusal_index.render.summary import name_part

SUFFIX = ""  # a folder
FOLDER = ".eval_results"
TASK = "question-answering"


def export(runs: Sequence[ExportedRun], out: Path) -> list[str]:
    """Write two files for each run into a folder and return a line about each file."""
    try:
        import yaml  # noqa: PLC0415 - installed with the extra "eval"
    except ImportError:
        raise ExportError("to", "PyYAML is not installed; pip install 'refusal-index[eval]'") from None
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    names: set[str] = set()
    for run in runs:
        name = _file_name(run, with_model=len(runs) > 1)
        name = name if name not in names else f"{name}-{run.key}"
        names.add(name)
        defined = run.metrics.drop_nulls("estimate").to_dicts()
        for path, content in (
            (out / FOLDER / f"{name}.yaml", [_entry(run, metric) for metric in defined]),
            (out / f"{name}.model-index.yaml", _model_index(run, defined)),
        ):
            write_atomically(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
            lines.append(f"{path}: {len(defined)} results")
    return lines


def _file_name(run: ExportedRun, *, with_model: bool) -> str:
    """Return a run's file name: its dataset, preceded by its model if several runs share a folder."""
    parts = [run.model, run.dataset] if with_model else [run.dataset]
    return "-".join(name_part(part).replace(" ", "_") for part in parts if part) or "results"


def _entry(run: ExportedRun, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of `.eval_results`, whose task is a metric under a variant."""
    variant, metric, low, high = (row[name] for name in ("variant", "metric", "low", "high"))
    payoffs = payoffs_of(run.document)
    title = description(metric, payoffs) if metric in METRICS and payoffs else metric.replace("_", " ")
    prompts = "all prompts combined" if row["n"] is None else f"prompt {variant}, {row['n']:,} questions"
    has_interval = low is not None and high is not None
    interval = f", {run.level * 100:g}% interval {low:g} to {high:g}" if has_interval else ""
    lacks = f"; incomplete: {row['lacks']}" if row["lacks"] else ""
    return {
        "dataset": {"id": run.dataset or "unknown", "task_id": f"{name_part(variant)}/{metric}"},
        "value": row["estimate"],
        "notes": f"{title} ({' '.join(prompts.split())}{interval}{lacks})",
    }


def _model_index(run: ExportedRun, defined: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `model-index` of a model card; the name of an incomplete metric says what is missing."""
    dataset = run.dataset or "unknown"
    metrics = [
        {
            "type": row["metric"],
            "value": row["estimate"],
            "name": f"{row['variant']}/{row['metric']}" + (f" (incomplete: {row['lacks']})" if row["lacks"] else ""),
            "verified": False,
        }
        for row in defined
    ]
    result = {
        "task": {"type": TASK, "name": f"Two-pass refusal evaluation, refusal-index {package_version()}"},
        "dataset": {"name": dataset, "type": dataset},
        "metrics": metrics,
    }
    return {"model-index": [{"name": run.model or "unknown", "results": [result]}]}
