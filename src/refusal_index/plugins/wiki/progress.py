"""What a build shows on the terminal: a progress bar, then what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refusal_index.plugins.wiki.frozen import BuildPaths, Usage
from refusal_index.plugins.wiki.verdicts import Tried
from refusal_index.render.blocks import escape


def build_lines(record: Mapping[str, Any], paths: BuildPaths, wanted: int) -> Iterator[str]:
    """Yield what came of a build: questions, rejections by reason, tokens, and where it lies."""
    counts, file = record["counts"], record["file"]
    yield f"{file['questions']:,} questions out of {counts['sections_tried']:,} sections tried"
    rejected = {**counts["rejected"], **({"good, not needed": n} if (n := counts["not_needed"]) else {})}
    yield from (f"  {reason:<20} {count:>7,}" for reason, count in rejected.items())
    for role, used in record["usage"].items():
        tokens = f"{used['input_tokens']:,} tokens in, {used['output_tokens']:,} out"
        yield f"{role}: {used['requests']:,} requests, {tokens}"
    if file["questions"] < wanted:
        yield f"the pages ran out: {wanted:,} questions were wanted; give more pages, or lower --shortest"
    yield f"{paths.questions}: frozen, sha256 {file['sha256']}; {paths.record.name} says how"


class BuildBar:
    """Counts questions, sections and tokens while a build goes on."""

    def __init__(self, progress: Progress, wanted: int) -> None:
        self._progress, self._wanted = progress, wanted
        self._task = progress.add_task("", total=wanted, spent="")
        self._good = self._tried = 0
        self._usage = Usage()

    def noted(self, note: str) -> None:
        """Say what must be said."""
        self._progress.console.print(escape(note), markup=False, highlight=False, soft_wrap=True)

    def replied(self, usage: Usage) -> None:
        """Count the tokens of one reply."""
        self._usage += usage
        self._update()

    def tried(self, one: Tried) -> None:
        """Count one section."""
        self._tried += 1
        self._good += one.reason is None
        self._update()

    def underway(self, note: str) -> None:
        """Show how requests stand that are in flight."""
        self._progress.update(self._task, note=escape(note))

    def _update(self) -> None:
        used = self._usage
        spent = f"{self._tried:,} sections, {used.input_tokens:,} tokens in, {used.output_tokens:,} out"
        self._progress.update(self._task, completed=min(self._good, self._wanted), spent=spent)


@contextmanager
def build_bar(console: Console, wanted: int) -> Iterator[BuildBar]:
    """Show a progress bar of a build while the block runs."""
    columns = (
        TextColumn("questions"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.fields[spent]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        yield BuildBar(progress, wanted)
