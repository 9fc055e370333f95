"""The first screen of several runs, and everything that the page shows of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.findings.comparison import compare_pair
from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.ranking import rank
from refusal_index.render.format import listed, reason_text
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
    count,
    draws_rows,
    index_scale,
    metric_rows,
    number,
    percent,
    sensitivity_rows,
)
from refusal_index.stats import Estimate


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
    compared, level = [run.run for run in runs], runs[0].summary.confidence_level
    if len({run.dataset_id for run in compared}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in compared))
        told = f"The runs are over different questions ({listed(datasets)}): each stands for itself."
        return (told,), {}, ()
    differing = differing_settings(compared)
    notes = (
        (f"The runs were not asked alike ({', '.join(differing)} differ): what differs may come from there.",)
        if differing
        else ()
    )
    first = runs[0].summary
    options = CompareOptions(
        confidence_level=level, penalty=first.penalty, truthfulness_weights=first.truthfulness_weights
    )
    try:
        if len(runs) == 2:
            return tuple(_pair(compared, options)), {}, notes
        return *_ranking(compared, options), notes
    except OutcomeTableError as error:
        return (f"They were not compared: {error}.",), {}, notes


def _pair(runs: Sequence[ComparedRun], options: CompareOptions) -> Iterator[str]:
    found = compare_pair(runs, options)
    single = found.variants[0]
    difference = found.headline
    if difference.estimate is None or difference.pvalue is None:
        yield f"Whether the two differ cannot be said ({reason_text(difference.reason)})."
        yield _matched(single.match)
        return
    ahead, ends = difference.estimate >= 0, difference.confidence_interval(options.confidence_level)
    first, second = (run.label for run in (runs if ahead else runs[::-1]))
    low, high = ends if ahead else (-ends.high, -ends.low)
    apart = difference.pvalue < 1 - options.confidence_level
    reach = f"from {number(low, 2)} to {number(high, 2)}, p = {_p(difference.pvalue)}"
    size = f"{number(abs(difference.estimate), 2)} ({reach})"
    if apart:
        yield f"The refusals of {first} follow its knowledge more closely than those of {second}, by {size}."
    else:
        yield f"{first} and {second} cannot be told apart: they differ by {size}."
    yield _matched(single.match)


def _ranking(runs: Sequence[ComparedRun], options: CompareOptions) -> tuple[tuple[str, ...], dict[int, str]]:
    found = rank(runs, options)
    ranked, share = found.ranking.runs, percent(1 - found.ranking.confidence_level)
    sentences = [
        *_leader([(runs[run.row].label, run.letters) for run in ranked]),
        _matched(found.match),
        f"Runs that share a letter cannot be told apart; the chance of even one false difference is at most {share}.",
    ]
    if found.ranking.unranked:
        names = [f"{runs[run.row].label} ({reason_text(run.reason)})" for run in found.ranking.unranked]
        sentences.append(f"Not ranked: {listed(names)}.")
    return tuple(sentences), {run.row: run.letters for run in ranked}


def _leader(ranked: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Say which run has the highest index, and which others may be as good."""
    if len(ranked) < 2:
        return
    (first, letters), *others = ranked
    ties = [label for label, theirs in others if set(letters) & set(theirs)]
    if ties and len(ties) == len(others):
        yield f"None of these runs can be told apart from the highest, {first}."
    elif ties:
        yield f"The refusals of {first} follow its knowledge most closely; {listed(ties)} cannot be told apart from it."
    else:
        yield f"The refusals of {first} follow its knowledge more closely than those of any other run."


def _matched(found: Match) -> str:
    if found.paired:
        return f"Compared on {count(len(found.matrix.question_ids), 'question')} that every run has a grade for."
    return "Compared unpaired, since the runs share few questions: what differs may be these, not the model."


def _p(value: float) -> str:
    return "below .0001" if value < 0.0001 else f"{value:.2g}"
