"""Datasets by name, from their official sources (checked by SHA-256) or from a file.

The module `dataset` reads a user's own file, `hub` any dataset of the Hugging Face Hub; plugins register further
datasets. Published datasets are downloaded, or read from a copy:

- ``simpleqa``: 4,326 short questions about facts, by OpenAI. Its file has the columns `problem`, `answer` and
  `metadata`, a Python dictionary written as text that holds the topic. Nearly 5% of the answers have surrounding white
  space, which is stripped.
- ``simpleqa_verified``: 1,000 of them, checked by Google. The publisher offers no stable address of a CSV file, so it
  is read from a user's copy.
- FaithEval, three datasets of Salesforce AI Research, by Ming et al., each pinned to a revision on the Hugging Face
  Hub:

  - ``faitheval_unanswerable``: the context does not contain the answer. There is no gold answer: every answer is wrong;
  - ``faitheval_inconsistent``: two passages of the context support different answers. There is no gold answer either;
  - ``faitheval_counterfactual``: the context contradicts facts about the world. The questions are multiple choice; the
    gold answer is the one that the context supports.
- ``abstentionbench_...``: parts of AbstentionBench whose files need no more than a map of columns.
- ``precise_wiki``: questions that a model wrote about Wikipedia pages, with answers from the page. ``refusal-index
  build precise-wiki`` writes a JSON Lines file with the fields `question_id`, `question`, `answer` and optionally
  `aliases` and `topic`. A JSON file (.json), as some projects share them, holds an object that maps each question to
  ``{"correct_answer": ..., "incorrect_answer": ...}``.

The SHA-256 of the file is recorded with the run.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from refusal_index import entry_points
from refusal_index.data.datasets.dataset import (
    SIGN,
    Dataset,
    DatasetError,
    GraderName,
    build_questions,
    load_own,
    mix,
    questions_from,
    sample,
)
from refusal_index.data.datasets.downloads import fetched
from refusal_index.data.datasets.hub import PREFIX, load_from_hub, pinned_file
from refusal_index.data.documents import rows_of_document
from refusal_index.data.encodings import UTF_8
from refusal_index.data.files import sha256_of
from refusal_index.data.tables import Row, Source, is_in_memory, present_columns, read_content, read_rows, some_rows
from refusal_index.errors import shortened, suggestion

__all__ = [
    "Dataset",
    "DatasetError",
    "GraderName",
    "dataset_names",
    "load_dataset",
    "mix",
    "questions_from",
    "sample",
]


@dataclass(frozen=True)
class Published:
    """A published dataset: where it is published, and how its file is read."""

    name: str
    columns: Mapping[str, str]  # column by role
    grader: GraderName  # the grader that its answers need
    licence: str = "see the publisher's page"
    address: str | None = None  # of the file, on the Hub at a commit; None if it cannot be downloaded
    sha256: str | None = None  # of the file, required for a download from elsewhere; None if copies may differ
    home: str = ""  # where to get a copy
    advice: str = ""  # how to get a copy
    optional: Sequence[str] = ()  # roles with optional columns
    prepare: str = "none"  # preparation of its rows, one of `PREPARATIONS`
    note: str = ""  # what it is and where it comes from, for a list

    def load(self, data: Path | None = None) -> Dataset:
        """Load all questions.

        Raises DatasetError if the file cannot be downloaded or read, is not the official one, or lacks a column or a
        value.

        - `data`: a copy, in any format with the same columns; if None, the file is downloaded once and cached.
        """
        if data is None and self.address is None:
            raise DatasetError(
                f"dataset {self.name!r}: expected a local file as data (--data FILE), got none; {self.advice}"
            )
        address = self.address or ""
        content = self._downloaded(address) if data is None else read_content(data, DatasetError)
        digest = sha256_of(content)
        if self.sha256 not in (None, digest):
            raise DatasetError(
                f"{data} is not the official file of {self.name!r}: expected sha256 {self.sha256}, got {digest}; "
                "leave data out to download that file, or ask your own questions with the dataset 'own' "
                f"(--dataset own --data {data})"
            )
        read = _rows(data or Path(address.rsplit("/", maxsplit=1)[-1]), content)
        rows = PREPARATIONS[self.prepare](self, read)
        present = present_columns(rows)
        for role, column in self.columns.items():
            if column.split(".")[0] not in present and role not in self.optional:
                expected = f"the columns of {self.name}, among them {column!r}"
                raise rows[0].source.lacks(expected, present, "; is it another file?")
        columns = {role: column for role, column in self.columns.items() if column.split(".")[0] in present}
        return Dataset(
            self.name, build_questions(rows, columns), digest, self._source(data, address), self.grader, self.licence
        )

    def _downloaded(self, address: str) -> bytes:
        return fetched(address, self.sha256) if self.sha256 is not None else pinned_file(address)

    def _source(self, data: Path | None, address: str) -> str:
        if data is None:
            return address
        if self.sha256 is not None:
            return f"copy of {address}"
        home = address or self.home
        return f"file {data.name}{home and f', published at {home}'}"


def _rows(path: Path, content: bytes) -> list[Row]:
    if path.suffix.lower() != ".json":
        return read_rows(Source.from_path(path, "question", DatasetError), content)
    source = Source(str(path), "json", "question", DatasetError)
    rows = some_rows(source, rows_of_document(source, content))
    return [replace(row, cells=_with_answer(row.cells)) for row in rows]


def _with_answer(cells: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the cells of a record with an answer as some projects that share PreciseWikiQA name it."""
    return {"answer": cells["correct_answer"], **cells} if "correct_answer" in cells else cells


