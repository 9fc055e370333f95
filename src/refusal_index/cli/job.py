"""From the options of ``refusal-index run`` to a plan, everything checked, and what of it a folder is made of."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast, get_args

from refusal_index.almanac.lengths import context_length, token_counter
from refusal_index.almanac.models import model_names
from refusal_index.cli.bad_input import OptionError, one_of
from refusal_index.datasets import Dataset, load_dataset, sample
from refusal_index.engines.inspect.courier import DEFAULT_GRADER
from refusal_index.engines.inspect.plan import RunPlan
from refusal_index.engines.inspect.task import COMPARABILITY_VERSION, Asking, Decoding, ReasoningEffort
from refusal_index.outcomes.price import Prices
from refusal_index.outcomes.question import Question
from refusal_index.protocol import (
    GraderKind,
    Placement,
    PromptSet,
    check_gradable,
    check_lengths,
    grader_prompt_hash,
    no_gold_prompt_hash,
)

RUNS = Path("runs")
RULES = (str(GraderKind.EXACT), str(GraderKind.CHOICE), str(GraderKind.REGEX))
PARAPHRASES = "+"  # behind a variant's name
ALMANAC_LIMIT = 1000  # a first look in about a minute; --limit 2280 asks all


@dataclass(frozen=True)
class RunOptions:
    """The options of ``run``, as given."""

    model: str
    dataset: str | None
    data: Sequence[Path]
    columns: Mapping[str, str] | None
    variants: str
    limit: int | None
    draws: int
    repeat_questions: int | None
    grader: str | None
    out: Path | None
    seed: int
    prompts: str
    placement: str
    think: str
    reasoning_effort: str | None
    temperature: float
    top_p: float
    max_tokens: int
    max_connections: int | None
    max_retries: int
    attempt_timeout: int
    max_choices: int
    price: str | None
    grader_price: str | None
    penalty: float
    assume_refusal: float | None
    reply_tokens: int | None
    seconds_per_request: float


def make_plan(options: RunOptions, prompts: PromptSet, dataset: Dataset | None = None) -> RunPlan:
    """Check the options against each other and return the plan of the run.

    Parameters
    ----------
    options, prompts
        What is asked, and in which words.
    dataset
        The questions, where they were loaded before.

    Raises
    ------
    ValueError
        One of this package's own, if an option or the dataset cannot be used.
    """
    dataset = dataset or load_questions(options)
    kind, graders = grader_of(
        options.grader or (DEFAULT_GRADER if dataset.default_grader == "model" else dataset.default_grader)
    )
    check_gradable(dataset.questions, kind)
    check_context(options.model, dataset.questions, prompts)
    if options.repeat_questions is not None and options.draws == 1:
        raise OptionError(
            "--repeat-questions: expected --draws of at least 2 beside it, got 1; how often to draw them?"
        )
    placement = Placement(one_of("--placement", options.placement, [str(known) for known in Placement]))
    return RunPlan(
        model=options.model,
        dataset=dataset,
        variants=_variants(options.variants, prompts),
        grader=graders[0],
        second_grader=graders[1],
        draws=options.draws,
        repeat_questions=options.repeat_questions,
        asking=Asking(
            options.prompts,
            kind,
            placement,
            options.seed,
            options.attempt_timeout,
            options.max_choices,
            options.think,
        ),
        decoding=Decoding(
            options.temperature, options.top_p, options.max_tokens, _reasoning_effort(options.reasoning_effort)
        ),
        max_connections=options.max_connections,
        max_retries=options.max_retries,
    )


def grader_of(given: str) -> tuple[GraderKind, tuple[str | None, str | None]]:
    """Tell who grades: a rule, a model, or two models that must agree.

    Raises
    ------
    OptionError
        If it is none of these.
    """
    if given in RULES:
        return GraderKind(given), (None, None)
    models = [name.strip() for name in given.split(",")]
    if len(models) > 2 or len(set(models)) < len(models):
        raise OptionError(f"--grader: expected a rule, a model or two different models as in A,B, got {given!r}")
    for name in models:
        if "/" not in name:
            one_of("--grader", name, [*RULES, DEFAULT_GRADER])
    return (GraderKind.MODEL, (models[0], None)) if len(models) == 1 else (GraderKind.AGREE, (models[0], models[1]))


def grader_settings(plan: RunPlan) -> dict[str, Any]:
    """Return who grades, in words that tell graders apart; a prompt's hash where a model is asked."""
    asked = plan.grader is not None
    return {
        "name": plan.grader or str(plan.asking.grader),
        "second": plan.second_grader,
        "prompt_sha256": grader_prompt_hash() if asked else None,
        "no_gold_prompt_sha256": no_gold_prompt_hash(plan.dataset.questions) if asked else None,
    }


