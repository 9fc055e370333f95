"""The section on scores of how likely answers are right: whether they beat the refusals, and how well each does.

Each method has a pair of pictures, places in per cent of a square: the reliability diagram, and the ROC curve with
those of all other methods faint behind it. A curve stands on the page once, and is referred to by its name wherever it
is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.confidence import scores_by_method
from refusal_index.data.folder import RunFolder
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import Summary
from refusal_index.plugins.confidence.summary import (
    NAME,
    MethodSummary,
    ScoreComparison,
    compare_confidence,
    graded,
    shared_remarks,
    summarise_outcomes,
)
from refusal_index.plugins.confidence.text import measures_blocks, scores_table
from refusal_index.render.blocks import Block
from refusal_index.render.format import count, listed
from refusal_index.render.report.figures import BOX, MetricRow, Scale, number, percent
from refusal_index.render.report.page import environment
from refusal_index.render.sections import PageSection, RunOnPage, Section
from refusal_index.render.sentences import add_sentences, sentence
from refusal_index.stats import Estimate, ReliabilityBin, reliability_table
from refusal_index.stats.calibration.auroc import roc_counts

N_BINS = 10

UNIT = Scale(0.0, 1.0)

MOST_SHOWN = 6
"""More methods than these are folded away, pictures and all."""

MOST_POINTS = 300
"""Corners of a ROC curve; more are not seen at the size of a picture."""

MOST_TOLD = 4
"""More comparisons than these are told in full only to those who ask for it."""

LARGEST, SMALLEST = 12.0, 2.5
"""Radius in pixels of a bin that holds all questions, and the least that can be seen."""


@dataclass(frozen=True)
class Bin:
    """A point of the reliability diagram: the mean score of a bin and the share of right answers in it."""

    score: float
    rate: float
    low: float
    high: float
    count: int
    radius: float


@dataclass(frozen=True)
class MethodView:
    """One method."""

    name: str
    about: str  # whose scores they are, of how many questions
    summary: MethodSummary
    bins: tuple[Bin, ...]
    curve: str  # name of its ROC curve on the page; empty where it has none
    roc: str  # its points in the box
    reliability_words: str  # for those who do not see the pictures
    roc_words: str


@dataclass(frozen=True)
class Finding:
    """What a score does beside the refusals: a sentence, and in full what was compared, prompt by prompt."""

    kind: str  # ``"better"``, ``"worse"``, ``"mixed"``, ``"open"`` or ``"undefined"``
    name: str
    sentence: str  # without the name
    told: tuple[str, ...]


@dataclass(frozen=True)
class ConfidenceView:
    """The section."""

    shown: tuple[MethodView, ...]  # with pictures, side by side
    folded: tuple[MethodView, ...]  # with pictures, below
    methods: tuple[MethodView, ...]  # all, in the order of the table
    area: Scale  # the axis of all AUROCs
    findings: tuple[Finding, ...]
    # index, errors: by how much the score's RI, and its share of errors among the answers, exceeds that of
    # the refusals, a row a method and a cell a prompt
    index: tuple[MetricRow, ...]
    errors: tuple[MetricRow, ...]
    targets: tuple[str, ...]
    names: tuple[str, ...]  # of the prompts
    remarks: tuple[tuple[str, str], ...]  # what must be said beside the numbers: of which methods, and what

    @property
    def is_short(self) -> bool:
        """Whether there are so few comparisons that all can be told in full."""
        return sum(len(one.told) for one in self.findings) <= MOST_TOLD


def confidence_view(page: RunOnPage) -> ConfidenceView | None:
    """Prepare the section of a run; None where it has no scores."""
    run, summary, anchor = page.run, page.summary, page.anchor
    found = summary.sections.get(NAME, ())
    if not found or run.confidence is None:
        return None
    tables = scores_by_method(run.confidence)
    several = len({one.of for one in found}) > 1
    methods = tuple(
        _method(one, *graded(tables[one.key]), f"{anchor}-roc-{place}", summary.confidence_level, several=several)
        for place, one in enumerate(found, start=1)
    )
    drawn = [one for one in methods if one.bins]
    variants = tuple(run.variants)
    index, errors = (tuple(_rows(found, variants, metric)) for metric in ("refusal_index", "answered_error_rate"))
    return ConfidenceView(
        shown=tuple(drawn[:MOST_SHOWN]),
        folded=tuple(drawn[MOST_SHOWN:]),
        methods=methods,
        area=_area_scale(found),
        findings=tuple(_finding(one) for one in found if one.questions),
        index=index,
        errors=errors,
        targets=tuple(dict.fromkeys(target for one in found for target in one.targets)),
        names=tuple(variant or "all" for variant in variants),
        remarks=tuple(_remarks(summary)),
    )


def _method(
    one: MethodSummary,
    score: NDArray[np.float64],
    right: NDArray[np.bool_],
    curve: str,
    level: float,
    *,
    several: bool,
) -> MethodView:
    bins = tuple(_bins(reliability_table(score, right, n_bins=N_BINS, confidence_level=level), score.size))
    roc = _path(*roc_points(score, right)) if one.auroc.estimate is not None else ""
    name = one.name
    points = ", ".join(f"{number(bin_.score, 2)} to {percent(bin_.rate, 0)} ({bin_.count:,})" for bin_ in bins)
    whose = [count(one.questions, "answer")] + ([f"pass {one.of}"] if several and one.of else [])
    return MethodView(
        name=name,
        about=", ".join([*whose, *(["trained on right and wrong answers"] if one.is_trained else [])]),
        summary=one,
        bins=bins,
        curve=curve if roc else "",
        roc=roc,
        reliability_words=f"Reliability of {name}: share of right answers by mean score of a bin, {points}.",
        roc_words=f"ROC curve of {name}: area {number(one.auroc.estimate)}.",
    )


def _bins(found: Sequence[ReliabilityBin], n: int) -> Iterator[Bin]:
    for one in found:
        if one.count:
            ends = (one.outcome_rate_low or 0.0, one.outcome_rate_high or 0.0)
            radius = max(LARGEST * math.sqrt(one.count / n), SMALLEST)
            yield Bin(one.mean_score or 0.0, one.outcome_rate or 0.0, *ends, one.count, radius)


def roc_points(score: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the ROC curve: shares of wrong and of right answers that score at least a threshold.

    Equal scores make one point, and points on a straight line none. Of very many corners every so many are kept.

    >>> wrong, right = roc_points(np.array([0.9, 0.7, 0.7, 0.2]), np.array([True, False, True, False]))
    >>> wrong.tolist(), right.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    hits, passed = (np.concatenate([[0], counts]) for counts in roc_counts(score, right)[1:])
    across, up = np.diff(passed - hits), np.diff(hits)
    turns = np.flatnonzero(across[1:] * up[:-1] != across[:-1] * up[1:]) + 1
    corners = np.concatenate([[0], turns, [len(hits) - 1]])
    kept = corners[np.linspace(0, len(corners) - 1, min(len(corners), MOST_POINTS)).round().astype(int)]
    return ((passed - hits) / np.count_nonzero(~right))[kept], (hits / np.count_nonzero(right))[kept]


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return " ".join(f"{BOX * a:.0f},{BOX * (1 - b):.0f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _area_scale(found: Sequence[MethodSummary]) -> Scale:
    """Return an axis from a coin to perfect that reaches below as far as the intervals do."""
    lowest = min([0.5, *(one.auroc.low for one in found if one.auroc.low is not None)])
    return Scale(math.floor(10 * lowest) / 10, 1.0)


def _finding(one: MethodSummary) -> Finding:
    verdicts = {each.verdict for each in one.against}
    settled = verdicts & {"better", "worse"} or verdicts & {"not_told_apart"} or {"undefined"}
    kind = "mixed" if len(settled) > 1 else next(iter(settled)).replace("not_told_apart", "open")
    said = sentence(one.verdict(), "page").removeprefix(one.name).strip()
    return Finding(kind, one.name, said, tuple(sentence(each.in_full(one.method), "page") for each in one.against))


def _remarks(summary: Summary) -> Iterator[tuple[str, str]]:
    yield from ((listed(names), sentence(remark, "page")) for names, remark in shared_remarks(summary.sections[NAME]))
    if summary.is_sampled:
        yield "", sentence(Statement("one_by_one", "scope"), "page")


def _rows(found: Sequence[MethodSummary], variants: Sequence[str | None], metric: str) -> Iterator[MetricRow]:
    """Put the differences of each method side by side, one row for all variants of it, all on one axis."""
    cells: dict[tuple[str, str | None], dict[str | None, Estimate]] = {}
    for one in found:
        if one.questions:
            mine = cells.setdefault((one.method, one.of), {})
            mine.update({each.variant: getattr(each, metric).difference for each in one.against})
    values = [v for row in cells.values() for cell in row.values() for v in (cell.estimate, cell.low, cell.high)]
    reach = max([0.1, *(abs(value) for value in values if value is not None)])
    scale = Scale(-math.ceil(10 * reach) / 10, math.ceil(10 * reach) / 10)
    for (method, _), row in cells.items():
        yield MetricRow(method, "", scale, tuple(row.get(variant) for variant in variants))


class ConfidenceSection(Section):
    """Scores of how likely answers are right, in summaries, comparisons and the report."""

    name = NAME
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")

    def summarise(
        self, outcomes: pl.LazyFrame, folder: RunFolder | None, confidence_level: float
    ) -> tuple[MethodSummary, ...]:
        """Summarise each method that scored answers."""
        return summarise_outcomes(outcomes, folder.read_confidence() if folder else None, confidence_level)

    def summary_blocks(self, summary: Summary) -> Iterator[Block]:
        """Yield the measures of each method, and whether they beat the refusals."""
        found = summary.sections.get(NAME, ())
        yield from measures_blocks(found)
        if found and summary.is_sampled:
            yield from ("", sentence(Statement("one_by_one", "scope")))

    def compare(self, runs: Sequence[ComparedRun], options: CompareOptions) -> tuple[ScoreComparison, ...]:
        """Compare the methods that scored the answers of both runs."""
        first, second = runs
        return compare_confidence(first, second, variant=options.variant, confidence_level=options.confidence_level)

    def comparison_blocks(self, found: PairComparison) -> Iterator[Block]:
        """Yield a row for each method and measure."""
        scores = found.sections.get(NAME, ())
        if scores:
            yield from ("", scores_table(found))
            paired = sorted({one.paired for one in scores}, reverse=True)
            remarks = [Statement("scores_compared", "scope", {"paired": paired})]
            if found.variants[0].match.matrix.design:
                remarks.append(Statement("one_by_one", "scope"))
            yield " ".join(map(sentence, remarks))

    def of_run(self, run: RunOnPage) -> Iterator[PageSection]:
        """Yield pictures, measures and the comparison with the refusals."""
        view = confidence_view(run)
        if view is not None:
            template = environment(__package__).get_template("confidence.html.j2")
            anchor = f"{run.anchor}-confidence"
            html = template.render(found=view, anchor=anchor, level=run.summary.confidence_level, unit=UNIT)
            yield PageSection(anchor, "Confidence", html)


SECTION = ConfidenceSection()
add_sentences(__package__)
