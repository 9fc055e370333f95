"""Results on the terminal: one row a variant, then what must be said beside the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refusal_index.cli.harmless import harmless
from refusal_index.outcomes.draws import DrawsSummary
from refusal_index.outcomes.pooled import PooledSummary
from refusal_index.outcomes.summary import Summary, Usage, VariantSummary
from refusal_index.stats import Estimate

COLUMNS = {
    "correct_rate": "correct",
    "refusal_rate": "refused",
    "correct_given_attempted": "C/A",
    "f_score": "F",
    "weighted_score": "weighted",
    "error_rate": "error",
}
UNDEFINED = "-"
MIX_SIGN = "+"
TABLE_WIDTH = 1000  # more than any table needs: a narrow terminal may fold its lines, but no cell is cut
PROSE_WIDTH = 100


def prose(text: str) -> None:
    """Print running text, folded where nothing else says how wide."""
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=PROSE_WIDTH)
    console.print(Text(text))


def print_summary(summary: Summary) -> None:
    """Print the table of all variants, what they say together and what repeated draws add, and the warnings."""
    Console(highlight=False, width=TABLE_WIDTH).print(_table(summary))
    for pooled in summary.pooled:
        prose(f"\n{_pooled(summary, pooled)}")
    if any(variant.draws for variant in summary.variants):
        typer.echo()
        Console(highlight=False, width=TABLE_WIDTH).print(_draws_table(summary))
    for variant in summary.variants:
        for message in _remarks(variant):
            prose(f"\n{_title(summary, variant)}: {harmless(message)}")


def print_usage(summary: Summary) -> None:
    """Print what all variants took together, where it is known."""
    used = [variant.usage for variant in summary.variants if variant.usage is not None]
    if not used:
        return
    total = Usage.total(used)
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    cost = "" if total.cost is None else f", ${total.cost:.2f}"
    if cost and total.unpriced_tokens:
        cost += f" without the {total.unpriced_tokens:,} tokens of graders (--grader-price)"
    if not cost and any(one.cost is not None for one in used):
        cost = ", at a cost that is not known of all"
    typer.echo(f"\nanswered in all: {total.requests:,} requests, {tokens}{cost}")


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


def plain_table(columns: Sequence[str], left: Sequence[str]) -> Table:
    """Make an empty table without lines, its columns to the right but for those named in `left`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(Text(name), justify="left" if name in left else "right", no_wrap=True)
    return table


def _table(summary: Summary) -> Table:
    heading, level = _heading(summary), f"{summary.confidence_level * 100:g} %"
    numbers = ("n", *COLUMNS.values(), "RI", f"{level} interval", "scoring rules")
    table = plain_table((heading, *numbers, "status", "unscored", "forced refused"), left=(heading, "status"))
    for variant in summary.variants:
        table.add_row(*(Text(cell) for cell in _row(summary, variant)))
    return table


def _remarks(variant: VariantSummary) -> Iterable[str]:
    """Yield what must be said beside a variant's numbers: that some are missing, however few, comes before the rest."""
    complete = variant.completeness
    if complete.unscored and not any(warning.code == "incomplete" for warning in variant.warnings):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in complete.reasons.items())
        yield f"{complete.unscored:,} of {complete.asked:,} questions could not be scored ({reasons})."
    yield from _within_sources(variant)
    for warning in variant.warnings:
        yield warning.message


def _within_sources(variant: VariantSummary) -> Iterable[str]:
    """Say the index within each source of a mix: part of the mix's own is telling the sources apart."""
    topics = variant.sensitivity.topics
    if topics is None or MIX_SIGN not in (variant.dataset or ""):
        return
    each = ", ".join(f"{one.topic} {_in_words(one.refusal_index)}" for one in topics.each)
    yield (
        f"within the sources RI is {_in_words(topics.within)} ({each}); what the mix shows beyond that is telling its "
        "sources apart."
    )


