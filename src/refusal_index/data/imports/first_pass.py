"""The first pass over one question, as someone else ran and graded it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.datasets.dataset import DatasetError
from refusal_index.data.outcome import FORCED_NOT_ASKED, Grade, Outcome, Question
from refusal_index.data.outcome_table import OPTIONAL, Identification, outcome_table

NOT_GRADED = "first_not_graded"
"""Reason of a question that nobody graded, or of an answer of which nobody said whether it is right."""

FORCED_NOT_GRADED = "forced_not_graded"
"""Reason of a refused question whose forced answer nobody graded."""

FORCED = "forced"
"""The variant of the forced pass."""

NOT_KNOWN = ""
"""In place of a question or a gold answer that the file does not hold."""


class FirstPassError(DatasetError):
    """A file of first passes that cannot be used; the message names the file and the line."""


@dataclass(frozen=True)
class Beyond:
    """What a file of first passes knows besides them: none of it changes what a forced pass asks."""

    forced: Outcome | None = None  # what became of the forced pass, where somebody asked and graded it
    # A grade that stands beside a refusal and may be of the refusal or of a forced answer: the file does not say.
    set_aside: Grade | None = None
    # p_answering, confidence: probabilities that somebody else gave the question
    p_answering: float | None = None
    confidence: float | None = None


def forced_outcome(grade: Grade | None, reply: str | None = None) -> Outcome:
    """Return what became of a forced pass with this grade; without one it was asked and is unscored."""
    scored = grade not in (None, Grade.UNSCORED)
    return Outcome(
        refused=True,
        wrong=grade is not Grade.CORRECT if scored else None,
        forced_grade=grade if scored else Grade.UNSCORED,
        unscored_reason=None if scored else FORCED_NOT_GRADED,
        forced_reply=reply,
    )


@dataclass(frozen=True)
class FirstPass:
    """What a model said in the first pass, and the grade it was given.

    >>> refused = FirstPass(Question("q1", "Capital of France?", "Paris"), "m", "d", Grade.REFUSED)
    >>> refused.outcome().unscored_reason
    'forced_not_asked'
    """

    # With `NOT_KNOWN` in place of a text or a gold answer that the file does not hold. A gold answer of None says that
    # there is none: no forced answer can be right.
    question: Question
    # model, dataset, variant: who was asked what under which prompt; None where the file does not say
    model: str | None
    dataset: str | None
    grade: Grade | None  # As given there. None where the model answered and nobody said whether it is right.
    reply: str | None = None  # what the model said, word for word, where known
    variant: str | None = None
    draw: int = 0  # number of the repetition, from 0
    reason: str | None = None  # why the grade is ``unscored``; None for any other
    beyond: Beyond = field(default_factory=Beyond)  # what the file knows besides the first pass

    @property
    def asked(self) -> Identification:
        """Whose it is, as the outcome table says it."""
        return Identification(self.model, self.dataset, self.variant, self.draw)

    @property
    def needs_forcing(self) -> bool:
        """Whether it takes a forced answer to score the question, and nobody asked for one."""
        return self.grade is Grade.REFUSED and self.question.gold is not None and self.beyond.forced is None

    @property
    def forced_id(self) -> str:
        """The id of its forced question: the draws of a question are forced one by one, its variants share one."""
        question_id = self.question.question_id
        return f"{question_id} (draw {self.draw + 1})" if self.draw else question_id

    def outcome(self, forced: Outcome | None = None) -> Outcome:
        """Return the outcome of the question; without that of its forced pass, not yet whether it is wrong."""
        forced = forced or self.beyond.forced
        refused, wrong, reason = self._first_outcome()
        if refused and self.question.gold is not None and forced is not None:
            return replace(forced, refused=True, first_grade=self.grade, first_reply=self.reply)
        if refused is False and self.beyond.forced is not None:
            grade, reply = self.beyond.forced.forced_grade, self.beyond.forced.forced_reply
            return Outcome(refused, wrong, self.grade, grade, reason, self.reply, reply)
        # Where no answer can be right, none is asked for.
        return Outcome(refused, wrong, self.grade, Grade.INCORRECT if refused and wrong else None, reason, self.reply)

    def _first_outcome(self) -> tuple[bool | None, bool | None, str | None]:
        """Return `refused`, `wrong` and the reason why one of them is None, of the first pass alone."""
        if self.grade is Grade.REFUSED:
            return (True, None, FORCED_NOT_ASKED) if self.needs_forcing else (True, True, None)
        if self.grade is Grade.UNSCORED:
            return None, None, self.reason or NOT_GRADED
        if self.grade is None:
            return False, None, NOT_GRADED
        return False, self.grade is Grade.INCORRECT, None


def to_outcomes(passes: Iterable[FirstPass], forced: Mapping[str, Outcome] | None = None) -> pl.DataFrame:
    """Return the outcome table of first passes: where one refused, `wrong` is null until the forced pass is asked.

    Raises OutcomeTableError if a question occurs twice in one draw of a model.

    - `passes`: the first passes, in the order of the table.
    - `forced`: the outcomes of forced questions, by `FirstPass.forced_id`.
    """
    passes, forced = tuple(passes), forced or {}
    table = outcome_table((each.asked, each.question, each.outcome(forced.get(each.forced_id))) for each in passes)
    probabilities = [
        pl.Series(name, [getattr(each.beyond, name) for each in passes], kind) for name, kind in OPTIONAL.items()
    ]
    return table.with_columns(
        pl.col("question", "gold").replace(NOT_KNOWN, None),
        *(column for column in probabilities if column.is_not_null().any()),
    )


def without_forced(first: FirstPass) -> FirstPass:
    """Return the first pass as if nobody had asked further: a forced pass of one's own takes the place of the other."""
    return replace(first, beyond=replace(first.beyond, forced=None, set_aside=None))


