"""The numbers that plugins add to summaries and comparisons, by the name of their section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from refusal_index import entry_points
from refusal_index.data.folder import RunFolder

if TYPE_CHECKING:
    from refusal_index.findings.summary import Summary


@cache
def registered_sections() -> Mapping[str, Any]:
    """Load the sections of all plugins, by name, those of this package first.

    Each is a `refusal_index.render.sections.Section`. Raises PluginError if one cannot be loaded.
    """
    sections = (entry_points.load(plugin) for plugin in entry_points.installed("report_sections").values())
    return {section.name: section for section in sections}


def with_sections(summary: Summary, outcomes: pl.DataFrame | pl.LazyFrame, source: Path | None = None) -> Summary:
    """Add the numbers of all sections.

    - `summary`: of the outcome table.
    - `outcomes`: the outcome table, in memory or in a file.
    - `source`: the run's folder, or the file of the outcome table.
    """
    folder = RunFolder(source) if source is not None and source.is_dir() else None
    by_name = {
        name: section.summarise(outcomes.lazy(), folder, summary.analysis)
        for name, section in registered_sections().items()
    }
    return replace(summary, sections={name: value for name, value in by_name.items() if value is not None})
