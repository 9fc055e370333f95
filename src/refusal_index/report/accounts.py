"""The tables of a run without pictures: what is missing and why, what it took, what repeated draws show."""

from __future__ import annotations

from dataclasses import dataclass

from refusal_index.outcomes.draws import DrawsSummary
from refusal_index.outcomes.summary import Usage, VariantSummary
from refusal_index.report.runs import ReportRun
from refusal_index.report.text import number, percent
from refusal_index.stats import Estimate


@dataclass(frozen=True)
class CostRow:
    """What a variant took, as text."""

    name: str
    requests: str
    tokens_in: str
    tokens_out: str
    dollars: str


def cost_rows(run: ReportRun) -> tuple[CostRow, ...]:
    """List what every variant took, and all of them together; nothing where it is not known."""
    known = [(n, v.usage) for n, v in zip(run.names, run.variants, strict=True) if v.usage is not None]
    rows = [_cost_row(name, usage) for name, usage in known]
    if len(known) > 1:
        rows.append(_cost_row("in all", Usage.total(usage for _, usage in known)))
    return tuple(rows)


def _cost_row(name: str, usage: Usage) -> CostRow:
    cost = "not known" if usage.cost is None else f"${usage.cost:,.2f}"
    if usage.cost is not None and usage.unpriced_tokens:
        cost += " without graders"
    return CostRow(name, f"{usage.requests:,}", f"{usage.input_tokens:,}", f"{usage.output_tokens:,}", cost)


@dataclass(frozen=True)
class CompletenessRow:
    """How much of a variant could be scored, as text."""

    name: str
    asked: str
    scored: str
    unscored: str
    reasons: str
    forced: str


def completeness_rows(run: ReportRun) -> tuple[CompletenessRow, ...]:
    """List what is missing of every variant and why, and how often the forced pass refused."""
    return tuple(_completeness_row(name, v) for name, v in zip(run.names, run.variants, strict=True))


def _completeness_row(name: str, variant: VariantSummary) -> CompletenessRow:
    found, forced = variant.completeness, variant.forced_refusals
    share = f" ({percent(found.missing_share, 1)})" if found.unscored else ""
    again = (
        "none asked" if forced.share is None else f"{forced.refused:,} of {forced.asked:,} ({percent(forced.share, 1)})"
    )
    reasons = ", ".join(f"{reason} {rows:,}" for reason, rows in found.reasons.items())
    return CompletenessRow(name, f"{found.asked:,}", f"{found.scored:,}", f"{found.unscored:,}{share}", reasons, again)


@dataclass(frozen=True)
class DrawsRow:
    """What repeated draws of a variant show, as text."""

    name: str
    questions: str
    draws: str
    corrected: Estimate
    single: str
    refusals: str
    errors: str
    spearman: Estimate
    auroc: Estimate


def draws_rows(run: ReportRun) -> tuple[DrawsRow, ...]:
    """List what repeated draws show; nothing where no question was drawn twice."""
    found = [(name, variant.draws) for name, variant in zip(run.names, run.variants, strict=True)]
    return tuple(_draws_row(name, draws) for name, draws in found if draws is not None)


def _draws_row(name: str, draws: DrawsSummary) -> DrawsRow:
    return DrawsRow(
        name,
        f"{draws.questions:,}",
        f"{draws.draws:,}",
        draws.noise_corrected,
        number(draws.uncorrected),
        number(draws.refusal_reliability),
        number(draws.error_reliability),
        draws.mid_rank_spearman,
        draws.p_answering_auroc,
    )
