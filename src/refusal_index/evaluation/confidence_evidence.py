"""What methods of confidence make scores of: the replies of a run, and those that were asked for beside it.

The hidden states of a run's questions before the answer: computed once, and kept in the run's folder.

Which questions of a run lie in one fold of a method that is trained, and whether there are answers enough.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.almanac import ALMANAC
from refusal_index.confidence.folds import shortage
from refusal_index.confidence.method import Answer
from refusal_index.datasets.almanac import entity_of
from refusal_index.engines.asks import ask_for
from refusal_index.engines.settings import SettingError, Settings
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.outcomes.errors import suggestion
from refusal_index.outcomes.files import read_plain, sha256_of, write_atomically
from refusal_index.outcomes.outcome import Outcome, Question
from refusal_index.protocol import (
    FORCED,
    Asked,
    Completion,
    Conversation,
    Due,
    ForcedPass,
    GraderKind,
    Message,
    Pass,
    Procedure,
    Reply,
    Step,
    read_logprobs,
    read_reply,
)

OWN = "confidence"
"""In a run's folder: what confidence asked for."""

DRAWN_AGAIN = (pl.col("draw") > 0) & pl.col("first_reply").is_not_null()
"""Whether a row of a run's outcome table is a further draw that was replied to."""


@dataclass(frozen=True)
class Sources:
    """Where replies lie: those of the run, and those that confidence asked for.

    Attributes
    ----------
    run, own
        The stores.
    grader
        Who grades the answers.
    """

    run: ReplyStore
    own: ReplyStore
    grader: GraderKind

    def forced(self, question: Question) -> dict[int, Answer]:
        """Return the run's forced answers to a question, by draw."""
        return self._answers(self.run, question)

    def answer(self, question: Question) -> Answer | None:
        """Return the forced answer that is scored: one that was asked for beside the run goes before the run's."""
        own = self._answers(self.own, question).get(0)
        return own if own is not None else self.forced(question).get(0)

    def _answers(self, store: ReplyStore, question: Question) -> dict[int, Answer]:
        said = [one for one in store.standing(question.question_id, FORCED) if one.reply.of is Pass.FORCED]
        return self._graded(question, ForcedPass(self.grader), said)

    def probed(self, conversation: Conversation, said: Sequence[Completion]) -> list[Answer]:
        """Return the replies to a prompt of confidence's own, in the order of their draws."""
        return list(self._graded(conversation.question, conversation.procedure, said).values())

    def came_with_logprobs(self, prompt: str) -> bool:
        """Whether no reply to a prompt came without log probabilities: also where there is none yet."""
        probes = (one for one in self.own.replies() if one.reply.of is Pass.PROBE and one.variant == prompt)
        return all(one.logprobs is not None for one in probes if one.reply.asked is Asked.MODEL)

    def _graded(self, question: Question, procedure: Procedure, said: Sequence[Completion]) -> dict[int, Answer]:
        """Return the answers by draw; one whose verdict is still to come has no grade, and is there all the same."""
        own = {one.draw: one for one in said if one.reply.asked is Asked.MODEL}
        judged = {one.draw for one in said if one.reply.asked is not Asked.MODEL}
        first: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            first.setdefault(own[draw].reply, draw)
        found = {}
        for draw in sorted(own):
            graded = first[own[draw].reply]
            verdicts = [one.reply for one in said if one.reply.asked is not Asked.MODEL and one.draw == graded]
            became = procedure.step(question, [own[draw].reply, *verdicts])
            wrong = became.wrong if isinstance(became, Outcome) else None
            found[draw] = _answer(own[draw], wrong, with_logprobs=draw == 0 or own[draw].reply.of is Pass.PROBE)
        return found


def current(settings: Settings, conversation: Conversation, own: ReplyStore) -> list[Completion]:
    """Return what was said in a conversation to the very requests that it asks now; nothing where they were others.

    Parameters
    ----------
    settings
        Those that it is asked with.
    conversation, own
        What it is about, and the replies that confidence asked for.
    """
    passes = conversation.procedure.passes
    said = [one for one in own.said(conversation.question.question_id, conversation.variant) if one.reply.of in passes]
    probes = [one for one in said if one.reply.of is Pass.PROBE and one.reply.asked is Asked.MODEL]
    return said if all(_is_reply_to(settings, conversation, one, own) for one in probes) else []


