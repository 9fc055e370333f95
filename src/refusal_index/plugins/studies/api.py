"""The Python API of studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refusal_index.data.analysis import Analysis
from refusal_index.findings.run_results import RunResults
from refusal_index.models.settings import unknown
from refusal_index.plugins.studies.study import STUDY_NAMES, Study, StudyOptions, study_names, study_spec
from refusal_index.runs.gate import compared_runs


def study(name: str, runs: Sequence[RunResults | str | Path] | RunResults, **options: Any) -> Study:
    """Make a study: a table or figure of the given runs, such as those of the paper.

    Parameters
    ----------
    name
        Name of the study, as listed by ``refusal-index study``.
    runs
        Runs, run folders, set folders, or outcome tables.
    options
        ``models``, a table of models in addition to that of the paper; ``without_paper=True`` to leave out the models
        that the paper prints; and fields of `refusal_index.data.analysis.Analysis`.

    Raises
    ------
    RefusalIndexError
        If the study is unknown, or the runs do not meet its requirements.
    """
    if name not in STUDY_NAMES and name not in study_names():
        raise unknown("name", name, study_names())
    models = options.pop("models", None)
    without_paper = options.pop("without_paper", False)
    analysis = Analysis.of_options(options)
    compared = compared_runs([runs] if isinstance(runs, RunResults) else runs, analysis)
    return study_spec(name).make(compared, StudyOptions(analysis, models, without_paper))
