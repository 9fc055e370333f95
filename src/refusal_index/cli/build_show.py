"""A build on the terminal: its progress, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refusal_index.datasets.precise_wiki_build import BuildPaths, Tried, Usage
from refusal_index.outcomes.presentation import escape as harmless


def show_record(record: Mapping[str, Any], paths: BuildPaths, wanted: int) -> None:
    """Print what came of a build: questions, rejections by reason, tokens, and where it lies."""
    counts, file = record["counts"], record["file"]
    typer.echo(f"{file['questions']:,} questions out of {counts['sections_tried']:,} sections tried")
    for reason, count in counts["rejected"].items():
        typer.echo(f"  {reason:<20} {count:>7,}")
    if counts["not_needed"]:
        typer.echo(f"  {'good, not needed':<20} {counts['not_needed']:>7,}")
    for role, used in record["usage"].items():
        typer.echo(
            f"{role}: {used['requests']:,} requests, {used['input_tokens']:,} tokens in, {used['output_tokens']:,} out"
        )
    if file["questions"] < wanted:
        typer.echo(f"the pages ran out: {wanted:,} questions were wanted; give more pages, or lower --shortest")
    typer.echo(f"{harmless(str(paths.questions))}: frozen, sha256 {file['sha256']}; {paths.record.name} says how")


class BuildBar:
    """Counts questions, sections and tokens while a build goes on."""

    def __init__(self, progress: Progress, wanted: int) -> None:
        self._progress, self._wanted = progress, wanted
        self._task = progress.add_task("", total=wanted, spent="")
        self._good = self._tried = 0
        self._usage = Usage()

    def replied(self, usage: Usage) -> None:
        """Count the tokens of one reply."""
        self._usage += usage
        self._update()

    def tried(self, one: Tried) -> None:
        """Count one section."""
        self._tried += 1
        self._good += one.reason is None
        self._update()

    def _update(self) -> None:
        used = self._usage
        spent = f"{self._tried:,} sections, {used.input_tokens:,} tokens in, {used.output_tokens:,} out"
        self._progress.update(self._task, completed=min(self._good, self._wanted), spent=spent)


@contextmanager
def progress_bar(wanted: int) -> Iterator[BuildBar]:
    """Show a progress bar while the block runs."""
    columns = (
        TextColumn("questions"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.fields[spent]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        yield BuildBar(progress, wanted)
