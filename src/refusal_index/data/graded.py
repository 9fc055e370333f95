"""Import of graded answers: one per row, with the columns that other tools write.

The columns are declared by role. The grade comes from a column of grades or from flags; a flag may also be written as
its inverse, such as `answered` for `refused`. Empty replies are unscored, whatever their grade.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from refusal_index.data import tables
from refusal_index.data.cells import FLAG, NOTHING, PROBABILITY, Kind
from refusal_index.data.column_names import MARKS, NAMES, OTHER_GRADES
from refusal_index.data.datasets.dataset import Choices, ContentIds, passages, texts
from refusal_index.data.first_pass import (
    FIRST_EMPTY,
    FORCED,
    FORCED_EMPTY,
    NOT_KNOWN,
    Conflict,
    FirstPass,
    FirstPassError,
    FirstPasses,
    forced_outcome,
)
from refusal_index.data.grade_words import Translations, are_grades, read_grades, without_answered
from refusal_index.data.nested import nested_columns
from refusal_index.data.outcome import NOT_GRADED, Grade, Question
from refusal_index.data.source_files import SourceFile
from refusal_index.data.text import is_blank
from refusal_index.errors import TableError, listed


def answers(cell: Any) -> list[str]:
    """Return the accepted answers, the gold one first. A cell may hold a list, also in JSON or Python syntax."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = parse(cell)
                return answers(value if isinstance(value, list) else [cell])
    accepted = cell if isinstance(cell, list) else [cell]
    stripped = (str(answer).strip() for answer in accepted if answer is not None)
    return list(dict.fromkeys(answer for answer in stripped if answer))


def _as_it_is(cell: Any) -> Any:
    return cell


READERS: Mapping[str, Callable[[Any], Any]] = {
    "question": tables.text,
    "answer": answers,
    "aliases": texts,
    "choices": Choices.read,
    "reply": tables.verbatim,
    # the cells of both columns of grades are read together, by `read_grades`
    "grade": _as_it_is,
    "refused": FLAG,
    "answered": FLAG,
    "correct": FLAG,
    "incorrect": FLAG,
    "answerable": FLAG,
    "unanswerable": FLAG,
    "question_id": tables.text,
    "model": tables.text,
    "dataset": tables.text,
    "variant": tables.text,
    "draw": Kind("a whole number from 0", low=0, is_whole=True),
    "forced_grade": _as_it_is,
    "forced_correct": FLAG,
    "forced_incorrect": FLAG,
    "forced_reply": tables.verbatim,
    # a column with such a name may hold anything, so these are only read from columns that the user names
    "p_answering": PROBABILITY,
    "confidence": PROBABILITY,
    "topic": tables.text,
    "context": passages,
}
"""How the cells of each role are read."""

COLUMNS = {role: tables.Column(NAMES.get(role, ()), read) for role, read in READERS.items()}
"""The columns, by role."""

INVERSES = {"answered": "refused", "unanswerable": "answerable", "forced_incorrect": "forced_correct"}
"""Roles of flags that are the inverse of another; `incorrect` is not, since a refusal is neither right nor wrong."""

GRADE_SOURCES = ("grade", "correct", "incorrect", "refused", "answered")
"""Roles of which a file needs at least one."""


SAMPLED = "sampled_responses"
"""A column of UQLM, whose metrics compare replies with each other."""

Values = Mapping[str, Any]
"""The values of a row, by role."""


