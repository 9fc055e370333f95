"""Runs compared or ranked, as text: the numbers, what they rest on, and what cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from refusal_index.outcomes.cautions import MISSING_LIMIT
from refusal_index.outcomes.comparison import CompareOptions, CorrectedPair, Difference, PairComparison, both_numbers
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.missing import missing_ranges
from refusal_index.outcomes.presentation import METRIC_COLUMNS, Block, Table
from refusal_index.outcomes.presentation.blocks import interval, interval_of, number, percent, pvalue, span, title
from refusal_index.outcomes.runs import ComparedRun, Match, differing_settings
from refusal_index.outcomes.sampling import describe
from refusal_index.stats import NoiseCorrectedDifference
from refusal_index.stats.design import FEW_CLUSTERS

if TYPE_CHECKING:
    from refusal_index.outcomes.comparison_results import RankedRuns, TwoRuns

CORRECTED = "RI corrected"
BIASED = " What is missing is rarely a fair sample, and every number here may be biased."


def pair_blocks(found: TwoRuns) -> Iterator[Block]:
    """Yield what came out of a comparison of two runs, and whether they were asked alike."""
    runs, variants, level = found.runs, found.pair.variants, found.options.confidence_level
    first, second = (run.label for run in runs)
    for line in missing_lines(runs):
        yield from (line, "")
    yield f"{first} minus {second}"
    for variant in variants:
        yield _matching(runs, variant.match, variant.name if len(variants) > 1 else None)
    yield from _sampled(variants[0].match, found.options)
    columns = ("metric", "variant", first, second, "difference", f"{percent(level)} interval", "p", "status")
    rows = (
        (METRIC_COLUMNS[metric] if metric else CORRECTED, variant, *_cells(difference, level))
        for metric, variant, difference in found.rows()
    )
    yield from ("", Table.of(columns, rows, left=("metric", "variant", "status")))
    if found.corrected:
        basis = _basis(found.corrected)
        yield ""
        yield f"{CORRECTED}: without the noise of single draws, on questions drawn repeatedly: {basis}."
    for line in (*_reasons(runs, found.pair), *_corrected_reasons(runs, found.corrected)):
        yield from ("", line)
    yield from _asked_otherwise(runs)


def ranking_blocks(found: RankedRuns) -> Iterator[Block]:
    """Yield a ranking, what it rests on, and whether the runs were asked alike."""
    runs, ranking = found.runs, found.found.ranking
    for line in missing_lines(runs):
        yield from (line, "")
    yield _matching(runs, found.found.match, found.found.variant)
    yield from _sampled(found.found.match, found.options)
    for line in _unranked(found):
        yield from ("", line)
    if len(ranking.runs) < 2:
        yield from ("", "There is nothing to rank: fewer than two models have an index with a standard error.")
    else:
        yield from _ranked_blocks(found)
    yield from _corrected_blocks(found)
    yield from _asked_otherwise(runs)


def _sampled(found: Match, options: CompareOptions) -> Iterator[Block]:
    """Say what intervals and p-values allow for."""
    sampling = describe(found.matrix.design, options.sampling)
    if sampling is None:
        return
    if sampling["cluster"] is not None:
        few = f"; below {FEW_CLUSTERS} intervals and p-values are rough" if sampling["clusters"] < FEW_CLUSTERS else ""
        yield f"The questions come in {sampling['clusters']:,} clusters (column {sampling['cluster']!r}){few}."
    if sampling["weight"] is not None:
        worth = f"{sampling['effective_by_weight']:,.0f} questions of equal weight"
        yield f"The questions are weighted (column {sampling['weight']!r}) and worth {worth}."


def _asked_otherwise(runs: Sequence[ComparedRun]) -> Iterator[Block]:
    differing = differing_settings(runs)
    if differing:
        verb = "differs" if len(differing) == 1 else "differ"
        yield ""
        yield f"The runs were not asked alike: {', '.join(differing)} {verb}. The difference may come from there."


def _ranked_blocks(found: RankedRuns) -> Iterator[Block]:
    runs, ranking = found.runs, found.found.ranking
    level, name = percent(ranking.confidence_level), METRIC_COLUMNS[ranking.metric]
    columns = ("model", name if found.found.variant else f"{name}, jointly", f"{level} interval", "letters")
    ranked = ((runs[run.row].label, number(run.estimate), interval_of(run), run.letters) for run in ranking.runs)
    yield from ("", Table.of(columns, ranked, left=("model", "letters")), "")
    yield (
        f"Models that share a letter cannot be told apart ({ranking.adjustment}: the chance of even one false "
        f"difference is about {percent(1 - ranking.confidence_level)}); ties need not be transitive."
    )
    pairs = (
        (
            f"{runs[pair.first].label} - {runs[pair.second].label}",
            f"{pair.estimate:.3f}",
            interval(*pair.simultaneous_interval.or_none()),
            *(pvalue(p) for p in (pair.pvalue, pair.pvalue_holm, pair.pvalue_max_t)),
        )
        for pair in ranking.pairs
    )
    names = ("pair", "difference", f"simultaneous {level}", "p", "Holm", "max-t")
    yield from ("", Table.of(names, pairs, left=("pair",)))


def _corrected_blocks(found: RankedRuns) -> Iterator[Block]:
    """Yield the differences of corrected indices beside a ranking, which is one of first draws."""
    if not found.corrected:
        return
    runs, level = found.runs, found.options.confidence_level
    yield ""
    yield (
        "The ranking is of first draws, which show a lower index the more random a model's behaviour is. Without "
        "that noise, on questions drawn repeatedly (Holm: within each variant):"
    )
    numbers = ("questions", "first", "second", "difference", f"{percent(level)} interval", "p", "Holm", "status")
    rows = ((*_names(runs, each), *_corrected_cells(each, level)) for each in found.corrected)
    yield from ("", Table.of(("pair", "variant", *numbers), rows, left=("pair", "variant", "status")))
    for line in _corrected_reasons(runs, found.corrected):
        yield from ("", line)


def _names(runs: Sequence[ComparedRun], each: CorrectedPair) -> tuple[str, str]:
    return f"{runs[each.first].label} - {runs[each.second].label}", each.variant


def _corrected_cells(each: CorrectedPair, level: float) -> Iterator[str]:
    *numbers, status = _cells(each.difference, level)
    yield from (_questions(each.difference), *numbers, pvalue(each.pvalue_holm), status)


def _cells(difference: Difference, level: float) -> Iterator[str]:
    yield from (number(value) for value in (*both_numbers(difference), difference.estimate))
    yield interval(*difference.confidence_interval(level).or_none())
    yield pvalue(difference.pvalue)
    yield difference.status


def _basis(corrected: Sequence[CorrectedPair]) -> str:
    """Say how many questions each corrected difference rests on."""
    if len(corrected) == 1:
        return _questions(corrected[0].difference)
    return "; ".join(f"{each.variant} {_questions(each.difference)}" for each in corrected)


def _questions(difference: NoiseCorrectedDifference) -> str:
    first, second = difference.first.patterns.n_questions, difference.second.patterns.n_questions
    shared = difference.n_shared
    return f"{shared:,}" if first == second == shared else f"{first:,} and {second:,}, {shared:,} of them shared"


def _unranked(found: RankedRuns) -> Iterator[str]:
    if found.found.left_out:
        yield (
            f"Left out: {', '.join(found.found.left_out)}, in which some model has no index with a standard "
            "error; --variant ranks under one of them."
        )
    for run in found.found.ranking.unranked:
        told = "" if run.estimate is None else f"{run.estimate:.3f} {interval_of(run)}, "
        yield f"{found.runs[run.row].label} is not ranked: {told}{run.status} ({run.reason})."


def missing_lines(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Say of each run which questions have no grade, and what they leave open of its index, before any number."""
    for run in runs:
        found = missing_ranges(run.variants)
        asked = {variant: first_draws(run.variants[variant]).height for variant in found}
        many = any(missing.questions > MISSING_LIMIT * asked[variant] for variant, missing in found.items())
        each = ", ".join(
            f"{title(variant)} {missing.questions:,} of {asked[variant]:,} (RI {span(missing.low, missing.high)})"
            for variant, missing in found.items()
        )
        begins, ends = ("Incomplete: ", BIASED) if many else ("", "")
        if found:
            yield f"{begins}{run.label} lacks grades, which leave its RI within a range: {each}.{ends}"


