"""A page's view of a run: its results, and the part of its outcomes that the page holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from refusal_index.findings.draws import PooledSummary
from refusal_index.findings.run_results import RunResults, runs_of_table
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import Summary, VariantSummary
from refusal_index.render.format import percent, typeset
from refusal_index.stats import Estimate

MAX_ROWS = 200_000
"""Largest number of outcomes on a page; beyond it, a random sample of the questions is shown."""

SEED = 0
"""Seed of the sample: the same outcomes give the same page."""


@dataclass(frozen=True, eq=False)
class RunView:
    """A run on a page."""

    run: RunResults
    # shown, left_out: the outcomes of the questions that the page holds, and how many questions do not fit
    shown: pl.DataFrame
    left_out: int = 0
    number: int = 1  # its place among the runs of the page

    @property
    def anchor(self) -> str:
        """Id of the element that holds it."""
        return f"run-{self.number}"

    @property
    def summary(self) -> Summary:
        """The summary of all outcomes of the run."""
        return self.run.summary

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
        """Names of its variants."""
        return tuple(variant.name for variant in self.variants)

    @property
    def level(self) -> str:
        """The confidence level of every interval, as text."""
        return typeset(percent(self.summary.analysis.confidence_level))


def views_of(runs: Sequence[RunResults]) -> tuple[RunView, ...]:
    """Return the views of some runs on one page, in order; a run of several models or datasets has one for each.

    Of outcomes in a file only those are read that fit into the page.
    """
    max_rows = MAX_ROWS // max(len(runs), 1)
    views = [view for run in runs for view in _views(run, max_rows)]
    return tuple(replace(view, number=number) for number, view in enumerate(views, start=1))


def _views(run: RunResults, max_rows: int) -> Iterator[RunView]:
    shown, left_out = sampled(run.rows, max_rows)
    if run.summary.has_one_source:
        yield RunView(run, shown, left_out)
        return
    for part in runs_of_table(run.source, shown, run.settings, run.about, run.analysis):
        key = part.model_id, part.dataset_id
        summary = replace(
            run.summary,
            variants=tuple(item for item in run.summary.variants if (item.model, item.dataset) == key),
            pooled=tuple(item for item in run.summary.pooled if (item.model, item.dataset) == key),
        )
        rows = run.rows.filter(pl.col("model").eq_missing(key[0]) & pl.col("dataset").eq_missing(key[1]))
        computed = with_sections(summary, rows, run.source)
        yield RunView(replace(part, computed=computed), pl.concat(part.tables.values()), left_out)


def sampled(outcomes: pl.LazyFrame, max_rows: int) -> tuple[pl.DataFrame, int]:
    """Return all outcomes, or those of a random sample of the questions, and the number of questions left out.

    - `outcomes`: rows of outcome tables, each question with several.
    - `max_rows`: how many rows to return at most, or about as many: every question has all of its own.
    """
    height = outcomes.select(pl.len()).collect().item()
    if height <= max_rows:
        return outcomes.collect(), 0
    ids = outcomes.select(pl.col("question_id").unique(maintain_order=True)).collect(engine="streaming").to_series()
    n_kept = max(max_rows * ids.len() // height, 1)
    chosen = ids.gather(np.random.default_rng(SEED).permutation(ids.len())[:n_kept])
    rows = outcomes.filter(pl.col("question_id").is_in(chosen.implode())).collect(engine="streaming")
    return rows, ids.len() - n_kept
