"""What a run's store of replies adds up to: the outcome table, what it took, what is missing, where graders differ.

Somebody else's first pass in a run's folder: where it lies, and what to call the two passes together.

What the questions of a run add up to beside outcomes: what they took, what is missing, where graders differ.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from refusal_index.data.files import TEMPORARY_SUFFIX
from refusal_index.data.first_pass import FirstPass, from_outcomes, to_outcomes
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED, Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.run_json import UNPRICED, Prices, refusal_setting
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import Usage
from refusal_index.protocol import (
    FORCED,
    Completion,
    Conversation,
    FirstPassOnly,
    ForcedPass,
    GraderKind,
    Pass,
    Procedure,
    Regrading,
    Reply,
    Role,
    TwoPass,
    completions_and_outcomes,
    grade_by,
    partial_outcome,
)
from refusal_index.protocol.grading import recognised_by
from refusal_index.protocol.replies import detector_of
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.store import QuestionRecord, ReplyStore

STILL_TO_COME = "it was not asked to its end"
"""What is missing of a question that nothing kept from being finished, but that the run ended before."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Answered:
    """A question under a variant: what became of its draws, the replies that this rests on, and what is wrong."""

    question: Question
    outcomes: Sequence[Outcome]
    said: Sequence[Completion]
    error: str | None = None


