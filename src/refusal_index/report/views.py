"""Everything that the page shows of one run, ready for the templates."""

from __future__ import annotations

from dataclasses import dataclass

from refusal_index.report.confidence import ConfidenceView, confidence_view
from refusal_index.report.figures import Mosaic, Plane, mosaics, plane
from refusal_index.report.headline import Headline, headline
from refusal_index.report.runs import Fact, Prompt, ReportRun, facts, prompts
from refusal_index.report.tables import (
    CompletenessRow,
    CostRow,
    DrawsRow,
    MetricRow,
    completeness_rows,
    cost_rows,
    draws_rows,
    metric_rows,
    sensitivity_rows,
)


@dataclass(frozen=True)
class RunView:
    """One run on the page."""

    source: ReportRun  # the run
    anchor: str  # name of its place on the page
    # headline, metrics, mosaics, plane, confidence, sensitivity, draws, completeness, cost, facts, prompts: its parts,
    # in the order of the page; no confidence where it has no scores
    headline: Headline
    metrics: tuple[MetricRow, ...]
    mosaics: tuple[Mosaic, ...]
    plane: Plane | None
    confidence: ConfidenceView | None
    sensitivity: tuple[MetricRow, ...]
    draws: tuple[DrawsRow, ...]
    completeness: tuple[CompletenessRow, ...]
    cost: tuple[CostRow, ...]
    facts: tuple[Fact, ...]
    prompts: tuple[Prompt, ...]

    @property
    def asked(self) -> int:
        """Number of questions asked under any one variant."""
        return max(variant.completeness.asked for variant in self.source.variants)


def run_view(run: ReportRun, number: int) -> RunView:
    """Prepare a run for the page; `number` tells its places from those of other runs."""
    return RunView(
        source=run,
        anchor=f"run-{number}",
        headline=headline(run),
        metrics=metric_rows(run),
        mosaics=mosaics(run, number),
        plane=plane(run),
        confidence=confidence_view(run, f"run-{number}"),
        sensitivity=sensitivity_rows(run),
        draws=draws_rows(run),
        completeness=completeness_rows(run),
        cost=cost_rows(run),
        facts=facts(run),
        prompts=prompts(run),
    )
