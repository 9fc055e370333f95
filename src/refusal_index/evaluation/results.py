"""What a run's store of replies adds up to: the outcome table, what it took, what is missing, where graders differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from refusal_index.datasets.imports import from_outcomes, to_outcomes
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.first_passes import first_pass_table, named
from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import NOT_FINISHED, REQUEST_FAILED, Outcome
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
    finished_draws,
    so_far,
    taken,
    verdict_of,
)

STILL_TO_COME = "it was not asked to its end"
"""What is missing of a question that nothing kept from being finished, but that the run ended before."""

PLACE = ("variant", "question_id", "draw")
"""What tells the outcomes of one run apart."""

FURTHER_DRAWS = "its further draws were not asked to their end"
"""What is missing of a question of which not every draw is whole."""


class UnfinishedError(RefusalIndexError, ValueError):
    """A run of which nothing was answered yet, so that it has no results."""


@dataclass(frozen=True)
class Missing:
    """A question that is not finished, and what kept it from it."""

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
        The outcome table: every question that was asked for, whatever became of it.
    usage
        Requests, tokens and cost by variant. A forced answer that several variants share counts for the first of them.
    missing
        Questions that ended in an error, or are still to be asked to their end.
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
        If nothing was answered yet, and nothing failed.
    RunFolderError
        If the folder is not a run's.
    """
    settings = folder.read_complete_settings()
    procedure = procedure_of(settings)
    order = [FORCED] if "first_pass" in settings else settings["prompts"]["variants"]
    found: dict[str, list[_Answered]] = {}
    for one in each_asked(store, order, procedure):
        found.setdefault(one[0].variant, []).append(_became(*one))
    if not any(one.said or one.error != STILL_TO_COME for answered in found.values() for one in answered):
        raise UnfinishedError(f"{folder.path}: nothing was answered yet; run the same command again to resume")
    missing = tuple(
        Missing(variant, one.question.question_id, one.error)
        for variant, answered in found.items()
        for one in answered
        if one.error is not None
    )
    if "first_pass" in settings:
        took = _usage({FORCED: found[FORCED]}, list(store.retired()), prices)
        return _with_first_passes(folder, settings, found[FORCED], missing, took[FORCED])
    rows = (
        (Identification(settings["model"], settings["dataset"]["name"], variant, draw), one.question, outcome)
        for variant, answered in found.items()
        for one in answered
        for draw, outcome in enumerate(one.outcomes)
    )
    usage = _usage(found, list(store.retired()), prices)
    return Derived(outcome_table(rows), usage, missing, tuple(_disagreements(found.items())))


def each_asked(
    store: ReplyStore, variants: Iterable[str], procedure: Procedure
) -> Iterator[tuple[Conversation, list[Completion], str | None]]:
    """Yield every question that was asked, what was said about it, and what kept it from being finished.

    They come by variant and id, not in the order in which they were asked, so that sums over them are the same to the
    bit.
    """
    questions, failures, asked = store.questions(), store.failures(), store.asked()
    for variant in variants:
        for question_id, draws in sorted(asked.get(variant, {}).items()):
            conversation = Conversation(questions[question_id], variant, procedure, draws)
            yield conversation, store.standing(question_id, variant), failures.get((variant, question_id))


def _became(conversation: Conversation, said: list[Completion], error: str | None) -> _Answered:
    """Return what became of a question; where further draws are missing, of those before them, the first at least."""
    first_replies = any(one.reply.of is Pass.FIRST for one in said) or not conversation.procedure.asks_first
    known = taken(conversation, said) if first_replies else []
    found = finished_draws(conversation, said) if first_replies else []
    if not found:
        partial = so_far(conversation, known, NOT_FINISHED if error is None else REQUEST_FAILED)
        return _Answered(conversation.question, [partial], known, error or STILL_TO_COME)
    lacking = FURTHER_DRAWS if len(found) < conversation.draws else None
    return _Answered(conversation.question, found, known, error or lacking)


def check_nothing_lost(folder: RunFolder, table: pl.DataFrame) -> None:
    """See to it that no outcome in a folder gives way to one that lacks its replies.

    Raises
    ------
    StoreError
        If a question that is scored in the folder's outcome table is not in `table`, or lacks a reply there.
    """
    try:
        before = folder.read_outcomes()
    except OutcomeTableError:
        return  # none yet, or one that nobody can read
    lacking = pl.col("unscored_reason").is_in([NOT_FINISHED, REQUEST_FAILED])
    kept = table.filter(~lacking.fill_null(value=False))
    scored = before.drop_nulls(["refused", "wrong"])
    lost = scored.join(kept, on=PLACE, how="anti", nulls_equal=True, maintain_order="left")
    if lost.height:
        first = ", ".join(str(lost[name][0]) for name in ("variant", "question_id") if lost[name][0] is not None)
        raise StoreError(
            f"{folder.replies}: expected the replies behind {folder.outcomes.name}, found none for {lost.height:,} of "
            f"its {scored.height:,} scored outcomes, the first {first}; restore the file, or move "
            f"{folder.outcomes.name} elsewhere to have what is left scored"
        )


def _with_first_passes(
    folder: RunFolder,
    settings: Mapping[str, Any],
    answered: Sequence[_Answered],
    missing: tuple[Missing, ...],
    usage: Usage,
) -> Derived:
    """Return what a forced pass adds up to, together with the first pass that it was made for."""
    passes = named(settings, from_outcomes(folder.read_outcomes(first_pass_table(folder))))
    table = to_outcomes(passes, {one.question.question_id: one.outcomes[0] for one in answered})
    # All variants share the forced answers, which therefore count for the first of them.
    first = passes[0].variant
    return Derived(table, {first: usage}, missing, tuple(_disagreements([(first, answered)])))


def _usage(
    answered: Mapping[str, Sequence[_Answered]], retired: Sequence[Completion], prices: Prices
) -> dict[str | None, Usage]:
    """Return what each variant took, with what was set aside; what is shared counts once, for the first of them."""
    first = next(iter(answered))
    shared: set[Completion] = set()
    usage: dict[str | None, Usage] = {}
    for variant, questions in answered.items():
        replies = {reply: None for one in questions for reply in one.said if reply not in shared}
        shared.update(replies)
        aside = (one for one in retired if (one.variant or first) == variant and one not in shared)
        usage[variant] = total([*replies, *aside], prices)
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


def _disagreements(answered: Iterable[tuple[str | None, Sequence[_Answered]]]) -> Iterator[Disagreement]:
    """Yield each reply over which the graders differ, once, however often it came.

    A forced answer that variants share belongs to the first of them.
    """
    shared: set[tuple[str, str]] = set()
    for variant, questions in answered:
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
