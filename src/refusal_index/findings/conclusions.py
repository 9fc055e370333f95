"""Conclusions from a summary, as statements beside its tables and on the first screen of a report.

A `Tally` holds what first passes alone show.

Wording never depends on the estimate alone: .36 [.33, .39] and .36 [.02, .70] do not support the same claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from refusal_index.data.first_pass import FirstPass
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED, REQUEST_FAILED, Grade
from refusal_index.data.rates import too_many_missing
from refusal_index.data.run_json import STOPPED, UNTIL, Stop
from refusal_index.findings.draws import LARGE_SPREAD, PooledSummary
from refusal_index.findings.metrics import INDEX, Severity, Statement
from refusal_index.findings.summary import Summary, VariantSummary, half_width_of, is_complete
from refusal_index.stats import ContingencyTable, Estimate, latent_auroc, metrics, refusal_index, rho_from_refusal_index

NAMED = 8
"""Largest number of incomplete variants that are named."""

MIX_SIGN = "+"
"""Joins the names of a mix's datasets."""

SERIOUS_PULL = 0.05
"""Possible change of RI from which a caveat is serious: about the half-width of an interval from 4,326 questions."""

SHOWN_PULL = 0.005
"""Smallest possible change of the index that is mentioned; a smaller one would be shown as 0.00."""

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

BESIDE_THE_NUMBER = frozenset({"unscored_outcomes", "sampling"})
"""Caveats that are shown beside the number even where they are not serious."""

MEANINGLESS = frozenset({"boundary", "next_to_no_knowledge"})
"""Caveats under which no conclusion may be drawn from the number."""


def lacking(summary: Summary) -> Statement | None:
    """State which variants lack too many questions or further draws; None if none does."""
    parts: list[dict[str, Any]] = []
    reasons: set[str] = set()
    for kind, field in (("questions", "completeness"), ("further_draws", "further_draws")):
        counted = [(variant, getattr(variant, field)) for variant in summary.variants]
        short = [(variant, counts) for variant, counts in counted if counts is not None and not counts.is_enough]
        names = [
            {"name": _name(summary, variant), "scored": counts.scored, "asked": counts.asked}
            for variant, counts in short[:NAMED]
        ]
        if short:
            parts.append({"what": kind, "variants": names, "more": max(len(short) - NAMED, 0)})
            reasons.update(*(counts.reasons for _, counts in short))
    if not parts:
        return None
    return Statement(
        "lacking", "serious", {"parts": parts, "resumable": bool(reasons & {NOT_FINISHED, REQUEST_FAILED})}
    )


def _name(summary: Summary, variant: VariantSummary) -> str:
    """Return a variant's name within a sentence; empty if there is only one and it has none."""
    return "" if len(summary.variants) == 1 and variant.variant is None else summary.label(variant)


def indices(summary: Summary, corrected_by_name: Mapping[str, Estimate] | None = None) -> tuple[Statement, ...]:
    """State RI, and the corrected index if there is one.

    - `corrected_by_name`: the corrected index by name; None for that of each variant.
    """
    corrected = [(variant, variant.corrected) for variant in summary.variants if variant.corrected is not None]
    scope = Statement("what_ri_is", "scope")
    if not corrected:
        return (scope,)
    if {variant.repeats_ri for variant, index in corrected if index.estimate is not None} == {True}:
        return scope, Statement("corrected_repeats_ri", "scope")
    by_name = corrected_by_name or {_name(summary, variant): index for variant, index in corrected}
    return scope, Statement("corrected_index", "conclusion", {"each": by_name})


def joint(summary: Summary, pooled: PooledSummary) -> Statement:
    """State the joint index of several variants, and how much they differ."""
    source = [] if summary.has_one_source else [part for part in (pooled.model, pooled.dataset) if part]
    if pooled.refusal_index.estimate is None:
        return Statement("joint_undefined", "conclusion", {"source": source, "reason": pooled.refusal_index.reason})
    values = {
        "source": source,
        "index": pooled.refusal_index,
        "corrected": pooled.corrected_refusal_index,
        "left_out": list(pooled.left_out),
        **_spread(pooled),
    }
    return Statement("joint_index", "conclusion", values)


def _spread(pooled: PooledSummary) -> dict[str, Estimate]:
    return {"between": pooled.between_prompts, "new": pooled.new_prompt}


