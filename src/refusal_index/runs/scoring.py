"""Files of graded answers and outcome tables, read and scored from Python and for the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from refusal_index.data.analysis import Analysis
from refusal_index.data.first_pass import (
    FirstPass,
    FirstPassError,
    FirstPasses,
    check_order,
    self_contained,
    to_outcomes,
    with_forced,
    with_rows_of_forced,
)
from refusal_index.data.folder import RunFolder, read_outcomes_of
from refusal_index.data.grade_words import Translations
from refusal_index.data.imports import ReadOptions, holds_outcomes
from refusal_index.data.outcome_table import REQUIRED, read_outcomes, read_tables
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.tables import READABLE, column_names
from refusal_index.errors import OutcomeTableError, checked_path, nearest
from refusal_index.findings.models_asked import run_caveats
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import Summary, summarise
from refusal_index.findings.tallies import ScoredFiles, tallies
from refusal_index.models.settings import SettingError
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.execute import execute
from refusal_index.runs.file_grading import all_graded, grades_in, prepare_file_grading
from refusal_index.runs.plan import Plan
from refusal_index.runs.reuse import RULES_OF_IMPORTS, import_first, import_forced
from refusal_index.runs.settings import Settings


def score(
    files: str | Path | Sequence[str | Path],
    *,
    forced: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    words: Translations | None = None,
    refusal: str | None = None,
    grader: str | None = None,
    scorer: str | None = None,
    kind: str | None = None,
    rows: str | None = None,
    encoding: str = ReadOptions.encoding,
    name: str | None = None,
    dataset: str | None = None,
    variant: str | None = None,
    grader_base_url: str | None = None,
    grader_api_key_env: str | None = None,
    **options: Any,
) -> ScoredFiles:
    r"""Read graded answers and compute their Refusal Index, as ``refusal-index score`` does.

    Parameters
    ----------
    files
        Outcome tables, results of other tools, graded answers, or the folder of one run, whose results are computed
        again and not changed.
    forced
        The file of the forced answers to a single file of first passes.
    columns
        Column names by role, as in ``{"grade": "verdict"}``.
    words
        Meanings of words for grades, as in ``{"pass": "correct"}``.
    refusal
        How to recognise a refusal in a reply, whatever its grade: ``"wording"``, ``"tag"``, ``"+"`` and a regular
        expression, or ``"python:"`` and a function's name.
    grader
        What grades answers without a grade: ``"exact"``, ``"includes"``, ``"choice"``, a model by name, which is sent
        requests and whose grades are kept below ``runs``, or ``python:MODULE:FUNCTION``.
    scorer, kind, rows, encoding
        The score of a log to use as the grade, the format, the path of the answers in a document, and the encoding; by
        default, the first two are found by the content.
    name, dataset, variant
        Names of the model, the dataset and the prompt, instead of those in the files.
    grader_base_url, grader_api_key_env
        The address of the grading model's server, and the environment variable that holds its key.
    options
        Fields of `refusal_index.data.analysis.Analysis`, such as ``confidence_level``.

    Returns
    -------
    ScoredFiles
        With ``run``, the `RunResults`, None without any forced answer; ``first_passes``, the rates of those without a
        forced pass; ``outcomes``; and ``write(path)``, which writes them as an outcome table, as comparisons need.

    Raises
    ------
    RefusalIndexError
        If a file cannot be read, an option does not apply to it, or the grader does not grade all answers; its grades
        so far are kept.

    Examples
    --------
    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp(), "graded.csv")
    >>> rows = ["question,verdict", "Who?,right", "When?,wrong", "Where?,declined"]
    >>> _ = table.write_text("\n".join(rows))
    >>> words = {"right": "correct", "wrong": "incorrect", "declined": "refused"}
    >>> (found,) = score(table, columns={"grade": "verdict"}, words=words).first_passes
    >>> found.correct, found.refused, found.to_force
    (1, 1, 1)
    """
    paths = [
        checked_path(path, "files")
        for path in (files if isinstance(files, Sequence | Iterator) and not isinstance(files, str) else [files])
    ]
    analysis = Analysis.of_options(options)
    asking = {"grader_base_url": grader_base_url, "grader_api_key_env": grader_api_key_env}
    values = {name: value for name, value in asking.items() if value is not None}
    check_asks(grader, values)
    if not paths or (len(paths) > 1 and any(path.is_dir() for path in paths)):
        raise SettingError(f"files: expected files, or the folder of one run, got {len(paths) or 'none'}")
    reading = ReadOptions(
        *(dict(columns or {}), scorer, refusal, name, dataset),
        words={word.casefold(): meaning for word, meaning in (words or {}).items()},
        encoding=encoding,
        rows=rows,
        grader=grader,
    )
    second = None if forced is None else checked_path(forced, "forced")
    given = FilesToRead(paths, second, kind, reading, variant)
    graded = given.with_grades(values, lambda plan: all_graded(run_to_completion(execute(plan))))
    return graded.scored(analysis)


@dataclass(frozen=True)
class FilesToRead:
    """Files to read, and how."""

    files: Sequence[Path]
    forced: Path | None  # the file of the forced answers to a single file
    kind: str | None  # the format; None to detect it
    options: ReadOptions
    variant: str | None = None  # name of the prompt instead of the one in the files
    asking: Mapping[str, Any] = field(default_factory=dict)  # settings for asking a grading model, by name

    def are_of_this_package(self) -> bool:
        """Whether they are outcome tables or the folder of a run, and no option is given for other files."""
        plain = ReadOptions(self.options.columns, encoding=self.options.encoding)
        if (self.forced, self.kind, self.variant) != (None, None, None) or self.options != plain:
            return False
        return self.files[0].is_dir() or are_outcome_tables(self.files, plain.columns, plain.encoding)

    def with_grades(self, values: Mapping[str, Any], ask: Callable[[Plan], RunResults]) -> Self:
        """Return the reading with grades of what a model or function is to grade, which is asked for those missing.

        - `values`: settings for asking it, by name.
        - `ask`: has the answers graded; raises RefusalIndexError if some are not.
        """
        grader = self.options.grader
        if grader is None or grader in RULES_OF_IMPORTS:
            return self
        answers = [first_pass for _, found in self.read()[1] for first_pass in found.passes]
        plan = prepare_file_grading(answers, self.files[0], Settings.from_values(**{**values, "grader": grader}))
        if plan is None:
            return self
        return replace(self, options=replace(self.options, grades=grades_in(ask(plan))), asking=values)

    def read(self) -> tuple[list[FirstPass], list[tuple[str, FirstPasses]]]:
        """Return the first passes of the files with their forced answers, and what was read from each file."""
        if self.forced is not None and len(self.files) > 1:
            raise FirstPassError(f"expected a single file of first passes, got {len(self.files)}").about("forced")
        read = [(str(path), import_first(path, self.kind, self.options).read) for path in self.files]
        passes: Sequence[FirstPass] = [first_pass for _, found in read for first_pass in found.passes]
        if self.forced is None:
            passes = with_rows_of_forced(passes)
        else:
            check_order(passes, self.files[0], self.forced)
            second = import_forced(read[0][1], self.forced, self.kind, self.options)
            text_column = read[0][1].columns.get("question", "question")
            passes = with_forced(passes, second.passes, str(self.forced), text_column)
            read.append((str(self.forced), second))
        return [replace(first_pass, variant=self.variant or first_pass.variant) for first_pass in passes], read

    def scored(self, analysis: Analysis) -> ScoredFiles:
        """Return the results: RI of what has both passes, and the rates of the other first passes."""
        if self.are_of_this_package():
            summary, table = summary_of(self.files, analysis, self.options.columns, self.options.encoding)
            return ScoredFiles(_as_run(self.files[0], summary, table), table)
        passes, read = self.read()
        analysis = analysis.with_recorded([{}])
        tallied = tallies(passes, analysis)
        groups = {(tally.model, tally.dataset, tally.variant) for tally in tallied if tally.has_both_passes}
        both = [first for first in passes if (first.model, first.dataset, first.variant) in groups]
        run = None
        if both:
            table = read_outcomes(to_outcomes(map(self_contained, both)), analysis.sampling)
            summary = with_sections(summarise(table, analysis), table, self.files[0])
            run = _as_run(self.files[0], summary, table)
        first_only = tuple(tally for tally in tallied if not tally.has_both_passes)
        return ScoredFiles(run, to_outcomes(map(self_contained, passes)), first_only, tuple(read))


def check_asks(grader: str | None, values: Mapping[str, Any]) -> None:
    """Raise SettingError if settings for asking a grading model are given without one."""
    if values and (grader is None or grader in RULES_OF_IMPORTS):
        name = next(iter(values))
        raise SettingError(f"{{{name}}}: applies only with a grading model; name it with {{grader}}, or leave it out")


def are_outcome_tables(files: Sequence[Path], columns: Mapping[str, str], encoding: str) -> bool:
    """Whether all files are outcome tables, also with a misspelt name of a required column.

    - `columns`: the named columns by role.
    """
    for path in files:
        if not any(path.name.lower().removesuffix(".gz").endswith(suffix) for suffix in READABLE):
            return False
        try:
            present = column_names(path, OutcomeTableError, encoding)
        except OutcomeTableError:
            return False
        misspelt = {name for name in REQUIRED if nearest(name, present, cutoff=0.8)} if present else set()
        is_meant = len(misspelt) == len(REQUIRED) and any(name in present for name in REQUIRED)
        if not holds_outcomes(present, columns) and not is_meant:
            return False
    return True


def summary_of(
    files: Sequence[Path], analysis: Analysis, columns: Mapping[str, str], encoding: str = ReadOptions.encoding
) -> tuple[Summary, pl.DataFrame]:
    """Return the summary of outcome tables, or that of a run's folder computed again, and the table."""
    about: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    if files[0].is_dir():
        if columns:
            raise SettingError(f"{{column}}: names columns of outcome tables, but {files[0]} is a folder; leave it out")
        folder = RunFolder(files[0])
        table = read_outcomes_of(files[0], analysis.sampling)
        about = folder.read_about()
        settings = folder.read_settings()
    else:
        table = read_tables(files, analysis.sampling, columns, encoding)
    summary = summarise(
        table,
        analysis.with_recorded([about]),
        is_deterministic=is_deterministic(settings, about),
        answered_only=bool(settings.get("answered_only")),
        run_caveats=run_caveats(settings, about),
    )
    return with_sections(summary, table, files[0]), table


def _as_run(source: Path, summary: Summary, table: pl.DataFrame) -> RunResults:
    """Return results that were computed from files; they name no model, since files may hold several."""
    return RunResults(source.stem, source, None, None, table.lazy(), analysis=summary.analysis, computed=summary)
