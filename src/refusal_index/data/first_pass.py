"""First passes that another tool ran and graded, one per question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.datasets.dataset import Dataset, DatasetError
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_GRADED, Grade, Outcome, Question
from refusal_index.data.outcome_table import OPTIONAL, SCHEMA, Identification, outcome_table
from refusal_index.data.text import plain_text
from refusal_index.errors import listed, suggestion

FORCED_NOT_GRADED = "forced_not_graded"
"""`unscored_reason` of a refused question whose forced answer was not graded."""

FIRST_EMPTY = "first_empty"
"""`unscored_reason` of a question whose reply is empty."""

FORCED_EMPTY = "forced_empty"
"""`unscored_reason` of a refused question whose forced answer is empty."""

FORCED = "forced"
"""The variant of the forced pass."""

NOT_KNOWN = ""
"""Stands for a question or a gold answer that is not in the file."""


class FirstPassError(DatasetError):
    """A file of first passes that cannot be used; the message names the file and the line."""


NOT_IDENTIFYING = ("reading", "forced", "set_aside", "unused_grades", "p_answering", "confidence")
"""Fields that do not change what the forced pass asks, and so do not identify its run."""


def forced_outcome(grade: Grade | None, reply: str | None = None, reason: str = FORCED_NOT_GRADED) -> Outcome:
    """Return the outcome of a forced pass with this grade; without a grade it is unscored, for this reason."""
    scored = grade not in (None, Grade.UNSCORED)
    return Outcome(
        refused=True,
        wrong=grade is not Grade.CORRECT if scored else None,
        forced_grade=grade if scored else Grade.UNSCORED,
        unscored_reason=None if scored else reason,
        forced_reply=reply,
    )


@dataclass(frozen=True)
class FirstPass:
    """The reply of a model in the first pass, and its grade.

    >>> refused = FirstPass(Question("q1", "Capital of France?", "Paris"), "m", "d", Grade.REFUSED)
    >>> refused.outcome().unscored_reason
    'forced_not_asked'
    """

    # A text or a gold answer that is not in the file is `NOT_KNOWN`. A gold answer of None means that no answer is
    # right.
    question: Question
    # model, dataset, variant: None if not in the file
    model: str | None
    dataset: str | None
    grade: Grade | None  # as in the file; None for an answer without a grade
    reply: str | None = None  # the reply verbatim; None if unknown
    variant: str | None = None
    draw: int = 0  # index of the repeated sample, from 0
    reason: str | None = None  # why the grade is ``unscored``; None for other grades
    # The fields of `NOT_IDENTIFYING`: what the file contains besides the first pass.
    reading: str | None = None  # what the reply was read as, in an outcome table; None if not known
    forced: Outcome | None = None  # outcome of the forced pass; None if it was not run or graded
    # Grade of a refused question that may belong to the refusal or to a forced answer: the file does not say.
    set_aside: Grade | None = None
    unused_grades: int = 0  # number of grades in the file that are not used, because their reply is empty
    # p_answering, confidence: probabilities in the file
    p_answering: float | None = None
    confidence: float | None = None
    is_marked_answerable: bool = False  # whether the file says that the question has a right answer

    @property
    def identification(self) -> Identification:
        """The model, dataset, variant and draw, as in the outcome table."""
        return Identification(self.model, self.dataset, self.variant, self.draw)

    @property
    def answerable(self) -> bool | None:
        """Whether the question has a right answer; None if unknown."""
        is_known = self.is_marked_answerable or self.question.gold != NOT_KNOWN
        return self.question.gold is not None if is_known else None

    @property
    def needs_forcing(self) -> bool:
        """Whether scoring the question needs a forced answer that is missing."""
        return self.grade is Grade.REFUSED and self.question.gold is not None and self.forced is None

    @property
    def forced_id(self) -> str:
        """Id of its forced question: each draw of a question is forced separately; variants share one."""
        question_id = self.question.question_id
        return f"{question_id} (draw {self.draw + 1})" if self.draw else question_id

    def without_reply(self, reason: str) -> FirstPass:
        """Return it unscored for this reason: an empty reply is no evidence, whatever grade it was given."""
        is_graded = self.grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED)
        unused = self.unused_grades + is_graded
        return replace(self, grade=Grade.UNSCORED, reason=reason, forced=None, set_aside=None, unused_grades=unused)

    def outcome(self, forced: Outcome | None = None) -> Outcome:
        """Return the outcome of the question; `wrong` is None if it needs a forced pass and has none."""
        forced = forced or self.forced
        refused: bool | None = self.grade is Grade.REFUSED
        wrong: bool | None = self.grade is not Grade.CORRECT
        reason = None
        if self.needs_forcing:
            wrong = None
            reason = FORCED_NOT_ASKED
        elif self.grade is None:
            wrong = None
            reason = NOT_GRADED
        elif self.grade is Grade.UNSCORED:
            refused = None
            wrong = None
            reason = self.reason or NOT_GRADED
        if refused and self.question.gold is not None and forced is not None:
            given = self.confidence if self.confidence is not None else forced.confidence
            forced = replace(forced, refused=True, confidence=given)
            return replace(forced, first_grade=self.grade, first_reply=self.reply, reading=self.reading)
        forced_grade = Grade.INCORRECT if refused and wrong else None  # if no answer can be right, none is requested
        forced_reply = None
        if refused is False and self.forced is not None:
            forced_grade = self.forced.forced_grade
            forced_reply = self.forced.forced_reply
        replies = (self.reply, forced_reply)
        return Outcome(refused, wrong, self.grade, forced_grade, reason, *replies, self.reading, self.confidence)


@dataclass(frozen=True)
class Conflict:
    """A column that could be the grade too, and gives other grades."""

    used: str  # the column that is used
    other: str  # the other one
    different: int  # number of rows with different grades
    compared: int  # number of rows with a grade in both
    holds_grades: bool  # whether it is a column of grades, rather than a flag


@dataclass(frozen=True)
class Incomplete:
    """A log that does not have every sample of its dataset, or whose evaluation did not succeed."""

    samples: int  # number of different samples in the log
    expected: int | None  # number of samples that were to be evaluated; None if unknown
    status: str  # ``"error"``, ``"cancelled"``, ``"started"`` or ``"success"``


@dataclass(frozen=True)
class FirstPasses:
    """The first passes of a file, and what was not used of it."""

    passes: tuple[FirstPass, ...]
    columns: Mapping[str, str] = field(default_factory=dict)  # the columns that were used, by role
    not_used: tuple[str, ...] = ()  # columns that were not used
    other_scorers: tuple[str, ...] = ()  # scorers of a log, or metrics of samples, that were not used
    grade_columns: tuple[str, ...] = ()  # those of `not_used` that hold grades
    conflicts: tuple[Conflict, ...] = ()
    incomplete: Incomplete | None = None
    is_fixed: bool = False  # whether the columns of the file are fixed, so that no other can be named
    # whether the model wrote no replies, because the likelihoods of given answers were compared
    compared_likelihoods: bool = False
    several_replies: int = 0  # samples with more replies than the first, which is read
    repeated: int = 0  # rows with the same question as another one, which were counted as questions of their own
    overruled: Mapping[str, int] = field(default_factory=dict)  # answers by grade that `refusal` made refusals

    @property
    def has_replies(self) -> bool:
        """Whether it holds what the model wrote."""
        return not self.compared_likelihoods and any(first_pass.reply is not None for first_pass in self.passes)


def to_outcomes(passes: Iterable[FirstPass], forced: Mapping[str, Outcome] | None = None) -> pl.DataFrame:
    """Return first passes as an outcome table; `wrong` is null for refusals without a forced pass.

    Raises OutcomeTableError if a question occurs twice in one draw of a model.

    - `passes`: the first passes, in the order of the table.
    - `forced`: the outcomes of forced questions, by `FirstPass.forced_id`.
    """
    passes = tuple(passes)
    forced = forced or {}
    table = outcome_table(
        (first_pass.identification, first_pass.question, first_pass.outcome(forced.get(first_pass.forced_id)))
        for first_pass in passes
    )
    answerable = pl.Series("answerable", [first_pass.answerable for first_pass in passes], pl.Boolean)
    answering = pl.Series("p_answering", [first_pass.p_answering for first_pass in passes], pl.Float64)
    known = [answerable, answering] if answering.is_not_null().any() else [answerable]
    table = table.with_columns(pl.col("question", "gold").replace(NOT_KNOWN, None), *known)
    return table.select(*SCHEMA, *(name for name in OPTIONAL if name in table.columns))


def self_contained(first: FirstPass) -> FirstPass:
    """Return the first pass with its context in the question's text; outcome tables have no context."""
    question = first.question
    if question.context is None:
        return first
    return replace(first, question=replace(question, text=f"{question.context}\n\n{question.text}", context=None))


