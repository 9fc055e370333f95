"""The first screen of a run: the result, its certainty, comparisons and caveats.

A word that fits the estimate alone would be said with the same assurance of .36 [.33, .39] and of .36 [.02, .70].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import polars as pl

from refusal_index.data.run_json import Stop
from refusal_index.findings.draws import LARGE_SPREAD, PooledSummary
from refusal_index.findings.metrics import INDEX
from refusal_index.findings.summary import VariantSummary, short_of
from refusal_index.render.format import listed
from refusal_index.render.report.runs import ReportRun
from refusal_index.render.report.tables import IndexScale, count, index_scale, interval, number, percent
from refusal_index.render.sentences import phrase, sentence
from refusal_index.render.summary import REPEATS_RI, WHAT_CORRECTED_RI_IS, WHAT_RI_IS, lacking
from refusal_index.stats import Estimate, latent_auroc, refusal_index, rho_from_refusal_index

GRAVE = "grave"
NOTE = "note"

GRAVE_PULL = 0.05
"""By how much something may move the index before it is grave: about the half-width of an interval of 4,326 questions.
What pulls as far as the choice of questions does is no smaller matter than the interval."""

SHOWN_PULL = 0.005
"""By how much something must be able to move the index for that to be said: less would be shown as 0.00."""


@dataclass(frozen=True)
class Spoiler:
    """One reason to believe the number less."""

    weight: str  # ``"grave"``, or ``"note"`` for what is worth knowing but moves little
    # title, text: two words, and a sentence or two
    title: str
    text: str


def spoilers(run: ReportRun) -> tuple[Spoiler, ...]:
    """Collect what spoils the headline, the gravest first."""
    found = (*_warnings(run), *_missing_grades(run), *_disagreement(run), *_forced(run), *_sampling(run))
    return tuple(sorted(found, key=lambda one: one.weight != GRAVE))


def _warnings(run: ReportRun) -> Iterator[Spoiler]:
    """Yield each kind of caution once, in the words of the first variant that has it, the others named."""
    for code in dict.fromkeys(warning.code for variant in run.variants for warning in variant.warnings):
        held = [
            (name, sentence(warning, "page"))
            for name, variant in zip(run.names, run.variants, strict=True)
            for warning in variant.warnings
            if warning.code == code
        ]
        (first, message), others = held[0], [name for name, _ in held[1:]]
        whose = f"{first}: " if len(run.variants) > 1 else ""
        also = f" The same holds for {listed(others)}." if others else ""
        yield Spoiler(GRAVE, phrase(code, "title"), f"{whose}{message}{also}")


def _missing_grades(run: ReportRun) -> Iterator[Spoiler]:
    """Say how many are missing where no caution does: never silently."""
    told = [variant for variant in run.variants if variant.completeness.unscored]
    asked, unscored = (sum(getattr(v.completeness, name) for v in run.variants) for name in ("asked", "unscored"))
    if not told:
        return
    if any(warning.code == "incomplete" for variant in told for warning in variant.warnings):
        return
    text = f"{unscored:,} of {asked:,} outcomes could not be scored, and are left out."
    pull = max(map(_moved_by_missing, run.variants))
    most = f" Whatever they are, they could move RI by up to {number(pull, 2)}." if pull > SHOWN_PULL else ""
    yield Spoiler(_weight(pull), "Unscored", f"{text}{most}")


def _sampling(run: ReportRun) -> Iterator[Spoiler]:
    """Say what the intervals allow for, in the words of the first variant."""
    found = [variant.sampling.sentence(variant.table.n) for variant in run.variants if variant.sampling is not None]
    if found:
        yield Spoiler(NOTE, "Sampling", found[0])


def _forced(run: ReportRun) -> Iterator[Spoiler]:
    """Say what refusals of the forced pass could change, where there are too few for a caution."""
    shares = [variant.forced_refusals.share or 0.0 for variant in run.variants]
    if not any(shares) or any(w.code == "forced_refusals" for v in run.variants for w in v.warnings):
        return
    lower = max(map(_lower_by_rules, run.variants))
    most = f": RI could be up to {number(lower, 2)} lower" if lower > SHOWN_PULL else ""
    text = f"At most {percent(max(shares), 1)} of the forced answers refused again and count as wrong{most}."
    yield Spoiler(_weight(lower), "Refused when forced", text)


def _weight(pull: float) -> str:
    return GRAVE if pull >= GRAVE_PULL else NOTE


def _moved_by_missing(variant: VariantSummary) -> float:
    """Return how far from RI the grades that are missing could lead, every question counted alike."""
    estimate, missing = _counted_alike(variant), variant.missing
    if estimate is None or missing is None or missing.low is None or missing.high is None:
        return 0.0
    return max(estimate - missing.low, missing.high - estimate)


def _lower_by_rules(variant: VariantSummary) -> float:
    """Return by how much the scoring rules can lower RI, every question counted alike."""
    estimate, low = _counted_alike(variant), variant.sensitivity.range_of(INDEX).low
    return 0.0 if estimate is None or low is None else estimate - low


def _counted_alike(variant: VariantSummary) -> float | None:
    """Return the index that the ranges lie around: they have no weights, whatever the metrics have."""
    return refusal_index(variant.table).estimate


def _disagreement(run: ReportRun) -> Iterator[Spoiler]:
    pooled, level = run.pooled, run.summary.confidence_level
    if pooled is None:
        return
    if pooled.left_out:
        kept_out = listed([f"{name} ({reason})" for name, reason in pooled.left_out.items()])
        yield Spoiler(GRAVE, "Left out", f"The joint index is made without {kept_out}.")
    yield from _spread(pooled, level)


def _spread(pooled: PooledSummary, level: float) -> Iterator[Spoiler]:
    """Say how far the prompts lie apart: grave by the size of it, not by a p-value."""
    between, new = pooled.between_prompts, pooled.new_prompt
    if between.estimate is None or between.high is None:
        return
    size = f"a standard deviation of {number(between.estimate, 2)} {interval(between.low, between.high, 2)}"
    if pooled.disagree(level):
        text = f"Between prompts RI has {size}, beyond chance: one number for all hides that."
        where = f"One more prompt like these would show between {number(new.low, 2)} and {number(new.high, 2)}."
        yield Spoiler(GRAVE, "Prompts disagree", f"{text} {where}")
    elif not pooled.differ_by_chance(level):
        yield Spoiler(NOTE, "Prompts differ", f"By more than chance, and by little: {size} between them.")
    elif between.high > LARGE_SPREAD:
        text = f"How far prompts lie apart is not settled: a standard deviation of up to {number(between.high, 2)}."
        yield Spoiler(NOTE, "Prompts may differ", text)


STEPS = ((0.2, "barely"), (0.4, "loosely"), (0.6, "moderately well"), (0.8, "closely"), (1.01, "very closely"))
"""Up to which index which word is used. A step is about as wide as a 95 % interval of 1,000
questions, so that finer ones could not be told apart. At their borders, with half of the answers wrong, .59, .69, .79
and .89 of the pairs of a wrong and a right question are told apart."""

NO_SIGN_BELOW = STEPS[0][0]
"""There is no sign of an index where even the upper end of an interval that holds 0 is this small: all that is left is
"barely". A wider interval has shown nothing, neither an index nor that there is none."""

MOST_STEPS = 1
"""How many steps the two ends of an interval may lie apart for the index to count as settled: neighbours share a border
that an interval of any width may straddle."""


def followed(index: Estimate) -> str:
    """Say how well refusals follow knowledge, for an index with an interval.

    >>> followed(Estimate(0.36, 0.33, 0.39))
    'Its refusals follow its knowledge loosely.'
    >>> followed(Estimate(0.36, 0.25, 0.47))
    'Its refusals follow its knowledge, loosely to moderately well.'
    >>> followed(Estimate(0.36, 0.02, 0.70))
    'Its refusals follow its knowledge; how well is not settled: anything from barely to closely.'
    >>> followed(Estimate(0.24, -0.03, 0.49))
    'Whether its refusals follow its knowledge is not settled: anything from not at all to moderately well.'
    """
    low, high = index.low, index.high
    if low is None or high is None:
        return "How well its refusals follow its knowledge cannot be said from this number."
    if high < 0:
        return "Its refusals run against its knowledge: it refuses what it knows rather than what it does not."
    if low <= 0:
        return _none_or_not_settled(high)
    first, last = _step(low), _step(high)
    if first == last:
        return f"Its refusals follow its knowledge {STEPS[first][1]}."
    if last - first <= MOST_STEPS:
        return f"Its refusals follow its knowledge, {STEPS[first][1]} to {STEPS[last][1]}."
    span = f"anything from {STEPS[first][1]} to {STEPS[last][1]}"
    return f"Its refusals follow its knowledge; how well is not settled: {span}."


def _none_or_not_settled(high: float) -> str:
    """Say what an interval that holds 0 leaves open, by its upper end."""
    if high < NO_SIGN_BELOW:
        return "There is no sign that its refusals follow its knowledge: they may be no better than a coin."
    span = f"anything from not at all to {STEPS[_step(high)][1]}"
    return f"Whether its refusals follow its knowledge is not settled: {span}."


def _step(value: float) -> int:
    return next(place for place, (end, _) in enumerate(STEPS) if value < end)


MEANINGLESS = frozenset({"boundary", "next_to_no_knowledge"})
"""Cautions under which no sentence may be made of the number."""


@dataclass(frozen=True)
class Finding:
    """The number that a report is about, and what decides how it may be put into words."""

    index: Estimate  # the Refusal Index with its interval
    error_rate: float | None  # mean share of wrong answers under forced answering; None where nothing was scored
    codes: frozenset[str] = frozenset()  # codes of the cautions that hold for all of it


def verdict(found: Finding) -> str:
    """Say in one clause how well the refusals follow the knowledge.

    >>> verdict(Finding(Estimate(0.27, 0.2, 0.34), error_rate=0.49))
    'Its refusals follow its knowledge loosely.'
    >>> verdict(Finding(Estimate(0.05, -0.1, 0.19), error_rate=0.49))
    'There is no sign that its refusals follow its knowledge: they may be no better than a coin.'
    """
    index = found.index
    if index.estimate is None:
        return "How well its refusals follow its knowledge cannot be said."
    if found.codes & MEANINGLESS or index.low is None or index.high is None:
        return "How well its refusals follow its knowledge cannot be said from this number."
    return followed(index)


def pairs_sentence(found: Finding) -> str | None:
    """Say what the index means for two questions, one got wrong and one got right; None where it means nothing."""
    shares = pair_shares(found)
    if shares is None or found.codes & MEANINGLESS:
        return None
    estimate, low, high = (percent(share) for share in shares)
    bare = low.removesuffix("\u00a0%")
    return (
        f"Of two questions, one that it gets wrong and one that it gets right, it leans more towards refusing the "
        f"wrong one in {estimate} of cases ({bare} to {high}); a coin would in 50\u00a0%, a model that "
        "knows exactly what it does not know in all."
    )


def pair_shares(found: Finding) -> tuple[float, float, float] | None:
    """Share of such pairs told apart at the estimate and at both ends of its interval."""
    ends = (found.index.estimate, found.index.low, found.index.high)
    if found.error_rate is None or not 0 < found.error_rate < 1 or None in ends:
        return None
    at_estimate, at_low, at_high = latent_auroc(
        rho_from_refusal_index(np.array(ends, float)), found.error_rate
    ).tolist()
    return at_estimate, at_low, at_high


@cache
def paper_indices(dataset: str | None) -> tuple[float, ...]:
    """Return the Refusal Indices of the paper's results table; none for other datasets than its own."""
    file = resources.files("refusal_index").joinpath("plugins", "studies", "data", "paper_rows.csv")
    if dataset != "simpleqa" or not file.is_file():
        return ()
    return tuple(pl.read_csv(file.read_bytes())["refusal_index"].drop_nulls().to_list())


