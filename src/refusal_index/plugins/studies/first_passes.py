"""First passes alone, sampled for P(Answering) beside a run of both passes of the same model on the same questions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from refusal_index.data.rates import first_draws, never_forced
from refusal_index.findings.run_results import RunResults

Questions = tuple[str, str | None]
"""What identifies a model and the questions that it was asked."""


def asked_of(run: RunResults) -> Questions:
    """Return what identifies the model of a run and its questions: what the run records, else their display names.

    Display names may differ: a configuration needs them to tell the two runs apart.
    """
    settings = run.settings
    model = run.model or run.label
    if "model" in settings:
        effort = (settings.get("decoding") or {}).get("reasoning_effort")
        model = json.dumps([settings["model"], settings.get("named_by_server"), settings.get("think"), effort])
    sha256 = (settings.get("dataset") or {}).get("sha256")
    return model, sha256 or run.dataset


def is_first_pass_alone(run: RunResults) -> bool:
    """Whether no answer of a run was forced because only its first pass was to be run."""
    return bool(run.settings.get("answered_only")) or all(
        never_forced(first_draws(rows)) for rows in run.tables.values()
    )


def without_first_passes(runs: Sequence[RunResults]) -> list[RunResults]:
    """Return the runs without first passes alone for which there is a run of both passes."""
    alone = [is_first_pass_alone(run) for run in runs]
    both = {asked_of(run) for run, is_alone in zip(runs, alone, strict=True) if not is_alone}
    return [run for run, is_alone in zip(runs, alone, strict=True) if not (is_alone and asked_of(run) in both)]
