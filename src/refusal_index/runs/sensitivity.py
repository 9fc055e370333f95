"""How the results of a run depend on grading decisions, from Python and for the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refusal_index.data.analysis import Analysis
from refusal_index.data.folder import read_outcomes_of, recorded_in
from refusal_index.errors import checked_path
from refusal_index.findings.labels import read_labels
from refusal_index.findings.run_results import RunResults, runs_of_table
from refusal_index.findings.sensitivity import DecisionOptions, SensitivityAnalysis, decide_otherwise
from refusal_index.findings.tallies import RunSource, source_of
from refusal_index.models.settings import SettingError


def sensitivity(
    run: RunSource,
    labels: str | Path | None = None,
    *,
    grader_error: Sequence[float] = DecisionOptions.errors,
    choices: int | None = None,
    **options: Any,
) -> SensitivityAnalysis:
    """Return the results of a run under other grading decisions, as ``refusal-index sensitivity`` prints them.

    Parameters
    ----------
    run
        A run, its folder, or an outcome table.
    labels
        A file of grades checked by a person: the completed sheet of ``refusal-index audit``.
    grader_error
        Largest error rates of the grader to allow for: right answers graded wrong, and wrong answers graded right.
    choices
        For multiple-choice questions, the number of choices: RI is corrected for guessing among them.
    options
        Fields of `refusal_index.data.analysis.Analysis`, such as ``confidence_level``.

    Returns
    -------
    SensitivityAnalysis
        With ``variants``: for each, every metric as scored and over the scoring rules, and RI for each decision.

    Raises
    ------
    RefusalIndexError
        If the run or the labels cannot be read, or an option is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from refusal_index import evaluate
    >>> run = evaluate("almanac/base", limit=60, variants="high", out=tempfile.mkdtemp())
    >>> ends = sensitivity(run).variants[0].misgrading
    >>> ends.low <= run.refusal_index().estimate <= ends.high
    True
    """
    source = source_of(run, "run")
    if isinstance(source, RunResults):
        outcomes = source.outcomes
        compared = [source]
    else:
        outcomes = read_outcomes_of(source)
        compared = runs_of_table(source, outcomes, *recorded_in(source))
    if isinstance(grader_error, float | int) or len(grader_error) != len(DecisionOptions.errors):
        raise SettingError(f"{{grader_error}}: expected two rates, as in (0.02, 0.03), got {grader_error!r}")
    right, wrong = grader_error
    if not (0 <= right < 1 and 0 <= wrong < 1 and right + wrong < 1):
        raise SettingError(
            f"{{grader_error}}: expected two rates of at least 0 with a sum below 1, got {right:g} and {wrong:g}; are "
            "they percentages?"
        )
    if choices is not None and choices < 2:
        raise SettingError(f"{{choices}}: expected at least 2, got {choices}")
    chosen = DecisionOptions(
        labels=None if labels is None else read_labels(checked_path(labels, "labels"), outcomes),
        errors=(right, wrong),
        choices=choices,
        analysis=Analysis.of_options(options).with_recorded(one.about for one in compared),
        is_deterministic=all(one.is_deterministic for one in compared),
    )
    return SensitivityAnalysis(decide_otherwise(outcomes, chosen), chosen)