@dataclass(frozen=True)
class Line:
    """One line of the picture: a name and its index with the interval."""

    name: str
    index: Estimate
    joint: bool = False


@dataclass(frozen=True)
class Headline:
    """The first screen."""

    index: Estimate  # the number in large type
    which: str  # what RI is, and the value of the corrected index
    # verdict, pairs: what it means, in words and in pairs of questions; the latter None where it means nothing
    verdict: str
    pairs: str | None
    lacks: str | None  # which prompts lack too many of their questions, said before any number; None where none does
    # sure, compared: sentences
    sure: tuple[str, ...]
    compared: tuple[str, ...]
    spoilers: tuple[Spoiler, ...]  # what a reader must know before believing it, the gravest first
    # lines, scale: the picture: the joint index above its variants
    lines: tuple[Line, ...]
    scale: IndexScale
    paper: tuple[float, ...]  # the indices of the paper's own models, where they were asked the same questions


def headline(run: ReportRun) -> Headline:
    """Make the first screen of a run."""
    found, lines = finding(run), tuple(_lines(run))
    index = found.index
    paper = paper_indices(run.run.dataset_id)
    values = [value for line in lines for value in (line.index.estimate, line.index.low, line.index.high)]
    return Headline(
        index=index,
        which=_which(run),
        verdict=verdict(found),
        pairs=pairs_sentence(found),
        lacks=lacking(run.summary),
        sure=tuple(_sure(run, index)),
        compared=tuple(_compared(run, paper)),
        spoilers=spoilers(run),
        lines=lines,
        scale=index_scale(values),
        paper=paper,
    )


