"""Report section about one training: every metric over the training steps, on the questions that the steps share.

It plots the metrics with bands, marks changes, and states the results of the tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from refusal_index.data.analysis import Analysis
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.matching import Match, matched_variants
from refusal_index.findings.metrics import METRICS, Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Summary
from refusal_index.plugins.training.steps import MetricOverSteps, Split, metric_over_steps
from refusal_index.render.format import reason_text
from refusal_index.render.report.page import BOX, environment
from refusal_index.render.report.scales import Scale
from refusal_index.render.run_view import RunView
from refusal_index.render.sections import PageSection, Section
from refusal_index.render.sentences import add_sentences, description
from refusal_index.stats import METRIC_NAMES, Estimate, holm

TESTED = (REFUSALS, ERRORS, INDEX) = ("refusal_rate", "error_rate", "refusal_index")
"""The metrics that are tested for a change: caution, knowledge, and how strongly the two are correlated.

All other metrics follow from these three.
"""


@dataclass(frozen=True)
class PanelOfSteps:
    """Every metric of one variant over the steps of one training."""

    runs: tuple[RunResults, ...]  # in the order of their steps
    variant: str
    match: Match  # the matched questions
    metrics: Mapping[str, MetricOverSteps]  # by metric; the Refusal Index is that of first draws
    pvalues: Mapping[str, float]  # of a change, by tested metric, Holm-adjusted

    @property
    def steps(self) -> tuple[int, ...]:
        """Training steps of the runs."""
        return tuple(run.step or 0 for run in self.runs)

    @property
    def headline(self) -> Statement:
        """Statement of which metrics changed, and at which step."""
        steps = len(self.runs)
        changed = [metric for metric in TESTED if self.changed(metric)]
        if not changed:
            unknown = [(metric, n) for metric in TESTED if (n := self._left_out(metric))]
            return Statement("no_change_over_steps", "conclusion", {"steps": steps, "unknown": unknown})
        changes = [self._about(metric) for metric in changed]
        return Statement("changed_over_steps", "conclusion", {"changes": changes, "index": self._about_index()})

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Statements of the difference in each tested metric with its interval, and of the basis of the tests."""
        return (
            *map(self._detail, TESTED),
            Statement(
                "tests_over_steps",
                "scope",
                {
                    "level": self.metrics[INDEX].confidence_level,
                    "questions": len(self.match.matrix.question_ids),
                    "paired": self.match.paired,
                },
            ),
        )

    def _detail(self, metric: str) -> Statement:
        left_out = self._left_out(metric)
        steps = len(self.runs)
        if self._split(metric) is None:
            return Statement("metric_unknown", "serious", {"metric": metric, "known": steps - left_out, "steps": steps})
        return Statement(
            "metric_changed" if self.changed(metric) else "metric_not_changed",
            "conclusion",
            {**self._about(metric), "left_out": left_out},
        )

    def _about(self, metric: str) -> dict[str, Any]:
        """Return the split of a metric, its step, and whether it is the only change, as values of a statement."""
        split = self._split(metric)
        step = None if split is None else self.steps[split.row]
        return {"metric": metric, "split": split, "step": step, "once": self.changed_at_once(metric)}

    def _about_index(self) -> str | None:
        """Return what to state about an unchanged Refusal Index if other metrics changed: unknown or not shown."""
        if self.changed(INDEX) or not (self.changed(REFUSALS) or self.changed(ERRORS)):
            return None
        is_unknown = self._split(INDEX) is None or (self.changed(REFUSALS) and self._across(INDEX) is None)
        return "unknown" if is_unknown else "not_shown"

    def _left_out(self, metric: str) -> int:
        return len(self.runs) - len(self.metrics[metric].rows)

    def _split(self, metric: str) -> Split | None:
        """Return the split of a metric at its own change, else at the change of the refusal rate, if there is one."""
        change = self.metrics[metric].change
        return change if self.changed(metric) or not self.changed(REFUSALS) else self._across(metric) or change

    def _across(self, metric: str) -> Split | None:
        """Return the split of a metric at the change of the refusal rate, or at the next step that has the metric."""
        steps = self.metrics[metric]
        change = self.metrics[REFUSALS].change
        parts = zip(steps.rows, steps.splits, strict=False)  # the last step before a split, and the split
        return next((step for last, step in parts if change and last < change.row <= step.row), None)

    def changed(self, metric: str) -> bool:
        """Whether the change of a metric is significant given the sampling of the questions."""
        level = self.metrics[metric].confidence_level
        return metric in self.pvalues and self.pvalues[metric] <= 1 - level

    def changed_at_once(self, metric: str) -> bool:
        """Whether a metric that changed did so in one jump: no further change is significant on either side of it."""
        over_steps = self.metrics[metric]
        return over_steps.pvalue_within is None or over_steps.pvalue_within > 1 - over_steps.confidence_level


