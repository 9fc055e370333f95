"""Synthetic confidence scores for test runs, from the forced answers of their first draws."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from tests.scores import Score, confidence_table

from refusal_index.data.folder import RunFolder
from refusal_index.findings.confidence_record import MethodRecord
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Usage
from refusal_index.plugins.confidence.scores import write_record

TRAINED = ("likelihood-platt", "p-ik", "topic", "text-classifier")
N_FOLDS = 5


def forced_answers(run: RunResults) -> pl.DataFrame:
    """Return each question of a run with whether its forced answer to the first draw was wrong."""
    first = next(iter(run.tables.values())).filter(draw=0)
    return first.select("question_id", wrong=pl.col("forced_grade") != "correct").drop_nulls()


def with_scores(
    run: RunResults,
    methods: Mapping[str, float | None] | Sequence[str] = ("likelihood",),
    *,
    variants: Mapping[str, str] | None = None,
    asked: Mapping[str, int] | None = None,
    seed: int = 0,
) -> RunResults:
    """Return the run with scores.

    - `methods`: by name, how far scores of right answers exceed those of wrong ones; None for no score.
    - `variants`: the variant of each method's scores.
    - `asked`: how many of the first questions each method scores.
    """
    strengths = methods if isinstance(methods, Mapping) else dict.fromkeys(methods, 1.5)
    answers, rng, scores = forced_answers(run), np.random.default_rng(seed), []
    for method, strength in strengths.items():
        for place, (question, wrong) in enumerate(answers.head((asked or {}).get(method, answers.height)).iter_rows()):
            draw = rng.standard_normal()
            value = None if strength is None else round(1 / (1 + np.exp(-draw - strength * (0.5 - wrong))), 3)
            fold = place % N_FOLDS if method in TRAINED else None
            scores.append(Score(question, method, value, wrong, (variants or {}).get(method), fold=fold))
    return dataclasses.replace(run, scores=confidence_table(scores))


def record(method: str, **changes: object) -> MethodRecord:
    """Return a record of sixty answers, each requested once."""
    plain = MethodRecord(method, None, 60, 60, Usage(6000, 300, 60), 12, 4.5, 1, 0, is_of_model=True)
    return dataclasses.replace(plain, **changes)


def in_folder(run: RunResults, folder: Path, records: Sequence[MethodRecord], requests: int = 500) -> RunResults:
    """Return the run with scores of these methods, from a folder that records their cost."""
    usage = {"requests": requests, "input_tokens": 9000, "output_tokens": 700, "cost": None}
    variants = [{"model": run.model, "dataset": run.dataset, "variant": name, "usage": usage} for name in run.tables]
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_text(json.dumps({"variants": variants}))
    write_record(RunFolder(folder), records, {one.method for one in records})
    variant_of = {one.method: one.variant for one in records if one.variant}
    scored = with_scores(run, [one.method for one in records], variants=variant_of)
    return dataclasses.replace(scored, source=folder)