def finding(run: ReportRun) -> Finding:
    """Return the index over all variants, with what decides how it may be put into words."""
    rates = [variant.table.error_rate for variant in run.variants if variant.table.n]
    error_rate = sum(rates) / len(rates) if rates else None
    codes = frozenset.intersection(*(frozenset(w.code for w in variant.warnings) for variant in run.variants))
    return Finding(run.index, error_rate, codes)


def _which(run: ReportRun) -> str:
    """Say what RI is, and give the corrected index where there is one."""
    corrected = run.summary.corrected
    if corrected is None:
        return WHAT_RI_IS
    if all(variant.repeats_ri for variant in run.variants):
        return f"{WHAT_RI_IS} {REPEATS_RI}"
    known = f"{number(corrected.estimate, 2)} {interval(corrected.low, corrected.high, 2)}".strip()
    shown = "not identified" if corrected.status == "not_identified" else known
    return f"{WHAT_RI_IS} Corrected RI is {shown}: {WHAT_CORRECTED_RI_IS}"


def _lines(run: ReportRun) -> Iterator[Line]:
    if run.pooled is not None:
        yield Line("jointly", run.index, joint=True)
    for name, variant in zip(run.names, run.variants, strict=True):
        yield Line(name, variant.index)


def _sure(run: ReportRun, index: Estimate) -> Iterator[str]:
    asked = max(variant.table.n for variant in run.variants)
    under = f" under {count(len(run.variants), 'prompt')}" if len(run.variants) > 1 else ""
    rests_on = f"{count(asked, 'question')}{under}"
    if index.low is None or index.high is None:
        yield f"There is no interval for it: {rests_on} do not settle it."
    else:
        yield f"With {run.level} confidence it lies between {number(index.low, 2)} and {number(index.high, 2)}."
        # More questions do not make prompts alike.
        more = "" if run.pooled else "; four times as many would halve the interval"
        yield f"That rests on {rests_on}{more}."
    stop = Stop.read(run.about)
    if stop is not None:
        yield stop.sentence
    if told := short_of(run.about, run.summary):
        yield told
    yield from _missing(run)
    prompts = ", and of prompts like these," if run.pooled else ""
    yield f"The interval allows for the choice of questions{prompts} only; what it does not allow for may spoil it."


