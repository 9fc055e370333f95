"""SimpleQA: 4,326 short questions about facts, by OpenAI.

The file has three columns: `problem`, `answer` and `metadata`, a Python dictionary written as text that holds the
topic. Nearly 5 % of the answers have white space around them, which is stripped.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.datasets.download import fetched
from refusal_index.datasets.questions import build_questions, question_rows
from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.files import sha256_of
from refusal_index.outcomes.source import Row, read_content

ADDRESS = "https://openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv"
SHA256 = "feee3f7e7db3617e94e8fcf1977b756ec420ef8568f4e0fcbbe0e92e9d5fc032"
LICENCE = "MIT, Copyright (c) 2024 OpenAI"
COLUMNS = {"question": "problem", "answer": "answer", "topic": "topic"}


def load(data: Path | None = None, *, address: str = ADDRESS, sha256: str = SHA256) -> Dataset:
    """Load all questions.

    Raises DatasetError if the file is not the official one or cannot be had.

    - `data`: a copy of the official file; None downloads it once and keeps it in the user's cache.
    - `address`, `sha256`: of the official file.
    """
    content = fetched(address, sha256) if data is None else read_content(data, DatasetError)
    if sha256_of(content) != sha256:
        raise DatasetError(
            f"{data} is not the official SimpleQA file: expected sha256 {sha256}, got {sha256_of(content)}; "
            "leave data out to download that file, or ask your own questions with the dataset 'own' "
            f"(--dataset own --data {data})"
        )
    source = address if data is None else f"copy of {address}"
    rows = question_rows("simpleqa.csv", content)
    rows = [replace(row, cells={**row.cells, "topic": _topic(row)}) for row in rows]
    return Dataset("simpleqa", build_questions(rows, COLUMNS), sha256, source, "model", LICENCE)


def _topic(row: Row) -> str | None:
    text = row.cells.get("metadata")
    try:
        metadata = ast.literal_eval(str(text))
        return str(metadata["topic"]) if "topic" in metadata else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise row.wrong(f"expected a dictionary, got {shortened(text)}", "metadata") from error
