"""Progress bars for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from refusal_index.data.run_json import Prices
from refusal_index.errors import escape
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.events import Begun, Event, Finished, Opened, Replied, Underway


class _WithNote(Progress):
    """A progress bar with a line of text below."""

    note = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.note and not self.finished:
            yield Text(self.note, overflow="ellipsis", no_wrap=True)


class ProgressBar:
    """Shows questions, tokens and cost while a run is in progress."""

    def __init__(self, progress: _WithNote, questions: int, prices: Prices) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=questions, spent=self, variant="")
        self._prices = prices
        self._usage = UsageCounter()

    def __call__(self, event: Event) -> None:
        """Update the bar for an event."""
        match event:
            case Opened(finished, note):
                if note is not None:
                    self._progress.console.print(escape(note), markup=False, highlight=False, soft_wrap=True)
                self._progress.start()
                self._progress.advance(self._task, finished)
            case Begun(variant):
                self._progress.update(self._task, variant=escape(variant))
            case Replied(completion):
                self._usage.add(completion)
            case Finished():
                self._progress.advance(self._task)
            case Underway(note, is_notice):
                self._progress.note = escape(note)
                if is_notice:
                    self._progress.console.print(escape(note), markup=False, highlight=False, soft_wrap=True)

    def __str__(self) -> str:
        """Return what the replies so far took; called when the bar is drawn, which is rarer than replies are."""
        if not self._usage.requests:
            return ""
        input_tokens, output_tokens = map(_short, self._usage.tokens)
        cost = self._usage.cost(self._prices)
        return f"{input_tokens} tokens in, {output_tokens} out" + ("" if cost is None else f", ${cost:.2f}")


@contextmanager
def progress_bar(console: Console, questions: int, prices: Prices) -> Iterator[ProgressBar]:
    """Show a progress bar inside the block, once a run is open; `questions` counts all variants."""
    columns = (
        TextColumn("{task.fields[variant]:>8}", markup=False),  # a variant's name may contain markup
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.fields[spent]}"),
    )
    progress = _WithNote(*columns, console=console, refresh_per_second=4)
    try:
        yield ProgressBar(progress, questions, prices)
    finally:
        if progress.live.is_started:
            progress.stop()


@contextmanager
def counting(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar inside the block, which gets a function that advances it by one."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, refresh_per_second=4, transient=True) as progress:
        task = progress.add_task(escape(title), total=total)
        yield lambda: progress.advance(task)


def _short(count: int) -> str:
    """Return a count with at most four digits.

    >>> [_short(count) for count in (999, 1_000, 999_949, 999_950, 2_500_000)]
    ['999', '1.0k', '999.9k', '1.0M', '2.5M']
    """
    # 999,950 is 1.0M, since it would round to 1000.0k
    for size, smallest, letter in ((1_000_000, 999_950, "M"), (1_000, 1_000, "k")):
        if count >= smallest:
            return f"{count / size:.1f}{letter}"
    return str(count)