def from_outcomes(table: pl.DataFrame) -> tuple[FirstPass, ...]:
    """Return the first passes in an outcome table, with their forced answers if present."""
    return tuple(map(_from_row, table.iter_rows(named=True)))


def _from_row(row: dict[str, Any]) -> FirstPass:
    refused = row["refused"]
    wrong = row["wrong"]
    is_unanswerable = row["answerable"] is False
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
        reading=row["reading"],
        forced=forced,
        p_answering=row.get("p_answering"),
        confidence=row.get("confidence"),
        is_marked_answerable=row["answerable"] is True and gold == NOT_KNOWN,
    )


def with_forced(
    first: Sequence[FirstPass], forced: Sequence[FirstPass], source: str, text_column: str = "question"
) -> tuple[FirstPass, ...]:
    """Return first passes with the outcomes of their forced passes from another file.

    Rows are joined by question id, and also by model, variant and draw if the other file has all values that the first
    has. A forced pass that several variants share is used for each. Rows without a match are unchanged. Raises
    FirstPassError if the other file has a question twice, or none of the refused ones, or others under their ids.

    - `first`: the first passes.
    - `forced`: the rows of the other file, read as first passes; their grade is that of the forced answer.
    - `source`: name of the other file, for messages.
    - `text_column`: the column of questions in the first file, for messages.
    """
    shared = [
        name
        for name in ("model", "variant", "draw")
        if {getattr(first_pass, name) for first_pass in first} <= {getattr(first_pass, name) for first_pass in forced}
    ]
    models = dict.fromkeys(first_pass.model or "(not named)" for first_pass in first)
    if len(models) > 1 and "model" not in shared:
        named = dict.fromkeys(first_pass.model or "(not named)" for first_pass in forced)
        raise FirstPassError(
            f"{source}: expected the forced answers of {listed(models)}, got those of {listed(named)}; keep the rows "
            "of one model in a file, or name the column of models in both files"
        ).with_remedy("column", "model=NAME")

    def key(row: FirstPass) -> tuple[Any, ...]:
        return (row.question.question_id, *(getattr(row, name) for name in shared))

    by_key: dict[tuple[Any, ...], FirstPass] = {}
    for first_pass in forced:
        if by_key.setdefault(key(first_pass), first_pass) is not first_pass:
            raise FirstPassError(
                f"{source}: expected every question once, got {first_pass.question.question_id!r} twice; keep the rows "
                "of one model in a file, or name the column that tells them apart, which holds their model or draw,"
            ).with_remedy("column", "model=NAME")
    refused = [first_pass for first_pass in first if first_pass.needs_forcing]
    matched = [(first_pass, by_key[key(first_pass)]) for first_pass in refused if key(first_pass) in by_key]
    n_same = sum(_have_same_text(*pair) for pair in matched)
    if refused and (not matched or 2 * n_same < len(matched)):
        texts = {plain_text(first_pass.question.text) for first_pass in forced} - {NOT_KNOWN}
        n_texts = sum(plain_text(first_pass.question.text) in texts for first_pass in refused)
        advice = f"{n_texts:,} have the same text; match by text" if n_texts else "name the column of ids in both files"
        raise FirstPassError(
            f"{source}: expected the forced answers to questions that were refused, got {n_same:,} of {len(refused):,} "
            f"by their ids (first: {refused[0].question.question_id!r}; this file begins with "
            f"{forced[0].question.question_id!r}; the column needs one name in both files); {advice}"
        ).with_remedy("column", f"question_id={text_column if n_texts else 'NAME'}")
    joined = []
    for first_pass in first:
        second = by_key.get(key(first_pass))
        joined.append(first_pass if second is None else _with_second(first_pass, second))
    return tuple(joined)


