"""From the rows of a file to questions, all of them checked before the first is asked."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refusal_index.datasets.dataset import DatasetError
from refusal_index.datasets.rows import Row
from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.question import Question

ROLES = ("question", "answer", "question_id", "aliases", "topic")
"""What a column can hold; the first two are needed."""


def build_questions(name: str | Path, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[Question, ...]:
    """Make a question of every row.

    Parameters
    ----------
    name
        The file, for messages.
    rows
        Its rows.
    columns
        Column by role of `ROLES`. Without a `question_id` the id is made of the question's text.

    Raises
    ------
    DatasetError
        If any row lacks a question, an answer or an id, an id occurs twice, or a cell is not what its role expects.
    """
    texts = _filled(name, rows, "question", columns["question"])
    golds = _filled(name, rows, "answer", columns["answer"])
    ids = _ids(name, rows, columns.get("question_id"), texts)
    return tuple(
        Question(question_id, text, gold, _aliases(name, row, columns.get("aliases"), gold), _topic(name, row, columns))
        for row, question_id, text, gold in zip(rows, ids, texts, golds, strict=True)
    )


def _ids(name: str | Path, rows: Sequence[Row], column: str | None, texts: Sequence[str]) -> list[str]:
    if column is None:
        return content_ids(texts)
    ids = _filled(name, rows, "question_id", column)
    _refuse_duplicates(name, ids, rows)
    return ids


def _topic(name: str | Path, row: Row, columns: Mapping[str, str]) -> str | None:
    return (_cell(name, row, columns["topic"]) or None) if "topic" in columns else None


def content_ids(texts: Sequence[str]) -> list[str]:
    """Make ids of the questions' texts, so that they survive reordering and additions.

    Twelve hexadecimal digits of the SHA-256 of the text in Unicode's composed form with single spaces. A text that
    occurs again gets ``-2``, ``-3`` and so on in the order of the file.

    Examples
    --------
    >>> content_ids(["Who?", "Who ?", "Who?"])
    ['d991a24e8e04', '92984b2f5b40', 'd991a24e8e04-2']
    """
    seen: Counter[str] = Counter()
    ids = []
    for text in texts:
        normal = " ".join(unicodedata.normalize("NFC", text).split())
        digest = hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        seen[digest] += 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def _cell(name: str | Path, row: Row, column: str) -> str:
    value = row.cells.get(column)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise DatasetError(
        f"{name}, line {row.line}, column {column!r}: expected text, got {shortened(value)}; "
        "write one text, and further accepted answers into a column of aliases"
    )


def _aliases(name: str | Path, row: Row, column: str | None, gold: str) -> tuple[str, ...]:
    value = row.cells.get(column) if column else None
    if isinstance(value, str):
        value = _split_aliases(name, row, column, value.strip())
    if not isinstance(value, list | None):
        raise _bad_aliases(name, row, column, value)
    stripped = (str(alias).strip() for alias in value or ())
    return tuple(alias for alias in dict.fromkeys(stripped) if alias and alias != gold)


def _split_aliases(name: str | Path, row: Row, column: str | None, text: str) -> Any:
    if not text.startswith("["):
        return text.split("|")
    try:
        return json.loads(text)
    except ValueError as error:
        raise _bad_aliases(name, row, column, text) from error


def _bad_aliases(name: str | Path, row: Row, column: str | None, value: object) -> DatasetError:
    return DatasetError(
        f"{name}, line {row.line}, column {column!r}: expected aliases as a JSON list or separated by |, "
        f'got {shortened(value)}; write ["one", "two"] or one|two'
    )


def _filled(name: str | Path, rows: Sequence[Row], role: str, column: str) -> list[str]:
    """Give the cells of a column in which none may be empty."""
    cells = [_cell(name, row, column) for row in rows]
    empty = [row.line for row, cell in zip(rows, cells, strict=True) if not cell]
    if empty:
        raise DatasetError(
            f"{name}, {_named(empty)}, column {column!r}: expected the {role} of every row, got an empty cell; "
            "fill it in or remove the row"
        )
    return cells


def _refuse_duplicates(name: str | Path, ids: Sequence[str], rows: Sequence[Row]) -> None:
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for question_id, row in zip(ids, rows, strict=True):
        lines[question_id].append(row.line)
    for question_id, found in lines.items():
        if len(found) > 1:
            raise DatasetError(
                f"{name}, {_named(found)}: expected every question_id once, got {question_id!r} {len(found)} times; "
                "give each question an id of its own, or remove the column to have ids made of the texts"
            )


def _named(lines: Sequence[int], most: int = 10) -> str:
    shown = ", ".join(map(str, lines[:most]))
    more = f" and {len(lines) - most} more" if len(lines) > most else ""
    return f"line{'s' if len(lines) > 1 else ''} {shown}{more}"
