"""PreciseWikiQA: short questions that a model wrote about Wikipedia pages, with answers that the page supports.

Two forms are read. A frozen set, as ``refusal-index build precise-wiki`` makes it, is a JSON Lines file with the fields
`question_id`, `question`, `answer` and perhaps `aliases` and `topic`; others are left alone. A JSON file (.json) holds
one object from question to ``{"correct_answer": ..., "incorrect_answer": ...}``, as some projects share such sets.
"""

from __future__ import annotations

import json
from pathlib import Path

from refusal_index.data.datasets.dataset import Dataset, DatasetError
from refusal_index.data.datasets.own import build_questions, check_columns, question_rows
from refusal_index.data.errors import shortened
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Row, Source, present_columns, read_content

LICENCE = "the texts are Wikipedia's (CC BY-SA)"
NEEDED = ("question", "answer")
KNOWN = (*NEEDED, "question_id", "aliases", "topic")
KEY = "correct_answer"


def load(data: Path | None = None) -> Dataset:
    """Load all questions of a local set.

    Raises DatasetError if no file is given, or it does not hold questions and answers; the message names the line.
    """
    if data is None:
        raise DatasetError(
            "dataset 'precise_wiki': expected a local set as data (--data FILE), got none; "
            "make one with 'refusal-index build precise-wiki', or give one that was made before"
        )
    content = read_content(data, DatasetError)
    rows = _json_rows(data, content) if data.suffix.lower() == ".json" else question_rows(data, content)
    check_columns(rows, NEEDED, "precise_wiki")
    present = present_columns(rows)
    questions = build_questions(rows, {column: column for column in KNOWN if column in present})
    return Dataset("precise_wiki", questions, sha256_of(content), f"file {data.name}", "model", LICENCE)


def _json_rows(data: Path, content: bytes) -> list[Row]:
    source = Source(str(data), "json", "question", DatasetError)
    try:
        pairs = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise source.wrong(f"expected one JSON object, found none ({error}); check that it is whole") from error
    if not isinstance(pairs, dict) or not pairs:
        raise source.wrong(f"expected an object from questions to their answers, got {shortened(pairs)}")
    rows = []
    for number, (question, pair) in enumerate(pairs.items(), start=1):
        if not isinstance(pair, dict) or KEY not in pair:
            said = f"question {shortened(question)}: expected an object with {KEY!r}, got {shortened(pair)}"
            raise source.wrong(said, [number])
        rows.append(Row(source, number, {"question": question, "answer": pair[KEY]}))
    return rows
