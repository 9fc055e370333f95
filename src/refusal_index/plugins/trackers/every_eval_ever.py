"""``every-eval-ever``: the schema of that name, version 0.3.0, an aggregate file and one of samples for each run.

The schema takes defined scores only: what is undefined is left out, and stands with its reason among the details of
the source. Its files lie below `data/` as in its own store of results, under names that stay the same from one export
to the next.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

from refusal_index.data.files import write_atomically
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.trackers.results import ExportedRun, VariantResults, payoffs_of
from refusal_index.redaction import redacted_in
from refusal_index.render.sentences import description
from refusal_index.render.summary import UNNAMED, name_part
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs
from refusal_index.version import __version__

SUFFIX = ""  # a folder
SCHEMA_VERSION = "0.3.0"
NOT_SAID = "unspecified"
UNSAFE = re.compile(r"[^A-Za-z0-9._ -]+")
RESERVED = re.compile(r"(?i)(?:data|con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|\.*")
"""Names that the store of results, or some system, keeps for itself."""


def export(runs: Sequence[ExportedRun], out: Path) -> list[str]:
    """Write two files for every run into a folder, and return what must be said."""
    now = str(int(time.time()))
    return [line for run in runs for line in _export(run, out, now)]


def _export(run: ExportedRun, out: Path, now: str) -> Iterator[str]:
    place = PurePosixPath("data", *place_of(run))
    uuid = UUID(bytes=hashlib.sha256(run.key.encode()).digest()[:16], version=4)
    document = aggregate(run, now)
    rows, left_out = samples(run, document["evaluation_id"], SCHEMA_VERSION)
    lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()
    aggregate_path, path = place / f"{uuid}.json", place / f"{uuid}_samples.jsonl"
    (out / place).mkdir(parents=True, exist_ok=True)
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


def place_of(run: ExportedRun) -> tuple[str, str, str]:
    """Return the folders of a run's files: those of its dataset, of who made the model, and of the model."""
    developer, slash, model = (run.model or UNNAMED).partition("/")
    if not slash:
        developer, model = NOT_SAID, developer
    return _folder(run.dataset or NOT_SAID), _folder(developer), _folder(model)


def _folder(name: str) -> str:
    safe = UNSAFE.sub("_", name).strip(". ")[:100].rstrip(". ")
    return f"_{safe}" if RESERVED.fullmatch(safe) else safe


def aggregate(run: ExportedRun, now: str) -> dict[str, Any]:
    """Return the aggregate document of a run, without its samples."""
    model = run.model or UNNAMED
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{run.dataset or NOT_SAID}/{model}/{run.key}",
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "refusal-index",
            "source_type": "evaluation_run",
            "source_organization_name": NOT_SAID,
            "evaluator_relationship": "other",
            "additional_details": _undefined(run),
        },
        "eval_library": {"name": "refusal-index", "version": __version__},
        "model_info": {
            "name": model,
            "id": model,
            **({} if "/" in model else {"developer": NOT_SAID}),
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [
            _result(run, variant, one, one.estimate)
            for variant in run.variants
            for one in variant.metrics
            if one.estimate is not None
        ],
    }


def _undefined(run: ExportedRun) -> dict[str, str]:
    """Say why metrics have no score, each by its name."""
    return {
        f"{_named(variant, one)} undefined": one.reason or one.status
        for variant in run.variants
        for one in variant.metrics
        if one.estimate is None
    }


def _named(variant: VariantResults, one: Estimate) -> str:
    return f"{name_part(variant.name)}/{one.name}"


def _result(run: ExportedRun, variant: VariantResults, one: Estimate, score: float) -> dict[str, Any]:
    details = {
        "variant": variant.name,
        "status": variant.status_of(one),
        **({"reason": one.reason} if one.reason else {}),
        **({"incomplete": variant.lacks} if variant.lacks else {}),
    }
    return {
        "evaluation_result_id": _named(variant, one),
        "evaluation_name": f"{run.dataset or NOT_SAID} ({variant.name})",
        "source_data": _source_data(run),
        "metric_config": _metric_config(run, one),
        "score_details": {"score": score, "details": details, "uncertainty": _uncertainty(run, variant, one)},
        "generation_config": _generation_config(run),
    }


def _uncertainty(run: ExportedRun, variant: VariantResults, one: Estimate) -> dict[str, Any]:
    found: dict[str, Any] = {} if variant.n is None else {"num_samples": variant.n}
    if one.low is not None and one.high is not None:
        interval = {"lower": one.low, "upper": one.high, "confidence_level": run.level}
        found["confidence_interval"] = interval | ({"method": one.method} if one.method else {})
    return found


