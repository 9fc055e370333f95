"""Results derived from a run's stored replies: outcome table, usage, missing questions and disagreements of graders."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from refusal_index.data.files import TEMPORARY_SUFFIX
from refusal_index.data.first_pass import FirstPass, from_outcomes, to_outcomes
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED, Grade, Outcome, Question
from refusal_index.data.outcome_table import CONFIDENCE, Identification, outcome_table
from refusal_index.data.run_json import UNPRICED, Prices, refusal_setting
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.models_asked import is_same_model
from refusal_index.findings.reply_checks import ReplyChecks
from refusal_index.findings.run_results import Missing
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
from refusal_index.protocol.grading import RULES
from refusal_index.protocol.refusals import LEFT_TO_GRADER, Detector, recorded_rule
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.reply_counter import ReplyCounter
from refusal_index.runs.store import QuestionRecord, ReplyStore

STILL_TO_COME = "the run ended before it was finished"
"""Reason for a question that did not fail, but that the run ended before."""


@dataclass(frozen=True)
class Disagreement:
    """A reply over which two graders differ.

    Attributes
    ----------
    question, variant, pass_
        The question, the variant and the pass.
    reply
        The reply, verbatim.
    grade, second_grade
        The two verdicts.
    """

    question: Question
    variant: str | None
    pass_: Pass
    reply: str
    grade: Grade
    second_grade: Grade


@dataclass(frozen=True, slots=True)
class Answered:
    """A question under a variant: outcomes of its draws, the replies behind them, and the error if it is unfinished."""

    question: Question
    outcomes: Sequence[Outcome]
    completions: Sequence[Completion]
    error: str | None = None


class Sums:
    """Running totals over questions.

    Parameters
    ----------
    variants
        The variants with questions, in order.
    procedure
        The procedure that interprets their replies.
    """

    def __init__(self, variants: Sequence[str], procedure: TwoPass) -> None:
        self.variants = variants
        self.procedure = procedure
        self.is_begun = False
        """Whether there is any reply or failure."""
        self._counters = {variant: UsageCounter() for variant in variants}
        self._missing: dict[str, list[Missing]] = {variant: [] for variant in variants}
        self._disagreements: dict[str, list[Disagreement]] = {variant: [] for variant in variants}
        self._replies = {variant: ReplyCounter(procedure) for variant in variants}
        self.has_confidence = False
        """Whether any reply came with a confidence."""

    def add(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Add one question with its outcomes under all variants."""
        self.is_begun = self.is_begun or any(
            answered_variant.completions or answered_variant.error != STILL_TO_COME
            for answered_variant in answered.values()
        )
        self._count(record, answered)
        for disagreement in _disagreements(answered):
            self._disagreements[str(disagreement.variant)].append(disagreement)
        for variant, answered_variant in answered.items():
            self.has_confidence |= any(outcome.confidence is not None for outcome in answered_variant.outcomes)
            outcome = next(iter(answered_variant.outcomes), None)  # none if the store is damaged
            if outcome is not None:
                self._replies[variant].add(record.question, outcome)
            self._replies[variant].add_filtered(answered_variant.completions)
            if answered_variant.error is not None:
                self._missing[variant].append(Missing(variant, record.question.question_id, answered_variant.error))

    def _count(self, record: QuestionRecord, answered: Mapping[str, Answered]) -> None:
        """Count the usage of each variant, retired replies included; shared replies count for the first variant."""
        counted: set[int] = set()
        for variant in self.variants:
            replies = answered[variant].completions if variant in answered else ()
            set_aside = (
                completion for completion in record.retired if (completion.variant or self.variants[0]) == variant
            )
            for completion in (*replies, *set_aside):
                if id(completion) not in counted:  # replies of one record are distinct objects
                    counted.add(id(completion))
                    self._counters[variant].add(completion)

    def usage(self, prices: Prices) -> dict[str | None, Usage]:
        """Return the usage of each variant."""
        return {variant: counter.usage(prices) for variant, counter in self._counters.items()}

    @property
    def replies(self) -> dict[str | None, ReplyChecks]:
        """How the replies of each variant were read."""
        return {variant: counter.checks for variant, counter in self._replies.items()}

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Unfinished questions, by variant and id."""
        return tuple(question for missing in self._missing.values() for question in missing)

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Replies on which the graders disagree, by variant and id."""
        return tuple(disagreement for disagreements in self._disagreements.values() for disagreement in disagreements)