def read_graded(
    file: SourceFile, columns: Mapping[str, str], words: Translations, *, needs_grades: bool = True
) -> FirstPasses:
    """Return the first passes of a file with one graded answer per row.

    The grade is read from a column of grades, or from flags for right, wrong and refused answers. A flag for refusals
    can accompany grades of right and wrong. Other columns that could be the grade are compared with it.

    A row may hold both passes: the forced pass in its own columns, or in the grade if refusals have a flag. Since a
    refusal of a question with a right answer is never right, a single one graded as right shows that the grades of
    refused rows belong to forced answers. If there is none, a refused row graded as wrong is ambiguous, and its grade
    is set aside.

    Raises DatasetError if a column is missing, a grade is unknown, or a cell is invalid; the message names the line.

    - `file`: the file.
    - `columns`: column by role, for columns without a usual name; ``result.grade`` is a path to a nested value.
    - `words`: translations of words for grades.
    - `needs_grades`: whether a file without grades is an error; otherwise its answers are unscored.
    """
    rows, by_role = resolved(file, columns, needs_grades=needs_grades)
    cells = [_values(row, by_role) for row in rows]
    if "grade" in by_role:
        _set_answered(cells, words)
    _read_grades(rows, by_role, cells, words)
    ids = _ids(rows, cells, by_role)
    marks = [values["grade"] if "grade" in by_role else _of_flags(values) for values in cells]
    are_blank = ["reply" in by_role and is_blank(values["reply"]) for values in cells]
    grades = []
    for row, values, mark in zip(rows, cells, marks, strict=True):
        if values["refused"] is False and mark is Grade.REFUSED:
            raise _contradiction(row, by_role)
        grades.append(_grade(values, mark))
    both = any(
        values["refused"] and mark is Grade.CORRECT and values["answerable"] is not False and not blank
        for values, mark, blank in zip(cells, marks, are_blank, strict=True)
    )
    passes = []
    for values, question_id, mark, grade, blank in zip(cells, ids, marks, grades, are_blank, strict=True):
        first_pass = _first_pass(values, question_id, grade, file.stem)
        if blank:
            passes.append(first_pass.without_reply(FIRST_EMPTY))
        else:
            passes.append(_with_forced(first_pass, values, by_role, mark, both=both))
    _check_ids(file.source, rows, passes)
    return FirstPasses(
        tuple(passes),
        columns=by_role,
        not_used=_not_used(rows, by_role),
        conflicts=tuple(_conflicts(rows, by_role, cells, grades)),
        grade_columns=tuple(name for name in _not_used(rows, by_role) if _holds_grades(rows, name)),
        repeated=0 if "question_id" in by_role else _repeated(passes),
    )


def resolved(
    file: SourceFile, columns: Mapping[str, str], *, needs_grades: bool = True
) -> tuple[tuple[tables.Row, ...], dict[str, str]]:
    """Return the records of a file, and the column of each role.

    Raises DatasetError if there is no grade although `needs_grades`.
    """
    rows, by_role = file.resolved(columns, COLUMNS)
    if "grade" not in columns:
        by_role |= _column_of_grades(rows, by_role)
    usual = {role: name for role, name in by_role.items() if role not in columns}
    # roles whose usual names other columns have too; such a column is left out if none of its cells can be read
    like_others = {"choices", *(role for role, column in COLUMNS.items() if column.read is FLAG)} & usual.keys()
    left_out = {role for role in like_others if not _is_readable(rows, role, usual[role])}
    if "grade" in usual and all(_is_empty(row.cells.get(usual["grade"])) for row in rows):
        left_out.add("grade")
    if not set(GRADE_SOURCES) & by_role.keys():
        by_role |= _column_of_marks(rows, by_role)
    if not set(GRADE_SOURCES) & by_role.keys() and needs_grades:
        raise _without_grades(file, rows, by_role, columns)
    kept = {role: name for role, name in by_role.items() if role not in left_out}
    return rows, kept if set(GRADE_SOURCES) & kept.keys() or not needs_grades else by_role


def _column_of_marks(rows: Sequence[tables.Row], by_role: Mapping[str, str]) -> dict[str, str]:
    """Return the only metric that says right or wrong of every answer, by the role of its flag."""
    present = tables.present_columns(rows)
    if SAMPLED in present:
        return {}
    marks = [name for name in present if tables.plain_name(name) in MARKS and name not in by_role.values()]
    flags = [name for name in marks if _are_flags(rows, name)]
    return {"correct": flags[0]} if len(flags) == 1 else {}


def _are_flags(rows: Sequence[tables.Row], column: str) -> bool:
    try:
        flags = [FLAG(row.cells.get(column)) for row in rows]
    except ValueError:
        return False
    return any(flag is not None for flag in flags)


