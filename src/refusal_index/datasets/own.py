"""A user's own questions: any CSV, JSON Lines or Parquet file, data frame, or dictionaries of questions and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refusal_index.datasets.columns import missing_column, resolve_columns
from refusal_index.datasets.dataset import Dataset, DatasetError, GraderName
from refusal_index.datasets.questions import read_questions
from refusal_index.outcomes.errors import TableError
from refusal_index.outcomes.files import sha256_of
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.source import Problems, Row, Source, present_columns, read_content
from refusal_index.outcomes.tabular import read_rows

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


@dataclass(frozen=True)
class Checked:
    """Questions of a user's own, checked."""

    rows: tuple[Row, ...]  # those that could be read
    questions: tuple[Question, ...]  # one for each row, or none where there are problems
    problems: Problems  # everything that is wrong, in the order of the lines
    columns: Mapping[str, str]  # column by role, as given or found
    sha256: str  # of the file; empty for questions in memory


def load(data: object = None, columns: Mapping[str, str] | None = None) -> Dataset:
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
    """
    if data is None:
        raise DatasetError(
            "dataset 'own': expected a file of questions as data (--data FILE), got none; "
            "give a .csv, .jsonl or .parquet file with the columns question and answer"
        )
    if not isinstance(data, str | Path):
        return questions_from(data, columns)
    path = Path(data)
    checked = check(path, columns)
    return _dataset(
        checked,
        f"own/{path.name.split('.')[0]}",
        f"own file {path.name}",
        f", which 'refusal-index validate {path}' lists",
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
    checked = _checked(Source(name, "memory", "question", DatasetError), data, columns or {}, "")
    dataset = _dataset(checked, name, "questions in memory")
    return replace(dataset, sha256=dataset.questions_sha256)


def check(data: Path, columns: Mapping[str, str] | None = None) -> Checked:
    """Read a file of questions and gather everything that is wrong with its rows.

    Raises DatasetError if no row can be judged: the file cannot be read, or a needed column is missing.

    - `data`, `columns`: as for `load`.
    """
    content = read_content(data, DatasetError)
    return _checked(Source.of(data, "question", DatasetError), content, columns or {}, sha256_of(content))


def _checked(source: Source, data: object, given: Mapping[str, str], sha256: str) -> Checked:
    malformed: Problems = []
    rows = read_rows(source, data, malformed)
    if not rows:
        raise malformed[0]
    present = present_columns(rows)
    columns = resolve_columns(source, present, given, USUAL_NAMES, strict=True)
    for role in ("question",) if "answerable" in columns else ("question", "answer"):
        if role not in columns:
            raise missing_column(source, present, role, role)
    questions, wrong = read_questions(rows, columns)
    problems = sorted([*malformed, *wrong], key=lambda problem: problem.line)
    return Checked(tuple(rows), () if problems else questions, problems, columns, sha256)


def _dataset(checked: Checked, name: str, source: str, lister: str = "") -> Dataset:
    if checked.problems:
        more = len(checked.problems) - 1
        told = f"; and {more:,} more problem{'s' if more > 1 else ''}{lister}"
        raise DatasetError(f"{checked.problems[0]}{told if more else ''}")
    grader: GraderName = "choice" if all(question.choices for question in checked.questions) else "model"
    return Dataset(name, checked.questions, checked.sha256, source, grader, "the user's own")


def described(checked: Checked, longest: int, characters_per_token: int) -> Iterator[str]:
    """Yield in lines what is in the file.

    - `checked`: the file, without problems.
    - `longest`: characters of its longest prompt.
    - `characters_per_token`: about how many.
    """
    questions = checked.questions
    counts = {
        "with a context": sum(question.context is not None for question in questions),
        "with choices": sum(bool(question.choices) for question in questions),
        "with aliases": sum(bool(question.aliases) for question in questions),
        "with a pattern": sum(question.pattern is not None for question in questions),
        "without a right answer": sum(question.gold is None for question in questions),
    }
    yield f"{len(questions):,} questions, {', '.join(f'{role} in {name!r}' for role, name in checked.columns.items())}"
    yield from (f"  {count:,} {name}" for name, count in counts.items() if count)
    if topics := Counter(question.topic for question in questions if question.topic is not None):
        most = ", ".join(f"{topic} ({count:,})" for topic, count in topics.most_common(3))
        yield f"  {len(topics):,} topics, most often {most}"
    if counts["with a context"]:
        yield f"  longest context: {max(len(question.context or '') for question in questions):,} characters"
    yield f"  longest prompt: {longest:,} characters, about {longest // characters_per_token:,} tokens"
    yield f"  {_repeated(questions):,} asked more than once in the same words"


def too_long(checked: Checked, longest: Sequence[int], most: int, characters: int) -> Iterator[TableError]:
    """Yield the questions whose prompt is too long by their lines, and by their ids where these are the file's own.

    - `checked`: the file.
    - `longest`: characters of the longest prompt of each of its questions.
    - `most`, `characters`: the most tokens of a prompt, and about how many characters each has.
    """
    for row, question, length in zip(checked.rows, checked.questions, longest, strict=not checked.problems):
        if length > most * characters:
            named = f"question_id {question.question_id!r}: " if "question_id" in checked.columns else ""
            said = (
                f"{named}expected a prompt of at most {most:,} tokens, got about {length // characters:,}; shorten its "
                "context, or leave the question out"
            )
            yield row.wrong(said)


def _repeated(questions: Sequence[Question]) -> int:
    counts = Counter((question.text, question.context, question.choices) for question in questions)
    return sum(count - 1 for count in counts.values())
