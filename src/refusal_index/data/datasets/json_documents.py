"""Questions in a JSON document: a list of objects, or an object that holds one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from refusal_index.data import tables
from refusal_index.data.documents import records_of


def rows_of_document(source: tables.Source, content: bytes) -> Iterator[tables.Row]:
    """Yield the rows of a document.

    It holds records as `records_of` finds them, such as objects by question, as some projects share PreciseWikiQA; or
    it is JSON Lines under another name. Raises the source's error for anything else.

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
    records = records_of(source, document)
    for record in records:
        if isinstance(record, dict) and "answer" not in record and "correct_answer" in record:
            record["answer"] = record["correct_answer"]
    return tables.iter_rows(source, records)
