"""``refusal-index regrade``: the replies of a finished run, graded by another grader."""

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
    max_cost="End in order before the run costs more dollars than this; needs --grader-price.",
    grader_price="Dollars per million tokens of a model that grades, in and out, as in 0.15,0.6; of two, for each. "
    "Shows the cost.",
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
    """Grade the replies of a run anew.

    The grades are compared with those before. The model that was evaluated is not asked: what becomes a refusal and has
    no forced answer is unscored. The results go into a folder of their own. The same command again resumes and pays for
    no grade twice. Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `run` RUN: The folder of a finished run.
    - `grader`: 'exact', 'choice', 'regex', a model as PROVIDER/NAME, or two that must agree as A,B. The first three
      send nothing.
    - `out`: The new folder. [default: runs/NAME, made of the settings]
    """
    from refusal_index.cli.runs import execute_with_progress, show_run
    from refusal_index.runs.execute import execute
    from refusal_index.runs.regrade import prepare_regrade
    from refusal_index.runs.settings import Settings

    plan = prepare_regrade(run, Settings.of(grader=grader, **values), out=out)
    done = execute_with_progress(plan, partial(execute, plan))
    if not show_run(done, as_json=json):
        raise typer.Exit(INCOMPLETE)
