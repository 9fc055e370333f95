"""The tables of a run, and numbers and text as a page shows them.

In a table with a picture in every cell, every number that has an interval carries the places of its picture on a common
axis.

Nothing of a reply, a question or a name is obeyed: Jinja escapes what HTML would, and here what a browser would follow
without showing it, control and direction characters, is made visible. Every such text stands in an element of its own
direction, so that right-to-left text cannot reorder its neighbours.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

from refusal_index.findings.draws import DrawsSummary
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import Summary, Usage, VariantSummary
from refusal_index.render.blocks import OBEYED
from refusal_index.render.report.runs import ReportRun
from refusal_index.stats import Estimate

MINUS, NOTHING = "\u2212", "\u2013"
"""A true minus sign, and the dash that stands for what is undefined."""

KEPT = frozenset("\n\t\u200c\u200d")
"""Of these, line breaks and tabs, and the two joiners that some scripts and emoji cannot be written without."""


def visible(text: object) -> Markup:
    r"""Return text as HTML in which control and direction characters can be seen, isolated from its surroundings.

    >>> print(visible("<b>\x1b"))
    <bdi dir="auto">&lt;b&gt;<span class="control" title="ESCAPE">U+001B</span></bdi>
    """
    parts = (_seen(character) if _is_obeyed(character) else escape(character) for character in _runs(str(text)))
    return Markup('<bdi dir="auto">{}</bdi>').format(Markup("").join(parts))


def plain(text: object) -> str:
    r"""Return text for places that hold no elements (titles, alternative texts, SVG), line breaks taken out.

    >>> plain("a\u202eb")
    'a⟨U+202E⟩b'
    """
    one_line = str(text).replace("\n", " ").replace("\t", " ")
    return "".join(f"⟨{_code(c)}⟩" if _is_obeyed(c) else c for c in one_line)


_CANDIDATE = re.compile(r"[^\x20-\x7e\n\t]")


def _runs(text: str) -> list[str]:
    """Split text into single characters that may be obeyed, and everything between them."""
    found, start = [], 0
    for match in _CANDIDATE.finditer(text):
        if _is_obeyed(match[0]):
            found += [text[start : match.start()], match[0]]
            start = match.end()
    return [*found, text[start:]]


def _is_obeyed(character: str) -> bool:
    return len(character) == 1 and unicodedata.category(character) in OBEYED and character not in KEPT


def _seen(character: str) -> Markup:
    # Control codes have aliases, not names.
    name = unicodedata.name(character, {"\x1b": "ESCAPE"}.get(character, "control character"))
    return Markup('<span class="control" title="{}">{}</span>').format(name, _code(character))


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def number(value: float | None, digits: int = 3) -> str:
    """Show a number with a true minus sign; None, which is undefined, is a dash.

    >>> number(0.2714, 2), number(-0.25) == MINUS + "0.250", number(None) == NOTHING
    ('0.27', True, True)
    """
    if value is None:
        return NOTHING
    shown = f"{value:.{digits}f}"
    # A rounded zero has no sign.
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", MINUS)


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Show an interval; nothing where there is none.

    >>> interval(0.2, 0.25), interval(None, None)
    ('[0.200, 0.250]', '')
    """
    return "" if low is None or high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def percent(share: float | None, digits: int = 0) -> str:
    r"""Show a share in per cent, with a space that does not break, and a dash where there is none.

    >>> percent(0.256), percent(0.0271, 1), percent(None) == NOTHING
    ('26\xa0%', '2.7\xa0%', True)
    >>> percent(-1e-17)
    '0\xa0%'
    """
    return NOTHING if share is None else f"{round(100 * share, digits) + 0.0:.{digits}f}\u00a0%"


