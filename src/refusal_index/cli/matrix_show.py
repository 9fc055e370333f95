"""The results of a set of runs on the terminal: every variant, the joint index of every run, what is not complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer
from rich.console import Console
from rich.text import Text

from refusal_index.cli.console import TABLE_WIDTH, plain_table
from refusal_index.cli.run_set import CellResult, RunSet
from refusal_index.cli.show import print_places, print_summary, print_usage
from refusal_index.outcomes.presentation import UNDEFINED
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.run_sets import SUMMARY
from refusal_index.outcomes.summary import Summary


def show_set(runs: RunSet, results: Sequence[CellResult], *, as_json: bool) -> None:
    """Print the results of a set."""
    if as_json:
        typer.echo(runs.to_json(results), nl=False)
        return
    together = _together([result.labelled for result in results])
    if together is not None:
        print_summary(together)
        typer.echo()
        _print_indices(results, together.confidence_level)
        print_usage(together)
    unfinished = [result for result in results if not result.is_complete]
    if unfinished:
        typer.echo(
            f"\n{len(unfinished):,} of {len(results):,} runs are not complete; the same command goes on with them:"
        )
    for result in unfinished:
        typer.echo(f"  {harmless(result.prepared.title)}: {harmless(_reason(result))}")
    print_places(runs.path, (SUMMARY, "and a folder for each run"))


def _together(summaries: Sequence[Summary | None]) -> Summary | None:
    """Return one summary of all variants; the joint estimates have a table of their own."""
    known = [summary for summary in summaries if summary is not None]
    if not known:
        return None
    variants = tuple(variant for summary in known for variant in summary.variants)
    return Summary(variants, (), known[0].confidence_level, known[0].penalty)


def _print_indices(results: Sequence[CellResult], level: float) -> None:
    left = ("model", "dataset", "status", "variants")
    table = plain_table(("model", "dataset", "RI, jointly", f"{level * 100:g} % interval", *left[2:]), left=left)
    for result in results:
        cells = (result.prepared.model, result.prepared.dataset, *_index(result))
        table.add_row(*(Text(harmless(cell)) for cell in cells))
    Console(highlight=False, width=TABLE_WIDTH).print(table)


def _index(result: CellResult) -> Iterator[str]:
    index = result.index
    if index is None:
        yield from (UNDEFINED, UNDEFINED, result.status, UNDEFINED)
        return
    yield UNDEFINED if index.estimate is None else f"{index.estimate:.3f}"
    known = index.low is not None and index.high is not None
    yield f"[{index.low:.3f}, {index.high:.3f}]" if known else UNDEFINED
    yield index.status if index.reason is None else f"{index.status} ({index.reason})"
    yield ", ".join(index.variants)


def _reason(result: CellResult) -> str:
    if result.error is not None:
        return result.error
    return "too many questions could not be scored" if result.status == "incomplete" else "not begun"
