"""Runs that are steps of one training: their questions matched, and every metric followed over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun, Match
from refusal_index.findings.matching import CompareOptions, matched_variants
from refusal_index.findings.statement import Statement
from refusal_index.plugins.training.steps import MetricOverSteps, Split, metric_over_steps
from refusal_index.stats import METRIC_NAMES, holm

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
            return Statement("metric_unknown", "grave", values)
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
