"""What spoils a result: the cautions of its variants told once each, and what belongs to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refusal_index.outcomes.draws import INDEX, LARGE_SPREAD, PooledSummary
from refusal_index.outcomes.presentation.blocks import listed
from refusal_index.outcomes.summary import VariantSummary
from refusal_index.report.runs import ReportRun
from refusal_index.report.tables import interval, number, percent
from refusal_index.stats import refusal_index

GRAVE = "grave"
NOTE = "note"

GRAVE_PULL = 0.05
"""By how much something may move the index before it is grave: about the half-width of an interval of 4,326 questions.
What pulls as far as the choice of questions does is no smaller matter than the interval."""

SHOWN_PULL = 0.005
"""By how much something must be able to move the index for that to be said: less would be shown as 0.00."""

_TITLES = {
    "undefined": "Undefined",
    "boundary": "At its limit",
    "next_to_no_knowledge": "Next to no knowledge",
    "few_right_answers": "Few right answers",
    "small_cell": "A small cell",
    "incomplete": "Incomplete",
    "incomplete_draws": "Further draws missing",
    "unscored_refusals": "Missing refusals",
    "forced_refusals": "Refused when forced",
    "repeated_draws_unused": "Repeated draws unused",
    "few_repeated": "Few repeated draws",
    "one_cluster": "One cluster",
    "few_clusters": "Few clusters",
}


@dataclass(frozen=True)
class Spoiler:
    """One reason to believe the number less."""

    weight: str  # ``"grave"``, or ``"note"`` for what is worth knowing but moves little
    # title, text: two words, and a sentence or two
    title: str
    text: str


def spoilers(run: ReportRun) -> tuple[Spoiler, ...]:
    """Collect what spoils the headline, the gravest first."""
    found = (*_warnings(run), *_missing(run), *_disagreement(run), *_forced(run), *_sampling(run))
    return tuple(sorted(found, key=lambda one: one.weight != GRAVE))


def _warnings(run: ReportRun) -> Iterator[Spoiler]:
    """Yield each kind of caution once, in the words of the first variant that has it, the others named."""
    for code in dict.fromkeys(warning.code for variant in run.variants for warning in variant.warnings):
        held = [
            (name, warning.message)
            for name, variant in zip(run.names, run.variants, strict=True)
            for warning in variant.warnings
            if warning.code == code
        ]
        (first, message), others = held[0], [name for name, _ in held[1:]]
        whose = f"{first}: " if len(run.variants) > 1 else ""
        also = f" The same holds for {listed(others)}." if others else ""
        yield Spoiler(GRAVE, _TITLES.get(code, code), f"{whose}{message}{also}")


def _missing(run: ReportRun) -> Iterator[Spoiler]:
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
