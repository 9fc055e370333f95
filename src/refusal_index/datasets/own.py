"""A user's own questions: any CSV or JSON Lines file of questions and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.datasets.questions import ROLES, build_questions
from refusal_index.datasets.rows import Row, parse_rows, read_source, sha256_of
from refusal_index.outcomes.errors import nearest

USUAL_NAMES = {
    "question": ("question", "problem", "query", "prompt"),
    "answer": ("answer", "gold", "gold_answer", "correct_answer", "target"),
    "question_id": ("question_id", "id", "qid"),
    "aliases": ("aliases", "answer_aliases"),
    "topic": ("topic", "category", "subject"),
}
"""Column names, in any case, that need not be pointed out."""


def load(data: Path | None, columns: Mapping[str, str] | None = None) -> Dataset:
    """Read questions from a file and check every row.

    Parameters
    ----------
    data
        A .csv, .jsonl or .ndjson file in UTF-8, perhaps with .gz.
    columns
        Column name by role: `question`, `answer`, `question_id`, `aliases` (a JSON list, or texts separated by ``|``),
        `topic`. A role that is not named is looked for under its usual names.

    Raises
    ------
    DatasetError
        If the file cannot be used as it is; the message names the line.
    """
    if data is None:
        raise DatasetError(
            "dataset 'own': expected a file of questions as data (--data FILE), got none; "
            "give a .csv or .jsonl file with the columns question and answer"
        )
    content = read_source(data)
    rows = parse_rows(data, content)
    questions = build_questions(data, rows, _resolved(data, _present(rows), columns or {}))
    stem = data.name.split(".")[0]
    return Dataset(f"own/{stem}", questions, sha256_of(content), f"own file {data.name}", "model", "the user's own")


def _present(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column for row in rows for column in row.cells))


def _resolved(data: Path, present: tuple[str, ...], given: Mapping[str, str]) -> dict[str, str]:
    """Find the column of every role that has one."""
    for role, column in given.items():
        _check_given(data, present, role, column)
    found = {role: given.get(role) or _usual(data, role, present) for role in ROLES}
    for role in ("question", "answer"):
        if found[role] is None:
            raise _missing(data, role, role, present)
    return {role: column for role, column in found.items() if column is not None}


def _check_given(data: Path, present: tuple[str, ...], role: str, column: str) -> None:
    if role not in ROLES:
        guess = nearest(role, ROLES)
        advice = f"; did you mean {guess!r}?" if guess else ""
        raise DatasetError(f"columns: expected roles out of {', '.join(ROLES)}, got {role!r}{advice}")
    if column not in present:
        raise _missing(data, role, column, present)


def _missing(data: Path, role: str, column: str, present: tuple[str, ...]) -> DatasetError:
    guess = nearest(column, present)
    advice = f"did you mean {guess!r}? " if guess else ""
    return DatasetError(
        f"{data}: expected a column {column!r} with the {role}, got {', '.join(map(repr, present)) or 'none'}; "
        f"{advice}say which column it is, for instance {role}={guess or (present or ('NAME',))[0]}"
    )


def _usual(data: Path, role: str, present: tuple[str, ...]) -> str | None:
    found = [column for column in present if column.casefold() in USUAL_NAMES[role]]
    if len(found) > 1:
        raise DatasetError(
            f"{data}: both {found[0]!r} and {found[1]!r} could hold the {role}; "
            f"say which, for instance {role}={found[0]}"
        )
    return found[0] if found else None
