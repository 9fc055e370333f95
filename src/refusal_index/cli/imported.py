"""Results of other tools: how ``import``, ``score`` and ``force`` read them, and what ``score`` prints about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from refusal_index.cli import console

if TYPE_CHECKING:
    from refusal_index.data.analysis import Analysis
    from refusal_index.findings.tallies import Tally
    from refusal_index.runs.scoring import FilesToRead


ADDRESS = ("grader_base_url", "grader_api_key_env")
"""Settings for asking a grading model that every command with this model needs."""


def _options_of(reading: FilesToRead, *left_out: str) -> list[str]:
    """Return the options of a reading as words of a command line, except some."""
    options = reading.options
    pairs: dict[str, Any] = {
        "--forced": [reading.forced],
        "--format": [reading.kind],
        "--column": [f"{role}={name}" for role, name in options.columns.items()],
        "--map": [f"{word}={meaning}" for word, meaning in options.words.items()],
        "--encoding": [options.encoding if options.encoding != "utf-8" else None],
        "--variants": [reading.variant],
        **{f"--{name}": [getattr(options, name)] for name in ("rows", "scorer", "refusal", "grader")},
        **{f"--{name}": [getattr(options, name)] for name in ("name", "dataset")},
        **{console.option(name): [value] for name, value in reading.asking.items() if name in ADDRESS},
    }
    values = [(name, value) for name, several in pairs.items() if name not in left_out for value in several]
    return [word for name, value in values if value is not None for word in (name, str(value))]


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
        console.say(purpose)
        console.say(f"  {shlex.join(['refusal-index', *command])}")
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
    read = [*files, *_options_of(reading)]
    if any(tally.gradable for tally in tallied) and reading.options.grader is None:
        yield "To compare answers without a grade with the gold answers:", ["score", *read, "--grader", "exact"]
        yield "To have a model grade them:", ["score", *read, "--grader", DEFAULT_GRADER]
    if any(tally.to_force for tally in tallied):
        for file in files:
            asking = ["force", file, "--model", "PROVIDER/NAME", *_options_of(reading, *NOT_OF_FORCE)]
            yield "RI needs a forced answer to every refused question. To ask for them:", asking
    elif any(not tally.refused for tally in tallied) and has_replies and reading.options.refusal is None:
        yield "To read replies that decline as refusals:", ["score", *read, "--refusal", "wording"]
    yield "For all metrics and a report, write an outcome table:", ["import", *read, "--out", "outcomes.parquet"]
