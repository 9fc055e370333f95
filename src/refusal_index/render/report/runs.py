"""What a report is made of: runs with their summaries, and what is known of how each was made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.folder import ComparedRun, RunFolder, compared_runs, find_runs
from refusal_index.data.outcome_table import OWN_COLUMNS, Sampling
from refusal_index.data.run_json import is_deterministic
from refusal_index.entry_points import package_version
from refusal_index.findings.draws import PooledSummary
from refusal_index.findings.summary import (
    Summary,
    VariantSummary,
    recorded_refusals,
    recorded_usage,
    summarise,
)
from refusal_index.render.format import percent, reason_text, typeset
from refusal_index.render.sections import with_sections
from refusal_index.render.sentences import sentences
from refusal_index.stats import TRUTHFULNESS_WEIGHTS, Estimate
from refusal_index.stats.baseline import Weights

MOST_ROWS = 200_000
"""Outcomes that a page holds: of more it shows a random sample of the questions."""

SEED = 0
"""Of the sample: the same outcomes give the same page."""


@dataclass(frozen=True)
class ReportRun:
    """One model on one dataset."""

    run: ComparedRun  # its outcomes by variant, its label and its settings
    summary: Summary  # of all its outcomes
    # shown, left_out: the outcomes of the questions that a page holds, and how many questions it has no room for
    shown: pl.DataFrame
    left_out: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)  # what its folder says of how it was made; empty for a file

    @property
    def variants(self) -> tuple[VariantSummary, ...]:
        """The summaries of its variants."""
        return self.summary.variants

    @property
    def pooled(self) -> PooledSummary | None:
        """The joint estimate; None where there is one variant only."""
        return self.summary.pooled[0] if self.summary.pooled else None

    @property
    def index(self) -> Estimate:
        """The Refusal Index over all variants."""
        return self.summary.index or Estimate(None, status="undefined")

    @property
    def names(self) -> tuple[str, ...]:
        """What to call its variants; a table need not say."""
        return tuple(variant.name for variant in self.variants)

    @property
    def level(self) -> str:
        """The confidence level of every interval, as text."""
        return typeset(percent(self.summary.confidence_level))


@dataclass(frozen=True)
class Found:
    """The runs that could be read, and a sentence on each of the others."""

    runs: tuple[ReportRun, ...]
    left_out: tuple[str, ...]


def read_report_runs(
    paths: Sequence[Path],
    *,
    penalty: float | None = None,
    truthfulness_weights: Weights | None = None,
    confidence_level: float = 0.95,
    sampling: Sampling = OWN_COLUMNS,
) -> Found:
    """Read runs' folders and outcome tables for a report.

    Raises RunFolderError or OutcomeTableError if none can be read, or one is not there.

    - `paths`: runs' folders, folders of sets, and files. Of several, those that cannot be read are left out, with a
      sentence.
    - `penalty`, `truthfulness_weights`: of the weighted and the truthfulness score; None for those of each run, else
      the defaults.
    - `confidence_level`: of every interval.
    - `sampling`: which of their columns say how questions were sampled.
    """
    found = find_runs(paths, sampling)
    most = MOST_ROWS // len(found.runs)
    runs = []
    for run in found.runs:
        about = RunFolder(run.source).read_about() if run.source.is_dir() else {}
        outcomes = pl.concat(list(run.variants.values()))
        summary = summarise(
            outcomes,
            usage=recorded_usage(run),
            refusals=recorded_refusals(run),
            penalty=about.get("penalty", 1.0) if penalty is None else penalty,
            truthfulness_weights=truthfulness_weights or about.get("truthfulness_weights", TRUTHFULNESS_WEIGHTS),
            confidence_level=confidence_level,
            is_deterministic=is_deterministic(run.settings),
            sampling=sampling,
        )
        summary = with_sections(summary, outcomes, run.source)
        runs.append(ReportRun(run, summary, *sampled(outcomes.lazy(), most), about))
    return Found(tuple(runs), found.left_out)


def folder_runs(folder: RunFolder, outcomes: pl.LazyFrame, summary: Summary) -> tuple[ReportRun, ...]:
    """Take a run whose outcomes and summary are at hand, without computing them again.

    Of outcomes in a file only those are read that a page has room for, and only these are in `ReportRun.run`.
    """
    settings, about = folder.read_settings(), folder.read_about()
    shown, left_out = sampled(outcomes, MOST_ROWS)
    runs = compared_runs(folder.path, shown, settings)
    return tuple(
        ReportRun(run, _part(summary, run, outcomes), pl.concat(run.variants.values()), left_out, about) for run in runs
    )


def sampled(outcomes: pl.LazyFrame, most: int) -> tuple[pl.DataFrame, int]:
    """Return all outcomes, or those of a random sample of the questions, and how many questions are left out.

    - `outcomes`: rows of outcome tables, each question with several.
    - `most`: how many rows to return at most, or about as many: every question has all of its own.
    """
    height = outcomes.select(pl.len()).collect().item()
    if height <= most:
        return outcomes.collect(), 0
    ids = outcomes.select(pl.col("question_id").unique(maintain_order=True)).collect(engine="streaming").to_series()
    kept = max(most * ids.len() // height, 1)
    chosen = ids.gather(np.random.default_rng(SEED).permutation(ids.len())[:kept])
    rows = outcomes.filter(pl.col("question_id").is_in(chosen.implode())).collect(engine="streaming")
    return rows, ids.len() - kept


def _of(outcomes: pl.LazyFrame, run: ComparedRun) -> pl.LazyFrame:
    """Return the rows of one model and dataset."""
    named = pl.col("model").eq_missing(run.model_id) & pl.col("dataset").eq_missing(run.dataset_id)
    return outcomes.filter(named)


def _part(summary: Summary, run: ComparedRun, outcomes: pl.LazyFrame) -> Summary:
    mine = run.model_id, run.dataset_id
    variants = tuple(one for one in summary.variants if (one.model, one.dataset) == mine)
    pooled = tuple(one for one in summary.pooled if (one.model, one.dataset) == mine)
    own = Summary(variants, pooled, summary.confidence_level, summary.penalty, summary.truthfulness_weights)
    # Scores may have come since the summary was made.
    return with_sections(own, _of(outcomes, run), run.source)


def facts(run: ReportRun) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the settings by name, each with the names of its parts, in the order of the file, and where that lies."""
    known = {**run.run.settings, **{key: run.about[key] for key in ("versions", "price") if run.about.get(key)}}
    source = run.about.get("dataset")
    if isinstance(source, Mapping) and isinstance(known.get("dataset"), Mapping):
        known["dataset"] = {**known["dataset"], **source}
    titles = sentences()["fact"]
    for key, value in known.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        shown = [(str(name).replace("_", " "), _shown(part)) for name, part in parts.items()]
        yield titles.get(key, reason_text(key).capitalize()), shown
    yield "Source", [("", str(run.run.source))]
    weights = ",".join(f"{weight:g}" for weight in run.summary.truthfulness_weights)
    level = f"{run.level} intervals, penalty {run.summary.penalty:g}, truthfulness weights {weights}"
    yield "This page", [("", f"refusal-index {package_version()}, {level}")]


def prompts(run: ReportRun) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the text and the hash of every prompt; none where they are not known."""
    texts = run.about.get("prompt_set")
    if isinstance(texts, Mapping):
        for name, text in texts.items():
            yield str(name), str(text), hashlib.sha256(str(text).encode()).hexdigest()


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(part) for part in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)
