"""Records in a JSON document: which list, or columns or objects by name, holds them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from refusal_index.data import tables
from refusal_index.data.column_names import NAMES
from refusal_index.data.encodings import encoding_of
from refusal_index.data.nested import reached
from refusal_index.data.tables import Row, Source, plain_name
from refusal_index.errors import listed

DEEPEST = 4
"""Levels of objects in a document that are searched for records."""

LISTED = ("question", "question_id", "answer", "reply", "grade", "correct", "refused")
"""Roles that distinguish records of answers from other objects."""

TEXTS = ("question", "answer", "reply")
"""Roles that distinguish them from counts."""

DEEPEVAL_CACHE = "test_cases_lookup_map"
"""What the cache of deepeval holds instead of results."""


def has_column(cells: Mapping[str, Any], role: str) -> bool:
    """Whether a record has a column with a usual name of a role."""
    return any(plain_name(str(name)) in NAMES[role] for name in cells)


def parsed(content: bytes, encoding: str) -> Any:
    """Return content, which may be compressed, as one JSON value; raises ValueError or OSError if it is not one."""
    unpacked = tables.unpack(content) if content.startswith(tables.GZIP) else content
    return json.loads(unpacked.decode(encoding_of(unpacked[:4], encoding)))


def rows_of_document(source: Source, content: bytes) -> Iterator[Row]:
    """Yield the rows of a document, or of JSON Lines under another name.

    Raises the source's error for anything else.

    - `source`: the document, of the kind ``"json"``.
    - `content`: its bytes.
    """
    try:
        document = parsed(content, source.encoding)
    except UnicodeDecodeError as error:
        raise source.in_another_encoding(error, 0) from error
    except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
        if b"}\n{" in content.replace(b"\r", b""):
            return tables.iter_rows(replace(source, kind="jsonl"), content)
        advice = "is it cut off, or CSV, whose name should end in .csv?"
        raise source.wrong(f"expected one JSON document, got something else ({error}); {advice}") from error
    return tables.iter_rows(source, records_of(source, document))


def records_of(source: Source, document: Any, path: str | None = None) -> list[Any]:
    """Return the records of a document; raises the source's error if there are none, or several lists of them.

    - `path`: path of the records in it; None to find them.
    """
    if path is not None:
        chosen = records_in(reached(document, path.split(".")))
        if chosen:
            return chosen
        raise source.wrong(
            f"expected the path of a list, as in results.answers or runs.0.answers, got {path!r}; {_advice(document)}"
        ).about("rows")
    if isinstance(document, list):
        return document
    lists = _lists(document)
    fitting = {name: sum(has_column(items[0], role) for role in LISTED) for name, items in lists.items()}
    best = [name for name, roles in fitting.items() if roles == max(fitting.values()) and (roles or len(lists) == 1)]
    if len(best) == 1:
        return lists[best[0]]
    error = source.wrong(f"expected one list of {source.holds}s; {_advice(document)}")
    raise error.with_remedy("rows", (best or ["PATH"])[0]) if lists and source.holds == "answer" else error


def _advice(document: Any) -> str:
    """Return what to do about a document in which the records were not found."""
    if isinstance(document, Mapping) and DEEPEVAL_CACHE in document:
        return "this is the cache of deepeval: write what its evaluate() returns as JSON, or give its test run file"
    if isinstance(document, Mapping) and {"results", "configs"} <= document.keys():
        return "these are totals of lm-evaluation-harness: give the samples_*.jsonl that its --log_samples writes"
    names = list(_lists(document))
    if not names:
        return "there is no list of objects in it: save one object a line as .jsonl"
    return f"it holds lists at {listed(names)}: choose one"


def _lists(value: Any, path: str = "", depth: int = 0) -> dict[str, list[Any]]:
    """Return the records within the objects of a document, by path."""
    records = records_in(value)
    if records or not isinstance(value, Mapping) or depth > DEEPEST:
        return {path: records} if records else {}
    found: dict[str, list[Any]] = {}
    for name, part in value.items():
        found |= _lists(part, f"{path}.{name}" if path else name, depth + 1)
    return found


def records_in(value: Any) -> list[Any]:
    """Return the records that a list or an object is, also as pandas writes them by column or row; none if it is not.

    >>> records_in({"question": {"0": "Who?"}, "answer": {"0": "Ann"}})
    [{'question': 'Who?', 'answer': 'Ann'}]
    >>> records_in({"columns": ["question"], "index": [0], "data": [["Who?"]]})
    [{'question': 'Who?'}]
    >>> records_in({"Who?": {"answer": "Ann"}})
    [{'question': 'Who?', 'answer': 'Ann'}]
    """
    if isinstance(value, list):
        return value if value and isinstance(value[0], Mapping) else []
    if not isinstance(value, Mapping) or not value:
        return []
    names = value.get("columns")
    rows = value.get("data")
    if isinstance(names, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows):
        return [dict(zip(map(str, names), row, strict=False)) for row in rows]
    parts = list(value.values())
    if any(_are_named(parts, role) for role in TEXTS):
        return [_with_name(name, part) for name, part in value.items()]
    columns = [list(part.values()) if isinstance(part, Mapping) else part for part in parts]
    lengths = {len(column) if isinstance(column, list) else None for column in columns}
    is_list = len(columns) == 1 and isinstance(columns[0], list) and bool(records_in(columns[0]))
    if is_list or len(lengths) != 1 or None in lengths or not any(has_column(value, role) for role in LISTED):
        return []
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]


def _are_named(parts: list[Any], role: str) -> bool:
    """Whether the parts of an object are records with a text of a role."""
    texts = ({name: cell for name, cell in part.items() if not isinstance(cell, list | Mapping)} for part in parts)
    return all(isinstance(part, Mapping) for part in parts) and all(has_column(text, role) for text in texts)


def _with_name(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its name, which is its question or its id; a number is only that of its row."""
    role = "id" if has_column(record, "question") else "question"
    return dict(record) if role == "id" and name.isdecimal() else {role: name, **record}