class Sums:
    """What questions add up to, one after the other.

    Parameters
    ----------
    variants
        Those that something is asked under, in their order.
    procedure
        By which their replies are read.
    """

    def __init__(self, variants: Sequence[str], procedure: TwoPass) -> None:
        self.variants, self.procedure = variants, procedure
        self.is_begun = False
        """Whether anything was answered, or failed."""
        self._took = {variant: UsageCounter() for variant in variants}
        self._missing: dict[str, list[Missing]] = {variant: [] for variant in variants}
        self._disagreements: dict[str, list[Disagreement]] = {variant: [] for variant in variants}
        ways = ("tag", "judge") if procedure.grader.models else ("tag", "wording", "choice")
        self.refusals: dict[str | None, dict[str, int]] = {variant: dict.fromkeys(ways, 0) for variant in variants}
        """How many first draws refused, by variant and by what showed it."""

    def add(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Add one question, with all the variants that it is asked under."""
        self.is_begun = self.is_begun or any(one.said or one.error != STILL_TO_COME for one in answered.values())
        self._count(record, answered)
        for found in _disagreements(answered):
            self._disagreements[str(found.variant)].append(found)
        for variant, one in answered.items():
            outcome = next(iter(one.outcomes), None)  # there is none where the store is damaged
            if outcome is not None and outcome.refused and (reply := outcome.first_reply) is not None:
                self.refusals[variant][recognised_by(self.procedure.grader, record.question, reply)] += 1
            if one.error is not None:
                self._missing[variant].append(Missing(variant, record.question.question_id, one.error))

    def _count(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Count what each variant took, with what was set aside; what is shared counts once, for the first of them."""
        counted: set[int] = set()
        for variant in self.variants:
            replies = answered[variant].said if variant in answered else ()
            aside = (one for one in record.retired if (one.variant or self.variants[0]) == variant)
            for one in (*replies, *aside):
                if id(one) not in counted:  # all of them are this record's own
                    counted.add(id(one))
                    self._took[variant].add(one)

    def usage(self, prices: Prices) -> dict[str | None, Usage]:
        """Return what each variant took."""
        return {variant: counter.usage(prices) for variant, counter in self._took.items()}

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What is not finished, by variant and id."""
        return tuple(one for found in self._missing.values() for one in found)

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Replies over which the graders differ, by variant and id."""
        return tuple(one for found in self._disagreements.values() for one in found)


def total(replies: Iterable[Completion], prices: Prices) -> Usage:
    """Add up what some replies took."""
    return UsageCounter(replies).usage(prices)


def _disagreements(answered: Mapping[str, Answered]) -> Iterator[Disagreement]:
    """Yield each reply to a question over which the graders differ, once, however often it came.

    A forced answer that variants share belongs to the first of them.
    """
    shared: set[str] = set()
    for found in (each for variant, one in answered.items() for each in _of_variant(variant, one)):
        if found.of is Pass.FORCED:
            if found.reply in shared:
                continue
            shared.add(found.reply)
        yield found


def _of_variant(variant: str, answered: Answered) -> Iterator[Disagreement]:
    verdicts: dict[tuple[Pass, int], list[Reply]] = {}
    for one in answered.said:
        if one.reply.role is not Role.MODEL:
            verdicts.setdefault((one.reply.pass_, one.draw), []).append(one.reply)
    for (of, draw), told in verdicts.items():
        first = grade_by(Role.GRADER, of, answered.question, told)
        second = grade_by(Role.SECOND_GRADER, of, answered.question, told)
        if first is not None and second is not None and first is not second:
            reply = next(
                one.reply.text
                for one in answered.said
                if (one.reply.pass_, one.draw, one.reply.role) == (of, draw, Role.MODEL)
            )
            yield Disagreement(answered.question, variant, of, reply, first, second)


def first_pass_table(folder: RunFolder) -> Path:
    """Return the place in a folder of the first pass that was imported: an outcome table."""
    return folder.path / "first_pass.parquet"


def named(settings: Mapping[str, Any], passes: Sequence[FirstPass]) -> list[FirstPass]:
    """Give rows that mix two models a name that says so."""
    dataset = settings["dataset"]["name"]
    name = model_name(settings["first_pass"]["model"], settings["model"])
    return [replace(one, model=name, dataset=one.dataset or dataset) for one in passes]


def model_name(first: str | None, forced: str) -> str:
    """Return what to call a first pass and a forced pass together.

    Examples
    --------
    >>> model_name("base", "almanac/base"), model_name("gpt-4o", "almanac/base")
    ('base', 'gpt-4o, forced: almanac/base')
    """
    if first is None:
        return f"(not named), forced: {forced}"
    return first if is_same_model(first, forced) else f"{first}, forced: {forced}"


def is_same_model(one: str, other: str) -> bool:
    """Whether two names are of one model: the shorter is how the longer ends, part by part.

    Examples
    --------
    >>> is_same_model("almanac/base", "openai-api/almanac/base"), is_same_model("gpt-4o", "openai/gpt-4o-mini")
    (True, False)
    """
    parts, others = (name.casefold().split("/") for name in (one, other))
    length = min(len(parts), len(others))
    return parts[-length:] == others[-length:]


def mixture(first: str | None, forced: str) -> tuple[Statement, ...]:
    """Return the caution that the two passes may be of two models, if they may."""
    if first is not None and is_same_model(first, forced):
        return ()
    return (Statement("two_models", "serious", {"first": first, "forced": forced}),)


FURTHER_DRAWS = "its further draws were not asked to their end"
"""What is missing of a question of which not every draw is whole."""

ROWS_OF_PART = 10_000
"""How many outcomes of a variant are made into a part of the table at a time."""

ROWS_OF_GROUP = 100_000
"""How many are written at a time where parts are put together."""

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How Polars tells the number of an error of the system, where it does."""

Asking = tuple[Conversation, list[Completion], str | None]
"""A question under a variant, what was said about it, and what kept it from being finished."""


class UnfinishedError(RefusalIndexError, ValueError):
    """A run that has no replies yet."""


@dataclass(frozen=True)
class Derived:
    """Everything that follows from a run's replies.

    Attributes
    ----------
    outcomes
        The outcome table, as it lies in its file: every question that was asked for, whatever became of it.
    usage
        Requests, tokens and cost by variant. A forced answer that several variants share counts for the first of them.
    missing
        Questions that ended in an error, or are still to be asked to their end.
    disagreements
        Replies over which two graders differ.
    refusals
        How many first draws refused, by variant and by what showed it; empty where somebody else asked the first pass.
    """

    outcomes: pl.LazyFrame
    usage: Mapping[str | None, Usage]
    missing: tuple[Missing, ...]
    disagreements: tuple[Disagreement, ...] = ()
    refusals: Mapping[str | None, Mapping[str, int]] = field(default_factory=dict)


def procedure_of(settings: Mapping[str, Any]) -> TwoPass:
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
    refusal = refusal_setting(settings)
    detector = None if refusal is None else detector_of(refusal)
    if "first_pass" in settings:
        return ForcedPass(kind, detector=detector)
    if "regraded_from" in settings:
        return Regrading(kind, detector=detector)
    return FirstPassOnly(kind, detector=detector) if settings.get("answered_only") else TwoPass(kind, detector=detector)


def derive_into(place: Path, folder: RunFolder, store: ReplyStore, prices: Prices = UNPRICED) -> Derived:
    """Write what the replies of a run add up to as an outcome table, variants in the order of their prompt set.

    Of a run of both passes never more than parts of the table are in memory.

    Parameters
    ----------
    place
        The file, of Parquet; nothing sees to it that it is whole, or what was there stays. A folder beside it holds
        the parts of the table until they are put together.
    folder, store
        The run's folder and its replies.
    prices
        Of its models.

    Raises
    ------
    UnfinishedError
        If nothing was answered yet, and nothing failed; then nothing is written.
    RunFolderError
        If the folder is not a run's.
    OSError
        If the file cannot be written.
    """
    settings = folder.read_complete_settings()
    if "first_pass" in settings:
        table, derived = _with_first_passes(folder, settings, store, prices)
        with _raising_os_errors(place):
            table.write_parquet(place)
        return replace(derived, outcomes=pl.scan_parquet(place, glob=False))
    sums = _sums(settings["prompts"]["variants"], store, procedure_of(settings))
    with _raising_os_errors(place), TemporaryDirectory(TEMPORARY_SUFFIX, f"{place.name}.", place.parent) as beside:
        written: dict[str, list[Path]] = {variant: [] for variant in sums.variants}
        for variant, part in _parts(settings, store, sums):
            path = Path(beside, f"{sum(map(len, written.values()))}.parquet")
            part.write_parquet(path, compression="lz4")
            written[variant].append(path)
        _check_begun(folder, sums)
        in_order = [path for paths in written.values() for path in paths]
        pl.scan_parquet(in_order, glob=False).sink_parquet(place, row_group_size=ROWS_OF_GROUP)
    return Derived(
        pl.scan_parquet(place, glob=False), sums.usage(prices), sums.missing, sums.disagreements, sums.refusals
    )


@contextmanager
def _raising_os_errors(place: Path) -> Iterator[None]:
    """Raise as an error of the system what Polars makes of one: the disk may be full."""
    try:
        yield
    except pl.exceptions.ComputeError as error:
        told = OS_ERROR.search(str(error))
        number, said = (int(told[1]), os.strerror(int(told[1]))) if told else (errno.EIO, str(error).splitlines()[0])
        raise OSError(number, said, str(place)) from error


def _sums(order: Iterable[str], store: ReplyStore, procedure: TwoPass) -> Sums:
    there = store.variants()
    return Sums([variant for variant in order if variant in there], procedure)


def _check_begun(folder: RunFolder, sums: Sums) -> None:
    if not sums.is_begun:
        raise UnfinishedError(f"{folder.path}: nothing was answered yet; run the same command again to resume")


def _parts(settings: Mapping[str, Any], store: ReplyStore, sums: Sums) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the outcome table in parts of one variant each, and add up all else."""
    asked = {one: Identification(settings["model"], settings["dataset"]["name"], one) for one in sums.variants}
    rows: dict[str, list[tuple[Identification, Question, Outcome]]] = {one: [] for one in sums.variants}
    for record, answered in _each_answered(store, sums):
        for variant, one in answered.items():
            mine = rows[variant]
            mine += (
                (replace(asked[variant], draw=draw) if draw else asked[variant], record.question, outcome)
                for draw, outcome in enumerate(one.outcomes)
            )
            if len(mine) >= ROWS_OF_PART:
                yield variant, outcome_table(mine)
                mine.clear()
    yield from ((variant, outcome_table(mine)) for variant, mine in rows.items() if mine)


def _each_answered(store: ReplyStore, sums: Sums) -> Iterator[tuple[QuestionRecord, dict[str, Answered]]]:
    """Yield every question with what became of it under each variant, and add it up."""
    for record in store.each_question():
        answered = {one[0].variant: _became(*one) for one in _asked_of(record, sums.variants, sums.procedure)}
        sums.add(record, answered)
        yield record, answered


def each_asked(store: ReplyStore, variants: Iterable[str], procedure: Procedure) -> Iterator[Asking]:
    """Yield every question that was asked, what was said about it, and what kept it from being finished.

    They come by variant and id, not in the order in which they were asked, so that sums over them are the same to the
    bit.
    """
    for variant in variants:
        for record in store.each_question():
            yield from _asked_of(record, [variant], procedure)


def _asked_of(record: QuestionRecord, variants: Iterable[str], procedure: Procedure) -> Iterator[Asking]:
    for variant in variants:
        if variant in record.draws:
            conversation = Conversation(record.question, variant, procedure, record.draws[variant])
            yield conversation, record.effective_completions(variant), record.failures.get(variant)


def _became(conversation: Conversation, said: list[Completion], error: str | None) -> Answered:
    """Return what became of a question, a row a draw: of one that is not finished what is missing is unscored."""
    first_replies = any(one.reply.pass_ is Pass.FIRST for one in said) or not conversation.procedure.asks_first
    known, found = completions_and_outcomes(conversation, said) if first_replies else ([], [])
    if len(found) == conversation.draws:
        return Answered(conversation.question, found, known, error)
    reason = NOT_FINISHED if error is None else REQUEST_FAILED
    begun = found or [partial_outcome(conversation, known, reason)]
    to_come = [Outcome(None, None, unscored_reason=reason)] * (conversation.draws - len(begun))
    return Answered(
        conversation.question, [*begun, *to_come], known, error or (FURTHER_DRAWS if found else STILL_TO_COME)
    )


def _with_first_passes(
    folder: RunFolder, settings: Mapping[str, Any], store: ReplyStore, prices: Prices
) -> tuple[pl.DataFrame, Derived]:
    """Return what a forced pass adds up to, together with the first pass that it was made for, and its table."""
    sums = _sums([FORCED], store, procedure_of(settings))
    forced = {
        record.question.question_id: answered[FORCED].outcomes[0]
        for record, answered in _each_answered(store, sums)
        if FORCED in answered
    }
    _check_begun(folder, sums)
    passes = named(settings, from_outcomes(folder.read_outcomes(first_pass_table(folder))))
    # All variants share the forced answers, which therefore count for the first of them.
    first = passes[0].variant
    disagreements = tuple(replace(one, variant=first) for one in sums.disagreements)
    table = to_outcomes(passes, forced)
    return table, Derived(table.lazy(), {first: sums.usage(prices)[FORCED]}, sums.missing, disagreements)
