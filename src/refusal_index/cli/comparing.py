"""Comparisons on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console

from refusal_index.cli.comparing_json import JOINTLY, Difference, both_numbers, pair_document, ranking_document
from refusal_index.cli.harmless import harmless
from refusal_index.cli.show import COLUMNS, TABLE_WIDTH, UNDEFINED, plain_table, prose
from refusal_index.outcomes.cautions import MISSING_LIMIT
from refusal_index.outcomes.comparison import (
    INDEX,
    CompareOptions,
    CorrectedPair,
    PairComparison,
    RunRanking,
    compare_corrected,
    compare_pair,
    rank,
)
from refusal_index.outcomes.counts import completeness
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.runs import ComparedRun, Match, differing_settings
from refusal_index.stats import NoiseCorrectedDifference

CORRECTED = "RI corrected"
NAMES = {**COLUMNS, INDEX: "RI"}


def print_comparison(runs: Sequence[ComparedRun], options: CompareOptions, *, as_json: bool) -> None:
    """Compare two runs or rank more, and print what came out."""
    if len(runs) == 2:
        corrected = compare_corrected(runs, options)
        pair = compare_pair(runs, options)
        if as_json:
            _print_json(pair_document(runs, pair, corrected, options))
            return
        _print_pair(runs, pair, corrected, options)
    else:
        ranking = rank(runs, options)
        order = [run.row for run in (*ranking.ranking.runs, *ranking.ranking.unranked)]
        corrected = compare_corrected(runs, options, order) if options.metric == INDEX else ()
        if as_json:
            _print_json(ranking_document(runs, ranking, corrected))
            return
        _print_ranking(runs, ranking)
        _print_corrected(runs, corrected, options)
    differing = differing_settings(runs)
    if differing:
        verb = "differs" if len(differing) == 1 else "differ"
        prose(f"\nThe runs were not asked alike: {', '.join(differing)} {verb}. The difference may come from there.")


def _print_pair(
    runs: Sequence[ComparedRun], pair: PairComparison, corrected: Sequence[CorrectedPair], options: CompareOptions
) -> None:
    first, second = (harmless(run.label) for run in runs)
    prose(f"{first} minus {second}")
    for variant in pair.variants:
        prose(_matching(runs, variant.match, variant.name if len(pair.variants) > 1 else None))
    level = f"{options.confidence_level * 100:g} %"
    columns = ("metric", "variant", first, second, "difference", f"{level} interval", "p", "status")
    table = plain_table(columns, left=("metric", "variant", "status"))
    if pair.joint is not None:
        table.add_row("RI", _jointly(pair), *_cells(pair.joint, options.confidence_level))
    for name in (INDEX, *COLUMNS):
        for variant in pair.variants:
            difference = variant.comparison[name]
            table.add_row(NAMES[name], harmless(variant.name), *_cells(difference, options.confidence_level))
        for each in corrected if name == INDEX else ():
            table.add_row(CORRECTED, harmless(each.variant), *_cells(each.difference, options.confidence_level))
    typer.echo()
    Console(highlight=False, width=TABLE_WIDTH).print(table)
    if corrected:
        prose(f"\n{CORRECTED}: without the noise of single draws, on questions drawn repeatedly: {_basis(corrected)}.")
    for line in (*_reasons(runs, pair), *_corrected_reasons(runs, corrected)):
        prose(f"\n{line}")
    for line in _incomplete(runs):
        prose(f"\n{line}")


def _print_ranking(runs: Sequence[ComparedRun], found: RunRanking) -> None:
    ranking = found.ranking
    prose(_matching(runs, found.match, found.variant))
    level, name = f"{ranking.confidence_level * 100:g} %", NAMES[ranking.metric]
    title = name if found.variant else f"{name}, jointly"
    for line in _unranked(runs, found):
        prose(f"\n{line}")
    for line in _incomplete(runs):
        prose(f"\n{line}")
    if len(ranking.runs) < 2:
        prose("\nThere is nothing to rank: fewer than two models have an index with a standard error.")
        return
    table = plain_table(("model", title, f"{level} interval", "letters"), left=("model", "letters"))
    for run in ranking.runs:
        table.add_row(harmless(runs[run.row].label), *_number(run.estimate), _interval(run.low, run.high), run.letters)
    typer.echo()
    console = Console(highlight=False, width=TABLE_WIDTH)
    console.print(table)
    share = f"{(1 - ranking.confidence_level) * 100:g} %"
    prose(
        f"\nModels that share a letter cannot be told apart ({ranking.adjustment}: the chance of even one false "
        f"difference is about {share}); ties need not be transitive."
    )
    pairs = plain_table(("pair", "difference", f"simultaneous {level}", "p", "Holm", "max-t"), left=("pair",))
    for pair in ranking.pairs:
        names = f"{harmless(runs[pair.first].label)} - {harmless(runs[pair.second].label)}"
        tests = (_pvalue(p) for p in (pair.pvalue, pair.pvalue_holm, pair.pvalue_max_t))
        pairs.add_row(names, f"{pair.estimate:.3f}", _interval(*pair.simultaneous_interval.or_none()), *tests)
    typer.echo()
    console.print(pairs)


def _print_corrected(runs: Sequence[ComparedRun], corrected: Sequence[CorrectedPair], options: CompareOptions) -> None:
    """Print the differences of corrected indices beside a ranking, which is one of first draws."""
    if not corrected:
        return
    prose(
        "\nThe ranking is of first draws, which show a lower index the more random a model's behaviour is. Without "
        "that noise, on questions drawn repeatedly (Holm: within each variant):"
    )
    level = f"{options.confidence_level * 100:g} % interval"
    columns = ("pair", "variant", "questions", "first", "second", "difference", level, "p", "Holm", "status")
    table = plain_table(columns, left=("pair", "variant", "status"))
    for each in corrected:
        *numbers, status = _cells(each.difference, options.confidence_level)
        names = f"{harmless(runs[each.first].label)} - {harmless(runs[each.second].label)}"
        cells = (*numbers, _pvalue(each.pvalue_holm), status)
        table.add_row(names, harmless(each.variant), _questions(each.difference), *cells)
    typer.echo()
    Console(highlight=False, width=TABLE_WIDTH).print(table)
    for line in _corrected_reasons(runs, corrected):
        prose(f"\n{line}")


def _basis(corrected: Sequence[CorrectedPair]) -> str:
    """Say how many questions each corrected difference rests on."""
    if len(corrected) == 1:
        return _questions(corrected[0].difference)
    return "; ".join(f"{harmless(each.variant)} {_questions(each.difference)}" for each in corrected)


def _questions(difference: NoiseCorrectedDifference) -> str:
    first, second = difference.first.patterns.n_questions, difference.second.patterns.n_questions
    shared = difference.n_shared
    return f"{shared:,}" if first == second == shared else f"{first:,} and {second:,}, {shared:,} of them shared"


def _jointly(pair: PairComparison) -> str:
    """Name what the joint row rests on, where that is not all variants."""
    everything = len(pair.joint_over) == len(pair.variants)
    return JOINTLY if everything else f"{JOINTLY} over {', '.join(map(harmless, pair.joint_over))}"


def _unranked(runs: Sequence[ComparedRun], found: RunRanking) -> Iterable[str]:
    if found.left_out:
        yield (
            f"Left out: {', '.join(map(harmless, found.left_out))}, in which some model has no index with a standard "
            "error; --variant ranks under one of them."
        )
    for run in found.ranking.unranked:
        number = "" if run.estimate is None else f"{run.estimate:.3f} {_interval(run.low, run.high)}, "
        yield f"{harmless(runs[run.row].label)} is not ranked: {number}{run.status} ({run.reason})."


def _incomplete(runs: Sequence[ComparedRun]) -> Iterable[str]:
    """Say of each run what share of its questions has no grade, where that is too much."""
    for run in runs:
        shares = [completeness(first_draws(rows)).missing_share or 0.0 for rows in run.variants.values()]
        if max(shares, default=0.0) > MISSING_LIMIT:
            yield (
                f"{harmless(run.label)} lacks grades for up to {max(shares):.1%} of its questions: what is missing is "
                "rarely a fair sample, and every number here may be biased."
            )


def _matching(runs: Sequence[ComparedRun], found: Match, variant: str | None) -> str:
    where = f"{harmless(variant)}: " if variant else ""
    if found.paired:
        left = [f"{count:,} of {harmless(run.label)}" for run, count in zip(runs, found.left_out, strict=True) if count]
        rest = f"; left out, since not every run has a grade there: {', '.join(left)}" if left else ""
        return f"{where}{len(found.matrix.question_ids):,} questions matched{rest}"
    counts = found.matrix.scored.sum(axis=1)
    listed = ", ".join(f"{count:,} of {harmless(run.label)}" for run, count in zip(runs, counts, strict=True))
    shared = int(found.matrix.shared.sum())
    if len(runs) == 2 and not shared:
        return f"{where}compared unpaired, on other questions ({listed}): what differs may be these, not the model"
    return (
        f"{where}{shared:,} questions are shared by all; each run is taken on all of its own ({listed}), shared ones "
        "compared with themselves: part of what differs may be the questions"
    )


def _reasons(runs: Sequence[ComparedRun], pair: PairComparison) -> Iterable[str]:
    """Say why a difference has no p-value, once for each reason, naming the run."""
    found = [d for variant in pair.variants for d in variant.comparison.differences if d.status != "ok"]
    grouped: dict[tuple[str, str], list[str]] = {}
    for difference in found:
        key = difference.status, _named(runs, difference.reason)
        grouped.setdefault(key, []).append(NAMES[difference.name])
    for (status, reason), names in grouped.items():
        advice = "go by the interval" if status == "boundary" else "there is no difference to speak of"
        yield f"{', '.join(dict.fromkeys(names))}: {status} ({reason}); {advice}."


def _corrected_reasons(runs: Sequence[ComparedRun], corrected: Sequence[CorrectedPair]) -> Iterable[str]:
    """Say why a corrected difference is none, has no interval, or has one that says nothing."""
    for each in corrected:
        if each.difference.confidence_interval() == (-2, 2):
            yield (
                f"{CORRECTED}, {harmless(each.variant)}: too few questions, or too few that differ, for an interval: "
                "it rules nothing out."
            )
        elif each.difference.status != "ok":
            reason = _named([runs[each.first], runs[each.second]], each.difference.reason)
            yield f"{CORRECTED}, {harmless(each.variant)}: {each.difference.status} ({reason})."


def _named(runs: Sequence[ComparedRun], reason: str | None) -> str:
    first, second = (harmless(run.label) for run in runs)
    said = (reason or "").replace("first:", f"{first}: ").replace("second:", f"{second}: ")
    return said.replace(";", "; ").replace("zero_cell:", "no question is ").replace("_", " ")


def _cells(difference: Difference, level: float) -> Iterable[str]:
    yield from _number(*both_numbers(difference), difference.estimate)
    yield _interval(*difference.confidence_interval(level).or_none())
    yield _pvalue(difference.pvalue)
    yield difference.status


def _number(*values: float | None) -> Iterable[str]:
    return (UNDEFINED if value is None else f"{value:.3f}" for value in values)


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return UNDEFINED
    return f"[{low:.3f}, {high:.3f}]"


def _pvalue(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    return "<.0001" if value < 0.0001 else f"{value:.4f}"


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
