"""A user's own questions: which column holds what, and how rows become checked questions."""

from __future__ import annotations

import hashlib
import io
import json
import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from refusal_index.data.datasets.dataset import Dataset, DatasetError, GraderName, drawn, questions_sha256, sample
from refusal_index.data.errors import TableError, shortened
from refusal_index.data.files import sha256_of
from refusal_index.data.outcome import LETTERS, Question
from refusal_index.data.tables import (
    TRUTH,
    Problems,
    Row,
    Source,
    iter_rows,
    missing_column,
    no_rows,
    opened,
    present_columns,
    read_rows,
    resolve_columns,
)
from refusal_index.data.text import SECONDS, PatternError, compiled, matches, sound_text, wrong_id
from refusal_index.redaction import KeySearch


def check_columns(rows: Sequence[Row], needed: Collection[str], dataset: str) -> None:
    """Raise where a copy of a dataset lacks one of its columns."""
    present = present_columns(rows)
    for column in needed:
        if column not in present:
            expected = f"the columns of {dataset}, among them {column!r}"
            raise rows[0].source.lacks(expected, present, "; is it another file?")


def text_cell(row: Row, column: str) -> str:
    """Read one text, without surrounding white space; empty where the cell is."""
    value = row.cells.get(column)
    if isinstance(value, str):
        return sound_text(value).strip()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    said = f"expected text, got {shortened(value)}; write one text, and further answers into a column of aliases"
    raise row.wrong(said, column)


def id_cell(row: Row, column: str) -> str:
    """Read an id, which must be one that can be written down."""
    value = _value(row, column)
    if isinstance(value, str) and (said := wrong_id(value)) is not None:
        raise row.wrong(f"{said}, or remove the column to have ids made of the texts", column)
    return text_cell(row, column)


def list_cell(row: Row, column: str) -> tuple[str, ...]:
    """Read a JSON list of texts, or texts separated by ``|``."""
    value = _value(row, column)
    if isinstance(value, str):
        text = value.strip()
        value = parsed(row, column, text) if text.startswith("[") else text.split("|") if text else None
    if not isinstance(value, list | None) or any(isinstance(item, list | dict) for item in value or ()):
        raise not_a_list(row, column, value)
    return tuple("" if item is None else sound_text(str(item)).strip() for item in value or ())


def answers_cell(row: Row, column: str) -> tuple[str, ...]:
    """Read the gold answer, or a list of accepted answers with the gold one first; an empty cell holds none."""
    if isinstance(_value(row, column), list):
        return tuple(filter(None, list_cell(row, column)))
    answer = text_cell(row, column)
    return (answer,) if answer else ()


def flag_cell(row: Row, column: str) -> bool:
    """Read true or false, yes or no, 1 or 0."""
    truth = TRUTH.get(text_cell(row, column).casefold())
    if truth is None:
        raise row.wrong(f"expected true or false, got {shortened(_value(row, column))}", column)
    return truth


def parsed(row: Row, column: str, text: str) -> Any:
    """Read JSON inside a cell."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_a_list(row, column, text) from error


def not_a_list(row: Row, column: str, value: object) -> TableError:
    """Say what a list in a cell looks like."""
    said = f'expected a JSON list or texts separated by |, got {shortened(value)}; write ["one", "two"] or one|two'
    return row.wrong(said, column)


def _value(row: Row, column: str) -> Any:
    """Give a cell as it stands; a number that is none is nothing."""
    value = row.cells.get(column)
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True)
class Choices:
    """The answers to choose from, and what the source itself calls them, where it does."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()

    def keyed(self, key: str) -> str | None:
        """Return the choice that `key` points to: by the source's label, by its text or by its letter.

        A number is no letter: nobody knows whether it counts from 0 or from 1.

        >>> Choices(("Cuzco", "Lima")).keyed("B"), Choices(("2", "1"), ("1", "2")).keyed("1")
        ('Lima', '2')
        >>> Choices(("Cuzco", "Lima")).keyed("1") is None
        True
        """
        folded = [text.casefold() for text in self.texts]
        for names in (self.labels, self.texts):
            if key in names:
                return self.texts[names.index(key)]
        if key.casefold() in folded:
            return self.texts[folded.index(key.casefold())]
        letters = () if self.labels else tuple(LETTERS[: len(self.texts)])
        return self.texts[letters.index(key.upper())] if key.upper() in letters else None