def count(amount: int, noun: str) -> str:
    """Show a number of things.

    >>> count(1, "question"), count(2000, "question")
    ('1 question', '2,000 questions')
    """
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    >>> axis = Scale(-1.0, 1.0)
    >>> axis.at(0), axis.at(2), axis.length(-0.5, 0.5)
    ('50.00%', '100.00%', '50.00%')
    """

    low: float
    high: float

    def share(self, value: float) -> float:
        """Place of a value, in [0, 1]; what lies outside is drawn at the end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """Place of a value, as SVG takes it."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Place of a value from the top."""
        return f"{100 * (1 - self.share(value)):.2f}%"

    def length(self, start: float, end: float) -> str:
        """Length between two values."""
        return f"{100 * (self.share(end) - self.share(start)):.2f}%"


@dataclass(frozen=True)
class IndexScale(Scale):
    """The axis of the Refusal Index, with the values to be marked on it."""

    ticks: tuple[float, ...] = ()


def index_scale(values: Iterable[float | None]) -> IndexScale:
    """Return an axis from 0 to 1 that reaches below 0 as far as the values do.

    >>> index_scale([0.3, None, -0.08])
    IndexScale(low=-0.25, high=1.0, ticks=(-0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    """
    lowest = min([0.0, *(value for value in values if value is not None)])
    quarters = max(math.floor(lowest * 4), -4)
    return IndexScale(quarters / 4, 1.0, tuple(quarter / 4 for quarter in range(quarters, 5)))


MEANINGS = {
    INDEX: "rank correlation of refusing and being wrong, from one response per question",
    CORRECTED: "RI estimated for the model's probabilities of refusing and of being wrong, from repeated samples of "
    "forced answers",
    "correct_rate": "answered and right, of all questions",
    "refusal_rate": "refused in the first pass, of all questions",
    "correct_given_attempted": "right, of those answered",
    "f_score": "harmonic mean of the two before it",
    "weighted_score": "correct less a penalty for every other answer",
    "hallucination_rate": "answered, of all that was not answered right",
    "omniscience_index": "100 times right less wrong, of all questions",
    "truthfulness_score": "right, refused and wrong by their weights",
    "error_rate": "wrong when every question gets an answer",
}
"""What the metrics mean, in the order of the page."""

DECISIONS = {
    "RI": "from one response per question; refused again counts as wrong, unscored is left out",
    "Corrected RI": "for the model's probabilities, from repeated samples of forced answers",
    "forced for all": "RI with a forced answer to every question, from those sampled repeatedly",
    "whatever is missing": "from the lowest to the highest over all that the unscored may have been",
    "scoring rules": "from the lowest to the highest, whatever is missing or refused again is taken for",
    "refused again is right": "each forced answer that refused counts as right",
    "refused again left out": "each forced answer that refused is left out",
    "within topics": "what is left when topics of different difficulty do not help",
}
"""What may be decided otherwise, and what that means, in the order of the page."""

RULES = {"refused_again_right": "refused again is right", "refused_again_dropped": "refused again left out"}
"""The scoring rules that have a row of their own."""


NOT_KNOWN = Estimate(None, reason="no_forced_grade")
"""In place of a range that would rest on which forced answers were refused again, where nothing says so."""


@dataclass(frozen=True)
class MetricRow:
    """One metric, or the index under one decision, of every variant on one axis."""

    # name, meaning, scale: what it is, and its axis
    name: str
    meaning: str
    scale: Scale
    # One a variant; None where there is nothing to say. A range has ends and no estimate.
    cells: tuple[Estimate | None, ...]
    kind: str = ""  # for the look: ``""``, ``"range"``, ``"rule"`` or ``"other"``
    digits: int = 3  # that its numbers are shown to


def metric_rows(run: ReportRun) -> tuple[MetricRow, ...]:
    """Put the metrics of all variants side by side."""
    has_corrected = any(variant.corrected is not None for variant in run.variants)
    shown = [name for name in MEANINGS if name != CORRECTED or has_corrected]
    return tuple(_metric_row(run, name) for name in shown)