def _is_reply_to(settings: Settings, conversation: Conversation, one: Completion, own: ReplyStore) -> bool:
    if one.request_sha256 is None:
        return True
    place, step = (one.question_id, one.variant, Pass.PROBE, Asked.MODEL), Step(Pass.PROBE, Asked.MODEL)
    # A draw that came as a choice of a response has the request of the first of them.
    return any(
        one.request_sha256 == ask_for(settings, conversation, Due(step, draw), own.times_retired(*place, draw)).sha256
        for draw in dict.fromkeys((one.draw, *range(one.draw)))
    )


def further_refusals(outcomes: pl.DataFrame) -> dict[str, dict[str, list[bool]]]:
    """Return whether the further draws of first passes refused, by variant and question id, where that is known.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    """
    drawn = outcomes.filter(pl.col("draw") > 0).drop_nulls("refused").sort("draw")
    found: dict[str, dict[str, list[bool]]] = {}
    for variant, question_id, refused in drawn.select("variant", "question_id", "refused").iter_rows():
        found.setdefault(variant, {}).setdefault(question_id, []).append(refused)
    return found


def _answer(one: Completion, wrong: bool | None, *, with_logprobs: bool) -> Answer:
    text = read_reply(one.reply.text, one.reply.stop_reason).answer
    try:
        logprobs = read_logprobs(one.logprobs) if with_logprobs else None
    except ValueError as error:
        raise StoreError(f"question {one.question_id}: {error}; restore the store of replies from a copy") from error
    return Answer(text, one.reply.text, wrong, logprobs, one.reply.stop_reason)


FILE = "states.npz"
"""In the folder of what confidence asked for."""

States = NDArray[np.float32]
Conversations = Mapping[str, Sequence[Message]]
"""By question id, the messages before the answer."""


def states_of(model: str, conversations: Conversations, path: Path, ids: Sequence[str]) -> States:
    """Return the hidden states of questions, shape (n, layers + 1, size).

    They are read from the file, where it was made of the same model and messages; else they are computed, of all
    questions, and the file is written. It holds no pickles: folders are handed on.

    Parameters
    ----------
    model
        As a run names it, ``almanac/...`` or ``hf/...``.
    conversations
        Of all questions of the run.
    path
        Of the file.
    ids
        Of the questions that are wanted, in their order.

    Raises
    ------
    RefusalIndexError
        If the model cannot be used; NotWrittenError if the file cannot be written.
    """
    key = _key(model, conversations)
    found = _kept(path, key)
    if found is None:
        found = _rounded(_computed(model, list(conversations.values())))
        _write(path, key, found)
    places = {one: place for place, one in enumerate(conversations)}
    return found[[places[one] for one in ids]].astype(np.float32)


def _key(model: str, conversations: Conversations) -> str:
    """Return a digest of all that the states are made of; weights of the hub are known by their name alone."""
    said = {one: [astuple(message) for message in messages] for one, messages in conversations.items()}
    return hashlib.sha256(json.dumps([model, _weights(model), said]).encode()).hexdigest()


def _weights(model: str) -> str:
    """Return what tells a model's weights from others of its name, where they lie on this machine."""
    provider, _, name = model.partition("/")
    if provider == ALMANAC:
        from refusal_index.almanac.models import model_folder  # noqa: PLC0415 - only where states are wanted

        return sha256_of((model_folder(name) / "model.safetensors").read_bytes())
    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    return repr([(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files])


def _computed(model: str, conversations: Sequence[Sequence[Message]]) -> States:
    provider, _, name = model.partition("/")
    if provider == "hf":
        from refusal_index.confidence.transformers_states import hidden_states  # noqa: PLC0415 - of an extra

        return hidden_states(name, conversations)
    from refusal_index.almanac import chat, states  # noqa: PLC0415 - only where states are wanted

    return states.hidden_states(
        name, [[chat.Message(one.role, one.content) for one in messages] for messages in conversations]
    )


def _rounded(states: States) -> NDArray[np.floating]:
    """Return states in half precision, which probes cannot tell from full; as they are where a number is too large."""
    with np.errstate(over="ignore"):
        half = states.astype(np.float16)
    return half if np.isfinite(half).all() else states


def _write(path: Path, key: str, states: NDArray[np.floating]) -> None:
    whole = io.BytesIO()
    np.savez(whole, key=np.array(key), states=states)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, whole.getvalue())


