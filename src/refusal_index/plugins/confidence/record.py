"""What the scores of methods rest on, and what that took: measured from the replies, once they are there.

A method rests on replies of the model: forced answers, draws of a pass, replies to prompts of its own. Those of a model
that grades belong to them only where grades enter the score, as they do where a first pass counts as refused, or where
a predictor is trained on right and wrong answers.

Scores beside results that are made anew: grades follow the run, and scores that rested on others are taken out.

What methods of confidence make scores of: the replies of a run, and those that were asked for beside it.

The hidden states of a run's questions before the answer: computed once, and kept in the run's folder.

Which questions of a run lie in one fold of a method that is trained, and whether there are answers enough.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.confidence import ConfidenceError, Score, join_outcomes, write_confidence
from refusal_index.data.datasets.almanac import entity_of
from refusal_index.data.errors import OutcomeTableError, suggestion
from refusal_index.data.files import read_plain, sha256_of, write_atomically
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Outcome, Question
from refusal_index.data.run_json import Prices
from refusal_index.findings.confidence_record import MethodRecord, write_record
from refusal_index.models.requests import model_request
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.confidence.folds import shortage
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need
from refusal_index.plugins.confidence.registry import METHODS
from refusal_index.protocol import (
    FORCED,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Message,
    Pass,
    PendingRequest,
    Procedure,
    Reply,
    Role,
    Step,
    read_logprobs,
    read_reply,
)
from refusal_index.runs.plan import versions
from refusal_index.runs.results import procedure_of, total
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError

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
        said = [
            one for one in store.effective_completions(question.question_id, FORCED) if one.reply.pass_ is Pass.FORCED
        ]
        return self._graded(question, ForcedPass(self.grader), said)

    def probed(self, conversation: Conversation, said: Sequence[Completion]) -> list[Answer]:
        """Return the replies to a prompt of confidence's own, in the order of their draws."""
        return list(self._graded(conversation.question, conversation.procedure, said).values())

    def came_with_logprobs(self, prompt: str) -> bool:
        """Whether no reply to a prompt came without log probabilities: also where there is none yet."""
        probes = (one for one in self.own.replies() if one.reply.pass_ is Pass.PROBE and one.variant == prompt)
        return all(one.logprobs is not None for one in probes if one.reply.role is Role.MODEL)

    def _graded(self, question: Question, procedure: Procedure, said: Sequence[Completion]) -> dict[int, Answer]:
        """Return the answers by draw; one whose verdict is still to come has no grade, and is there all the same."""
        own = {one.draw: one for one in said if one.reply.role is Role.MODEL}
        judged = {one.draw for one in said if one.reply.role is not Role.MODEL}
        first: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            first.setdefault(own[draw].reply, draw)
        found = {}
        for draw in sorted(own):
            graded = first[own[draw].reply]
            verdicts = [one.reply for one in said if one.reply.role is not Role.MODEL and one.draw == graded]
            became = procedure.step(question, [own[draw].reply, *verdicts])
            wrong = became.wrong if isinstance(became, Outcome) else None
            found[draw] = _answer(own[draw], wrong, with_logprobs=draw == 0 or own[draw].reply.pass_ is Pass.PROBE)
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
    said = [
        one
        for one in own.completions(conversation.question.question_id, conversation.variant)
        if one.reply.pass_ in passes
    ]
    probes = [one for one in said if one.reply.pass_ is Pass.PROBE and one.reply.role is Role.MODEL]
    return said if all(_is_reply_to(settings, conversation, one, own) for one in probes) else []


