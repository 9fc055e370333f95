"""The first screen of several runs, and everything that the page shows of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.data.errors import OutcomeTableError
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.matching import CompareOptions, settings_statements
from refusal_index.findings.ranking import rank
from refusal_index.render.format import listed
from refusal_index.render.report.confidence import ConfidenceView, confidence_view
from refusal_index.render.report.figures import Mosaic, Plane, mosaics, plane
from refusal_index.render.report.headline import GRAVE, Headline, finding, headline, paper_indices, verdict
from refusal_index.render.report.runs import Fact, Prompt, ReportRun, facts, prompts
from refusal_index.render.report.tables import (
    CompletenessRow,
    CostRow,
    DrawsRow,
    IndexScale,
    MetricRow,
    completeness_rows,
    cost_rows,
    draws_rows,
    index_scale,
    metric_rows,
    sensitivity_rows,
)
from refusal_index.render.sentences import selected, sentence
from refusal_index.stats import Estimate

SENTENCES = (
    *("ahead", "not_told_apart", "difference_not_settled", "difference_unknown", "leader", "no_leader"),
    *("matched", "partly_shared", "unpaired", "letters", "not_ranked"),
)
"""What the first screen says of a comparison or a ranking."""


@dataclass(frozen=True)
class RunView:
    """One run on the page."""

    source: ReportRun  # the run
    anchor: str  # name of its place on the page
    # headline, metrics, mosaics, plane, confidence, sensitivity, draws, completeness, cost, facts, prompts: its parts,
    # in the order of the page; no confidence where it has no scores
    headline: Headline
    metrics: tuple[MetricRow, ...]
    mosaics: tuple[Mosaic, ...]
    plane: Plane | None
    confidence: ConfidenceView | None
    sensitivity: tuple[MetricRow, ...]
    draws: tuple[DrawsRow, ...]
    completeness: tuple[CompletenessRow, ...]
    cost: tuple[CostRow, ...]
    facts: tuple[Fact, ...]
    prompts: tuple[Prompt, ...]

    @property
    def asked(self) -> int:
        """Number of questions asked under any one variant."""
        return max(variant.completeness.asked for variant in self.source.variants)


def run_view(run: ReportRun, number: int) -> RunView:
    """Prepare a run for the page; `number` tells its places from those of other runs."""
    return RunView(
        source=run,
        anchor=f"run-{number}",
        headline=headline(run),
        metrics=metric_rows(run),
        mosaics=mosaics(run, number),
        plane=plane(run),
        confidence=confidence_view(run, f"run-{number}"),
        sensitivity=sensitivity_rows(run),
        draws=draws_rows(run),
        completeness=completeness_rows(run),
        cost=cost_rows(run),
        facts=facts(run),
        prompts=prompts(run),
    )


@dataclass(frozen=True)
class OverviewLine:
    """One run: its index, and the letters that it shares with those that cannot be told apart from it."""

    anchor: str
    label: str
    dataset: str | None
    index: Estimate
    verdict: str
    grave: tuple[str, ...]
    letters: str = ""


@dataclass(frozen=True)
class Overview:
    """The first screen of several runs."""

    # lines, scale: the picture, the highest index first
    lines: tuple[OverviewLine, ...]
    scale: IndexScale
    sentences: tuple[str, ...]  # what the comparison says
    notes: tuple[str, ...]  # what limits it
    paper: tuple[float, ...]  # the indices of the paper's own models, where all runs were asked the same questions


def overview(views: Sequence[RunView]) -> Overview:
    """Make the first screen of several runs."""
    runs = [view.source for view in views]
    sentences, letters, notes = _compared(runs)
    lines = sorted((_line(view, letters.get(row, "")) for row, view in enumerate(views)), key=_by_index)
    values = [value for line in lines for value in (line.index.estimate, line.index.low, line.index.high)]
    datasets = {run.run.dataset_id for run in runs}
    paper = paper_indices(next(iter(datasets))) if len(datasets) == 1 else ()
    return Overview(tuple(lines), index_scale(values), sentences, notes, paper)


def _line(view: RunView, letters: str) -> OverviewLine:
    run = view.source
    grave = tuple(dict.fromkeys(one.title for one in view.headline.spoilers if one.weight == GRAVE))
    words = verdict(finding(run))
    return OverviewLine(view.anchor, run.run.label, run.run.dataset, run.index, words, grave, letters)


def _by_index(line: OverviewLine) -> float:
    return math.inf if line.index.estimate is None else -line.index.estimate


def _compared(runs: Sequence[ReportRun]) -> tuple[tuple[str, ...], dict[int, str], tuple[str, ...]]:
    """Return sentences, the letters of each run, and notes."""
    compared, summary = [run.run for run in runs], runs[0].summary
    if len({run.dataset_id for run in compared}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in compared))
        return (f"The runs are over different questions ({listed(datasets)}): each stands for itself.",), {}, ()
    options = CompareOptions(
        confidence_level=summary.confidence_level,
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
    )
    notes = tuple(sentence(one, "page") for one in settings_statements(compared))
    try:
        found = compare_pair(compared, options) if len(runs) == 2 else rank(compared, options)
    except OutcomeTableError as error:
        return (f"They were not compared: {error}.",), {}, notes
    letters = {} if isinstance(found, PairComparison) else {one.row: one.letters for one in found.ranking.runs}
    return tuple(selected(found, *SENTENCES, audience="page")), letters, notes