def _kept(path: Path, key: str) -> NDArray[np.floating] | None:
    """Return what the file holds; None where there is none, it is damaged, or was made of something else."""
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as held:
            states = held["states"] if str(held["key"]) == key else None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None  # it is derived: what cannot be read is made anew
    return states


GROUPINGS = ("auto", "cluster", "entity", "topic", "none")
"""By what questions are kept in one fold."""

KNOWN = ("cluster", "entity", "topic")
"""What `auto` goes by: the first that is known."""


def groups_of(
    outcomes: pl.DataFrame, questions: Mapping[str, Question], by: str = "auto", n_folds: int = 5
) -> dict[str, str]:
    """Return the group of each question that has one.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    questions
        By id.
    by
        ``"cluster"``: the column of that name. ``"entity"``: whom a question is about, which is known of the almanac.
        ``"topic"``: so that it is seen what is left for topics that nobody trained on; the topic-only baseline then
        says nothing, by construction. ``"none"``: every question by itself. ``"auto"``: the first of cluster, entity
        and topic that is known and makes as many groups as there are folds.
    n_folds
        How many folds there are to be.

    Raises
    ------
    SettingError
        If `by` is none of these, or is not known of these questions.

    Examples
    --------
    >>> asked = {one: Question(one, "?", "!", topic="towns") for one in ("river-of-yesesk", "province-of-yesesk")}
    >>> groups_of(pl.DataFrame({"question_id": list(asked)}), asked, "entity")
    {'river-of-yesesk': 'yesesk', 'province-of-yesesk': 'yesesk'}
    """
    if by not in GROUPINGS:
        raise SettingError(f"{{group}}: expected one of {', '.join(GROUPINGS)}, got {by!r}{suggestion(by, GROUPINGS)}")
    if by == "none":
        return {}
    found = {name: _known(name, outcomes, questions) for name in (KNOWN if by == "auto" else (by,))}
    if by == "auto":
        return next((groups for groups in found.values() if len(set(groups.values())) >= n_folds), {})
    if not found[by]:
        raise SettingError(f"{{group}}: expected questions whose {by} is known, and it is known of none of these")
    return found[by]


def _known(by: str, outcomes: pl.DataFrame, questions: Mapping[str, Question]) -> dict[str, str]:
    if by == "cluster":
        filled = outcomes.drop_nulls("cluster") if "cluster" in outcomes.columns else outcomes.clear()
        return dict(filled.select("question_id", "cluster").iter_rows()) if filled.height else {}
    if by == "entity":
        named = {one: entity_of(one) for one in questions}
    else:
        named = {one: question.topic for one, question in questions.items()}
    return {one: group for one, group in named.items() if group}


def training_shortage(outcomes: pl.DataFrame, groups: Mapping[str, str], n_folds: int = 5) -> str | None:
    """Say, before anything is asked, what a run has too little of to train on; None where it seems to have enough.

    A question counts as right, or wrong, where any of its answers was: another that is still to be asked for may turn
    out otherwise, which is seen when it is there.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    groups
        Of its questions, as `groups_of` gives them.
    n_folds
        How many folds there are to be.

    Examples
    --------
    >>> few = pl.DataFrame({"question_id": ["a", "b", "c"], "wrong": [True, False, None]})
    >>> training_shortage(few, {}, n_folds=2)
    'needs 2 right and 2 wrong answers to train on, one of each for each of 2 folds, and there are 1 right and 1 wrong'
    """
    right, wrong = (outcomes.filter(pl.col("wrong") == kind)["question_id"].n_unique() for kind in (False, True))
    units = {groups.get(one, f"\0{one}") for one in outcomes["question_id"]}
    return shortage(right, wrong, len(units), n_folds)
