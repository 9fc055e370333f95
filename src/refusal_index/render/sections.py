# ruff: noqa: ARG002 - a section without some part ignores its arguments
"""Sections that plugins add to summaries, comparisons and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index import entry_points
from refusal_index.data.folder import ComparedRun, RunFolder
from refusal_index.findings.comparison import CompareOptions, PairComparison
from refusal_index.findings.summary import Summary
from refusal_index.render.format import Block


@dataclass(frozen=True)
class RunOnPage:
    """A run of a report."""

    run: ComparedRun
    summary: Summary
    anchor: str  # id of the element that holds it


@dataclass(frozen=True)
class PageSection:
    """A section of a report, ready to be shown."""

    anchor: str  # id of its element
    link: str  # its name in the navigation bar
    html: str


class Section:
    """Base class of sections. A subclass sets `name`, and overrides the methods for the parts that it adds.

    A plugin registers an instance under ``refusal_index.report_sections``.
    """

    name: str
    """Key of its numbers in `Summary.sections`, in ``summary.json`` and in the JSON of a comparison."""

    style = ""
    """CSS of its HTML."""

    def summarise(self, outcomes: pl.LazyFrame, folder: RunFolder | None, confidence_level: float) -> Any:
        """Return its numbers, as objects that `refusal_index.data.files.plain` turns into JSON; None for no numbers.

        - `outcomes`: an outcome table, in memory or in a file.
        - `folder`: the run's folder; None for the outcome table of a file.
        - `confidence_level`: of every interval.
        """

    def summary_blocks(self, summary: Summary) -> Iterator[Block]:
        """Yield its paragraphs and tables at the end of a summary that has its numbers."""
        yield from ()

    def compare(self, runs: Sequence[ComparedRun], options: CompareOptions) -> Any:
        """Return its numbers of two runs compared; None for no numbers."""

    def comparison_blocks(self, comparison: PairComparison) -> Iterator[Block]:
        """Yield its paragraphs and tables in a comparison of two runs that has its numbers."""
        yield from ()

    def of_run(self, run: RunOnPage) -> Iterator[PageSection]:
        """Yield its sections of one run in the report."""
        yield from ()

    def of_page(self, runs: Sequence[RunOnPage], heading: str) -> Iterator[PageSection]:
        """Yield its sections at the top of a report, about all runs.

        - `heading`: the element of their title, ``"h1"`` or ``"h2"``.
        """
        yield from ()


@cache
def report_sections() -> tuple[Section, ...]:
    """Load the sections of all plugins, those of this package first; raises PluginError if one cannot be loaded."""
    return tuple(entry_points.load(plugin) for plugin in entry_points.installed("report_sections").values())


def with_sections(summary: Summary, outcomes: pl.DataFrame | pl.LazyFrame, source: Path | None = None) -> Summary:
    """Add the numbers of all sections.

    - `summary`: of the outcome table.
    - `outcomes`: the outcome table, in memory or in a file.
    - `source`: the run's folder, or the file of the outcome table.
    """
    folder = RunFolder(source) if source is not None and source.is_dir() else None
    by_name = {
        section.name: section.summarise(outcomes.lazy(), folder, summary.confidence_level)
        for section in report_sections()
    }
    return replace(summary, sections={name: value for name, value in by_name.items() if value is not None})


def compared_sections(runs: Sequence[ComparedRun], options: CompareOptions) -> dict[str, Any]:
    """Return the numbers of all sections of two runs compared, by name."""
    by_name = ((section.name, section.compare(runs, options)) for section in report_sections())
    return {name: value for name, value in by_name if value is not None}
