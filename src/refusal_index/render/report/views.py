"""What the page shows of one run, and the first screen of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import polars as pl

from refusal_index.findings.comparison import CompareOptions
from refusal_index.findings.conclusions import Headline, headline
from refusal_index.findings.side_by_side import SideBySide, side_by_side
from refusal_index.findings.statement import Statement
from refusal_index.render.report.confidence import ConfidenceView, confidence_view
from refusal_index.render.report.figures import Mosaic, Plane, mosaics, plane
from refusal_index.render.report.runs import Fact, Prompt, ReportRun, facts, prompts
from refusal_index.render.report.tables import IndexScale, MetricRow, index_scale, metric_rows, sensitivity_rows
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
    compared: SideBySide
    paper: tuple[float, ...]  # the indices of the paper's own models, if all runs were asked the same questions


def overview(views: Sequence[RunView]) -> Overview:
    """Make the first screen of several runs."""
    summary = views[0].source.summary
    options = CompareOptions(
        confidence_level=summary.confidence_level,
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
    )
    compared = side_by_side([view.source.run for view in views], options)
    lines = tuple(sorted((_line(view, compared.letters.get(row, "")) for row, view in enumerate(views)), key=_by_index))
    datasets = {view.source.run.dataset_id for view in views}
    return Overview(lines, _scale(lines), compared, views[0].paper if len(datasets) == 1 else ())


def _line(view: RunView, letters: str) -> Line:
    grave = tuple(dict.fromkeys(sentence(one, "title") for one in view.headline.doubts if one.severity == "grave"))
    found = view.headline
    label = view.source.run.label
    return Line(label, found.index, anchor=view.anchor, verdict=found.verdict, grave=grave, letters=letters)


def _by_index(line: Line) -> float:
    return math.inf if line.index.estimate is None else -line.index.estimate
