"""Rows of graded answers: SimpleQA's tools, files that only flag refusals, and the words they use for grades."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from refusal_index.data import tables
from refusal_index.data.datasets.own import ContentIds
from refusal_index.data.imports.first_pass import (
    NOT_GRADED,
    NOT_KNOWN,
    Beyond,
    FirstPass,
    FirstPassError,
    forced_outcome,
)
from refusal_index.data.imports.source import SourceFile
from refusal_index.data.outcome import Grade, Outcome, Question

Vocabulary = Mapping[str, Grade]

WORDS: Vocabulary = {
    "correct": Grade.CORRECT,
    "incorrect": Grade.INCORRECT,
    "not_attempted": Grade.REFUSED,
    "refused": Grade.REFUSED,
    "unscored": Grade.UNSCORED,
}
"""Words that are clear anywhere, in any case, with a space or a dash in place of the underscore too."""

RIGHT_OR_WRONG: Vocabulary = {
    **dict.fromkeys(("1", "1.0", "true"), Grade.CORRECT),
    **dict.fromkeys(("0", "0.0", "false"), Grade.INCORRECT),
}
"""A mark that knows right and wrong only."""

SIMPLEQA_LETTERS: Vocabulary = {"a": Grade.CORRECT, "b": Grade.INCORRECT, "c": Grade.REFUSED}
"""The letters of SimpleQA's grader: C is NOT_ATTEMPTED."""

INSPECT_LETTERS: Vocabulary = {"c": Grade.CORRECT, "i": Grade.INCORRECT, "n": Grade.REFUSED}
"""The letters of Inspect's scores: C is CORRECT, N is NO ANSWER."""

MEANINGS = (*(grade.value for grade in Grade), "true", "false")
"""What a word may be read as."""


def grade_kind(*vocabularies: Vocabulary) -> tables.Kind:
    """Return the kind of cell that holds a grade in these words.

    >>> grade_kind(WORDS)("Not attempted")
    <Grade.REFUSED: 'refused'>
    """
    words = {word: grade for vocabulary in vocabularies for word, grade in vocabulary.items()}
    expected = f"a grade out of {', '.join(word.upper() for word in words)} (in any case) or nothing"
    return tables.Kind(expected, words, "translate it into one of these first")


GRADE = grade_kind(WORDS, SIMPLEQA_LETTERS, RIGHT_OR_WRONG)
"""What a column of grades may hold."""


def read_as(kind: tables.Kind, value: Any, place: str) -> Any:
    """Return what a value stands for, None for an empty one, or raise FirstPassError.

    - `place`: for messages: the file, and where the value stands in it.
    """
    try:
        return kind(value)
    except ValueError as error:
        raise FirstPassError(f"{place}: {error}") from None


def translated(value: Any, words: tables.Translations) -> Any:
    """Return what a value is to be read as: itself where nobody said otherwise.

    >>> translated(" Pass ", {"pass": "refused"}), translated(1, {"pass": "refused"})
    ('refused', 1)
    """
    return words.get(str(value).strip().casefold(), value) if words and value is not None else value


