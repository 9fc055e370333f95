"""The results of a run on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refusal_index.cli import console
from refusal_index.outcomes.presentation import escape
from refusal_index.outcomes.presentation.regrading import changes_blocks
from refusal_index.outcomes.presentation.summary import summary_blocks, usage_text
from refusal_index.outcomes.regrading import GradeChanges
from refusal_index.outcomes.summary import Summary, summary_document


def print_summary(summary: Summary) -> None:
    """Print the table of all variants, what they say together and what repeated draws add, and the warnings."""
    console.show(summary_blocks(summary))


def print_changes(changes: GradeChanges, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
    """Print how the grades of two graders go together, and which cells changed for it."""
    console.show(changes_blocks(changes, before, now))


def show_tables(summary: Summary, *, as_json: bool) -> None:
    """Print the results of outcome tables."""
    if as_json:
        console.document(summary_document(summary))
    else:
        print_summary(summary)


def print_usage(summary: Summary) -> None:
    """Print what all variants took together, where it is known."""
    text = usage_text(summary)
    if text is not None:
        console.say()
        console.say(text)


def print_missing(missing: Sequence[tuple[str, str, str]], shown: int = 5) -> None:
    """Name the questions that could not be finished, as (variant, question id, error)."""
    if not missing:
        return
    console.say()
    console.say(f"{len(missing):,} not finished; the run's own command asks them again:")
    for variant, question_id, error in missing[:shown]:
        console.say(f"  {variant} {question_id}: {escape(error)[:200]}")
    if len(missing) > shown:
        console.say(f"  and {len(missing) - shown:,} more, in outcomes.parquet")


def print_places(folder: Path, names: Iterable[str]) -> None:
    """Say where the results lie."""
    console.say()
    console.say(f"{folder}: {', '.join(names)}")


def prose(text: str) -> None:
    """Print paragraphs that stand on lines of their own."""
    for line in text.split("\n"):
        console.prose(line)