METADATA = re.compile(r"\{(?:'topic': '([^']*)')?.*\}")
"""A dictionary of SimpleQA, in Python's notation; its first entry is the topic."""


def _with_topics(_dataset: Published, rows: Sequence[Row]) -> list[Row]:
    """Read the topic from the metadata."""

    def topic(row: Row) -> str | None:
        cell = row.cells.get("metadata")
        match = METADATA.fullmatch(str(cell))
        if match is None:
            raise row.wrong(f"expected a dictionary, got {shortened(cell)}", "metadata")
        return match[1]

    return [replace(row, cells={**row.cells, "topic": topic(row)}) for row in rows]


def _of_faitheval(dataset: Published, rows: Sequence[Row]) -> list[Row]:
    """Append ``-2``, ``-3`` and so on to repeated ids, and mark unanswerable questions."""
    column = dataset.columns["question_id"]
    added = {"answerable": False} if "answerable" in dataset.columns else {}
    seen: Counter[str] = Counter()
    prepared = []
    for row in rows:
        question_id = str(row.cells.get(column) or "")
        seen[question_id] += 1
        distinct = question_id if seen[question_id] == 1 or not question_id else f"{question_id}-{seen[question_id]}"
        cells = {**row.cells, **added, **({column: distinct} if column in row.cells else {})}
        prepared.append(replace(row, cells=cells))
    return prepared


PREPARATIONS: Mapping[str, Callable[[Published, Sequence[Row]], list[Row]]] = {
    "none": lambda _dataset, rows: list(rows),
    "topics": _with_topics,
    "faitheval": _of_faitheval,
}
"""Preparations of the rows of a file, by name."""

PUBLISHED = {
    name: Published(name, **described)
    for name, described in tomllib.loads(
        resources.files(__package__).joinpath("published.toml").read_text("utf-8")
    ).items()
}
"""The published datasets, by name."""

DEFAULT_DATASET = "almanac"
"""The dataset that is asked if none is named; a plugin of this package registers it."""


Loader = Callable[[Path | None], Dataset]
"""Loads a dataset from a user's file, or from its source if that is None."""


@dataclass(frozen=True)
class DatasetSource:
    """A dataset as it is registered: how it is loaded, and what is known before.

    A plugin registers one in the group ``refusal_index.datasets``, or a plain `Loader`.
    """

    load: Loader
    note: str = ""  # what it is and where it comes from, for a list; by default the first line of a loader's docstring
    grader: GraderName | None = None  # the grader for its answers; None to use that of the loaded dataset
    limit: int | None = None  # how many of its questions are asked by default; None for all
    takes_file: bool = True  # whether it can be read from a user's file
    needs_file: bool = False  # whether there is no other source


