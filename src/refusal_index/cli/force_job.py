"""What ``refusal-index force`` does once its options are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from refusal_index.cli.bad_input import OptionError, one_of
from refusal_index.cli.forced_results import mixture, write_forced_results
from refusal_index.cli.job import RUNS, about, grader_of, settings_of
from refusal_index.cli.progress import progress_bar
from refusal_index.cli.results import show_run
from refusal_index.datasets import Dataset, load_dataset
from refusal_index.datasets.imports import FirstPass, ReadOptions, to_outcomes
from refusal_index.datasets.imports.known import filled_in, has_ids
from refusal_index.datasets.imports.selection import of_one_model, questions_to_force
from refusal_index.engines.first_passes import Imported, import_file
from refusal_index.engines.inspect.derive_forced import first_pass_table
from refusal_index.engines.inspect.forced import run_forced
from refusal_index.engines.inspect.progress import watched_by
from refusal_index.engines.inspect.run import Models, RunFailedError, RunPlan, pending_variants, resolve_models
from refusal_index.engines.inspect.solver import DEFAULT_GRADER
from refusal_index.engines.inspect.task import Asking, Decoding
from refusal_index.outcomes.folder import RunFolder, default_run_name
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.price import Prices
from refusal_index.outcomes.summary import is_complete
from refusal_index.outcomes.table import write_outcomes
from refusal_index.protocol import FORCED, GraderKind, Placement, PromptSet, check_gradable, load_prompt_set


@dataclass(frozen=True)
class ForceOptions:
    """The options of ``force``, as given."""

    file: Path
    model: str
    name: str | None
    kind: str | None
    read: ReadOptions
    dataset: str | None
    data: Sequence[Path]
    grader: str | None
    out: Path | None
    seed: int
    prompts: str
    placement: str
    temperature: float
    top_p: float
    max_tokens: int
    max_connections: int | None
    max_retries: int
    attempt_timeout: int
    price: str | None
    grader_price: str | None
    penalty: float


def force(options: ForceOptions, *, as_json: bool) -> bool:
    """Ask the refused questions, print the results, and return whether enough of them is there.

    Raises
    ------
    ValueError
        One of this package's own, if an option, the file, a model or the folder cannot be used.
    """
    prices = Prices.parse(options.price, options.grader_price)
    imported = import_file(options.file, options.kind, options.read)
    passes = of_one_model(imported.passes, str(options.file), options.name)
    known = _known_questions(options)
    if known is not None:
        by_id = has_ids(imported.file, imported.kind, options.read)
        passes = filled_in(passes, known, by_id=by_id, source=str(options.file))
    plan = make_plan(options, imported, passes, known)
    settings = settings_of_force(plan, imported, passes, known)
    folder = RunFolder(options.out or RUNS / default_run_name(plan.model, f"{plan.dataset.name}-{FORCED}", settings))
    _warn(settings)
    prompts = load_prompt_set(options.prompts)
    pending = pending_variants(plan, folder)
    models = resolve_models(plan) if pending else None  # a wrong name or a missing key is told before a folder is made
    with folder.lock():
        folder.create_or_resume(settings, about=_about_forced(plan, prompts, prices, options.penalty))
        write_outcomes(to_outcomes(passes), first_pass_table(folder))
        if models:
            try:
                _ask(plan, models, folder, prices)
            except RunFailedError as error:
                typer.echo(f"error: {harmless(str(error))}", err=True)
                return False
        results = write_forced_results(folder, prices, penalty=options.penalty)
    show_run(results, as_json=as_json)
    return is_complete(results.summary)


def _known_questions(options: ForceOptions) -> Dataset | None:
    """Return the dataset whose questions fill in those that the file lacks, if one is named."""
    name = options.dataset or ("own" if options.data else None)
    return None if name is None else load_dataset(name, data=options.data, mix_seed=options.seed)


def make_plan(
    options: ForceOptions, imported: Imported, passes: Sequence[FirstPass], known: Dataset | None = None
) -> RunPlan:
    """Check the options and return the plan: the refused questions, in the forced pass."""
    dataset = passes[0].dataset or imported.file.stem
    kind, graders = grader_of(options.grader or _default_grader(dataset, known))
    if kind in {GraderKind.CHOICE, GraderKind.REGEX} and known is None:
        raise OptionError(
            f"--grader: expected exact or a model, got {kind}; imported files hold no choices or patterns: name the "
            "dataset that does (--dataset)"
        )
    questions = questions_to_force(passes, str(options.file))
    check_gradable(questions, kind)
    placement = Placement(one_of("--placement", options.placement, [str(known) for known in Placement]))
    return RunPlan(
        model=options.model,
        dataset=Dataset(
            name=dataset,
            questions=questions,
            sha256=imported.file.sha256,
            source=f"refused questions of {imported.file.path.name}",
            default_grader="model" if kind.models else "exact",
            licence="that of the file",
        ),
        variants=(FORCED,),
        grader=graders[0],
        second_grader=graders[1],
        asking=Asking(options.prompts, kind, placement, options.seed, options.attempt_timeout),
        decoding=Decoding(options.temperature, options.top_p, options.max_tokens),
        max_connections=options.max_connections,
        max_retries=options.max_retries,
    )


def _default_grader(dataset: str, known: Dataset | None) -> str:
    if known is None:
        return str(GraderKind.EXACT) if dataset == "almanac" else DEFAULT_GRADER
    return DEFAULT_GRADER if known.default_grader == "model" else known.default_grader


def settings_of_force(
    plan: RunPlan, imported: Imported, passes: Sequence[FirstPass], known: Dataset | None = None
) -> dict[str, Any]:
    """Return all that the result depends on; a folder belongs to one such set.

    The first pass is taken as it was graded: its file, what was read from it and what filled it in are part of them.
    """
    read = json.dumps([asdict(one) for one in passes])
    return {
        **settings_of(plan, load_prompt_set(plan.asking.prompts)),
        "first_pass": {
            "source": imported.file.path.name,
            "sha256": imported.file.sha256,
            "format": imported.kind,
            "model": passes[0].model,
            "grader": "as imported",
            "answers": len(passes),
            "answers_sha256": hashlib.sha256(read.encode()).hexdigest(),
            **({"filled_in_from": {"name": known.name, "sha256": known.sha256}} if known else {}),
        },
    }


def _about_forced(plan: RunPlan, prompts: PromptSet, prices: Prices, penalty: float) -> dict[str, Any]:
    """Return what is worth knowing about how it was made; of the prompts, the only one that is asked with."""
    known = about(plan, prompts, prices, penalty)
    return {**known, "prompt_set": {FORCED: known["prompt_set"][FORCED]}}


def _warn(settings: dict[str, Any]) -> None:
    """Say before anything is paid for that two models are about to be mixed."""
    for caution in mixture(settings["first_pass"]["model"], settings["model"]):
        typer.echo(f"warning: {harmless(caution.message)}", err=True)


def _ask(plan: RunPlan, models: Models, folder: RunFolder, prices: Prices) -> None:
    with progress_bar(Console(stderr=True), len(plan.dataset.questions), prices) as bar, watched_by(bar):
        bar.begin(FORCED)
        run_forced(plan, models, folder)
