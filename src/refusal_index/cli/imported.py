"""Results of other tools: how ``import``, ``score`` and ``force`` read them, and what ``score`` prints about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refusal_index.cli import console

if TYPE_CHECKING:
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.first_pass import FirstPass, FirstPasses
    from refusal_index.data.imports import ReadOptions
    from refusal_index.findings.tallies import Tally


ADDRESS = ("grader_base_url", "grader_api_key_env")
"""Settings for asking a grading model that every command with this model needs."""


@dataclass(frozen=True)
class FilesToRead:
    """Files to read, and how."""

    files: Sequence[Path]
    forced: Path | None  # the file of the forced answers to a single file
    kind: str | None  # the format; None to detect it
    options: ReadOptions
    variants: str | None  # name of the prompt instead of the one in the files
    asking: Mapping[str, Any] = field(default_factory=dict)  # settings for asking a grading model, by name

    def arguments(self, *left_out: str) -> list[str]:
        """Return the options of this reading as words of a command line, except some."""
        options = self.options
        pairs: dict[str, Any] = {
            "--forced": [self.forced],
            "--format": [self.kind],
            "--column": [f"{role}={name}" for role, name in options.columns.items()],
            "--map": [f"{word}={meaning}" for word, meaning in options.words.items()],
            "--encoding": [options.encoding if options.encoding != "utf-8" else None],
            "--variants": [self.variants],
            **{f"--{name}": [getattr(options, name)] for name in ("rows", "scorer", "refusal", "grader")},
            **{f"--{name}": [getattr(options, name)] for name in ("name", "dataset")},
            **{console.option(name): [value] for name, value in self.asking.items() if name in ADDRESS},
        }
        values = [(name, value) for name, several in pairs.items() if name not in left_out for value in several]
        return [word for name, value in values if value is not None for word in (name, str(value))]

    def with_grades(self, values: Mapping[str, Any]) -> FilesToRead:
        """Return the reading with grades of what a model or function is to grade, which is asked for those missing.

        - `values`: settings for asking it, by name.
        """
        from refusal_index.runs.reuse import RULES_OF_IMPORTS
        from refusal_index.runs.settings import Settings

        grader = self.options.grader
        if grader is None or grader in RULES_OF_IMPORTS:
            return self
        from refusal_index.runs.file_grading import grades_in, prepare_file_grading

        passes = [first_pass for _, found in self.read()[1] for first_pass in found.passes]
        plan = prepare_file_grading(passes, self.files[0], Settings.from_values(**{**values, "grader": grader}))
        if plan is None:
            return self
        from refusal_index.cli.runs import graded_with_progress

        graded = replace(self.options, grades=grades_in(graded_with_progress(plan)))
        return replace(self, options=graded, asking=values)

    def read(self) -> tuple[list[FirstPass], list[tuple[str, FirstPasses]]]:
        """Return the first passes of the files with their forced answers, and what was read from each file."""
        from refusal_index.runs.scoring import read_files

        return read_files(self.files, self.forced, self.kind, self.options, self.variants)


def score_imported(reading: FilesToRead, analysis: Analysis, *, as_json: bool) -> bool:
    """Print the results of other tools' files: RI of both passes, or the rates of the first pass and what is missing.

    Returns whether the results of both passes are complete.
    """
    from refusal_index.findings.summary import is_complete
    from refusal_index.findings.tallies import tally_document
    from refusal_index.render.imported import reading_lines
    from refusal_index.render.summary import first_screen, summary_document, tally_blocks
    from refusal_index.runs.scoring import score_first_passes

    passes, read = reading.read()
    scored = score_first_passes(passes, read, analysis, reading.files[0])
    summary = None if scored.run is None else scored.run.summary
    first_only = scored.first_passes
    lines = list(reading_lines(read))
    if as_json:
        document = {} if summary is None else summary_document(summary)
        console.document(document | {"first_passes": [tally_document(tally) for tally in first_only]})
        for line in lines:
            console.note(line)
        return summary is None or is_complete(summary)
    if summary is not None:
        console.show(first_screen(summary))
        console.say()
    if first_only:
        console.show(tally_blocks(first_only))
        console.say()
    for line in lines:
        console.prose(line)
        console.say()
    has_replies = any(found.has_replies for _, found in read)
    for purpose, command in _next_commands(reading, first_only, has_replies=has_replies):
        console.say(purpose, f"  {shlex.join(['refusal-index', *command])}")
    return summary is None or is_complete(summary)


NOT_OF_FORCE = ("--forced", "--variants", "--name", "--dataset")
"""Options of a reading that ``force`` does not take, or in another sense."""


def _next_commands(
    reading: FilesToRead, tallied: Sequence[Tally], *, has_replies: bool
) -> Iterator[tuple[str, list[str]]]:
    """Yield what is missing, or what can be done next, with the command for it.

    - `tallied`: the counts of first passes without a forced pass.
    - `has_replies`: whether a file holds what a model wrote.
    """
    from refusal_index.runs.settings import DEFAULT_GRADER

    files = [*map(str, reading.files)]
    read = [*files, *reading.arguments()]
    if any(tally.gradable for tally in tallied) and reading.options.grader is None:
        yield "To compare answers without a grade with the gold answers:", ["score", *read, "--grader", "exact"]
        yield "To have a model grade them:", ["score", *read, "--grader", DEFAULT_GRADER]
    if any(tally.to_force for tally in tallied):
        for file in files:
            asking = ["force", file, "--model", "PROVIDER/NAME", *reading.arguments(*NOT_OF_FORCE)]
            yield "RI needs a forced answer to every refused question. To ask for them:", asking
    elif any(not tally.refused for tally in tallied) and has_replies and reading.options.refusal is None:
        yield "To read replies that decline as refusals:", ["score", *read, "--refusal", "wording"]
    yield "For all metrics and a report, write an outcome table:", ["import", *read, "--out", "outcomes.parquet"]
