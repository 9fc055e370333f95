"""The progress of a run, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refusal_index.engines.inspect.carried import Carried
from refusal_index.outcomes.price import Price
from refusal_index.protocol import Asked


class ProgressBar:
    """Counts questions, tokens and cost while a run goes on."""

    def __init__(self, progress: Progress, questions: int, price: Price | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=questions, spent="", variant="")
        self._price = price
        self._seeds: set[int] = set()
        self._input_tokens = self._output_tokens = 0
        self._cost = 0.0

    def begin(self, variant: str) -> None:
        """Say which variant is running."""
        self._progress.update(self._task, variant=variant)

    def skip(self, questions: int) -> None:
        """Count questions that an earlier run finished."""
        self._progress.advance(self._task, questions)

    def replied(self, carried: Carried, seed: int) -> None:
        """Count the tokens of one reply, once where variants share it; the price is the model's, not the grader's."""
        if seed in self._seeds:
            return
        self._seeds.add(seed)
        self._input_tokens += carried.input_tokens
        self._output_tokens += carried.output_tokens
        if self._price and carried.reply.asked is Asked.MODEL:
            self._cost += self._price.of(carried.input_tokens, carried.output_tokens)
        self._progress.update(self._task, spent=self._spent())

    def finished(self) -> None:
        """Count one question."""
        self._progress.advance(self._task)

    def _spent(self) -> str:
        tokens = f"{_short(self._input_tokens)} tokens in, {_short(self._output_tokens)} out"
        return f"{tokens}, ${self._cost:.2f}" if self._price else tokens


@contextmanager
def progress_bar(console: Console, questions: int, price: Price | None) -> Iterator[ProgressBar]:
    """Show a progress bar on `console` while the block runs; `questions` of all variants and draws."""
    columns = (
        TextColumn("{task.fields[variant]:>8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.fields[spent]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        yield ProgressBar(progress, questions, price)


@contextmanager
def counting(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how far something has come while the block runs, which calls what it is given at every step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, refresh_per_second=4, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


def _short(count: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)
