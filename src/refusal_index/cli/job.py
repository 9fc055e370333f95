"""What ``refusal-index run`` does once its options are read."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from refusal_index.cli.bad_input import OptionError, one_of
from refusal_index.cli.progress import progress_bar
from refusal_index.cli.results import is_complete, show_run, write_results
from refusal_index.datasets import Dataset, load_dataset, sample
from refusal_index.engines.inspect.grader import check_grader
from refusal_index.engines.inspect.models import resolve_model
from refusal_index.engines.inspect.progress import watched_by
from refusal_index.engines.inspect.run import RunFailedError, RunPlan, pending_variants, run_variant
from refusal_index.engines.inspect.solver import DEFAULT_GRADER
from refusal_index.engines.inspect.task import COMPARABILITY_VERSION, Asking, Decoding
from refusal_index.outcomes.folder import RunFolder, default_run_name
from refusal_index.outcomes.price import Price
from refusal_index.protocol import GraderKind, Placement, PromptSet, grader_prompt_hash, load_prompt_set

RUNS = Path("runs")
EXACT = str(GraderKind.EXACT)
ALMANAC_LIMIT = 1000  # a first look in about a minute; --limit 2280 asks all


@dataclass(frozen=True)
class Asked:
    """The options of ``run``, as given."""

    model: str
    dataset: str | None
    data: Path | None
    columns: Mapping[str, str]
    variants: str
    limit: int | None
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
    penalty: float


def measure(asked: Asked, *, as_json: bool) -> bool:
    """Run what was asked, print it, and return whether enough of it is there."""
    price = Price.parse(asked.price) if asked.price else None
    prompts = load_prompt_set(asked.prompts)
    plan = make_plan(asked, prompts)
    for name in filter(None, (plan.model, plan.grader)):
        resolve_model(name)  # a wrong name or a missing key is told before a folder is made
    settings = settings_of(plan, prompts)
    folder = RunFolder(asked.out or RUNS / default_run_name(plan.model, plan.dataset.name, settings))
    with folder.lock():
        folder.create_or_resume(settings, about=_about(plan, prompts, price))
        try:
            _run(plan, folder, price, Console(stderr=True))
        except RunFailedError as error:
            typer.echo(f"error: {error}", err=True)
            return False
        results = write_results(folder, price, penalty=asked.penalty)
    show_run(results, as_json=as_json)
    return is_complete(results.summary)


def make_plan(asked: Asked, prompts: PromptSet) -> RunPlan:
    """Check the options against each other and return the plan of the run."""
    dataset = _dataset(asked)
    grader = asked.grader or (EXACT if dataset.default_grader == EXACT else DEFAULT_GRADER)
    kind = GraderKind.EXACT if grader == EXACT else GraderKind.MODEL
    placement = Placement(one_of("--placement", asked.placement, list(Placement)))
    return RunPlan(
        model=asked.model,
        dataset=dataset,
        variants=_variants(asked.variants, prompts),
        grader=None if kind is GraderKind.EXACT else grader,
        asking=Asking(asked.prompts, kind, placement, asked.seed, asked.attempt_timeout),
        decoding=Decoding(asked.temperature, asked.top_p, asked.max_tokens),
        max_connections=asked.max_connections,
        max_retries=asked.max_retries,
    )


def settings_of(plan: RunPlan, prompts: PromptSet) -> dict[str, Any]:
    """Return all that a reply or a grade depends on; a folder belongs to one such set.

    The variants are not among them: a run may be extended by another variant, and shares its forced answers.
    """
    return {
        "model": plan.model,
        "dataset": {"name": plan.dataset.name, "sha256": plan.dataset.sha256, "questions": len(plan.dataset.questions)},
        "grader": {"name": plan.grader or EXACT, "prompt_sha256": grader_prompt_hash() if plan.grader else None},
        "prompts": {"name": prompts.name, "sha256": prompts.hash, "variants": list(prompts.variants)},
        "placement": str(plan.asking.placement),
        "decoding": asdict(plan.decoding),
        "seed": plan.asking.seed,
        "comparability_version": COMPARABILITY_VERSION,
    }


def _run(plan: RunPlan, folder: RunFolder, price: Price | None, console: Console) -> None:
    pending = pending_variants(plan, folder)
    if not pending:
        return
    if plan.grader:
        check_grader(plan.grader)
    size = len(plan.dataset.questions)
    with progress_bar(console, size, len(plan.variants), price) as bar, watched_by(bar):
        bar.skip(size * (len(plan.variants) - len(pending)))
        for variant in pending:
            bar.begin(variant)
            run_variant(plan, folder, variant)


def _dataset(asked: Asked) -> Dataset:
    name = asked.dataset or ("own" if asked.data else "almanac")
    dataset = load_dataset(name, data=asked.data, columns=asked.columns or None)
    limit = ALMANAC_LIMIT if asked.limit is None and name == "almanac" else asked.limit
    return dataset if limit is None else sample(dataset, limit, asked.seed)


def _variants(given: str, prompts: PromptSet) -> tuple[str, ...]:
    known = list(prompts.variants)
    if given == "all":
        return tuple(known)
    chosen = {one_of("--variants", name.strip(), known) for name in given.split(",") if name.strip()}
    if not chosen:
        raise OptionError(f"--variants: expected 'all' or some of {', '.join(known)}, got {given!r}")
    return tuple(name for name in known if name in chosen)


def _about(plan: RunPlan, prompts: PromptSet, price: Price | None) -> dict[str, Any]:
    """Return what is worth knowing about how the run was made, and may differ when it is resumed."""
    names = ("refusal-index", "inspect-ai", "openai", "numpy", "scipy", "polars")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
        "price": price and asdict(price),
        "dataset": {"source": plan.dataset.source, "licence": plan.dataset.licence},
        "prompt_set": {name: "\n\n".join(prompts.render(name, "{question}")) for name in (*prompts.variants, "forced")},
    }
