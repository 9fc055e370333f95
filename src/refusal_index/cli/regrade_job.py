"""What ``refusal-index regrade`` does once its options are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from refusal_index import __version__
from refusal_index.cli.bad_input import OptionError
from refusal_index.cli.job import RUNS, grader_of, grader_settings
from refusal_index.cli.progress import progress_bar
from refusal_index.cli.results import BEFORE, show_run, write_results
from refusal_index.datasets import Dataset
from refusal_index.engines.inspect.derive import derive
from refusal_index.engines.inspect.derive_forced import is_forced_folder
from refusal_index.engines.inspect.plan import Models, RunPlan
from refusal_index.engines.inspect.progress import watched_by
from refusal_index.engines.inspect.regrade import (
    Replied,
    hash_of_replies,
    pending_regrading,
    read_replies,
    regrade_variants,
    resolve_regrading,
)
from refusal_index.engines.inspect.run import RunFailedError
from refusal_index.engines.inspect.task import Asking
from refusal_index.outcomes.folder import RunFolder, default_run_name
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.price import Prices
from refusal_index.outcomes.summary import is_complete
from refusal_index.outcomes.table import write_outcomes
from refusal_index.protocol import check_gradable


@dataclass(frozen=True)
class RegradeOptions:
    """The options of ``regrade``, as given."""

    run: Path
    grader: str
    out: Path | None
    max_connections: int | None
    max_retries: int
    attempt_timeout: int
    grader_price: str | None


def regrade(options: RegradeOptions, *, as_json: bool) -> bool:
    """Grade the replies of a run anew, print the results, and return whether enough of them is there.

    Raises
    ------
    ValueError
        One of this package's own, if the run, the grader or the folder cannot be used.
    """
    prices = Prices.parse(None, options.grader_price)
    source = RunFolder(options.run)
    before = source.read_settings()
    if is_forced_folder(source):
        raise OptionError(
            f"regrade: expected the folder of a run of both passes, got {options.run}, which holds a forced pass "
            "alone; run 'refusal-index force' with this grader into another folder"
        )
    replied = read_replies(source)
    plan = make_plan(options, before, replied)
    settings = {
        **before,
        "grader": grader_settings(plan),
        "regraded_from": {"grader": before["grader"], "replies_sha256": hash_of_replies(replied)},
    }
    folder = RunFolder(options.out or RUNS / default_run_name(plan.model, f"{plan.dataset.name}-regraded", settings))
    pending = pending_regrading(replied, folder)
    models = resolve_regrading(plan) if pending else None  # a wrong name or key is told before a folder is made
    with folder.lock():
        folder.create_or_resume(settings, about=_about(source, prices))
        if not (folder.path / BEFORE).exists():
            write_outcomes(derive(source).outcomes, folder.path / BEFORE)
        if models:
            try:
                _grade(plan, models, folder, pending, prices)
            except RunFailedError as error:
                typer.echo(f"error: {harmless(str(error))}", err=True)
                return False
        results = write_results(folder, prices)
    show_run(results, as_json=as_json)
    return is_complete(results.summary)


def make_plan(options: RegradeOptions, settings: Mapping[str, Any], replied: Mapping[str, Replied]) -> RunPlan:
    """Check the grader against the questions and return the plan: who grades which questions.

    Raises
    ------
    ValueError
        One of this package's own, if the grader cannot be used.
    """
    kind, graders = grader_of(options.grader)
    known = {question.question_id: question for one in replied.values() for question in one.questions}
    check_gradable(known.values(), kind)
    name, sha256 = settings["dataset"]["name"], settings["dataset"]["sha256"]
    return RunPlan(
        model=settings["model"],
        dataset=Dataset(name, tuple(known.values()), sha256, f"the run in {options.run}", "exact", "that of the run"),
        variants=tuple(replied),
        grader=graders[0],
        second_grader=graders[1],
        asking=Asking(grader=kind, seed=settings["seed"], attempt_timeout=options.attempt_timeout),
        max_connections=options.max_connections,
        max_retries=options.max_retries,
    )


def _about(source: RunFolder, prices: Prices) -> dict[str, Any]:
    """Return what was known of the run, and where it lies; its prices are not those of these graders."""
    regraded = {"from": str(source.path), "version": __version__}
    return {**source.read_about(), **prices.to_document(), "regraded": regraded}


def _grade(plan: RunPlan, models: Models, folder: RunFolder, pending: Mapping[str, Replied], prices: Prices) -> None:
    size = sum(len(one.samples) for one in pending.values())
    with progress_bar(Console(stderr=True), size, prices) as bar, watched_by(bar):
        regrade_variants(plan, models, folder, pending, begin=bar.begin)
