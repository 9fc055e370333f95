"""Imports of other tools' results: files of graded answers as first passes.

`SourceFile` is a file to import: its content, its records with their places, and its format, detected from the content.
`read_graded` reads graded answers, as SimpleQA's tools write them, or answers with a flag for refusals. Plugins read
other formats: `plugins/inspect` reads Inspect's logs, `plugins/lm_eval` samples of lm-evaluation-harness.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from refusal_index.data import tables
from refusal_index.data.datasets.dataset import ContentIds
from refusal_index.data.files import sha256_of
from refusal_index.data.first_pass import (
    NOT_GRADED,
    NOT_KNOWN,
    FirstPass,
    FirstPassError,
    forced_outcome,
    from_outcomes,
)
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.outcome_table import REQUIRED, read_outcomes
from refusal_index.data.text import SECONDS

ZIP, PARQUET, GZIP = b"PK\x03\x04", b"PAR1", b"\x1f\x8b"
SUFFIXES = (".gz", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".eval")


@dataclass(frozen=True)
class SourceFile:
    """A file to import."""

    path: Path  # path of the file
    content: bytes  # its bytes

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read the file, or raise `DatasetError`."""
        return cls(path, tables.read_content(path, FirstPassError))

    @property
    def sha256(self) -> str:
        """SHA-256 of its content."""
        return sha256_of(self.content)

    @property
    def stem(self) -> str:
        """Its name without the suffixes of its format and compression.

        >>> SourceFile(Path("results/llama-3.1.csv.gz"), b"").stem
        'llama-3.1'
        """
        name = self.path.name
        while (suffix := Path(name).suffix.lower()) in SUFFIXES:
            name = name[: -len(suffix)]
        return name

    @cached_property
    def is_inspect_log(self) -> bool:
        """Whether it is an Inspect log, in either of Inspect's formats."""
        if self.content.startswith(ZIP):
            try:
                names = zipfile.ZipFile(io.BytesIO(self.content)).namelist()
            except zipfile.BadZipFile:  # truncated, for example while being written; the reader of logs reports it
                return True
            return any(name in ("header.json", "_journal/start.json") for name in names)
        document = self.document
        return isinstance(document, dict) and "eval" in document and "version" in document

    @cached_property
    def document(self) -> Any:
        """The content as one JSON value; None if it is not one, such as JSON Lines."""
        start = self.content[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start.startswith((b"{", b"[", GZIP)):
            return None
        try:
            content = gzip.decompress(self.content) if self.content.startswith(GZIP) else self.content
            return json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError, OSError, EOFError, zlib.error):
            return None

    @cached_property
    def source(self) -> tables.Source:
        """Its name and format. Parquet is detected from the content; JSON or JSON Lines mostly from the suffix."""
        name = self.path.name.lower().removesuffix(".gz")
        if self.content.startswith(PARQUET):
            kind = "parquet"
        elif name.endswith(".json") or (self.document is not None and not name.endswith((".jsonl", ".ndjson"))):
            kind = "json"
        else:
            kind = tables.file_format(self.path, FirstPassError)
        return tables.Source(str(self.path), kind, "answer", FirstPassError)

    @cached_property
    def records(self) -> tuple[tables.Row, ...]:
        """Its records, in order; raises DatasetError if there are none, or the file is malformed."""
        if self.source.kind != "json":
            return tuple(tables.read_rows(self.source, self.content))
        if self.document is None:
            raise self.source.wrong("expected one JSON document, got something else; is it cut off?")
        return tuple(tables.read_rows(self.source, _items(self.source, self.document)))

    def with_paths(self, columns: Iterable[str]) -> tuple[tables.Row, ...]:
        """Return the records, with additional columns for nested values, named by paths such as ``result.grades.0``."""
        present = tables.present_columns(self.records)
        paths = [column for column in columns if "." in column and column not in present]
        return tuple(replace(record, cells=with_paths(record.cells, paths)) for record in self.records)

    def resolved(
        self, chosen: Mapping[str, str], usual: Mapping[str, tables.Column]
    ) -> tuple[tuple[tables.Row, ...], dict[str, str]]:
        """Return the records with columns for paths, and the column of each role; raises TableError.

        - `chosen`, `usual`: as for `resolve_columns`.
        """
        rows = self.with_paths(chosen.values())
        return rows, tables.resolve_columns(self.source, tables.present_columns(rows), chosen, usual)


def with_paths(cells: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any]:
    """Return the cells of a record, with one more for each path that exists.

    >>> with_paths({"result": {"grades": ["A"]}}, ["result.grades.0", "result.x"])
    {'result': {'grades': ['A']}, 'result.grades.0': 'A'}
    """
    reached = {path: _reached(cells, path.split(".")) for path in paths}
    return {**cells, **{path: value for path, value in reached.items() if value is not None}}


