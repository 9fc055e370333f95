"""What one does with finished runs from Python: compare and rank them, draw studies, choose thresholds, export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refusal_index.engines.setting import SettingError, unknown
from refusal_index.evaluation.run import Run
from refusal_index.exporters.registry import export_runs
from refusal_index.outcomes.comparison import CompareOptions
from refusal_index.outcomes.comparison_results import RankedRuns, TwoRuns, compare_two, rank_all
from refusal_index.outcomes.errors import checked_path
from refusal_index.outcomes.runs import ComparedRun, read_runs
from refusal_index.outcomes.threshold import Threshold, ThresholdOptions, find_threshold
from refusal_index.studies.study import Study, StudyOptions


def compare(first: Run | str | Path, second: Run | str | Path, **options: Any) -> TwoRuns:
    """Compare two runs over the same questions, the first minus the second, with every difference's interval.

    Parameters
    ----------
    first, second
        Runs, their folders, or outcome tables.
    options
        As `refusal_index.outcomes.comparison.CompareOptions` takes them.

    Raises
    ------
    RefusalIndexError
        If one of them cannot be read, or they have no variant in common.
    """
    chosen = CompareOptions(**options)
    found = _compared([first, second], chosen)
    if len(found) != 2:
        raise SettingError(f"compare: expected two runs of one model and dataset each, got {len(found)}")
    first_run, second_run = found
    return compare_two(first_run, second_run, chosen)


def rank(runs: Sequence[Run | str | Path], **options: Any) -> RankedRuns:
    """Rank several runs by their Refusal Index, with the ties that their intervals leave; it takes the same options."""
    chosen = CompareOptions(**options)
    found = _compared([runs] if isinstance(runs, Run) else runs, chosen)
    if len(found) < 2:
        raise SettingError(f"rank: expected two runs or more, got {len(found)}")
    return rank_all(found, chosen)


def study(name: str, runs: Sequence[Run | str | Path] | Run, **options: Any) -> Study:
    """Make one table or figure of the paper, or beyond it, of runs.

    Parameters
    ----------
    name
        One of ``refusal-index study``.
    runs
        Runs, their folders, folders of sets, or outcome tables.
    options
        As `refusal_index.studies.study.StudyOptions` takes them.

    Raises
    ------
    RefusalIndexError
        If there is no such study, or the runs do not allow it.
    """
    from refusal_index.studies.study import STUDY_NAMES, study_spec  # noqa: PLC0415 - they draw: long to import

    if name not in STUDY_NAMES:
        raise unknown("name", name, STUDY_NAMES)
    return study_spec(name).make(
        _compared([runs] if isinstance(runs, Run) else runs, CompareOptions()), StudyOptions(**options)
    )


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
        Others that `refusal_index.outcomes.threshold.ThresholdOptions` takes: ``variant``, ``confidence_level``,
        ``seed``.

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
    found = _compared([run], CompareOptions())
    if len(found) != 1:
        raise SettingError(f"threshold: expected a run of one model and dataset, got {len(found)}")
    return find_threshold(found[0], ThresholdOptions(method, penalty=penalty, max_error=max_error, **options))


def export(runs: Run | str | Path | Sequence[Run | str | Path], to: str, out: str | Path | None = None) -> list[str]:
    """Write runs in the format of another tool, or log them in a tracker of experiments.

    Parameters
    ----------
    runs
        Runs, their folders, folders of sets, or outcome tables.
    to
        ``"csv"``, ``"every-eval-ever"``, ``"hf-eval-results"``, ``"mlflow"`` or ``"wandb"``.
    out
        The file or folder to write; a tracker takes none, as its own settings say where it logs.

    Returns
    -------
    list of str
        What was written, a line each.

    Raises
    ------
    RefusalIndexError
        If there is no such target, it cannot take the runs, or these have no results.
    """
    several = [runs] if isinstance(runs, Run | str | Path) else runs
    places = [one.path if isinstance(one, Run) else checked_path(one, "runs") for one in several]
    return export_runs(places, to, None if out is None else checked_path(out, "out"))


def _compared(runs: Sequence[Run | str | Path], options: CompareOptions) -> tuple[ComparedRun, ...]:
    places = [one.path if isinstance(one, Run) else checked_path(one, "runs") for one in runs]
    return read_runs(places, options.sampling)