def self_contained(first: FirstPass) -> FirstPass:
    """Return the first pass with its context in the question's text, as an outcome table has no column for contexts."""
    question = first.question
    if question.context is None:
        return first
    return replace(first, question=replace(question, text=f"{question.context}\n\n{question.text}", context=None))


def from_outcomes(table: pl.DataFrame) -> tuple[FirstPass, ...]:
    """Return the first passes that an outcome table holds, with the forced answers that are there."""
    return tuple(map(_from_row, table.iter_rows(named=True)))


def _from_row(row: dict[str, Any]) -> FirstPass:
    refused, wrong = row["refused"], row["wrong"]
    # A refused question that is wrong without a forced answer is one to which no answer can be right.
    is_unanswerable = (
        refused and row["forced_grade"] == Grade.INCORRECT.value and row["forced_reply"] is None and row["gold"] is None
    )
    if refused is None:
        grade: Grade | None = Grade.UNSCORED
    elif refused:
        grade = Grade.REFUSED
    else:
        grade = {None: None, True: Grade.INCORRECT, False: Grade.CORRECT}[wrong]
    forced_grade = None if row["forced_grade"] is None else Grade(row["forced_grade"])
    forced = None
    if refused is not None and not is_unanswerable and (forced_grade is not None or (refused and wrong is not None)):
        reason = row["unscored_reason"] if refused and wrong is None else None
        forced = Outcome(True, wrong if refused else None, None, forced_grade, reason, None, row["forced_reply"])
    gold = None if is_unanswerable else row["gold"] or NOT_KNOWN
    return FirstPass(
        question=Question(row["question_id"], row["question"] or NOT_KNOWN, gold, topic=row["topic"]),
        model=row["model"],
        dataset=row["dataset"],
        grade=grade,
        reply=row["first_reply"],
        variant=row["variant"],
        draw=row["draw"],
        reason=row["unscored_reason"] if refused is None else None,
        beyond=Beyond(forced, None, row.get("p_answering"), row.get("confidence")),
    )


def with_forced(first: Sequence[FirstPass], forced: Sequence[FirstPass], source: str) -> tuple[FirstPass, ...]:
    """Return first passes with what became of the forced pass, as another file has it.

    Rows belong together by question id; also by model, variant and draw, wherever the other file tells all of those
    apart that the first does. A forced pass that several variants share is given to each. A row whose question is not
    in the other file is left as it is. Raises FirstPassError if the other file has a question twice, or none of those
    that were refused.

    - `first`: the first passes.
    - `forced`: the rows of the other file, read as if they were first passes: their grade is that of the forced answer.
    - `source`: the other file, for messages.
    """
    shared = [
        name
        for name in ("model", "variant", "draw")
        if {getattr(each, name) for each in first} <= {getattr(each, name) for each in forced}
    ]

    def key(each: FirstPass) -> tuple[Any, ...]:
        return (each.question.question_id, *(getattr(each, name) for name in shared))

    by_key: dict[tuple[Any, ...], FirstPass] = {}
    for each in forced:
        if by_key.setdefault(key(each), each) is not each:
            raise FirstPassError(
                f"{source}: expected every question once, got {each.question.question_id!r} twice; keep the rows of "
                "one model in a file, or name the columns that tell them apart with --column model=NAME or draw=NAME"
            )
    refused = [each for each in first if each.needs_forcing]
    if refused and not any(key(each) in by_key for each in refused):
        raise FirstPassError(
            f"{source}: expected the forced answers to questions that were refused, got none of {len(refused):,} "
            f"(first: {refused[0].question.question_id!r}; this file begins with "
            f"{forced[0].question.question_id!r}); name the column of ids in both with --column question_id=NAME"
        )
    joined = []
    for each in first:
        if (second := by_key.get(key(each))) is not None:
            beyond = replace(each.beyond, forced=forced_outcome(second.grade, second.reply), set_aside=None)
            joined.append(replace(each, beyond=beyond))
        else:
            joined.append(each)
    return tuple(joined)


def check_order(first: Sequence[FirstPass], file: Path, forced: Path) -> None:
    """Raise FirstPassError if the file of the first pass says of all its rows that they are the forced pass."""
    if first and all(each.variant == FORCED for each in first):
        raise FirstPassError(
            f"{file}: expected the first pass, in which a model may refuse, got {len(first):,} rows of the forced "
            f"pass; the first pass comes first: import {forced} --forced {file}"
        )


def with_rows_of_forced(passes: Sequence[FirstPass]) -> tuple[FirstPass, ...]:
    """Join the rows of the variant ``forced``, which is the second pass wherever there is one, to the others.

    Raises FirstPassError as `with_forced`, or if there are no others.
    """
    first = [each for each in passes if each.variant != FORCED]
    forced = [each for each in passes if each.variant == FORCED]
    if not forced:
        return tuple(passes)
    if not first:
        raise FirstPassError(
            f"expected the first pass, in which a model may refuse, got {len(forced):,} rows of the forced pass alone; "
            "name the file of the first pass too"
        )
    return with_forced(first, forced, "the forced pass")
