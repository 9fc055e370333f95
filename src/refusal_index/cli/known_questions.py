"""What a file of first passes lacks, filled in from a dataset that has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from refusal_index.cli.bad_input import OptionError
from refusal_index.cli.first_passes import Imported
from refusal_index.datasets import Dataset
from refusal_index.datasets.imports import FirstPass
from refusal_index.datasets.imports.columns import resolve_columns
from refusal_index.datasets.imports.first_pass import NOT_KNOWN
from refusal_index.datasets.imports.reader import GRADED, LM_EVAL, ReadOptions
from refusal_index.outcomes.question import Question


def filled_in(
    passes: Sequence[FirstPass], dataset: Dataset, imported: Imported, read: ReadOptions
) -> tuple[FirstPass, ...]:
    """Return first passes with the questions, gold answers and name of a dataset in place of those that they lack.

    A question is found by its id, as long as the text that the file has for it holds the dataset's, or else by its
    text. What the file has itself stays as it is.

    Raises
    ------
    OptionError
        If a refused question lacks something and is not in the dataset.
    """
    by_id = {question.question_id: question for question in dataset.questions} if _has_ids(imported, read) else {}
    often = Counter(_plain(question.text) for question in dataset.questions)
    by_text = {text: one for one in dataset.questions if often[text := _plain(one.text)] == 1}

    def known(question: Question) -> Question:
        asked = _plain(question.text)
        same = by_id.get(question.question_id)
        if same is not None and (not asked or _plain(same.text) in asked):
            return same
        return by_text.get(asked, question)

    filled = tuple(
        replace(one, question=_together(one.question, known(one.question)), dataset=one.dataset or dataset.name)
        for one in passes
    )
    _refuse_lacking(filled, dataset, imported)
    return filled


def _has_ids(imported: Imported, read: ReadOptions) -> bool:
    """Whether ids can be a dataset's: lm-eval counts its documents, and graded rows without ids are numbered."""
    if imported.kind != GRADED:
        return imported.kind != LM_EVAL
    present = list(dict.fromkeys(column for record in imported.file.records for column in record.cells))
    return "question_id" in resolve_columns(imported.file.path, present, read.columns)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _together(question: Question, known: Question) -> Question:
    asked = known if question.text == NOT_KNOWN else question
    answered = known if question.gold == NOT_KNOWN else question
    return replace(
        asked,
        question_id=question.question_id,
        gold=answered.gold,
        aliases=answered.aliases,
        topic=question.topic or known.topic,
    )


def _refuse_lacking(passes: Sequence[FirstPass], dataset: Dataset, imported: Imported) -> None:
    refused = [one for one in passes if one.needs_forcing]
    lacking = [one for one in refused if NOT_KNOWN in (one.question.text, one.question.gold)]
    if lacking:
        raise OptionError(
            f"--dataset: expected every refused question of {imported.file.path} in {dataset.name!r}, by its id or its "
            f"text, got {len(lacking):,} of {len(refused):,} that are not there (first: question_id "
            f"{lacking[0].question.question_id!r}); choose the dataset that was asked, or name the columns that hold "
            "them with --column question_id=NAME or question=NAME"
        )