def remarks(variant: VariantSummary) -> Iterator[Statement]:
    """Yield the remarks on a variant's numbers, missing grades first."""
    yield from sampling(variant)
    complete, index = variant.completeness, variant.index
    covered = {"incomplete"} | ({FORCED_NOT_ASKED} if set(complete.reasons) == {FORCED_NOT_ASKED} else set())
    if complete.unscored and not any(warning.code in covered for warning in variant.warnings):
        counts = {"missing": complete.unscored, "asked": complete.asked, "reasons": complete.reasons}
        yield Statement("unscored_questions", "note", counts)
    corrected = variant.corrected
    if corrected is not None and corrected.reason not in (None, index.reason):
        values = {"estimate": corrected.estimate, "status": corrected.status, "reason": corrected.reason}
        yield Statement("corrected_status", "serious", values)
    topics = variant.sensitivity.topics
    if topics is not None and MIX_SIGN in (variant.dataset or ""):
        by_topic = {topic.topic: topic.refusal_index for topic in topics.each}
        yield Statement("within_sources", "conclusion", {"within": topics.within, "each": by_topic})
    yield from variant.warnings


def sampling(variant: VariantSummary) -> Iterator[Statement]:
    """State how the questions of a variant were sampled, if they have clusters or weights."""
    if (summary := variant.sampling) is not None:
        effective_questions = None if summary.few else summary.effective_questions  # too few clusters to tell
        yield Statement(
            "sampling", "note", {**asdict(summary), "effective_questions": effective_questions, "n": variant.table.n}
        )


def usage(summary: Summary) -> Statement | None:
    """State the total usage of all variants; None if unknown."""
    used = [variant.usage for variant in summary.variants if variant.usage is not None]
    if not used:
        return None
    return Statement(
        "usage", "note", {**asdict(summary.usage), "partly_priced": any(used_by.cost is not None for used_by in used)}
    )


def goal(about: Mapping[str, Any], summary: Summary) -> Statement | None:
    """State whether a run reached its target half-width; None without a target, or for a run that stopped early.

    - `about`: what the run's folder says of how it was made.
    - `summary`: of all questions asked so far.
    """
    until = about.get(UNTIL)
    if until is None or about.get(STOPPED):
        return None
    target = until["half_width"]
    half_width, complete = half_width_of(summary), is_complete(summary)
    is_reached = complete and half_width is not None and half_width <= target
    n_asked = max((variant.completeness.asked for variant in summary.variants), default=0)
    values = {"goal": f"half-width={target:g}", "half_width": half_width, "asked": n_asked, "is_complete": complete}
    return Statement("met_goal" if is_reached else "unmet_goal", "note" if is_reached else "serious", values)


def stopped(stop: Stop) -> Statement:
    """State at which look a run stopped."""
    return Statement("stopped", "scope", asdict(stop))


@dataclass(frozen=True)
class Headline:
    """The first screen of a run: the result, the rates of one prompt, its certainty, comparisons and caveats."""

    index: Estimate  # RI over all variants
    verdict: Statement  # how strongly refusals are correlated with errors
    example: VariantSummary  # the variant whose cells and rates are shown: the one with the median refusal rate
    observed: Statement | None  # what it refused of what it gets wrong and right; None if a rate is undefined
    pairs: Statement | None  # what that means for two questions; None if nothing
    lacking: Statement | None
    indices: tuple[Statement, ...]
    certainty: tuple[Statement, ...]
    comparisons: tuple[Statement, ...]
    doubts: tuple[Statement, ...]  # caveats, the serious ones first

    @property
    def caveats(self) -> list[Statement]:
        """The caveats that belong beside the number: serious ones, missing answers, and how questions were sampled."""
        return [doubt for doubt in self.doubts if doubt.severity == "serious" or doubt.code in BESIDE_THE_NUMBER]

    @property
    def minor(self) -> list[Statement]:
        """All other caveats."""
        return [doubt for doubt in self.doubts if doubt not in self.caveats]


