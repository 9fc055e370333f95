"""Confidence scores and thresholds from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refusal_index.data.errors import checked_path
from refusal_index.data.folder import RunFolder
from refusal_index.findings.matching import CompareOptions
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.scores import measure, prepare_confidence
from refusal_index.plugins.confidence.threshold import Threshold, ThresholdOptions, find_threshold
from refusal_index.runs.engine import Progress, RunFailedError, unwatched
from refusal_index.runs.gate import compared_runs
from refusal_index.runs.settings import Settings
from refusal_index.runs.writing import Run, run_to_completion

if TYPE_CHECKING:
    import polars as pl


def confidence_scores(
    run: Run | str | Path,
    methods: str | Sequence[str] | None = None,
    *,
    model: Any = None,
    grader: Any = None,
    group: str = "auto",
    layer: int | None = None,
    progress: Progress = unwatched,
    **settings: Any,
) -> pl.DataFrame:
    """Score how likely the answers of a run are right, and return the confidence table of its folder.

    Only what is missing is asked: forced answers where the first pass answered, and the methods' own prompts.

    Parameters
    ----------
    run
        A finished run, or its folder.
    methods
        Their names, as ``refusal-index confidence RUN --list`` prints them; ``["all"]`` for all that the run allows;
        None for those that cost nothing: all of an embedded model, else those that send no further request.
    model, grader
        The run's own, where its folder names a function: the function, or its name once more. Code that a folder names
        is run only if it is named here as well.
    group
        What methods that are trained keep in one fold: ``"cluster"``, the column of that name; ``"entity"``, known of
        the almanac; ``"topic"``; ``"none"``; or ``"auto"``, the first of these that is known.
    layer
        The hidden states that ``p-ik`` reads, 0 before the first layer; None is the middle one.
    progress
        A function that is told every `Event`.
    settings
        How requests are sent: ``engine``, ``max_connections``, ``max_requests`` and the like.

    Returns
    -------
    polars.DataFrame
        A row for each answer and method: ``question_id``, ``method``, ``confidence`` in [0, 1], null where the method
        gave none, ``wrong``, null while the answer has no grade, ``variant``, ``draw``, ``pass`` and ``fold``.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, a method lacks what it needs, or not all could be asked: what was answered is kept.

    Examples
    --------
    >>> import tempfile
    >>> from refusal_index import evaluate
    >>> run = evaluate("almanac/small", limit=5, variants="high", out=tempfile.mkdtemp())
    >>> confidence_scores(run, ["likelihood"]).columns[:4]
    ['question_id', 'method', 'confidence', 'wrong']
    """
    folder = run.path if isinstance(run, Run) else checked_path(run, "run")
    methods = [methods] if isinstance(methods, str) else methods
    names = {role: given for role, given in (("model", model), ("grader", grader)) if isinstance(given, str)}
    objects = _in_memory(RunFolder(folder), model, grader)
    plan = prepare_confidence(
        folder, methods, Settings.of(**settings), **names, objects=objects, group=group, layer=layer
    )
    found = run_to_completion(measure(plan, progress))
    if found.ended is not None:
        raise RunFailedError(f"ended early: {found.ended}; what was answered is kept, and the same call again resumes")
    return found.table


def _in_memory(folder: RunFolder, model: Any, grader: Any) -> dict[str, object]:
    """Return what was handed over, not named, by the names that a run knows it by."""
    kept = {role: one for role, one in (("model", model), ("grader", grader)) if not isinstance(one, str | None)}
    before = folder.read_complete_settings() if kept else {}
    names = {"model": before.get("model"), "grader": (before.get("grader") or {}).get("name")}
    return {str(names[role]): one for role, one in kept.items()}


def threshold(
    run: Run | str | Path,
    method: str | None = None,
    *,
    penalty: float | None = None,
    max_error: float | None = None,
    **options: Any,
) -> Threshold:
    """Choose from which score on to answer, on one half of the questions, and judge it on the other.

    Parameters
    ----------
    run
        A run whose folder holds scores, its folder, or an outcome table with a column ``confidence``.
    method
        Whose scores, as ``refusal-index confidence`` calls them; may be left out where there is one only.
    penalty
        Choose the cut that is worth most, where a wrong answer costs so many right ones.
    max_error
        Choose the cut that answers most with no larger share of the answers wrong; one of the two is given.
    options
        Others that `refusal_index.plugins.confidence.threshold.ThresholdOptions` takes: ``variant``,
        ``confidence_level``, ``seed``.

    Returns
    -------
    Threshold
        With ``found``, the choice; ``points``, what it gives on the other half beside the model's own refusals; and
        ``table``, the outcome table of a run that refuses what scores below. Where no cut does what is asked,
        ``found.status`` is ``"undefined"``, and there is no table.

    Raises
    ------
    RefusalIndexError
        If there are no such scores, or they tell nothing apart.

    References
    ----------
    Angelopoulos et al. (2021). Learn then Test: calibrating predictive algorithms to achieve risk control.
    :arxiv:`2110.01052`. Chow (1970). On optimum recognition error and reject tradeoff. :doi:`10.1109/TIT.1970.1054406`
    """
    found = compared_runs([run], CompareOptions())
    if len(found) != 1:
        raise SettingError(f"threshold: expected a run of one model and dataset, got {len(found)}")
    return find_threshold(found[0], ThresholdOptions(method, penalty=penalty, max_error=max_error, **options))