def choices_cell(row: Row, column: str) -> Choices | None:
    """Read the choices of a row: a JSON list, texts separated by ``|``, or labels and texts; None if there are none.

    Raises TableError if there is only one, there are more than letters, two are the same, or one is called like
    another.
    """
    value = row.cells.get(column)
    if isinstance(value, str) and value.strip().startswith("{"):
        value = parsed(row, column, value.strip())
    choices = _labelled(row, column, value) if isinstance(value, dict) else Choices(list_cell(row, column))
    if not choices.texts:
        return None
    if (said := _wrong(choices.texts)) is not None:
        raise row.wrong(said, column)
    return choices


def _labelled(row: Row, column: str, value: dict[str, object]) -> Choices:
    labels, texts = value.get("label"), value.get("text")
    if not (isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts)):
        raise not_a_list(row, column, value)
    text, label = ([sound_text(str(each)).strip() for each in some] for some in (texts, labels))
    return Choices(tuple(text), tuple(label))


def _wrong(texts: Sequence[str]) -> str | None:
    """Say what is wrong with choices, if anything is."""
    if not 2 <= len(texts) <= len(LETTERS):
        return f"expected from 2 to {len(LETTERS)} choices, got {len(texts)}"
    if len({text.casefold() for text in texts}) < len(texts) or "" in texts:
        return f"expected every choice once and none empty, got {shortened(list(texts))}; remove what is too much"
    letters = LETTERS[: len(texts)]
    for letter, text in zip(letters, texts, strict=True):
        if text.upper() in set(letters) - {letter}:
            return f"choice {letter} reads {shortened(text)}, which is the letter of another; reword the choices"
    return None


T = TypeVar("T")
_NOTHING: tuple[str, ...] = ()


def question_rows(path: str | Path, content: bytes) -> list[Row]:
    """Read the rows of a file of questions, whose suffix says the format, or raise `DatasetError`."""
    return read_rows(Source.of(path, "question", DatasetError), content)