def headline(summary: Summary, about: Mapping[str, Any], paper: Sequence[float] = ()) -> Headline:
    """Return the first screen of a run of one model on one dataset.

    - `about`: what the run's folder says of how it was made.
    - `paper`: indices of the paper's own models on the same questions.
    """
    index = summary.index or Estimate(None, status="undefined")
    rates = [variant.table.error_rate for variant in summary.variants if variant.table.n]
    by_refusals = sorted(summary.variants, key=lambda variant: variant.metric("refusal_rate").estimate or 0.0)
    example = by_refusals[(len(by_refusals) - 1) // 2]
    return Headline(
        index=index,
        verdict=verdict(summary),
        example=example,
        observed=observed(example),
        pairs=None if _is_meaningless(summary) else pairs(index, sum(rates) / len(rates) if rates else None),
        lacking=lacking(summary),
        indices=indices(summary, None if summary.corrected is None else {"": summary.corrected}),
        certainty=tuple(_certainty(summary, about, index)),
        comparisons=tuple(_comparisons(summary, paper)),
        doubts=doubts(summary),
    )


def verdict(summary: Summary) -> Statement:
    """State how strongly refusals are correlated with errors, unless a caveat of every variant forbids a conclusion."""
    index = summary.index or Estimate(None, status="undefined")
    if index.estimate is not None and _is_meaningless(summary):
        return Statement("no_conclusion", "serious")
    return strength(index)


def _is_meaningless(summary: Summary) -> bool:
    codes = (frozenset(warning.code for warning in variant.warnings) for variant in summary.variants)
    return not MEANINGLESS.isdisjoint(frozenset.intersection(*codes))


def strength(index: Estimate) -> Statement:
    """State how strongly refusals are correlated with errors, from both ends of the interval of the index.

    >>> strength(Estimate(0.36, 0.33, 0.39))
    Statement(code='follows', severity='conclusion', values={'step': 'weakly'})
    >>> strength(Estimate(0.36, 0.25, 0.47)).code, strength(Estimate(0.36, 0.02, 0.70)).code
    ('follows_between', 'follows_unsettled')
    >>> strength(Estimate(0.24, -0.03, 0.49))
    Statement(code='sign_unsettled', severity='conclusion', values={'last': 'moderately'})
    """
    low, high = index.low, index.high
    if index.estimate is None:
        return Statement("follows_undefined", "conclusion")
    if low is None or high is None:
        return Statement("no_conclusion", "conclusion")
    if high < 0:
        return Statement("runs_against", "conclusion")
    if low <= 0:
        code = "no_sign" if high < NO_SIGN_BELOW else "sign_unsettled"
        return Statement(code, "conclusion", {"last": _step(high)})
    first, last = _step(low), _step(high)
    if first == last:
        return Statement("follows", "conclusion", {"step": first})
    n_steps = list(STEPS).index(last) - list(STEPS).index(first)
    ends = {"first": first, "last": last}
    return Statement("follows_between" if n_steps <= MAX_STEPS else "follows_unsettled", "conclusion", ends)


def _step(value: float) -> str:
    return next(step for step, end in STEPS.items() if value < end)


def observed(variant: VariantSummary) -> Statement | None:
    """State the refusal rates of questions a model gets wrong and gets right; None if undefined."""
    wrong, right = (variant.metric(rate).estimate for rate in ("refusal_recall", "over_refusal"))
    if wrong is None or right is None:
        return None
    return Statement("observed", "conclusion", {"wrong": wrong, "right": right})


def pairs(index: Estimate, error_rate: float | None) -> Statement | None:
    """State the share of pairs of a wrong and a right question in which the wrong one ranks higher; None if undefined.

    - `index`: the Refusal Index with its interval.
    - `error_rate`: share of wrong answers under forced answering; None if nothing was scored.
    """
    ends = (index.estimate, index.low, index.high)
    if error_rate is None or not 0 < error_rate < 1 or None in ends:
        return None
    shares = latent_auroc(rho_from_refusal_index(np.array(ends, float)), error_rate).tolist()
    return Statement("pairs", "conclusion", dict(zip(("share", "low", "high"), shares, strict=True)))


def _certainty(summary: Summary, about: Mapping[str, Any], index: Estimate) -> Iterator[Statement]:
    is_joint = bool(summary.pooled)
    rests = {"questions": max(variant.table.n for variant in summary.variants), "prompts": len(summary.variants)}
    if index.low is None or index.high is None:
        yield Statement("no_interval", "serious", rests)
    else:
        ends = {"low": index.low, "high": index.high, "level": summary.confidence_level}
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


def _comparisons(summary: Summary, paper: Sequence[float]) -> Iterator[Statement]:
    yield Statement("scale", "scope")
    estimates = [
        (variant.index.estimate, variant.name) for variant in summary.variants if variant.index.estimate is not None
    ]
    if len(estimates) > 1:
        estimates.sort(key=lambda pair: pair[0])
        (low, worst), (high, best) = estimates[0], estimates[-1]
        pvalue = summary.pooled[0].homogeneity.pvalue if summary.pooled else None
        beyond = None if pvalue is None else pvalue < 1 - summary.confidence_level
        values = {"best": best, "high": high, "worst": worst, "low": low, "beyond_chance": beyond}
        yield Statement("best_and_worst", "conclusion", values)
    if paper:
        index = None if summary.index is None else summary.index.estimate
        below = None if index is None else sum(value < index for value in paper)
        ends = {"low": min(paper), "high": max(paper)}
        yield Statement("paper", "scope", {"models": len(paper), **ends, "index": index, "below": below})


def doubts(summary: Summary) -> tuple[Statement, ...]:
    """Collect the caveats about a run's index, serious ones first."""
    doubts_found = (
        *_warnings(summary),
        *_possible_shifts(summary.variants),
        *chain.from_iterable(_disagreement(pooled, summary.confidence_level) for pooled in summary.pooled),
        *islice(chain.from_iterable(map(sampling, summary.variants)), 1),
    )
    return tuple(sorted(doubts_found, key=lambda doubt: doubt.severity != "serious"))


def _warnings(summary: Summary) -> Iterator[Statement]:
    """Yield each kind of caveat once, with the values of the first variant that has it and the names of the others."""
    by_code: dict[str, list[tuple[str, Statement]]] = {}
    for variant in summary.variants:
        for warning in variant.warnings:
            by_code.setdefault(warning.code, []).append((summary.label(variant), warning))
    for (first, statement), *others in by_code.values():
        names = {"first": first if len(summary.variants) > 1 else None, "others": [name for name, _ in others]}
        yield Statement("same_for", statement.severity, {"statement": statement, **names})


def _possible_shifts(variants: Sequence[VariantSummary]) -> Iterator[Statement]:
    """State how far missing grades and repeated refusals, too few for a caveat, could move RI."""
    codes = {warning.code for variant in variants for warning in variant.warnings}
    counts = [variant.completeness for variant in variants]
    unscored, n_asked = sum(count.unscored for count in counts), sum(count.asked for count in counts)
    if unscored and "incomplete" not in codes:
        ranges = ((variant, variant.missing) for variant in variants if variant.missing is not None)
        shift = max((_largest_shift(variant, missing.low, missing.high) for variant, missing in ranges), default=0.0)
        yield Statement("unscored_outcomes", *_by_shift({"missing": unscored, "asked": n_asked}, shift))
    share = max(variant.forced_refusals.share or 0.0 for variant in variants)
    if share and "forced_refusals" not in codes:
        shift = max(_largest_shift(variant, variant.sensitivity.range_of(INDEX).low) for variant in variants)
        yield Statement("some_forced_refusals", *_by_shift({"share": share}, shift))


def _by_shift(values: Mapping[str, Any], pull: float) -> tuple[Severity, dict[str, Any]]:
    """Return severity and values of a possible change of the index: serious if it is as large as the interval."""
    return "serious" if pull >= SERIOUS_PULL else "note", {**values, "pull": pull if pull > SHOWN_PULL else None}


def _largest_shift(variant: VariantSummary, low: float | None, high: float | None = None) -> float:
    """Return how far RI, unweighted, is from these ends; 0 where it is undefined, which is stated elsewhere."""
    estimate = refusal_index(variant.table).estimate
    if estimate is None or low is None:
        return 0.0
    return max(estimate - low, (estimate if high is None else high) - estimate)


def _disagreement(pooled: PooledSummary, level: float) -> Iterator[Statement]:
    """State how much the prompts differ; the size decides whether it is serious, not a p-value."""
    if pooled.left_out and pooled.refusal_index.estimate is not None:
        yield Statement("left_out", "serious", {"variants": pooled.left_out})
    between = pooled.between_prompts
    if between.estimate is None or between.high is None:
        return
    if pooled.disagree(level):
        yield Statement("prompts_disagree", "serious", _spread(pooled))
    elif not pooled.differ_by_chance(level):
        yield Statement("prompts_differ", "note", _spread(pooled))
    elif between.high > LARGE_SPREAD:
        yield Statement("prompts_may_differ", "note", _spread(pooled))


FIRST_PASS_METRICS = ("correct_given_attempted", "f_score", "weighted_score")
"""The metrics that the first pass alone decides."""


@dataclass(frozen=True)
class Tally:
    """The first passes of one model on one dataset under one prompt, counted."""

    # model, dataset, variant: whose they are; None where the file does not say
    model: str | None
    dataset: str | None
    variant: str | None
    # correct, incorrect, refused: how many were graded so
    correct: int
    incorrect: int
    refused: int
    unscored: int  # how many were not graded, or answered without a word on whether that is right
    reasons: Mapping[str, int]  # number of the unscored by reason
    to_force: int  # refused questions that a forced pass has to ask
    forced: int  # refused questions whose forced answer is there
    set_aside: int  # refused questions that are marked as wrong too, for the refusal or for a forced answer
    # those of `FIRST_PASS_METRICS`, of the graded questions; empty where so many are unscored that they would mislead
    metrics: tuple[Estimate, ...]

    @property
    def rows(self) -> int:
        """All of them."""
        return self.correct + self.incorrect + self.refused + self.unscored

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Caveats to print with the counts."""
        settled = self.refused - self.to_force - self.forced
        unscored = {"missing": self.unscored, "asked": self.rows, "reasons": self.reasons}
        statements = (
            (self.unscored, Statement("unscored_questions", "note", unscored)),
            (not self.metrics, Statement("too_many_unscored", "serious")),
            (self.forced, Statement("already_forced", "note", {"questions": self.forced})),
            (self.set_aside, Statement("refused_and_wrong", "note", {"questions": self.set_aside})),
            (settled, Statement("no_right_answer", "note", {"questions": settled})),
            (not self.refused, Statement("none_refused", "serious")),
        )
        return tuple(statement for applies, statement in statements if applies)


def tallies(passes: Iterable[FirstPass], *, penalty: float = 1.0) -> tuple[Tally, ...]:
    """Count the first passes by model, dataset and variant, in order of appearance.

    - `passes`: the first passes.
    - `penalty`: of the weighted score.
    """
    groups: dict[tuple[str | None, str | None, str | None], list[FirstPass]] = {}
    for first_pass in passes:
        groups.setdefault((first_pass.model, first_pass.dataset, first_pass.variant), []).append(first_pass)
    return tuple(_tally(group, penalty) for group in groups.values())


def _tally(group: list[FirstPass], penalty: float) -> Tally:
    grades = Counter(first_pass.grade for first_pass in group)
    correct, incorrect, refused = (grades[grade] for grade in (Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED))
    unscored = [first_pass for first_pass in group if first_pass.grade in (None, Grade.UNSCORED)]
    # Forced answers only split the refused cells, which no first-pass metric uses.
    estimates = metrics(ContingencyTable(refused, 0, incorrect, correct), penalty=penalty)
    by_name = {} if too_many_missing(len(unscored), len(group)) else {metric.name: metric for metric in estimates}
    answerable = [
        first_pass for first_pass in group if first_pass.grade is Grade.REFUSED and first_pass.question.gold is not None
    ]
    return Tally(
        *(group[0].model, group[0].dataset, group[0].variant),
        *(correct, incorrect, refused, len(unscored)),
        reasons=dict(Counter(first_pass.outcome().unscored_reason or "" for first_pass in unscored).most_common()),
        to_force=sum(first_pass.needs_forcing for first_pass in group),
        forced=sum(first_pass.forced is not None for first_pass in answerable),
        set_aside=sum(first_pass.set_aside is not None for first_pass in group),
        metrics=tuple(by_name[name] for name in FIRST_PASS_METRICS if name in by_name),
    )


COUNTS = ("correct", "incorrect", "refused", "unscored")


def tally_document(tally: Tally) -> dict[str, Any]:
    """Return a tally as a JSON-serialisable dictionary."""
    fields = ("estimate", "low", "high", "status")
    return {
        **{name: getattr(tally, name) for name in ("model", "dataset", "variant")},
        "n": tally.rows,
        **{name: getattr(tally, name) for name in COUNTS},
        "reasons": dict(tally.reasons),
        "metrics": {metric.name: {name: getattr(metric, name) for name in fields} for metric in tally.metrics},
        "force_requests": tally.to_force,
        "forced": tally.forced,
    }
