"""The first screen of a run: what was found, how sure it is, compared with what, and what spoils it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refusal_index.outcomes.summary import VariantSummary
from refusal_index.report.cautions import Spoiler, spoilers
from refusal_index.report.paper import PaperRows, paper_rows
from refusal_index.report.runs import ReportRun
from refusal_index.report.scales import IndexScale, index_scale
from refusal_index.report.text import count, number
from refusal_index.report.verdict import Finding, pairs_sentence, verdict
from refusal_index.stats import Estimate


@dataclass(frozen=True)
class Line:
    """One line of the picture: a name and its index with the interval."""

    name: str
    index: Estimate
    joint: bool = False


@dataclass(frozen=True)
class Headline:
    """The first screen."""

    index: Estimate  # the number in large type
    # verdict, pairs: what it means, in words and in pairs of questions; the latter None where it means nothing
    verdict: str
    pairs: str | None
    # sure, compared: sentences
    sure: tuple[str, ...]
    compared: tuple[str, ...]
    spoilers: tuple[Spoiler, ...]  # what a reader must know before believing it, the gravest first
    # lines, scale: the picture: the joint index above its variants
    lines: tuple[Line, ...]
    scale: IndexScale
    paper: PaperRows | None  # the paper's own models, where they were asked the same questions; else None


def headline(run: ReportRun) -> Headline:
    """Make the first screen of a run."""
    found, lines = finding(run), tuple(_lines(run))
    index = found.index
    paper = paper_rows(run.run.dataset_id)
    values = [value for line in lines for value in (line.index.estimate, line.index.low, line.index.high)]
    return Headline(
        index=index,
        verdict=verdict(found),
        pairs=pairs_sentence(found),
        sure=tuple(_sure(run, index)),
        compared=tuple(_compared(run, index, paper)),
        spoilers=spoilers(run),
        lines=lines,
        scale=index_scale(values),
        paper=paper,
    )


def finding(run: ReportRun) -> Finding:
    """Return the index over all variants, with what decides how it may be put into words."""
    rates = [variant.table.error_rate for variant in run.variants if variant.table.n]
    error_rate = sum(rates) / len(rates) if rates else None
    codes = frozenset.intersection(*(frozenset(w.code for w in variant.warnings) for variant in run.variants))
    corrected = [variant.draws.noise_corrected for variant in run.variants if variant.draws is not None]
    hidden = bool(corrected) and all(one.low is not None and one.low > 0 for one in corrected)
    return Finding(run.index, error_rate, codes, hidden)


def _lines(run: ReportRun) -> Iterator[Line]:
    if run.pooled is not None:
        yield Line("jointly", run.index, joint=True)
    for name, variant in zip(run.names, run.variants, strict=True):
        yield Line(name, variant.metric("refusal_index"))


def _sure(run: ReportRun, index: Estimate) -> Iterator[str]:
    asked = max(variant.table.n for variant in run.variants)
    under = f" under {count(len(run.variants), 'prompt')}" if len(run.variants) > 1 else ""
    rests_on = f"{count(asked, 'question')}{under}"
    if index.low is None or index.high is None:
        yield f"There is no interval for it: {rests_on} do not settle it."
    else:
        yield f"With {run.level} confidence it lies between {number(index.low, 2)} and {number(index.high, 2)}."
        yield f"That rests on {rests_on}; four times as many would halve the interval."
    yield "The interval allows for the choice of questions only; what it does not allow for may spoil it."


def _compared(run: ReportRun, index: Estimate, paper: PaperRows | None) -> Iterator[str]:
    yield "0 is a model that refuses like a coin, 1 one that refuses exactly what it would get wrong."
    known = [(n, v) for n, v in zip(run.names, run.variants, strict=True) if _estimate(v) is not None]
    if len(known) > 1:
        known.sort(key=lambda pair: _estimate(pair[1]) or 0.0)
        (worst, low), (best, high) = known[0], known[-1]
        yield f"Its best prompt is {best} at {_shown(high)}, its worst {worst} at {_shown(low)}{_differ(run)}."
    if paper is not None:
        found = f"The paper's {paper.count} results on these questions run from {number(paper.low, 2)} to "
        yield found + number(paper.high, 2) + _place(index, paper) + "."


def _place(index: Estimate, paper: PaperRows) -> str:
    if index.estimate is None:
        return ""
    below = paper.below(index.estimate)
    return f", {'all' if below == paper.count else 'none' if below == 0 else below} of them below this one"


def _differ(run: ReportRun) -> str:
    pvalue = run.pooled.homogeneity.pvalue if run.pooled else None
    if pvalue is None:
        return ""
    if pvalue < 1 - run.summary.confidence_level:
        return ", more apart than chance makes them"
    return ", no more apart than chance makes them"


def _estimate(variant: VariantSummary) -> float | None:
    return variant.metric("refusal_index").estimate


def _shown(variant: VariantSummary) -> str:
    return number(_estimate(variant), 2)
