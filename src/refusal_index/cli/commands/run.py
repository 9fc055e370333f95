"""``refusal-index run``: the two-pass evaluation, from a model's name to its Refusal Index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from refusal_index.cli.console import INCOMPLETE, OptionError, option
from refusal_index.cli.shared_options import takes_settings

if TYPE_CHECKING:
    from refusal_index.runs.plan import Plan

ONE_MODELS_OWN = ("model", "think", "reasoning_effort", "price")
"""Settings of a single model, which cannot be combined with a file of models."""


@takes_settings()
def run(
    config: str | None = None,
    out: Path | None = None,
    dry_run: bool = False,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Measure a model's Refusal Index.

    Without options, the embedded model answers its own questions under all four prompt variants. Running the same
    command again resumes an interrupted run and pays for no reply twice. With --config, every model of the file answers
    every dataset of the file. Other options then override the file, and --dataset, --data and --column replace its
    datasets.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `config` FILE: Models and datasets to combine: a TOML file, or a name such as paper/all.
    - `out`: Folder of the run. [default: runs/NAME, derived from the settings]
    - `dry_run`: Send nothing; print the requests, tokens and cost to expect. Embedded models do run their first pass.
    """
    from refusal_index.cli.runs import asking, execute_with_progress, show_dry_run, show_run, show_set, tell_notes
    from refusal_index.runs.execute import execute
    from refusal_index.runs.plan import prepare
    from refusal_index.runs.settings import Settings
    from refusal_index.runs.sweep import check_models, prepare_sweep

    if config is None:
        plan = prepare(Settings.of(**values), out=out)
        _refuse_looks([plan], values)
        tell_notes([plan])
        if dry_run:
            show_dry_run([plan], as_json=json)
            return
        found = execute_with_progress(plan, partial(execute, plan))
        complete = show_run(found, as_json=json)
    else:
        for name in ONE_MODELS_OWN:
            if name in values:
                raise OptionError(
                    f"{option(name)}: a configuration sets this for each model; write {name} under [[models]]"
                )
        sweep = prepare_sweep(config, Settings(), values, out, imports=not dry_run)
        _refuse_looks(sweep.plans, values)
        tell_notes(sweep.plans)
        if dry_run:
            show_dry_run(sweep.plans, as_json=json)
            return
        asking(check_models(sweep.plans))
        complete = show_set(sweep, as_json=json)
    if not complete:
        raise typer.Exit(INCOMPLETE)


def _refuse_looks(plans: Sequence[Plan], values: Mapping[str, Any]) -> None:
    """Refuse looks at runs without a goal, which a configuration may set as well."""
    if "looks" in values and all(plan.settings.stopping.half_width is None for plan in plans):
        raise OptionError(
            f"--looks: expected --half-width beside it, got {values['looks']} alone; add the precision at which to "
            "stop, for instance --half-width .05"
        )