def check_context(model: str, questions: Sequence[Question], prompts: PromptSet) -> None:
    """Raise where a prompt is longer than an embedded model takes; what others take is not known.

    Raises
    ------
    PromptLengthError
        If there is such a question.
    """
    provider, _, name = model.partition("/")
    if provider == "almanac" and name in model_names():
        check_lengths(questions, prompts, context_length(name), token_counter(name))


def _reasoning_effort(given: str | None) -> ReasoningEffort | None:
    if given is None:
        return None
    known = get_args(ReasoningEffort)
    return cast("ReasoningEffort", one_of("--reasoning-effort", given, known))


def settings_of(plan: RunPlan, prompts: PromptSet) -> dict[str, Any]:
    """Return all that a reply or a grade depends on; a folder belongs to one such set.

    The variants are not among them: a run may be extended by another variant, and shares its forced answers.
    """
    return {
        "model": plan.model,
        "dataset": _dataset_settings(plan.dataset),
        "grader": grader_settings(plan),
        "prompts": {"name": prompts.name, "sha256": prompts.hash, "variants": list(prompts.variants)},
        "placement": str(plan.asking.placement),
        "think": plan.asking.think or None,
        "decoding": asdict(plan.decoding),
        "seed": plan.asking.seed,
        "comparability_version": COMPARABILITY_VERSION,
    }


def load_questions(options: RunOptions) -> Dataset:
    """Load the dataset that the options name, and draw the sample of it that they ask for.

    Raises
    ------
    DatasetError
        If it cannot be used.
    """
    name = options.dataset or ("own" if options.data else "almanac")
    dataset = load_dataset(name, data=options.data, columns=options.columns, mix_seed=options.seed)
    limit = ALMANAC_LIMIT if options.limit is None and name == "almanac" else options.limit
    return dataset if limit is None else sample(dataset, limit, options.seed)


def _variants(given: str, prompts: PromptSet) -> tuple[str, ...]:
    known = list(prompts.variants)
    if given == "all":
        return tuple(known)
    chosen = {name for part in given.split(",") if part.strip() for name in _family(part.strip(), prompts)}
    if not chosen:
        raise OptionError(f"--variants: expected 'all' or some of {', '.join(known)}, got {given!r}")
    return tuple(name for name in known if name in chosen)


def _family(given: str, prompts: PromptSet) -> tuple[str, ...]:
    """Return the variant that is named, or with a plus sign behind its name all its paraphrases, too."""
    name = given.removesuffix(PARAPHRASES)
    if given in prompts.variants or name == given:
        return (one_of("--variants", given, list(prompts.variants)),)
    return prompts.family(one_of("--variants", name, list(prompts.variants)))


def _dataset_settings(dataset: Dataset) -> dict[str, Any]:
    """Return what tells these questions from others: the source, and what was read from it and drawn."""
    return {
        "name": dataset.name,
        "sha256": dataset.sha256,
        "questions": len(dataset.questions),
        "questions_sha256": dataset.questions_sha256,
    }


def about(plan: RunPlan, prompts: PromptSet, prices: Prices, penalty: float) -> dict[str, Any]:
    """Return what is worth knowing about how the run was made, and may differ when it is resumed."""
    names = ("refusal-index", "inspect-ai", "openai", "numpy", "scipy", "polars")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in names}},
        **prices.to_document(),
        "penalty": penalty,
        "dataset": {"source": plan.dataset.source, "licence": plan.dataset.licence},
        "prompt_set": {name: "\n\n".join(prompts.render(name, "{question}")) for name in (*prompts.variants, "forced")},
    }
