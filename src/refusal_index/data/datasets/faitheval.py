"""FaithEval: questions about a text that does not tell, contradicts itself, or contradicts the world.

Three datasets of Salesforce AI Research, by Ming et al.:

- ``faitheval_unanswerable``: the text does not hold the answer. There is no gold answer: every answer is wrong;
- ``faitheval_inconsistent``: two passages of the text support different answers. No gold answer either;
- ``faitheval_counterfactual``: the text says what the world does not, and asks to choose among answers. The gold answer
  is the one that the text supports.

The first two have the columns `qid`, `question`, `context` and `answers` (which is not read), the third `id`,
`question`, `context`, `choices` (labels and texts) and `answerKey`. Each is downloaded from the Hugging Face hub at a
revision that is pinned here, or read from a copy that the user names, in any format of the same columns. The checksum
of what was read is recorded with the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refusal_index.data.datasets.dataset import Dataset, DatasetError, GraderName
from refusal_index.data.datasets.download import fetched
from refusal_index.data.datasets.own import build_questions, check_columns, question_rows
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Row, read_content

HUB = "https://huggingface.co/datasets/Salesforce"
LICENCE = "see the publisher's page"


@dataclass(frozen=True)
class Task:
    """One of the three datasets."""

    name: str  # ours
    repository: str  # its name on the hub
    revision: str  # the commit there
    file: str  # the Parquet file in it: the authors' own, or the copy that the hub makes of it
    columns: Mapping[str, str]  # column by role
    grader: GraderName  # what its answers need to be graded

    @property
    def address(self) -> str:
        """Where its file is."""
        return f"{HUB}/{self.repository}/resolve/{self.revision}/{self.file}"


UNANSWERABLE = Task(
    "faitheval_unanswerable",
    "FaithEval-unanswerable-v1.0",
    "001f1672f4a21cffcc8054da8fe839b225ccc683",
    "data/test-00000-of-00001.parquet",
    {"question_id": "qid", "question": "question", "context": "context", "answerable": "answerable"},
    "model",
)
INCONSISTENT = Task(
    "faitheval_inconsistent",
    "FaithEval-inconsistent-v1.0",
    "13b2fbd835e144bdd40f869d50ecd1edfb491398",
    "default/test/0000.parquet",
    UNANSWERABLE.columns,
    "model",
)
COUNTERFACTUAL = Task(
    "faitheval_counterfactual",
    "FaithEval-counterfactual-v1.0",
    "88d27f7e83ff1eb3f0c6645eef608e08654d85d7",
    "default/test/0000.parquet",
    {"question_id": "id", "question": "question", "context": "context", "choices": "choices", "answer": "answerKey"},
    "choice",
)

TASKS = (COUNTERFACTUAL, INCONSISTENT, UNANSWERABLE)


def load(task: Task, data: Path | None = None) -> Dataset:
    """Load all questions of a task.

    An id that occurs again gets ``-2``, ``-3`` and so on in the order of the file. Raises DatasetError if the file
    cannot be had, or lacks a column or a value.

    - `task`: which.
    - `data`: a copy, as Parquet, JSON Lines or CSV; None downloads the file once and keeps it in the user's cache.
    """
    content = fetched(task.address) if data is None else read_content(data, DatasetError)
    path = data or Path(task.address.rsplit("/", maxsplit=1)[-1])
    rows = question_rows(path, content)
    check_columns(rows, [column for role, column in task.columns.items() if role != "answerable"], task.name)
    questions = build_questions(_prepared(task, rows), task.columns)
    source = task.address if data is None else f"file {data.name}, published at {task.address}"
    return Dataset(task.name, questions, sha256_of(content), source, task.grader, LICENCE)


def _prepared(task: Task, rows: Sequence[Row]) -> list[Row]:
    """Tell repeated ids apart, and say of questions without a gold answer that they have none."""
    column = task.columns["question_id"]
    added = {task.columns["answerable"]: False} if "answerable" in task.columns else {}
    seen: Counter[str] = Counter()
    prepared = []
    for row in rows:
        given = str(row.cells.get(column) or "")
        seen[given] += 1
        distinct = given if seen[given] == 1 or not given else f"{given}-{seen[given]}"
        prepared.append(replace(row, cells={**row.cells, **added, column: distinct}))
    return prepared
