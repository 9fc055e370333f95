"""Runs compared or ranked, as text: the numbers, what they rest on, and what cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.data.rates import MISSING_LIMIT, never_forced
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.data.sampling import describe, first_draws
from refusal_index.findings.comparison import Difference, PairComparison, both_numbers
from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.ranking import RunRanking
from refusal_index.findings.sensitivity import missing_ranges
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.confidence import ONE_BY_ONE
from refusal_index.render.format import interval, interval_of, number, p_text, percent, pvalue, reason_text, span, title
from refusal_index.stats import CorrectedDifference, Status
from refusal_index.stats.design import FEW_CLUSTERS

CORRECTED_RI = (
    "Corrected RI: RI estimated for the models' probabilities of refusing and of being wrong, from repeated samples of "
    "forced answers."
)
DETERMINISTIC = "Corrected RI repeats RI: both models were asked at temperature 0, and no repeated sample differs."
MEASURES = {"auroc": "AUROC", "brier": "Brier"}
BIASED = " What is missing is rarely a fair sample, and every number here may be biased."


@shows(PairComparison)
def pair_blocks(found: PairComparison) -> Iterator[Block]:
    """Yield what came out of a comparison of two runs, and whether they were asked alike."""
    runs, variants, level = found.runs, found.variants, found.options.confidence_level
    first, second = (run.label for run in runs)
    for line in missing_lines(runs):
        yield from (line, "")
    yield f"{first} minus {second}"
    for variant in variants:
        yield _matching(runs, variant.match, variant.name if len(variants) > 1 else None)
    yield from _sampled(variants[0].match, found.options)
    columns = ("metric", "variant", first, second, "difference", f"{percent(level)} interval", "p", "Holm", "status")
    adjusted = found.adjusted_pvalues()
    rows = (
        (METRICS[metric].column, variant, *_with_holm(_cells(difference, level), holm))
        for (metric, variant, difference), holm in zip(found.rows(), adjusted, strict=True)
    )
    yield from ("", Table.of(columns, rows, left=("metric", "variant", "status")))
    yield from ("", _primary(found, adjusted))
    for line in _about_corrected(found):
        yield from ("", line)
    for line in _reasons(found):
        yield from ("", line)
    yield from _confidence(found)
    yield from _asked_otherwise(runs)


def _confidence(found: PairComparison) -> Iterator[Block]:
    """Yield how the scores of either run order and calibrate, where the same methods scored both."""
    if not found.confidence:
        return
    level, labels = percent(found.options.confidence_level), [run.label for run in found.runs]
    columns = ("confidence", "measure", "questions", *labels, "difference", f"{level} interval")
    rows = (
        (
            f"{one.method} ({one.variant})" if one.variant else one.method,
            MEASURES[one.measure],
            f"{one.questions[0]:,}" if one.paired else f"{one.questions[0]:,} and {one.questions[1]:,}",
            *map(number, (one.first, one.second, one.difference.estimate)),
            interval_of(one.difference),
        )
        for one in found.confidence
    )
    yield from ("", Table.of(columns, rows, left=("confidence", "measure")))
    how = {True: "paired, of the questions that both scored", False: "unpaired, since they share few questions"}
    said = [how[paired] for paired in (True, False) if any(one.paired is paired for one in found.confidence)]
    alike = f" {ONE_BY_ONE}" if describe(found.variants[0].match.matrix.design, found.options.sampling) else ""
    yield (
        f"High is good in AUROC, low in Brier. Intervals are {'; others '.join(said)}, and not adjusted for their "
        f"number.{alike}"
    )


def _with_holm(cells: Iterator[str], holm: float | None) -> Iterator[str]:
    *numbers, status = cells
    yield from (*numbers, pvalue(holm), status)


def _primary(found: PairComparison, adjusted: Sequence[float | None]) -> str:
    """Say which p-value stands as it is, and that the others are adjusted."""
    others = sum(one is not None for one in adjusted)
    if not found.has_primary:
        return f"No difference is primary: the p-values of all {others} are adjusted for their number (Holm)."
    metric, variant, difference = next(found.rows())
    name = METRICS[metric].column
    which = f"{name} {variant}" if len(found.variants) > 1 else name
    its = "it has no p-value" if difference.pvalue is None else "its p-value stands as it is"
    return (
        f"{which} is the primary comparison, and {its}; those of the other {others} are adjusted for their number "
        "(Holm)."
    )


@shows(RunRanking)
def ranking_blocks(found: RunRanking) -> Iterator[Block]:
    """Yield a ranking, what it rests on, and whether the runs were asked alike."""
    runs, ranking = found.runs, found.ranking
    for line in missing_lines(runs):
        yield from (line, "")
    yield _matching(runs, found.match, found.variant)
    yield from _sampled(found.match, found.options)
    for line in _unranked(found):
        yield from ("", line)
    if len(ranking.runs) < 2:
        yield from ("", "There is nothing to rank: fewer than two models have an index with a standard error.")
    else:
        yield from _ranked_blocks(found)
    if ranking.metric == CORRECTED:
        yield from ("", CORRECTED_RI)
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


def _ranked_blocks(found: RunRanking) -> Iterator[Block]:
    runs, ranking = found.runs, found.ranking
    level, name = percent(ranking.confidence_level), METRICS[ranking.metric].column
    columns = ("model", name if found.variant else f"{name}, jointly", f"{level} interval", "letters")
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


def _cells(difference: Difference, level: float) -> Iterator[str]:
    yield from (number(value) for value in (*both_numbers(difference), difference.estimate))
    yield interval(*difference.confidence_interval(level).or_none())
    yield pvalue(difference.pvalue)
    yield difference.status


def _about_corrected(found: PairComparison) -> Iterator[str]:
    """Say what the corrected index is and rests on, and where it disagrees with RI, or the models differ in noise."""
    pair, index, corrected = found, found.headline, found.corrected
    if pair.repeats_ri:
        yield DETERMINISTIC
    if pair.repeats_ri or not isinstance(corrected, CorrectedDifference):
        return
    drawn = [(one.name, one.corrected) for one in pair.variants if isinstance(one.corrected, CorrectedDifference)]
    each = [_questions(one) if len(pair.variants) == 1 else f"{name} {_questions(one)}" for name, one in drawn]
    yield f"{CORRECTED_RI} Questions sampled repeatedly, or at temperature 0: {'; '.join(dict.fromkeys(each))}."
    alpha = 1 - found.options.confidence_level
    if None not in (index.pvalue, corrected.pvalue) and _ahead(index, alpha) != _ahead(corrected, alpha):
        yield (
            f"RI and corrected RI disagree: by RI {_finding(found.runs, index, alpha)}, by corrected RI "
            f"{_finding(found.runs, corrected, alpha)}. RI decides."
        )
    random = corrected.reliability_pvalue
    if random is not None and random < alpha:
        less, more = _by_reliability(found.runs, corrected)
        yield (
            f"The models differ in how random they are ({p_text(random)}): the responses of {more} vary more from "
            f"sample to sample than those of {less}, so sampling noise may change its RI more."
        )


def _ahead(difference: Difference, alpha: float) -> int:
    """Return which run has the higher number beyond chance: 1, -1, or 0 for neither."""
    if difference.pvalue is None or difference.estimate is None or difference.pvalue >= alpha:
        return 0
    return 1 if difference.estimate > 0 else -1


def _finding(runs: Sequence[ComparedRun], difference: Difference, alpha: float) -> str:
    ahead, p = _ahead(difference, alpha), p_text(difference.pvalue)
    return f"{runs[0 if ahead > 0 else 1].label} is higher ({p})" if ahead else f"neither is higher ({p})"


def _by_reliability(runs: Sequence[ComparedRun], difference: CorrectedDifference) -> tuple[str, str]:
    """Return the labels of the less and of the more random run."""
    first, second = (one.reliability or 0.0 for one in (difference.first, difference.second))
    labels = runs[0].label, runs[1].label
    return labels if first >= second else labels[::-1]


def _questions(difference: CorrectedDifference) -> str:
    first, second = difference.first.n_repeated, difference.second.n_repeated
    shared = difference.n_shared
    return f"{shared:,}" if first == second == shared else f"{first:,} and {second:,}, {shared:,} of them shared"


def _unranked(found: RunRanking) -> Iterator[str]:
    if found.left_out:
        yield (
            f"Left out: {', '.join(found.left_out)}, in which some model has no index with a standard "
            "error; --variant ranks under one of them."
        )
    for run in found.ranking.unranked:
        told = "" if run.estimate is None else f"{run.estimate:.3f} {interval_of(run)}, "
        yield f"{found.runs[run.row].label} is not ranked: {told}{reason_text(run.status)} ({reason_text(run.reason)})."
    if tested := found.ranking.boundary_pairs:
        yield f"{found.runs[run.row].label} is not ranked: {told}{reason_text(run.status)} ({reason_text(run.reason)})."
        each = (
            f"{found.runs[one.first].label} - {found.runs[one.second].label} {pvalue(one.pvalue_holm)}"
            for one in tested
        )
        yield f"Models at the boundary against others, p by power divergence, Holm: {', '.join(each)}."


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
        if any(never_forced(first_draws(rows)) for rows in run.variants.values()):
            yield (
                f"{run.label} holds a first pass that nobody forced: of what it refused, only questions without a "
                "right answer are in these numbers, and no rate here is that of all its questions. 'refusal-index "
                "score' shows those."
            )
        if found:
            yield f"{begins}{run.label} lacks grades, which leave its index within a range: {each}.{ends}"


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


def _reasons(pair: PairComparison) -> Iterator[str]:
    """Say why a difference is no plain number, once for each reason, naming the run."""
    runs = pair.runs
    found = [one for variant in pair.variants for one in variant.comparison.differences if one.status != "ok"]
    grouped: dict[tuple[Status, str], list[str]] = {}
    for name, difference in (item for variant in pair.variants for item in variant.differences().items()):
        if difference.status != "ok":
            key = difference.status, _named(runs, difference.reason)
            grouped.setdefault(key, []).append(METRICS[name].column)
    for (status, reason), names in grouped.items():
        advice = "go by the interval" if status == "boundary" else "there is no difference to speak of"
        if METRICS[INDEX].column in names and any(one.method == "power_divergence" for one in found):
            advice += "; its p-value needs no standard error (power divergence)"
        yield f"{', '.join(dict.fromkeys(names))}: {status} ({reason}); {advice}."


def _named(runs: Sequence[ComparedRun], reason: str | None) -> str:
    first, second = (run.label for run in runs)
    said = (reason or "").replace("first:", f"{first}: ").replace("second:", f"{second}: ")
    return reason_text(said)
