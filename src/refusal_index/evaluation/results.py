"""What a run's store of replies adds up to: the outcome table, what it took, what is missing, where graders differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from refusal_index.datasets.imports import from_outcomes, to_outcomes
from refusal_index.engines.store import ReplyStore
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.first_passes import first_pass_table, named
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import REQUEST_FAILED, Outcome
from refusal_index.outcomes.price import UNPRICED, Prices, Tokens
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.summary import Usage
from refusal_index.outcomes.table import Identification, outcome_table
from refusal_index.protocol import (
    FORCED,
    Asked,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Pass,
    Procedure,
    Regrading,
    Reply,
    TwoPass,
    outcomes,
    taken,
    verdict_of,
)

FURTHER_DRAWS = "its further draws were not asked to their end"
"""What is missing of a question of which the first draw alone is whole."""


class UnfinishedError(RefusalIndexError, ValueError):
    """A run of which no variant was asked to its end, so that it has no results yet."""


@dataclass(frozen=True)
class Missing:
    """A question that could not be finished, and the error that kept it from it."""

    variant: str
    question_id: str
    error: str


@dataclass(frozen=True)
class Disagreement:
    """A reply over which two graders differ.

    Attributes
    ----------
    question, variant, of
        What was asked, under which variant and in which pass.
    reply
        Word for word.
    grade, second_grade
        The two verdicts.
    """

    question: Question
    variant: str | None
    of: Pass
    reply: str
    grade: Grade
    second_grade: Grade


@dataclass(frozen=True)
class Derived:
    """Everything that follows from a run's replies.

    Attributes
    ----------
    outcomes
        The outcome table.
    usage
        Requests, tokens and cost by variant. A forced answer that several variants share counts for the first of them.
    missing
        Questions that ended in an error.
    disagreements
        Replies over which two graders differ.
    """

    outcomes: pl.DataFrame
    usage: Mapping[str | None, Usage]
    missing: tuple[Missing, ...]
    disagreements: tuple[Disagreement, ...] = ()


@dataclass(frozen=True)
class _Answered:
    """A question under a variant: what became of its draws, the replies that this rests on, and what is wrong."""

    question: Question
    outcomes: Sequence[Outcome]
    said: Sequence[Completion]
    error: str | None = None


def procedure_of(settings: Mapping[str, Any]) -> Procedure:
    """Return the procedure of a run's folder, by which its replies are read.

    Examples
    --------
    >>> procedure_of({"grader": {"name": "openai/gpt-4.1"}}).grader
    <GraderKind.MODEL: 'model'>
    """
    grader = settings.get("grader") or {}
    if grader.get("second"):
        kind = GraderKind.AGREE
    else:
        rule = grader.get("name", GraderKind.EXACT)
        kind = GraderKind(rule) if rule in set(GraderKind) else GraderKind.MODEL
    if "first_pass" in settings:
        return ForcedPass(kind)
    return Regrading(kind) if "regraded_from" in settings else TwoPass(kind)


def derive(folder: RunFolder, store: ReplyStore, prices: Prices = UNPRICED) -> Derived:
    """Return what the replies of a run add up to, variants in the order of their prompt set.

    Parameters
    ----------
    folder, store
        The run's folder and its replies.
    prices
        Of its models.

    Raises
    ------
    UnfinishedError
        If no variant was asked to its end.
    RunFolderError
        If the folder is not a run's.
    """
    settings = folder.read_complete_settings()
    procedure = procedure_of(settings)
    order = [FORCED] if "first_pass" in settings else settings["prompts"]["variants"]
    found = {variant: _answered(variant, store, procedure) for variant in order if variant in store.asked()}
    finished = {variant: answered for variant, answered in found.items() if answered is not None}
    if not finished:
        raise UnfinishedError(f"{folder.path}: no variant was run to its end; run the same command again to resume")
    missing = tuple(
        Missing(variant, one.question.question_id, one.error)
        for variant, answered in finished.items()
        for one in answered
        if one.error is not None
    )
    if "first_pass" in settings:
        return _with_first_passes(folder, settings, finished[FORCED], missing, prices)
    rows = (
        (Identification(settings["model"], settings["dataset"]["name"], variant, draw), one.question, outcome)
        for variant, answered in finished.items()
        for one in answered
        for draw, outcome in enumerate(one.outcomes)
    )
    return Derived(outcome_table(rows), _usage(finished, prices), missing, tuple(_disagreements({**finished})))


def _answered(variant: str, store: ReplyStore, procedure: Procedure) -> list[_Answered] | None:
    """Return what became of every question of a variant by its id; None while some are neither finished nor failed.

    Their order is not that in which they were asked, so that sums over them are the same to the bit.
    """
    questions, failures = store.questions(), store.failures()
    found = []
    for question_id, draws in sorted(store.asked()[variant].items()):
        conversation = Conversation(questions[question_id], variant, procedure, draws)
        one = _became(conversation, store.said(question_id, variant), failures.get((variant, question_id)))
        if one is None:
            return None
        found.append(one)
    return found


def _became(conversation: Conversation, said: list[Completion], error: str | None) -> _Answered | None:
    """Return what became of a question; where its further draws are missing, of its first one."""
    first_replies = any(one.reply.of is Pass.FIRST for one in said) or not conversation.procedure.asks_first
    for draws in dict.fromkeys((conversation.draws, 1)) if first_replies else ():
        one = replace(conversation, draws=draws)
        became = outcomes(one, said)
        if became is not None:
            # the first draw stands for itself, and that others are missing is told
            lacking = FURTHER_DRAWS if draws < conversation.draws else None
            return _Answered(conversation.question, became, taken(one, said), error or lacking)
    if error is None:
        return None
    refused = None if conversation.procedure.asks_first else True
    failed = Outcome(refused=refused, wrong=None, unscored_reason=REQUEST_FAILED)
    return _Answered(conversation.question, [failed], taken(conversation, said) if first_replies else [], error)


def _with_first_passes(
    folder: RunFolder,
    settings: Mapping[str, Any],
    answered: Sequence[_Answered],
    missing: tuple[Missing, ...],
    prices: Prices,
) -> Derived:
    """Return what a forced pass adds up to, together with the first pass that it was made for."""
    passes = named(settings, from_outcomes(folder.read_outcomes(first_pass_table(folder))))
    table = to_outcomes(passes, {one.question.question_id: one.outcomes[0] for one in answered})
    # All variants share the forced answers, which therefore count for the first of them.
    first = passes[0].variant
    usage = {first: total((reply for one in answered for reply in one.said), prices)}
    return Derived(table, usage, missing, tuple(_disagreements({first: answered})))


def _usage(answered: Mapping[str, Sequence[_Answered]], prices: Prices) -> dict[str | None, Usage]:
    shared: set[Completion] = set()
    usage: dict[str | None, Usage] = {}
    for variant, questions in answered.items():
        replies = {reply: None for one in questions for reply in one.said if reply not in shared}
        shared.update(replies)
        usage[variant] = total(replies, prices)
    return usage


def total(replies: Iterable[Completion], prices: Prices) -> Usage:
    """Add up what some replies took."""
    known = list(replies)
    own = _tokens(one for one in known if one.reply.asked is Asked.MODEL)
    graders = _tokens(one for one in known if one.reply.asked is not Asked.MODEL)
    return Usage(
        input_tokens=own[0] + graders[0],
        output_tokens=own[1] + graders[1],
        requests=sum(one.requests for one in known),
        cost=prices.cost(own, graders),
        unpriced_tokens=sum(graders) if prices.grader is None else 0,
    )


def _tokens(replies: Iterable[Completion]) -> Tokens:
    counts = [(one.input_tokens, one.output_tokens) for one in replies]
    return sum(read for read, _ in counts), sum(written for _, written in counts)


def _disagreements(answered: Mapping[str | None, Sequence[_Answered]]) -> Iterator[Disagreement]:
    """Yield each reply over which the graders differ, once, however often it came.

    A forced answer that variants share belongs to the first of them.
    """
    shared: set[tuple[str, str]] = set()
    for variant, questions in answered.items():
        for found in (each for one in questions for each in _of_question(variant, one)):
            if found.of is Pass.FORCED:
                key = (found.question.question_id, found.reply)
                if key in shared:
                    continue
                shared.add(key)
            yield found


def _of_question(variant: str | None, answered: _Answered) -> Iterator[Disagreement]:
    verdicts: dict[tuple[Pass, int], list[Reply]] = {}
    for one in answered.said:
        if one.reply.asked is not Asked.MODEL:
            verdicts.setdefault((one.reply.of, one.draw), []).append(one.reply)
    for (of, draw), told in verdicts.items():
        first = verdict_of(Asked.GRADER, of, answered.question, told)
        second = verdict_of(Asked.SECOND_GRADER, of, answered.question, told)
        if first is not None and second is not None and first is not second:
            reply = next(
                one.reply.text
                for one in answered.said
                if (one.reply.of, one.draw, one.reply.asked) == (of, draw, Asked.MODEL)
            )
            yield Disagreement(answered.question, variant, of, reply, first, second)
