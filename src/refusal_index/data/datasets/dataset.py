"""Datasets: drawing samples, mixing several, and reading and checking a user's own questions."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from heapq import nsmallest
from itertools import chain, compress, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

from refusal_index.data import tables
from refusal_index.data.cells import FLAG
from refusal_index.data.column_names import NAMES
from refusal_index.data.encodings import UTF_8
from refusal_index.data.files import sha256_of
from refusal_index.data.nested import nested_columns, with_paths
from refusal_index.data.outcome import LETTERS, Question
from refusal_index.data.text import SECONDS, PatternError, compiled, matches, sound_text, wrong_id
from refusal_index.errors import TableError, shortened
from refusal_index.redaction import KeySearch

FIELDS = tuple(field.name for field in fields(Question))
ALWAYS = frozenset({"question_id", "text", "gold", "aliases", "topic"})
"""Fields of a question that are part of its hash even if empty."""

GraderName = str
"""The grader a dataset needs: a rule such as ``exact`` or ``choice``, a plugin's, or ``model`` for the usual model."""


class DatasetError(TableError):
    """A dataset or a file of questions that cannot be used; the message names the file and the line."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """Questions with their gold answers and where they came from."""

    name: str  # its name in the outcome table
    questions: tuple[Question, ...]  # in the order of the source
    sha256: str  # of the source file; the same for a sample of it
    source: str  # where it was read from
    default_grader: GraderName  # the grader that is used by default
    licence: str  # terms of the source
    # in a mix, the names of its datasets; a question's topic names the one it comes from
    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # notes for the user before it is asked

    def __post_init__(self) -> None:
        for question in self.questions:  # checked first, so that no reply is paid for that cannot be stored
            if (message := wrong_id(question.question_id)) is not None:
                raise DatasetError(f"{self.name}, question_id: {message}")

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self.questions)} questions)"

    @property
    def questions_sha256(self) -> str:
        """SHA-256 of the questions as read: it changes if another column of the same file is the answer.

        Empty fields are left out, so that a release may add fields.
        """
        return questions_sha256(self.questions)


def questions_sha256(questions: Iterable[Question]) -> str:
    """Return the SHA-256 of a JSON list of questions; see `Dataset.questions_sha256`."""
    digest = hashlib.sha256(b"[")
    for number, question in enumerate(questions):
        values = {name: getattr(question, name) for name in FIELDS}
        used = {name: value for name, value in values.items() if name in ALWAYS or value}
        digest.update(f"{', ' if number else ''}{json.dumps(used)}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def sample(dataset: Dataset, limit: int, seed: int) -> Dataset:
    """Draw a random sample of questions, reproducible by its seed.

    Questions are ordered by a hash of the seed and the question id, and the first are drawn. So a smaller sample is
    part of a larger one with the same seed, and the order does not depend on the order of the source or on other
    questions. Raises DatasetError if there are fewer than `limit` questions.

    - `dataset`: the dataset to draw from.
    - `limit`: number of questions, from 1 to all; from a mix, equally many from each part.
    - `seed`: random seed.
    - returned: the dataset with the drawn questions, in the order of the source.
    """
    if not dataset.parts:
        return replace(dataset, questions=draw_sample(dataset.questions, limit, seed, dataset.name))
    _check_limit(limit, len(dataset.questions), dataset.name)
    shuffled = sorted(dataset.questions, key=lambda question: _random_key(seed, question.question_id))
    by_part = [[question for question in shuffled if question.topic == part] for part in dataset.parts]
    interleaved = [question for turn in zip_longest(*by_part) for question in turn if question is not None]
    taken = {question.question_id for question in interleaved[:limit]}
    return replace(dataset, questions=tuple(q for q in dataset.questions if q.question_id in taken))


def draw_sample(questions: Iterable[Question], limit: int, seed: int, name: str) -> tuple[Question, ...]:
    """Draw questions as `sample` does, without keeping the others in memory.

    - `questions`: in the order of the source.
    - `limit`, `seed`: as for `sample`.
    - `name`: name of the dataset, for messages.
    """
    size = 0

    def with_keys() -> Iterator[tuple[bytes, int, Question]]:
        nonlocal size
        for question in questions:
            size += 1
            yield _random_key(seed, question.question_id), size, question

    lowest = nsmallest(max(limit, 1), with_keys(), key=itemgetter(0, 1))
    _check_limit(limit, size, name)
    return tuple(question for _, _, question in sorted(lowest, key=itemgetter(1)))


def _check_limit(limit: int, size: int, name: str) -> None:
    if not 1 <= limit <= size:
        raise DatasetError(
            f"limit: expected a number from 1 to {size}, the questions of {name!r}, got {limit}; "
            "leave the limit out to ask all of them"
        )


def _random_key(seed: int, question_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{question_id}".encode()).digest()


SIGN = "+"
"""Separates the names of a mix's parts."""


