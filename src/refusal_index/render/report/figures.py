"""Where things lie in the pictures of a run: its metrics on axes, its 2x2 tables as tiles, the accuracy-refusal plane.

All are drawn as SVG by the templates. Places are in per cent, so that text keeps its size at any width; curves are
polygons in a box of 1,000 by 1,000 that is stretched beneath them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np

from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import VariantSummary
from refusal_index.render import format as formats
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.sentences import description, phrase, typesetting
from refusal_index.stats import CELL_NAMES, Estimate, accuracy_refusal_curve
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


BOX = 1000


@dataclass(frozen=True)
class Tile:
    """One cell of a 2x2 table: its area is its share of the questions; the places are shares of the picture."""

    cell: str
    count: int
    share: float
    x: float
    y: float
    width: float
    height: float
    link: str  # to its questions, below on the page

    @property
    def roomy(self) -> bool:
        """Whether a count and a word fit in."""
        return self.width >= 0.26 and self.height >= 0.2

    @property
    def labelled(self) -> bool:
        """Whether the count fits in."""
        return self.width >= 0.05 * len(f"{self.count:,}") and self.height >= 0.1


@dataclass(frozen=True)
class Mosaic:
    """The 2x2 table of a variant: answered to the left, refused to the right, right above wrong."""

    name: str
    n: int
    tiles: tuple[Tile, ...]
    refused: float


def mosaics(run: ReportRun, number: int) -> tuple[Mosaic, ...]:
    """Lay out the 2x2 table of every variant; `number` tells the run from others on the page."""
    return tuple(_mosaic(variant, number) for variant in run.variants)


def _mosaic(variant: VariantSummary, run: int) -> Mosaic:
    table = variant.table
    refused = table.n_refused / table.n if table.n else 0.0
    counts = dict(zip(CELL_NAMES, table.counts, strict=True))
    return Mosaic(variant.name, table.n, tuple(_tiles(counts, variant.name, run)), refused)


def _tiles(counts: dict[str, int], variant: str, run: int) -> Iterator[Tile]:
    n, x = sum(counts.values()), 0.0
    for side in ("answered", "refused"):
        total = counts[f"{side}_right"] + counts[f"{side}_wrong"]
        width, y = (total / n if n else 0.0), 0.0
        for grade in ("right", "wrong"):
            cell = f"{side}_{grade}"
            height = counts[cell] / total if total else 0.0
            # The table counts the first draw of each question.
            link = "#questions?" + urlencode({"run": run, "variant": variant, "cell": cell, "draw": "first"})
            yield Tile(cell, counts[cell], counts[cell] / n if n else 0.0, x, y, width, height, link)
            y += height
        x += width


@dataclass(frozen=True)
class PlanePoint:
    """A variant in the plane: its rates with their intervals, its curve and band as polygons in the box."""

    name: str
    place: int
    refusal: tuple[float, float, float]
    correct: tuple[float, float, float]
    curve: str
    band: str


@dataclass(frozen=True)
class Plane:
    """The accuracy-refusal plane of a run."""

    points: tuple[PlanePoint, ...]  # one a variant
    # x, y: the axes; y ends above the highest value
    x: Scale
    y: Scale
    y_ticks: tuple[float, ...]  # values marked on it
    impossible: str  # polygon of what no model reaches: more right than answered
    # coin, perfect, right: the curves of an index of 0 and of 1, which start at the mean share that is right under
    # forced answering
    coin: str
    perfect: str
    right: float


def plane(run: ReportRun) -> Plane | None:
    """Lay out the plane; None where no question was scored."""
    scored = [variant for variant in run.variants if variant.table.n]
    if not scored:
        return None
    right = 1 - sum(variant.table.error_rate for variant in scored) / len(scored)
    top, ticks = _axis(max(right, *(variant.metric("correct_rate").high or 0 for variant in scored)))
    x, y, level = Scale(0, 1), Scale(0, top), run.summary.confidence_level
    return Plane(
        tuple(_point(place, variant, (x, y), level) for place, variant in enumerate(scored)),
        *(x, y, ticks),
        impossible=_path([(max(1 - top, 0), top), (1, top), (1, 0)], x, y),
        coin=_path([(0, right), (1, 0)], x, y),
        perfect=_path([(0, right), (1 - right, right), (1, 0)], x, y),
        right=right,
    )


def _point(place: int, variant: VariantSummary, axes: tuple[Scale, Scale], level: float) -> PlanePoint:
    refusal, correct = variant.metric("refusal_rate"), variant.metric("correct_rate")
    curve = accuracy_refusal_curve(variant.table)
    low, high = curve.confidence_band(level, simultaneous=True)
    there, upper, lower = (
        list(zip(curve.refusal_rate.tolist(), each.tolist(), strict=True)) for each in (curve.correct_rate, high, low)
    )
    return PlanePoint(
        variant.name,
        place,
        (refusal.estimate or 0.0, refusal.low or 0.0, refusal.high or 0.0),
        (correct.estimate or 0.0, correct.low or 0.0, correct.high or 0.0),
        "" if np.isnan(curve.correct_rate).any() else _path(there, *axes),
        "" if np.isnan(low).any() else _path([*upper, *reversed(lower)], *axes),
    )


def _axis(highest: float) -> tuple[float, tuple[float, ...]]:
    """Return the end of the axis of correct rates and what to mark on it: four to six round steps.

    >>> _axis(0.51)
    (0.6, (0.0, 0.2, 0.4, 0.6))
    """
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if highest <= 5 * step)
    steps = math.ceil(highest / step + 0.2)
    top = min(steps * step, 1.0)
    return round(top, 4), tuple(round(number_ * step, 4) for number_ in range(steps + 1) if number_ * step <= 1 + 1e-9)


def _path(points: list[tuple[float, float]], x: Scale, y: Scale) -> str:
    return " ".join(f"{BOX * x.share(a):.1f},{BOX * (1 - y.share(b)):.1f}" for a, b in points)
