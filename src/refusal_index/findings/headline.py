"""The first screen of a run: how strongly refusals are correlated with errors, and how certain that is.

Wording never depends on the estimate alone: .36 [.33, .39] and .36 [.02, .70] do not support the same claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.data.run_json import Stop
from refusal_index.findings.conclusions import goal, indices, missing_answers, stopped, summary_caveats
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import Summary, VariantSummary
from refusal_index.stats import Estimate, latent_auroc, rho_from_refusal_index

STEPS = {"very_weakly": 0.2, "weakly": 0.4, "moderately": 0.6, "strongly": 0.8, "very_strongly": 1.01}
"""Words for the strength of the correlation, each with the index at which it ends. A step is about as wide as a 95%
interval from 1,000 questions, so finer steps could not be distinguished. At the boundaries, with half of the answers
wrong, a wrong question ranks above a right one in .59, .69, .79 and .89 of the pairs."""

NO_SIGN_BELOW = STEPS["very_weakly"]
"""An interval that contains 0 rules out more than a very weak correlation if its upper end is below this. A wider
interval shows neither a correlation nor its absence."""

MAX_STEPS = 1
"""Largest distance in steps between the ends of an interval for a definite verdict.

An interval of any width may straddle the border of two neighbouring steps.
"""


HEADLINE_CODES = frozenset({"unscored_outcomes", "sampling"})
"""Caveats that are shown beside RI even if they are not serious."""

PUBLISHED_CODES = frozenset({"published_place", "published_apart", "published_not_comparable"})
"""Statements about published models that are shown beside RI."""

MEANINGLESS = frozenset({"boundary", "next_to_no_knowledge"})
"""Caveats under which no conclusion may be drawn from the number."""


@dataclass(frozen=True)
class Headline:
    """The first screen of a run: the result, the rates of one prompt, its certainty, comparisons and caveats."""

    index: Estimate  # RI over all variants
    verdict: Statement  # how strongly refusals are correlated with errors
    example: VariantSummary  # the variant whose cells and rates are shown: the one with the median refusal rate
    refused: Statement | None  # what it refused of unanswerable and answerable questions; None if that is unknown
    observed: Statement | None  # what it refused of what it gets wrong and right; None if a rate is undefined
    pairs: Statement | None  # what that means for two questions; None if nothing
    missing_answers: Statement | None
    indices: tuple[Statement, ...]
    certainty: tuple[Statement, ...]
    comparisons: tuple[Statement, ...]
    caveats: tuple[Statement, ...]  # the serious ones first

    @property
    def conclusions(self) -> tuple[Statement, ...]:
        """What it refused of unanswerable and answerable questions, if known, and what RI says, if it is defined."""
        is_needed = self.refused is None or self.index.estimate is not None
        return tuple(one for one in (self.refused, self.verdict if is_needed else None) if one is not None)

    @property
    def main_caveats(self) -> list[Statement]:
        """The caveats to show beside RI: serious ones, missing answers, and how questions were sampled."""
        return [caveat for caveat in self.caveats if caveat.severity == "serious" or caveat.code in HEADLINE_CODES]

    @property
    def minor_caveats(self) -> list[Statement]:
        """All other caveats."""
        return [caveat for caveat in self.caveats if caveat not in self.main_caveats]


def headline(summary: Summary, about: Mapping[str, Any], published: Sequence[Statement] = ()) -> Headline:
    """Return the first screen of a run of one model on one dataset.

    - `about`: what the run's folder says of how it was made.
    - `published`: where the run stands among the published models of its dataset.
    """
    index = summary.index or Estimate(None, status="undefined")
    rates = [variant.table.error_rate for variant in summary.variants if variant.table.n]
    by_refusals = sorted(summary.variants, key=lambda variant: variant.metric("refusal_rate").estimate or 0.0)
    example = by_refusals[(len(by_refusals) - 1) // 2]
    return Headline(
        index=index,
        verdict=verdict(summary),
        example=example,
        refused=refused_by_answerable([variant.metrics for variant in summary.variants]),
        observed=observed(example),
        pairs=None if _is_meaningless(summary) else pairs(index, sum(rates) / len(rates) if rates else None),
        missing_answers=missing_answers(summary),
        indices=indices(summary, None if summary.corrected is None else {"": summary.corrected}),
        certainty=tuple(_certainty(summary, about, index)),
        comparisons=(*_comparisons(summary), *(one for one in published if one.code in PUBLISHED_CODES)),
        caveats=summary_caveats(summary),
    )


def verdict(summary: Summary) -> Statement:
    """State how strongly refusals are correlated with errors, unless a caveat of every variant forbids a conclusion."""
    index = summary.index or Estimate(None, status="undefined")
    if index.estimate is not None and _is_meaningless(summary):
        return Statement("no_conclusion", "serious")
    return strength(index)


def _is_meaningless(summary: Summary) -> bool:
    codes = (frozenset(caveat.code for caveat in variant.caveats) for variant in summary.variants)
    return not MEANINGLESS.isdisjoint(frozenset.intersection(*codes))


def strength(index: Estimate) -> Statement:
    """State how strongly refusals are correlated with errors, from both ends of the interval of the index.

    >>> strength(Estimate(0.36, 0.33, 0.39))
    Statement(code='follows', severity='conclusion', values={'step': 'weakly'})
    >>> strength(Estimate(0.36, 0.25, 0.47)).code, strength(Estimate(0.36, 0.02, 0.70)).code
    ('follows_between', 'follows_unsettled')
    >>> strength(Estimate(0.24, -0.03, 0.49))
    Statement(code='sign_unsettled', severity='conclusion', values={'last': 'moderately'})
    >>> strength(Estimate(-0.07, -0.12, -0.02))
    Statement(code='negative', severity='conclusion', values={'step': 'very_weakly'})
    """
    low = index.low
    high = index.high
    if index.estimate is None:
        return Statement("follows_undefined", "conclusion")
    if low is None or high is None:
        return Statement("no_conclusion", "conclusion")
    if low <= 0 <= high:
        code = "no_sign" if high < NO_SIGN_BELOW else "sign_unsettled"
        return Statement(code, "conclusion", {"last": _step(high)})
    first, last = sorted((_step(abs(low)), _step(abs(high))), key=list(STEPS).index)
    if first == last:
        return Statement("negative" if high < 0 else "follows", "conclusion", {"step": first})
    ends = {"first": first, "last": last}
    if list(STEPS).index(last) - list(STEPS).index(first) <= MAX_STEPS:
        return Statement("negative_between" if high < 0 else "follows_between", "conclusion", ends)
    return Statement("negative_unsettled" if high < 0 else "follows_unsettled", "conclusion", ends)


def _step(value: float) -> str:
    return next(step for step, end in STEPS.items() if value < end)


def refused_by_answerable(by_prompt: Sequence[Sequence[Estimate]], run: str | None = None) -> Statement | None:
    """State the lowest and highest refusal rates by answerability; None if no question is known to be unanswerable.

    - `by_prompt`: the metrics of each prompt, among them those of `BY_ANSWERABLE`.
    - `run`: the run's label; None if there is only one run.
    """
    found = [metric for metrics in by_prompt for metric in metrics if metric.estimate is not None]
    rates = {name: sorted(metric.estimate or 0.0 for metric in found if metric.name == name) for name in BY_ANSWERABLE}
    if not rates["refused_unanswerable"]:
        return None
    ends = {name: (known[0], known[-1]) if known else None for name, known in rates.items()}
    return Statement("refused_by_answerable", "conclusion", {"run": run, **ends})


def observed(variant: VariantSummary) -> Statement | None:
    """State the refusal rates of questions a model gets wrong and gets right; None if undefined."""
    wrong, right = (variant.metric(rate).estimate for rate in ("refusal_recall", "over_refusal"))
    if wrong is None or right is None:
        return None
    return Statement("observed", "conclusion", {"wrong": wrong, "right": right})


def pairs(index: Estimate, error_rate: float | None) -> Statement | None:
    """State the share of pairs of a wrong and a right question in which the wrong one ranks higher; None if undefined.

    It is the AUROC of the latent tendency to refuse, under the Gaussian copula; it also depends on the error rate.

    - `index`: the Refusal Index with its interval.
    - `error_rate`: share of wrong answers under forced answering; None if nothing was scored.
    """
    ends = (index.estimate, index.low, index.high)
    if error_rate is None or not 0 < error_rate < 1 or None in ends:
        return None
    shares = latent_auroc(rho_from_refusal_index(np.array(ends, float)), error_rate).tolist()
    values = dict(zip(("share", "low", "high"), shares, strict=True))
    return Statement("pairs", "conclusion", {**values, "error_rate": error_rate})


def _certainty(summary: Summary, about: Mapping[str, Any], index: Estimate) -> Iterator[Statement]:
    is_joint = bool(summary.pooled)
    rests = {"questions": max(variant.table.n for variant in summary.variants), "prompts": len(summary.variants)}
    if index.low is None or index.high is None:
        yield Statement("no_interval", "serious", rests)
    else:
        ends = {"low": index.low, "high": index.high, "level": summary.analysis.confidence_level}
        yield Statement("lies_between", "conclusion", ends)
        # More questions do not reduce differences between prompts.
        yield Statement("rests_on", "scope", {**rests, "more_would_help": not is_joint})
    if (stop := Stop.read(about)) is not None:
        yield stopped(stop)
    if (unmet := goal(about, summary)) is not None and unmet.code == "unmet_goal":
        yield unmet
    for variant in summary.variants:
        if (missing := variant.missing) is not None and missing.low is not None:
            values: dict[str, Any] = {"missing": missing.questions, "asked": variant.completeness.asked}
            values |= {"variant": variant.name if len(summary.variants) > 1 else None}
            values |= {"low": missing.low, "high": missing.high}
            yield Statement("missing_range", "scope", values)
    yield Statement("interval_covers", "scope", {"prompts": is_joint})


def _comparisons(summary: Summary) -> Iterator[Statement]:
    yield Statement("scale", "scope")
    estimates = [
        (variant.index.estimate, variant.name) for variant in summary.variants if variant.index.estimate is not None
    ]
    if len(estimates) > 1:
        estimates.sort(key=lambda pair: pair[0])
        (low, worst) = estimates[0]
        (high, best) = estimates[-1]
        pvalue = summary.pooled[0].homogeneity.pvalue if summary.pooled else None
        beyond = None if pvalue is None else pvalue < 1 - summary.analysis.confidence_level
        values = {"best": best, "high": high, "worst": worst, "low": low, "beyond_chance": beyond}
        yield Statement("best_and_worst", "conclusion", values)