def _disagreements(answered: Mapping[str, Answered]) -> Iterator[Disagreement]:
    """Yield each reply to a question on which the graders disagree, once even if it was drawn several times.

    A forced answer shared by several variants belongs to the first of them.
    """
    shared: set[str] = set()
    for disagreement in chain.from_iterable(_of_variant(*item) for item in answered.items()):
        if disagreement.pass_ is Pass.FORCED:
            if disagreement.reply in shared:
                continue
            shared.add(disagreement.reply)
        yield disagreement


def _of_variant(variant: str, answered: Answered) -> Iterator[Disagreement]:
    verdicts: dict[tuple[Pass, int], list[Reply]] = {}
    for completion in answered.completions:
        if completion.reply.role is not Role.MODEL:
            verdicts.setdefault((completion.reply.pass_, completion.draw), []).append(completion.reply)
    for (pass_, draw), verdict_replies in verdicts.items():
        first = grade_by(Role.GRADER, pass_, answered.question, verdict_replies)
        second = grade_by(Role.SECOND_GRADER, pass_, answered.question, verdict_replies)
        if first is not None and second is not None and first is not second:
            reply = next(
                completion.reply.text
                for completion in answered.completions
                if (completion.reply.pass_, completion.draw, completion.reply.role) == (pass_, draw, Role.MODEL)
            )
            yield Disagreement(answered.question, variant, pass_, reply, first, second)


def first_pass_table(folder: RunFolder) -> Path:
    """Return the path of the imported first pass in a folder, an outcome table."""
    return folder.path / "first_pass.parquet"


def named(settings: Mapping[str, Any], passes: Sequence[FirstPass]) -> list[FirstPass]:
    """Name rows that mix two models accordingly."""
    dataset = settings["dataset"]["name"]
    name = model_name(settings["first_pass"]["model"], settings["model"])
    return [replace(first_pass, model=name, dataset=first_pass.dataset or dataset) for first_pass in passes]


def model_name(first: str | None, forced: str) -> str:
    """Return the display name of a first pass and a forced pass by possibly different models.

    Examples
    --------
    >>> model_name("base", "almanac/base"), model_name("gpt-4o", "almanac/base")
    ('base', 'gpt-4o, forced: almanac/base')
    """
    if first is None:
        return f"(not named), forced: {forced}"
    return first if is_same_model(first, forced) else f"{first}, forced: {forced}"


FURTHER_DRAWS = "the run ended before all of its repeated samples were finished"
"""Reason for a question whose further draws are incomplete."""

ROWS_OF_PART = 10_000
"""Outcomes of a variant per part of the table."""

ROWS_OF_GROUP = 100_000
"""Rows per row group of the whole table."""

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""Matches the number of a system error in a message of Polars."""

StoredConversation = tuple[Conversation, list[Completion], str | None]
"""A question under a variant, its stored replies, and the error that kept it from being finished."""


class UnfinishedError(RefusalIndexError, ValueError):
    """Raised for a run without replies."""


@dataclass(frozen=True)
class Derived:
    """Everything derived from a run's replies.

    Attributes
    ----------
    outcomes
        The outcome table in its file, with every question that was asked.
    usage
        Requests, tokens and cost by variant. A forced answer shared by several variants counts for the first of them.
    missing
        Questions that failed or are unfinished.
    disagreements
        Replies over which two graders differ.
    replies
        How the replies of first draws were read, by variant; those of the forced pass alone after an imported first
        pass.
    """

    outcomes: pl.LazyFrame
    usage: Mapping[str | None, Usage]
    missing: tuple[Missing, ...]
    disagreements: tuple[Disagreement, ...] = ()
    replies: Mapping[str | None, ReplyChecks] = field(default_factory=dict)


def procedure_of(settings: Mapping[str, Any], detector: Detector | None = None) -> TwoPass:
    """Return the procedure that interprets the replies of a run's folder.

    Parameters
    ----------
    settings
        The settings recorded in the folder.
    detector
        The function by which they recognise refusals, if they name one.

    Raises
    ------
    PatternError
        If they name a function that is not given.

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
        kind = GraderKind(rule) if rule in RULES else GraderKind.MODEL
    refusal = refusal_setting(settings)
    refusals = LEFT_TO_GRADER if refusal is None else recorded_rule(refusal, detector)
    refusals = replace(refusals, reasoning=grader.get("reasoning"))
    answered_only = bool(settings.get("answered_only"))
    if "first_pass" in settings:
        return ForcedPass(kind, refusals=refusals)
    if "regraded_from" in settings:
        return Regrading(kind, refusals=refusals, answered_only=answered_only)
    return FirstPassOnly(kind, refusals=refusals) if answered_only else TwoPass(kind, refusals=refusals)


