"""Rows of graded answers: SimpleQA's tools, files that only flag refusals, and the words they use for grades."""

from __future__ import annotations

import ast
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refusal_index.data.datasets.own import content_ids
from refusal_index.data.errors import TableError, shortened
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
from refusal_index.data.tables import NOTHING, TRUTH, Row, missing_column, present_columns, resolve_columns

Vocabulary = Mapping[str, Grade]

WORDS: Vocabulary = {
    "CORRECT": Grade.CORRECT,
    "INCORRECT": Grade.INCORRECT,
    "NOT_ATTEMPTED": Grade.REFUSED,
    "REFUSED": Grade.REFUSED,
    "UNSCORED": Grade.UNSCORED,
}
"""Words that are clear anywhere, in any case, with a space or a dash in place of the underscore too."""

RIGHT_OR_WRONG: Vocabulary = {
    **dict.fromkeys(("1", "1.0", "TRUE"), Grade.CORRECT),
    **dict.fromkeys(("0", "0.0", "FALSE"), Grade.INCORRECT),
}
"""A mark that knows right and wrong only."""

SIMPLEQA_LETTERS: Vocabulary = {"A": Grade.CORRECT, "B": Grade.INCORRECT, "C": Grade.REFUSED}
"""The letters of SimpleQA's grader: C is NOT_ATTEMPTED."""

INSPECT_LETTERS: Vocabulary = {"C": Grade.CORRECT, "I": Grade.INCORRECT, "N": Grade.REFUSED}
"""The letters of Inspect's scores: C is CORRECT, N is NO ANSWER."""

GRADED: Vocabulary = {**WORDS, **SIMPLEQA_LETTERS, **RIGHT_OR_WRONG}
"""What a column of grades may hold."""


Translations = Mapping[str, str]
"""Words of a file, in lower case, and what they are to be read as."""

MEANINGS = (*(grade.value for grade in Grade), "true", "false")
"""What a word may be read as."""


def translated(value: Any, words: Translations) -> Any:
    """Return what a value is to be read as: itself where nobody said otherwise.

    >>> translated(" Pass ", {"pass": "refused"}), translated(1, {"pass": "refused"})
    ('refused', 1)
    """
    return words.get(str(value).strip().casefold(), value) if words and value is not None else value


