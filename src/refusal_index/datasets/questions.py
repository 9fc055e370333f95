"""From the rows of a file to questions, all of them checked before the first is asked."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from refusal_index.datasets.cells import Choices, answers_cell, choices_cell, flag_cell, list_cell, text_cell
from refusal_index.datasets.dataset import DatasetError
from refusal_index.outcomes.errors import TableError, shortened
from refusal_index.outcomes.patterns import SECONDS, PatternError, compiled, matches
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.source import Problems, Row, Source
from refusal_index.outcomes.tabular import read_rows

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
    - returned `problems`: a row lacks a question, an answer or an id; an id occurs twice; an answer is none of the
      choices; a pattern is none, or does not match its own answer; or a cell is not what its role expects.
    """
    sheet = _Sheet(rows, columns)
    texts = sheet.filled("question")
    golds, accepted = sheet.answers()
    contexts = sheet.read("context", text_cell, "")
    choices = sheet.choices
    ids = sheet.ids([_whole(*parts) for parts in zip(texts, contexts, choices, strict=True)])
    aliases, topics = sheet.read("aliases", list_cell, _NOTHING), sheet.read("topic", text_cell, "")
    patterns = sheet.patterns(golds)
    if sheet.problems:
        return (), sorted(sheet.problems, key=lambda problem: problem.line)
    questions = (
        Question(
            ids[place],
            text,
            golds[place],
            _others((*accepted[place], *aliases[place]), golds[place]),
            topics[place] or None,
            contexts[place] or None,
            choices[place].texts if choices[place] else (),  # type: ignore[union-attr]
            patterns[place] or None,
        )
        for place, text in enumerate(texts)
    )
    return tuple(questions), []


def content_ids(texts: Sequence[str]) -> list[str]:
    """Make ids of the questions' texts, so that they survive reordering and additions.

    Twelve hexadecimal digits of the SHA-256 of the text in Unicode's composed form with single spaces. A text that
    occurs again gets ``-2``, ``-3`` and so on in the order of the file.

    >>> content_ids(["Who?", "Who ?", "Who?"])
    ['d991a24e8e04', '92984b2f5b40', 'd991a24e8e04-2']
    """
    seen: Counter[str] = Counter()
    ids = []
    for text in texts:
        normal = " ".join(unicodedata.normalize("NFC", text).split())
        digest = hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        seen[digest] += 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


class _Sheet:
    """The columns of a file by role; gathers what is wrong as they are read."""

    def __init__(self, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
        self._rows, self._columns = rows, columns
        self.problems: Problems = []
        self.choices: list[Choices | None] = self.read("choices", choices_cell, None)

    def read(self, role: str, cell: Callable[[Row, str], T], otherwise: T) -> list[T]:
        """Read the cells of a role; `otherwise` stands for those of no column and for those that are wrong."""
        column = self._columns.get(role)
        return [otherwise if column is None else self._cell(row, column, cell, otherwise) for row in self._rows]

    def filled(self, role: str) -> list[str]:
        """Read a column of texts in which none may be empty."""
        cells = self.read(role, text_cell, "")
        self._refuse_empty(role, [row.line for row, cell in zip(self._rows, cells, strict=True) if not cell])
        return cells

    def answers(self) -> tuple[list[str | None], list[tuple[str, ...]]]:
        """Read the gold answer of every row, None where there is none, and further accepted ones."""
        answerable = self.read("answerable", flag_cell, True)
        cells = self.read("answer", answers_cell, _NOTHING)
        places = [place for place, is_answerable in enumerate(answerable) if is_answerable]
        self._refuse_empty("answer", [self._rows[place].line for place in places if not cells[place]])
        golds: list[str | None] = [None] * len(cells)
        accepted: list[tuple[str, ...]] = [()] * len(cells)
        for place in places:
            if cells[place]:
                golds[place], accepted[place] = self._keyed(place, cells[place][0]), cells[place][1:]
        return golds, accepted

    def ids(self, contents: Sequence[str]) -> list[str]:
        """Read the ids, or make them of what is asked."""
        if "question_id" not in self._columns:
            return content_ids(contents)
        ids = self.filled("question_id")
        lines: defaultdict[str, list[int]] = defaultdict(list)
        for question_id, row in zip(ids, self._rows, strict=True):
            lines[question_id].append(row.line)
        for question_id, found in lines.items():
            if question_id and len(found) > 1:
                said = f"expected every question_id once, got {question_id!r} {len(found)} times; "
                advice = "give each question an id of its own, or remove the column to have ids made of the texts"
                self.problems.append(self._rows[0].source.wrong(said + advice, found))
        return ids

    def patterns(self, golds: Sequence[str | None]) -> list[str]:
        """Read the regular expressions, each of which must match its own gold answer."""
        patterns = self.read("pattern", text_cell, "")
        for row, pattern, gold in zip(self._rows, patterns, golds, strict=True):
            if (said := _wrong_pattern(pattern, gold)) is not None:
                self.problems.append(row.wrong(said, self._columns["pattern"]))
        return patterns

    def _cell(self, row: Row, column: str, cell: Callable[[Row, str], T], otherwise: T) -> T:
        try:
            return cell(row, column)
        except TableError as error:
            self.problems.append(error)
            return otherwise

    def _refuse_empty(self, role: str, lines: Sequence[int]) -> None:
        column = self._columns.get(role, role)
        told = {problem.line for problem in self.problems if problem.column == column}  # could not be read
        empty = [line for line in lines if line not in told]
        if empty:
            said = f"expected the {role} of every row, got an empty cell; fill it in or remove the row"
            unless = ", or mark questions without a right answer in a column answerable" if role == "answer" else ""
            self.problems.append(self._rows[0].source.wrong(said + unless, empty, column))

    def _keyed(self, place: int, answer: str) -> str | None:
        """Return the gold answer, which is one of the choices where there are such."""
        choices, row = self.choices[place], self._rows[place]
        if choices is None:
            return answer
        gold = choices.keyed(answer)
        if gold is None:
            names = ", ".join(choices.labels or choices.texts)
            said = f"expected one of the choices, by its text or its letter, got {shortened(answer)}; "
            self.problems.append(row.wrong(f"{said}the choices are {shortened(names)}", self._columns["answer"]))
        return gold


def _whole(text: str, context: str, choices: Choices | None) -> str:
    """Return all that is asked; a question alone is its text."""
    return "\x1f".join(part for part in (text, context, *(choices.texts if choices else ())) if part)


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
