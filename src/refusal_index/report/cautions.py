"""What spoils a result: the cautions of its variants told once each, and what belongs to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from refusal_index.outcomes.summary import VariantSummary
from refusal_index.report.runs import ReportRun
from refusal_index.report.text import interval, listed, number, percent
from refusal_index.stats import Estimate

GRAVE = "grave"
NOTE = "note"

_TITLES = {
    "undefined": "Undefined",
    "boundary": "At its limit",
    "next_to_no_knowledge": "Next to no knowledge",
    "few_right_answers": "Few right answers",
    "small_cell": "A small cell",
    "incomplete": "Incomplete",
    "unscored_refusals": "Missing refusals",
    "forced_refusals": "Refused when forced",
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
    found = (*_warnings(run), *_missing(run), *_disagreement(run), *_chance(run), *_forced(run), *_sampling(run))
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
    yield Spoiler(NOTE, "Unscored", f"{unscored:,} of {asked:,} outcomes could not be scored, and are left out.")


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
    most = f": the index could be up to {number(lower, 2)} lower" if lower > 0.005 else ""
    text = f"At most {percent(max(shares), 1)} of the forced answers refused again and count as wrong{most}."
    yield Spoiler(NOTE, "Refused when forced", text)


def _lower_by_rules(variant: VariantSummary) -> float:
    """Return by how much the scoring rules can lower the index."""
    estimate, low = variant.metric("refusal_index").estimate, variant.sensitivity.range_of("refusal_index").low
    return 0.0 if estimate is None or low is None else estimate - low


def _disagreement(run: ReportRun) -> Iterator[Spoiler]:
    pooled, alpha = run.pooled, 1 - run.summary.confidence_level
    if pooled is None:
        return
    if pooled.left_out:
        kept_out = listed([f"{name} ({reason})" for name, reason in pooled.left_out.items()])
        yield Spoiler(GRAVE, "Left out", f"The joint index is made without {kept_out}.")
    pvalue = pooled.homogeneity.pvalue
    if pvalue is not None and pvalue < alpha:
        text = f"The prompts differ by more than chance (p = {pvalue:.2g}): one number for all hides that."
        yield Spoiler(GRAVE, "Prompts disagree", text)
    gaussian = pooled.gaussian.pvalue
    if gaussian is not None and gaussian < alpha and (pvalue is None or pvalue >= alpha):
        text = f"A Gaussian copula, which the index assumes, does not fit the prompts together (p = {gaussian:.2g})."
        yield Spoiler(GRAVE, "Model does not fit", text)


def _chance(run: ReportRun) -> Iterator[Spoiler]:
    """Say how far chance in single draws pulls the index towards 0, as far as that is known."""
    title, drawn = "Chance in each reply", [(n, v) for n, v in zip(run.names, run.variants, strict=True) if v.draws]
    corrected = [
        f"{name} {number(one.estimate, 2)} {interval(one.low, one.high, 2)}".strip()
        for name, variant in drawn
        if (one := _corrected(variant)) is not None
    ]
    if corrected:
        weight = GRAVE if any(_moved(variant) for _, variant in drawn) else NOTE
        yield Spoiler(weight, title, f"It pulls the index towards 0. Corrected by repeated draws: {listed(corrected)}.")
    else:
        text = "Replies vary by chance, which pulls the index towards 0; one draw each does not show how far."
        yield Spoiler(NOTE, title, text)


def _corrected(variant: VariantSummary) -> Estimate | None:
    found = variant.draws.noise_corrected if variant.draws else None
    return found if found is not None and found.estimate is not None else None


def _moved(variant: VariantSummary) -> bool:
    """Whether the correction leads out of the interval of the index."""
    found, index = _corrected(variant), variant.metric("refusal_index")
    if found is None or found.estimate is None or index.low is None or index.high is None:
        return False
    return not index.low <= found.estimate <= index.high