def _matching(runs: Sequence[ComparedRun], found: Match, variant: str | None) -> str:
    where = f"{variant}: " if variant else ""
    if found.paired:
        left = [f"{count:,} of {run.label}" for run, count in zip(runs, found.left_out, strict=True) if count]
        rest = f"; left out, since not every run has a grade there: {', '.join(left)}" if left else ""
        return f"{where}{len(found.matrix.question_ids):,} questions matched{rest}"
    counts = found.matrix.scored.sum(axis=1)
    listed = ", ".join(f"{count:,} of {run.label}" for run, count in zip(runs, counts, strict=True))
    shared = int(found.matrix.shared.sum())
    if len(runs) == 2 and not shared:
        return f"{where}compared unpaired, on other questions ({listed}): what differs may be these, not the model"
    return (
        f"{where}{shared:,} questions are shared by all; each run is taken on all of its own ({listed}), shared ones "
        "compared with themselves: part of what differs may be the questions"
    )


def _reasons(runs: Sequence[ComparedRun], pair: PairComparison) -> Iterator[str]:
    """Say why a difference has no p-value, once for each reason, naming the run."""
    found = [d for variant in pair.variants for d in variant.comparison.differences if d.status != "ok"]
    grouped: dict[tuple[str, str], list[str]] = {}
    for difference in found:
        key = difference.status, _named(runs, difference.reason)
        grouped.setdefault(key, []).append(METRIC_COLUMNS[difference.name])
    for (status, reason), names in grouped.items():
        advice = "go by the interval" if status == "boundary" else "there is no difference to speak of"
        yield f"{', '.join(dict.fromkeys(names))}: {status} ({reason}); {advice}."


def _corrected_reasons(runs: Sequence[ComparedRun], corrected: Sequence[CorrectedPair]) -> Iterator[str]:
    """Say why a corrected difference is none, has no interval, or has one that says nothing."""
    for each in corrected:
        if each.difference.confidence_interval() == (-2, 2):
            yield (
                f"{CORRECTED}, {each.variant}: too few questions, or too few that differ, for an interval: "
                "it rules nothing out."
            )
        elif each.difference.status != "ok":
            reason = _named([runs[each.first], runs[each.second]], each.difference.reason)
            yield f"{CORRECTED}, {each.variant}: {each.difference.status} ({reason})."


def _named(runs: Sequence[ComparedRun], reason: str | None) -> str:
    first, second = (run.label for run in runs)
    said = (reason or "").replace("first:", f"{first}: ").replace("second:", f"{second}: ")
    return said.replace(";", "; ").replace("zero_cell:", "no question is ").replace("_", " ")
