"""A cut of a score as text: what it promises, and what it gave on the questions that it was not chosen on."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from refusal_index.findings.operating_points import OperatingPoint, Worth
from refusal_index.findings.scored_answers import rule_of
from refusal_index.findings.threshold import Threshold
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import interval_of, listed, number, percent
from refusal_index.stats import Estimate, RiskThreshold, UtilityThreshold


@shows(Threshold)
def threshold_blocks(threshold: Threshold) -> Iterator[Block]:
    """Yield the choice in words, what must be said beside it, and the numbers of the other half."""
    found = threshold.found
    yield _chosen_for_utility(threshold, found) if isinstance(found, UtilityThreshold) else _bound(threshold, found)
    for line in _beside(threshold):
        yield from ("", line)
    yield from ("", f"On the other half, over the same answers ({_scale(threshold)}):", "")
    yield _points_table(threshold)
    if same := [_name(threshold, one) for one in threshold.points if one.same_as_cut]:
        yield from ("", f"{threshold.rule} answers the same questions as {listed(same)}: there is nothing to compare.")
    if any(one.difference is not None for one in threshold.points):
        yield from ("", f"{threshold.rule} less each of the others, on the same questions:", "")
        yield _differences_table(threshold)
        if isinstance(found, UtilityThreshold):
            yield from ("", _verdict(threshold))


def _chosen_for_utility(threshold: Threshold, found: UtilityThreshold) -> str:
    first, second = _sizes(threshold)
    chosen = f"chosen on {first:,} questions for the highest utility at a penalty of {found.penalty:g}"
    worth = f"{number(found.utility)} a question there, which is optimistic; the other {second:,} judge it"
    if found.reason == "answer_all":
        return f"To answer all was {chosen}: no cut of {threshold.answers.name} is worth more than {worth}."
    if found.reason == "refuse_all":
        return f"To refuse all was {chosen}: no answers above a cut of {threshold.answers.name} are worth their errors."
    return f"{threshold.rule} was {chosen} ({worth})."


def _scale(threshold: Threshold) -> str:
    level, price = percent(threshold.options.interval_level), threshold.options.price
    return f"{level} intervals; a right answer is worth 1, a wrong one {-price:g}, a refusal 0"


def _bound(threshold: Threshold, found: RiskThreshold) -> str:
    confidence, share = percent(threshold.options.bound_level), percent(found.max_error)
    if found.cut is None:
        return (
            f"No cut of {threshold.answers.name} is known to keep errors within {share}: {_why_none(threshold, found)}."
        )
    return (
        f"With {confidence} confidence at most {share} of the answers given at {threshold.rule} are wrong, for "
        f"questions like these; on the other half {_seen(threshold)}."
    )


def _why_none(threshold: Threshold, found: RiskThreshold) -> str:
    confidence = percent(threshold.options.bound_level)
    if found.reason == "too_few_questions":
        return (
            f"the {_sizes(threshold)[0]:,} answers to choose on are so few that even with half of that error rate no "
            f"cut would be expected to show it with {confidence} confidence"
        )
    first = found.tested[0]
    seen = (
        f"at the first cut tested, {rule_of(threshold.answers, first.cut)}, {first.n_errors:,} of "
        f"{first.n_answered:,} answers are wrong, so with {confidence} confidence the error rate is at most "
        f"{100 * first.upper_bound:.1f} %. Higher cuts would leave too few answers to test"
    )
    if first.n_errors > found.max_error * first.n_answered:
        return f"{seen}, and more questions would hardly lower this one: the rate seen is itself above the limit"
    return f"{seen}; more questions could show that the rate is within the limit"


def _seen(threshold: Threshold) -> str:
    rate = threshold.points[0].worth.error_rate
    if rate.estimate is None:
        return "no answer scores as much"
    ends = "" if rate.low is None or rate.high is None else f" [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
    return f"{100 * rate.estimate:.1f} %{ends} were"


def _beside(threshold: Threshold) -> Iterator[str]:
    """Yield what was left out, and what the choice takes for granted."""
    rows, name = threshold.answers.rows, threshold.answers.name
    no_score = rows["confidence"].null_count()
    no_grade = rows.drop_nulls("confidence")["wrong"].null_count()
    said = [f"no score in {no_score:,} of {rows.height:,} replies"] if no_score else []
    said += [f"no grade of {no_grade:,} answers"] if no_grade else []
    if said:
        yield f"{name}: {', '.join(said)}; they are left out, and not filled in."
    if threshold.answers.is_trained:
        yield (
            f"{name} was trained on answers of both halves, each scored by a predictor that had not seen it: the cut "
            "owes something to the grades of the other half."
        )
    yield from _sampled(threshold)


def _sampled(threshold: Threshold) -> Iterator[str]:
    tables = pl.concat([table.select("cluster", "weight") for table in threshold.run.variants.values()])
    clusters = tables["cluster"].drop_nulls().n_unique()
    if clusters and isinstance(threshold.found, RiskThreshold):
        yield (
            f"The questions come in {clusters:,} clusters, none of which is in both halves. The bound takes questions "
            "of one cluster for independent ones, and promises less where they are alike; the intervals below allow "
            "for it."
        )
    if tables["weight"].null_count() < tables.height:
        yield "The cut was chosen with all questions counting alike; the numbers below are weighted."


def _points_table(threshold: Threshold) -> Table:
    columns = ("", "n", "answered", "interval", "errors of answered", "interval ", "utility", "interval  ")
    rows = ((_name(threshold, one), f"{one.questions:,}", *_cells(one.worth)) for one in threshold.points)
    return Table.of(columns, rows, left=("",))


def _differences_table(threshold: Threshold) -> Table:
    columns = ("the cut less", "n", "answered", "interval", "errors of answered", "interval ", "utility", "interval  ")
    compared = ((one, one.difference) for one in threshold.points)
    rows = ((_name(threshold, one), f"{one.questions:,}", *_cells(apart)) for one, apart in compared if apart)
    return Table.of(columns, rows, left=("the cut less",))


def _cells(worth: Worth) -> Iterator[str]:
    for one in (worth.coverage, worth.error_rate, worth.utility):
        yield from (number(one.estimate), interval_of(one))


def _name(threshold: Threshold, point: OperatingPoint) -> str:
    if point.kind == "score":
        return threshold.rule or ""
    if point.kind == "answer_all":
        return "answering all"
    return f"refusals of {point.variant}" if point.variant else "its refusals"


def _verdict(threshold: Threshold) -> str:
    """Say of which ways to refuse the cut is worth more, and of which less, by the intervals of the differences."""
    found: dict[str, list[str]] = {"more than": [], "less than": [], "an amount that cannot be told from": []}
    for one in threshold.points:
        if one.difference is not None:
            found[_side(one.difference.utility)].append(_name(threshold, one))
    said = [f"{word} {listed(names)}" for word, names in found.items() if names]
    return f"On questions that it was not chosen on, the cut is worth {', '.join(said)}."


def _side(difference: Estimate) -> str:
    if difference.low is not None and difference.low > 0:
        return "more than"
    return "less than" if difference.high is not None and difference.high < 0 else "an amount that cannot be told from"


def _sizes(threshold: Threshold) -> tuple[int, int]:
    usable, halves = threshold.answers.usable, threshold.halves
    first, second = (
        usable.filter(pl.col("question_id").is_in(list(half))).height for half in (halves.first, halves.second)
    )
    return first, second
