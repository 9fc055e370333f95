"""The samples of ``every-eval-ever``: a row for each pass over each question under each variant and draw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from refusal_index.exporters.numbers import name_part
from refusal_index.exporters.results import UNNAMED, ExportedRun
from refusal_index.redaction import redacted_in

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