def _missing(run: ReportRun) -> Iterator[str]:
    """Say of each prompt of which questions are missing, however few, within which range they leave the index."""
    for name, variant in zip(run.names, run.variants, strict=True):
        missing = variant.missing
        if missing is None or missing.low is None:
            continue
        whose = f" under {name}" if len(run.variants) > 1 else ""
        lie = f"between {number(missing.low, 2)} and {number(missing.high, 2)}"
        asked = variant.completeness.asked
        yield f"Missing{whose} are {missing.questions:,} of {asked:,}: whatever they are, the index of all lies {lie}."


def _compared(run: ReportRun, paper: tuple[float, ...]) -> Iterator[str]:
    yield "0 is a model that refuses like a coin, 1 one that refuses strictly in order of difficulty."
    known = [(n, v) for n, v in zip(run.names, run.variants, strict=True) if _estimate(v) is not None]
    if len(known) > 1:
        known.sort(key=lambda pair: _estimate(pair[1]) or 0.0)
        (worst, low), (best, high) = known[0], known[-1]
        yield f"Its best prompt is {best} at {_shown(high)}, its worst {worst} at {_shown(low)}{_differ(run)}."
    if paper:
        found = f"The RI of the paper's {len(paper)} models on these questions runs from "
        yield f"{found}{number(min(paper), 2)} to {number(max(paper), 2)}{_place(run.summary.index, paper)}."


def _place(index: Estimate | None, paper: tuple[float, ...]) -> str:
    if index is None or index.estimate is None:
        return ""
    below = sum(one < index.estimate for one in paper)
    how_many = "all" if below == len(paper) else "none" if below == 0 else below
    return f", {how_many} of them below this run's RI of {number(index.estimate, 2)}"


def _differ(run: ReportRun) -> str:
    pvalue = run.pooled.homogeneity.pvalue if run.pooled else None
    if pvalue is None:
        return ""
    if pvalue < 1 - run.summary.confidence_level:
        return ", more apart than chance makes them"
    return ", no more apart than chance makes them"


def _estimate(variant: VariantSummary) -> float | None:
    return variant.index.estimate


def _shown(variant: VariantSummary) -> str:
    return number(_estimate(variant), 2)
