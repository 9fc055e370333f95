"""What a file of first passes lacks, filled in from a dataset that has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from refusal_index.datasets.columns import resolve_columns
from refusal_index.datasets.dataset import Dataset
from refusal_index.datasets.imports.first_pass import NOT_KNOWN, FirstPass, FirstPassError
from refusal_index.datasets.imports.graded import USUAL_NAMES
from refusal_index.datasets.imports.reader import GRADED, LM_EVAL, ReadOptions
from refusal_index.datasets.imports.source import SourceFile
from refusal_index.outcomes.errors import suggestion
from refusal_index.outcomes.outcome import Grade, Question
from refusal_index.outcomes.settings import present_columns


def of_one_model(passes: Sequence[FirstPass], source: str, name: str | None) -> tuple[FirstPass, ...]:
    """Return the first passes of one model on one dataset.

    Raises FirstPassError if the file holds no such model, or several and none was named, or several datasets.

    - `passes`: all that the file holds.
    - `source`: the file, for messages.
    - `name`: the model's name in the file; None where it holds but one.
    """
    models = list(dict.fromkeys(one.model or "(not named)" for one in passes))
    if name is None and len(models) > 1:
        raise FirstPassError(f"{source} holds {len(models)} models; choose one with --name: {', '.join(models)}")
    if name is not None and name not in models:
        raise FirstPassError(
            f"{source}: expected --name to be one of {', '.join(models)}, got {name!r}{suggestion(name, models)}"
        )
    found = tuple(one for one in passes if (one.model or "(not named)") == (name or models[0]))
    datasets = list(dict.fromkeys(one.dataset or "(not named)" for one in found))
    if len(datasets) > 1:
        raise FirstPassError(
            f"{source} holds {models[0] if name is None else name} on {len(datasets)} datasets "
            f"({', '.join(datasets)}); keep the rows of one in a file of its own"
        )
    return found


def questions_to_force(passes: Iterable[FirstPass], source: str) -> tuple[Question, ...]:
    """Return every refused question once a draw, by the id that `FirstPass.forced_id` gives it.

    Raises FirstPassError if nothing was refused, the file lacks what it takes to ask and to grade, or two prompt
    variants have different questions under one id.
    """
    passes = tuple(passes)
    refused = [one for one in passes if one.needs_forcing]
    without = sum(one.grade is Grade.REFUSED for one in passes)
    if without and not refused:
        raise FirstPassError(
            f"{source}: expected refused questions that have a right answer, got {without:,} without one: a forced "
            "answer would be wrong whatever it is; 'refusal-index import' and 'score' take the file as it is"
        )
    if not refused:
        raise FirstPassError(
            f"{source}: expected refused questions, got none; if its grades know right and wrong only, say with "
            "--refusal REGEX how a refusal is worded"
        )
    _check_known(refused, source)
    questions: dict[str, Question] = {}
    for one in refused:
        question = replace(one.question, question_id=one.forced_id)
        if questions.setdefault(one.forced_id, question).text != question.text:
            raise FirstPassError(
                f"{source}: expected one question of the id {one.question.question_id!r}, got two with different "
                "texts; give each an id of its own"
            )
    return tuple(questions.values())


def _check_known(refused: Sequence[FirstPass], source: str) -> None:
    for role, lacking in (
        ("question", [one for one in refused if one.question.text == NOT_KNOWN]),
        ("answer", [one for one in refused if one.question.gold == NOT_KNOWN]),
    ):
        if lacking:
            raise FirstPassError(
                f"{source}: expected the {role} of every refused question, got {len(lacking):,} of {len(refused):,} "
                f"without one (first: question_id {lacking[0].question.question_id!r}); add a column for it, or name "
                f"the column that holds it with --column {role}=NAME"
            )


def filled_in(passes: Sequence[FirstPass], dataset: Dataset, *, by_id: bool, source: str) -> tuple[FirstPass, ...]:
    """Return first passes with the questions, gold answers and name of a dataset in place of those that they lack.

    A question is found by its id, as long as the text that the file has for it holds the dataset's, or else by its
    text. The text and the gold answer that the file has stay as they are; context, choices and pattern come with the
    question. Raises FirstPassError if a refused question lacks something and is not in the dataset.

    - `passes`, `source`: the first passes, and their file, for messages.
    - `dataset`: its questions.
    - `by_id`: whether ids of the file can be those of the dataset, as `has_ids` tells.
    """
    ids = {question.question_id: question for question in dataset.questions} if by_id else {}
    often = Counter(_plain(question.text) for question in dataset.questions)
    texts = {text: one for one in dataset.questions if often[text := _plain(one.text)] == 1}

    def known(question: Question) -> Question | None:
        asked = _plain(question.text)
        same = ids.get(question.question_id)
        if same is not None and (not asked or _plain(same.text) in asked):
            return same
        return texts.get(asked)

    filled = tuple(
        replace(one, question=_together(one.question, known(one.question)), dataset=one.dataset or dataset.name)
        for one in passes
    )
    _refuse_lacking(filled, dataset, source)
    return filled


def has_ids(file: SourceFile, kind: str, read: ReadOptions) -> bool:
    """Tell whether ids can be a dataset's: lm-eval counts its documents, and graded rows without ids are numbered."""
    if kind != GRADED:
        return kind != LM_EVAL
    present = present_columns(file.with_paths(read.columns.values()))
    return "question_id" in resolve_columns(file.source, present, read.columns, USUAL_NAMES)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _together(question: Question, known: Question | None) -> Question:
    if known is None:
        return question
    asked = question.text if question.text != NOT_KNOWN else known.text
    answered = known if question.gold == NOT_KNOWN else question
    # A text that is longer than the question may be a whole prompt, with the context and the choices in it.
    held = _plain(asked)
    return replace(
        known,
        question_id=question.question_id,
        text=asked,
        gold=answered.gold,
        aliases=answered.aliases,
        topic=question.topic or known.topic,
        context=None if known.context and _plain(known.context) in held else known.context,
        choices=() if all(_plain(choice) in held for choice in known.choices) else known.choices,
    )


def _refuse_lacking(passes: Sequence[FirstPass], dataset: Dataset, source: str) -> None:
    refused = [one for one in passes if one.needs_forcing]
    lacking = [one for one in refused if NOT_KNOWN in (one.question.text, one.question.gold)]
    if lacking:
        raise FirstPassError(
            f"{source}: expected every refused question in the dataset {dataset.name!r}, by its id or its text, got "
            f"{len(lacking):,} of {len(refused):,} that are not there (first: question_id "
            f"{lacking[0].question.question_id!r}); choose the dataset that was asked (--dataset, --data), or name the "
            "columns that hold them with --column question_id=NAME or question=NAME"
        )