def _reached(value: Any, steps: Sequence[str]) -> Any:
    """Return the value at a path through objects and lists, including JSON in texts; None if there is none."""
    for step in steps:
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _items(source: tables.Source, document: Any) -> list[Any]:
    """Return the list of answers: the document itself, or the only list of objects in it."""
    if isinstance(document, list):
        return document
    lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(lists) == 1:
        return lists[0]
    raise source.wrong(
        "expected a list of answers, or an object that holds one such list, got an object with "
        f"{len(lists)} of them; save the list of answers alone, or one object a line as .jsonl"
    )


Vocabulary = Mapping[str, Grade]

WORDS: Vocabulary = {
    "correct": Grade.CORRECT,
    "incorrect": Grade.INCORRECT,
    "not_attempted": Grade.REFUSED,
    "refused": Grade.REFUSED,
    "unscored": Grade.UNSCORED,
}
"""Unambiguous words for grades; in any case, and with a space or a dash in place of the underscore."""

RIGHT_OR_WRONG: Vocabulary = {
    **dict.fromkeys(("1", "1.0", "true"), Grade.CORRECT),
    **dict.fromkeys(("0", "0.0", "false"), Grade.INCORRECT),
}
"""Marks for right and wrong only."""

SIMPLEQA_LETTERS: Vocabulary = {"a": Grade.CORRECT, "b": Grade.INCORRECT, "c": Grade.REFUSED}
"""The letters of SimpleQA's grader: C is NOT_ATTEMPTED."""

INSPECT_LETTERS: Vocabulary = {"c": Grade.CORRECT, "i": Grade.INCORRECT, "n": Grade.REFUSED}
"""The letters of Inspect's scores: C is CORRECT, N is NO ANSWER."""

MEANINGS = (*(grade.value for grade in Grade), "true", "false")
"""What the user can map a word to."""


def grade_kind(*vocabularies: Vocabulary) -> tables.Kind:
    """Return a kind of cell that holds a grade in these words.

    >>> grade_kind(WORDS)("Not attempted")
    <Grade.REFUSED: 'refused'>
    """
    words = {word: grade for vocabulary in vocabularies for word, grade in vocabulary.items()}
    expected = f"a grade out of {', '.join(word.upper() for word in words)} (in any case) or nothing"
    return tables.Kind(expected, words, "translate it into one of these first")


GRADE = grade_kind(WORDS, SIMPLEQA_LETTERS, RIGHT_OR_WRONG)
"""The grades that a column can contain."""


def read_as(kind: tables.Kind, value: Any, location: str) -> Any:
    """Parse a value, None if it is empty; raises FirstPassError if it is invalid.

    - `location`: the file and the place of the value in it, for messages.
    """
    try:
        return kind(value)
    except ValueError as error:
        raise FirstPassError(f"{location}: {error}") from None


def translated(value: Any, words: tables.Translations) -> Any:
    """Return the translation of a value in `words`; the value itself if there is none.

    >>> translated(" Pass ", {"pass": "refused"}), translated(1, {"pass": "refused"})
    ('refused', 1)
    """
    return words.get(str(value).strip().casefold(), value) if words and value is not None else value