_SOURCES: Mapping[str, DatasetSource] = {
    "own": DatasetSource(load_own, "your own CSV, JSON Lines or Parquet file (--data FILE)", needs_file=True),
    **{
        dataset.name: DatasetSource(dataset.load, dataset.note, dataset.grader, needs_file=dataset.address is None)
        for dataset in PUBLISHED.values()
    },
}


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets, in alphabetical order.

    >>> dataset_names()[-2:]
    ('simpleqa', 'simpleqa_verified')
    """
    return tuple(sorted({*_SOURCES, *entry_points.installed("datasets")}))


def load_dataset(
    name: str,
    *,
    data: Any = None,
    columns: Mapping[str, str] | None = None,
    mix_seed: int = 0,
    limit: int | None = None,
    encoding: str = UTF_8,
) -> Dataset:
    """Load a dataset by name and check every question.

    Raises DatasetError if the name is unknown, an argument does not apply to it, or the source cannot be read or is
    invalid.

    - `name`: one of `dataset_names`, a dataset of the Hub as ``hf:ORG/NAME[/CONFIG][:SPLIT][@REVISION]``, or several
      joined by ``+``: a mix with equally many questions from each.
    - `data`: a local file: the questions of ``own``, or a copy of a dataset; for ``own`` also a data frame or
      dictionaries, as for `questions_from`. For a mix, one file for each part that needs one, or for each that accepts
      one, in order.
    - `columns`: for ``own`` and datasets of the Hub only: column name by role, as for `load_own`.
    - `mix_seed`: seed for drawing from the larger parts of a mix, and for drawing `limit` questions.
    - `limit`: number of questions to draw, as with `sample`; None for all.
    - `encoding`: encoding of the text files of ``own``.
    - returned: the dataset, with unique question ids.
    """
    names = name.split(SIGN)
    sources = {part: dataset_source(part) for part in names}
    takes_columns = [part for part in names if part == "own" or part.startswith(PREFIX)]
    if columns is not None and not takes_columns:
        raise DatasetError(
            f"columns: {name!r} has columns of its own; leave columns out, or choose 'own' for a file of your own"
        )
    files = _files(sources, names, data)
    if names == ["own"] and limit is not None:
        return load_own(files[0], columns, limit, mix_seed, encoding)
    parts = []
    for part, file in zip(names, files, strict=True):
        if part != "own" and is_in_memory(file):
            raise DatasetError(
                f"data: {part!r} is read from a file, got {shortened(file)}; choose 'own' for questions in memory"
            )
        if part.startswith(PREFIX):
            parts.append(load_from_hub(part, columns))
        elif part == "own":
            parts.append(load_own(file, columns, encoding=encoding))
        else:
            loaded = sources[part].load(file)
            if not isinstance(loaded, Dataset):
                raise DatasetError(
                    f"dataset {part!r}: expected a Dataset from the function of its plugin, got {shortened(loaded)}; "
                    f"return questions_from(ROWS, name={part!r})"
                )
            parts.append(replace(loaded, default_grader=sources[part].grader or loaded.default_grader))
    combined = parts[0] if len(parts) == 1 else mix(parts, mix_seed)
    return combined if limit is None else sample(combined, limit, mix_seed)


def dataset_source(name: str) -> DatasetSource:
    """Return a dataset as it is registered; raises DatasetError if the name is unknown."""
    source = _find_source(name)
    if source is None:
        advice = suggestion(name, dataset_names()) or "; for a file of your own choose 'own' and give it as data"
        raise DatasetError(f"dataset: expected one of {', '.join(dataset_names())}, got {name!r}{advice}")
    return source


def default_limit(name: str) -> int | None:
    """Return how many questions of a dataset are asked by default, None for all; for a mix, all are."""
    return None if SIGN in name else dataset_source(name).limit


def usual_grader(name: str) -> GraderName | None:
    """Return the grader that a dataset's answers need; None if no dataset of that name says."""
    source = _find_source(name)
    return None if source is None else source.grader


def _find_source(name: str) -> DatasetSource | None:
    if name in _SOURCES:
        return _SOURCES[name]
    if name.startswith(PREFIX):
        return DatasetSource(lambda _file: load_from_hub(name), takes_file=False)
    plugin = entry_points.find("datasets", name)
    if plugin is None:
        return None
    registered = entry_points.load(plugin)
    if isinstance(registered, DatasetSource):
        return registered
    return DatasetSource(registered, entry_points.first_line(registered))


def _files(sources: Mapping[str, DatasetSource], names: Sequence[str], data: Any) -> list[Any]:
    """Assign files to datasets in order: to those that need one, or to all that accept one."""
    given_files = [data] if isinstance(data, str | Path) or is_in_memory(data) else list(data or ())
    if not given_files:
        return [None] * len(names)
    required = [name for name in names if sources[name].needs_file]
    accepting = [name for name in names if sources[name].takes_file] or list(names)
    takers = next((group for group in (required, accepting) if len(group) == len(given_files)), None)
    if takers is None:
        counts = {len(group): ", ".join(group) for group in (accepting, required) if group}
        expected = " or ".join(f"{count} file{'s' if count > 1 else ''} ({group})" for count, group in counts.items())
        counted = f"{len(given_files)} file{'s' if len(given_files) > 1 else ''}"
        raise DatasetError(f"data: expected {expected}, in this order, got {counted}")
    files = iter(Path(file) if isinstance(file, str) else file for file in given_files)
    return [next(files) if name in takers else None for name in names]
