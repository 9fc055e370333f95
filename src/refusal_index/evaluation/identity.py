"""What a run's folder is made of: all settings that tell its replies from others."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from refusal_index.datasets import Dataset
from refusal_index.engines.settings import COMPARABILITY_VERSION, Settings
from refusal_index.outcomes.question import Question
from refusal_index.protocol import GraderKind, PromptSet, grader_prompt_hash, no_gold_prompt_hash

PACKAGES = ("refusal-index", "inspect-ai", "openai", "numpy", "scipy", "polars")


def identity(
    settings: Settings, dataset: Dataset, prompts: PromptSet, graders: tuple[str, ...], sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return all that a reply or a grade depends on; a folder belongs to one such set.

    Parameters
    ----------
    settings, dataset, prompts
        What is asked, and in which words.
    graders
        The rule, the model or the two models that grade.
    sources
        Hashes of functions' own sources, by the name of the function.
    """
    return {
        "model": settings.model,
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "questions": len(dataset.questions),
            "questions_sha256": dataset.questions_sha256,
        },
        "grader": grader_identity(graders, dataset.questions),
        "prompts": {
            "name": prompts.name,
            "sha256": prompts.hash,
            "variants": list(prompts.variants),
            **({"targets": prompts.targets} if prompts.targets else {}),
        },
        "placement": settings.prompting.placement,
        "think": settings.prompting.think or None,
        "decoding": asdict(settings.decoding),
        "seed": settings.seed,
        "comparability_version": comparability_version(graders[0]),
        **({"functions": dict(sources)} if sources else {}),
    }


def comparability_version(grader: str | None) -> int:
    """Return the comparability version of a run with this grader.

    Runs graded by `regex` are one version ahead of all others: their patterns were in the dialect of `re` before.
    """
    return COMPARABILITY_VERSION + (grader == GraderKind.REGEX)


def grader_identity(graders: tuple[str, ...], questions: Iterable[Question]) -> dict[str, Any]:
    """Return who grades, in words that tell graders apart; a prompt's hash where a model is asked."""
    asked = any("/" in name for name in graders)
    return {
        "name": graders[0],
        "second": graders[1] if len(graders) > 1 else None,
        "prompt_sha256": grader_prompt_hash() if asked else None,
        "no_gold_prompt_sha256": no_gold_prompt_hash(questions) if asked else None,
    }


def about(settings: Settings, dataset: Dataset, prompts: PromptSet) -> dict[str, Any]:
    """Return what is worth knowing about how a run was made, and may differ when it is resumed."""
    return {
        "versions": {"python": platform.python_version(), **versions(PACKAGES)},
        **settings.accounts.prices.to_document(),
        "penalty": settings.accounts.penalty,
        "truthfulness_weights": list(settings.accounts.truthfulness_weights),
        "dataset": {"source": dataset.source, "licence": dataset.licence},
        "prompt_set": {name: "\n\n".join(prompts.render(name, "{question}")) for name in (*prompts.variants, "forced")},
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
