"""Runs that are steps of one training: their questions matched, and every metric followed over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun, Match
from refusal_index.findings.matching import CompareOptions, matched_variants
from refusal_index.stats import METRIC_NAMES, holm
from refusal_index.stats.steps import MetricOverSteps, metric_over_steps

TESTED = ("refusal_rate", "error_rate", "refusal_index")
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
