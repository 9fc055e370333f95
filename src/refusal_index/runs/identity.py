"""What a run depends on: a difference in its identity makes another run."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from refusal_index.data.datasets import Dataset
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import EXAMPLES_ASKED, GRADER_PROMPT, NAMED_BY_SERVER
from refusal_index.models.functions import (
    is_function_name,
    load_function,
    source_sha256,
)
from refusal_index.protocol import (
    GraderPrompt,
    PromptSet,
    default_grader_prompt,
)
from refusal_index.protocol.grading import RULES
from refusal_index.protocol.refusals import (
    MODEL_PREFIX,
)
from refusal_index.protocol.worked_examples import examples_asked
from refusal_index.runs.model_args import model_args_identity
from refusal_index.runs.settings import COMPARABILITY_VERSION, Settings
from refusal_index.runs.stored_questions import ASKED_FOR, asked_for

PACKAGES = ("refusal-index", "inspect-ai", "openai", "numpy", "scipy", "polars")


def identity(
    settings: Settings,
    dataset: Dataset,
    prompts: PromptSet,
    graders: tuple[str, ...],
    grader_prompt: GraderPrompt,
    sources: Mapping[str, str],
) -> dict[str, Any]:
    """Return everything that a reply or a grade depends on; a folder belongs to exactly one identity.

    Parameters
    ----------
    settings, dataset, prompts
        The settings, the questions and the prompts.
    graders, grader_prompt
        The rule, or the one or two models that grade, and what a model is asked.
    sources
        Hashes of the source code of functions, by name.
    """
    return {
        "model": settings.model,
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "questions": len(dataset.questions),
            "questions_sha256": dataset.questions_sha256,
        },
        "grader": grader_identity(graders, grader_prompt, dataset.questions, settings),
        "prompts": {
            "name": prompts.name,
            "sha256": prompts.hash,
            "variants": list(prompts.variants),
            **({"targets": prompts.targets} if prompts.targets else {}),
        },
        **settings.recorded(),
        **model_args_identity(settings),
        "comparability_version": COMPARABILITY_VERSION,
        **({"functions": dict(sources)} if sources else {}),
    }


def grader_identity(
    graders: tuple[str, ...], grader_prompt: GraderPrompt, questions: Iterable[Question], settings: Settings
) -> dict[str, Any]:
    """Return the grader, with the hashes of the prompts of models, and how refusals without a tag are recognised.

    Parameters
    ----------
    graders, grader_prompt
        The rule, or the one or two models or functions that grade, and what a model is asked.
    questions
        The questions.
    settings
        The settings, with `refusal` from `resolved_refusal`.
    """
    refusal = settings.refusal
    reasoning = settings.reasoning
    at_server = settings.servers.grader_base_url is not None
    by_models = uses_models(graders)
    # separate, so that a run whose questions all have a gold answer does not depend on the wording for the others
    lacks_gold = any(question.gold is None for question in questions)
    asks_attempt = (refusal or "").startswith(MODEL_PREFIX)
    return {
        "name": graders[0],
        "second": graders[1] if len(graders) > 1 else None,
        "prompt_sha256": grader_prompt.hash if by_models else None,
        "no_gold_prompt_sha256": grader_prompt.no_gold_hash if by_models and lacks_gold else None,
        **({NAMED_BY_SERVER: True} if at_server and (by_models or asks_attempt) else {}),
        **({"refusal": refusal} if refusal is not None else {}),
        **({"reasoning": reasoning} if reasoning is not None else {}),
        **({"refusal_prompt_sha256": default_grader_prompt().no_gold_hash} if asks_attempt else {}),
    }


PROMPT_HASHES = ("prompt_sha256", "no_gold_prompt_sha256")
"""Hashes of what a grading model is asked about questions with and without a gold answer; null if none is."""


def uses_models(graders: Iterable[str]) -> bool:
    """Whether a model is among the graders."""
    return any(name not in RULES and not is_function_name(name) for name in graders)


def described_graders(graders: Iterable[str], grader_prompt: GraderPrompt) -> dict[str, Any]:
    """Return what is recorded besides the identity of the graders: the wording for models, if there are any."""
    return {GRADER_PROMPT: grader_prompt.to_document()} if uses_models(graders) else {}


def describe_run(settings: Settings, dataset: Dataset, prompts: PromptSet) -> dict[str, Any]:
    """Return facts about how a run was made that may differ when it is resumed."""
    return {
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
        **settings.accounts.prices.to_document(),
        "weighted_score_p": settings.accounts.weighted_score_p,
        "truthfulness_weights": list(settings.accounts.truthfulness_weights),
        "dataset": {
            "source": dataset.source,
            "licence": dataset.licence,
            **({ASKED_FOR: selected} if (selected := asked_for(settings)) else {}),
        },
        **({EXAMPLES_ASKED: asked} if (asked := examples_asked(prompts, dataset.questions)) else {}),
        "prompt_set": {name: "\n\n".join(prompts.render(name, "{question}")) for name in (*prompts.variants, "forced")},
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among these."""
    installed = {}
    for name in packages:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def function_sources(settings: Settings, graders: Sequence[str], objects: Mapping[str, object]) -> dict[str, str]:
    """Return the source hashes of functions by name: an edited function counts as another model."""
    sources = {}
    for name in (settings.model, *graders, *([settings.refusal] if settings.refusal else [])):
        function: Callable[..., Any] | None = objects.get(name)  # type: ignore[assignment]
        if function is None and is_function_name(name):
            function = load_function(name)
        source = source_sha256(function) if callable(function) else None
        if source is not None:
            sources[name] = source
    return sources
