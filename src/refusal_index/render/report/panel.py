"""The steps of a training on one page: metrics with bands, changes, and what the tests show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.panel import TESTED, PanelOfSteps, panels_of, steps_of_trainings
from refusal_index.render.format import count, listed, reason_text
from refusal_index.render.report.figures import Scale, number, percent
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.sentences import description
from refusal_index.stats import Estimate
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.steps import Split

REFUSALS, ERRORS, INDEX = TESTED

CHANGES = {
    REFUSALS: ("it refuses more", "it refuses less"),
    ERRORS: ("it knows less", "it knows more"),
    INDEX: ("its refusals follow its knowledge more closely", "its refusals follow its knowledge less closely"),
}
"""What is said of a metric that rose, and of one that fell."""

SUBJECTS = {
    REFUSALS: "how often it refuses",
    ERRORS: "how often it is wrong when it must answer",
    INDEX: "how closely its refusals follow its knowledge",
}


def headline(found: PanelOfSteps) -> str:
    """Say in one sentence what changed since when."""
    changed = [metric for metric in TESTED if found.changed(metric)]
    if not changed:
        return f"No change is shown over these {len(found.runs)} steps{_but(found)}."
    said = listed([_change(found, metric) for metric in changed])
    return f"{said[0].upper()}{said[1:]}{_no_better(found)}."


def details(found: PanelOfSteps, level: str) -> Iterator[str]:
    """Give the size of each change, and what may hide where none is shown; then what all of it rests on."""
    for metric in TESTED:
        yield _detail(found, metric)
    share = percent(1 - found.metrics[INDEX].confidence_level, 0)
    yield (
        "All splits and all three of these are held against chance together: where nothing changed, the chance of "
        f"saying any of it is at most {share}. The {level} bands hold for all steps of a metric at once. "
        f"{_rests_on(found)}"
    )


def _detail(found: PanelOfSteps, metric: str) -> str:
    split, steps = _split(found, metric), len(found.runs)
    left_out = _left_out(found, metric)
    if split is None:
        return f"Nothing can be said of {SUBJECTS[metric]}: {steps - left_out} of {steps} steps have an interval of it."
    without = f" Left out: {count(left_out, 'step')} without an interval." if left_out else ""
    since = f"step {_step(found, split)}"
    if found.changed(metric):
        means = (
            f"{_value(metric, split.before)} on average before {since} and {_value(metric, split.after)} from there on"
        )
        more = "" if found.changed_at_once(metric) else " It changes before or after that too: this is no single jump."
        return f"{_name(metric)} is {means}: {_by(metric, split)}.{more}{without}"
    by = f"from {since} on it differs by {_by(metric, split)} on average"
    return f"No change is shown in {SUBJECTS[metric]}: {by}.{without}"


def _change(found: PanelOfSteps, metric: str) -> str:
    split = found.metrics[metric].change
    if split is None:  # what is not known did not change
        return ""
    rose, fell = CHANGES[metric]
    about = "" if found.changed_at_once(metric) else "about "
    return f"{rose if split.estimate > 0 else fell} since {about}step {_step(found, split)}"


def _no_better(found: PanelOfSteps) -> str:
    """Say of a model that changed that its index is not shown to have, which is what one would like to know."""
    if found.changed(INDEX) or not (found.changed(REFUSALS) or found.changed(ERRORS)):
        return ""
    if _split(found, INDEX) is None or (found.changed(REFUSALS) and _across(found, INDEX) is None):
        return "; whether it knows better what it does not know cannot be said"
    return "; that it knows better, or worse, what it does not know is not shown"


def _but(found: PanelOfSteps) -> str:
    """Say what a sentence on all steps does not hold for."""
    steps, left_out = len(found.runs), {metric: _left_out(found, metric) for metric in TESTED}
    said = [
        f"{SUBJECTS[metric]} at {'any' if number == steps else f'{number:,}'}"
        for metric, number in left_out.items()
        if number
    ]
    return f", but nothing can be said of {listed(said)} of them" if said else ""


def _left_out(found: PanelOfSteps, metric: str) -> int:
    return len(found.runs) - len(found.metrics[metric].rows)


def _split(found: PanelOfSteps, metric: str) -> Split | None:
    """Return where a metric is cut in two: at its own change, else where the refusals changed, so that both compare."""
    own = found.metrics[metric].change
    return own if found.changed(metric) or not found.changed(REFUSALS) else _across(found, metric) or own


def _across(found: PanelOfSteps, metric: str) -> Split | None:
    """Return the split of a metric at which the refusals changed, or at the first step after it that has the metric."""
    own, change = found.metrics[metric], found.metrics[REFUSALS].change
    parts = zip(own.rows, own.splits, strict=False)  # the last step before a split, and the split
    return next((one for last, one in parts if change and last < change.row <= one.row), None)


def _step(found: PanelOfSteps, split: Split) -> str:
    return f"{found.steps[split.row]:,}"


def _name(metric: str) -> str:
    return {REFUSALS: "The refusal rate", ERRORS: "The error rate", INDEX: "The index"}[metric]


def _value(metric: str, value: float) -> str:
    return number(value, 2) if metric == INDEX else percent(value, 0)


def _by(metric: str, split: Split) -> str:
    if metric == INDEX:
        return f"{_signed(split.estimate)} ({_signed(split.low)} to {_signed(split.high)})"
    low, high = (f"{_signed(100 * end, 0)}" for end in (split.low, split.high))
    return f"{_signed(100 * split.estimate, 0)} points ({low} to {high})"


def _signed(value: float, digits: int = 2) -> str:
    shown = number(value, digits)
    return f"+{shown}" if value > 0 and float(shown) != 0 else shown


def _rests_on(found: PanelOfSteps) -> str:
    questions = count(len(found.match.matrix.question_ids), "question")
    if not found.match.paired:
        return f"The steps were not all asked the same of these {questions}, which makes differences less certain."
    return (
        f"All steps are compared on the same {questions}; that another training would have gone the same way, no "
        "single one can show."
    )


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

    @property
    def description(self) -> str:
        """The picture in words."""
        known = [point.value.estimate for point in self.points if point.value.estimate is not None]
        if not known:
            return f"{self.name} over steps: undefined throughout"
        first, last = (f"{value:.{self.digits}f}" for value in (known[0], known[-1]))
        return f"{self.name} over steps, from {first} to {last}"


@dataclass(frozen=True)
class Row:
    """One checkpoint."""

    anchor: str
    label: str
    step: int
    questions: int
    cells: tuple[Estimate, ...]  # in the order of `FIRST`
    lacks: str | None  # how many of its own questions and draws are scored, where too many are not


@dataclass(frozen=True)
class PanelView:
    """The steps of one training under one variant."""

    anchor: str
    title: str
    verdict: str
    details: tuple[str, ...]
    charts: tuple[Chart, ...]  # those of `FIRST`
    more: tuple[Chart, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def panel_views(runs: Sequence[ReportRun], anchors: Sequence[str]) -> tuple[PanelView, ...]:
    """Make a panel of each training of which several steps are among the runs, for each variant that they share."""
    places = {id(run.run): (run, anchor) for run, anchor in zip(runs, anchors, strict=True)}
    summary = runs[0].summary
    options = CompareOptions(
        penalty=summary.penalty,
        truthfulness_weights=summary.truthfulness_weights,
        confidence_level=summary.confidence_level,
    )
    found = [one for steps in steps_of_trainings([run.run for run in runs]) for one in panels_of(steps, options)]
    return tuple(
        _view(one, [places[id(run)] for run in one.runs], f"panel-{place}", runs[0].level)
        for place, one in enumerate(found, start=1)
    )


def _view(found: PanelOfSteps, runs: Sequence[tuple[ReportRun, str]], anchor: str, level: str) -> PanelView:
    summary = runs[0][0].summary
    payoffs = Payoffs(summary.penalty, summary.truthfulness_weights)
    charts = {metric: _chart(found, metric, payoffs) for metric in found.metrics}
    dataset, rows = found.runs[0].dataset, tuple(_rows(found, runs))
    return PanelView(
        anchor,
        f"{len(found.runs)} steps{f' on {dataset}' if dataset else ''}, {found.variant}",
        headline(found),
        (*_incomplete(rows), *details(found, level)),
        tuple(charts[metric] for metric in FIRST),
        tuple(chart for metric, chart in charts.items() if metric not in FIRST),
        tuple(charts[metric].name for metric in FIRST),
        rows,
    )


def _rows(found: PanelOfSteps, runs: Sequence[tuple[ReportRun, str]]) -> Iterator[Row]:
    scored = found.match.matrix.scored.sum(axis=1).tolist()
    for row, ((run, anchor), step) in enumerate(zip(runs, found.steps, strict=True)):
        cells = tuple(found.metrics[metric].points[row] for metric in FIRST)
        yield Row(anchor, run.run.label, step, scored[row], cells, _lacks(run, found.variant))


def _lacks(run: ReportRun, variant: str) -> str | None:
    """Return how many questions or draws of the variant that a panel is of are scored, where too many are not."""
    named = zip(run.names, run.variants, strict=True)
    # Steps of one variant each are compared whatever it is called.
    own = next((one for name, one in named if name == variant), run.variants[0])
    if own.is_complete:
        return None
    counted = (own.completeness, "questions"), (own.further_draws, "further draws")
    lacking = (f"{of.scored:,} of {of.asked:,} {what}" for of, what in counted if of is not None and of.unscored)
    return f"{' and '.join(lacking)} scored"


def _incomplete(rows: Sequence[Row]) -> Iterator[str]:
    """Say first which steps lack too many of their questions: what is missing may be no matter of chance."""
    lacking = [f"step {row.step:,} ({row.lacks})" for row in rows if row.lacks]
    if lacking:
        yield f"Incomplete, and not to be taken as sound: {', '.join(lacking)}."


def _chart(found: PanelOfSteps, metric: str, payoffs: Payoffs) -> Chart:
    over_steps = found.metrics[metric]
    points = tuple(
        Point(run.label, step, value)
        for run, step, value in zip(found.runs, found.steps, over_steps.points, strict=True)
    )
    x, (y, ticks) = _horizontal(found.steps), vertical(metric, over_steps.points)
    stretches = [list(each) for known, each in groupby(points, key=lambda point: point.value.low is not None) if known]
    change = over_steps.change if metric in TESTED and found.changed(metric) else None
    since = None if change is None else found.steps[change.row]
    return Chart(
        name="Refusal Index" if metric == INDEX else METRICS[metric].label,
        meaning=description(metric, payoffs),
        x=x,
        y=y,
        ticks=ticks,
        steps=_named(found.steps),
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


def _horizontal(steps: Sequence[int]) -> Scale:
    """Return the axis of the steps, with room for a point at either end."""
    room = (steps[-1] - steps[0]) * 0.03
    return Scale(steps[0] - room, steps[-1] + room)


def _named(steps: Sequence[int]) -> tuple[int, ...]:
    """Choose the steps that the axis names: the ends, and those of about the same distance between them."""
    wanted = [steps[0] + (steps[-1] - steps[0]) * part / 4 for part in range(5)]
    return tuple(sorted({min(steps, key=lambda step: abs(step - want)) for want in wanted}))


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