def mix(datasets: Sequence[Dataset], seed: int) -> Dataset:
    """Mix datasets: draw equally many questions from each, as many as the smallest has, in alternating order.

    Raises DatasetError if there are fewer than two datasets, or two have the same name.

    - `datasets`: two or more, with different names.
    - `seed`: random seed of `sample`, which draws the questions.
    - returned: the mix; a question's dataset is its `topic`, and the first part of its id.

    >>> few = Dataset("few", (Question("1", "Who?", "Ann"),), "", "made up", "exact", "none")
    >>> many = Dataset("many", tuple(Question(str(n), f"{n}?", str(n)) for n in range(9)), "", "", "exact", "none")
    >>> mixed = mix([few, many], seed=0)
    >>> mixed.name, [question.topic for question in mixed.questions]
    ('few+many', ['few', 'many'])
    """
    names = tuple(dataset.name for dataset in datasets)
    if len(set(names)) < max(2, len(names)):
        raise DatasetError(f"mix: expected two or more datasets of different names, got {', '.join(names) or 'none'}")
    size = min(len(dataset.questions) for dataset in datasets)
    samples = [
        [
            replace(question, question_id=f"{dataset.name}/{question.question_id}", topic=dataset.name)
            for question in sample(dataset, size, seed).questions
        ]
        for dataset in datasets
    ]
    graders = {dataset.default_grader for dataset in datasets}
    return Dataset(
        name=SIGN.join(names),
        questions=tuple(question for turn in zip(*samples, strict=True) for question in turn),
        sha256=hashlib.sha256("".join(dataset.sha256 for dataset in datasets).encode()).hexdigest(),
        source="; ".join(f"{dataset.name}: {dataset.source}" for dataset in datasets),
        default_grader=graders.pop() if len(graders) == 1 else "model",
        licence="; ".join(f"{dataset.name}: {dataset.licence}" for dataset in datasets),
        parts=names,
    )


def question_id(cell: Any) -> str | None:
    """Parse a question id; raises ValueError if it cannot be written to a file."""
    if isinstance(cell, str) and (message := wrong_id(cell)) is not None:
        raise ValueError(f"{message}, or remove the column to have ids made from the texts")
    return tables.text(cell)


def texts(cell: Any) -> tuple[str, ...]:
    """Parse a JSON list of texts, or texts separated by ``|``."""
    value = None if isinstance(cell, float) and math.isnan(cell) else cell
    if isinstance(value, str):
        value = _parsed(value) if value.strip().startswith("[") else value.split("|") if value.strip() else None
    if not isinstance(value, list | None) or any(isinstance(item, list | dict) for item in value or ()):
        raise _not_a_list(value)
    return tuple("" if item is None else sound_text(str(item)).strip() for item in value or ())


def passages(cell: Any) -> str | None:
    """Parse a context; of a list, the texts with a blank line between them."""
    return "\n\n".join(texts(cell)) or None if isinstance(cell, list) else tables.text(cell)


def answers(cell: Any) -> tuple[str, ...]:
    """Parse the gold answer, or a list of accepted answers with the gold one first; empty for an empty cell."""
    if isinstance(cell, dict):
        raise ValueError(
            f"expected a single value, got {shortened(cell)}; write further answers into a column of aliases"
        )
    return tuple(filter(None, texts(cell) if isinstance(cell, list) else (tables.text(cell),)))


IS_TRUE = replace(FLAG, expected="true or false", advice="")


def flag(cell: Any) -> bool:
    """Parse true or false, yes or no, 1 or 0; raises ValueError for an empty cell."""
    truth: bool | None = IS_TRUE(cell)
    if truth is None:
        raise ValueError(IS_TRUE.wrong(cell))
    return truth


def has_answer(cell: Any) -> bool:
    """Parse whether a question has a right answer: a flag, or a list of its answers."""
    return any(texts(cell)) if isinstance(cell, list) else flag(cell)


