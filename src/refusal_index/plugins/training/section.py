"""The steps of one training: their questions matched, every metric followed over the steps, and shown on one page.

The page has metrics with bands, changes, and what the tests show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.folder import ComparedRun, Match
from refusal_index.findings.comparison import CompareOptions, matched_variants
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.findings.summary import Summary
from refusal_index.plugins.training.steps import MetricOverSteps, Split, metric_over_steps
from refusal_index.render.format import reason_text
from refusal_index.render.report.page import BOX, Scale, environment
from refusal_index.render.sections import PageSection, RunOnPage, Section
from refusal_index.render.sentences import add_sentences, description
from refusal_index.stats import METRIC_NAMES, Estimate, holm
from refusal_index.stats.baseline import Payoffs

TESTED = (REFUSALS, ERRORS, INDEX) = ("refusal_rate", "error_rate", "refusal_index")
"""The metrics of which a change may be told: how cautious a model is, what it knows, and whether the one follows the
other. The others follow from these."""


@dataclass(frozen=True)
class PanelOfSteps:
    """Every metric of one variant over the steps of one training."""

    runs: tuple[ComparedRun, ...]  # in the order of their steps
    variant: str
    match: Match  # which questions it rests on
    metrics: Mapping[str, MetricOverSteps]  # by metric; the index is that of one draw
    pvalues: Mapping[str, float]  # of a change, of the metrics tested, adjusted for their number by Holm's method

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps."""
        return tuple(run.step or 0 for run in self.runs)

    @property
    def headline(self) -> Statement:
        """What changed since when."""
        steps, changed = len(self.runs), [metric for metric in TESTED if self.changed(metric)]
        if not changed:
            unknown = [(metric, n) for metric in TESTED if (n := self._left_out(metric))]
            return Statement("no_change_over_steps", "conclusion", {"steps": steps, "unknown": unknown})
        changes = [self._about(metric) for metric in changed]
        return Statement("changed_over_steps", "conclusion", {"changes": changes, "index": self._about_index()})

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The size of each change, and what may hide where none is shown; then what all of it rests on."""
        level = self.metrics[INDEX].confidence_level
        rests = {"questions": len(self.match.matrix.question_ids), "paired": self.match.paired}
        tests = Statement("tests_over_steps", "scope", {"level": level, **rests})
        return (*map(self._detail, TESTED), tests)

    def _detail(self, metric: str) -> Statement:
        left_out, steps = self._left_out(metric), len(self.runs)
        if self._split(metric) is None:
            values = {"metric": metric, "known": steps - left_out, "steps": steps}
            return Statement("metric_unknown", "serious", values)
        values = {**self._about(metric), "left_out": left_out}
        return Statement("metric_changed" if self.changed(metric) else "metric_not_changed", "conclusion", values)

    def _about(self, metric: str) -> dict[str, Any]:
        """Say where a metric is cut in two, by how much both parts differ, and whether it is the only change."""
        split = self._split(metric)
        step = None if split is None else self.steps[split.row]
        return {"metric": metric, "split": split, "step": step, "once": self.changed_at_once(metric)}

    def _about_index(self) -> str | None:
        """Decide what to say of the index of a model that changed: what one would like to know, or why it is open."""
        if self.changed(INDEX) or not (self.changed(REFUSALS) or self.changed(ERRORS)):
            return None
        is_unknown = self._split(INDEX) is None or (self.changed(REFUSALS) and self._across(INDEX) is None)
        return "unknown" if is_unknown else "not_shown"

    def _left_out(self, metric: str) -> int:
        return len(self.runs) - len(self.metrics[metric].rows)

    def _split(self, metric: str) -> Split | None:
        """Return where a metric is cut in two: at its own change, else where the refusals changed, to compare both."""
        own = self.metrics[metric].change
        return own if self.changed(metric) or not self.changed(REFUSALS) else self._across(metric) or own

    def _across(self, metric: str) -> Split | None:
        """Return the split of a metric where the refusals changed, or at the next step that has the metric."""
        own, change = self.metrics[metric], self.metrics[REFUSALS].change
        parts = zip(own.rows, own.splits, strict=False)  # the last step before a split, and the split
        return next((one for last, one in parts if change and last < change.row <= one.row), None)

    def changed(self, metric: str) -> bool:
        """Whether a metric changed, by more than the choice of questions makes it differ."""
        level = self.metrics[metric].confidence_level
        return metric in self.pvalues and self.pvalues[metric] <= 1 - level

    def changed_at_once(self, metric: str) -> bool:
        """Whether one change is enough to say of a metric that changed: on either side of it no other one is shown."""
        found = self.metrics[metric]
        return found.pvalue_within is None or found.pvalue_within > 1 - found.confidence_level


def steps_of_trainings(runs: Sequence[ComparedRun]) -> tuple[tuple[ComparedRun, ...], ...]:
    """Return the runs of each training of which there are two steps or more, on one dataset, in the order of steps."""
    found: dict[tuple[Path, str | None], list[ComparedRun]] = {}
    for run in runs:
        if run.step is not None:
            found.setdefault((run.source.resolve().parent, run.dataset_id), []).append(run)
    return tuple(tuple(sorted(each, key=lambda run: run.step or 0)) for each in found.values() if len(each) > 1)


def panels_of(runs: Sequence[ComparedRun], options: CompareOptions) -> tuple[PanelOfSteps, ...]:
    """Follow every metric of the variants that all steps share; none where they share none.

    - `runs`: the steps of one training, as `steps_of_trainings` returns them.
    - `options`: its confidence level is that of all intervals of a metric at once, and of all changes together.
    """
    try:
        matches = matched_variants(runs, options.variant)
    except OutcomeTableError:
        return ()
    return tuple(_panel(runs, variant, found, options) for variant, found in matches.items())


def _panel(runs: Sequence[ComparedRun], variant: str, found: Match, options: CompareOptions) -> PanelOfSteps:
    metrics = {
        metric: metric_over_steps(
            *found.matrix.arrays,
            metric=metric,
            penalty=options.penalty,
            truthfulness_weights=options.truthfulness_weights,
            confidence_level=options.confidence_level,
            rng=options.seed,
            **found.matrix.design,
        )
        for metric in METRIC_NAMES
    }
    known = {metric: value for metric in TESTED if (value := metrics[metric].pvalue) is not None}
    adjusted = dict(zip(known, holm(list(known.values())).tolist(), strict=True))
    return PanelOfSteps(tuple(runs), variant, found, metrics, adjusted)


FIRST = (INDEX, "refusal_rate", "error_rate", "correct_given_attempted")
"""The metrics that are seen at once; the others are opened."""


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
    quarters = [steps[0] + (steps[-1] - steps[0]) * part / 4 for part in range(5)]
    shown = {min(steps, key=lambda step: abs(step - quarter)) for quarter in quarters}
    x, y = Scale(steps[0] - room, steps[-1] + room, tuple(sorted(shown))), vertical(metric, over_steps.points)

    def stretches(is_drawn: Callable[[Point], bool]) -> list[list[Point]]:
        found = (list(each) for is_in, each in groupby(points, key=is_drawn) if is_in)
        return [each for each in found if len(each) > 1]

    def ends(each: Sequence[Point], name: str) -> list[tuple[int, float | None]]:
        return [(point.step, getattr(point.value, name)) for point in each]

    banded = stretches(lambda point: point.value.low is not None)
    # An index at its boundary says too little to draw a line to it.
    joined = stretches(
        lambda point: point.value.estimate is not None and (metric != INDEX or point.value.status == "ok")
    )
    change = over_steps.change if metric in TESTED and found.changed(metric) else None
    since = None if change is None else found.steps[change.row]
    return Chart(
        name="Refusal Index" if metric == INDEX else METRICS[metric].label,
        meaning=description(metric, payoffs),
        x=x,
        y=y,
        points=points,
        bands=tuple(_places([*ends(each, "high"), *ends(each, "low")[::-1]], x, y) for each in banded),
        lines=tuple(_places(ends(each, "estimate"), x, y) for each in joined),
        since=since,
        about=since is not None and not found.changed_at_once(metric),
        digits=min(METRICS[metric].digits, 2),
    )


def vertical(metric: str, values: Sequence[Estimate]) -> Scale:
    """Return an axis that holds all estimates and intervals between round numbers.

    >>> vertical("refusal_rate", [Estimate(0.22, 0.17, 0.28), Estimate(0.41, 0.35, 0.47)])
    Scale(low=0.0, high=0.6, ticks=(0.0, 0.2, 0.4, 0.6))
    """
    ends = [end for one in values for end in (one.estimate, one.low, one.high) if end is not None] or [0.0, 1.0]
    low, high = min(0.0, *ends), max(0.0, *ends)
    least = 0.05 * max(-METRICS[metric].low, METRICS[metric].high)
    rounds = (least * factor * 10**power for power in itertools.count() for factor in (1, 2, 4, 10))
    step = next(one for one in rounds if (high - low) / one <= 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = tuple(round(place * step, 10) for place in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def _places(ends: Iterable[tuple[int, float | None]], x: Scale, y: Scale) -> str:
    """Return where steps and their values lie, as SVG takes it."""
    return " ".join(
        f"{BOX * x.share(step):.1f},{BOX * (1 - y.share(value)):.1f}" for step, value in ends if value is not None
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