def _answers(cell: Any) -> list[str]:
    """Return the accepted answers, the gold one first: a cell may hold a list, also as JSON or Python write it."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = read(cell)
                return _answers(value if isinstance(value, list) else [cell])
    answers = cell if isinstance(cell, list) else [cell]
    stripped = (str(answer).strip() for answer in answers if answer is not None)
    return list(dict.fromkeys(answer for answer in stripped if answer))


COLUMNS: Mapping[str, tables.Column] = {
    "question": tables.Column(("question", "problem", "query", "prompt"), tables.text),
    "answer": tables.Column(
        ("gold", "target", "gold_answer", "gold_answers", "correct_answer", "reference_answer", "answer"), _answers
    ),
    "reply": tables.Column(
        (
            *("first_reply", "reply", "predicted_answer", "prediction", "response", "model_output", "model_answer"),
            *("model_response", "llm_response", "output", "completion"),
        ),
        tables.verbatim,
    ),
    "grade": tables.Column(("first_grade", "grade", "grade_letter", "grade_str", "verdict"), GRADE),
    "refused": tables.Column(("refused", "abstained", "is_refusal", "is_not_attempted"), tables.FLAG),
    "correct": tables.Column(("correct", "is_correct"), tables.FLAG),
    "incorrect": tables.Column(("incorrect", "is_incorrect"), tables.FLAG),
    "answerable": tables.Column(("answerable", "is_answerable"), tables.FLAG),
    "question_id": tables.Column(("question_id", "id", "qid", "uuid"), tables.text),
    "model": tables.Column(("model", "model_name"), tables.text),
    "dataset": tables.Column(("dataset",), tables.text),
    "variant": tables.Column(("variant", "condition"), tables.text),
    "draw": tables.Column(("draw",), tables.Kind("a whole number from 0", low=0, is_whole=True)),
    "forced_grade": tables.Column(("forced_grade", "second_grade"), GRADE),
    "forced_correct": tables.Column(("forced_correct", "correct_forced", "correct_when_forced"), tables.FLAG),
    "forced_reply": tables.Column(("forced_reply", "forced_answer"), tables.text),
    # a column that is called so may hold anything: these are looked for under the name that is given only
    "p_answering": tables.Column((), tables.PROBABILITY),
    "confidence": tables.Column((), tables.PROBABILITY),
    "topic": tables.Column(("topic", "category", "subject"), tables.text),
    "context": tables.Column(("context", "passage"), tables.text),
}
"""The columns by role."""

Values = Mapping[str, Any]
"""What the cells of a row stand for, by role."""


def read_graded(file: SourceFile, columns: Mapping[str, str], words: tables.Translations) -> tuple[FirstPass, ...]:
    """Return the first passes of a file with one graded answer a row.

    The grade is that of the column of grades, or follows from flags for right, wrong and refused ones. A flag for
    refusals counts beside a grade that knows right and wrong only.

    A row may hold both passes: the second in columns of its own, or in the same grade where refusals have a flag. A
    refusal is never right, so that one refused row that is marked as right shows that the grades of the refused rows
    are those of forced answers. Where none is, a mark as wrong may be either, and is set aside.

    Raises DatasetError if a column is missing, a grade is not known, or a cell is not what it should be; the message
    names the line.

    - `file`: the file.
    - `columns`: column by role, where they have other than the usual names; ``result.grade`` is a path into what a cell
      holds.
    - `words`: what words of grades and flags are to be read as.
    """
    rows, found = file.resolved(columns, COLUMNS)
    if not {"grade", "correct", "refused"} & found.keys():
        raise tables.missing_column(file.source, tables.present_columns(rows), "grade", "grade")
    cells = [tables.values_by_role(row, found, COLUMNS, words) for row in rows]
    ids = _ids(rows, cells, found)
    grades = [one["grade"] if "grade" in found else _of_flags(one) for one in cells]
    both = any(one["refused"] and grade is Grade.CORRECT for one, grade in zip(cells, grades, strict=True))
    passes = []
    for row, one, question_id, answer in zip(rows, cells, ids, grades, strict=True):
        if one["refused"] is False and answer is Grade.REFUSED:
            message = f"the grade says that the model refused, and column {found['refused']!r} says that it did not; "
            raise row.wrong(f"{message}correct the row, or name one of the two columns otherwise", found.get("grade"))
        grade = _grade(one, answer)
        beside = answer if one["refused"] and answer in (Grade.CORRECT, Grade.INCORRECT) else None
        forced = _forced(one, found, beside if both else None)
        passes.append(
            FirstPass(
                question=_question(one, question_id),
                model=one["model"] or file.stem,
                dataset=one["dataset"],
                grade=grade,
                reply=one["reply"],
                variant=one["variant"],
                draw=one["draw"] or 0,
                reason=NOT_GRADED if grade is Grade.UNSCORED else None,
                beyond=Beyond(forced, beside if forced is None else None, one["p_answering"], one["confidence"]),
            )
        )
    return tuple(passes)


def _ids(rows: Sequence[tables.Row], cells: Sequence[Values], found: Mapping[str, str]) -> list[str]:
    """Return an id for every row: its own, or one made of its question.

    Files of several models over the same questions may be in different orders. So where questions of one text differ
    in their answers, the id is made of both and not of the order. Repetitions are counted within each model's rows.
    """
    if "question_id" in found:
        for row, one in zip(rows, cells, strict=True):
            if one["question_id"] is None:
                raise row.wrong("expected an id, got an empty cell; give every question one", found["question_id"])
        return [one["question_id"] for one in cells]
    if "question" not in found:
        return [str(number) for number in range(1, len(rows) + 1)]
    whose = [tuple(one[role] for role in ("model", "dataset", "variant", "draw")) for one in cells]
    texts = ["\x1f".join(filter(None, (one["question"], one["context"]))) for one in cells]
    seen = Counter(zip(whose, texts, strict=True))
    makers = {group: ContentIds() for group in whose}
    return [
        makers[group].of(f"{asked}\n{one['answer'] or []}" if seen[group, asked] > 1 else asked)
        for one, group, asked in zip(cells, whose, texts, strict=True)
    ]


def _of_flags(one: Values) -> Grade | None:
    """Return what the flags for right and wrong say; an answer flagged as neither was not graded."""
    if one["correct"]:
        return Grade.CORRECT
    return Grade.INCORRECT if one["incorrect"] or (one["correct"] is False and one["incorrect"] is None) else None


def _grade(one: Values, answer: Grade | None) -> Grade | None:
    """Return the grade of a row; None where the model answered and nobody said whether that is right."""
    if one["refused"]:
        return Grade.REFUSED
    if answer is None and one["refused"] is None:
        return Grade.UNSCORED
    if answer is None and one["answerable"] is False:
        return Grade.INCORRECT  # to a question without an answer every answer is wrong
    return answer


def _forced(one: Values, found: Mapping[str, str], beside: Grade | None) -> Outcome | None:
    """Return the outcome of the forced pass from its own columns, or else from the grade of a refused row."""
    if "forced_grade" in found:
        grade = one["forced_grade"]
    elif "forced_correct" in found:
        grade = {None: None, True: Grade.CORRECT, False: Grade.INCORRECT}[one["forced_correct"]]
    else:
        grade = beside
    return None if grade is None and one["forced_reply"] is None else forced_outcome(grade, one["forced_reply"])


def _question(one: Values, question_id: str) -> Question:
    has_answer = one["answerable"] is not False
    gold, *aliases = one["answer"] or [NOT_KNOWN]
    return Question(
        question_id=question_id,
        text=one["question"] or NOT_KNOWN,
        gold=gold if has_answer else None,
        aliases=tuple(aliases) if has_answer else (),
        topic=one["topic"],
        context=one["context"],
    )
