"""A user's own questions: any CSV, JSON Lines or Parquet file, data frame, or dictionaries of questions and answers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from refusal_index.datasets.columns import missing_column, resolve_columns
from refusal_index.datasets.dataset import Dataset, DatasetError, GraderName, drawn, questions_sha256, sample
from refusal_index.datasets.questions import Sheet
from refusal_index.outcomes.files import sha256_of
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.source import Problems, Row, Source, opened, present_columns
from refusal_index.outcomes.tabular import iter_rows, no_rows

USUAL_NAMES = {
    "question": ("question", "problem", "query", "prompt"),
    "answer": ("answer", "gold", "gold_answer", "correct_answer", "target"),
    "question_id": ("question_id", "id", "qid"),
    "aliases": ("aliases", "answer_aliases"),
    "topic": ("topic", "category", "subject"),
    "context": ("context", "passage"),
    "choices": ("choices", "options"),
    "answerable": ("answerable", "is_answerable"),
    "pattern": ("pattern", "regex"),
}
"""Column names, in any case, that need not be pointed out."""


Draw = Callable[[Iterable[Question]], Sequence[Question]]
Sha256 = Callable[[Sequence[Question]], str]


class Reading:
    """Questions of a user's own, checked as they are read; nothing is held but what the whole of them can tell.

    - `source`: what they come from.
    - `data`: opens the file anew, or gives the data frame or the dictionaries.
    - `given`: column by role, as the user says.

    Iterating raises DatasetError if no row can be judged: the file cannot be read, or a needed column is missing.
    """

    def __init__(self, source: Source, data: Callable[[], Any], given: Mapping[str, str]) -> None:
        self.source, self._data, self._given = source, data, given
        self.columns: Mapping[str, str] = {}
        """Column by role, as given or found, from the first row on."""
        self.problems: Problems = []
        """Everything that is wrong, in the order of the lines, once all rows were read."""
        self._all_have_choices = True
        self.repeated_texts = 0
        """Questions whose id was made of a text that occurred before."""

    def __iter__(self) -> Iterator[tuple[Row, Question]]:
        malformed: Problems = []
        sheet: Sheet | None = None
        for row in self._rows(malformed):
            if sheet is None:
                self.columns = self._resolved(row)
                sheet = Sheet(self.source, self.columns)
            yield row, sheet.question(row)
        if sheet is None:
            raise malformed[0] if malformed else no_rows(self.source)
        self.problems = sorted([*malformed, *sheet.problems()], key=lambda problem: problem.line)
        self.repeated_texts = sheet.made_ids.repeated

    def _resolved(self, first: Row) -> dict[str, str]:
        present = present_columns(self._that_tell_columns(first))
        columns = resolve_columns(self.source, present, self._given, USUAL_NAMES, strict=True)
        for role in ("question",) if "answerable" in columns else ("question", "answer"):
            if role not in columns:
                raise missing_column(self.source, present, role, role)
        return columns

    def _that_tell_columns(self, first: Row) -> Iterable[Row]:
        """Return rows that hold every column: objects may each have others, the rows of a table have the same."""
        return self._rows([]) if self.source.kind in {"jsonl", "memory"} else [first]

    def _rows(self, malformed: Problems) -> Iterator[Row]:
        data = self._data()
        with data if isinstance(data, io.IOBase) else nullcontext():
            yield from iter_rows(self.source, data, malformed)

    def dataset(self, name: str, source: str, sha256: Sha256, *, lister: str = "", draw: Draw = tuple) -> Dataset:
        """Make a dataset of the questions, or raise DatasetError with the first of what is wrong with any of them.

        - `name`, `source`: as `Dataset` has them.
        - `sha256`: makes the checksum, of the questions.
        - `lister`: what else to say where there is more.
        - `draw`: takes those that are to be asked, all unless told otherwise.
        """
        questions = tuple(draw(self._sound(lister)))
        grader: GraderName = "choice" if self._all_have_choices else "model"
        notes = tuple(repeated_note(self.repeated_texts))
        return Dataset(name, questions, sha256(questions), source, grader, "the user's own", notes=notes)

    def _sound(self, lister: str) -> Iterator[Question]:
        for _, question in self:
            self._all_have_choices = self._all_have_choices and bool(question.choices)
            yield question
        if self.problems:
            more = len(self.problems) - 1
            told = f"; and {more:,} more problem{'s' if more > 1 else ''}{lister}"
            raise DatasetError(f"{self.problems[0]}{told if more else ''}")


def repeated_note(repeated: int) -> Iterator[str]:
    """Say what became of questions that are asked again in the same words and have no ids of their own."""
    if repeated:
        asks = "question asks" if repeated == 1 else "questions ask"
        yield f"{repeated:,} {asks} again what another does; the ids made of the texts end in -2, -3 and so on there"


def load(
    data: object = None, columns: Mapping[str, str] | None = None, limit: int | None = None, seed: int = 0
) -> Dataset:
    """Read questions from a file and check every row.

    Raises DatasetError if the questions cannot be used as they are; the message names the line.

    Parameters
    ----------
    data
        The path of a .csv, .jsonl, .ndjson or .parquet file, those of text perhaps with .gz and in UTF-8; or what
        `questions_from` takes.
    columns
        Column name by role. A role that is not named is looked for under its usual names:

        - `question`, the only one that is always needed;
        - `answer`: a text, or a list of accepted answers with the gold one first; with choices, the text or the letter
          of one of them;
        - `answerable`: false where no right answer exists; what stands under `answer` is then not read;
        - `aliases` and `choices`: a JSON list, or texts separated by ``|``;
        - `context`, `topic`, `question_id`, and `pattern`, a regular expression for the grader ``regex``.
    limit, seed
        How many questions to draw, as `sample` does while they are read; None for all of them.
    """
    if data is None:
        raise DatasetError(
            "dataset 'own': expected a file of questions as data (--data FILE), got none; "
            "give a .csv, .jsonl or .parquet file with the columns question and answer"
        )
    if not isinstance(data, str | Path):
        found = questions_from(data, columns)
        return found if limit is None else sample(found, limit, seed)
    path = Path(data)
    name = f"own/{path.name.split('.')[0]}"
    return reading(path, columns).dataset(
        name,
        f"own file {path.name}",
        lambda _questions: sha256_of(path),
        lister=f", which 'refusal-index validate {path}' lists",
        draw=tuple if limit is None else partial(drawn, limit=limit, seed=seed, name=name),
    )


def questions_from(data: object, columns: Mapping[str, str] | None = None, name: str = "own") -> Dataset:
    """Take questions from memory and check every row.

    Raises DatasetError if the questions cannot be used as they are; the message names the row.

    - `data`: a data frame (of Polars, pandas or Arrow), or dictionaries from columns to cells, one a question.
    - `columns`: column name by role, as `load` tells.
    - `name`: of the dataset, and for messages.
    - returned: with the questions, and so the `questions_sha256`, that the same rows read from a file have. Nothing
      says how a file of them would be written, so `sha256` is that of the questions, too.

    >>> questions_from([{"problem": "Capital of Peru?", "answer": "Lima"}]).questions[0].gold
    'Lima'
    """
    data = list(data) if isinstance(data, Iterator) else data  # it is read more than once
    found = Reading(Source(name, "memory", "question", DatasetError), lambda: data, columns or {})
    return found.dataset(name, "questions in memory", questions_sha256)


def reading(data: Path, columns: Mapping[str, str] | None = None) -> Reading:
    """Return what reads a file of questions, and gathers everything that is wrong with its rows.

    - `data`, `columns`: as for `load`.
    """
    return Reading(Source.of(data, "question", DatasetError), lambda: opened(data, DatasetError), columns or {})
