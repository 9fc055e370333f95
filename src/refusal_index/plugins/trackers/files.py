"""Exports to files: a CSV table, files for the Hugging Face Hub, and the Every Eval Ever schema."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import polars as pl

from refusal_index.data.analysis import Analysis
from refusal_index.data.files import write_atomically
from refusal_index.data.run_json import decoding_sent
from refusal_index.data.written_tables import csv_text
from refusal_index.entry_points import package_version
from refusal_index.findings.metric_table import UNNAMED
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.run_results import RunResults, analysis_of
from refusal_index.plugins.trackers.tracker import ExportError
from refusal_index.redaction import redacted_in
from refusal_index.render.sentences import description
from refusal_index.render.summary import name_part

Document = dict[str, Any]

COLUMNS = ("model", "dataset", "variant", "metric", "estimate", "low", "high", "status", "reason", "n", "missing")
"""The columns of the CSV table after the run and before the number of missing further draws."""


class CsvTable:
    """``csv``: one long table with a row for each run, variant and metric."""

    SUFFIX = ".csv"

    @staticmethod
    def export(runs: Sequence[RunResults], out: Path) -> list[str]:
        """Write the table, with unrounded numbers, and return a line that describes it."""
        table = pl.concat(
            run.metrics.select(
                pl.lit(str(run.source)).alias("run"),
                *COLUMNS,
                pl.col("further_missing").alias("missing_further_draws"),
            )
            for run in runs
        )
        write_atomically(out, csv_text(table).encode())
        return [f"{out}: {table.height:,} rows"]


FOLDER = ".eval_results"


class HubFiles:
    """``hf-eval-results``: YAML files for a model's repository on the Hugging Face Hub.

    Each run becomes two files: entries for the folder `.eval_results`, which the Hub's leaderboards read if the dataset
    is one of its benchmarks, and the older `model-index` of a model card, which accepts any dataset and metric.
    """

    SUFFIX = ""  # a folder

    @staticmethod
    def export(runs: Sequence[RunResults], out: Path) -> list[str]:
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


def _file_name(run: RunResults, *, with_model: bool) -> str:
    """Return a run's file name: its dataset, preceded by its model if several runs share a folder."""
    parts = [run.model, run.dataset] if with_model else [run.dataset]
    return "-".join(name_part(part).replace(" ", "_") for part in parts if part) or "results"