def _metric_row(run: ReportRun, name: str) -> MetricRow:
    cells = tuple(variant.metric(name) for variant in run.variants)
    title = METRICS[name].label
    meaning = MEANINGS[name]
    if name == "weighted_score":
        meaning = f"correct less {run.summary.penalty:g} for every answer given"
    if name == "truthfulness_score":
        meaning = "{:g} for right, {:g} for refused, less {:g} for wrong".format(*run.summary.truthfulness_weights)
    digits = 1 if name == "omniscience_index" else 3
    return MetricRow(title, meaning, _scale(name, cells, run.summary), cells, digits=digits)


def _scale(name: str, cells: tuple[Estimate, ...], summary: Summary) -> Scale:
    right, refused, wrong = summary.truthfulness_weights
    if name in (INDEX, CORRECTED):
        return index_scale(value for cell in cells for value in (cell.estimate, cell.low, cell.high))
    own = {
        "weighted_score": Scale(-summary.penalty, 1.0),
        "omniscience_index": Scale(-100.0, 100.0),
        "truthfulness_score": Scale(-wrong, max(right, refused)),
    }
    return own.get(name, Scale(0.0, 1.0))


def sensitivity_rows(run: ReportRun) -> tuple[MetricRow, ...]:
    """List what other decisions, and repeated draws, would make of every variant's index; all rows on one axis."""
    found = [dict(_decisions(variant)) for variant in run.variants]
    known = [name for name in DECISIONS if any(name in decisions for decisions in found)]
    values = (v for d in found for cell in d.values() for v in (cell.estimate, cell.low, cell.high))
    scale = index_scale(list(values))
    return tuple(
        MetricRow(name, DECISIONS[name], scale, tuple(decisions.get(name) for decisions in found), _kind(name))
        for name in known
    )


def _kind(decision: str) -> str:
    if decision in RULES.values():
        return "rule"
    return {"RI": "", "Corrected RI": "", "whatever is missing": "range", "scoring rules": "range"}.get(
        decision, "other"
    )


def _decisions(variant: VariantSummary) -> Iterator[tuple[str, Estimate]]:
    yield METRICS[INDEX].label, variant.index
    if variant.corrected is not None:
        yield METRICS[CORRECTED].label, variant.corrected
    if variant.draws is not None:
        yield "forced for all", Estimate(variant.draws.forced_for_all)
    missing = variant.missing
    if missing is not None:
        yield "whatever is missing", Estimate(None, missing.low, missing.high, reason=missing.reason)
    ranges = variant.sensitivity.range_of(INDEX)
    known = variant.sensitivity.knows_refused_again
    yield "scoring rules", Estimate(None, ranges.low, ranges.high, reason=ranges.reason) if known else NOT_KNOWN
    for rule in variant.sensitivity.rules:
        if rule.rule in RULES and variant.forced_refusals.refused:
            yield RULES[rule.rule], Estimate(rule.estimate, reason=rule.reason)
    if variant.sensitivity.topics is not None:
        yield "within topics", variant.sensitivity.topics.within


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
    single: str
    forced: str
    crossed: str
    index: Estimate
    refusals: str
    errors: str
    spearman: Estimate
    auroc: Estimate


def draws_rows(run: ReportRun) -> tuple[DrawsRow, ...]:
    """List what repeated draws show; nothing where no question was drawn twice."""
    found = [(name, variant, variant.draws) for name, variant in zip(run.names, run.variants, strict=True)]
    return tuple(_draws_row(name, variant, draws) for name, variant, draws in found if draws is not None)


def _draws_row(name: str, variant: VariantSummary, draws: DrawsSummary) -> DrawsRow:
    return DrawsRow(
        name,
        f"{draws.questions:,}",
        f"{draws.draws:,}",
        number(variant.index.estimate),
        number(draws.forced_for_all),
        number(draws.uncorrected),
        draws.corrected_refusal_index,
        number(draws.refusal_reliability),
        number(draws.error_reliability),
        draws.mid_rank_spearman,
        draws.p_answering_auroc,
    )
