"""Studies from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refusal_index.findings.comparison import CompareOptions
from refusal_index.models.settings import unknown
from refusal_index.plugins.studies.study import STUDY_NAMES, Study, StudyOptions, study_names, study_spec
from refusal_index.runs.gate import compared_runs
from refusal_index.runs.writing import Run


def study(name: str, runs: Sequence[Run | str | Path] | Run, **options: Any) -> Study:
    """Make one table or figure of the paper, or beyond it, of runs.

    Parameters
    ----------
    name
        One of ``refusal-index study``.
    runs
        Runs, their folders, folders of sets, or outcome tables.
    options
        As `refusal_index.plugins.studies.study.StudyOptions` takes them.

    Raises
    ------
    RefusalIndexError
        If there is no such study, or the runs do not allow it.
    """
    if name not in STUDY_NAMES and name not in study_names():
        raise unknown("name", name, study_names())
    return study_spec(name).make(
        compared_runs([runs] if isinstance(runs, Run) else runs, CompareOptions()), StudyOptions(**options)
    )
