"""Grading the replies of a finished run anew: graders are asked in a folder of its own, the model is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refusal_index.data.datasets import Dataset
from refusal_index.data.files import replacing
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import default_run_name
from refusal_index.models.requests import to_metadata
from refusal_index.models.settings import SettingError
from refusal_index.protocol import (
    Completion,
    Conversation,
    Pass,
    Procedure,
    Regrading,
    Role,
    check_gradable,
    used_completions,
)
from refusal_index.runs.plan import (
    RUNS,
    Plan,
    checked,
    comparability_version,
    grader_identity,
    grader_of,
    open_store,
    refusal_detector,
)
from refusal_index.runs.results import STILL_TO_COME, UnfinishedError, derive_into, each_asked, procedure_of
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.writing import BEFORE
from refusal_index.version import __version__

NOT_ANSWERED = "not answered in the run that is graded anew: "


@dataclass(frozen=True)
class _Replied:
    """What a model said to a question under a variant, and what kept it from saying all."""

    question: Question
    variant: str
    draws: int
    replies: tuple[Completion, ...]
    error: str | None


def prepare_regrade(run: Path, settings: Settings, *, out: Path | None = None) -> Plan:
    """Plan to have a run's replies graded, and check the grader against its questions.

    Executing the plan writes the results into a new folder.

    Parameters
    ----------
    run
        The folder of a finished run of both passes.
    settings
        The grader, and how it is asked.
    out
        The new folder; without it, one below `runs` that is named after its settings.

    Raises
    ------
    RefusalIndexError
        If the run, the grader or the folder cannot be used.
    """
    source = RunFolder(run)
    before = source.read_complete_settings()
    if "first_pass" in before:
        raise SettingError(
            f"regrade: expected the folder of a run of both passes, got {run}, which holds a forced pass alone; run "
            "'refusal-index force' with this grader into another folder"
        )
    detector = refusal_detector(settings.refusal)  # before the run is read, which may name the same function
    with open_store(source, made=False) as store:
        replied = _finished(store, before["prompts"]["variants"], source, procedure_of(before))
    settings = replace(settings, model=before["model"], seed=before["seed"])
    kind, graders = grader_of(str(settings.grader))
    asked: dict[str, dict[Question, int]] = {}
    for one in replied:
        asked.setdefault(one.variant, {})[one.question] = one.draws
    questions = {one.question.question_id: one.question for one in replied}
    check_gradable(questions.values(), kind)
    made_of = {
        **before,
        "grader": grader_identity(graders or (str(kind),), questions.values(), settings.refusal),
        "comparability_version": comparability_version((graders or (str(kind),))[0]),
        "regraded_from": {"grader": before["grader"], "replies_sha256": _hash(replied)},
    }
    name, sha256 = before["dataset"]["name"], before["dataset"]["sha256"]
    dataset = Dataset(name, tuple(questions.values()), sha256, f"the run in {run}", "exact", "that of the run")
    folder = RunFolder(out or RUNS / default_run_name(settings.model, f"{name}-regraded", made_of))

    def begin() -> None:
        """Copy the replies, and the outcome table under the grader before."""
        if not (folder.path / BEFORE).exists():
            with open_store(source, made=False) as store, replacing(folder.path / BEFORE) as new:
                derive_into(new, source, store)
        with open_store(folder) as store:
            for one in replied:
                store.put(one.replies)
                if one.error is not None:
                    store.record_failure(one.variant, one.question.question_id, f"{NOT_ANSWERED}{one.error}")

    plan = Plan(
        settings,
        dataset,
        graders,
        folder,
        made_of,
        _about(source, settings, run),
        dict.fromkeys(asked, Regrading(kind, detector=detector)),
        asked,
        title=(settings.model, name),
        begin=begin,
    )
    return checked(plan)


def _finished(store: ReplyStore, variants: Iterable[str], source: RunFolder, procedure: Procedure) -> list[_Replied]:
    """Return every question that was asked with the model's replies, at no cost: they were paid for in that run."""
    found = [_replied(*one) for one in each_asked(store, variants, procedure)]
    if not found:
        raise UnfinishedError(f"{source.path}: nothing was asked yet; run the same command again to resume")
    return found


def _replied(conversation: Conversation, said: list[Completion], error: str | None) -> _Replied:
    """Return what was said to a question, in those of its draws that the model was asked to their end, one at least.

    The others stay missing. A question that was answered, and whose grader failed, is graded like any other.
    """
    whole = _draws_replied(conversation, said)
    own = tuple(one for one in _own(conversation, said) if one.draw < whole)
    asked = conversation.question, conversation.variant, conversation.draws
    if any(one.reply.pass_ is Pass.FIRST for one in own):
        return _Replied(*asked, own, None)
    return _Replied(*asked, (), error or STILL_TO_COME)


def _draws_replied(conversation: Conversation, said: Iterable[Completion]) -> int:
    """Return how many draws the model was asked to their end, from the first one on, one at least."""
    there = {(one.reply.pass_, one.draw) for one in said if one.reply.role is Role.MODEL}
    is_forced = conversation.draws > 1 and conversation.question.gold is not None
    needed = (Pass.FIRST, Pass.FORCED) if is_forced else (Pass.FIRST,)
    draws = range(conversation.draws)
    lacking = (draw for draw in draws if any((of, draw) not in there for of in needed))
    return max(next(lacking, conversation.draws), 1)


def _own(conversation: Conversation, said: Iterable[Completion]) -> Iterator[Completion]:
    """Yield the model's replies that an outcome rests on, the first pass before the forced one."""
    own = [one for one in used_completions(conversation, said) if one.reply.role is Role.MODEL]
    for one in sorted(own, key=lambda one: (one.reply.pass_ is Pass.FORCED, one.draw)):
        # its variant's own: that another variant was forced says nothing of what this one was asked
        yield replace(one, variant=conversation.variant, input_tokens=0, output_tokens=0, requests=0)


def _hash(replied: Iterable[_Replied]) -> str:
    """Return the SHA-256 of everything that is to be graded."""
    digest = hashlib.sha256()
    for one in replied:
        entry = [one.variant, one.question.question_id, to_metadata(one.replies), one.error]
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()


def _about(source: RunFolder, settings: Settings, run: Path) -> dict[str, Any]:
    """Return what was known of the run, and where it lies; its prices are not those of these graders."""
    accounts = settings.accounts
    grader_price = accounts.grader_price and vars(accounts.grader_price)
    prices = {"price": None, "grader_price": grader_price, "batch_rate": accounts.batch_rate}
    regraded = {"from": str(run), "version": __version__}
    return {**source.read_about(), **prices, "regraded": regraded}