def steps_of_trainings(runs: Sequence[RunResults]) -> tuple[tuple[RunResults, ...], ...]:
    """Return the runs of each training with at least two steps on one dataset, in the order of their steps."""
    trainings: dict[tuple[Path, str | None], list[RunResults]] = {}
    for run in runs:
        if run.step is not None:
            trainings.setdefault((run.source.resolve().parent, run.dataset_id), []).append(run)
    return tuple(tuple(sorted(steps, key=lambda run: run.step or 0)) for steps in trainings.values() if len(steps) > 1)


def panels_of(runs: Sequence[RunResults], analysis: Analysis) -> tuple[PanelOfSteps, ...]:
    """Return a panel for each variant that all steps share; empty if they share none.

    - `runs`: the steps of one training, as returned by `steps_of_trainings`.
    - `analysis`: the confidence level holds simultaneously for all intervals of a metric, and for all changes together.
    """
    try:
        matches = matched_variants(runs, analysis.variant)
    except OutcomeTableError:
        return ()
    return tuple(_panel(runs, variant, match, analysis) for variant, match in matches.items())


def _panel(runs: Sequence[RunResults], variant: str, match: Match, analysis: Analysis) -> PanelOfSteps:
    analysis = analysis.with_recorded(run.about for run in runs)
    payoffs = analysis.payoffs
    metrics = {
        metric: metric_over_steps(
            *match.matrix.arrays,
            metric=metric,
            weighted_score_p=payoffs.weighted_score_p,
            truthfulness_weights=payoffs.truthfulness,
            confidence_level=analysis.confidence_level,
            rng=analysis.seed,
            **match.matrix.design,
        )
        for metric in METRIC_NAMES
    }
    pvalues = {metric: value for metric in TESTED if (value := metrics[metric].pvalue) is not None}
    adjusted = dict(zip(pvalues, holm(list(pvalues.values())).tolist(), strict=True))
    return PanelOfSteps(tuple(runs), variant, match, metrics, adjusted)


FIRST = (INDEX, "refusal_rate", "error_rate", "correct_given_attempted")
"""The metrics that are always visible; the others are collapsed."""


@dataclass(frozen=True)
class _Point:
    """One step of one metric."""

    label: str
    step: int
    value: Estimate


def panel_values(runs: Sequence[RunView]) -> Iterator[dict[str, Any]]:
    """Yield the template values for each training with several steps among the runs, and each shared variant."""
    views = {id(view.run): view for view in runs}
    analysis = runs[0].summary.analysis
    panels = [panel for steps in steps_of_trainings([run.run for run in runs]) for panel in panels_of(steps, analysis)]
    for number, panel in enumerate(panels, start=1):
        dataset = panel.runs[0].dataset
        rows = tuple(_rows(panel, [views[id(run)] for run in panel.runs]))
        charts = {metric: _chart(panel, metric, analysis) for metric in panel.metrics}
        # Missing questions may bias the metrics, so they are stated first.
        incomplete = ", ".join(f"step {row['step']:,} ({row['lacks']})" for row in rows if row["lacks"])
        yield {
            "anchor": f"panel-{number}",
            "title": f"{len(panel.runs)} steps{f' on {dataset}' if dataset else ''}, {panel.variant}",
            "headline": panel.headline,
            "incomplete": f"Incomplete; do not rely on these numbers: {incomplete}." if incomplete else "",
            "statements": panel.statements,
            "charts": [charts[metric] for metric in FIRST],
            "more": [chart for metric, chart in charts.items() if metric not in FIRST],
            "rows": rows,
        }


def _rows(panel: PanelOfSteps, runs: Sequence[RunView]) -> Iterator[dict[str, Any]]:
    """Yield the template values of each checkpoint; `cells` are in the order of `FIRST`."""
    scored = panel.match.matrix.scored.sum(axis=1).tolist()
    for row, (run, step) in enumerate(zip(runs, panel.steps, strict=True)):
        yield {
            "anchor": run.anchor,
            "label": run.run.label,
            "step": step,
            "questions": scored[row],
            "cells": [panel.metrics[metric].points[row] for metric in FIRST],
            "lacks": _lacks(run.summary, panel.variant),
        }


def _lacks(summary: Summary, variant: str) -> str | None:
    """Return how many questions and draws of a panel's variant are scored; None if the variant is complete."""
    # Runs with a single variant are compared whatever its name is.
    variant_summary = next((item for item in summary.variants if item.name == variant), summary.variants[0])
    if variant_summary.is_complete:
        return None
    counted = (variant_summary.completeness, "questions"), (variant_summary.further_draws, "repeated samples")
    lacking = (
        f"{completeness.scored:,} of {completeness.asked:,} {label}"
        for completeness, label in counted
        if completeness is not None and completeness.unscored
    )
    return f"{' and '.join(lacking)} scored"


