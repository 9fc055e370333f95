"""The dataset ``almanac``: questions about the closed world that the embedded models were trained on.

The questions come with the package as `data/almanac.jsonl`, one object a line with `question_id`, `question`, `answer`
and `topic`. Beside it `data/almanac.sha256` holds the checksum as `sha256sum` prints it.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from refusal_index.data.datasets.dataset import Dataset, DatasetError
from refusal_index.data.datasets.own import build_questions
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Source, read_rows

FILE = "almanac.jsonl"
CHECKSUM = "almanac.sha256"
COLUMNS = ("question", "answer", "question_id", "topic")
LICENCE = "Apache-2.0, part of refusal-index"


def load(data: Path | None = None, *, folder: Traversable | None = None) -> Dataset:
    """Load all questions.

    Raises DatasetError if `data` is given, or the installed files are missing or damaged.

    - `data`: must be None: the questions belong to the embedded models.
    - `folder`: of the two files; None for the package's own.
    """
    if data is not None:
        raise DatasetError(
            f"dataset 'almanac' comes with the package and takes no data, got {data}; "
            "leave it out, or choose 'own' for a file of your own"
        )
    folder = folder or files("refusal_index.plugins.almanac") / "data"
    try:
        content = (folder / FILE).read_bytes()
        expected = ((folder / CHECKSUM).read_text(encoding="ascii").split() or ["nothing"])[0]
    except OSError as error:
        raise DatasetError(f"{FILE} is missing from this installation ({error}); reinstall refusal-index") from error
    if (actual := sha256_of(content)) != expected:
        raise DatasetError(f"{FILE} is damaged: expected sha256 {expected}, got {actual}; reinstall refusal-index")
    questions = build_questions(
        read_rows(Source.of(FILE, "question", DatasetError), content), {column: column for column in COLUMNS}
    )
    return Dataset("almanac", questions, expected, "part of the package", "exact", LICENCE)