def read_grade(value: Any, vocabulary: Vocabulary, place: str) -> Grade | None:
    """Return the grade that a value stands for, or None for an empty one.

    Raises FirstPassError if the word is not known; the message names the known ones.

    - `value`: as the file holds it.
    - `vocabulary`: the words it may use, in capitals.
    - `place`: for messages: the file, the line and the column.

    >>> read_grade("not attempted", GRADED, "x.csv, line 2")
    <Grade.REFUSED: 'refused'>
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    word = str(value).strip().upper().replace(" ", "_").replace("-", "_")
    if word.lower() in NOTHING:
        return None
    if word not in vocabulary:
        raise FirstPassError(
            f"{place}: expected a grade out of {', '.join(vocabulary)} (in any case) or nothing, "
            f"got {shortened(value)}; translate it into one of these first"
        )
    return vocabulary[word]


def flag(value: Any, place: str) -> bool | None:
    """Return a yes or no, or None for an empty value.

    Raises FirstPassError if it is neither.

    >>> flag("True", "x.csv, line 2"), flag("", "x.csv, line 3")
    (True, None)
    """
    word = "" if value is None else str(value).strip().casefold()
    if word in NOTHING:
        return None
    if word not in TRUTH:
        raise FirstPassError(f"{place}: expected true, false, 1, 0, yes, no or nothing, got {shortened(value)}")
    return TRUTH[word]


USUAL_NAMES = {
    "question": ("question", "problem", "query", "prompt"),
    "answer": ("gold", "target", "gold_answer", "gold_answers", "correct_answer", "reference_answer", "answer"),
    "reply": (
        *("first_reply", "reply", "predicted_answer", "prediction", "response", "model_output", "model_answer"),
        *("model_response", "llm_response", "output", "completion"),
    ),
    "grade": ("first_grade", "grade", "grade_letter", "grade_str", "verdict"),
    "refused": ("refused", "abstained", "is_refusal", "is_not_attempted"),
    "correct": ("correct", "is_correct"),
    "incorrect": ("incorrect", "is_incorrect"),
    "answerable": ("answerable", "is_answerable"),
    "question_id": ("question_id", "id", "qid", "uuid"),
    "model": ("model", "model_name"),
    "dataset": ("dataset",),
    "variant": ("variant", "condition"),
    "draw": ("draw",),
    "forced_grade": ("forced_grade", "second_grade"),
    "forced_correct": ("forced_correct", "correct_forced", "correct_when_forced"),
    "forced_reply": ("forced_reply", "forced_answer"),
    # a column that is called so may hold anything: these are looked for under the name that is given only
    "p_answering": (),
    "confidence": (),
    "topic": ("topic", "category", "subject"),
    "context": ("context", "passage"),
}
"""Column names, in any case, that need not be pointed out; the first that is there counts."""


def read_graded(
    file: SourceFile, columns: Mapping[str, str], words: Translations | None = None
) -> tuple[FirstPass, ...]:
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
    records = file.with_paths(columns.values())
    present = present_columns(records)
    found = resolve_columns(file.source, present, columns, USUAL_NAMES)
    if not {"grade", "correct", "refused"} & found.keys():
        raise missing_column(file.source, present, "grade", "grade")
    rows = [_Row(record, found, words or {}) for record in records]
    ids = _ids(rows, found)
    told = [(row.flag("refused"), _answer_grade(row)) for row in rows]
    both = any(refused and grade is Grade.CORRECT for refused, grade in told)
    return tuple(
        _first_pass(row, question_id, file.stem, *grades, both=both)
        for row, question_id, grades in zip(rows, ids, told, strict=True)
    )


MARKED = frozenset({"grade", "refused", "correct", "incorrect", "answerable", "forced_grade", "forced_correct"})
"""The roles whose words may be translated."""


@dataclass(frozen=True)
class _Row:
    """One record, by role instead of by column."""

    record: Row
    columns: Mapping[str, str]
    words: Translations

    def where(self, role: str) -> str:
        return f"{self.record.place}, column {self.columns[role]!r}"

    def wrong(self, said: str, role: str) -> TableError:
        return self.record.wrong(said, self.columns[role])

    def cell(self, role: str) -> Any:
        value = self.record.cells.get(self.columns[role]) if role in self.columns else None
        return translated(value, self.words) if role in MARKED else value

    def text(self, role: str) -> str:
        value = self.cell(role)
        if isinstance(value, list | dict):
            raise self.wrong(f"expected one text, got {shortened(value)}", role)
        return "" if value is None else str(value).strip()

    def flag(self, role: str) -> bool | None:
        return flag(self.cell(role), self.where(role)) if role in self.columns else None

    def probability(self, role: str) -> float | None:
        value = self.text(role)
        if value.casefold() in NOTHING:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 <= number <= 1:
            raise self.wrong(f"expected a probability in [0, 1], got {shortened(value)}; is it in per cent?", role)
        return number

    def golds(self) -> list[str]:
        """Return the accepted answers, the gold answer first: a cell may hold a list of them."""
        value = self.cell("answer")
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = _list_in(value)
        answers = value if isinstance(value, list) else [value]
        stripped = (str(answer).strip() for answer in answers if answer is not None)
        return list(dict.fromkeys(answer for answer in stripped if answer))


def _list_in(text: str) -> Any:
    """Return the list that a text writes down as JSON or Python do, or the text itself."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, list) else text
    return text


def _ids(rows: Sequence[_Row], columns: Mapping[str, str]) -> list[str]:
    """Return an id for every row: its own, or one made of its question.

    Files of several models over the same questions may be in different orders. So where questions of one text differ
    in their answers, the id is made of both and not of the order.
    """
    if "question_id" in columns:
        return [_own_id(row) for row in rows]
    if "question" not in columns:
        return [str(number) for number in range(1, len(rows) + 1)]
    whose = [tuple(row.text(role) for role in ("model", "dataset", "variant", "draw")) for row in rows]
    texts = ["\x1f".join(filter(None, (row.text("question"), row.text("context")))) for row in rows]
    seen = Counter(zip(whose, texts, strict=True))
    return _content_ids(
        whose,
        [
            f"{text}\n{row.golds()}" if seen[of, text] > 1 else text
            for row, of, text in zip(rows, whose, texts, strict=True)
        ],
    )