def _parsed(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        raise _not_a_list(cell) from None


def _not_a_list(value: object) -> ValueError:
    return ValueError(
        f'expected a JSON list or texts separated by |, got {shortened(value)}; write ["one", "two"] or one|two'
    )


@dataclass(frozen=True)
class Choices:
    """The answers to choose from, and the source's labels for them, if any."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @classmethod
    def read(cls, cell: Any) -> Choices | None:
        """Parse a JSON list, texts separated by ``|``, or an object of labels and texts; None if there are none.

        Raises ValueError if there is only one or more than 26, two are the same, or one is the letter of another.
        """
        value = _parsed(cell) if isinstance(cell, str) and cell.strip().startswith("{") else cell
        if isinstance(value, dict):
            labels = value.get("label")
            choices = value.get("text")
            if not (isinstance(labels, list) and isinstance(choices, list) and len(labels) == len(choices)):
                raise _not_a_list(value)
            answers = texts(choices)
            names = texts(labels)
        else:
            answers = texts(value)
            names = ()
        if not answers:
            return None
        if not 2 <= len(answers) <= len(LETTERS):
            raise ValueError(f"expected from 2 to {len(LETTERS)} choices, got {len(answers)}")
        if len({choice.casefold() for choice in answers}) < len(answers) or "" in answers:
            raise ValueError(
                f"expected every choice once and none empty, got {shortened(list(answers))}; remove duplicates and "
                "empty ones"
            )
        letters = LETTERS[: len(answers)]
        for letter, choice in zip(letters, answers, strict=True):
            if choice.upper() in set(letters) - {letter}:
                raise ValueError(
                    f"choice {letter} reads {shortened(choice)}, which is the letter of another; reword the choices"
                )
        return cls(answers, names)

    def resolve(self, key: str) -> str | None:
        """Return the choice that `key` names by the source's label, its text or its letter; None if it names none.

        A number is not accepted as a position: it may count from 0 or from 1.

        >>> Choices(("Cuzco", "Lima")).resolve("B"), Choices(("2", "1"), ("1", "2")).resolve("1")
        ('Lima', '2')
        >>> Choices(("Cuzco", "Lima")).resolve("1") is None
        True
        """
        folded = [choice.casefold() for choice in self.texts]
        for names in (self.labels, self.texts):
            if key in names:
                return self.texts[names.index(key)]
        if key.casefold() in folded:
            return self.texts[folded.index(key.casefold())]
        letters = () if self.labels else tuple(LETTERS[: len(self.texts)])
        return self.texts[letters.index(key.upper())] if key.upper() in letters else None


READERS: Mapping[str, Callable[[Any], Any]] = {
    "question": tables.text,
    "answer": answers,
    "question_id": question_id,
    "aliases": texts,
    "topic": tables.text,
    "context": passages,
    "choices": Choices.read,
    "answerable": has_answer,
    "unanswerable": flag,
    "pattern": tables.text,
}
"""How the cells of each role are read."""

COLUMNS = {role: tables.Column(NAMES[role], read) for role, read in READERS.items()}
"""The columns, by role."""


class ContentIds:
    """Makes question ids from texts, which do not change when questions are reordered or added.

    An id is the first 12 hexadecimal digits of the SHA-256 of the text, in Unicode's NFC form with single spaces.
    Repeated texts get ``-2``, ``-3`` and so on, in the order of the file.

    >>> ids = ContentIds()
    >>> [ids.next_id(asked) for asked in ("Who?", "Who ?", "Who?")]
    ['d991a24e8e04', '92984b2f5b40', 'd991a24e8e04-2']
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.repeated = 0
        """Number of repeated texts."""

    def next_id(self, text: str) -> str:
        """Return the id of the next text."""
        normal = " ".join(unicodedata.normalize("NFC", text).split())
        digest = hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        times = self._seen[digest] = self._seen.get(digest, 0) + 1
        self.repeated += times > 1
        return digest if times == 1 else f"{digest}-{times}"


def _wrong_pattern(pattern: str, gold: str | None) -> str | None:
    """Return why a pattern cannot be used; None if it is valid."""
    try:
        if gold is None or matches(pattern, gold):
            compiled(pattern)
            return None
    except PatternError as error:
        return f"expected a regular expression, got {shortened(pattern)} ({error})"
    except TimeoutError:
        why = f"expected a pattern that can be matched with the answer {shortened(gold)} within {SECONDS:g} s"
        return f"{why}, got {shortened(pattern)}; avoid nested repetitions"
    return f"expected a pattern that matches the answer {shortened(gold)} from end to end, got {shortened(pattern)}"


Draw = Callable[[Iterable[Question]], Sequence[Question]]


class QuestionReader:
    """An iterable over rows and the questions made of them, which are checked as they are read and not kept in memory.

    - `source`: origin of the rows.
    - `rows`: returns the rows, and adds the errors of malformed ones to the list that it is given.
    - `columns`: column by role; without a `question_id`, ids are made from the texts.
    - `finds_others`: whether roles that are not given are found by their usual names.

    Iterating raises DatasetError if no row can be checked: the file cannot be read, or a required column is missing.
    """

    def __init__(
        self,
        source: tables.Source,
        rows: Callable[[tables.Problems], Iterable[tables.Row]],
        columns: Mapping[str, str],
        *,
        finds_others: bool = True,
    ) -> None:
        self.source = source
        self._rows = rows
        self._finds_others = finds_others
        self.columns = columns
        """Column by role; complete at the first row."""
        self.problems: tables.Problems = []
        """All errors; after the last row, in the order of the lines.

        Errors are: a missing question, answer or id; an id that occurs twice or cannot be written to a file; an answer
        that is not one of the choices; a pattern that is invalid or does not match its own answer; and any other cell
        that cannot be parsed.
        """
        self.notes: tuple[str, ...] = ()
        """Notes for the user; set after the last row."""
        self._empty: dict[str, list[int]] = {}
        self._lines: dict[str, int] = {}
        self._further_lines: dict[str, list[int]] = {}
        self._made_ids = ContentIds()

    def __iter__(self) -> Iterator[tuple[tables.Row, Question]]:
        rows = self._with_nested(self.problems)
        keys = KeySearch()
        first = next(rows, None)
        if first is None:
            raise self.problems[0] if self.problems else tables.no_rows(self.source)
        if self._finds_others:
            self.columns = self._resolved(first)
        for row in chain([first], rows):
            question = self._question(row)
            texts = (question.question_id, question.text, question.gold, question.context, question.topic)
            keys.add(row, "\0".join(filter(None, (*texts, *question.aliases, *question.choices))))
            yield row, question
        self._add_problems_of_several()
        keys.finish()
        if repeated := self._made_ids.repeated:
            self.notes += (
                f"{repeated:,} question{' repeats' if repeated == 1 else 's repeat'} another; the ids made "
                "from the texts end in -2, -3 and so on",
            )
        if keys.place is not None:
            self.notes += (
                f"warning: {keys.place.place} holds an API key, or text that looks like one, and the text is sent to "
                "the model and stored in the run's folder; remove the key from the file, and revoke it if it is valid",
            )

    def _with_nested(self, problems: tables.Problems) -> Iterator[tables.Row]:
        """Yield the rows, with further columns for the given paths into nested cells."""
        paths = [name for name in self.columns.values() if "." in name]
        for row in self._rows(problems):
            missing = [path for path in paths if path not in row.cells]
            yield replace(row, cells=with_paths(row.cells, missing)) if missing else row

    def _resolved(self, first: tables.Row) -> dict[str, str]:
        # JSON objects and dictionaries can have different columns; the rows of a table have the same.
        present = tables.present_columns(self._with_nested([]) if self.source.kind in {"jsonl", "memory"} else [first])
        present = tuple(dict.fromkeys((*present, *nested_columns(first.cells))))
        columns = tables.resolve_columns(self.source, present, self.columns, COLUMNS, strict=True)
        says_which = {"answerable", "unanswerable"}.intersection(columns)
        for role in ("question",) if says_which else ("question", "answer"):
            if role not in columns:
                named = [name for name in present if not isinstance(first.cells.get(name), Mapping)]
                raise tables.missing_column(self.source, named, role, role)
        return columns

    def _question(self, row: tables.Row) -> Question:
        """Return the question of a row; it is only valid if there are no `problems`."""
        cells: dict[str, Any] = dict.fromkeys(COLUMNS)
        wrong = set()
        for role, name in self.columns.items():
            try:
                cells[role] = COLUMNS[role].value(row, name)
            except TableError as error:
                self.problems.append(error.with_traceback(None))
                wrong.add(role)
        is_answerable = cells["answerable"] is not False and cells["unanswerable"] is not True
        needed = {"question": True, "answer": is_answerable, "question_id": "question_id" in self.columns}
        for role, is_needed in needed.items():
            if is_needed and not cells[role] and role not in wrong:
                self._empty.setdefault(role, []).append(row.line)
        accepted: list[Any] = list(cells["answer"]) if is_answerable and cells["answer"] else [None]
        gold, *others = accepted
        choices: Choices | None = cells["choices"]
        if choices is not None and gold is not None and (gold := choices.resolve(accepted[0])) is None:
            names = ", ".join(choices.labels or choices.texts)
            expected = f"expected one of the choices, by its text or its letter, got {shortened(accepted[0])}; "
            problem = row.wrong(f"{expected}the choices are {shortened(names)}", self.columns["answer"])
            self.problems.append(problem)
        if choices is not None and gold is not None:
            accepted_by_role = {"answer": others, "aliases": cells["aliases"] or ()}
            self.problems.extend(self._other_choices(row, choices, gold, accepted_by_role))
        if cells["pattern"] and (message := _wrong_pattern(cells["pattern"], gold)) is not None:
            self.problems.append(row.wrong(message, self.columns["pattern"]))
        texts = choices.texts if choices else ()
        aliases = dict.fromkeys((*others, *(cells["aliases"] or ()))) if gold is not None else ()
        topic = cells["topic"] and sys.intern(cells["topic"])  # one string object for all questions of a topic
        question_id: str = cells["question_id"] or ""
        if "question_id" not in self.columns:
            key = "\x1f".join(filter(None, (cells["question"], cells["context"], *texts)))
            question_id = self._made_ids.next_id(key)
        elif question_id and self._lines.setdefault(question_id, row.line) != row.line:
            self._further_lines.setdefault(question_id, []).append(row.line)
        return Question(
            question_id,
            cells["question"] or "",
            gold,
            tuple(alias for alias in aliases if alias not in ("", gold)),
            topic,
            cells["context"],
            texts,
            cells["pattern"],
        )

    def _other_choices(
        self, row: tables.Row, choices: Choices, gold: str, accepted: Mapping[str, Sequence[str]]
    ) -> Iterator[TableError]:
        """Yield an error for each accepted answer that is another choice than the gold one.

        - `accepted`: further accepted answers by role.
        """
        for role, texts in accepted.items():
            for text in texts:
                if choices.resolve(text) not in (None, gold):
                    yield row.wrong(
                        f"expected other forms of the answer {shortened(gold)}, got {shortened(text)}, which is "
                        "another choice; only one can be right: remove one of the two, or ask without choices",
                        self.columns[role],
                    )

    def _add_problems_of_several(self) -> None:
        """Add the errors that concern several rows, and sort all by line."""
        for role, lines in self._empty.items():
            message = f"expected the {role} of every row, got an empty cell; fill it in or remove the row"
            unless = ", or mark questions without a right answer in a column answerable" if role == "answer" else ""
            self.problems.append(self.source.wrong(message + unless, lines, self.columns.get(role, role)))
        for question_id, further_lines in self._further_lines.items():
            lines = [self._lines[question_id], *further_lines]
            message = f"expected every question_id once, got {question_id!r} {len(lines)} times; "
            advice = "give each question an id of its own, or remove the column to have ids made from the texts"
            self.problems.append(self.source.wrong(message + advice, lines))
        self.problems.sort(key=lambda problem: problem.line)

    def dataset(
        self,
        name: str,
        source: str,
        sha256: Callable[[Sequence[Question]], str],
        *,
        lister: str = "",
        draw: Draw = tuple,
    ) -> Dataset:
        """Return the questions as a dataset; raises DatasetError with the first error and the number of others.

        - `name`, `source`: fields of the `Dataset`.
        - `sha256`: returns the checksum, given the questions.
        - `lister`: addition to the message if there are several errors.
        - `draw`: selects the questions, by default all.
        """
        all_have_choices = True

        def checked() -> Iterator[Question]:
            nonlocal all_have_choices
            for _, question in self:
                all_have_choices = all_have_choices and bool(question.choices)
                yield question
            if self.problems:
                more = len(self.problems) - 1
                others = f"; and {more:,} more problem{'s' if more > 1 else ''}{lister}"
                raise DatasetError(f"{self.problems[0]}{others if more else ''}")

        questions = tuple(draw(checked()))
        grader: GraderName = "choice" if all_have_choices else "model"
        return Dataset(name, questions, sha256(questions), source, grader, "the user's own", notes=self.notes)


def build_questions(rows: Sequence[tables.Row], columns: Mapping[str, str]) -> tuple[Question, ...]:
    """Return the question of every row; raises the first TableError that `QuestionReader` finds.

    - `rows`: all rows of one source.
    - `columns`: column by role.
    """
    reading = QuestionReader(rows[0].source, lambda _problems: rows, columns, finds_others=False)
    questions = tuple(question for _, question in reading)
    for problem in reading.problems:
        raise problem
    return questions


def load_own(
    data: object = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    encoding: str = UTF_8,
) -> Dataset:
    """Read questions from a file and check every row.

    Raises DatasetError if the questions cannot be used as they are; the message names the line.

    Parameters
    ----------
    data
        The path of a .csv, .tsv, .jsonl, .ndjson, .parquet or .xlsx file (text optionally with .gz), or data for
        `questions_from`.
    columns
        Column name by role, or a path into a nested cell, as in ``answers.text``. Other roles are found by their usual
        names:

        - `question`, the only one that is always required;
        - `answer`: a text, or a list of accepted answers with the gold one first; with choices, the text or letter of
          one;
        - `answerable`: false if no right answer exists, or a list of answers that is then empty; `answer` is then
          ignored. `unanswerable` is the reverse;
        - `aliases` and `choices`: a JSON list, or texts separated by ``|``;
        - `context`, `topic`, `question_id`, and `pattern`, a regular expression for the grader ``regex``.
    limit, seed
        Number of questions to draw and random seed, as for `sample`; a limit of None reads all.
    encoding
        Encoding of a text file.
    """
    if data is None:
        raise DatasetError(
            "dataset 'own': expected a file of questions as data (--data FILE), got none; "
            "give a .csv, .jsonl or .parquet file with the columns question and answer"
        )
    if not isinstance(data, str | Path):
        dataset = questions_from(data, columns)
        return dataset if limit is None else sample(dataset, limit, seed)
    path = Path(data)
    name = f"own/{path.name.split('.')[0]}"
    return question_reader(path, columns, encoding).dataset(
        name,
        f"own file {path.name}",
        lambda _questions: sha256_of(path),
        lister=f", which 'refusal-index validate {path}' lists",
        draw=tuple if limit is None else partial(draw_sample, limit=limit, seed=seed, name=name),
    )


def questions_from(data: object, columns: Mapping[str, str] | None = None, name: str = "own") -> Dataset:
    """Return questions from memory as a dataset, and check every row.

    Raises DatasetError if the questions cannot be used as they are; the message names the row.

    - `data`: a data frame (Polars, pandas or Arrow), or dictionaries from columns to cells, one per question.
    - `columns`: column name by role, as for `load_own`.
    - `name`: name of the dataset, also in messages.
    - returned: the same questions and `questions_sha256` as for a file with the same rows. `sha256` is the same as
      `questions_sha256`, because there is no file.

    >>> questions_from([{"problem": "Capital of Peru?", "answer": "Lima"}]).questions[0].gold
    'Lima'
    """
    data = list(data) if isinstance(data, Iterator) else data  # data are read more than once
    source = tables.Source(name, "memory", "question", DatasetError)
    questions = QuestionReader(source, partial(tables.iter_rows, source, data), columns or {})
    return questions.dataset(name, "questions in memory", questions_sha256)


def question_reader(data: Path, columns: Mapping[str, str] | None = None, encoding: str = UTF_8) -> QuestionReader:
    """Return a `QuestionReader` of a file of questions.

    - `data`, `columns`, `encoding`: as for `load_own`.
    """
    source = tables.Source.from_path(data, "question", DatasetError, encoding)

    def rows(problems: tables.Problems) -> Iterator[tables.Row]:
        with tables.opened(data, DatasetError) as file:
            yield from tables.iter_rows(source, file, problems)

    return QuestionReader(source, rows, columns or {})


def declining_note(number: int, place: str, gold: str) -> str:
    """Return the warning about gold answers that decline to answer.

    - `number`: how many there are.
    - `place`, `gold`: the place of the first, and its text.
    """
    answers = "1 gold answer declines" if number == 1 else f"{number:,} gold answers decline"
    return (
        f"warning: {answers} to answer ({place}: {shortened(gold)}); the question has no right answer, as if "
        "answerable were false, and every answer to it is wrong; if it has one, write the gold answer in other words"
    )


FEATURES = ("with a context", "with choices", "with aliases", "with a pattern", "without a right answer")


def example_note(number: int, place: str, example: int) -> str:
    """Return the warning about questions that are worked examples of the prompts.

    - `number`: how many there are.
    - `place`, `example`: the place of the first, and the number of the example that asks it.
    """
    one = "1 question is also a worked example"
    questions = one if number == 1 else f"{number:,} questions are also worked examples"
    return (
        f"warning: {questions} of the prompts, which show an answer ({place}: example {example}); leave "
        f"{'it' if number == 1 else 'them'} out, or use other prompts"
    )


class Survey:
    """Reads a file of questions and describes it.

    - `questions`: the file.
    - `max_tokens`: maximum number of tokens of a prompt, None for no limit; a longer prompt is an error.
    - `length`: returns the number of characters of a question's longest prompt.
    - `characters`: approximate number of characters per token.
    - `declines`: whether a gold answer declines to answer.
    - `example_of`: the number of the worked example of the prompts that asks a question; None if none does.
    """

    def __init__(
        self,
        questions: QuestionReader,
        length: Callable[[Question], int],
        characters: int,
        max_tokens: int | None = None,
        declines: Callable[[str], bool] = lambda _: False,
        example_of: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._characters = characters
        self._max_tokens = max_tokens
        declining: list[tuple[tables.Row, str]] = []
        examples: list[tuple[tables.Row, int]] = []
        self.first: Question | None = None
        self._counts = Counter[str]()
        self._topics = Counter[str]()
        self._context = 0
        self._longest = 0
        self._gold: dict[int, str | None] = {}
        self._repeated = 0
        self._different: list[str] = []
        too_long: tables.Problems = []
        for row, question in questions:
            self.first = self.first or question
            if question.gold and declines(question.gold):
                declining.append((row, question.gold))
            if (number := example_of(question.text)) is not None:
                examples.append((row, number))
            too_long += self._seen(row, question, length(question), "question_id" in questions.columns)
        self.problems = [*questions.problems, *(too_long if not questions.problems else ())]
        self._columns = questions.columns
        self._notes = questions.notes
        if declining:
            row, gold = declining[0]
            self._notes += (declining_note(len(declining), row.place, gold),)
        if examples:
            row, number = examples[0]
            self._notes += (example_note(len(examples), row.place, number),)

    def _seen(self, row: tables.Row, question: Question, length: int, has_ids: bool) -> Iterator[TableError]:
        self._counts[""] += 1
        features = (question.context is not None, question.choices, question.aliases, question.pattern is not None)
        self._counts.update(compress(FEATURES, (*features, question.gold is None)))
        if question.topic is not None:
            self._topics[question.topic] += 1
        self._context = max(self._context, len(question.context or ""))
        self._longest = max(self._longest, length)
        key = hash((question.text, question.context, question.choices))
        self._repeated += key in self._gold
        if self._gold.setdefault(key, question.gold) != question.gold:
            self._different.append(row.place)
        if self._max_tokens is not None and length > self._max_tokens * self._characters:
            named = f"question_id {question.question_id!r}: " if has_ids else ""
            yield row.wrong(
                f"{named}expected a prompt of at most {self._max_tokens:,} tokens, got about "
                f"{length // self._characters:,}; shorten its context, or leave the question out"
            )

    def describe(self) -> Iterator[str]:
        """Yield a description of the file, line by line."""
        roles = ", ".join(f"{role} in {name!r}" for role, name in self._columns.items())
        yield f"{self._counts['']:,} questions, {roles}"
        yield from (f"  {self._counts[name]:,} {name}" for name in FEATURES if self._counts[name])
        if self._topics:
            largest = ", ".join(f"{topic} ({count:,})" for topic, count in self._topics.most_common(3))
            yield f"  {len(self._topics):,} topics, most often {largest}"
        if self._counts["with a context"]:
            yield f"  longest context: {self._context:,} characters"
        yield f"  longest prompt: {self._longest:,} characters, about {self._longest // self._characters:,} tokens"
        yield f"  {self._repeated:,} asked more than once in the same words"
        if self._different:
            place = self._different[0]
            yield f"  {len(self._different):,} of them with another gold answer (first: {place}): check which is right"
        yield from (f"  {note}" for note in self._notes)