def build_questions(rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[Question, ...]:
    """Make a question of every row.

    Raises TableError for the first of the problems that `read_questions` finds.

    - `rows`: all of them, of one source.
    - `columns`: column by role, as `own.load` tells. Without a `question_id` the id is made of what is asked.
    """
    questions, problems = read_questions(rows, columns)
    if problems:
        raise problems[0]
    return questions


def read_questions(rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[tuple[Question, ...], Problems]:
    """Make a question of every row, or say everything that is wrong, in the order of the lines.

    - `rows`, `columns`: as for `build_questions`.
    - returned `questions`: None of them where there are problems.
    - returned `problems`: a row lacks a question, an answer or an id; an id occurs twice, or cannot be written down; an
      answer is none of the choices; a pattern is none, or does not match its own answer; or a cell is not what its role
      expects.
    """
    sheet = Sheet(rows[0].source, columns)
    questions = tuple(sheet.question(row) for row in rows)
    problems = sheet.problems()
    return (() if problems else questions), problems


class ContentIds:
    """Makes ids of questions' texts, as `content_ids` tells; remembers what it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.repeated = 0
        """How many texts occurred before."""

    def of(self, text: str) -> str:
        """Make the id of the next text."""
        normal = " ".join(unicodedata.normalize("NFC", text).split())
        digest = hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        times = self._seen[digest] = self._seen.get(digest, 0) + 1
        self.repeated += times > 1
        return digest if times == 1 else f"{digest}-{times}"


def content_ids(texts: Sequence[str]) -> list[str]:
    """Make ids of the questions' texts, so that they survive reordering and additions.

    Twelve hexadecimal digits of the SHA-256 of the text in Unicode's composed form with single spaces. A text that
    occurs again gets ``-2``, ``-3`` and so on in the order of the file.

    >>> content_ids(["Who?", "Who ?", "Who?"])
    ['d991a24e8e04', '92984b2f5b40', 'd991a24e8e04-2']
    """
    ids = ContentIds()
    return [ids.of(text) for text in texts]


STEPS = ("choices", "question", "answerable", "answer", "context", "question_id", "aliases", "topic", "pattern")
"""The roles in the order in which what is wrong in one line is told."""


class Sheet:
    """Makes questions of rows, one by one; gathers what is wrong, and what only the whole of them can tell.

    - `source`, `columns`: where the rows come from, and column by role.
    """

    def __init__(self, source: Source, columns: Mapping[str, str]) -> None:
        self._source, self._columns = source, columns
        self._found: list[tuple[int, int, TableError]] = []
        self._empty: dict[str, list[int]] = {}
        self._lines: dict[str, int] = {}
        self._again: dict[str, list[int]] = {}
        self._topics: dict[str, str] = {}
        self.made_ids = ContentIds()

    def question(self, row: Row) -> Question:
        """Make a question of a row; it is worth nothing where there are problems."""
        choices = self._cell(row, "choices", choices_cell, None)
        text = self._filled(row, "question")
        gold, accepted = self._answers(row, choices)
        context = self._cell(row, "context", text_cell, "")
        texts = choices.texts if choices else ()
        question_id = self._id(row, text, context, texts)
        aliases = self._cell(row, "aliases", list_cell, _NOTHING)
        topic = self._cell(row, "topic", text_cell, "")
        pattern = self._cell(row, "pattern", text_cell, "")
        if pattern and (said := _wrong_pattern(pattern, gold)) is not None:
            self._tell("pattern", row.wrong(said, self._columns["pattern"]))
        others = _others((*accepted, *aliases), gold) if accepted or aliases else ()
        topic = self._topics.setdefault(topic, topic)  # one text for all questions of a topic
        return Question(question_id, text, gold, others, topic or None, context or None, texts, pattern or None)

    def problems(self) -> Problems:
        """Return everything that is wrong, in the order of the lines."""
        found = [*self._found, *self._repeated_ids()]
        for role, lines in self._empty.items():
            said = f"expected the {role} of every row, got an empty cell; fill it in or remove the row"
            unless = ", or mark questions without a right answer in a column answerable" if role == "answer" else ""
            problem = self._source.wrong(said + unless, lines, self._columns.get(role, role))
            found.append((lines[0], STEPS.index(role), problem))
        return [problem for _, _, problem in sorted(found, key=lambda one: one[:2])]

    def _cell(self, row: Row, role: str, cell: Callable[[Row, str], T], otherwise: T) -> T:
        """Read the cell of a role; `otherwise` stands for that of no column and for one that is wrong."""
        column = self._columns.get(role)
        if column is None:
            return otherwise
        try:
            return cell(row, column)
        except TableError as error:
            self._tell(role, error.with_traceback(None))
            return otherwise

    def _tell(self, role: str, problem: TableError) -> None:
        self._found.append((problem.line, STEPS.index(role), problem))

    def _filled(self, row: Row, role: str, cell: Callable[[Row, str], str] = text_cell) -> str:
        """Read a text that may not be empty."""
        text = self._cell(row, role, cell, "")
        if not text:
            self._refuse_empty(row, role)
        return text

    def _refuse_empty(self, row: Row, role: str) -> None:
        column = self._columns.get(role, role)
        if not any(line == row.line and told.column == column for line, _, told in self._last_found()):
            self._empty.setdefault(role, []).append(row.line)

    def _last_found(self) -> list[tuple[int, int, TableError]]:
        return self._found[-len(STEPS) :]  # a row has no more problems than that

    def _answers(self, row: Row, choices: Choices | None) -> tuple[str | None, tuple[str, ...]]:
        """Read the gold answer, None where there is none, and further accepted ones."""
        is_answerable = self._cell(row, "answerable", flag_cell, True)
        cells = self._cell(row, "answer", answers_cell, _NOTHING)
        if is_answerable and not cells:
            self._refuse_empty(row, "answer")
        if not (is_answerable and cells):
            return None, ()
        return (cells[0] if choices is None else self._keyed(row, choices, cells[0])), cells[1:]

    def _keyed(self, row: Row, choices: Choices, answer: str) -> str | None:
        """Return the gold answer, which is one of the choices."""
        gold = choices.keyed(answer)
        if gold is None:
            names = ", ".join(choices.labels or choices.texts)
            said = f"expected one of the choices, by its text or its letter, got {shortened(answer)}; "
            self._tell("answer", row.wrong(f"{said}the choices are {shortened(names)}", self._columns["answer"]))
        return gold

    def _id(self, row: Row, text: str, context: str, choices: tuple[str, ...]) -> str:
        """Read the id, or make it of all that is asked; that of a question alone is made of its text."""
        if "question_id" not in self._columns:
            return self.made_ids.of("\x1f".join(part for part in (text, context, *choices) if part))
        question_id = self._filled(row, "question_id", id_cell)
        if question_id and self._lines.setdefault(question_id, row.line) != row.line:
            self._again.setdefault(question_id, []).append(row.line)
        return question_id

    def _repeated_ids(self) -> Iterator[tuple[int, int, TableError]]:
        for question_id, again in self._again.items():
            lines = [self._lines[question_id], *again]
            said = f"expected every question_id once, got {question_id!r} {len(lines)} times; "
            advice = "give each question an id of its own, or remove the column to have ids made of the texts"
            yield lines[0], STEPS.index("question_id"), self._source.wrong(said + advice, lines)


def _others(answers: Sequence[str], gold: str | None) -> tuple[str, ...]:
    return () if gold is None else tuple(answer for answer in dict.fromkeys(answers) if answer not in ("", gold))


def _wrong_pattern(pattern: str, gold: str | None) -> str | None:
    """Say what is wrong with a pattern, if anything is."""
    if not pattern:
        return None
    try:
        if gold is None or matches(pattern, gold):
            compiled(pattern)
            return None
    except PatternError as error:
        return f"expected a regular expression, got {shortened(pattern)} ({error})"
    except TimeoutError:
        why = f"expected a pattern that can be matched with the answer {shortened(gold)} within {SECONDS:g} s"
        return f"{why}, got {shortened(pattern)}; do not nest what repeats"
    return f"expected a pattern that matches the answer {shortened(gold)} from end to end, got {shortened(pattern)}"


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
        self.notes: tuple[str, ...] = ()
        """What is worth knowing before anything is asked, once all rows were read."""

    def __iter__(self) -> Iterator[tuple[Row, Question]]:
        malformed: Problems = []
        sheet: Sheet | None = None
        keys = KeySearch()
        for row in self._rows(malformed):
            if sheet is None:
                self.columns = self._resolved(row)
                sheet = Sheet(self.source, self.columns)
            question = sheet.question(row)
            texts = (question.question_id, question.text, question.gold, question.context, question.topic)
            keys.add(row, "\0".join(filter(None, (*texts, *question.aliases, *question.choices))))
            yield row, question
        if sheet is None:
            raise malformed[0] if malformed else no_rows(self.source)
        self.problems = sorted([*malformed, *sheet.problems()], key=lambda problem: problem.line)
        keys.finish()
        self.notes = (*_repeated_note(sheet.made_ids.repeated), *_key_note(keys.place))

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
        return Dataset(name, questions, sha256(questions), source, grader, "the user's own", notes=self.notes)

    def _sound(self, lister: str) -> Iterator[Question]:
        for _, question in self:
            self._all_have_choices = self._all_have_choices and bool(question.choices)
            yield question
        if self.problems:
            more = len(self.problems) - 1
            told = f"; and {more:,} more problem{'s' if more > 1 else ''}{lister}"
            raise DatasetError(f"{self.problems[0]}{told if more else ''}")


def _key_note(row: Row | None) -> Iterator[str]:
    """Say where the first key is that a run would send and store, without the key."""
    if row is not None:
        yield (
            f"warning: {row.place} holds an API key, or what looks like one, and the whole text is sent to the model "
            "and stored in the run's folder; remove the key from the file, and revoke it if it is in use"
        )


def _repeated_note(repeated: int) -> Iterator[str]:
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
