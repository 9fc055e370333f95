"""``refusal-index regrade``: the replies of a finished run, graded by another grader."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, INTERRUPTED, tells_bad_input
from refusal_index.cli.shared_options import AttemptTimeout, MaxConnections, MaxRetries, SummaryAsJson


@tells_bad_input
def regrade(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", metavar="RUN")],
    grader: Annotated[
        str,
        typer.Option(
            help="'exact', 'choice', 'regex', a model as PROVIDER/NAME, or two that must agree as A,B. The first three "
            "send nothing."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The new folder. [default: runs/NAME, made of the settings]")] = None,
    max_connections: MaxConnections = None,
    max_retries: MaxRetries = 5,
    attempt_timeout: AttemptTimeout = 60,
    grader_price: Annotated[
        str | None,
        typer.Option(
            help="Dollars per million tokens of a model that grades, in and out, as in 0.15,0.6; of two, for each. "
            "Shows the cost."
        ),
    ] = None,
    json: SummaryAsJson = False,
) -> None:
    """Grade the replies of a run anew and compare the grades with those before.

    The model that was evaluated is not asked: what becomes a refusal and has no forced answer is unscored. The results
    go into a folder of their own. The same command again resumes and pays for no grade twice. Exit status: 0 done,
    1 incomplete or failed, 2 bad input, 130 interrupted.
    """
    try:
        from refusal_index.cli import regrade_job

        options = regrade_job.RegradeOptions(
            run=run,
            grader=grader,
            out=out,
            max_connections=max_connections,
            max_retries=max_retries,
            attempt_timeout=attempt_timeout,
            grader_price=grader_price,
        )
        complete = regrade_job.regrade(options, as_json=json)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command resumes, and pays for no grade twice", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not complete:
        raise typer.Exit(INCOMPLETE)
