"""What the page shows of one run, and the first screen of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import polars as pl

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.conclusions import Headline, headline
from refusal_index.findings.matching import CompareOptions, settings_statements
from refusal_index.findings.ranking import rank
from refusal_index.findings.statement import Statement
from refusal_index.render.report.confidence import ConfidenceView, confidence_view
from refusal_index.render.report.figures import (
    IndexScale,
    MetricRow,
    Mosaic,
    Plane,
    index_scale,
    metric_rows,
    mosaics,
    plane,
    sensitivity_rows,
)
from refusal_index.render.report.runs import Fact, Prompt, ReportRun, facts, prompts
from refusal_index.render.sentences import sentence
from refusal_index.stats import Estimate


@cache
def paper_indices(dataset: str | None) -> tuple[float, ...]:
    """Return the Refusal Indices of the paper's results table; none for other datasets than its own."""
    file = resources.files("refusal_index").joinpath("plugins", "studies", "data", "paper_rows.csv")
    if dataset != "simpleqa" or not file.is_file():
        return ()
    return tuple(pl.read_csv(file.read_bytes())["refusal_index"].drop_nulls().to_list())


@dataclass(frozen=True)
class Line:
    """One line of a picture: a prompt, or a run, and its index with the interval."""

    name: str
    index: Estimate
    joint: bool = False
    # of a run: its place on the page, what its index means, titles of grave doubts, letters shared with tied runs
    anchor: str = ""
    verdict: Statement | None = None
    grave: tuple[str, ...] = ()
    letters: str = ""


def _scale(lines: Sequence[Line]) -> IndexScale:
    return index_scale(end for line in lines for end in (line.index.estimate, line.index.low, line.index.high))


@dataclass(frozen=True)
class RunView:
    """One run on the page."""

    source: ReportRun  # the run
    anchor: str  # name of its place on the page
    headline: Headline
    # lines, scale: the picture of the joint index above its variants
    lines: tuple[Line, ...]
    scale: IndexScale
    paper: tuple[float, ...]  # the indices of the paper's own models, if they were asked the same questions
    # metrics, mosaics, plane, confidence, sensitivity, facts, prompts: its parts, in the order of the page; no
    # confidence if it has no scores
    metrics: tuple[MetricRow, ...]
    mosaics: tuple[Mosaic, ...]
    plane: Plane | None
    confidence: ConfidenceView | None
    sensitivity: tuple[MetricRow, ...]
    facts: tuple[Fact, ...]
    prompts: tuple[Prompt, ...]

    @property
    def asked(self) -> int:
        """Number of questions asked under any one variant."""
        return max(variant.completeness.asked for variant in self.source.variants)


def run_view(run: ReportRun, number: int) -> RunView:
    """Prepare a run for the page; `number` tells its places from those of other runs."""
    paper = paper_indices(run.run.dataset_id)
    joint = [Line("jointly", run.index, joint=True)] if run.pooled is not None else []
    lines = (*joint, *(Line(variant.name, variant.index) for variant in run.variants))
    return RunView(
        source=run,
        anchor=f"run-{number}",
        headline=headline(run.summary, run.about, paper),
        lines=lines,
        scale=_scale(lines),
        paper=paper,
        metrics=metric_rows(run),
        mosaics=mosaics(run, number),
        plane=plane(run),
        confidence=confidence_view(run, f"run-{number}"),
        sensitivity=sensitivity_rows(run),
        facts=facts(run),
        prompts=prompts(run),
    )


@dataclass(frozen=True)
class Overview:
    """The first screen of several runs."""

    # lines, scale: the picture, the highest index first
    lines: tuple[Line, ...]
    scale: IndexScale
    statements: tuple[Statement, ...]  # what the comparison shows
    notes: tuple[Statement, ...]  # what limits it
    paper: tuple[float, ...]  # the indices of the paper's own models, if all runs were asked the same questions


COMPARED = {
    *("ahead", "not_told_apart", "difference_not_settled", "difference_unknown", "leader", "no_leader"),
    *("matched", "partly_shared", "unpaired", "letters", "not_ranked"),
}
"""What the first screen says of a comparison or a ranking."""


def overview(views: Sequence[RunView]) -> Overview:
    """Make the first screen of several runs."""
    runs, summary = [view.source.run for view in views], views[0].source.summary
    options = CompareOptions(
        confidence_level=summary.confidence_level,
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
    )
    statements, letters = _compared(runs, options)
    one_dataset = len({run.dataset_id for run in runs}) == 1
    lines = tuple(sorted((_line(view, letters.get(row, "")) for row, view in enumerate(views)), key=_by_index))
    notes = tuple(settings_statements(runs)) if one_dataset else ()
    return Overview(lines, _scale(lines), statements, notes, views[0].paper if one_dataset else ())


def _compared(runs: Sequence[ComparedRun], options: CompareOptions) -> tuple[tuple[Statement, ...], Mapping[int, str]]:
    """Return what a comparison shows, and the letters of each run that is ranked, by its place."""
    if len({run.dataset_id for run in runs}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in runs))
        return (Statement("other_questions", "scope", {"datasets": datasets}),), {}
    try:
        found = compare_pair(runs, options) if len(runs) == 2 else rank(runs, options)
    except OutcomeTableError as error:
        return (Statement("not_compared", "grave", {"error": str(error)}),), {}
    letters = {} if isinstance(found, PairComparison) else {one.row: one.letters for one in found.ranking.runs}
    return tuple(one for one in found.statements if one.code in COMPARED), letters


def _line(view: RunView, letters: str) -> Line:
    grave = tuple(dict.fromkeys(sentence(one, "title") for one in view.headline.doubts if one.severity == "grave"))
    found = view.headline
    label = view.source.run.label
    return Line(label, found.index, anchor=view.anchor, verdict=found.verdict, grave=grave, letters=letters)


def _by_index(line: Line) -> float:
    return math.inf if line.index.estimate is None else -line.index.estimate