def _answers(cell: Any) -> list[str]:
    """Return the accepted answers, the gold one first. A cell may hold a list, also in JSON or Python syntax."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = parse(cell)
                return _answers(value if isinstance(value, list) else [cell])
    answers = cell if isinstance(cell, list) else [cell]
    stripped = (str(answer).strip() for answer in answers if answer is not None)
    return list(dict.fromkeys(answer for answer in stripped if answer))


COLUMNS: Mapping[str, tables.Column] = {
    "question": tables.Column(("question", "problem", "query", "prompt"), tables.text),
    "answer": tables.Column(
        ("gold", "target", "gold_answer", "gold_answers", "correct_answer", "reference_answer", "answer"), _answers
    ),
    "reply": tables.Column(
        (
            *("first_reply", "reply", "predicted_answer", "prediction", "response", "model_output", "model_answer"),
            *("model_response", "llm_response", "output", "completion"),
        ),
        tables.verbatim,
    ),
    "grade": tables.Column(("first_grade", "grade", "grade_letter", "grade_str", "verdict"), GRADE),
    "refused": tables.Column(("refused", "abstained", "is_refusal", "is_not_attempted"), tables.FLAG),
    "correct": tables.Column(("correct", "is_correct"), tables.FLAG),
    "incorrect": tables.Column(("incorrect", "is_incorrect"), tables.FLAG),
    "answerable": tables.Column(("answerable", "is_answerable"), tables.FLAG),
    "question_id": tables.Column(("question_id", "id", "qid", "uuid"), tables.text),
    "model": tables.Column(("model", "model_name"), tables.text),
    "dataset": tables.Column(("dataset",), tables.text),
    "variant": tables.Column(("variant", "condition"), tables.text),
    "draw": tables.Column(("draw",), tables.Kind("a whole number from 0", low=0, is_whole=True)),
    "forced_grade": tables.Column(("forced_grade", "second_grade"), GRADE),
    "forced_correct": tables.Column(("forced_correct", "correct_forced", "correct_when_forced"), tables.FLAG),
    "forced_reply": tables.Column(("forced_reply", "forced_answer"), tables.text),
    # a column with such a name may hold anything, so these are only read from columns that the user names
    "p_answering": tables.Column((), tables.PROBABILITY),
    "confidence": tables.Column((), tables.PROBABILITY),
    "topic": tables.Column(("topic", "category", "subject"), tables.text),
    "context": tables.Column(("context", "passage"), tables.text),
}
"""The columns, by role."""

Values = Mapping[str, Any]
"""The values of a row, by role."""


def read_graded(file: SourceFile, columns: Mapping[str, str], words: tables.Translations) -> tuple[FirstPass, ...]:
    """Return the first passes of a file with one graded answer per row.

    The grade is read from a column of grades, or from flags for right, wrong and refused answers. A flag for refusals
    can accompany grades of right and wrong.

    A row may hold both passes: the forced pass in its own columns, or in the grade if refusals have a flag. Since a
    refusal is never right, a single refused row graded as right shows that the grades of refused rows belong to forced
    answers. If there is none, a refused row graded as wrong is ambiguous, and its grade is set aside.

    Raises DatasetError if a column is missing, a grade is unknown, or a cell is invalid; the message names the line.

    - `file`: the file.
    - `columns`: column by role, for columns without a usual name; ``result.grade`` is a path to a nested value.
    - `words`: translations of words for grades and flags.
    """
    rows, by_role = file.resolved(columns, COLUMNS)
    if not {"grade", "correct", "refused"} & by_role.keys():
        raise tables.missing_column(file.source, tables.present_columns(rows), "grade", "grade")
    cells = [tables.values_by_role(row, by_role, COLUMNS, words) for row in rows]
    ids = _ids(rows, cells, by_role)
    grades = [values["grade"] if "grade" in by_role else _of_flags(values) for values in cells]
    both = any(values["refused"] and grade is Grade.CORRECT for values, grade in zip(cells, grades, strict=True))
    passes = []
    for row, values, question_id, answer in zip(rows, cells, ids, grades, strict=True):
        if values["refused"] is False and answer is Grade.REFUSED:
            message = f"the grade says that the model refused, and column {by_role['refused']!r} says that it did not; "
            raise row.wrong(f"{message}correct the row, or name one of the two columns otherwise", by_role.get("grade"))
        grade = _grade(values, answer)
        other_grade = answer if values["refused"] and answer in (Grade.CORRECT, Grade.INCORRECT) else None
        forced = _forced(values, by_role, other_grade if both else None)
        passes.append(
            FirstPass(
                question=_question(values, question_id),
                model=values["model"] or file.stem,
                dataset=values["dataset"],
                grade=grade,
                reply=values["reply"],
                variant=values["variant"],
                draw=values["draw"] or 0,
                reason=NOT_GRADED if grade is Grade.UNSCORED else None,
                forced=forced,
                set_aside=other_grade if forced is None else None,
                p_answering=values["p_answering"],
                confidence=values["confidence"],
            )
        )
    return tuple(passes)


def _ids(rows: Sequence[tables.Row], cells: Sequence[Values], by_role: Mapping[str, str]) -> list[str]:
    """Return an id for every row: its own, or one made from its question.

    Files of several models may list the same questions in different orders. So if questions with the same text have
    different gold answers, the id is made from both. Repetitions are counted within each model's rows.
    """
    if "question_id" in by_role:
        for row, values in zip(rows, cells, strict=True):
            if values["question_id"] is None:
                raise row.wrong("expected an id, got an empty cell; give every question one", by_role["question_id"])
        return [values["question_id"] for values in cells]
    if "question" not in by_role:
        return [str(number) for number in range(1, len(rows) + 1)]
    groups = [tuple(values[role] for role in ("model", "dataset", "variant", "draw")) for values in cells]
    texts = ["\x1f".join(filter(None, (values["question"], values["context"]))) for values in cells]
    seen = Counter(zip(groups, texts, strict=True))
    makers = {group: ContentIds() for group in groups}
    return [
        makers[group].next_id(f"{text}\n{values['answer'] or []}" if seen[group, text] > 1 else text)
        for values, group, text in zip(cells, groups, texts, strict=True)
    ]


def _of_flags(values: Values) -> Grade | None:
    """Return the grade from the flags for right and wrong; None if neither is set."""
    if values["correct"]:
        return Grade.CORRECT
    is_wrong = values["incorrect"] or (values["correct"] is False and values["incorrect"] is None)
    return Grade.INCORRECT if is_wrong else None


def _grade(values: Values, answer: Grade | None) -> Grade | None:
    """Return the grade of a row; None for an answer without a grade."""
    if values["refused"]:
        return Grade.REFUSED
    if answer is None and values["refused"] is None:
        return Grade.UNSCORED
    if answer is None and values["answerable"] is False:
        return Grade.INCORRECT  # every answer to an unanswerable question is wrong
    return answer


def _forced(values: Values, by_role: Mapping[str, str], other_grade: Grade | None) -> Outcome | None:
    """Return the outcome of the forced pass, from its columns or else from `other_grade`, that of a refused row."""
    if "forced_grade" in by_role:
        grade = values["forced_grade"]
    elif "forced_correct" in by_role:
        grade = {None: None, True: Grade.CORRECT, False: Grade.INCORRECT}[values["forced_correct"]]
    else:
        grade = other_grade
    return None if grade is None and values["forced_reply"] is None else forced_outcome(grade, values["forced_reply"])


def _question(values: Values, question_id: str) -> Question:
    answers: list[Any] = [None] if values["answerable"] is False else values["answer"] or [NOT_KNOWN]
    text, topic, context = values["question"] or NOT_KNOWN, values["topic"], values["context"]
    return Question(question_id, text, answers[0], tuple(answers[1:]), topic, context)


INSPECT, LM_EVAL, GRADED, OUTCOMES = "inspect", "lm-eval", "graded", "outcomes"
FORMATS = (GRADED, OUTCOMES)
"""Formats that this module reads; plugins read others."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files."""

    columns: Mapping[str, str] = field(default_factory=dict)  # column by role
    scorer: str | None = None  # the score of an Inspect log, or the metric of lm-eval samples, to use as the grade
    # how a refusal is recognised: ``"wording"``, ``"tag"``, a regular expression, or the name of a function
    refusal: str | None = None
    # name, dataset: names of the model and the dataset, instead of those in the files
    name: str | None = None
    dataset: str | None = None
    words: tables.Translations = field(default_factory=dict)  # translations of words for grades and flags
    # what `refusal` stands for: a reply that it detects is a refusal, unless it was graded as correct
    detector: Callable[[str, Question], bool] | None = None

    def applied(self, passes: Iterable[FirstPass]) -> tuple[FirstPass, ...]:
        """Return the first passes with these names, and with refusals detected in their replies.

        Raises FirstPassError if matching a reply takes too long.
        """
        return tuple(map(self._applied, passes))

    def _applied(self, first: FirstPass) -> FirstPass:
        named = replace(first, model=self.name or first.model, dataset=self.dataset or first.dataset)
        if self.detector is None or first.grade is Grade.CORRECT or first.reply is None:
            return named
        try:
            is_refusal = self.detector(first.reply, first.question)
        except TimeoutError as error:
            raise FirstPassError(
                f"--refusal: {self.refusal!r} takes more than {SECONDS:g} second on the reply to question "
                f"{first.question.question_id!r}; choose a pattern without nested repetitions"
            ) from error
        return replace(named, grade=Grade.REFUSED, reason=None) if is_refusal else named


