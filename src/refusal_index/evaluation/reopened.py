"""A run as its folder alone tells it: its settings, its words and whom it asks, without the file of its questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.engines.waves.wave import Talk
from refusal_index.evaluation.checks import grader_of
from refusal_index.evaluation.results import procedure_of
from refusal_index.outcomes.folder import RunFolder
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
    load_prompt_set,
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