def _chart(panel: PanelOfSteps, metric: str, analysis: Analysis) -> dict[str, Any]:
    """Return the template values of the chart of one metric over the steps.

    `bands` and `lines` are polygons and polylines, one for each run of consecutive steps with intervals or estimates.
    `gap_words` are the reasons why estimates are undefined or at their boundary, each with its steps. `since` is the
    step of the change, if one is shown; it is approximate if `is_gradual`: the metric then changes elsewhere too.
    """
    over_steps = panel.metrics[metric]
    points = tuple(
        _Point(run.label, step, value)
        for run, step, value in zip(panel.runs, panel.steps, over_steps.points, strict=True)
    )
    steps = panel.steps
    margin = (panel.steps[-1] - panel.steps[0]) * 0.03  # keeps the end points inside the plot
    quarters = [steps[0] + (steps[-1] - steps[0]) * part / 4 for part in range(5)]
    shown = {min(steps, key=lambda step: abs(step - quarter)) for quarter in quarters}
    x = Scale(steps[0] - margin, steps[-1] + margin, tuple(sorted(shown)))
    y = vertical(metric, over_steps.points)

    def stretches(is_drawn: Callable[[_Point], bool]) -> list[list[_Point]]:
        groups = (list(group) for is_in, group in itertools.groupby(points, key=is_drawn) if is_in)
        return [group for group in groups if len(group) > 1]

    def ends(stretch: Sequence[_Point], name: str) -> list[tuple[int, float | None]]:
        return [(point.step, getattr(point.value, name)) for point in stretch]

    banded = stretches(lambda point: point.value.low is not None)
    # An index at its boundary is too imprecise to be joined to its neighbours.
    joined = stretches(
        lambda point: point.value.estimate is not None and (metric != INDEX or point.value.status == "ok")
    )
    change = over_steps.change if metric in TESTED and panel.changed(metric) else None
    since = None if change is None else panel.steps[change.row]
    by_reason: dict[str, list[str]] = {}
    for point in points:
        if point.value.status != "ok":
            by_reason.setdefault(reason_text(point.value.reason), []).append(f"{point.step:,}")
    gap_words = (f"{reason} at step{'s' * (len(steps) > 1)} {', '.join(steps)}" for reason, steps in by_reason.items())
    return {
        "name": "Refusal Index" if metric == INDEX else METRICS[metric].label,
        "meaning": description(metric, analysis),
        "x": x,
        "y": y,
        "points": points,
        "bands": [_places([*ends(stretch, "high"), *ends(stretch, "low")[::-1]], x, y) for stretch in banded],
        "lines": [_places(ends(stretch, "estimate"), x, y) for stretch in joined],
        "gap_words": "; ".join(gap_words),
        "since": since,
        "is_gradual": since is not None and not panel.changed_at_once(metric),
        "digits": min(METRICS[metric].digits, 2),
    }


def vertical(metric: str, values: Sequence[Estimate]) -> Scale:
    """Return an axis that covers all estimates and intervals and has round ticks.

    >>> vertical("refusal_rate", [Estimate(0.22, 0.17, 0.28), Estimate(0.41, 0.35, 0.47)])
    Scale(low=0.0, high=0.6, ticks=(0.0, 0.2, 0.4, 0.6))
    """
    ends = [end for value in values for end in (value.estimate, value.low, value.high) if end is not None] or [0.0, 1.0]
    low = min(0.0, *ends)
    high = max(0.0, *ends)
    smallest = 0.05 * max(-METRICS[metric].low, METRICS[metric].high)
    rounds = (smallest * factor * 10**power for power in itertools.count() for factor in (1, 2, 4, 10))
    step = next(size for size in rounds if (high - low) / size <= 4)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = tuple(round(n * step, 10) for n in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def _places(ends: Iterable[tuple[int, float | None]], x: Scale, y: Scale) -> str:
    """Return the SVG coordinates of steps and their values."""
    return " ".join(
        f"{BOX * x.share(step):.1f},{BOX * (1 - y.share(value)):.1f}" for step, value in ends if value is not None
    )


class PanelSection(Section):
    """Every metric over the steps of a training, at the top of a report."""

    name = "panel"
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")

    def of_page(self, runs: Sequence[RunView], heading: str) -> Iterator[PageSection]:
        """Yield a section for each training with several steps among the runs."""
        template = environment(__package__).get_template("panel.html.j2")
        for values in panel_values(runs):
            yield PageSection(values["anchor"], "Steps", template.render(values, heading=heading))


SECTION = PanelSection()
add_sentences(__package__)
