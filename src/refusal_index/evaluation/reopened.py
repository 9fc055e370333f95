"""A run as its folder alone tells it: its settings, its words and whom it asks, without the file of its questions.

The store of replies of a run's folder.

What a run's folder is made of: all settings that tell its replies from others.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refusal_index.datasets import Dataset
from refusal_index.engines.settings import COMPARABILITY_VERSION, SettingError, Settings
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.engines.waves.wave import Talk
from refusal_index.evaluation.checks import grader_of
from refusal_index.evaluation.results import procedure_of
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.outcome import Question
from refusal_index.protocol import (
    FORCED,
    Asked,
    Conversation,
    ForcedPass,
    GraderKind,
    Placement,
    Procedure,
    PromptSet,
    Protocol,
    TwoPass,
    grader_prompt_hash,
    load_prompt_set,
    no_gold_prompt_hash,
    prompt_set_names,
)


@dataclass(frozen=True)
class Reopened:
    """A run that was begun before.

    Attributes
    ----------
    folder, settings
        Where it lies, and what was asked; how it is sent is as given now.
    procedures
        What is asked in each variant.
    names
        Whom it asks, the model first.
    """

    folder: RunFolder
    settings: Settings
    procedures: Mapping[str, Procedure]
    names: Mapping[Asked, str]

    def talks(self, store: ReplyStore) -> Iterator[Talk]:
        """Yield the talk about each question, in the order of ids, whatever is put into the store meanwhile."""
        for one in store.each_question():
            conversations = [
                Conversation(one.question, variant, procedure, one.draws[variant])
                for variant, procedure in self.procedures.items()
                if variant in one.draws and (procedure.asks_model or one.said(variant))
            ]
            yield Talk(conversations, one.replies, one.retired)


def reopened(path: Path, settings: Settings, prompts: str | None = None) -> Reopened:
    """Read a run's folder.

    Parameters
    ----------
    path
        The folder.
    settings
        How requests are sent; all else is the run's.
    prompts
        The file of the run's prompt set, where it is none that is shipped.

    Raises
    ------
    RefusalIndexError
        If it is no run's folder, or the prompt set is not that of the run.
    """
    folder = RunFolder(path)
    before = folder.read_complete_settings()
    kind, graders = grader_before(before)
    names = dict(zip((Asked.GRADER, Asked.SECOND_GRADER), graders, strict=False))
    settings = settings_before(before, settings)
    procedure = procedure_of(before)
    if not procedure.asks_model:
        return Reopened(folder, settings, dict.fromkeys(before["prompts"]["variants"], procedure), names)
    chosen = prompts_before(before, prompts, path)
    how = Placement(settings.prompting.placement), settings.prompting.think
    words = {name: Protocol(chosen, name, kind, *how) for name in chosen.variants}
    procedures: dict[str, Procedure] = {name: TwoPass(kind, one) for name, one in words.items()}
    if not procedure.asks_first:
        procedures = {FORCED: ForcedPass(kind, next(iter(words.values())))}
    return Reopened(folder, settings, procedures, {Asked.MODEL: settings.model, **names})


def settings_before(before: Mapping[str, Any], settings: Settings) -> Settings:
    """Return settings with what a run's folder says was asked; nothing else in it is used, such as a command."""
    decoding = {name: value for name, value in before.get("decoding", {}).items() if name in vars(settings.decoding)}
    settings = settings.changed(model=before["model"], seed=before["seed"], **decoding)
    return settings.changed(placement=before.get("placement") or "user", think=before.get("think") or "")


def grader_before(before: Mapping[str, Any]) -> tuple[GraderKind, tuple[str, ...]]:
    """Tell who graded, of a folder's settings: a rule, or models by name."""
    named = before.get("grader") or {"name": str(GraderKind.EXACT)}
    return grader_of(",".join(named[one] for one in ("name", "second") if named.get(one)))


def prompts_before(before: Mapping[str, Any], given: str | None, path: Path) -> PromptSet:
    """Return the prompt set that a run was asked with.

    Raises
    ------
    SettingError
        If it is one of a file that is not given, or is another one.
    """
    name = before["prompts"]["name"]
    if given is None and name not in prompt_set_names():
        raise SettingError(
            f"{{prompts}}: expected the file of the prompt set {name!r}, with which {path} was made, got nothing; it "
            "is none of the package's"
        )
    chosen = load_prompt_set(given or name)
    if chosen.hash != before["prompts"].get("sha256"):
        raise SettingError(
            f"{{prompts}}: expected the prompt set that {path} was asked with, got {chosen.name!r}, whose words differ"
        )
    return chosen


def open_store(folder: RunFolder, *, made: bool = True) -> ReplyStore:
    """Open the replies of a folder; raise StoreError where it lacks those that its outcome table was made of.

    Parameters
    ----------
    folder
        The run's folder.
    made
        Whether to make the file where there is none; else what it would hold is read into memory.
    """
    if folder.outcomes.exists() and not (folder.replies.exists() and folder.replies.stat().st_size):
        raise StoreError(
            f"{folder.replies}: expected the replies that {folder.outcomes.name} was made of, found none; restore the "
            "file, or evaluate into another folder"
        )
    return ReplyStore(folder.replies if made or folder.replies.exists() else None)


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
