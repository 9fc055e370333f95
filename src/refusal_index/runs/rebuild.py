"""The results of a run derived again from its replies, without sending requests."""

from __future__ import annotations

from pathlib import Path

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import refusal_setting
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.run_results import RunResults
from refusal_index.runs.made_with import detector_before
from refusal_index.runs.settings import COMPARABILITY_VERSION
from refusal_index.runs.store import open_store
from refusal_index.runs.writing import write_results


class ComparabilityError(RefusalIndexError, ValueError):
    """Raised for a run that was graded under the rules of another release."""


def rebuild(
    path: Path,
    analysis: Analysis = DEFAULT_ANALYSIS,
    *,
    regrade: bool = False,
    refusal: str | None = None,
) -> RunResults:
    """Derive a run's results again from its replies, without sending requests.

    Parameters
    ----------
    path
        The folder.
    analysis
        How to compute its metrics.
    regrade
        Whether to apply this release's grading rules to a folder made under others.
    refusal
        The function by which the run recognises refusals: it is called only if it is named here, too.

    Raises
    ------
    ComparabilityError
        If the folder has another comparability version; its results are kept.
    RefusalIndexError
        If the folder is not a run's, or has no results yet.
    """
    folder = RunFolder(path)
    # Settings are read before locking, which would create a missing folder.
    if not regrade:
        check_comparable(folder)
    settings = folder.read_settings()
    detector = detector_before(settings, refusal, {})
    is_regraded = settings.get("comparability_version", COMPARABILITY_VERSION) != COMPARABILITY_VERSION
    with folder.lock():
        if is_regraded:
            recorded = refusal_setting(settings)
            graded = {} if recorded is None else {"grader": {**(settings.get("grader") or {}), "refusal": recorded}}
            folder.change_settings({"comparability_version": COMPARABILITY_VERSION, **graded})
        with open_store(folder) as store:
            return write_results(folder, store, analysis=analysis, is_regraded=is_regraded, detector=detector)


def check_comparable(folder: RunFolder) -> None:
    """Raise ComparabilityError if a folder was graded under other rules than this release's."""
    made = folder.read_settings().get("comparability_version", COMPARABILITY_VERSION)
    if made != COMPARABILITY_VERSION:
        raise ComparabilityError(
            f"{folder.path} was made under comparability version {made}, and this release grades by version "
            f"{COMPARABILITY_VERSION}: its results are kept as they are"
        )
