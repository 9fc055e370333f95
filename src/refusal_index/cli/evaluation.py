"""Commands that send requests: ``run``, and ``force`` and ``regrade``, which repeat one part of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from refusal_index.cli.console import INCOMPLETE, OptionError, option
from refusal_index.cli.shared_options import OF_GRADING, check_named, columns_of, takes_settings, words_of
from refusal_index.runs.settings import SETTINGS, Settings


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

    Without options, evaluates a small model that comes with the package on questions made for it; this needs no API
    key. Running the same command again resumes an interrupted run and never pays for a reply twice. With --config,
    every model in the file is run on every dataset in it. Other options then override the file, and --dataset, --data
    and --column replace its datasets.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `config` FILE: TOML file of models and datasets, or a built-in configuration such as paper/all.
    - `out`: Output folder. [default: runs/NAME, derived from the settings]
    - `dry_run`: Send nothing; print the expected requests, tokens and cost. Embedded models run their first pass.
    """
    from refusal_index.cli.runs import asking, execute_and_show, print_caveats, print_notes, show_dry_run, show_set
    from refusal_index.runs.plan import prepare
    from refusal_index.runs.sweep import check_models, prepare_sweep

    sweep = None
    if config is None:
        check_named(values)
        plans = [prepare(Settings.from_values(**values), out=out)]
    else:
        for name in values:
            if SETTINGS[name].is_one_models_own:
                raise OptionError(
                    f"{option(name)}: a configuration sets this for each model; write {name} under [[models]]"
                )
        sweep = prepare_sweep(config, values, out, imports=not dry_run)
        plans = list(sweep.plans)
    if "looks" in values and all(plan.settings.stopping.half_width is None for plan in plans):
        raise OptionError(
            "--looks: requires --half-width, which is missing; add the precision at which to "
            "stop, for instance --half-width .05"
        )
    print_notes(plans)
    if dry_run:
        show_dry_run(plans, as_json=json)
        return
    print_caveats(plans)
    if sweep is None:
        execute_and_show(plans[0], as_json=json)
    else:
        asking(check_models(plans))
        if not show_set(sweep, as_json=json):
            raise typer.Exit(INCOMPLETE)


@takes_settings(
    *("dataset", "data", "grader", "seed", "prompts", "placement", "temperature", "top_p", "max_tokens", "engine"),
    *("max_connections", "max_retries", "attempt_timeout", "retry", "max_requests", "max_cost", "max_time"),
    *("detach", "command", "ray_address", "engine_option", "price", "grader_price", "batch_rate", "weighted_score_p"),
    *("header", "extra_body", "model_args", "truthfulness_weights", "grader_prompt", "encoding"),
    *("base_url", "api_key_env", "grader_base_url", "grader_api_key_env"),
    dataset="Dataset that fills in questions and gold answers missing in the file, matched by question id or text: a "
    "name that 'refusal-index ls' prints. [default: own with --data]",
    grader="Grader of the forced answers: 'exact', 'includes', or a model as PROVIDER/NAME. It also grades answers "
    "without a grade in the file. [default: exact for the almanac, else openai/gpt-4o-mini]",
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
    rows: str | None = None,
    scorer: str | None = None,
    refusal: str | None = None,
    same_model: bool = False,
    out: Path | None = None,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Run the forced pass on imported results.

    The first pass and its grades are taken from the file. The model is asked to answer the questions that it refused
    there, and both passes are scored together. Running the same command again resumes and never pays for a reply twice.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `file` FILE: File that 'refusal-index import' reads or has written.
    - `model`: Model to ask, as PROVIDER/NAME.
    - `same_model`: The model is that of the first pass, under another name.
    - `name`: Model in the file whose first pass to use, if the file has several models.
    - `out`: Output folder. [default: runs/NAME, derived from the settings]
    """
    from refusal_index.cli.runs import execute_and_show, graded_with_progress, print_caveats, print_notes
    from refusal_index.data.imports import ReadOptions
    from refusal_index.runs.reuse import prepare_force
    from refusal_index.runs.scoring import FilesToRead

    options = ReadOptions(
        *(columns_of(column), scorer, refusal),
        words=words_of(map_),
        encoding=values.get("encoding", "utf-8"),
        rows=rows,
        grader=values.get("grader"),
    )
    of_grading = {option: values[option] for option in OF_GRADING if option in values}
    options = FilesToRead([file], None, format_, options).with_grades(of_grading, graded_with_progress).options
    settings = Settings.from_values(model=model, **values)
    plan = prepare_force(file, settings, name=name, kind=format_, options=options, out=out, same_model=same_model)
    print_caveats([plan])
    print_notes([plan])
    execute_and_show(plan, as_json=json)


@takes_settings(
    *("grader_prompt", "refusal", "reasoning"),
    *("max_connections", "max_retries", "attempt_timeout", "retry", "max_requests", "max_cost", "max_time"),
    *("engine", "detach", "command", "ray_address", "engine_option", "grader_price", "batch_rate"),
    *("grader_base_url", "grader_api_key_env"),
    reasoning="Regular expression for the model's reasoning, which is not read. Marks such as <think> are known. "
    "[default: that of the run]",
    max_cost="Stop before the run costs more than this many dollars; requires --grader-price.",
    grader_price="Dollars per million input and output tokens of the grading model, as in 0.15,0.6; if there are two, "
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
    """Grade the replies of a run with another grader or --refusal.

    Writes a new run and compares its grades with the old ones. The evaluated model is not asked again: an answer that
    is now a refusal has no forced answer and stays unscored. Running the same command again resumes and never pays for
    a grade twice.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `run` RUN: Folder of a finished run.
    - `grader`: New grader: 'exact', 'includes', 'choice' or 'regex', which send nothing; a model as PROVIDER/NAME; or
      two models that must agree, as A,B.
    - `out`: Folder of the new run. [default: runs/NAME, derived from the settings]
    """
    from refusal_index.cli.runs import execute_and_show, print_caveats
    from refusal_index.runs.reuse import prepare_regrade

    plan = prepare_regrade(run, Settings.from_values(grader=grader, **values), out=out)
    print_caveats([plan])
    execute_and_show(plan, as_json=json)
