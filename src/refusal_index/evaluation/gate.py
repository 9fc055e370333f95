"""Gating a release from Python, and writing the verdict for what reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.evaluation.run import Run
from refusal_index.evaluation.stores import open_store
from refusal_index.exporters.junit import to_junit
from refusal_index.exporters.markdown import to_markdown
from refusal_index.outcomes.asked import asked_under
from refusal_index.outcomes.errors import NotWrittenError, OutcomeTableError, RunFolderError, checked_path, listed
from refusal_index.outcomes.files import write_atomically
from refusal_index.outcomes.folder import RunFolder, run_around
from refusal_index.outcomes.gate import GateResult, decide
from refusal_index.outcomes.gate_policy import Policy, PolicyError, read_policy
from refusal_index.outcomes.run_sets import set_members
from refusal_index.outcomes.runs import ComparedRun, read_runs
from refusal_index.redaction import redacted_in

__all__ = ["Policy", "PolicyError", "gate", "write_verdict"]


def gate(
    candidate: Run | str | Path,
    baseline: Run | str | Path | None = None,
    policy: Policy | str | Path | Mapping[str, Any] | None = None,
) -> GateResult:
    """Judge whether a model may take the place of another, or lies within fixed bounds.

    The candidate passes if for every guard it is shown that it is not worse than the baseline by more than a margin:
    by default .1 of the Refusal Index, .05 of the correct rate and of the share of right answers among those given, and
    .1 of the refusal rate. It fails if for any guard it is shown that it is; else the verdict is inconclusive.

    Parameters
    ----------
    candidate, baseline
        Runs, their folders, or outcome tables, of one model and dataset each. Without a baseline the policy needs
        bounds.
    policy
        A `Policy`, a file such as ``gate.toml``, or its content as a dictionary: ``margins``, ``at_least``,
        ``at_most``, ``alpha``, ``max_missing`` and ``variant``.

    Returns
    -------
    GateResult
        With ``verdict``, ``why``, ``guards``, ``changed``, ``more_questions`` and ``to_document()``.

    Raises
    ------
    RefusalIndexError
        If a run cannot be read, the runs share no variant or less than half of the questions of the smaller one, or the
        policy cannot be used.

    References
    ----------
    Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics, 24, 295-300.
    :doi:`10.2307/1267823`

    Examples
    --------
    >>> import tempfile
    >>> asked = {"limit": 40, "variants": "normal", "engine": "local"}
    >>> from refusal_index import evaluate
    >>> runs = [evaluate(f"almanac/{name}", out=tempfile.mkdtemp(), **asked) for name in ("base", "base")]
    >>> gate(*runs).verdict
    'inconclusive'
    """
    other = None if baseline is None else read_one(baseline, "baseline")
    return decide(read_one(candidate, "candidate"), other, policy_of(policy))


def policy_of(given: Policy | str | Path | Mapping[str, Any] | None) -> Policy:
    """Return a policy from whatever stands for one; raises PolicyError if it cannot be used."""
    if given is None or isinstance(given, Policy):
        return given or Policy()
    return Policy.of(given, "policy") if isinstance(given, Mapping) else read_policy(checked_path(given, "policy"))


def write_verdict(found: GateResult, places: Mapping[str, Path]) -> None:
    """Write the verdict in each of some forms, ``json``, ``markdown`` and ``junit``, to its place.

    Raises NotWrittenError if one cannot be written, after the others.
    """
    errors = []
    for form, place in places.items():
        try:
            write_atomically(place, FORMS[form](found))
        except NotWrittenError as error:
            errors.append(error)
    if errors:
        raise _all_of(errors)


def _all_of(errors: Sequence[NotWrittenError]) -> NotWrittenError:
    """Name every file that cannot be written in one error."""
    first, *others = errors
    if not others:
        return first
    advice = f"nor can {listed(one.filename for one in others)}; make room, or choose other places"
    return NotWrittenError(Path(first.filename), first, advice)


def _json(found: GateResult) -> bytes:
    told = json.dumps(redacted_in(found.to_document()), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{told}\n".encode()


FORMS: Mapping[str, Callable[[GateResult], bytes]] = {
    "json": _json,
    "markdown": lambda found: to_markdown(found).encode(),
    "junit": to_junit,
}
"""What a verdict can be written as."""


def read_one(given: Run | str | Path, argument: str) -> ComparedRun:
    """Read the one run that is meant; raises RefusalIndexError if it cannot be read, or is several."""
    place = given.path if isinstance(given, Run) else whole_run(checked_path(given, argument))
    _refuse_several(place, argument)
    found = read_runs([place])
    if len(found) != 1:
        raise OutcomeTableError(
            f"{argument}: expected one model on one dataset, got {len(found)} in {place}: "
            f"{listed(one.label for one in found)}; name one run, or split the table"
        )
    return _with_asked(found[0])


def _refuse_several(place: Path, argument: str) -> None:
    """Raise RunFolderError for a folder of runs: other commands take all of them."""
    runs = [] if (place / "run.json").exists() or set_members(place) else sorted(place.glob("*/run.json"))
    if runs:
        raise RunFolderError(
            f"{argument}: expected the folder of one run, got {place}, which holds {len(runs)}; name one of them, such "
            f"as {runs[0].parent}"
        )


def whole_run(place: Path) -> Path:
    """Return the folder of a run for its outcome table, which does not know what that lacks, nor where it stopped."""
    around = run_around(place)
    return around if around is not None and RunFolder(around).outcomes == place.resolve() else place


def _with_asked(run: ComparedRun) -> ComparedRun:
    """Add what the folder of a run says of how it was made, and how much it was asked, whatever its outcomes hold."""
    if not run.source.is_dir():
        return run
    folder, draws = RunFolder(run.source), {}
    if folder.replies.exists():  # they may stay where they were paid for
        with open_store(folder, made=False) as store:
            draws = store.asked()
    about = folder.read_about()
    asked = {name: asked_under(draws.get(name or "", {}), run.settings, about) for name in run.variants}
    return replace(run, about=about, asked=asked)