def _is_reply_to(settings: Settings, conversation: Conversation, one: Completion, own: ReplyStore) -> bool:
    if one.request_sha256 is None:
        return True
    place, step = (one.question_id, one.variant, Pass.PROBE, Role.MODEL), Step(Pass.PROBE, Role.MODEL)
    # A draw that came as a choice of a response has the request of the first of them.
    return any(
        one.request_sha256
        == model_request(settings, conversation, PendingRequest(step, draw), own.times_retired(*place, draw)).sha256
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
        from refusal_index.plugins.almanac.models import model_folder  # noqa: PLC0415 - only where states are wanted

        return sha256_of((model_folder(name) / "model.safetensors").read_bytes())
    files = sorted(Path(name).iterdir()) if Path(name).is_dir() else []
    return repr([(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in files])


def _computed(model: str, conversations: Sequence[Sequence[Message]]) -> States:
    provider, _, name = model.partition("/")
    if provider == "hf":
        from refusal_index.plugins.confidence.transformers_states import hidden_states  # noqa: PLC0415 - of an extra

        return hidden_states(name, conversations)
    from refusal_index.plugins.almanac import chat, states  # noqa: PLC0415 - only where states are wanted

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


GRADED = frozenset({Need.FIRST_DRAWS, Need.TRAINING})
"""Needs into which grades enter."""


@dataclass(frozen=True)
class Measured:
    """What records are made of.

    Attributes
    ----------
    sources, evidence
        Replies, and what the scores were made of.
    outcomes
        The run's outcome table.
    prices
        Of the run's models.
    """

    sources: Sources
    evidence: Evidence
    outcomes: pl.DataFrame
    prices: Prices


def record_scores(folder: RunFolder, found: Measured, scores: Mapping[Method, Sequence[Score]]) -> None:
    """Write what scores rest on beside them, in the place of what is there of the same methods.

    Parameters
    ----------
    folder
        The run's; call it inside its lock.
    found
        Replies and evidence.
    scores
        Those that were made now, by method.
    """
    made = {method: given for method, given in scores.items() if given}
    records = [one for method, given in made.items() for one in method_records(found, method, given)]
    write_record(folder, records, {method.name for method in made})


def method_records(found: Measured, method: Method, scores: Sequence[Score]) -> Iterator[MethodRecord]:
    """Yield what the scores of a method rest on, a record for each variant where they differ between variants.

    Parameters
    ----------
    found
        Replies and evidence.
    method, scores
        The method, and the scores that it gave.
    """
    by_variant: dict[str | None, list[Score]] = {}
    for one in scores:
        by_variant.setdefault(one.variant, []).append(one)
    for variant, own in by_variant.items():
        yield _record(found, method, variant, own)


def _record(found: Measured, method: Method, variant: str | None, scores: Sequence[Score]) -> MethodRecord:
    asked = [found.evidence.questions[one] for one in dict.fromkeys(score.question_id for score in scores)]
    run = [one for question in asked for one in of_the_run(found.sources, method, variant, question)]
    beside = [one for question in asked for one in asked_beside(found.sources, method, question)]
    replies = [*run, *beside]
    own = [one for one in replies if one.reply.role is Role.MODEL]
    seconds = [one.seconds for one in replies if one.requests]
    return MethodRecord(
        method=method.name,
        variant=variant,
        questions=len(scores),
        generations=len(own),
        usage=total(replies, found.prices),
        own_requests=sum(one.requests for one in beside),
        seconds=None if None in seconds else sum(one for one in seconds if one is not None),
        draws=_most([one for one in own if one.reply.pass_ is not Pass.PROBE]),
        own_replies=_most([one for one in own if one.reply.pass_ is Pass.PROBE]),
        is_of_model=method.is_of_model,
        needs=tuple(sorted(method.needs)),
        versions=_versions(found, method),
        **_training(found, scores),
        **_states(found, method, asked),
    )


def of_the_run(sources: Sources, method: Method, variant: str | None, question: Question) -> Iterator[Completion]:
    """Yield the replies of the run that a method's score of a question rests on."""
    if Need.FIRST_DRAWS in method.needs and variant is not None:
        yield from _entering(method, sources.run.effective_completions(question.question_id, variant), Pass.FIRST)
    forced = _entering(method, sources.run.effective_completions(question.question_id, FORCED), Pass.FORCED)
    if Need.FORCED_DRAWS in method.needs:
        yield from forced
    elif _is_about_answers(method) and not _answered_beside(sources, question):
        yield from (one for one in forced if one.draw == 0)


def asked_beside(sources: Sources, method: Method, question: Question) -> Iterator[Completion]:
    """Yield the replies that a method's score of a question rests on, and that were asked for beside the run."""
    if _is_about_answers(method):
        yield from _entering(method, sources.own.effective_completions(question.question_id, FORCED), Pass.FORCED)
    for prompt in method.prompts:
        yield from _entering(method, sources.own.completions(question.question_id, prompt.name), Pass.PROBE)


def _is_about_answers(method: Method) -> bool:
    """Whether the score is made of the forced answer, and not of first passes or of an answer of its own."""
    answers_itself = bool(method.prompts) and all(prompt.is_graded for prompt in method.prompts)
    return Need.FIRST_DRAWS not in method.needs and not answers_itself


def _answered_beside(sources: Sources, question: Question) -> bool:
    return any(
        one.reply.pass_ is Pass.FORCED for one in sources.own.effective_completions(question.question_id, FORCED)
    )


def _entering(method: Method, said: Sequence[Completion], of: Pass) -> list[Completion]:
    """Keep the replies of one pass that enter a method's scores: those of graders only where grades do."""
    with_graders = bool(GRADED & method.needs)
    return [one for one in said if one.reply.pass_ is of and (with_graders or one.reply.role is Role.MODEL)]


def _most(replies: Sequence[Completion]) -> int:
    """Return how many replies there are to one question at most."""
    places: dict[str, set[tuple[str, int]]] = {}
    for one in replies:
        places.setdefault(one.question_id, set()).add((one.variant, one.draw))
    return max(map(len, places.values()), default=0)


def _training(found: Measured, scores: Sequence[Score]) -> dict[str, Any]:
    folds = {one.fold for one in scores} - {None}
    if not folds:
        return {}
    groups = found.evidence.groups
    return {
        "training_examples": sum(one.wrong is not None and one.confidence is not None for one in scores),
        "n_folds": len(folds),
        "seed": found.evidence.seed,
        "grouped_by": _grouped_by(found),
        "groups": len({groups.get(one.question_id, f"\0{one.question_id}") for one in scores}),
    }


def _grouped_by(found: Measured) -> str | None:
    """Name what the questions' groups are; None where every question is one by itself."""
    groups = found.evidence.groups
    for by in KNOWN if groups else ():
        with suppress(SettingError):
            if groups_of(found.outcomes, found.evidence.questions, by) == groups:
                return by
    return None


def _states(found: Measured, method: Method, asked: Sequence[Question]) -> dict[str, Any]:
    if Need.STATES not in method.needs or found.evidence.states is None or not asked:
        return {}
    size = found.evidence.states([asked[0].question_id]).shape[2]
    return {"states": len(asked), "state_size": size, "layer": found.evidence.layer}


def _versions(found: Measured, method: Method) -> dict[str, str]:
    """Return the versions of this package and of those that the method imports."""
    runs_weights = Need.STATES in method.needs and found.evidence.model.startswith("hf/")
    imported = {*method.packages, *(("torch", "transformers") if runs_weights else ())}
    brought_by = packages_distributions() if imported else {}
    return versions(["refusal-index", *sorted({one for name in imported for one in brought_by.get(name, ())})])


DRAWS = frozenset({Need.FIRST_DRAWS, Need.FORCED_DRAWS})
"""What methods need that rest on repeated draws."""

KEY = ("question_id", "method", "variant", "draw", "pass")


def refresh_scores(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], outcomes: pl.LazyFrame
) -> tuple[str, ...]:
    """Bring the grades in a folder's confidence table up to date, before its outcomes are replaced.

    A method's own scores rest on the answers and, where it was trained, on their grades, or on repeated draws. Where a
    grade is another one by now, or there are more draws, they are taken out: the replies are there, so that scoring
    again asks nothing. Scores of others keep a grade
    that they brought along; one that was found in the run's outcomes follows these.

    Parameters
    ----------
    folder, store, settings
        The run's.
    outcomes
        The table that is about to be written.

    Returns
    -------
    tuple of str
        The methods whose scores were taken out.
    """
    table = folder.read_confidence()
    if table is None:
        return ()
    graded, redrawn = _grades(folder, store, settings, table), _is_redrawn(folder, outcomes)
    kept, outdated = [], []
    for group in table.partition_by("method", maintain_order=True):
        name = group["method"][0]
        if _is_ours(group) and (not _agrees(group, graded) or (redrawn and METHODS[name].needs & DRAWS)):
            outdated.append(name)
        else:
            kept.append(group if _is_ours(group) else _regraded(folder, group, outcomes))
    found = pl.concat(kept) if kept else table.clear()
    if not found.equals(table):
        write_confidence(found, folder.confidence)
    return tuple(outdated)


def _is_redrawn(folder: RunFolder, outcomes: pl.LazyFrame) -> bool:
    """Whether questions were drawn otherwise than the outcomes have it that are about to be replaced."""
    with suppress(OutcomeTableError):
        tables = folder.read_outcomes().lazy(), outcomes
        before, now = (one.select(DRAWN_AGAIN.sum()).collect().item() for one in tables)
        return bool(before != now)
    return False


def _is_ours(group: pl.DataFrame) -> bool:
    return group["method"][0] in METHODS and group["pass"].is_in(["forced", "probe"]).all()


def _grades(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], table: pl.DataFrame
) -> dict[str, bool | None]:
    """Return whether each forced answer that is scored is wrong by now."""
    path = RunFolder(folder.path / OWN).replies
    asked, questions = set(table["question_id"]), store.questions()
    with ReplyStore(path if path.exists() else None) as own:
        sources = Sources(store, own, procedure_of(settings).grader)
        answers = ((one, sources.answer(questions[one])) for one in asked & questions.keys())
        return {one: answer.wrong for one, answer in answers if answer is not None}


