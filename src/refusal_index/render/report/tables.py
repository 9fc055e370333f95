"""Tables with a picture in every cell: the metrics of a run, and what other decisions make of its index.

Every number that has an interval comes with the places of its picture on an axis that all of its row share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import VariantSummary
from refusal_index.render import format as formats
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.sentences import description, phrase, typesetting
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs

number, percent = typesetting(formats.number), typesetting(formats.percent)


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    >>> axis = Scale(-1.0, 1.0)
    >>> axis.at(0), axis.at(2), axis.length(-0.5, 0.5)
    ('50.00%', '100.00%', '50.00%')
    """

    low: float
    high: float

    def share(self, value: float) -> float:
        """Place of a value, in [0, 1]; what lies outside is drawn at the end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """Place of a value, as SVG takes it."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Place of a value from the top."""
        return f"{100 * (1 - self.share(value)):.2f}%"

    def length(self, start: float, end: float) -> str:
        """Length between two values."""
        return f"{100 * (self.share(end) - self.share(start)):.2f}%"


@dataclass(frozen=True)
class IndexScale(Scale):
    """The axis of the Refusal Index, with the values to be marked on it."""

    ticks: tuple[float, ...] = ()


def index_scale(values: Iterable[float | None]) -> IndexScale:
    """Return an axis from 0 to 1 that reaches below 0 as far as the values do.

    >>> index_scale([0.3, None, -0.08])
    IndexScale(low=-0.25, high=1.0, ticks=(-0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    """
    lowest = min([0.0, *(value for value in values if value is not None)])
    quarters = max(math.floor(lowest * 4), -4)
    return IndexScale(quarters / 4, 1.0, tuple(quarter / 4 for quarter in range(quarters, 5)))


NOT_KNOWN = Estimate(None, reason="no_forced_grade")
"""Stands for a range that would rest on which forced answers were refused again, where nothing says so."""

ORDER = (INDEX, CORRECTED, *(name for name in METRICS if name not in (INDEX, CORRECTED)))
"""The metrics in the order of the page."""

KINDS = {
    INDEX: "",
    CORRECTED: "",
    "forced_for_all": "other",
    "missing": "range",
    "scoring_rules": "range",
    "refused_again_right": "rule",
    "refused_again_dropped": "rule",
    "within_topics": "other",
}
"""What may be decided otherwise, in the order of the page, and how it looks there."""


@dataclass(frozen=True)
class MetricRow:
    """One metric, or the index under one decision, of every variant on one axis."""

    # name, meaning, scale: what it is, and its axis
    name: str
    meaning: str
    scale: Scale
    # One a variant; None where there is nothing to say. A range has ends and no estimate.
    cells: tuple[Estimate | None, ...]
    kind: str = ""  # for the look: ``""``, ``"range"``, ``"rule"`` or ``"other"``
    digits: int = 3  # that its numbers are shown to


def metric_rows(run: ReportRun) -> tuple[MetricRow, ...]:
    """Put the metrics of all variants side by side."""
    has_corrected = any(variant.corrected is not None for variant in run.variants)
    payoffs = Payoffs(run.summary.penalty, run.summary.truthfulness_weights)
    return tuple(_metric_row(run, name, payoffs) for name in ORDER if name != CORRECTED or has_corrected)


def _metric_row(run: ReportRun, name: str, payoffs: Payoffs) -> MetricRow:
    metric, cells = METRICS[name], tuple(variant.metric(name) for variant in run.variants)
    scale = _index_scale(cells) if name in (INDEX, CORRECTED) else Scale(*metric.range(payoffs))
    return MetricRow(metric.label, description(name, payoffs), scale, cells, digits=metric.digits)


def _index_scale(cells: Iterable[Estimate]) -> IndexScale:
    return index_scale(value for cell in cells for value in (cell.estimate, cell.low, cell.high))


def sensitivity_rows(run: ReportRun) -> tuple[MetricRow, ...]:
    """List what other decisions, and repeated draws, would make of every variant's index; all rows on one axis."""
    found = [dict(_decisions(variant)) for variant in run.variants]
    scale = _index_scale(cell for decisions in found for cell in decisions.values())
    return tuple(
        MetricRow(
            *(phrase(code, "decision"), phrase(code, "decision_meaning"), scale),
            tuple(decisions.get(code) for decisions in found),
            kind,
        )
        for code, kind in KINDS.items()
        if any(code in decisions for decisions in found)
    )


def _decisions(variant: VariantSummary) -> Iterator[tuple[str, Estimate]]:
    sensitivity, missing = variant.sensitivity, variant.missing
    yield INDEX, variant.index
    if variant.corrected is not None:
        yield CORRECTED, variant.corrected
    if variant.draws is not None:
        yield "forced_for_all", Estimate(variant.draws.forced_for_all)
    if missing is not None:
        yield "missing", Estimate(None, missing.low, missing.high, reason=missing.reason)
    rules = sensitivity.range_of(INDEX)
    known = sensitivity.knows_refused_again
    yield "scoring_rules", Estimate(None, rules.low, rules.high, reason=rules.reason) if known else NOT_KNOWN
    for rule in sensitivity.rules:
        if rule.rule in KINDS and variant.forced_refusals.refused:
            yield rule.rule, Estimate(rule.estimate, reason=rule.reason)
    if sensitivity.topics is not None:
        yield "within_topics", sensitivity.topics.within
