"""``refusal-index run``: the two-pass evaluation, from a model's name to its Refusal Index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, INTERRUPTED, tells_bad_input
from refusal_index.cli.shared_options import (
    AttemptTimeout,
    Data,
    GraderPrice,
    MaxConnections,
    MaxRetries,
    MaxTokens,
    ModelPrice,
    Penalty,
    Placement,
    Prompts,
    SummaryAsJson,
    Temperature,
    TopP,
    columns_of,
)


@tells_bad_input
def run(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Option(help="A matrix of models and datasets: a TOML file, or a name as in paper/all.", metavar="FILE"),
    ] = None,
    model: Annotated[str, typer.Option(help="The model, as PROVIDER/NAME.")] = "almanac/base",
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The questions: a name of 'refusal-index ls', or two as in A+B. [default: almanac, or own with --data]"
        ),
    ] = None,
    data: Data = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Name a column of your own file, as in question=problem; may be repeated."),
    ] = None,
    variants: Annotated[
        str,
        typer.Option(help="Prompt variants, separated by commas, or 'all'; 'normal+' adds the paraphrases of normal."),
    ] = "all",
    limit: Annotated[
        int | None,
        typer.Option(help="Ask a random sample of this many questions. [default: 1000 of the almanac, else all]"),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(help="Ask each question so often; from 2 on, RI is also corrected for the noise of draws.", min=1),
    ] = 1,
    repeat_questions: Annotated[
        int | None,
        typer.Option(help="Ask only this many of the questions more than once. [default: all]", min=2),
    ] = None,
    grader: Annotated[
        str | None,
        typer.Option(
            help="'exact', 'choice', 'regex', a model as PROVIDER/NAME, or two that must agree as A,B. [default: exact "
            "for the almanac, choice for multiple choice, else openai/gpt-4o-mini]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. [default: runs/NAME, made of the settings]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample of questions and of every request.")] = 0,
    prompts: Prompts = "default",
    placement: Placement = "user",
    think: Annotated[
        str, typer.Option(help="A switch that the model knows, as in /no_think; it ends what the model is asked.")
    ] = "",
    reasoning_effort: Annotated[
        str | None, typer.Option(help="For reasoning models: none, minimal, low, medium or high.")
    ] = None,
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    max_tokens: MaxTokens = 4096,
    max_connections: MaxConnections = None,
    max_retries: MaxRetries = 5,
    attempt_timeout: AttemptTimeout = 60,
    max_choices: Annotated[
        int,
        typer.Option(help="Most draws to ask for in one request, where the provider gives several choices.", min=1),
    ] = 100,
    price: ModelPrice = None,
    grader_price: GraderPrice = None,
    penalty: Penalty = 1.0,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Send nothing; say what would be sent. Asks an embedded model for its first passes."
        ),
    ] = False,
    assume_refusal: Annotated[
        float | None,
        typer.Option(
            help="For --dry-run: share of the questions that are refused. [default: as an embedded model does, else "
            "0.5]",
            min=0,
            max=1,
        ),
    ] = None,
    reply_tokens: Annotated[
        int | None, typer.Option(help="For --dry-run: length of a reply. [default: 8 of the almanac, else 50]", min=1)
    ] = None,
    seconds_per_request: Annotated[
        float, typer.Option(help="For --dry-run: how long a request takes, one of --max-connections.", min=0)
    ] = 2.0,
    json: SummaryAsJson = False,
) -> None:
    """Measure a model's Refusal Index.

    Without options the embedded model answers its own questions under all four prompt variants. The same command again
    resumes a run that was interrupted and pays for no reply twice. With --config every model of a file answers every
    dataset of it; other options then go before what the file says, and --dataset, --data and --column take the place of
    its datasets. Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.
    """
    columns = columns_of(column or [])
    try:
        from refusal_index.cli import execution, job, matrix
        from refusal_index.cli.dry_run_show import show_dry_run

        options = job.RunOptions(
            model=model,
            dataset=dataset,
            data=data or [],
            columns=columns,
            variants=variants,
            limit=limit,
            draws=draws,
            repeat_questions=repeat_questions,
            grader=grader,
            out=out,
            seed=seed,
            prompts=prompts,
            placement=placement,
            think=think,
            reasoning_effort=reasoning_effort,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            max_connections=max_connections,
            max_retries=max_retries,
            attempt_timeout=attempt_timeout,
            max_choices=max_choices,
            price=price,
            grader_price=grader_price,
            penalty=penalty,
            assume_refusal=assume_refusal,
            reply_tokens=reply_tokens,
            seconds_per_request=seconds_per_request,
        )
        if config is not None:
            complete = matrix.run_config(config, options, given_options(ctx), dry_run=dry_run, as_json=json)
        elif dry_run:
            complete = show_dry_run([execution.prepare(options)], as_json=json)
        else:
            complete = execution.measure(options, as_json=json)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command resumes, and pays for no reply twice", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not complete:
        raise typer.Exit(INCOMPLETE)


def given_options(ctx: typer.Context) -> frozenset[str]:
    """Return the names of the options that stand on the command line."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
