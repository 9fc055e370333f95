"""The steps of a training on one page: metrics with bands, changes, and what the tests show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import Any

from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.summary import Summary
from refusal_index.plugins.training.panel import INDEX, TESTED, PanelOfSteps, panels_of, steps_of_trainings
from refusal_index.render.format import reason_text
from refusal_index.render.report.figures import Scale
from refusal_index.render.report.page import environment
from refusal_index.render.sections import PageSection, RunOnPage, Section
from refusal_index.render.sentences import add_sentences, description
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs

FIRST = (INDEX, "refusal_rate", "error_rate", "correct_given_attempted")
"""The metrics that are seen at once; the others are opened."""

WIDE = 1000  # units of the area that bands and lines are drawn in


@dataclass(frozen=True)
class Point:
    """One step of one metric."""

    label: str
    step: int
    value: Estimate


@dataclass(frozen=True)
class Chart:
    """One metric over the steps."""

    name: str
    meaning: str
    x: Scale
    y: Scale
    ticks: tuple[float, ...]  # of the vertical axis
    steps: tuple[int, ...]  # that the horizontal axis names
    points: tuple[Point, ...]
    bands: tuple[str, ...]  # polygons, one for each stretch of steps with an interval
    lines: tuple[str, ...]  # the same of the estimates
    since: int | None  # the step from which on a change is shown
    about: bool  # whether it changes elsewhere too, so that the step is no more than the middle of it
    digits: int

    @property
    def gaps(self) -> tuple[Point, ...]:
        """Steps without a number, or without an interval."""
        return tuple(point for point in self.points if point.value.status != "ok")

    @property
    def gap_words(self) -> str:
        """Why some steps have no number, or no interval, and which."""
        by_reason: dict[str, list[str]] = {}
        for point in self.gaps:
            by_reason.setdefault(reason_text(point.value.reason), []).append(f"{point.step:,}")
        return "; ".join(
            f"{reason} at step{'s' if len(steps) > 1 else ''} {', '.join(steps)}" for reason, steps in by_reason.items()
        )


@dataclass(frozen=True)
class Row:
    """One checkpoint."""

    anchor: str
    label: str
    step: int
    questions: int
    cells: tuple[Estimate, ...]  # in the order of `FIRST`
    lacks: str | None  # how many of its own questions and draws are scored, where too many are not


def panel_values(runs: Sequence[RunOnPage]) -> Iterator[dict[str, Any]]:
    """Yield what the template shows of each training of which several steps are among the runs, and shared variant."""
    places = {id(run.run): run for run in runs}
    summary = runs[0].summary
    options = CompareOptions(
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
        confidence_level=summary.confidence_level,
    )
    panels = [one for steps in steps_of_trainings([run.run for run in runs]) for one in panels_of(steps, options)]
    for place, panel in enumerate(panels, start=1):
        dataset, rows = panel.runs[0].dataset, tuple(_rows(panel, [places[id(run)] for run in panel.runs]))
        payoffs = Payoffs(summary.penalty, summary.truthfulness_weights)
        charts = {metric: _chart(panel, metric, payoffs) for metric in panel.metrics}
        # What is missing may be no matter of chance: it comes first.
        lacking = ", ".join(f"step {row.step:,} ({row.lacks})" for row in rows if row.lacks)
        yield {
            "anchor": f"panel-{place}",
            "title": f"{len(panel.runs)} steps{f' on {dataset}' if dataset else ''}, {panel.variant}",
            "headline": panel.headline,
            "lacking": f"Incomplete; do not rely on these numbers: {lacking}." if lacking else "",
            "statements": panel.statements,
            "charts": [charts[metric] for metric in FIRST],
            "more": [chart for metric, chart in charts.items() if metric not in FIRST],
            "rows": rows,
        }


def _rows(found: PanelOfSteps, runs: Sequence[RunOnPage]) -> Iterator[Row]:
    scored = found.match.matrix.scored.sum(axis=1).tolist()
    for row, (run, step) in enumerate(zip(runs, found.steps, strict=True)):
        cells = tuple(found.metrics[metric].points[row] for metric in FIRST)
        yield Row(run.anchor, run.run.label, step, scored[row], cells, _lacks(run.summary, found.variant))


def _lacks(summary: Summary, variant: str) -> str | None:
    """Return how many questions or draws of the variant that a panel is of are scored, where too many are not."""
    # Steps of one variant each are compared whatever it is called.
    own = next((one for one in summary.variants if one.name == variant), summary.variants[0])
    if own.is_complete:
        return None
    counted = (own.completeness, "questions"), (own.further_draws, "further draws")
    lacking = (f"{of.scored:,} of {of.asked:,} {what}" for of, what in counted if of is not None and of.unscored)
    return f"{' and '.join(lacking)} scored"


def _chart(found: PanelOfSteps, metric: str, payoffs: Payoffs) -> Chart:
    over_steps = found.metrics[metric]
    points = tuple(
        Point(run.label, step, value)
        for run, step, value in zip(found.runs, found.steps, over_steps.points, strict=True)
    )
    steps, room = found.steps, (found.steps[-1] - found.steps[0]) * 0.03  # for a point at either end
    x, (y, ticks) = Scale(steps[0] - room, steps[-1] + room), vertical(metric, over_steps.points)
    quarters = [steps[0] + (steps[-1] - steps[0]) * part / 4 for part in range(5)]
    stretches = [list(each) for known, each in groupby(points, key=lambda point: point.value.low is not None) if known]
    change = over_steps.change if metric in TESTED and found.changed(metric) else None
    since = None if change is None else found.steps[change.row]
    return Chart(
        name="Refusal Index" if metric == INDEX else METRICS[metric].label,
        meaning=description(metric, payoffs),
        x=x,
        y=y,
        ticks=ticks,
        steps=tuple(sorted({min(steps, key=lambda step: abs(step - quarter)) for quarter in quarters})),
        points=points,
        bands=tuple(_band(each, x, y) for each in stretches if len(each) > 1),
        lines=tuple(_line(each, x, y) for each in _joined(metric, points) if len(each) > 1),
        since=since,
        about=since is not None and not found.changed_at_once(metric),
        digits=min(METRICS[metric].digits, 2),
    )


def _joined(metric: str, points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield stretches of points to be joined; an index at its boundary says too little to draw a line to it."""

    def is_joined(point: Point) -> bool:
        return point.value.estimate is not None and (metric != INDEX or point.value.status == "ok")

    for joined, each in groupby(points, key=is_joined):
        if joined:
            yield list(each)