def _entry(run: RunResults, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of `.eval_results`, whose task is a metric under a variant."""
    variant, metric, low, high = (row[name] for name in ("variant", "metric", "low", "high"))
    analysis = analysis_of(run.document)
    title = description(metric, analysis) if metric in METRICS and analysis else metric.replace("_", " ")
    prompts = "all prompts combined" if row["n"] is None else f"prompt {variant}, {row['n']:,} questions"
    has_interval = low is not None and high is not None
    interval = f", {run.document['confidence_level'] * 100:g}% interval {low:g} to {high:g}" if has_interval else ""
    lacks = f"; incomplete: {row['lacks']}" if row["lacks"] else ""
    return {
        "dataset": {"id": run.dataset or "unknown", "task_id": f"{name_part(variant)}/{metric}"},
        "value": row["estimate"],
        "notes": f"{title} ({' '.join(prompts.split())}{interval}{lacks})",
    }


def _model_index(run: RunResults, defined: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
        "task": {
            "type": "question-answering",
            "name": f"Two-pass refusal evaluation, refusal-index {package_version()}",
        },
        "dataset": {"name": dataset, "type": dataset},
        "metrics": metrics,
    }
    return {"model-index": [{"name": run.model or "unknown", "results": [result]}]}


SCHEMA_VERSION = "0.3.0"
UNSPECIFIED = "unspecified"
UNSAFE = re.compile(r"[^A-Za-z0-9._ -]+")
RESERVED = re.compile(r"(?i)(?:data|con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|\.*")
"""Names reserved by the results repository or by an operating system."""


class EveryEvalEver:
    """``every-eval-ever``: the Every Eval Ever schema, version 0.3.0, an aggregate and a samples file for each run.

    The schema accepts defined scores only: an undefined metric is left out, and the source metadata state its reason.
    The files are written below `data/`, laid out as in the schema's own results repository; exporting again writes the
    same file names.
    """

    SUFFIX = ""  # a folder

    @staticmethod
    def export(runs: Sequence[RunResults], out: Path) -> list[str]:
        """Write two files for each run into a folder and return a line about each file."""
        now = str(int(time.time()))
        return [line for run in runs for line in _export(run, out, now)]


def _export(run: RunResults, out: Path, now: str) -> Iterator[str]:
    folder = PurePosixPath("data", *place_of(run))
    uuid = UUID(bytes=hashlib.sha256(run.key.encode()).digest()[:16], version=4)
    document = aggregate(run, now)
    rows, left_out = samples(run, document["evaluation_id"])
    lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
    aggregate_path = folder / f"{uuid}.json"
    path = folder / f"{uuid}_samples.jsonl"
    (out / folder).mkdir(parents=True, exist_ok=True)
    if rows:
        document["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": str(path),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines).hexdigest(),
            "total_rows": len(rows),
            "additional_details": {"unscored_left_out": str(left_out)},
        }
        write_atomically(out / path, lines)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(out / aggregate_path, f"{text}\n".encode())
    yield f"{out / aggregate_path}: {len(document['evaluation_results'])} results"
    if rows:
        yield f"{out / path}: {len(rows):,} samples, {left_out:,} unscored left out"


def place_of(run: RunResults) -> tuple[str, ...]:
    """Return the path of a run's folder: dataset, then the model's developer, then the model."""
    developer, slash, model = (run.model or UNNAMED).partition("/")
    names = (run.dataset or UNSPECIFIED, *((developer, model) if slash else (UNSPECIFIED, developer)))
    safe = (UNSAFE.sub("_", name).strip(". ")[:100].rstrip(". ") for name in names)
    return tuple(f"_{name}" if RESERVED.fullmatch(name) else name for name in safe)


def aggregate(run: RunResults, now: str) -> Document:
    """Return the aggregate document of a run, without the reference to its samples file."""
    model = run.model or UNNAMED
    generation = _generation_config(run)
    metrics = run.metrics.to_dicts()
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{run.dataset or UNSPECIFIED}/{model}/{run.key}",
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "refusal-index",
            "source_type": "evaluation_run",
            "source_organization_name": UNSPECIFIED,
            "evaluator_relationship": "other",
            "additional_details": {
                f"{_result_id(row)} undefined": row["reason"] or row["status"]
                for row in metrics
                if row["estimate"] is None
            },
        },
        "eval_library": {"name": "refusal-index", "version": package_version()},
        "model_info": {
            "name": model,
            "id": model,
            **({} if "/" in model else {"developer": UNSPECIFIED}),
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [
            {
                "evaluation_result_id": _result_id(row),
                "evaluation_name": f"{run.dataset or UNSPECIFIED} ({row['variant']})",
                "source_data": _source_data(run),
                "metric_config": _metric_config(run, row["metric"]),
                "score_details": _score_details(run, row),
                "generation_config": generation,
            }
            for row in metrics
            if row["estimate"] is not None
        ],
    }


def _result_id(row: Document) -> str:
    return f"{name_part(row['variant'])}/{row['metric']}"


def _score_details(run: RunResults, row: Document) -> Document:
    details = {
        "variant": row["variant"],
        "status": row["status"],
        **({"reason": row["reason"]} if row["reason"] else {}),
        **({"incomplete": row["lacks"]} if row["lacks"] else {}),
    }
    uncertainty: Document = {} if row["n"] is None else {"num_samples": row["n"]}
    if row["low"] is not None and row["high"] is not None:
        interval = {"lower": row["low"], "upper": row["high"], "confidence_level": run.document["confidence_level"]}
        uncertainty["confidence_interval"] = interval | ({"method": row["method"]} if row["method"] else {})
    return {"score": row["estimate"], "details": details, "uncertainty": uncertainty}


def _metric_config(run: RunResults, name: str) -> Document:
    metric = METRICS.get(name)
    analysis = analysis_of(run.document)
    named = {"metric_id": f"refusal_index.{name}", "metric_name": name, "score_type": "continuous"}
    if metric is None or (metric.setting is not None and analysis is None):
        return {**named, "lower_is_better": False, "min_score": "-Infinity", "max_score": "Infinity"}
    analysis = analysis or Analysis()
    low, high = metric.range(analysis)
    return {
        **named,
        "evaluation_description": description(metric.name, analysis),
        "metric_unit": metric.unit,
        "lower_is_better": metric.lower_is_better,
        "min_score": low,
        "max_score": high,
    }


def _source_data(run: RunResults) -> Document:
    about = run.about.get("dataset")
    settings = run.settings.get("dataset")
    source = about.get("source") if isinstance(about, Mapping) else None
    is_url = isinstance(source, str) and source.startswith("https://")
    return {
        "dataset_name": run.dataset or UNSPECIFIED,
        **({"source_type": "url", "url": [source]} if is_url else {"source_type": "other"}),
        **({"additional_details": _texts(settings)} if isinstance(settings, Mapping) else {}),
    }


def _generation_config(run: RunResults) -> Document:
    decoding = decoding_sent(run.settings, run.about)
    kinds = {"temperature": (int, float), "top_p": (int, float), "max_tokens": (int,)}
    arguments = {
        name: decoding[name]
        for name, kind in kinds.items()
        if isinstance(decoding.get(name), kind) and not isinstance(decoding[name], bool)
    }
    others = {name: run.settings.get(name) for name in ("prompts", "placement", "think", "seed", "grader")}
    return {"generation_args": arguments, "additional_details": _texts(others)}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as strings, the only type that the schema allows in additional details."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None
    }


FIRST = "first"
FORCED = "forced"


def samples(run: RunResults, evaluation_id: str) -> tuple[list[Document], int]:
    """Return the samples of a run, and the number of passes left out because their correctness is unknown.

    Only the first passes of first draws refer to an aggregate result: the correct rate of a variant is the mean of
    their scores. No aggregate result is the mean of the other samples.
    """
    rows: list[Document] = []
    left_out = 0
    fixed = {"schema_version": SCHEMA_VERSION, "evaluation_id": evaluation_id, "model_id": run.model or UNNAMED}
    for row in run.outcomes.iter_rows(named=True):
        for name, is_right in _passes(row):
            if is_right is None:
                left_out += 1
            else:
                rows.append(redacted_in(fixed | _sample(run.dataset or UNNAMED, row, name, is_right=is_right)))
    return rows, left_out


def _passes(row: Document) -> Iterator[tuple[str, bool | None]]:
    """Yield each pass over a question and whether its reply was correct, None if unknown."""
    refused = row["refused"]
    wrong = row["wrong"]
    forced = row["forced_grade"]
    answered_right = None if wrong is None else not wrong
    yield FIRST, None if refused is None else False if refused else answered_right
    if forced in ("correct", "incorrect", "refused"):
        yield FORCED, forced == "correct"
    elif refused or forced is not None:
        yield FORCED, answered_right if refused else None


def _sample(dataset: str, row: Document, name: str, *, is_right: bool) -> Document:
    variant = row["variant"] or UNNAMED
    reply = row[f"{name}_reply"]
    refused = row["refused"]
    question = {"raw": row["question"] or "", "reference": [] if row["gold"] is None else [row["gold"]]}
    counts = name == FIRST and row["draw"] == 0 and refused is not None and row["wrong"] is not None
    metadata = {
        "pass": name,
        "refused": None if refused is None else str(refused).lower(),
        "variant": variant,
        "draw": str(row["draw"]),
        "grade": row[f"{name}_grade"],
        "topic": row["topic"],
        "unscored_reason": row["unscored_reason"],
    }
    return {
        "evaluation_name": f"{dataset} ({variant}, {name} pass)",
        **({"evaluation_result_id": f"{name_part(variant)}/correct_rate"} if counts else {}),
        "sample_id": str(row["question_id"]),
        "sample_hash": hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": question,
        "output": {"raw": [] if reply is None else [reply]},
        "answer_attribution": [],  # the whole reply is graded, not an extract of it
        "evaluation": {"score": float(is_right), "is_correct": is_right},
        "metadata": {key: value for key, value in metadata.items() if value is not None},
    }