def _without_grades(
    file: SourceFile, rows: Sequence[tables.Row], by_role: Mapping[str, str], columns: Mapping[str, str]
) -> TableError:
    """Return the error for a file without grades, with what to do about it.

    - `columns`: the columns that the user named.
    """
    present = tables.present_columns(rows)
    path = file.source.name
    error = tables.missing_column(file.source, present, "grade", "grade")
    every = file.with_paths(nested_columns(rows[0].cells))
    candidate = next((name for name in tables.present_columns(every) if _holds_grades(every, name)), None)
    if candidate is not None:
        error.with_remedy("column", f"grade={candidate}")
    elif "reply" not in by_role and {"question", "answer"} <= by_role.keys():
        named = [word for role, name in columns.items() for word in ("--column", f"{role}={name}")]
        command = shlex.join(["refusal-index", "run", "--data", path, *named, "--model", "PROVIDER/NAME"])
        error = file.source.wrong(f"expected graded answers, got questions without replies; to ask a model: {command}")
    elif "reply" in by_role and "answer" in by_role:
        error = file.source.wrong(
            "expected grades, got replies without; if a column holds the grades, name it; otherwise have a model grade "
            "them, as with openai/gpt-4o-mini in place of exact, or compare them with the gold answers"
        ).with_remedy("grader", "exact")
    elif "reply" in by_role:
        advice = f"got replies without grades and gold answers, in columns {listed(present)}; name the grades"
        error.args = (f"{path}: expected grades, {advice}",)
    return error


def _column_of_grades(rows: Sequence[tables.Row], by_role: Mapping[str, str]) -> dict[str, str]:
    """Return the column of one of `OTHER_GRADES` as that of the grade, if there is none with grades in it."""
    if "grade" in by_role and not all(_is_empty(row.cells.get(by_role["grade"])) for row in rows):
        return {}
    names = (name for name in tables.present_columns(rows) if name not in by_role.values())
    free = {tables.plain_name(name): name for name in names}
    others = (free[name] for name in OTHER_GRADES if name in free)
    column = next((name for name in others if _holds_grades(rows, name)), None)
    return {} if column is None else {"grade": column}


def _is_readable(rows: Sequence[tables.Row], role: str, column: str) -> bool:
    """Whether a column has a value of this role, or nothing at all; otherwise it only has the name of one."""
    is_empty = True
    for row in rows:
        try:
            if COLUMNS[role].value(row, column) not in (None, ()):
                return True
        except TableError:
            is_empty = False
    return is_empty


def _is_empty(cell: Any) -> bool:
    """Whether a cell of a column of grades holds nothing."""
    return str("" if cell is None else cell).strip().casefold() in NOTHING


def _holds_grades(rows: Sequence[tables.Row], column: str) -> bool:
    return are_grades(row.cells.get(column) for row in rows)