def _metric_config(run: ExportedRun, one: Estimate) -> dict[str, Any]:
    known, given = METRICS.get(one.name), payoffs_of(run.document)
    named = {"metric_id": f"refusal_index.{one.name}", "metric_name": one.name, "score_type": "continuous"}
    if known is None or (known.setting is not None and given is None):
        return {**named, "lower_is_better": False, "min_score": "-Infinity", "max_score": "Infinity"}
    payoffs = given or Payoffs()
    low, high = known.range(payoffs)
    return {
        **named,
        "evaluation_description": description(known.name, payoffs),
        "metric_unit": known.unit,
        "lower_is_better": known.lower_is_better,
        "min_score": low,
        "max_score": high,
    }


def _source_data(run: ExportedRun) -> dict[str, Any]:
    about, asked = run.about.get("dataset"), run.settings.get("dataset")
    source = about.get("source") if isinstance(about, Mapping) else None
    named = {"dataset_name": run.dataset or NOT_SAID}
    details = {"additional_details": _texts(asked)} if isinstance(asked, Mapping) else {}
    if isinstance(source, str) and source.startswith("https://"):
        return {**named, "source_type": "url", "url": [source], **details}
    return {**named, "source_type": "other", **details}


def _generation_config(run: ExportedRun) -> dict[str, Any]:
    decoding = run.settings.get("decoding")
    known = decoding if isinstance(decoding, Mapping) else {}
    kinds = {"temperature": (int, float), "top_p": (int, float), "max_tokens": (int,)}
    arguments = {
        name: known[name]
        for name, kind in kinds.items()
        if isinstance(known.get(name), kind) and not isinstance(known[name], bool)
    }
    others = {
        key: run.settings[key] for key in ("prompts", "placement", "think", "seed", "grader") if key in run.settings
    }
    return {"generation_args": arguments, "additional_details": _texts(others)}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as texts: the schema takes no others among details."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None
    }


FIRST, FORCED = "first", "forced"
RIGHT = "correct"

Row = dict[str, Any]


def samples(run: ExportedRun, evaluation_id: str, version: str) -> tuple[list[Row], int]:
    """Return the samples of a run, and how many passes are left out since nobody knows whether they were right.

    The first pass of a first draw belongs to the correct rate of its variant, which is the mean of their scores; no
    aggregate is the mean of the others.
    """
    found: list[Row] = []
    left_out = 0
    fixed = {"schema_version": version, "evaluation_id": evaluation_id, "model_id": run.model or UNNAMED}
    for row in run.outcomes.iter_rows(named=True):
        for one in _passes(row):
            if one["right"] is None:
                left_out += 1
            else:
                found.append(redacted_in(fixed | _sample(run, row, one)))
    return found, left_out


def _passes(row: Row) -> Iterator[Row]:
    """Yield the passes over a question, each with its reply and whether it was right; None where that is not known."""
    refused, wrong, first = row["refused"], row["wrong"], row["first_grade"]
    right = None if refused is None else False if refused else None if wrong is None else not wrong
    yield {"pass": FIRST, "right": right, "reply": row["first_reply"], "grade": first}
    if refused or row["forced_grade"] is not None:
        forced = row["forced_grade"]
        known = forced == RIGHT if forced in (RIGHT, "incorrect", "refused") else None
        settled = not wrong if refused and wrong is not None else None
        right = known if known is not None else settled
        yield {"pass": FORCED, "right": right, "reply": row["forced_reply"], "grade": forced}


def _sample(run: ExportedRun, row: Row, one: Row) -> Row:
    variant = row["variant"] or UNNAMED
    question, gold = row["question"] or "", [] if row["gold"] is None else [row["gold"]]
    counts = one["pass"] == FIRST and row["draw"] == 0 and row["refused"] is not None and row["wrong"] is not None
    named = {"evaluation_result_id": f"{name_part(variant)}/correct_rate"} if counts else {}
    return {
        "evaluation_name": f"{run.dataset or UNNAMED} ({variant}, {one['pass']} pass)",
        **named,
        "sample_id": str(row["question_id"]),
        "sample_hash": _hash(question, gold),
        "interaction_type": "single_turn",
        "input": {"raw": question, "reference": gold},
        "output": {"raw": [] if one["reply"] is None else [one["reply"]]},
        "answer_attribution": [],  # the whole reply is graded
        "evaluation": {"score": float(one["right"]), "is_correct": one["right"]},
        "metadata": _metadata(row, one, variant),
    }


def _metadata(row: Row, one: Row, variant: str) -> dict[str, str]:
    known = {
        "pass": one["pass"],
        "refused": None if row["refused"] is None else str(row["refused"]).lower(),
        "variant": variant,
        "draw": str(row["draw"]),
        "grade": one["grade"],
        "topic": row["topic"],
        "unscored_reason": row["unscored_reason"],
    }
    return {name: value for name, value in known.items() if value is not None}


def _hash(raw: str, reference: list[str]) -> str:
    """Tell a sample by what is asked and what is right, whatever its id."""
    return hashlib.sha256(json.dumps({"raw": raw, "reference": reference}, sort_keys=True).encode()).hexdigest()
