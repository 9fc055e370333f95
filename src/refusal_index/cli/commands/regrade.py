"""``refusal-index regrade``: grade the replies of a finished run with another grader."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer

from refusal_index.cli.console import INCOMPLETE
from refusal_index.cli.shared_options import takes_settings


@takes_settings(
    "refusal",
    *("max_connections", "max_retries", "attempt_timeout", "retry", "max_requests", "max_cost", "max_time"),
    *("engine", "detach", "command", "ray_address", "engine_option", "grader_price", "batch_rate"),
    max_cost="Stop before the run costs more than this many dollars; needs --grader-price.",
    grader_price="Dollars per million input and output tokens of a model that grades, as in 0.15,0.6; for two graders, "
    "the price of each. Adds the cost to the results.",
)
def regrade(
    run: Path,
    /,
    grader: str,
    out: Path | None = None,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Grade the replies of a run with another grader.

    Writes a new run and compares its grades with the old ones. The evaluated model is not asked again: an answer that
    is now a refusal has no forced answer and stays unscored. Running the same command again resumes and pays for no
    grade twice.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `run` RUN: Folder of a finished run.
    - `grader`: New grader: 'exact', 'choice' or 'regex', which send nothing; a model as PROVIDER/NAME; or two models
      that must agree, as A,B.
    - `out`: Folder of the new run. [default: runs/NAME, derived from the settings]
    """
    from refusal_index.cli.runs import execute_with_progress, show_run
    from refusal_index.runs.execute import execute
    from refusal_index.runs.regrade import prepare_regrade
    from refusal_index.runs.settings import Settings

    plan = prepare_regrade(run, Settings.of(grader=grader, **values), out=out)
    done = execute_with_progress(plan, partial(execute, plan))
    if not show_run(done, as_json=json):
        raise typer.Exit(INCOMPLETE)