def _row(summary: Summary, variant: VariantSummary) -> Iterable[str]:
    index = variant.metric("refusal_index")
    yield _title(summary, variant)
    yield f"{variant.table.n:,}"
    yield from (_number(variant.metric(name)) for name in COLUMNS)
    yield _number(index)
    yield _interval(index)
    rules = variant.sensitivity.range_of("refusal_index")
    yield UNDEFINED if rules.low is None else f"{rules.low:.3f} to {rules.high:.3f}"
    yield index.status
    missing = variant.completeness
    yield f"{missing.unscored:,} ({missing.missing_share:.1%})" if missing.unscored else "0"
    forced = variant.forced_refusals
    yield UNDEFINED if forced.share is None else f"{forced.refused:,} ({forced.share:.1%})"


def _pooled(summary: Summary, pooled: PooledSummary) -> str:
    """Say the joint estimate, whether the variants agree, and whether the copula behind the index holds."""
    whose = (
        "" if _shared_source(summary) else harmless(", ".join(p for p in (pooled.model, pooled.dataset) if p)) + ", "
    )
    index = pooled.index
    if index.estimate is None:
        return f"{whose}all variants jointly: RI undefined ({index.reason})."
    interval = f" {_interval(index)}" if index.low is not None else ""
    text = f"{whose}all variants jointly: RI {index.estimate:.3f}{interval}"
    if pooled.left_out:
        text += f", without {', '.join(map(harmless, pooled.left_out))}"
    gaussian = pooled.gaussian
    if gaussian.pvalue is not None and gaussian.pvalue >= 1 - summary.confidence_level:
        text += f". No sign against one Gaussian copula behind all variants (p = {gaussian.pvalue:.2g})"
    elif gaussian.pvalue is not None:
        left = [c.family.replace("_", " ") for c in pooled.copulas if (c.pvalue or 0) >= 1 - summary.confidence_level]
        text += (
            f". One Gaussian copula behind all variants is refuted (p = {gaussian.pvalue:.2g}): either the "
            "prompts change how refusals follow errors, or the index depends on the refusal rate; "
            f"{'not refuted: ' + ', '.join(left) if left else 'no other of seven copulas fits either'}"
        )
    return text + "."


def _draws_table(summary: Summary) -> Table:
    level = f"{summary.confidence_level * 100:g} %"
    columns = ("repeated draws", "questions", "draws", "RI corrected", f"{level} interval", "single draws")
    further = ("refusals repeat", "errors repeat", "Spearman of frequencies", "AUROC of P(Answering)")
    table = plain_table((*columns, *further), left=("repeated draws",))
    for variant in summary.variants:
        if variant.draws is not None:
            table.add_row(_title(summary, variant), *_draws_row(variant.draws))
    return table


def _draws_row(draws: DrawsSummary) -> Iterable[str]:
    yield f"{draws.questions:,}"
    yield f"{draws.draws:,}"
    yield _number(draws.noise_corrected)
    yield _interval(draws.noise_corrected)
    for value in (draws.uncorrected, draws.refusal_reliability, draws.error_reliability):
        yield UNDEFINED if value is None else f"{value:.3f}"
    yield f"{_number(draws.mid_rank_spearman)} {_interval(draws.mid_rank_spearman)}"
    yield f"{_number(draws.p_answering_auroc)} {_interval(draws.p_answering_auroc)}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return UNDEFINED
    return f"[{estimate.low:.3f}, {estimate.high:.3f}]"


def _number(estimate: Estimate) -> str:
    return UNDEFINED if estimate.estimate is None else f"{estimate.estimate:.3f}"


def _in_words(estimate: Estimate) -> str:
    return "undefined" if estimate.estimate is None else f"{_number(estimate)} {_interval(estimate)}"


def _heading(summary: Summary) -> str:
    return "variant" if _shared_source(summary) else "model, dataset, variant"


def _title(summary: Summary, variant: VariantSummary) -> str:
    parts = [variant.variant] if _shared_source(summary) else [variant.model, variant.dataset, variant.variant]
    return harmless(", ".join(part for part in parts if part) or "all")


def _shared_source(summary: Summary) -> bool:
    return len({(variant.model, variant.dataset) for variant in summary.variants}) <= 1
