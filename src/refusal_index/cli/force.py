"""``refusal-index force``: the second pass on somebody else's first pass."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, INTERRUPTED, tells_bad_input
from refusal_index.cli.shared_options import (
    AttemptTimeout,
    Data,
    FirstPassColumn,
    Format,
    GraderPrice,
    MaxConnections,
    MaxRetries,
    MaxTokens,
    ModelPrice,
    Penalty,
    Placement,
    Prompts,
    Refusal,
    Scorer,
    SummaryAsJson,
    Temperature,
    TopP,
)


@tells_bad_input
def force(
    file: Annotated[Path, typer.Argument(help="A file that 'import' reads, or one that it wrote.", metavar="FILE")],
    model: Annotated[str, typer.Option(help="The model to ask, as PROVIDER/NAME.")],
    name: Annotated[
        str | None, typer.Option(help="The model in the file whose first pass it is, where there are several.")
    ] = None,
    format_: Format = None,
    column: FirstPassColumn = None,
    scorer: Scorer = None,
    refusal: Refusal = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A name of 'refusal-index ls': whose questions and gold answers fill in those that the file lacks, "
            "found by question id or text. [default: own with --data]"
        ),
    ] = None,
    data: Data = None,
    grader: Annotated[
        str | None,
        typer.Option(
            help="Of the forced answers: 'exact', or a model as PROVIDER/NAME. [default: exact for the almanac, else "
            "openai/gpt-4o-mini]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. [default: runs/NAME, made of the settings]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every request.")] = 0,
    prompts: Prompts = "default",
    placement: Placement = "user",
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    max_tokens: MaxTokens = 4096,
    max_connections: MaxConnections = None,
    max_retries: MaxRetries = 5,
    attempt_timeout: AttemptTimeout = 60,
    price: ModelPrice = None,
    grader_price: GraderPrice = None,
    penalty: Penalty = 1.0,
    json: SummaryAsJson = False,
) -> None:
    """Ask a model what the first pass in a file refused, and score both passes together.

    The first pass and its grades are taken as they are. The same command again resumes and pays for no reply twice.
    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.
    """
    from refusal_index.cli.shared_options import columns_of
    from refusal_index.datasets.imports import ReadOptions

    read = ReadOptions(columns_of(column or []) or {}, scorer, refusal)
    try:
        from refusal_index.cli import force_job

        options = force_job.ForceOptions(
            file=file,
            model=model,
            name=name,
            kind=format_,
            read=read,
            dataset=dataset,
            data=data or [],
            grader=grader,
            out=out,
            seed=seed,
            prompts=prompts,
            placement=placement,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            max_connections=max_connections,
            max_retries=max_retries,
            attempt_timeout=attempt_timeout,
            price=price,
            grader_price=grader_price,
            penalty=penalty,
        )
        complete = force_job.force(options, as_json=json)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command resumes, and pays for no reply twice", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not complete:
        raise typer.Exit(INCOMPLETE)
