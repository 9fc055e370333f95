"""SimpleQA Verified: 1,000 questions of SimpleQA, checked and balanced by Google.

Its publisher names no address of one CSV file that stays as it is, so there is none to pin: it is read from a copy that
the user names, its columns are checked, and its checksum is recorded with the run.
"""

from __future__ import annotations

from pathlib import Path

from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.datasets.questions import build_questions
from refusal_index.datasets.rows import parse_rows, read_source, sha256_of

HOMES = (
    "https://www.kaggle.com/benchmarks/deepmind/simpleqa-verified",
    "https://huggingface.co/datasets/google/simpleqa-verified",
)
LICENCE = "see the publisher's page"
COLUMNS = {"question": "problem", "answer": "answer", "topic": "topic"}


def load(data: Path | None = None) -> Dataset:
    """Load all questions from a local CSV file.

    Raises
    ------
    DatasetError
        If no file is given, or it lacks a column or a value.
    """
    if data is None:
        raise DatasetError(
            "dataset 'simpleqa_verified': expected a local copy of its CSV file as data (--data FILE), got none; "
            f"download it from {' or '.join(HOMES)}"
        )
    content = read_source(data)
    rows = parse_rows(data, content)
    missing = [column for column in COLUMNS.values() if column not in rows[0].cells]
    if missing:
        raise DatasetError(
            f"{data}: expected the columns of SimpleQA Verified, among them {missing[0]!r}, "
            f"got {', '.join(map(repr, rows[0].cells))}; is it another file?"
        )
    source = f"file {data.name}, published at {HOMES[0]}"
    return Dataset(
        "simpleqa_verified", build_questions(data, rows, COLUMNS), sha256_of(content), source, "model", LICENCE
    )
