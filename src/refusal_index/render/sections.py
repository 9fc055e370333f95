# ruff: noqa: ARG002 - a section without some part ignores its arguments
"""Sections that plugins add to summaries, comparisons and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from refusal_index.data.analysis import Analysis
from refusal_index.data.folder import RunFolder
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Summary
from refusal_index.render.format import Block
from refusal_index.render.run_view import RunView


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

    def summarise(self, outcomes: pl.LazyFrame, folder: RunFolder | None, analysis: Analysis) -> Any:
        """Return its numbers, as objects that `refusal_index.data.files.plain` turns into JSON; None for no numbers.

        - `outcomes`: an outcome table, in memory or in a file.
        - `folder`: the run's folder; None for the outcome table of a file.
        - `analysis`: how to compute them.
        """

    def summary_blocks(self, summary: Summary) -> Iterator[Block]:
        """Yield its paragraphs and tables at the end of a summary that has its numbers."""
        yield from ()

    def compare(self, runs: Sequence[RunResults], analysis: Analysis) -> Any:
        """Return its numbers of two runs compared; None for no numbers."""

    def comparison_blocks(self, comparison: PairComparison) -> Iterator[Block]:
        """Yield its paragraphs and tables in a comparison of two runs that has its numbers."""
        yield from ()

    def of_run(self, run: RunView) -> Iterator[PageSection]:
        """Yield its sections of one run in the report."""
        yield from ()

    def of_page(self, runs: Sequence[RunView], heading: str) -> Iterator[PageSection]:
        """Yield its sections at the top of a report, about all runs.

        - `heading`: the element of their title, ``"h1"`` or ``"h2"``.
        """
        yield from ()