def _content_ids(whose: Sequence[tuple[str, ...]], texts: Sequence[str]) -> list[str]:
    """Make ids of texts, counting repetitions within each model's rows only."""
    ids = [""] * len(texts)
    for of in dict.fromkeys(whose):
        places = [place for place, other in enumerate(whose) if other == of]
        for place, made in zip(places, content_ids([texts[place] for place in places]), strict=True):
            ids[place] = made
    return ids


def _own_id(row: _Row) -> str:
    found = row.text("question_id")
    if not found:
        raise row.wrong("expected an id, got an empty cell; give every question one", "question_id")
    return found


def _first_pass(
    row: _Row, question_id: str, stem: str, refused: bool | None, answer: Grade | None, *, both: bool
) -> FirstPass:
    """Make the record of a row; `both` says whether the grade of a refused one is that of its forced answer."""
    grade = _grade(row, refused, answer)
    beside = answer if refused and answer in (Grade.CORRECT, Grade.INCORRECT) else None
    forced = _forced(row, beside if both else None)
    return FirstPass(
        question=_question(row, question_id),
        model=row.text("model") or stem,
        dataset=row.text("dataset") or None,
        grade=grade,
        reply=_reply(row),
        variant=row.text("variant") or None,
        draw=_draw(row),
        reason=NOT_GRADED if grade is Grade.UNSCORED else None,
        beyond=Beyond(
            forced,
            beside if forced is None else None,
            row.probability("p_answering"),
            row.probability("confidence"),
        ),
    )


def _forced(row: _Row, beside: Grade | None) -> Outcome | None:
    """Return what became of the forced pass by its own columns, or else by the grade beside the refusal."""
    reply = row.text("forced_reply") or None
    if "forced_grade" in row.columns:
        grade = read_grade(row.cell("forced_grade"), GRADED, row.where("forced_grade"))
    elif "forced_correct" in row.columns:
        right = row.flag("forced_correct")
        grade = None if right is None else Grade.CORRECT if right else Grade.INCORRECT
    else:
        grade = beside
    return None if grade is None and reply is None else forced_outcome(grade, reply)


def _question(row: _Row, question_id: str) -> Question:
    has_answer = row.flag("answerable") is not False
    gold, *aliases = row.golds() or [NOT_KNOWN]
    return Question(
        question_id=question_id,
        text=row.text("question"),
        gold=gold if has_answer else None,
        aliases=tuple(aliases) if has_answer else (),
        topic=row.text("topic") or None,
        context=row.text("context") or None,
    )


def _reply(row: _Row) -> str | None:
    value = row.cell("reply")
    if isinstance(value, list | dict):
        raise row.wrong(f"expected one text, got {shortened(value)}", "reply")
    return None if value is None else str(value)


def _draw(row: _Row) -> int:
    text = row.text("draw")
    if text and not text.isdecimal():
        raise row.wrong(f"expected a whole number from 0, got {shortened(text)}", "draw")
    return int(text or 0)


def _answer_grade(row: _Row) -> Grade | None:
    return read_grade(row.cell("grade"), GRADED, row.where("grade")) if "grade" in row.columns else _of_flags(row)


def _grade(row: _Row, refused: bool | None, grade: Grade | None) -> Grade | None:
    """Return the grade of a row; None where the model answered and nobody said whether that is right."""
    if refused:
        return Grade.REFUSED
    if refused is False and grade is Grade.REFUSED:
        said = f"the grade says that the model refused, and column {row.columns['refused']!r} says that it did not; "
        raise row.wrong(f"{said}correct the row, or name one of the two columns otherwise", "grade")
    if grade is None and refused is None:
        return Grade.UNSCORED
    if grade is None and row.flag("answerable") is False:
        return Grade.INCORRECT  # to a question without an answer every answer is wrong
    return grade


def _of_flags(row: _Row) -> Grade | None:
    """Return what the flags for right and wrong say; an answer flagged as neither was not graded."""
    right, wrong = row.flag("correct"), row.flag("incorrect")
    if right:
        return Grade.CORRECT
    if right is False and wrong is not False:
        return Grade.INCORRECT
    return Grade.INCORRECT if wrong else None
