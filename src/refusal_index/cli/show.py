"""Results on the terminal: one row a variant, then what must be said beside the numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refusal_index.outcomes.summary import Summary, VariantSummary
from refusal_index.stats import MetricEstimate

COLUMNS = {
    "correct_rate": "correct",
    "refusal_rate": "refused",
    "correct_given_attempted": "C/A",
    "f_score": "F",
    "weighted_score": "weighted",
    "error_rate": "error",
}
UNDEFINED = "-"
WIDTH = 160  # where the output is no terminal: no line of the table is to be folded


def harmless(text: str) -> str:
    """Return `text` with control and direction characters shown as escapes, so that a terminal does not obey them.

    Examples
    --------
    >>> harmless("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} else character
        for character in text
    )


def print_summary(summary: Summary) -> None:
    """Print the table of all variants and their warnings."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(_table(summary))
    for variant in summary.variants:
        for warning in variant.warnings:
            console.print(Text(f"\n{_title(summary, variant)}: {harmless(warning.message)}"))


def print_missing(missing: Sequence[tuple[str, str, str]], shown: int = 5) -> None:
    """Name the questions that could not be finished, as (variant, question id, error)."""
    if not missing:
        return
    typer.echo(f"\n{len(missing)} not finished; the same command asks them again:")
    for variant, question_id, error in missing[:shown]:
        typer.echo(f"  {variant} {harmless(question_id)}: {harmless(error)[:200]}")
    if len(missing) > shown:
        typer.echo(f"  and {len(missing) - shown} more, in outcomes.parquet")


def print_places(folder: Path, names: Iterable[str]) -> None:
    """Say where the results lie."""
    typer.echo(f"\n{folder}: {', '.join(names)}")


def _table(summary: Summary) -> Table:
    level = f"{summary.confidence_level * 100:g} %"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(_heading(summary), no_wrap=True)
    for name in ("n", *COLUMNS.values(), "RI", f"{level} interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for name in ("unscored", "forced refused"):
        table.add_column(name, justify="right", no_wrap=True)
    for variant in summary.variants:
        table.add_row(*(Text(cell) for cell in _row(summary, variant)))
    return table


def _row(summary: Summary, variant: VariantSummary) -> Iterable[str]:
    index = variant.metric("refusal_index")
    yield _title(summary, variant)
    yield f"{variant.table.n:,}"
    yield from (_number(variant.metric(name)) for name in COLUMNS)
    yield _number(index)
    yield UNDEFINED if index.low is None else f"[{index.low:.3f}, {index.high:.3f}]"
    yield index.status
    yield f"{variant.completeness.unscored:,}"
    forced = variant.forced_refusals
    yield UNDEFINED if forced.share is None else f"{forced.refused:,} ({forced.share:.1%})"


def _number(estimate: MetricEstimate) -> str:
    return UNDEFINED if estimate.estimate is None else f"{estimate.estimate:.3f}"


def _heading(summary: Summary) -> str:
    return "variant" if _shared_source(summary) else "model, dataset, variant"


def _title(summary: Summary, variant: VariantSummary) -> str:
    parts = [variant.variant] if _shared_source(summary) else [variant.model, variant.dataset, variant.variant]
    return harmless(", ".join(part for part in parts if part) or "all")


def _shared_source(summary: Summary) -> bool:
    return len({(variant.model, variant.dataset) for variant in summary.variants}) <= 1