def _values(row: tables.Row, by_role: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a row by role, with inverse flags read as what they are the inverse of."""
    values = tables.values_by_role(row, by_role, COLUMNS)
    for inverse, role in INVERSES.items():
        flag = values[inverse]
        if flag is None:
            continue
        if values[role] is flag:
            raise row.wrong(
                f"columns {by_role[role]!r} and {by_role[inverse]!r} contradict each other: both are "
                f"{str(flag).lower()}; correct the row, or remove one of the two columns"
            )
        values[role] = not flag
    return values


def _set_answered(cells: Sequence[dict[str, Any]], words: Translations) -> None:
    """Replace grades that only say that the model answered by the flag for that."""
    grades, are_answered = without_answered([values["grade"] for values in cells], words)
    for values, grade, is_answered in zip(cells, grades, are_answered, strict=True):
        values["grade"] = grade
        if is_answered:
            values["refused"] = False


def _read_grades(
    rows: Sequence[tables.Row], by_role: Mapping[str, str], cells: Sequence[dict[str, Any]], words: Translations
) -> None:
    """Replace the cells of the columns of grades by the grades; both columns use the same letters."""
    roles = [role for role in ("grade", "forced_grade") if role in by_role]

    def wrong(index: int, message: str) -> TableError:
        role, number = divmod(index, len(rows))
        return rows[number].wrong(message, by_role[roles[role]])

    grades = read_grades([values[role] for role in roles for values in cells], words, wrong)
    for index, grade in enumerate(grades):
        role, number = divmod(index, len(rows))
        cells[number][roles[role]] = grade


def _contradiction(row: tables.Row, by_role: Mapping[str, str]) -> TableError:
    """Return the error for a row whose grade is a refusal and whose flag says that it is not."""
    flag = by_role.get("refused") or by_role["answered"]
    return row.wrong(
        f"the grade says that the model refused, and column {flag!r} says that it did not; correct the row, or name "
        "one of the two columns otherwise",
        by_role.get("grade"),
    )


def _ids(rows: Sequence[tables.Row], cells: Sequence[Values], by_role: Mapping[str, str]) -> list[str]:
    """Return an id for every row: its own, or one made from its question.

    Files of several models may list the same questions in different orders. So if questions with the same text have
    different gold answers, the id is made from both. Repetitions are counted within each model's rows.
    """
    if "question_id" in by_role:
        for row, values in zip(rows, cells, strict=True):
            if values["question_id"] is None:
                raise row.wrong("expected an id, got an empty cell; give every question one", by_role["question_id"])
        ids = [values["question_id"] for values in cells]
        # spreadsheets and pandas write whole numbers with a point
        are_whole = all(name.endswith(".0") and name[:-2].isdecimal() for name in ids)
        return [name.removesuffix(".0") for name in ids] if are_whole else ids
    if "question" not in by_role:
        return [str(number) for number in range(1, len(rows) + 1)]
    groups = [tuple(values[role] for role in ("model", "dataset", "variant", "draw")) for values in cells]
    texts = ["\x1f".join(filter(None, (values["question"], values["context"]))) for values in cells]
    seen = Counter(zip(groups, texts, strict=True))
    makers = {group: ContentIds() for group in groups}
    return [
        makers[group].next_id(f"{text}\n{values['answer'] or []}" if seen[group, text] > 1 else text)
        for values, group, text in zip(cells, groups, texts, strict=True)
    ]


def _check_ids(source: tables.Source, rows: Sequence[tables.Row], passes: Sequence[FirstPass]) -> None:
    """Raise FirstPassError for an id that occurs several times in a draw of a model."""
    lines: dict[Any, list[int]] = {}
    for row, first_pass in zip(rows, passes, strict=True):
        lines.setdefault((first_pass.identification, first_pass.question.question_id), []).append(row.line)
    repeated = {key: numbers for key, numbers in lines.items() if len(numbers) > 1}
    if repeated:
        (_, question_id), numbers = next(iter(repeated.items()))
        raise source.wrong(
            f"expected every question once, got the id {question_id!r} {len(numbers):,} times"
            f"{f' (and {len(repeated) - 1:,} more ids)' if len(repeated) > 1 else ''}; keep the rows of one model in "
            "a file, or name the column that tells the rows apart, which holds their model, draw (repeated samples: 0, "
            "1, ...) or question_id,",
            numbers,
        ).with_remedy("column", "model=NAME")


def _repeated(passes: Sequence[FirstPass]) -> int:
    """Return the number of rows that have the question and the gold answer of an earlier row in a draw of a model."""
    asked = [
        (first_pass.identification, replace(first_pass.question, question_id="", topic=None))
        for first_pass in passes
        if first_pass.question.text != NOT_KNOWN
    ]
    return len(asked) - len(set(asked))


def _of_flags(values: Values) -> Grade | None:
    """Return the grade from the flags for right and wrong; None if they do not say.

    A refusal that is not marked as wrong is not therefore right.
    """
    if values["correct"] or (values["correct"] is None and values["incorrect"] is False and not values["refused"]):
        return Grade.CORRECT
    is_wrong = values["incorrect"] or (values["correct"] is False and values["incorrect"] is None)
    return Grade.INCORRECT if is_wrong else None


def _grade(values: Values, answer: Grade | None) -> Grade | None:
    """Return the grade of a row; None for an answer without a grade."""
    if values["refused"]:
        return Grade.REFUSED
    if answer is None and values["refused"] is None:
        return Grade.UNSCORED
    if answer is None and values["answerable"] is False:
        return Grade.INCORRECT  # every answer to an unanswerable question is wrong
    return answer


def _first_pass(values: Values, question_id: str, grade: Grade | None, name: str) -> FirstPass:
    """Return the first pass of a row.

    - `name`: the name of the model, if the row has none.
    """
    return FirstPass(
        question=question_of(values, question_id),
        model=values["model"] or name,
        dataset=values["dataset"],
        grade=grade,
        reply=values["reply"],
        variant=FORCED if (values["variant"] or "").casefold() == FORCED else values["variant"],
        draw=values["draw"] or 0,
        reason=NOT_GRADED if grade is Grade.UNSCORED else None,
        p_answering=values["p_answering"],
        confidence=values["confidence"],
        is_marked_answerable=values["answerable"] is True,
    )


def _with_forced(
    first_pass: FirstPass, values: Values, by_role: Mapping[str, str], mark: Grade | None, *, both: bool
) -> FirstPass:
    """Return a first pass with its forced pass, if the row has one.

    - `mark`: the grade in the row, which may accompany a flag for the refusal.
    - `both`: whether that of a refused row belongs to the forced answer.
    """
    is_marked = values["refused"] and values["answerable"] is not False
    other_grade = mark if is_marked and mark in (Grade.CORRECT, Grade.INCORRECT) else None
    reply = values["forced_reply"] or None
    grade = other_grade if both else None
    if "forced_grade" in by_role:
        grade = values["forced_grade"]
    elif {"forced_correct", "forced_incorrect"} & by_role.keys():
        grade = {None: None, True: Grade.CORRECT, False: Grade.INCORRECT}[values["forced_correct"]]
    if grade is None and reply is None:
        return replace(first_pass, set_aside=other_grade)
    if "forced_reply" not in by_role or not is_blank(reply):
        return replace(first_pass, forced=forced_outcome(grade, reply))
    is_unused = first_pass.grade is Grade.REFUSED and grade not in (None, Grade.UNSCORED)
    return replace(first_pass, forced=forced_outcome(None, reply, FORCED_EMPTY), unused_grades=int(is_unused))


def question_of(values: Values, question_id: str) -> Question:
    """Return the question in the values of a row, by role."""
    text = values["question"] or NOT_KNOWN
    if values["answerable"] is False:
        return Question(question_id, text, None, topic=values["topic"], context=values["context"])
    gold, *others = values["answer"] or [NOT_KNOWN]
    options: tuple[str, ...] = ()
    choices: Choices | None = values["choices"]
    right = None if choices is None else choices.resolve(gold)
    if choices is not None and right is not None and not all(choice in text for choice in choices.texts):
        gold = right
        options = choices.texts
    elif choices is not None and right is None and gold.isdecimal() and int(gold) <= len(choices.texts):
        gold = NOT_KNOWN  # a position may count from 0 or from 1
    accepted = dict.fromkeys((*others, *(values["aliases"] or ())))
    aliases = tuple(alias for alias in accepted if alias not in ("", gold))
    return Question(question_id, text, gold, aliases, values["topic"], values["context"], options)


def _not_used(rows: Sequence[tables.Row], by_role: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that do not contribute; right and wrong are not read from flags if there are grades."""
    superseded = ("correct", "incorrect") if "grade" in by_role else ()
    used = {name for role, name in by_role.items() if role not in superseded}
    roots = {name.partition(".")[0] for name in used}
    present = (name for name in tables.present_columns(rows) if "." not in name or name.partition(".")[0] not in roots)
    return tuple(name for name in present if name and name not in used | roots)


def _conflicts(
    rows: Sequence[tables.Row],
    by_role: Mapping[str, str],
    cells: Sequence[Values],
    grades: Sequence[Grade | None],
) -> Iterator[Conflict]:
    """Yield the columns that could be the grade too, and disagree with it.

    - `grades`: the grade of every row, also of those with an empty reply.
    """
    used = by_role.get("grade") or next((by_role[role] for role in GRADE_SOURCES if role in by_role), None)
    if used is None:
        return
    usual = (*COLUMNS["grade"].names, *OTHER_GRADES)
    for name in _not_used(rows, by_role):
        if not _holds_grades(rows, name) and tables.plain_name(name) not in usual:
            continue
        with suppress(FirstPassError):
            others = read_grades([row.cells.get(name) for row in rows], {}, lambda _, message: FirstPassError(message))
            known = (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED)
            pairs = [pair for pair in zip(grades, others, strict=True) if pair[0] in known and pair[1] in known]
            n_different = sum(grade is not other for grade, other in pairs)
            if n_different:
                yield Conflict(used, name, n_different, len(pairs), holds_grades=True)
    if "grade" not in by_role:
        return
    for role in ("correct", "incorrect"):
        flags = [(grade, values[role]) for grade, values in zip(grades, cells, strict=True) if values[role] is not None]
        n_different = sum(_contradicts(role, flag, grade) for grade, flag in flags)
        if role in by_role and n_different:
            yield Conflict(used, by_role[role], n_different, len(flags), holds_grades=False)


def _contradicts(role: str, flag: bool, grade: Grade | None) -> bool:
    """Whether a flag for right or wrong answers contradicts a grade; refusals are often marked as wrong."""
    if role == "correct":
        return flag is not (grade is Grade.CORRECT) and grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED)
    return grade is Grade.CORRECT if flag else grade is Grade.INCORRECT
