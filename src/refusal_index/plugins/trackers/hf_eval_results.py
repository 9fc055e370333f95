"""``hf-eval-results``: YAML for a model's repository on the Hugging Face Hub.

Two files a run: entries for the folder `.eval_results`, which the Hub's leaderboards read where the dataset is one of
its benchmarks, and the older `model-index` of a model card, which takes any dataset and metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from refusal_index.data.files import write_atomically
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, VariantResults, payoffs_of
from refusal_index.render.sentences import description
from refusal_index.render.summary import name_part
from refusal_index.stats import Estimate
from refusal_index.version import __version__

SUFFIX = ""  # a folder
FOLDER = ".eval_results"
TASK = "question-answering"


def export(runs: Sequence[ExportedRun], out: Path) -> list[str]:
    """Write two files for every run into a folder, and return what must be said."""
    try:
        import yaml  # noqa: PLC0415 - of the extra eval
    except ImportError:
        raise ExportError("to", "PyYAML is not installed; pip install 'refusal-index[eval]'") from None
    said, names = [], _names(runs)
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    for run, name in zip(runs, names, strict=True):
        for path, content in (
            (out / FOLDER / f"{name}.yaml", list(_entries(run))),
            (out / f"{name}.model-index.yaml", _model_index(run)),
        ):
            write_atomically(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
            said.append(f"{path}: {len(_defined(run))} results")
    return said


def _names(runs: Sequence[ExportedRun]) -> list[str]:
    """Name a run's files: by the dataset, and by the model too where several go into one folder."""
    found: list[str] = []
    for run in runs:
        parts = [run.model, run.dataset] if len(runs) > 1 else [run.dataset]
        name = "-".join(name_part(part).replace(" ", "_") for part in parts if part) or "results"
        found.append(name if name not in found else f"{name}-{run.key}")
    return found


def _defined(run: ExportedRun) -> list[tuple[VariantResults, Estimate, float]]:
    return [
        (variant, one, one.estimate) for variant in run.variants for one in variant.metrics if one.estimate is not None
    ]


def _entries(run: ExportedRun) -> Iterator[dict[str, Any]]:
    """Yield what `.eval_results` takes: a dataset and one of its tasks, which here is a metric under a variant."""
    for variant, one, value in _defined(run):
        yield {
            "dataset": {"id": run.dataset or "unknown", "task_id": f"{name_part(variant.name)}/{one.name}"},
            "value": value,
            "notes": _note(run, variant, one),
        }


def _model_index(run: ExportedRun) -> dict[str, Any]:
    """Return what stands under `model-index` in the metadata of a model card."""
    dataset = run.dataset or "unknown"
    metrics = [
        {"type": one.name, "value": value, "name": _shown(variant, one), "verified": False}
        for variant, one, value in _defined(run)
    ]
    result = {
        "task": {"type": TASK, "name": f"Two-pass refusal evaluation, refusal-index {__version__}"},
        "dataset": {"name": dataset, "type": dataset},
        "metrics": metrics,
    }
    return {"model-index": [{"name": run.model or "unknown", "results": [result]}]}


def _shown(variant: VariantResults, one: Estimate) -> str:
    """Return what the card calls a number; there is no other field that would say what it lacks."""
    return f"{variant.name}/{one.name}" + (f" (incomplete: {variant.lacks})" if variant.lacks else "")


def _note(run: ExportedRun, variant: VariantResults, one: Estimate) -> str:
    payoffs = payoffs_of(run.document)
    title = description(one.name, payoffs) if one.name in METRICS and payoffs else one.name.replace("_", " ")
    asked = "all prompts jointly" if variant.is_joint else f"prompt {variant.name}, {variant.n:,} questions"
    ends = (
        "" if one.low is None or one.high is None else f", {run.level * 100:g} % interval {one.low:g} to {one.high:g}"
    )
    lacks = f"; incomplete: {variant.lacks}" if variant.lacks else ""
    return f"{title} ({' '.join(asked.split())}{ends}{lacks})"
