"""Where things lie in the pictures of a run: its metrics on axes, its 2x2 tables as tiles, the accuracy-refusal plane.

All are drawn as SVG by the templates. Places are in per cent, so that text keeps its size at any width; curves are
polygons in a box of 1,000 by 1,000 that is stretched beneath them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import VariantSummary
from refusal_index.render import format as formats
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.sentences import description, phrase, typesetting
from refusal_index.stats import ContingencyTable, Estimate, accuracy_refusal_curve
from refusal_index.stats.baseline import Payoffs

number, percent = typesetting(formats.number), typesetting(formats.percent)


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    >>> axis = Scale(-1.0, 1.0)
    >>> axis.at(0), axis.at(2)
    ('50.00%', '100.00%')
    """

    low: float
    high: float
    ticks: tuple[float, ...] = ()  # values marked on it

    def share(self, value: float) -> float:
        """Place of a value, in [0, 1]; what lies outside is drawn at the end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """Place of a value, as SVG takes it."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Place of a value from the top."""
        return f"{100 * (1 - self.share(value)):.2f}%"


UNIT = Scale(0.0, 1.0)


def index_scale(cells: Iterable[Estimate]) -> Scale:
    """Return an axis of the Refusal Index from 0 to 1 that reaches below 0 as far as estimates and intervals do.

    >>> index_scale([Estimate(0.3, 0.2, 0.4), Estimate(None), Estimate(-0.08)])
    Scale(low=-0.25, high=1.0, ticks=(-0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    """
    values = [value for cell in cells for value in (cell.estimate, cell.low, cell.high) if value is not None]
    quarters = max(math.floor(min([0.0, *values]) * 4), -4)
    return Scale(quarters / 4, 1.0, tuple(quarter / 4 for quarter in range(quarters, 5)))


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
    shown = (name for name in ORDER if run.summary.records(name) and (name != CORRECTED or has_corrected))
    return tuple(_metric_row(run, name, payoffs) for name in shown)


def _metric_row(run: ReportRun, name: str, payoffs: Payoffs) -> MetricRow:
    metric, cells = METRICS[name], tuple(variant.metric(name) for variant in run.variants)
    scale = index_scale(cells) if name in (INDEX, CORRECTED) else Scale(*metric.range(payoffs))
    return MetricRow(metric.label, description(name, payoffs), scale, cells, digits=metric.digits)


def rate_rows(run: ReportRun, variant: VariantSummary) -> Iterator[MetricRow]:
    """Yield the rates of one variant that people act on."""
    payoffs = Payoffs(run.summary.penalty, run.summary.truthfulness_weights)
    for name in ("refusal_rate", "refusal_precision", "over_refusal"):
        yield MetricRow(METRICS[name].label, description(name, payoffs), UNIT, (variant.metric(name),))
    right = variant.metric("correct_given_attempted")
    estimate, low, high = (None if value is None else 1 - value for value in (right.estimate, right.high, right.low))
    wrong = Estimate(estimate, low, high)
    name, meaning = (phrase("wrong_if_answered", section) for section in ("rate", "rate_meaning"))
    yield MetricRow(name, meaning, UNIT, (wrong,))


def sensitivity_rows(run: ReportRun) -> tuple[MetricRow, ...]:
    """List what other decisions, and repeated draws, would make of every variant's index; all rows on one axis."""
    by_variant = [dict(_decisions(variant)) for variant in run.variants]
    scale = index_scale(cell for decisions in by_variant for cell in decisions.values())
    return tuple(
        MetricRow(
            *(phrase(code, "decision"), phrase(code, "decision_meaning"), scale),
            tuple(decisions.get(code) for decisions in by_variant),
            kind,
        )
        for code, kind in KINDS.items()
        if any(code in decisions for decisions in by_variant)
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


@dataclass(frozen=True)
class Tile:
    """One cell of a 2x2 table: its area is its share of the questions; the places are shares of the picture."""

    cell: str
    count: int
    x: float
    y: float
    width: float
    height: float


def tiles(table: ContingencyTable) -> Iterator[Tile]:
    """Lay out a 2x2 table: answered to the left, refused to the right, right above wrong."""
    x = 0.0
    for side, total in (("answered", table.n_answered), ("refused", table.n_refused)):
        right, wrong = getattr(table, f"{side}_right"), getattr(table, f"{side}_wrong")
        width, top = (total / table.n if table.n else 0.0), (right / total if total else 0.0)
        yield Tile(f"{side}_right", right, x, 0.0, width, top)
        yield Tile(f"{side}_wrong", wrong, x, top, width, wrong / total if total else 0.0)
        x += width


BOX = 1000


@dataclass(frozen=True)
class PlanePoint:
    """A variant in the plane: its rates, its curve and band as polygons in the box."""

    name: str
    place: int
    refusal: Estimate
    correct: Estimate
    curve: str
    band: str


@dataclass(frozen=True)
class Plane:
    """The accuracy-refusal plane of a run."""

    points: tuple[PlanePoint, ...]  # one a variant
    # x, y: the axes; y ends above the highest value
    x: Scale
    y: Scale
    right: float  # the mean share that is right under forced answering, at which the curves start

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return a polygon in the box through some points."""
        return " ".join(f"{BOX * self.x.share(a):.1f},{BOX * (1 - self.y.share(b)):.1f}" for a, b in points)


def plane(run: ReportRun) -> Plane | None:
    """Lay out the plane; None where no question was scored."""
    scored = [variant for variant in run.variants if variant.table.n]
    if not scored:
        return None
    right = 1 - sum(variant.table.error_rate for variant in scored) / len(scored)
    y = _axis(max(right, *(variant.metric("correct_rate").high or 0 for variant in scored)))
    empty = Plane((), Scale(0, 1), y, right)
    level = run.summary.confidence_level
    return replace(empty, points=tuple(_point(place, each, empty, level) for place, each in enumerate(scored)))


def _point(place: int, variant: VariantSummary, axes: Plane, level: float) -> PlanePoint:
    curve = accuracy_refusal_curve(variant.table)
    low, high = curve.confidence_band(level, simultaneous=True)
    middle, upper, lower = (
        list(zip(curve.refusal_rate.tolist(), each.tolist(), strict=True)) for each in (curve.correct_rate, high, low)
    )
    return PlanePoint(
        variant.name,
        place,
        variant.metric("refusal_rate"),
        variant.metric("correct_rate"),
        "" if np.isnan(curve.correct_rate).any() else axes.path(middle),
        "" if np.isnan(low).any() else axes.path([*upper, *reversed(lower)]),
    )


def _axis(highest: float) -> Scale:
    """Return the axis of correct rates: four to six round steps.

    >>> _axis(0.51)
    Scale(low=0, high=0.6, ticks=(0.0, 0.2, 0.4, 0.6))
    """
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if highest <= 5 * step)
    steps = math.ceil(highest / step + 0.2)
    ticks = (round(place * step, 4) for place in range(steps + 1) if place * step <= 1 + 1e-9)
    return Scale(0, round(min(steps * step, 1.0), 4), tuple(ticks))
