"""Questions in a JSON document: a list of objects, or an object that holds one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from refusal_index.data import tables
from refusal_index.errors import shortened


def rows_of_document(source: tables.Source, content: bytes) -> Iterator[tables.Row]:
    """Yield the rows of a document.

    It is a list of objects; an object with one such list; an object from questions to objects with `correct_answer`, as
    some projects share PreciseWikiQA; or JSON Lines under another name. Raises the source's error for anything else.

    - `source`: the document, of the kind ``"json"``.
    - `content`: its bytes.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        if content.lstrip()[:1] == b"{" and b"}\n{" in content.replace(b"\r", b""):
            lines = tables.Source(source.name, "jsonl", source.holds, source.error, source.encoding)
            return tables.iter_rows(lines, content)
        message = f"expected one JSON document, found none ({error}); check that it is complete"
        raise source.wrong(message) from error
    return tables.iter_rows(source, _records(source, document))


def _records(source: tables.Source, document: Any) -> list[Any]:
    if isinstance(document, dict):
        lists = [
            value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)
        ]
        if len(lists) == 1:
            found: list[Any] = lists[0]
            return found
        if document and all(isinstance(pair, dict) and "correct_answer" in pair for pair in document.values()):
            return [{"question": question, "answer": pair["correct_answer"]} for question, pair in document.items()]
    elif isinstance(document, list):
        return document
    raise source.wrong(
        f"expected a list of objects, or an object with one such list or from questions to objects with "
        f"'correct_answer', got {shortened(document)}"
    )
