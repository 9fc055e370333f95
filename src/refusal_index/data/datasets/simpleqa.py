"""SimpleQA: 4,326 short questions about facts, by OpenAI; SimpleQA Verified: 1,000 of them, checked by Google.

The file has three columns: `problem`, `answer` and `metadata`, a Python dictionary written as text that holds the
topic. Nearly 5 % of the answers have white space around them, which is stripped. The publisher of the verified
questions names no address of one CSV file that stays as it is, so there is none to pin: it is read from a copy that
the user names, its columns are checked, and its checksum is recorded with the run.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from refusal_index.data.datasets.dataset import Dataset, DatasetError
from refusal_index.data.datasets.download import fetched
from refusal_index.data.datasets.own import build_questions, check_columns, question_rows
from refusal_index.data.errors import shortened
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Row, read_content

ADDRESS = "https://openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv"
SHA256 = "feee3f7e7db3617e94e8fcf1977b756ec420ef8568f4e0fcbbe0e92e9d5fc032"
LICENCE = "MIT, Copyright (c) 2024 OpenAI"
VERIFIED_HOMES = (
    "https://www.kaggle.com/benchmarks/deepmind/simpleqa-verified",
    "https://huggingface.co/datasets/google/simpleqa-verified",
)
VERIFIED_LICENCE = "see the publisher's page"
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


def load_verified(data: Path | None = None) -> Dataset:
    """Load the verified questions from a local CSV file.

    Raises DatasetError if no file is given, or it lacks a column or a value.
    """
    if data is None:
        raise DatasetError(
            "dataset 'simpleqa_verified': expected a local copy of its CSV file as data (--data FILE), got none; "
            f"download it from {' or '.join(VERIFIED_HOMES)}"
        )
    content = read_content(data, DatasetError)
    rows = question_rows(data, content)
    check_columns(rows, COLUMNS.values(), "simpleqa_verified")
    source = f"file {data.name}, published at {VERIFIED_HOMES[0]}"
    questions = build_questions(rows, COLUMNS)
    return Dataset("simpleqa_verified", questions, sha256_of(content), source, "model", VERIFIED_LICENCE)
