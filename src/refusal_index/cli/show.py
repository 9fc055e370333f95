"""Results on the terminal: one row a variant, then what must be said beside the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refusal_index.cli.harmless import harmless
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
TABLE_WIDTH = 1000  # more than any table needs: a narrow terminal may fold its lines, but no cell is cut
PROSE_WIDTH = 100


def print_summary(summary: Summary) -> None:
    """Print the table of all variants and their warnings."""
    Console(highlight=False, width=TABLE_WIDTH).print(_table(summary))
    prose = Console(highlight=False)
    prose = prose if prose.is_terminal else Console(highlight=False, width=PROSE_WIDTH)
    for variant in summary.variants:
        for message in _remarks(variant):
            prose.print(Text(f"\n{_title(summary, variant)}: {harmless(message)}"))


def print_usage(summary: Summary) -> None:
    """Print what all variants took together, where it is known."""
    used = [variant.usage for variant in summary.variants if variant.usage is not None]
    if not used:
        return
    requests, read = sum(one.requests for one in used), sum(one.input_tokens for one in used)
    written, costs = sum(one.output_tokens for one in used), [one.cost for one in used if one.cost is not None]
    cost = f", ${sum(costs):.2f}" if costs else ""
    typer.echo(f"\nanswered in all: {requests:,} requests, {read:,} tokens in, {written:,} out{cost}")


def print_missing(missing: Sequence[tuple[str, str, str]], shown: int = 5) -> None:
    """Name the questions that could not be finished, as (variant, question id, error)."""
    if not missing:
        return
    typer.echo(f"\n{len(missing):,} not finished; the run's own command asks them again:")
    for variant, question_id, error in missing[:shown]:
        typer.echo(f"  {harmless(variant)} {harmless(question_id)}: {harmless(error)[:200]}")
    if len(missing) > shown:
        typer.echo(f"  and {len(missing) - shown:,} more, in outcomes.parquet")


def print_places(folder: Path, names: Iterable[str]) -> None:
    """Say where the results lie."""
    typer.echo(f"\n{harmless(str(folder))}: {', '.join(names)}")


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


def _remarks(variant: VariantSummary) -> Iterable[str]:
    """Yield what must be said beside a variant's numbers: that some are missing, however few, comes before the rest."""
    complete = variant.completeness
    if complete.unscored and not any(warning.code == "incomplete" for warning in variant.warnings):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in complete.reasons.items())
        yield f"{complete.unscored:,} of {complete.asked:,} questions could not be scored ({reasons})."
    for warning in variant.warnings:
        yield warning.message


def _row(summary: Summary, variant: VariantSummary) -> Iterable[str]:
    index = variant.metric("refusal_index")
    yield _title(summary, variant)
    yield f"{variant.table.n:,}"
    yield from (_number(variant.metric(name)) for name in COLUMNS)
    yield _number(index)
    yield UNDEFINED if index.low is None else f"[{index.low:.3f}, {index.high:.3f}]"
    yield index.status
    missing = variant.completeness
    yield f"{missing.unscored:,} ({missing.missing_share:.1%})" if missing.unscored else "0"
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