def _have_same_text(first_pass: FirstPass, second: FirstPass) -> bool:
    """Whether two rows may ask the same: a text that is known may be the whole prompt with the question in it."""
    texts = plain_text(first_pass.question.text), plain_text(second.question.text)
    return texts[0] in texts[1] or texts[1] in texts[0]


def _with_second(first_pass: FirstPass, second: FirstPass) -> FirstPass:
    """Return a first pass with the forced answer from another row, which has been read as a first pass."""
    reason = FORCED_EMPTY if second.reason == FIRST_EMPTY else FORCED_NOT_GRADED
    outcome = forced_outcome(second.grade, second.reply, reason)
    unused = first_pass.unused_grades + (second.unused_grades if first_pass.grade is Grade.REFUSED else 0)
    return replace(first_pass, forced=outcome, set_aside=None, unused_grades=unused)


def check_order(first: Sequence[FirstPass], file: Path, forced: Path) -> None:
    """Raise FirstPassError if the files are one, or swapped: every row of the first is of the forced pass."""
    if first and all(first_pass.variant == FORCED for first_pass in first):
        raise FirstPassError(
            f"{file}: expected the first pass, in which a model may refuse, got {len(first):,} rows of the forced "
            f"pass; the first pass comes first: import {forced} --forced {file}"
        )
    if file.resolve() == forced.resolve():
        raise FirstPassError(f"expected the file of the forced answers, got {file} again; name the other file").about(
            "forced"
        )