def derive_into(
    target: Path,
    folder: RunFolder,
    store: ReplyStore,
    prices: Prices = UNPRICED,
    detector: Detector | None = None,
) -> Derived:
    """Write the outcome table of a run's replies, variants in the order of their prompt set.

    Unless the first pass was imported, only parts of the table are in memory at a time.

    Parameters
    ----------
    target
        The Parquet file. It is not written atomically. A folder beside it holds the parts of the table until they are
        joined.
    folder, store
        The run's folder and its replies.
    prices
        The prices of its models.
    detector
        The function by which it recognises refusals, if it does so by one.

    Raises
    ------
    UnfinishedError
        If there are no replies and no failures; nothing is written.
    RunFolderError
        If the folder is not a run's.
    OSError
        If the file cannot be written.
    """
    settings = folder.read_complete_settings()
    procedure = procedure_of(settings, detector)
    if "first_pass" in settings:
        table, derived = _with_first_passes(folder, settings, store, prices, procedure)
        with _raising_os_errors(target):
            table.write_parquet(target)
        return replace(derived, outcomes=pl.scan_parquet(target, glob=False))
    sums = _sums(settings["prompts"]["variants"], store, procedure)
    with (
        _raising_os_errors(target),
        TemporaryDirectory(TEMPORARY_SUFFIX, f"{target.name}.", target.parent) as parts_folder,
    ):
        written: dict[str, list[Path]] = {variant: [] for variant in sums.variants}
        for variant, part in _parts(settings, store, sums):
            path = Path(parts_folder, f"{sum(map(len, written.values()))}.parquet")
            if CONFIDENCE not in part.columns:
                part.insert_column(
                    part.width, pl.repeat(None, part.height, dtype=pl.Float64, eager=True).alias(CONFIDENCE)
                )
            part.write_parquet(path, compression="lz4")
            written[variant].append(path)
        _check_begun(folder, sums)
        joined = pl.scan_parquet([path for paths in written.values() for path in paths], glob=False)
        joined = joined if sums.has_confidence else joined.drop(CONFIDENCE)
        joined.sink_parquet(target, row_group_size=ROWS_OF_GROUP)
    return Derived(
        pl.scan_parquet(target, glob=False), sums.usage(prices), sums.missing, sums.disagreements, sums.replies
    )


@contextmanager
def _raising_os_errors(path: Path) -> Iterator[None]:
    """Convert Polars' errors of the system, such as a full disk, to OSError."""
    try:
        yield
    except pl.exceptions.ComputeError as error:
        match = OS_ERROR.search(str(error))
        number, message = (
            (int(match[1]), os.strerror(int(match[1]))) if match else (errno.EIO, str(error).splitlines()[0])
        )
        raise OSError(number, message, str(path)) from error


def _sums(order: Iterable[str], store: ReplyStore, procedure: TwoPass) -> Sums:
    stored = store.variants()
    return Sums([variant for variant in order if variant in stored], procedure)


def _check_begun(folder: RunFolder, sums: Sums) -> None:
    if not sums.is_begun:
        raise UnfinishedError(f"{folder.path}: nothing was answered yet; run the same command again to resume")


