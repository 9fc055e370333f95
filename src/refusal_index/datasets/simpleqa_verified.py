"""SimpleQA Verified: 1,000 questions of SimpleQA, checked and balanced by Google.

Its publisher names no address of one CSV file that stays as it is, so there is none to pin: it is read from a copy that
the user names, its columns are checked, and its checksum is recorded with the run.
"""

from __future__ import annotations

from pathlib import Path

from refusal_index.datasets.columns import check_columns
from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.datasets.questions import build_questions, question_rows
from refusal_index.outcomes.files import sha256_of
from refusal_index.outcomes.source import read_content

HOMES = (
    "https://www.kaggle.com/benchmarks/deepmind/simpleqa-verified",
    "https://huggingface.co/datasets/google/simpleqa-verified",
)
LICENCE = "see the publisher's page"
COLUMNS = {"question": "problem", "answer": "answer", "topic": "topic"}


def load(data: Path | None = None) -> Dataset:
    """Load all questions from a local CSV file.

    Raises DatasetError if no file is given, or it lacks a column or a value.
    """
    if data is None:
        raise DatasetError(
            "dataset 'simpleqa_verified': expected a local copy of its CSV file as data (--data FILE), got none; "
            f"download it from {' or '.join(HOMES)}"
        )
    content = read_content(data, DatasetError)
    rows = question_rows(data, content)
    check_columns(rows, COLUMNS.values(), "simpleqa_verified")
    source = f"file {data.name}, published at {HOMES[0]}"
    questions = build_questions(rows, COLUMNS)
    return Dataset("simpleqa_verified", questions, sha256_of(content), source, "model", LICENCE)