def detected_format(file: SourceFile) -> str:
    """Return the format of a file by its content; raises DatasetError if it is empty or malformed."""
    if file.is_inspect_log:
        return INSPECT
    columns = file.records[0].cells
    if "doc_id" in columns and "filtered_resps" in columns:
        return LM_EVAL
    return OUTCOMES if all(column in columns for column in REQUIRED) else GRADED


def read_first_passes(file: SourceFile, kind: str, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Read first passes from graded answers or an outcome table.

    Raises DatasetError or OutcomeTableError if the file cannot be used, or an option does not apply to its format; the
    message names the line or the option.

    - `file`: the file.
    - `kind`: one of `FORMATS`.
    - `options`: options for reading it.
    """
    if options.scorer:
        raise FirstPassError(
            f"--scorer: {file.path} was read as {kind!r}, which has no scorers; leave it out, or name the column of "
            "grades with --column grade=NAME"
        )
    if kind == GRADED:
        return options.applied(read_graded(file, options.columns, options.words))
    for option, values in (("--column", options.columns), ("--map", options.words)):
        if values:
            raise FirstPassError(
                f"{option}: {file.path} is an outcome table, whose columns and words are fixed; leave it out"
            )
    return options.applied(from_outcomes(read_outcomes(file.path)))


def has_ids(file: SourceFile, kind: str, options: ReadOptions) -> bool:
    """Whether ids may be a dataset's, rather than numbers of rows or of lm-eval's documents."""
    if kind != GRADED:
        return kind != LM_EVAL
    return "question_id" in file.resolved(options.columns, COLUMNS)[1]
