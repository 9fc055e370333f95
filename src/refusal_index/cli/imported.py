"""Results of other tools: how ``import``, ``score`` and ``force`` read them, and what ``score`` prints about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from refusal_index.cli import console

if TYPE_CHECKING:
    from refusal_index.findings.tallies import ScoredFiles
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


def show_scored(reading: FilesToRead, scored: ScoredFiles, *, as_json: bool) -> bool:
    """Print the results of files: RI of both passes, or the rates of the first pass and what is missing.

    Returns whether the results of both passes are complete.
    """
    from refusal_index.findings.summary import is_complete
    from refusal_index.findings.tallies import tally_document
    from refusal_index.render.imported import reading_lines
    from refusal_index.render.summary import first_screen, summary_document, tally_blocks

    summary = None if scored.run is None else scored.run.summary
    is_complete_ = summary is None or is_complete(summary)
    lines = list(reading_lines(scored.read))
    if as_json:
        document = {} if summary is None else summary_document(summary)
        firsts = {"first_passes": [tally_document(tally) for tally in scored.first_passes]} if scored.read else {}
        console.document(document | firsts)
        console.note(*lines)
        return is_complete_
    if summary is not None:
        console.show(first_screen(summary))
        console.say()
    if scored.first_passes:
        console.show(tally_blocks(scored.first_passes))
        console.say()
    for line in lines:
        console.prose(line)
        console.say()
    for purpose, command in _next_commands(reading, scored) if scored.read else ():
        console.say(purpose, f"  {shlex.join(['refusal-index', *command])}")
    return is_complete_


NOT_OF_FORCE = ("--forced", "--variants", "--name", "--dataset")
"""Options of a reading that ``force`` does not take, or in another sense."""


def _next_commands(reading: FilesToRead, scored: ScoredFiles) -> Iterator[tuple[str, list[str]]]:
    """Yield what is missing, or what can be done next, with the command for it."""
    from refusal_index.runs.settings import DEFAULT_GRADER

    tallied = scored.first_passes
    has_replies = any(found.has_replies for _, found in scored.read)
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
