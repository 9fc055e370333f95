"""Imports of other tools' results as first passes: how files are read, and which reader a format has.

`read_first_passes` reads graded answers (`graded.py`) and outcome tables. Plugins read other formats: `plugins/inspect`
reads Inspect's logs, `plugins/lm_eval` samples of lm-evaluation-harness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from refusal_index.data.encodings import UTF_8
from refusal_index.data.first_pass import FirstPass, FirstPassError, FirstPasses, from_outcomes
from refusal_index.data.grade_words import Translations
from refusal_index.data.graded import read_graded, resolved
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.outcome_table import REQUIRED, SCHEMA, read_outcomes, unused_columns
from refusal_index.data.source_files import SourceFile
from refusal_index.data.tables import present_columns
from refusal_index.data.text import SECONDS, is_blank

LM_EVAL = "lm-eval"
GRADED = "graded"
OUTCOMES = "outcomes"
FORMATS = (GRADED, OUTCOMES)
"""Formats that this module reads; plugins read others."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files."""

    columns: Mapping[str, str] = field(default_factory=dict)  # column by role
    scorer: str | None = None  # the score of an Inspect log, or the metric of lm-eval samples, to use as the grade
    # how a refusal is recognised: ``"wording"``, ``"tag"``, ``"+"`` and a regular expression, or a function's name
    refusal: str | None = None
    # name, dataset: names of the model and the dataset, instead of those in the files
    name: str | None = None
    dataset: str | None = None
    words: Translations = field(default_factory=dict)  # translations of words for grades
    encoding: str = UTF_8  # of text files
    rows: str | None = None  # path of the list of answers in a document; None to find it
    grader: str | None = None  # what grades answers without a grade; None to leave them unscored
    grades: Mapping[str, Outcome] = field(default_factory=dict)  # what models have graded, of `runs.file_grading`
    # what `refusal` stands for: a reply that it detects is a refusal, whatever its grade
    detector: Callable[[str, Question], bool] | None = None

    def applied(self, read: FirstPasses) -> FirstPasses:
        """Return the first passes with these names, and with refusals detected in their replies.

        Raises FirstPassError if matching a reply takes too long.
        """
        passes = tuple(map(self._applied, read.passes))
        both = zip(read.passes, passes, strict=True)
        grades = Counter(before.grade for before, now in both if before.grade is not now.grade)
        overruled = {str(grade): grades[grade] for grade in (Grade.CORRECT, Grade.INCORRECT) if grades[grade]}
        return replace(read, passes=passes, overruled=overruled)

    def _applied(self, first: FirstPass) -> FirstPass:
        named = replace(first, model=self.name or first.model, dataset=self.dataset or first.dataset)
        if self.detector is None or first.reply is None or is_blank(first.reply):
            return named
        try:
            is_refusal = self.detector(first.reply, first.question)
        except TimeoutError as error:
            raise FirstPassError(
                f"{self.refusal!r} takes more than {SECONDS:g} second on the reply to question "
                f"{first.question.question_id!r}; choose a pattern without nested repetitions"
            ).about("refusal") from error
        return replace(named, grade=Grade.REFUSED, reason=None) if is_refusal else named


def detected_format(file: SourceFile, columns: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the format of a file by its content; raises DatasetError if it is empty or malformed.

    - `columns`: the named columns by role.
    """
    if file.is_inspect_log:
        return "inspect"
    present = file.records[0].cells
    if "doc_id" in present and "filtered_resps" in present:
        return LM_EVAL
    return OUTCOMES if holds_outcomes(present, columns) else GRADED


def holds_outcomes(present: Collection[str], columns: Mapping[str, str]) -> bool:
    """Whether a table with these columns is an outcome table.

    - `columns`: the named columns by role.
    """
    return all(name in present or name in columns for name in REQUIRED) and columns.keys() <= SCHEMA.keys()


def read_first_passes(file: SourceFile, kind: str, options: ReadOptions) -> FirstPasses:
    """Read first passes from graded answers or an outcome table.

    Raises DatasetError or OutcomeTableError if the file cannot be used, or an option does not apply to its format; the
    message names the line or the option.

    - `file`: the file.
    - `kind`: one of `FORMATS`.
    - `options`: options for reading it.
    """
    if options.scorer:
        message = f"{file.path} was read as {kind!r}, which has no scorers; leave it out, or name the column of grades"
        raise FirstPassError(message).about("scorer").with_remedy("column", "grade=NAME")
    if kind == GRADED:
        read = read_graded(file, options.columns, options.words, needs_grades=options.grader is None)
        return options.applied(read)
    if options.words:
        raise FirstPassError(f"{file.path} is an outcome table, whose words are fixed; leave it out").about("map")
    table = read_outcomes(file.path, columns=options.columns, encoding=options.encoding)
    not_used = unused_columns(present_columns(file.records), options.columns.values())
    return options.applied(FirstPasses(from_outcomes(table), not_used=not_used, is_fixed=True))


def has_ids(file: SourceFile, kind: str, options: ReadOptions) -> bool:
    """Whether ids may be a dataset's, rather than numbers of rows or of lm-eval's documents."""
    if kind != GRADED:
        return kind != LM_EVAL
    return "question_id" in resolved(file, options.columns)[1]
