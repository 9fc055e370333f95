"""Any file of first passes: what it is, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from refusal_index.datasets.imports.first_pass import FirstPass, FirstPassError, from_outcomes
from refusal_index.datasets.imports.graded import Translations, read_graded
from refusal_index.datasets.imports.lm_eval import looks_like_lm_eval, read_lm_eval
from refusal_index.datasets.imports.source import SourceFile
from refusal_index.outcomes.outcome import Grade
from refusal_index.outcomes.schema import REQUIRED
from refusal_index.outcomes.table import read_outcomes

INSPECT, LM_EVAL, GRADED, OUTCOMES = "inspect", "lm-eval", "graded", "outcomes"
FORMATS = (INSPECT, LM_EVAL, GRADED, OUTCOMES)
"""What a file can be."""


@dataclass(frozen=True)
class ReadOptions:
    """How files are read."""

    columns: Mapping[str, str] = field(default_factory=dict)  # column by role
    scorer: str | None = None  # the score of an Inspect log, or the metric of lm-eval's samples, that is the grade
    # regular expression: a reply in which it is found is a refusal, unless it was graded as correct
    refusal: str | None = None
    # name, dataset: of the model and the questions, in place of what the files say
    name: str | None = None
    dataset: str | None = None
    words: Translations = field(default_factory=dict)  # what words of grades and flags are to be read as

    def applied(self, passes: tuple[FirstPass, ...]) -> tuple[FirstPass, ...]:
        """Return the first passes under these names, with the refusals that their replies show.

        Raises FirstPassError if `refusal` is not a regular expression.
        """
        pattern = self._pattern()
        named = (replace(one, model=self.name or one.model, dataset=self.dataset or one.dataset) for one in passes)
        return tuple(_as_refusal(one) if pattern and _matches(pattern, one) else one for one in named)

    def _pattern(self) -> re.Pattern[str] | None:
        try:
            return re.compile(self.refusal, re.IGNORECASE) if self.refusal else None
        except re.error as error:
            raise FirstPassError(f"--refusal: expected a regular expression, got {self.refusal!r} ({error})") from error


def detected_format(file: SourceFile) -> str:
    """Tell what a file is by its content; raises DatasetError if the file holds nothing, or is malformed."""
    if file.is_inspect_log:
        return INSPECT
    if looks_like_lm_eval(file.records[0]):
        return LM_EVAL
    return OUTCOMES if all(column in file.records[0].cells for column in REQUIRED) else GRADED


def read_first_passes(file: SourceFile, kind: str, options: ReadOptions) -> tuple[FirstPass, ...]:
    """Read a file that is no log of Inspect.

    Raises DatasetError or OutcomeTableError if it cannot be used as it is; the message names the line.

    - `file`: the file.
    - `kind`: one of `FORMATS`.
    - `options`: how it is read.
    """
    _refuse_idle(file, kind, options)
    if kind == LM_EVAL:
        passes = read_lm_eval(file, options.columns, options.scorer, options.words)
    elif kind == GRADED:
        passes = read_graded(file, options.columns, options.words)
    else:
        passes = from_outcomes(read_outcomes(file.path))
    return options.applied(passes)


def _refuse_idle(file: SourceFile, kind: str, options: ReadOptions) -> None:
    """Stop where an option was given that this kind of file has no use for: whoever gave it expects something else."""
    if options.columns and kind == OUTCOMES:
        raise FirstPassError(f"--column: {file.path} is an outcome table, whose columns have fixed names; leave it out")
    if options.words and kind == OUTCOMES:
        raise FirstPassError(f"--map: {file.path} is an outcome table, whose words are fixed; leave it out")
    if options.scorer and kind != LM_EVAL:
        raise FirstPassError(
            f"--scorer: {file.path} was read as {kind!r}, which has no scorers; leave it out, or name the column of "
            "grades with --column grade=NAME"
        )


def _matches(pattern: re.Pattern[str], one: FirstPass) -> bool:
    return one.grade is not Grade.CORRECT and one.reply is not None and pattern.search(one.reply) is not None


def _as_refusal(one: FirstPass) -> FirstPass:
    return replace(one, grade=Grade.REFUSED, reason=None)