def _parts(settings: Mapping[str, Any], store: ReplyStore, sums: Sums) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield parts of the outcome table, each of one variant, and update the totals."""
    identifications = {
        variant: Identification(settings["model"], settings["dataset"]["name"], variant) for variant in sums.variants
    }
    rows: dict[str, list[tuple[Identification, Question, Outcome]]] = {variant: [] for variant in sums.variants}
    for record, answered in _each_answered(store, sums):
        for variant, answered_variant in answered.items():
            part = rows[variant]
            run = identifications[variant]
            part += (
                (replace(run, draw=draw) if draw else run, record.question, outcome)
                for draw, outcome in enumerate(answered_variant.outcomes)
            )
            if len(part) >= ROWS_OF_PART:
                yield variant, outcome_table(part)
                part.clear()
    yield from ((variant, outcome_table(part)) for variant, part in rows.items() if part)


def _each_answered(store: ReplyStore, sums: Sums) -> Iterator[tuple[QuestionRecord, dict[str, Answered]]]:
    """Yield every question with its outcomes under each variant, and update the totals."""
    for record in store.each_question():
        answered = {
            asked[0].variant: _answered(*asked) for asked in _conversations_of(record, sums.variants, sums.procedure)
        }
        sums.add(record, answered)
        yield record, answered


def each_conversation(store: ReplyStore, variants: Iterable[str], procedure: Procedure) -> Iterator[StoredConversation]:
    """Yield every question that was asked, its replies, and the error that kept it from being finished.

    They are ordered by variant and id, not by time, so that floating-point sums over them are reproducible.
    """
    for variant in variants:
        for record in store.each_question():
            yield from _conversations_of(record, [variant], procedure)


def _conversations_of(
    record: QuestionRecord, variants: Iterable[str], procedure: Procedure
) -> Iterator[StoredConversation]:
    for variant in variants:
        if variant in record.draws:
            conversation = Conversation(record.question, variant, procedure, record.draws[variant])
            yield conversation, record.effective_completions(variant), record.failures.get(variant)


def _answered(conversation: Conversation, completions: list[Completion], error: str | None) -> Answered:
    """Return the outcomes of a question, one per draw; draws that are unfinished are unscored."""
    is_begun = not conversation.procedure.asks_first or any(item.reply.pass_ is Pass.FIRST for item in completions)
    used, derived = completions_and_outcomes(conversation, completions) if is_begun else ([], [])
    derived = _with_confidence(derived, used)
    if len(derived) == conversation.draws:
        return Answered(conversation.question, derived, used, error)
    reason = NOT_FINISHED if error is None else REQUEST_FAILED
    begun = derived or [partial_outcome(conversation, used, reason)]
    to_come = [Outcome(None, None, unscored_reason=reason)] * (conversation.draws - len(begun))
    return Answered(
        conversation.question, [*begun, *to_come], used, error or (FURTHER_DRAWS if derived else STILL_TO_COME)
    )


def _with_confidence(outcomes: list[Outcome], used: Iterable[Completion]) -> list[Outcome]:
    """Add the confidence that came with the answer of each draw that counts: the first one, or if refused, the forced.

    Draws that share a reply share an outcome, but each has a confidence of its own.
    """
    given = {
        (completion.reply.pass_, completion.draw): completion.confidence
        for completion in used
        if completion.confidence is not None
    }
    if not given:
        return outcomes
    passes = {False: Pass.FIRST, True: Pass.FORCED}
    return [
        outcome if outcome.refused is None else replace(outcome, confidence=given.get((passes[outcome.refused], draw)))
        for draw, outcome in enumerate(outcomes)
    ]


def _with_first_passes(
    folder: RunFolder, settings: Mapping[str, Any], store: ReplyStore, prices: Prices, procedure: TwoPass
) -> tuple[pl.DataFrame, Derived]:
    """Return the outcome table of a forced pass joined to its imported first pass, and all else derived from it."""
    sums = _sums([FORCED], store, procedure)
    forced = {
        record.question.question_id: answered[FORCED].outcomes[0]
        for record, answered in _each_answered(store, sums)
        if FORCED in answered
    }
    _check_begun(folder, sums)
    passes = named(settings, from_outcomes(folder.read_outcomes(first_pass_table(folder))))
    # All variants share the forced answers, so they count for the first.
    first = passes[0].variant
    disagreements = tuple(replace(disagreement, variant=first) for disagreement in sums.disagreements)
    table = to_outcomes(passes, forced)
    usage = {first: sums.usage(prices)[FORCED]}
    replies = {first: sums.replies[FORCED]}
    return table, Derived(table.lazy(), usage, sums.missing, disagreements, replies)