def vertical(metric: str, values: Sequence[Estimate]) -> tuple[Scale, tuple[float, ...]]:
    """Return an axis that holds all estimates and intervals between round numbers, and its ticks.

    >>> scale, ticks = vertical("refusal_rate", [Estimate(0.22, 0.17, 0.28), Estimate(0.41, 0.35, 0.47)])
    >>> (scale.low, scale.high), ticks
    ((0.0, 0.6), (0.0, 0.2, 0.4, 0.6))
    """
    ends = [end for one in values for end in (one.estimate, one.low, one.high) if end is not None] or [0.0, 1.0]
    low, high = min(0.0, *ends), max(0.0, *ends)
    least = 0.05 * max(-METRICS[metric].low, METRICS[metric].high)
    rounds = (least * factor * 10**power for power in itertools.count() for factor in (1, 2, 4, 10))
    step = next(one for one in rounds if (high - low) / one <= 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = tuple(round(place * step, 10) for place in range(first, last + 1))
    return Scale(ticks[0], ticks[-1]), ticks


def _band(points: Sequence[Point], x: Scale, y: Scale) -> str:
    upper = [(point.step, point.value.high) for point in points]
    lower = [(point.step, point.value.low) for point in reversed(points)]
    return _places([*upper, *lower], x, y)


def _line(points: Sequence[Point], x: Scale, y: Scale) -> str:
    return _places([(point.step, point.value.estimate) for point in points], x, y)


def _places(places: Sequence[tuple[int, float | None]], x: Scale, y: Scale) -> str:
    return " ".join(
        f"{WIDE * x.share(step):.1f},{WIDE * (1 - y.share(value)):.1f}" for step, value in places if value is not None
    )


class PanelSection(Section):
    """Every metric over the steps of a training, at the top of a report."""

    name = "panel"
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")

    def of_page(self, runs: Sequence[RunOnPage], heading: str) -> Iterator[PageSection]:
        """Yield a section for each training of which several steps are among the runs."""
        template = environment(__package__).get_template("panel.html.j2")
        for values in panel_values(runs):
            yield PageSection(values["anchor"], "Steps", template.render(values, heading=heading))


SECTION = PanelSection()
add_sentences(__package__)
