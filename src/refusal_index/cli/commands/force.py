"""``refusal-index force``: the forced pass on the first pass of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE
from refusal_index.cli.shared_options import columns_of, takes_settings, words_of


@takes_settings(
    *("dataset", "data", "grader", "seed", "prompts", "placement", "temperature", "top_p", "max_tokens", "engine"),
    *("max_connections", "max_retries", "attempt_timeout", "retry", "max_requests", "max_cost", "max_time"),
    *("detach", "command", "ray_address", "engine_option", "price", "grader_price", "batch_rate", "penalty"),
    "truthfulness_weights",
    dataset="Dataset that fills in questions and gold answers missing in the file, matched by question id or text: a "
    "name that 'refusal-index ls' prints. [default: own with --data]",
    grader="Grader of the forced answers: 'exact', or a model as PROVIDER/NAME. [default: exact for the almanac, else "
    "openai/gpt-4o-mini]",
    seed="Random seed of every request.",
)
def force(
    file: Path,
    /,
    model: str,
    name: str | None = None,
    format_: str | None = None,
    column: list[str] | None = None,
    map_: list[str] | None = None,
    scorer: str | None = None,
    refusal: str | None = None,
    out: Path | None = None,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Run the forced pass on imported results.

    The first pass and its grades are taken from the file; the model is asked to answer what it refused there, and both
    passes are scored together. Running the same command again resumes and pays for no reply twice.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `file` FILE: File that 'refusal-index import' reads or has written.
    - `model`: Model to ask, as PROVIDER/NAME.
    - `name`: Model in the file whose first pass to use, if there are several.
    - `out`: Folder of the run. [default: runs/NAME, derived from the settings]
    """
    from refusal_index.cli.runs import execute_with_progress, show_run
    from refusal_index.data.imports import ReadOptions
    from refusal_index.render.sentences import sentence
    from refusal_index.runs.execute import execute
    from refusal_index.runs.force import prepare_force
    from refusal_index.runs.settings import Settings

    read = ReadOptions(columns_of(column or []) or {}, scorer, refusal, words=words_of(map_ or []))
    settings = Settings.of(model=model, **values)
    plan = prepare_force(file, settings, name=name, kind=format_, read=read, out=out)
    for caution in plan.cautions:
        console.note(f"warning: {sentence(caution)}")
    run = execute_with_progress(plan, partial(execute, plan))
    if not show_run(run, as_json=json):
        raise typer.Exit(INCOMPLETE)
