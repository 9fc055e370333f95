"""Where things lie in the two pictures of a run: its 2x2 tables as tiles, and the accuracy-refusal plane.

Both are drawn as SVG by the templates. Places are in per cent, so that text keeps its size at any width; curves are
polygons in a box of 1,000 by 1,000 that is stretched beneath them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np

from refusal_index.findings.summary import VariantSummary
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.report.tables import Scale, percent
from refusal_index.stats import CELL_NAMES, accuracy_refusal_curve

CELLS = {
    "answered_right": "answered, right",
    "answered_wrong": "answered, wrong",
    "refused_right": "refused, though right when forced",
    "refused_wrong": "refused, and wrong when forced",
}
"""What the cells are called on the page, in the order of its legend."""

SHORT = {"answered_right": "right", "answered_wrong": "wrong", "refused_right": "right", "refused_wrong": "wrong"}

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
    description: str


def mosaics(run: ReportRun, number: int) -> tuple[Mosaic, ...]:
    """Lay out the 2x2 table of every variant; `number` tells the run from others on the page."""
    return tuple(_mosaic(name, variant, number) for name, variant in zip(run.names, run.variants, strict=True))


def _mosaic(name: str, variant: VariantSummary, run: int) -> Mosaic:
    table = variant.table
    counts = dict(zip(CELL_NAMES, table.counts, strict=True))
    told = ", ".join(
        f"{words} {counts[cell]:,} ({percent(counts[cell] / max(table.n, 1), 0)})" for cell, words in CELLS.items()
    )
    refused = table.n_refused / table.n if table.n else 0.0
    return Mosaic(name, table.n, tuple(_tiles(counts, name, run)), refused, f"{name}: {told}.")


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
    description: str  # for those who do not see it


def plane(run: ReportRun) -> Plane | None:
    """Lay out the plane; None where no question was scored."""
    scored = [(n, v) for n, v in zip(run.names, run.variants, strict=True) if v.table.n]
    if not scored:
        return None
    right = 1 - sum(variant.table.error_rate for _, variant in scored) / len(scored)
    top, ticks = _axis(max(right, *(variant.metric("correct_rate").high or 0 for _, variant in scored)))
    x, y = Scale(0, 1), Scale(0, top)
    level = run.summary.confidence_level
    points = tuple(_point(name, place, variant, (x, y), level) for place, (name, variant) in enumerate(scored))
    told = "; ".join(
        f"{p.name}: refused {percent(p.refusal[0], 0)}, correct {percent(p.correct[0], 0)}" for p in points
    )
    return Plane(
        points,
        x,
        y,
        ticks,
        _path([(max(1 - top, 0), top), (1, top), (1, 0)], x, y),
        _path([(0, right), (1, 0)], x, y),
        _path([(0, right), (1 - right, right), (1, 0)], x, y),
        right,
        f"Correct rate against refusal rate. {told}. All curves start at {percent(right, 0)} correct without refusals.",
    )


def _point(name: str, place: int, variant: VariantSummary, axes: tuple[Scale, Scale], level: float) -> PlanePoint:
    refusal, correct = variant.metric("refusal_rate"), variant.metric("correct_rate")
    curve = accuracy_refusal_curve(variant.table)
    low, high = curve.confidence_band(level, simultaneous=True)
    there = list(zip(curve.refusal_rate.tolist(), curve.correct_rate.tolist(), strict=True))
    upper = list(zip(curve.refusal_rate.tolist(), high.tolist(), strict=True))
    lower = list(zip(curve.refusal_rate.tolist(), low.tolist(), strict=True))
    return PlanePoint(
        name,
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