def with_rows_of_forced(passes: Sequence[FirstPass]) -> tuple[FirstPass, ...]:
    """Join the rows of the variant ``forced``, which are forced passes, to the first passes.

    Raises the errors of `with_forced`, and FirstPassError if all rows are forced passes.
    """
    first = [first_pass for first_pass in passes if first_pass.variant != FORCED]
    forced = [first_pass for first_pass in passes if first_pass.variant == FORCED]
    if not forced:
        return tuple(passes)
    if not first:
        raise FirstPassError(
            f"expected the first pass, in which a model may refuse, got {len(forced):,} rows of the forced pass alone; "
            "name the file of the first pass too"
        )
    return with_forced(first, forced, "the forced pass")


def of_one_model(passes: Sequence[FirstPass], source: str, name: str | None) -> tuple[FirstPass, ...]:
    """Return the first passes of one model on one dataset.

    Raises FirstPassError if the model is not in the file, if there are several and none is named, or if it was asked
    several datasets.

    - `passes`: all first passes in the file.
    - `source`: the file, for messages.
    - `name`: the model's name in the file; None if there is only one.
    """
    models = list(dict.fromkeys(first_pass.model or "(not named)" for first_pass in passes))
    if name is None and len(models) > 1:
        raise FirstPassError(f"{source} holds {len(models)} models ({', '.join(models)}); choose one").with_remedy(
            "name", models[0]
        )
    if name is not None and name not in models:
        raise FirstPassError(
            f"expected one of the models in {source}, {', '.join(models)}, got {name!r}{suggestion(name, models)}"
        ).about("name")
    name = name or models[0]
    chosen = tuple(first_pass for first_pass in passes if (first_pass.model or "(not named)") == name)
    datasets = list(dict.fromkeys(first_pass.dataset or "(not named)" for first_pass in chosen))
    if len(datasets) > 1:
        raise FirstPassError(
            f"{source} holds {name} on {len(datasets)} datasets ({', '.join(datasets)}); keep the rows of one in a "
            "file of its own"
        )
    return chosen


