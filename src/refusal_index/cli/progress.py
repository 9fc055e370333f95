"""The progress of a run, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from refusal_index.engines.inspect.carried import Carried
from refusal_index.outcomes.price import Prices, Tokens
from refusal_index.protocol import Asked


class ProgressBar:
    """Counts questions, tokens and cost while a run goes on."""

    def __init__(self, progress: Progress, questions: int, prices: Prices) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=questions, spent="", variant="")
        self._prices = prices
        self._seeds: set[int] = set()
        self._own: Tokens = (0, 0)
        self._graders: Tokens = (0, 0)

    def begin(self, variant: str) -> None:
        """Say which variant is running."""
        self._progress.update(self._task, variant=variant)

    def skip(self, questions: int) -> None:
        """Count questions that an earlier run finished."""
        self._progress.advance(self._task, questions)

    def replied(self, carried: Carried, seed: int) -> None:
        """Count the tokens of one reply, once where variants share it."""
        if seed in self._seeds:
            return
        self._seeds.add(seed)
        if carried.reply.asked is Asked.MODEL:
            self._own = _more(self._own, carried)
        else:
            self._graders = _more(self._graders, carried)
        self._progress.update(self._task, spent=self._spent())

    def finished(self) -> None:
        """Count one question."""
        self._progress.advance(self._task)

    def _spent(self) -> str:
        read, written = (_short(own + graders) for own, graders in zip(self._own, self._graders, strict=True))
        cost = self._prices.cost(self._own, self._graders)
        return f"{read} tokens in, {written} out" + ("" if cost is None else f", ${cost:.2f}")


def _more(tokens: Tokens, carried: Carried) -> Tokens:
    return tokens[0] + carried.input_tokens, tokens[1] + carried.output_tokens


@contextmanager
def progress_bar(console: Console, questions: int, prices: Prices) -> Iterator[ProgressBar]:
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
        yield ProgressBar(progress, questions, prices)


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