def _agrees(group: pl.DataFrame, graded: Mapping[str, bool | None]) -> bool:
    forced = group.filter((pl.col("pass") == "forced") & (pl.col("draw") == 0))
    return all(graded.get(one) is wrong for one, wrong in forced.select("question_id", "wrong").iter_rows())


def _regraded(folder: RunFolder, group: pl.DataFrame, outcomes: pl.LazyFrame) -> pl.DataFrame:
    """Return scores of others with the grades of the new outcomes, if those that they have are the earlier ones'."""
    blank = group.with_columns(wrong=pl.lit(None, pl.Boolean))
    with suppress(OutcomeTableError, ConfidenceError):  # no outcomes before, or of nobody's questions
        before, now = (join_outcomes(blank, one).scores for one in (folder.read_outcomes(), outcomes.collect()))
        if before.sort(KEY).equals(group.sort(KEY)) and now.height == group.height:
            return now
    return group


def outdated_lines(methods: tuple[str, ...], folder: RunFolder) -> Iterator[str]:
    """Say which scores were taken out, and what makes them anew."""
    if methods:
        yield (
            f"scores of {', '.join(methods)} rested on grades or draws that are others now, and were taken out; "
            f"'refusal-index confidence {folder.path} --method {','.join(methods)}' makes them anew"
        )