def questions_to_force(passes: Iterable[FirstPass], source: str) -> tuple[Question, ...]:
    """Return every refused question once per draw, with `FirstPass.forced_id` as its id.

    Raises FirstPassError if nothing was refused, questions or gold answers are missing, or two prompt variants have
    different questions under one id.
    """
    every = [first_pass for first_pass in passes if first_pass.grade is Grade.REFUSED]
    refused = [first_pass for first_pass in every if first_pass.needs_forcing]
    if every and not refused:
        raise FirstPassError(
            f"{source}: expected refused questions that have a right answer, got {len(every):,} without one: a forced "
            "answer would be wrong whatever it is; use 'refusal-index import' or 'score', which accept this file"
        )
    if not refused:
        raise FirstPassError(
            f"{source}: expected refused questions, got none; if its grades are right and wrong only, recognise "
            "refusals by their wording, or by +REGEX of your own,"
        ).with_remedy("refusal", "wording")
    for role, field_ in (("question", "text"), ("answer", "gold")):
        lacking = [first_pass for first_pass in refused if getattr(first_pass.question, field_) == NOT_KNOWN]
        if lacking:
            raise FirstPassError(
                f"{source}: expected the {role} of every refused question, got {len(lacking):,} of {len(refused):,} "
                f"without one (first: question_id {lacking[0].question.question_id!r}); add a column for it, or name "
                "the one that holds it"
            ).with_remedy("column", f"{role}=NAME")
    questions: dict[str, Question] = {}
    for first_pass in refused:
        question = replace(first_pass.question, question_id=first_pass.forced_id)
        if questions.setdefault(first_pass.forced_id, question).text != question.text:
            raise FirstPassError(
                f"{source}: expected one question of the id {first_pass.question.question_id!r}, got two with "
                "different texts; give each an id of its own"
            )
    return tuple(questions.values())


def filled_in(passes: Sequence[FirstPass], dataset: Dataset, *, by_id: bool, source: str) -> tuple[FirstPass, ...]:
    """Return first passes with missing questions, gold answers and dataset names filled in from a dataset.

    Questions are matched by id, if the file's text contains the dataset's, or else by text. Text and gold answer in the
    file are kept; context, choices and pattern come from the dataset. Raises FirstPassError if a refused question is
    incomplete and not in the dataset.

    - `passes`, `source`: the first passes, and their file, for messages.
    - `dataset`: its questions.
    - `by_id`: whether the file's ids can be those of the dataset (see `has_ids`).
    """
    ids = {question.question_id: question for question in dataset.questions} if by_id else {}
    frequency = Counter(plain_text(question.text) for question in dataset.questions)
    texts = {text: question for question in dataset.questions if frequency[text := plain_text(question.text)] == 1}
    filled = []
    for first_pass in passes:
        prompt = plain_text(first_pass.question.text)
        same = ids.get(first_pass.question.question_id)
        is_same = same is not None and (not prompt or plain_text(same.text) in prompt)
        question = _filled_in(first_pass.question, same if is_same else texts.get(prompt))
        filled.append(replace(first_pass, question=question, dataset=first_pass.dataset or dataset.name))
    refused = [first_pass for first_pass in filled if first_pass.needs_forcing]
    lacking = [
        first_pass for first_pass in refused if NOT_KNOWN in (first_pass.question.text, first_pass.question.gold)
    ]
    if lacking:
        raise FirstPassError(
            f"{source}: expected every refused question in the dataset {dataset.name!r}, by its id or its text, got "
            f"{len(lacking):,} of {len(refused):,} that are not there (first: question_id "
            f"{lacking[0].question.question_id!r}); choose the dataset that was asked (--dataset, --data), or name the "
            "column of their texts or their ids"
        ).with_remedy("column", "question_id=NAME")
    return tuple(filled)


def _filled_in(question: Question, other: Question | None) -> Question:
    """Return a question with missing fields filled in from the same question of a dataset."""
    if other is None:
        return question
    text = question.text if question.text != NOT_KNOWN else other.text
    answered = other if question.gold == NOT_KNOWN else question
    # A text longer than the question may be a whole prompt, which contains the context and the choices.
    prompt = plain_text(text)
    return replace(
        other,
        question_id=question.question_id,
        text=text,
        gold=answered.gold,
        aliases=answered.aliases,
        topic=question.topic or other.topic,
        context=None if other.context and plain_text(other.context) in prompt else other.context,
        choices=() if all(plain_text(choice) in prompt for choice in other.choices) else other.choices,
    )
